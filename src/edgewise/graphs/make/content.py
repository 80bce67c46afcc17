"""Graphs from content: who resembles whom. Copies of nodes are laid side by side, so that ranges hold the edges.

A node may stand in several places: once for each head, each round of hashing, each cluster. Within a group (a bucket, a
cluster) places ascend by the node's position, so that a node's senders there are a few contiguous places.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from dataclasses import dataclass
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.errors import GraphError
from edgewise.graphs import forms as lowering
from edgewise.graphs.checks import dense_tensor, graph_first, index_tensor, same_device, whole_number
from edgewise.graphs.derived import cached
from edgewise.graphs.graph import Graph

P = ParamSpec("P")
T = TypeVar("T")


class Held:
    """The graphs that are chosen by content inside a `with` block: those of the first block, in turn, in later ones."""

    def __init__(self) -> None:
        self._graphs: list[Any] = []
        self._next = 0
        self._tokens: list[Token[Chooser | None]] = []

    def __enter__(self) -> None:
        self._next = 0
        self._tokens.append(_held.set(self))

    def __exit__(self, *error: object) -> None:
        _held.reset(self._tokens.pop())

    def choose(self, make: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """The next graph, made where it was not yet."""
        if self._next == len(self._graphs):
            self._graphs.append(make(*arguments, **named))
        self._next += 1
        return cast(T, self._graphs[self._next - 1])


class Chooser(Protocol):
    """What chooses graphs by content in place of the functions that do."""

    def choose(self, make: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """The graph that the function `make` would choose of these arguments, or another one."""


_held: ContextVar[Chooser | None] = ContextVar("held", default=None)


@contextmanager
def chosen_by(chooser: Chooser) -> Iterator[None]:
    """Let another choose the graphs inside the block."""
    token = _held.set(chooser)
    try:
        yield
    finally:
        _held.reset(token)


def by_content(make: Callable[P, T]) -> Callable[P, T]:
    """A function that chooses a graph by content, which `Held` can hold."""

    @wraps(make)
    def chosen(*arguments: P.args, **named: P.kwargs) -> T:
        held = None if torch.compiler.is_dynamo_compiling() else _held.get()
        return make(*arguments, **named) if held is None else held.choose(make, *arguments, **named)

    return chosen


@dataclass(frozen=True)
class Gathered:
    """A graph among places, and whose places they are.

    Symbols     receivers [I'], senders [J']: the node that stands in each place, numbered over all sequences
    """

    graph: Graph
    receivers: Tensor
    senders: Tensor

    def among_nodes(self, num_receivers: int, num_senders: int) -> Graph:
        """The same graph among the nodes themselves, with their numbers, without parallel edges."""
        ends = self.senders[self.graph.senders], self.receivers[self.graph.receivers]
        return Graph.from_edge_index(torch.stack(ends), num_senders, num_receivers).coalesce()

    def at(self, rows: Tensor) -> Gathered:
        """The same for some of the receivers' places, a bool mask [I']."""
        kept, ranges = rows.nonzero().flatten(), self.graph.ranges()
        if ranges is not None:
            starts, stops = (bound[kept] for bound in ranges)
            graph = Graph.from_ranges(starts, stops, self.graph.num_senders)
        else:
            row, edge = lowering.edges_of(self.graph.offsets, kept)
            edges = torch.stack([self.graph.senders[edge], row])
            graph = Graph.from_edge_index(edges, self.graph.num_senders, len(kept))
        return Gathered(graph, self.receivers[kept], self.senders)

    def beside(self, other: Gathered) -> Gathered:
        """The places of both."""
        receivers, senders = ((self.receivers, other.receivers), (self.senders, other.senders))
        return Gathered(Graph.batch([self.graph, other.graph]), torch.cat(receivers), torch.cat(senders))

    def with_sink(self) -> Graph:
        """The graph with one more sender, the last, to whom every receiver attends."""
        graph, sink = self.graph, self.graph.num_senders
        ranges = graph.ranges()
        if ranges is not None:
            starts, stops = (functional.pad(bound, (0, 1), value=sink + end) for end, bound in enumerate(ranges))
            return Graph.from_ranges(starts, stops, sink + 1)
        all_receivers = torch.arange(graph.num_receivers, device=graph.device)
        senders = torch.cat([graph.senders, torch.full_like(all_receivers, sink)])
        edges = torch.stack([senders, torch.cat([graph.receivers, all_receivers])])
        return Graph.from_edge_index(edges, sink + 1, graph.num_receivers)


@by_content
def alike(graph: Graph, of_receivers: Tensor, of_senders: Tensor, chunk: int, loops: bool = True) -> Gathered:
    """Those of the graph's senders who carry the receiver's label, and stand in its chunk or in the one before.

    Equation    N'_r(i) = {j ∈ N(i) : l_r(j) = l_r(i), c_r(i) − 1 ≤ c_r(j) ≤ c_r(i)},  c_r(j) = ⌊rank_r(j) / chunk⌋
    Symbols     of_receivers, of_senders = the labels l; rank_r(j) = how many nodes with that label, in the same member
                of a batch, come before j. Without `loops` a node leaves itself out, unless it is alone
    Shapes      of_receivers [S, R, I], of_senders [S, R, J] int64: S sequences on one graph, R rounds of labels
                -> S R I receivers and S R J senders; receivers and senders number the labels as they lie in memory
    Errors      labels of another shape, below 0, or no integers; a chunk below 1
    Edge cases  ranks count from a group's own start: in a causal graph a node's senders do not depend on later nodes
    Cost        O(S R N log N) time and O(S R N) memory for a graph by rule or ranges; O(S R E) for one by edges
    Reference   Kitaev, Kaiser & Levskaya, "Reformer: the efficient transformer", 2020, §2

    >>> from edgewise.graphs import causal, draw
    >>> labels = torch.tensor([0, 1, 0, 1, 0]).view(1, 1, 5)
    >>> print(draw(alike(causal(5), labels, labels, chunk=5).among_nodes(5, 5)))
    #....
    .#...
    #.#..
    .#.#.
    #.#.#
    """
    chunk = whole_number(chunk, "chunk", least=1)
    _check(graph, False, of_receivers=of_receivers, of_senders=of_senders)
    members = _members(graph)
    least_most = [of.aminmax() for of in (of_receivers, of_senders) if of.numel()]
    if any(int(bound.min) < 0 for bound in least_most):
        raise GraphError(f"labels must be at least 0, not {min(int(bound.min) for bound in least_most)}")
    labels = 1 + max((int(bound.max) for bound in least_most), default=0)
    sequences, rounds, count = of_receivers.shape

    def sorted_by_group(of: Tensor, member: Tensor) -> tuple[Tensor, Tensor]:
        first = torch.arange(sequences * rounds, device=of.device).view(sequences, rounds, 1) * len(graph.sizes)
        group, order = ((first + member) * labels + of).flatten(0, 1).sort(dim=-1, stable=True)
        return group.flatten(), order

    (group_i, i), (group_j, j) = sorted_by_group(of_receivers, members[0]), sorted_by_group(of_senders, members[1])
    place = _Places(graph, group_j, j.flatten())
    node = i.flatten()
    first = place.of(group_i, torch.zeros_like(node))
    rank = place.of(group_i, (node + graph.offset).clamp(max=graph.num_senders)) - first
    this = rank // chunk
    bounds = first + (this - 1).clamp(min=0) * chunk, first + (this + 1) * chunk
    rows = (torch.arange(sequences * rounds, device=i.device)[:, None] * count + i).flatten()
    itself = None if loops else first + rank
    among = place.within_groups(group_i, node, bounds, itself, rows // (rounds * count) * count + node)
    columns = torch.arange(sequences * rounds, device=j.device)[:, None] * graph.num_senders + j
    return Gathered(among, rows, columns.flatten())


@by_content
def clusters(graph: Graph, near_receivers: Tensor, near_senders: Tensor, size: int) -> Gathered:
    """Each cluster takes in the receivers and the senders nearest to it; those receivers attend to those senders.

    Equation    N'_c(i) = N(i) ∩ top_j(near_c(j)) for i ∈ top_i(near_c(i)),  top = the `size` largest of each member
    Symbols     near = how near a node is to each cluster
    Shapes      near_receivers [S, K, I], near_senders [S, K, J] for S sequences on one graph and K clusters
                -> at most S K size receivers and senders, which number the nodes: s I + i and s J + j
    Errors      near of another shape, or no floating-point numbers; a size below 1
    Edge cases  a node may be taken in by several clusters, or by none
    Cost        O(S K N + S K size log N)
    Reference   Roy et al., "Efficient content-based sparse attention with routing transformers", 2021, Algorithm 1

    >>> from edgewise.graphs import complete, draw
    >>> near = torch.tensor([[0.9, 0.8, 0.1, 0.2], [0.0, 0.1, 0.9, 0.8]])[None]
    >>> print(draw(clusters(complete(4), near, near, size=2).among_nodes(4, 4)))
    ##..
    ##..
    ..##
    ..##
    """
    size = whole_number(size, "size", least=1)
    _check(graph, True, near_receivers=near_receivers, near_senders=near_senders)
    group_i, i = _nearest(near_receivers, graph.sizes, size)
    group_j, j = _nearest(near_senders, graph.sender_sizes, size)
    among = _Places(graph, group_j, j).within_groups(group_i, i)
    per_sequence = near_senders.shape[1] * len(graph.sizes)
    return Gathered(
        among,
        group_i // per_sequence * graph.num_receivers + i,
        group_j // per_sequence * graph.num_senders + j,
    )


def laid_out(sizes: Tensor, multiple: int = 1) -> Tensor:
    """The nodes of each member in a row of its own, [G, longest]; a row that is too short goes on with the number N.

    >>> laid_out(torch.tensor([2, 3]))
    tensor([[0, 1, 5],
            [2, 3, 4]])
    """
    sizes, multiple = index_tensor(sizes, "sizes", axes=1), whole_number(multiple, "multiple", least=1)
    longest = int(sizes.max()) if len(sizes) else 0
    step = torch.arange(-(-longest // multiple) * multiple, device=sizes.device)
    first = sizes.cumsum(0) - sizes
    return torch.where(step < sizes[:, None], first[:, None] + step, sizes.sum())


@cached
def causal_members(graph: Graph) -> Tensor:
    """Of each member, whether none of its receivers attends to a later position, bool [G]; cached with the graph."""
    member, ranges = _members(graph)[0], graph.ranges()
    first_i, first_j = (sizes.cumsum(0) - sizes for sizes in (graph.sizes, graph.sender_sizes))
    own = torch.arange(graph.num_receivers, device=graph.device) + graph.offset + (first_j - first_i)[member]
    if ranges is not None:
        starts, stops = ranges
        ahead = ((stops > starts) & (stops - 1 > own[:, None])).any(1).nonzero().flatten()
    else:
        ahead = graph.receivers[graph.senders > own[graph.receivers]]
    return lowering.counts(member[ahead], len(graph.sizes)) == 0


@cached
def is_causal(graph: Graph) -> bool:
    """Whether no receiver attends to a later position of its member; cached with the graph."""
    return bool(causal_members(graph).all())


class _Places:
    """Places of senders, sorted by group and then by node, and the edges to them."""

    def __init__(self, graph: Graph, group: Tensor, node: Tensor) -> None:
        self.graph = graph
        self.keys = group * (graph.num_senders + 1) + node

    def of(self, group: Tensor, node: Tensor) -> Tensor:
        """The first place in a group whose node is that one or a later one."""
        return torch.searchsorted(self.keys, group * (self.graph.num_senders + 1) + node)

    def within_groups(
        self,
        group: Tensor,
        node: Tensor,
        bounds: tuple[Tensor, Tensor] | None = None,
        itself: Tensor | None = None,
        owner: Tensor | None = None,
    ) -> Graph:
        """The graph from the places of a receiver's group whose nodes are its node's senders, within bounds.

        With `itself` a receiver's own place is left out, unless none of its owner's receivers has another sender.
        """
        ranges, row = self.graph.ranges(), None
        if ranges is not None:
            starts, stops = (self.of(group[:, None], bound[node]) for bound in ranges)  # [I', R]
        else:
            row, edge = lowering.edges_of(self.graph.offsets, node)
            starts, stops = (self.of(group[row], self.graph.senders[edge] + end) for end in (0, 1))
            starts, stops = starts[:, None], stops[:, None]
        at = slice(None) if row is None else row
        if bounds is not None:
            least, most = (bound[at, None] for bound in bounds)
            starts, stops = (torch.minimum(torch.maximum(x, least), most) for x in (starts, stops))
        if itself is not None and owner is not None:
            starts, stops = _without(starts, stops, itself[at, None], owner[at])
        if row is None:
            return Graph.from_ranges(starts, stops, len(self.keys))
        receivers = torch.repeat_interleave(row, (stops - starts).sum(1))
        edges = torch.stack([lowering.senders_of(starts, stops), receivers])
        return Graph.from_edge_index(edges, len(self.keys), len(node))


def _without(starts: Tensor, stops: Tensor, itself: Tensor, owner: Tensor) -> tuple[Tensor, Tensor]:
    """Intervals cut in two around a receiver's own place, but for owners without other senders."""
    inside = (starts <= itself) & (itself < stops)
    others = (stops - starts - inside.long()).sum(1)
    total = others.new_zeros(int(owner.max()) + 1 if len(owner) else 0).index_add_(0, owner, others)
    alone = (total == 0)[owner][:, None]
    before, after = (torch.minimum(torch.maximum(cut, starts), stops) for cut in (itself, itself + 1))
    before, after = before.where(~alone, stops), after.where(~alone, stops)
    return torch.stack([starts, after], -1).flatten(1), torch.stack([before, stops], -1).flatten(1)


