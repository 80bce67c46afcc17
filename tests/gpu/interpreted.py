"""Where the tests of Triton kernels run: on the card where there is one, else in Triton's interpreter on the CPU."""

import dataclasses

import torch

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")


def quicken() -> None:
    """Few programs with large tiles: the interpreter takes as long for any tile. And integers that are not checked for
    overflow, which is half of its time."""
    from triton.runtime import interpreter

    from edgewise.gpu import products

    options = interpreter.interpreter_builder.options
    interpreter.interpreter_builder.options = dataclasses.replace(options, sanitize_overflow=False)
    products.WARPS, products.LANES = 512, 1024


if DEVICE.type == "cpu":
    quicken()
