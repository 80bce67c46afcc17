"""Batch normalisation over the nodes of all ranks, where these share one graph."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from edgewise.errors import ShapeError


def share_norms(model: nn.Module, group: dist.ProcessGroup) -> None:
    """Let every batch norm of a model take its mean and variance over the nodes of all ranks while it trains."""
    for norm in model.modules():
        if isinstance(norm, nn.BatchNorm1d):
            norm.forward = partial(_shared, norm, norm.forward, group)  # type: ignore[method-assign]


def _shared(norm: nn.BatchNorm1d, alone: Callable[[Tensor], Tensor], group: dist.ProcessGroup, x: Tensor) -> Tensor:
    """y = (x - μ) / √(σ² + ε) ⊙ γ + β,  μ, σ² of each channel over all nodes of all ranks; x [*, N, C]."""
    if not norm.training:
        return alone(x)
    rows = x.flatten(0, -2)
    count = float(_total(torch.tensor(float(len(rows)), dtype=torch.float64, device=x.device), group))
    if count == 1:
        raise ShapeError("batch normalisation cannot train on a single node: it has no variance")
    mean = _total(rows.sum(0), group) / max(count, 1)
    centred = rows - mean
    variance = _total(centred.square().sum(0), group) / max(count, 1)
    _remember(norm, mean.detach(), variance.detach() * (count / max(count - 1, 1)))
    y = centred * (variance + norm.eps).rsqrt()
    return (y if norm.weight is None else y * norm.weight + norm.bias).view(x.shape)


@torch.no_grad()
def _remember(norm: nn.BatchNorm1d, mean: Tensor, variance: Tensor) -> None:
    """Move the running statistics, as `nn.BatchNorm1d` does."""
    if norm.running_mean is None or norm.running_var is None or norm.num_batches_tracked is None:
        return
    norm.num_batches_tracked += 1
    share = 1 / float(norm.num_batches_tracked) if norm.momentum is None else norm.momentum
    norm.running_mean.lerp_(mean, share)
    norm.running_var.lerp_(variance, share)


def _total(x: Tensor, group: dist.ProcessGroup) -> Tensor:
    total: Tensor = _Total.apply(x, group)  # type: ignore[no-untyped-call]
    return total


class _Total(torch.autograd.Function):
    """The sum over all ranks, on all ranks, and so is its gradient."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, group: dist.ProcessGroup) -> Tensor:
        ctx.group = group
        total = x.clone(memory_format=torch.contiguous_format)
        dist.all_reduce(total, group=group)
        return total

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None]:
        return _total(gradient, ctx.group), None
