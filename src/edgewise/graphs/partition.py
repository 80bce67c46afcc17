"""One graph on several ranks: each has its own receivers, and fetches the senders' rows that it lacks."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from math import prod
from typing import Any, ClassVar, NoReturn, Self
from weakref import ref

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from edgewise.errors import GraphError
from edgewise.graphs import forms as lowering
from edgewise.graphs.derived import cached, derived
from edgewise.graphs.graph import Graph
from edgewise.graphs.rule import Causal

Group = dist.ProcessGroup | None  # None: all ranks


def bounds_of(count: int, parts: int) -> tuple[int, ...]:
    """The bounds of parts of some rows, whose numbers differ by at most one."""
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
        others = _exchanged(rows.index_select(0, self.read), self.sends, self.receives, self.group)
        return torch.cat([others[: self.before], rows, others[self.before :]]).movedim(0, axis)

    def returned(self, y: Tensor, axis: int) -> Tensor:
        """The transpose of `gathered`: what all ranks have for a row, summed where the row is held."""
        rows = y.movedim(axis, 0)
        stop = len(rows) - sum(self.receives) + self.before
        others = torch.cat([rows[: self.before], rows[stop:]])
        own = rows[self.before : stop].clone(memory_format=torch.contiguous_format)
        got = _exchanged(others, self.receives, self.sends, self.group)
        return own.index_add_(0, self.read, got).movedim(0, axis)

    def to(self, device: torch.device) -> Halo:
        """The same halo for rows on a device."""
        return Halo(self.group, self.read.to(device), self.sends, self.receives, self.before)


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
    to, of = (x.view(len(x), prod(x.shape[1:])).view(torch.uint8) for x in (got, rows.contiguous()))  # of any dtype
    dist.all_to_all_single(to, of, list(receives), list(sends), group=group)
    Halo.sent += (len(rows) - sends[dist.get_rank(group)]) * rows[:1].nbytes
    return got


@dataclass(frozen=True, eq=False)
class Arranged:
    """A graph whose nodes are numbered part by part.

    Symbols     order = the number that each node had before, [N], so that features follow as x[order]; edges = the same
                of edges, [E]; bounds = where each part begins, and the number of nodes
    """

    graph: Graph
    order: Tensor
    edges: Tensor
    bounds: tuple[int, ...]


@cached
def arranged(graph: Graph, parts: int) -> Arranged:
    """A graph's nodes in parts of about as many nodes each, between which METIS leaves few edges.

    Errors      GraphError without pymetis, or for a graph whose receivers are not its senders
    Edge cases  a part may have no nodes; within a part nodes keep their order
    Cost        O(E) once for a graph, on every rank alike
    Reference   Karypis & Kumar, "A fast and high quality multilevel scheme for partitioning irregular graphs", 1998
    """
    graph.require_square("a partition by METIS")
    try:
        import pymetis
    except ImportError as error:
        advice = "pip install 'edgewise[metis]', or choose train.partition blocks, for nodes numbered along communities"
        raise GraphError(f"train.partition metis needs pymetis, which is not installed: {advice}") from error
    receivers, senders = graph.receivers.cpu(), graph.senders.cpu()
    i, j = torch.cat([receivers, senders]), torch.cat([senders, receivers])
    shape = graph.num_receivers, graph.num_receivers
    offsets, neighbors, *_ = lowering.sorted_edges(i[i != j], j[i != j], shape)
    _, membership = pymetis.part_graph(parts, pymetis.CSRAdjacency(offsets.numpy(), neighbors.numpy()))
    part = torch.tensor(membership, dtype=torch.int64)
    order = part.argsort(stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    offsets, renumbered, edges, _ = lowering.sorted_edges(place[receivers], place[senders], shape)
    sizes = torch.bincount(part, minlength=parts)
    again = Graph._of(*shape, 0, torch.device("cpu"), offsets=offsets, senders=renumbered).to(graph.device)
    bounds = (0, *sizes.cumsum(0).tolist())
    return Arranged(again, order.to(graph.device), edges.to(graph.device), bounds)


class Partition(Graph):
    """This rank's part of a graph that all ranks of a group share. It is used as the graph itself: a verb fetches the
    rows of the senders that this rank lacks, and their gradients go back the same way.

    Symbols     I, J = this rank's own receivers and senders, a block of the whole graph's; local = its edges, a graph
                from its own and the fetched senders, in the order of the whole, to its receivers; bounds = where each
                rank's receivers begin, and their number
    Shapes      tensors of nodes hold this rank's rows [*, I, C], tensors of edges those of its receivers [*, E, C]
    Errors      GraphError for what would read the numbers of other ranks' nodes
    Edge cases  a rank may have no nodes; of a rule graph those rows are fetched that the rule needs: of a window the
                ones next to the block, of a causal graph all earlier ones
    Cost        time and memory of `local`; on the way: the bytes of the rows that other ranks' receivers listen to

    On rank 1 of two, which `torchrun` has started:

        part = Partition.of(causal(8))  # 4 receivers at offset 4
        y = attend(part, q, k, v)  # q, k, v [4, H, C] of its own tokens
    """

    local: Graph
    halo: Halo
    members: Tensor  # nodes of each member of the whole batch, [G]
    bounds: tuple[int, ...]
    is_contiguous: bool  # the senders of `local` follow one another in the whole: distances are those of the whole
    ring: Ring | None  # of a complete or causal graph, all of whose ranks have rows
    unparted: Graph | None  # the whole causal graph, which ranks may share by heads instead of rows
    _whole: ref[Graph]

    @classmethod
    def of(cls, whole: Graph, group: Group = None, bounds: Sequence[int] = (), senders: Sequence[int] = ()) -> Self:
        """This rank's part of a graph; every rank of the group makes its own, at the same time.

        Symbols     bounds: by default the blocks are equally long; senders = the same for senders that are other nodes
        """
        if whole.offset:
            raise GraphError(f"a partition is made of all rows of a graph, not of those from {whole.offset} on")
        size, rank = dist.get_world_size(group), dist.get_rank(group)
        bounds = tuple(bounds) or bounds_of(whole.num_receivers, size)
        holders = bounds if whole.is_square else tuple(senders) or bounds_of(whole.num_senders, size)
        first, last = holders[rank], holders[rank + 1]
        rows = whole.rows(bounds[rank], bounds[rank + 1])
        needed = _needed(rows)
        needed[first:last] = True
        numbers = needed.nonzero().flatten()
        run, offset = len(numbers) == 0 or int(numbers[-1] - numbers[0]) + 1 == len(numbers), 0
        if run and len(numbers):  # from the first of them on, as positions and distances are counted
            run, offset = (start := bounds[rank] - int(numbers[0])) >= 0, max(0, start)
        elif whole.is_square:
            offset = int(needed[:first].sum())
        local = _local(rows, needed, offset, run)
        halo = Halo.of(numbers, holders, group)
        part = cls._of(local.num_receivers, last - first, bounds[rank], whole.device, local=local, halo=halo)
        vars(part).update(bounds=bounds, members=whole.sizes, is_square=whole.is_square, is_contiguous=run)
        held = [tuple(stop - start for start, stop in pairwise(ends)) for ends in (bounds, holders)]
        causal = isinstance(whole.rule, Causal) and whole.is_square
        circle = (causal or (whole.rule is not None and whole.is_complete)) and size > 1 and all(map(all, held))
        unparted = Graph._of(whole.num_receivers, whole.num_senders, 0, whole.device, rule=whole.rule)
        vars(part).update(ring=Ring(group, held[1]) if circle else None, unparted=unparted if causal else None)
        vars(part).update(_whole=ref(whole))
        return part

    @property
    def whole(self) -> Graph:
        """The graph of which this is a part, while something else refers to it."""
        whole = self._whole()
        if whole is None:
            raise GraphError("the whole graph of this partition is gone: refer to it for as long as a layer reads it")
        return whole

    def share(self, members: bool = False) -> float:
        """How many of the whole's nodes, or of its members, this rank has, of 1."""
        return self.membership().num_receivers / len(self.members) if members else self.num_receivers / self.bounds[-1]

    def agreed(self, x: Tensor) -> Tensor:
        """What the first rank has, such as numbers that it has drawn, on all ranks."""
        x = x.contiguous()
        dist.broadcast(x, group=self.halo.group, group_src=0)
        return x

    def fetch(self, x: Tensor, axis: int = -2) -> Tensor:
        """Rows of this rank's senders with those of others around them, as `local` reads them."""
        return self.halo.fetch(x, axis)

    def _like(self, local: Graph) -> Self:
        """The same nodes with other edges."""
        part = self._of(self.num_receivers, self.num_senders, self.offset, self.device, local=local, halo=self.halo)
        same = ("bounds", "members", "is_square", "is_contiguous", "_whole")
        vars(part).update({name: vars(self)[name] for name in same}, ring=None, unparted=None)
        return part

    @property
    def senders(self) -> NoReturn:
        raise GraphError(
            "this rank holds a part of the graph, some of whose edges come from nodes of other ranks: read both ends "
            "of an edge with `ends`, and change a graph before it is partitioned"
        )

    @derived
    def offsets(self) -> Tensor:
        """As in `Graph`, of this rank's edges."""
        return self.local.offsets

    @derived
    def receivers(self) -> Tensor:
        """As in `Graph`, of this rank's edges."""
        return self.local.receivers

    @derived
    def num_edges(self) -> int:
        """How many edges this rank's receivers have."""
        return self.local.num_edges

    @derived
    def has_duplicates(self) -> bool:
        """Some receiver of this rank listens to some sender more than once."""
        return self.local.has_duplicates

    @derived
    def sizes(self) -> Tensor:
        """Nodes of the one graph that this rank has; there is no such number for graphs side by side."""
        if len(self.members) > 1:
            raise GraphError("graphs side by side are partitioned across their bounds: a rank knows no sizes of them")
        return torch.tensor([self.num_receivers], device=self.device)

    @derived
    def _in_degrees(self) -> Tensor:
        return self.local.in_degrees()

    @derived
    def _unlooped(self) -> Tensor:
        """bool [I]: which of this rank's nodes do not listen to themselves."""
        local = self.local
        if local.rule is not None:
            return ~local.rule.listens(local._positions(), local._positions())
        own = local.receivers[local.senders == local.receivers + local.offset]
        return lowering.counts(own, self.num_receivers) == 0

    @derived
    def has_self_loops(self) -> bool:
        """Every node of this rank listens to itself."""
        return self.is_square and not bool(self._unlooped.any())

    @derived
    def _looped(self) -> Self:
        local, missing = self.local, self._unlooped.nonzero().flatten()
        receivers = torch.cat([local.receivers, missing])
        return self._like(local._with_edges(receivers, torch.cat([local.senders, missing + local.offset]), None))

    def keep_edges(self, mask: Tensor) -> Self:
        """The graph of those edges of this rank for which a bool mask [E] is true."""
        return self._like(self.local.keep_edges(mask))

    @derived
    def _membership(self) -> Self:
        """Each rank has the graphs whose first nodes it has."""
        sizes, nodes = self.members, self.bounds[-1]
        edgeless = Graph._of(nodes, nodes, device=self.device, rule=None, sizes=sizes)
        begins = sizes.cumsum(0) - sizes
        bounds = torch.searchsorted(begins, torch.tensor(self.bounds, device=sizes.device)).tolist()
        return self.of(edgeless.membership(), self.halo.group, (*bounds[:-1], len(sizes)), self.bounds)

    def __repr__(self) -> str:
        return f"Partition({self.num_receivers} of {self.bounds[-1]} receivers, from {self.offset} on: {self.local})"


