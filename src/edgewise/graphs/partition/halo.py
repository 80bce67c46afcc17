"""The halo of a rank: the rows of senders that its receivers listen to and that other ranks hold."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

import torch
import torch.distributed as dist
from torch import Tensor

Group = dist.ProcessGroup | None  # None: all ranks


def bounds_of(count: int, parts: int) -> tuple[int, ...]:
    """The bounds of parts of some rows, whose numbers differ by at most one.

    >>> bounds_of(5, 2)
    (0, 2, 5)
    """
    return tuple(count * part // parts for part in range(parts + 1))


@dataclass(frozen=True, eq=False)
class Halo:
    """Which rows a rank sends to each other rank and receives from it, before a verb reads its senders.

    Symbols     read = the numbers of this rank's own rows that others read, in the order of the ranks, int64 [S];
                sends, receives = how many of them each rank gets, and how many this rank gets of each, 0 of itself;
                before = how many of those that it receives lie in front of its own rows
    Cost        bytes on the way: those of the S rows forward, and of the rows received backward
    """

    group: Group
    read: Tensor
    sends: tuple[int, ...]
    receives: tuple[int, ...]
    before: int

    sent: ClassVar[int] = 0  # bytes that this process has sent to others

    @classmethod
    def of(cls, needed: Tensor, bounds: Sequence[int], group: Group) -> Halo:
        """The halo of a rank that needs these rows, ascending [L]; rank r holds bounds[r], ..., bounds[r + 1] - 1."""
        rank = dist.get_rank(group)
        owners = torch.bucketize(needed, torch.tensor(bounds[1:], device=needed.device), right=True)
        counts = torch.zeros(len(bounds) - 1, dtype=torch.int64, device=needed.device)
        counts.index_add_(0, owners, torch.ones_like(owners))
        before = int(counts[:rank].sum())
        counts[rank] = 0
        asked = torch.empty_like(counts)
        dist.all_to_all_single(asked, counts, group=group)
        sends, receives = tuple(asked.tolist()), tuple(counts.tolist())
        read = needed.new_empty(sum(sends))
        dist.all_to_all_single(read, needed[owners != rank], list(sends), list(receives), group=group)
        return cls(group, read - bounds[rank], sends, receives, before)

    def fetch(self, x: Tensor, axis: int) -> Tensor:
        """This rank's rows of x between those of other ranks, in the order of the whole; gradients go back.

        Shapes      x [*, n, ...] with its rows at `axis`, counted from the end -> [*, L, ...]
        """
        fetched: Tensor = _Fetch.apply(x, self, axis)  # type: ignore[no-untyped-call]
        return fetched

    def gathered(self, x: Tensor, axis: int) -> Tensor:
        """`fetch`, without a gradient."""
        rows = x.movedim(axis, 0)
        others = self._exchange(rows.index_select(0, self.read), self.sends, self.receives)
        return torch.cat([others[: self.before], rows, others[self.before :]]).movedim(0, axis)

    def returned(self, y: Tensor, axis: int) -> Tensor:
        """The transpose of `gathered`: what all ranks have for a row, summed where the row is held."""
        rows = y.movedim(axis, 0)
        stop = len(rows) - sum(self.receives) + self.before
        others = torch.cat([rows[: self.before], rows[stop:]])
        own = rows[self.before : stop].clone(memory_format=torch.contiguous_format)
        return own.index_add_(0, self.read, self._exchange(others, self.receives, self.sends)).movedim(0, axis)

    def _exchange(self, rows: Tensor, sends: Sequence[int], receives: Sequence[int]) -> Tensor:
        """As many rows to each rank, one rank after the other, for as many from each."""
        got = rows.new_empty(sum(receives), *rows.shape[1:])
        dist.all_to_all_single(_bytes(got), _bytes(rows.contiguous()), list(receives), list(sends), group=self.group)
        Halo.sent += rows.numel() * rows.element_size()
        return got

    def to(self, device: torch.device) -> Halo:
        """The same halo for rows on a device."""
        return Halo(self.group, self.read.to(device), self.sends, self.receives, self.before)


def _bytes(rows: Tensor) -> Tensor:
    """Rows as bytes [n, width]: any dtype is sent."""
    return rows.view(len(rows), prod(rows.shape[1:])).view(torch.uint8)


class _Fetch(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, halo: Halo, axis: int) -> Tensor:
        ctx.how = halo, axis
        return halo.gathered(x, axis)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _Return.apply(gradient, *ctx.how), None, None  # type: ignore[no-untyped-call]


class _Return(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, y: Tensor, halo: Halo, axis: int) -> Tensor:
        ctx.how = halo, axis
        return halo.returned(y, axis)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None]:
        return _Fetch.apply(gradient, *ctx.how), None, None  # type: ignore[no-untyped-call]
