"""What `torch.compile` shall leave alone, said without loading the compiler."""

import functools
import sys
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")
_disabled = functools.cache(lambda function: torch.compiler.disable(function))  # which imports the compiler, for 2.3 s


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """`torch.compiler.disable`, which does not import the compiler before something else has."""

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        return (_disabled(function) if "torch._dynamo" in sys.modules else function)(*args, **kwargs)

    run._torchdynamo_disable = True  # type: ignore[attr-defined] # the compiler cuts callers here, as PyTorch's own
    return run