@cached
def partition(whole: Graph, group: Group = None, bounds: tuple[int, ...] = ()) -> Partition:
    """This rank's part of a graph, by default of equally long blocks, made once; every rank of the group calls it."""
    return Partition.of(whole, group, bounds)


_given: ContextVar[tuple[object, ...] | None] = ContextVar("graphs that may be read beside partitions", default=None)


@contextmanager
def partitioned(*given: object) -> Iterator[None]:
    """Within, verbs read partitions, and graphs that are given, alone.

    A graph that a layer makes of this rank's rows, such as their nearest neighbours, would leave out all other ranks'.
    """
    token = _given.set(given)
    try:
        yield
    finally:
        _given.reset(token)


def check_partitioned(graph: Graph) -> None:
    """Raise GraphError for a graph of this rank's rows alone."""
    given = None if torch.compiler.is_compiling() else _given.get()
    if given is not None and not any(graph is one for one in given):
        raise GraphError(
            f"a layer reads {graph}, which it made of this rank's nodes alone: leave out train.partition, or choose a "
            "layer that reads the task's own graph"
        )


def _needed(rows: Graph) -> Tensor:
    """bool [J]: the senders to which some receiver listens."""
    if rows.rule is None and rows.ranges() is None:
        return lowering.counts(rows.senders, rows.num_senders) > 0
    change = torch.zeros(rows.num_senders + 1, dtype=torch.int64, device=rows.device)  # of the intervals around each
    for starts, stops in rows._intervals():
        for bounds, by in ((starts, 1), (stops, -1)):
            change.index_add_(0, bounds.flatten(), torch.full_like(bounds.flatten(), by))
    return change.cumsum(0)[:-1] > 0


def _local(rows: Graph, needed: Tensor, offset: int, contiguous: bool) -> Graph:
    """The rows' graph among the needed senders alone, renumbered in their order."""
    count, place = int(needed.sum()), functional.pad(needed.cumsum(0), (1, 0))
    skipped = int(place.eq(0).sum()) - 1 if count else 0  # in front of the first
    nodes = rows.num_receivers, count, offset, rows.device
    if rows.rule is not None and contiguous and (skipped == 0 or rows.rule.is_relative):
        return Graph._of(*nodes, rule=rows.rule)
    if (ranges := rows.ranges()) is not None:
        return Graph._of(*nodes, _ranges=(place[ranges[0]], place[ranges[1]]))
    return Graph._of(*nodes, offsets=rows.offsets, senders=place[rows.senders])
