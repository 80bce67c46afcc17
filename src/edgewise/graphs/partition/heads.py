"""Rows of some nodes and all heads against some heads and all nodes, between ranks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from edgewise.graphs.partition.halo import Group, Halo


def by_heads(x: Tensor, sizes: Sequence[int], group: Group) -> Tensor:
    """All nodes' rows for this rank's share of the heads; gradients go back.

    Shapes      x [*, n, H, C] of the rank's own n of N nodes -> [*, N, H / P, C]; P ranks, of `sizes` nodes
    Cost        a rank sends all but the share that is its own
    """
    turned: Tensor = _Turn.apply(x, tuple(sizes), group, True)  # type: ignore[no-untyped-call]
    return turned


def by_rows(y: Tensor, sizes: Sequence[int], group: Group) -> Tensor:
    """The way back: [*, N, H / P, C] -> [*, n, H, C]."""
    turned: Tensor = _Turn.apply(y, tuple(sizes), group, False)  # type: ignore[no-untyped-call]
    return turned


class _Turn(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: tuple[int, ...], group: Group, to_heads: bool) -> Tensor:
        ctx.how = sizes, group, to_heads
        rows = x.movedim(-3, 0)  # [nodes, *, heads, C]
        own, ranks = sizes[dist.get_rank(group)], len(sizes)
        if to_heads:
            rows = rows.unflatten(-2, (ranks, -1)).movedim(-3, 0).contiguous()  # [P, n, *, H / P, C]
            return _exchanged(rows.flatten(0, 1), [own] * ranks, sizes, group).movedim(0, -3)
        got = _exchanged(rows.contiguous(), sizes, [own] * ranks, group)
        return got.unflatten(0, (ranks, own)).movedim(0, -3).flatten(-3, -2).movedim(0, -3)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:
        sizes, group, to_heads = ctx.how
        return (by_rows if to_heads else by_heads)(gradient, sizes, group), None, None, None


def _exchanged(rows: Tensor, sends: Sequence[int], receives: Sequence[int], group: Group) -> Tensor:
    """So many rows to each rank, one rank after the other, for so many from each."""
    got = rows.new_empty(sum(receives), *rows.shape[1:])
    width = rows[0].numel() * rows.element_size()
    to, of = got.view(-1).view(torch.uint8), rows.view(-1).view(torch.uint8)
    dist.all_to_all_single(to, of, [width * n for n in receives], [width * n for n in sends], group=group)
    Halo.sent += width * (len(rows) - sends[dist.get_rank(group)])
    return got