def _nearest(near: Tensor, sizes: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """The nodes nearest to each cluster in each member, as (group, node), both ascending."""
    sequences, count, nodes = near.shape
    table = laid_out(sizes)
    laid = functional.pad(near, (0, 1), value=-torch.inf)[..., table]  # [S, K, G, longest]
    top = laid.topk(min(size, table.shape[1]), sorted=False).indices
    chosen = table.expand(sequences, count, -1, -1).gather(-1, top).sort(-1).values.flatten(0, 2)
    taken = chosen < nodes
    group = torch.arange(len(chosen), device=near.device)[:, None].expand_as(chosen)
    return group[taken], chosen[taken]


def _members(graph: Graph) -> tuple[Tensor, Tensor]:
    """In which member of a batch each receiver and each sender is."""
    receivers = torch.repeat_interleave(graph.sizes)
    return receivers, receivers if graph.is_square else torch.repeat_interleave(graph.sender_sizes)


def _check(graph: Graph, floating: bool, **both: Tensor) -> None:
    """Raise GraphError for what is known of receivers and senders, where it is none: labels, or floating numbers."""
    graph_first(graph, *both.values())
    kind = "floating-point" if floating else "whole"
    for name, known in both.items():
        given = dense_tensor(known, name, f"of {kind} numbers")
        if given.is_floating_point() != floating or given.dtype == torch.bool:
            raise GraphError(f"{name} must hold {kind} numbers, not {str(given.dtype).removeprefix('torch.')}")
        same_device(name, given, graph.device)
    receivers, senders = (list(known.shape) for known in both.values())
    wanted = graph.num_receivers, graph.num_senders
    if not len(receivers) == len(senders) == 3 or receivers[:2] != senders[:2] or (receivers[2], senders[2]) != wanted:
        shapes = f"[S, R, {wanted[0]}] for the receivers and [S, R, {wanted[1]}] for the senders"
        raise GraphError(f"labels or scores are {receivers} and {senders}, but must have {shapes}")
