"""Sums, means and largest numbers over the nodes of each graph of a batch, whose rows lie one after the other."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from edgewise.kernels.operator.gradients import by_operations, gradients, in_own_dtypes
from edgewise.kernels.operator.operator import DTYPES
from edgewise.native import library, threads

READ = (torch.float32, torch.float64)
KINDS = {"sum": 0, "mean": 1, "max": 2}
MAX = KINDS["max"]


def pool(x: Tensor, sizes: Tensor, reduce: str) -> Tensor:
    """One row for each graph [G, C] of rows x [N, C] and the sizes [G] of the graphs; 0 for a graph without nodes."""
    y: Tensor = _Pool.apply(x.contiguous(), sizes, KINDS[reduce])  # type: ignore[no-untyped-call]
    return y


class _Pool(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: Tensor, kind: int) -> Tensor:
        offsets = sizes.new_zeros(len(sizes) + 1)
        torch.cumsum(sizes, 0, out=offsets[1:])
        y = x.new_empty(len(sizes), x.shape[1])
        place = x.data_ptr(), y.data_ptr()
        library.pool(DTYPES[x.dtype], threads(), kind, *y.shape, offsets.data_ptr(), *place)
        ctx.kind, ctx.shape = kind, x.shape
        ctx.save_for_backward(x if kind == MAX else None, sizes, offsets, y if kind == MAX else None)
        return y

    @staticmethod
    @in_own_dtypes
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, sizes, offsets, y = ctx.saved_tensors
        if by_operations(dy, x):
            if x is None:  # sums are linear: any x will do
                x = torch.zeros(ctx.shape, dtype=dy.dtype, requires_grad=True)
            return *gradients(partial(_composed, sizes, ctx.kind), [x], [dy]), None, None
        dx, dy = dy.new_empty(ctx.shape), dy.contiguous()
        places = (0 if one is None else one.data_ptr() for one in (x, y))
        library.pool_gradient(
            DTYPES[dy.dtype], threads(), ctx.kind, *dy.shape, offsets.data_ptr(), *places, dy.data_ptr(), dx.data_ptr()
        )
        return dx, None, None


def _composed(sizes: Tensor, kind: int, x: Tensor) -> Tensor:
    """The same by differentiable operations."""
    graph = torch.repeat_interleave(sizes, output_size=x.shape[0])
    zeros = x.new_zeros(len(sizes), x.shape[1])
    if kind == MAX:  # backward, PyTorch counts what it starts from among the largest, but no NaN
        start = zeros.masked_fill(sizes.unsqueeze(-1) > 0, torch.nan)
        return start.scatter_reduce(0, graph.unsqueeze(-1).expand_as(x), x, "amax", include_self=False)
    total = zeros.index_add(0, graph, x)
    return total if kind == KINDS["sum"] else total / sizes.clamp(min=1).to(x.dtype).unsqueeze(-1)
