"""The code around converted layers: dropout drawn by counter, as everywhere here, and products of long rows."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial, wraps
from typing import Any, TypeVar

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.overrides import TorchFunctionMode

from edgewise.interop.geometric.batches import affine, fits, is_long
from edgewise.interop.geometric.features import dropped
from edgewise.interop.later.tensor import Later
from edgewise.interop.twin import Twin, is_plain
from edgewise.kernels import dropout

T = TypeVar("T")


class OwnFunctions(TorchFunctionMode):
    """Where this mode is on, `functional.dropout` is `edgewise.kernels.dropout`, and `linear` of long rows `affine`.

    Edge cases  dropout in place, outside training, without gradients, and of what is no dense tensor is PyTorch's own,
                and so is all where tensors are saved through hooks: what `torch.utils.checkpoint` runs like this is
                computed again outside this mode, and must give the same
    Cost        a microsecond for each function of PyTorch that is called; dropout on the CPU takes a tenth of its time
    """

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        own = OWN.get(func)
        return (func if own is None or _saves_through_hooks() else own)(*args, **(kwargs or {}))


def _saves_through_hooks() -> bool:
    return torch._C._autograd._top_saved_tensors_default_hooks(True) is not None


def _dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Tensor:
    if inplace or not training or not torch.is_grad_enabled():
        return functional.dropout(input, p, training, inplace)
    if not (is_plain(input) or isinstance(input, Later)) or not 0 < p < 1:
        return functional.dropout(input, p, training, inplace)
    y = None if isinstance(input, Later) else dropped(input, p)
    return dropout(input, p) if y is None else y


def _linear(input: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    if is_long(weight) and fits(input, weight, *(() if bias is None else (bias[None],))):
        return affine(input, weight, bias)
    return functional.linear(input, weight, bias)


OWN: dict[Any, Callable[..., Tensor]] = {functional.dropout: _dropout, functional.linear: _linear}


def unwatched(function: Callable[..., T], *args: Any) -> T:
    """function(*args) as if no `OwnFunctions` were on: for code that calls no dropout of PyTorch."""
    depth = 0 if torch.compiler.is_compiling() else torch._C._len_torch_function_stack()
    if not depth or type(torch._C._get_function_stack_at(depth - 1)) is not OwnFunctions:
        return function(*args)
    mode = torch._C._pop_torch_function_stack()
    try:
        return function(*args)
    finally:
        torch._C._push_on_torch_function_stack(mode)


def leaving(forward: Callable[..., T]) -> Callable[..., T]:
    """A twin's forward pass that calls no dropout of PyTorch, run as if no `OwnFunctions` were on."""

    @wraps(forward)
    def run(*args: Any, **named: Any) -> T:
        return unwatched(partial(forward, **named), *args) if named else unwatched(forward, *args)

    return run


def _forward(module: nn.Module, *args: Any, **named: Any) -> Any:
    if torch.compiler.is_compiling():  # which fuses dropout with what surrounds it
        return NotImplemented
    with OwnFunctions():
        return type(module).twin_of.forward(module, *args, **named)  # type: ignore[attr-defined]


AROUND = Twin(_forward)
