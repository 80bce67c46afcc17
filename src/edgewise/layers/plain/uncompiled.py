"""What `torch.compile` shall leave alone, said without loading the compiler."""

import functools
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """`torch.compiler.disable`, which imports the compiler (2.3 s of processor time), but only once something else has.

    Differs     the compiler is imported by nothing but `torch.compile`: until then the function runs as it is
    """
    disabled: Any = None

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal disabled
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if disabled is None:
            disabled = torch.compiler.disable(function)
        return disabled(*args, **kwargs)

    run._torchdynamo_disable = True  # type: ignore[attr-defined] # callers are cut here, as around what it disables itself
    return run
