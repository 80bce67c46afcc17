"""Gradients that can themselves be differentiated."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import wraps
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor, is_legacy_batchedtensor

T = TypeVar("T")


def by_operations(*tensors: Tensor | None) -> bool:
    """Whether a backward pass that reads these tensors needs differentiable operations: it will itself be
    differentiated (`create_graph=True`), or has several gradients at once, whose memory no kernel can read."""
    if torch.compiler.is_compiling():
        return False
    again = torch.is_grad_enabled()
    return any(x is not None and ((again and x.requires_grad) or is_batched(x)) for x in tensors)


def is_batched(x: Tensor) -> bool:
    """Whether a tensor is several at once, as `torch.autograd.grad(is_grads_batched=True)` and `torch.func.vmap` of a
    backward pass hand them over."""
    return is_legacy_batchedtensor(x) or is_batchedtensor(x)


def in_own_dtypes(backward: Callable[..., T]) -> Callable[..., T]:
    """A backward pass that computes in its tensors' dtypes, within torch.autocast too: kernels read their memory."""

    @wraps(backward)
    def run(*arguments: Any) -> T:
        if not torch.is_autocast_enabled("cpu"):
            return backward(*arguments)
        with torch.autocast("cpu", enabled=False):
            return backward(*arguments)

    return run


def gradients(
    function: Callable[..., Tensor | Sequence[Tensor | None]],
    inputs: Sequence[Tensor | None],
    grads: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """Gradients to those inputs that require one, of a function made of differentiable operations; themselves
    differentiable where gradients are enabled.

    Symbols     function(*inputs) -> y, one tensor or several; grads = the gradient to each y, None where there is none
    """
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        fresh = [x if x is None else x.view_as(x) for x in inputs]  # so that one tensor used twice has two gradients
        y = function(*fresh)
    results = [y] if isinstance(y, Tensor) else y
    pairs = [(y, dy) for y, dy in zip(results, grads, strict=False) if y is not None and dy is not None]
    leaves = [x for x in fresh if x is not None and x.requires_grad]
    of_leaves = torch.autograd.grad(
        [y for y, _ in pairs], leaves, [dy for _, dy in pairs], create_graph=again, allow_unused=True,
        materialize_grads=True,
    )  # fmt: skip
    of_leaf = iter(of_leaves)
    return [next(of_leaf) if x is not None and x.requires_grad else None for x in fresh]
