"""Dropout in the code around converted layers: drawn by counter, as everywhere here."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from edgewise.interop.geometric.features import dropped
from edgewise.interop.later.tensor import Later
from edgewise.interop.twin import Twin, is_plain
from edgewise.kernels import dropout

T = TypeVar("T")


class DropoutByCounter(TorchFunctionMode):
    """Where this mode is on, `torch.nn.functional.dropout` is `edgewise.kernels.dropout`.

    Edge cases  in place, outside training, and of what is no dense tensor it is PyTorch's own
    Cost        a microsecond for each function of PyTorch that is called; dropout on the CPU takes a tenth of its time
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return (_dropout if func is functional.dropout else func)(*args, **(kwargs or {}))


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if inplace or not training or not (is_plain(input) or isinstance(input, Later)) or not 0 < p < 1:
        return functional.dropout(input, p, training, inplace)
    y = None if isinstance(input, Later) else dropped(input, p)
    return dropout(input, p) if y is None else y


def unwatched(function: Callable[..., T], *args: Any) -> T:
    """function(*args) as if no `DropoutByCounter` were on: for code that calls no dropout of PyTorch."""
    depth = 0 if torch.compiler.is_compiling() else torch._C._len_torch_function_stack()
    if not depth or type(torch._C._get_function_stack_at(depth - 1)) is not DropoutByCounter:
        return function(*args)
    mode = torch._C._pop_torch_function_stack()
    try:
        return function(*args)
    finally:
        torch._C._push_on_torch_function_stack(mode)


def leaving(forward: Callable[..., T]) -> Callable[..., T]:
    """A twin's forward pass that calls no dropout of PyTorch, run as if no `DropoutByCounter` were on."""

    @wraps(forward)
    def run(*args: Any, **named: Any) -> T:
        return unwatched(partial(forward, **named), *args) if named else unwatched(forward, *args)

    return run


def _forward(module: nn.Module, *args: Any, **named: Any) -> Any:
    if torch.compiler.is_compiling():  # which fuses dropout with what surrounds it
        return NotImplemented
    with DropoutByCounter():
        return type(module).twin_of.forward(module, *args, **named)  # type: ignore[attr-defined]


AROUND = Twin(_forward)
