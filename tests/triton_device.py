"""The device that Triton's kernels are tested on: the GPU where there is one, else the interpreter, made quicker."""

import dataclasses
from typing import Any

import torch
from triton.runtime import interpreter

from edgewise.kernels.backends.cuda.programs import products

DEVICE = torch.device("cuda" if torch.cuda.is_available() else "cpu")

_patched = set()


def _call(self: Any, *args: Any, **kwargs: Any) -> Any:
    """A call within a kernel, without putting the interpreter in the language's place again, which takes 10 ms."""
    if id(self.fn.__globals__) not in _patched:
        interpreter._patch_lang(self.fn)
        _patched.add(id(self.fn.__globals__))
    return self.rewrite()(*args, **kwargs)


def quicken() -> None:
    """Integers are not checked for overflow; and few programs with large tiles, as any tile takes as long."""
    interpreter.InterpretedFunction.__call__ = _call
    options = interpreter.interpreter_builder.options
    interpreter.interpreter_builder.options = dataclasses.replace(options, sanitize_overflow=False)
    products.WARPS, products.LANES = 512, 1024


if DEVICE.type == "cpu":
    quicken()
