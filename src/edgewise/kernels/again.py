"""Gradients that are differentiated again: second derivatives run on differentiable operations."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor


def differentiated_again(*tensors: Tensor | None) -> bool:
    """Whether a backward pass will itself be differentiated."""
    if not torch.is_grad_enabled() or torch.compiler.is_compiling():
        return False
    return any(x is not None and x.requires_grad for x in tensors)


def gradients_again(y: Tensor, inputs: Sequence[Tensor | None], dy: Tensor) -> list[Tensor | None]:
    """Differentiable gradients of y to those inputs that have one."""
    leaves = [x for x in inputs if x is not None and x.requires_grad]
    found = iter(torch.autograd.grad(y, leaves, dy, create_graph=True, allow_unused=True, materialize_grads=True))
    return [next(found) if x is not None and x.requires_grad else None for x in inputs]
