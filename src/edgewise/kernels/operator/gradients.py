"""Gradients that can themselves be differentiated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor


def creates_graph(*tensors: Tensor | None) -> bool:
    """Whether a backward pass that reads these tensors will itself be differentiated (`create_graph=True`)."""
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    return any(x is not None and x.requires_grad for x in tensors)


def gradients(
    function: Callable[..., Tensor | Sequence[Tensor | None]],
    inputs: Sequence[Tensor | None],
    grads: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """Differentiable gradients to those inputs that require one, of a function made of differentiable operations.

    Symbols     function(*inputs) -> y, one tensor or several; grads = the gradient to each y, None where there is none
    """
    fresh = [x if x is None else x.view_as(x) for x in inputs]  # so that one tensor used twice has two gradients
    y = function(*fresh)
    results = [y] if isinstance(y, Tensor) else y
    pairs = [(y, dy) for y, dy in zip(results, grads, strict=False) if y is not None and dy is not None]
    leaves = [x for x in fresh if x is not None and x.requires_grad]
    of_leaves = torch.autograd.grad(
        [y for y, _ in pairs], leaves, [dy for _, dy in pairs], create_graph=True, allow_unused=True,
        materialize_grads=True,
    )  # fmt: skip
    of_leaf = iter(of_leaves)
    return [next(of_leaf) if x is not None and x.requires_grad else None for x in fresh]
