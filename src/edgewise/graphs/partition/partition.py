"""A graph whose nodes several ranks share: each has its own receivers, and fetches the senders' rows that it lacks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from itertools import pairwise
from typing import NoReturn, Self
from weakref import ref

import torch
import torch.distributed as dist
from torch import Tensor
from torch.nn import functional

from edgewise.errors import GraphError
from edgewise.graphs import forms as lowering
from edgewise.graphs.derived import cached, derived
from edgewise.graphs.graph import Graph
from edgewise.graphs.partition.halo import Group, Halo, Ring, bounds_of
from edgewise.graphs.rule import Causal


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
