"""What ranks send one another: the rows of a halo, blocks around a ring, and rows of nodes against heads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
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


@dataclass(frozen=True)
class Ring:
    """The ranks of a group in a circle.

    Symbols     sizes = how many rows each rank holds, at least one
    Cost        a rank needs memory for two blocks of rows at a time, however many ranks there are
    """

    group: Group
    sizes: tuple[int, ...]

    @property
    def rank(self) -> int:
        return dist.get_rank(self.group)

    def passed(self, block: Tensor, axis: int, behind: int, tag: int = 0) -> Callable[[], Tensor]:
        """Send a block to the next rank, while it computes; what is returned waits for the one before's.

        Symbols     behind = how many ranks further back the rank is whose rows arrive; tag tells apart what passes at
                    the same time
        """
        size, rank = len(self.sizes), self.rank
        shape = list(block.shape)
        shape[axis] = self.sizes[(rank - behind) % size]
        block, arriving = block.contiguous(), block.new_empty(shape)
        Halo.sent += block.numel() * block.element_size()
        after, before = (_number(self.group, (rank + step) % size) for step in (1, -1))
        sending = dist.P2POp(dist.isend, block.view(-1).view(torch.uint8), after, self.group, tag)
        taking = dist.P2POp(dist.irecv, arriving.view(-1).view(torch.uint8), before, self.group, tag)
        return partial(_wait, dist.batch_isend_irecv([sending, taking]), block, arriving)


def _wait(works: Sequence[dist.Work], leaving: Tensor, arriving: Tensor) -> Tensor:
    """What arrives, once all has; what leaves must be there until then."""
    for work in works:
        work.wait()
    return arriving


def _number(group: Group, rank: int) -> int:
    """A rank's number among all processes."""
    return rank if group is None else dist.get_global_rank(group, rank)


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
