"""A graph while a model is exported, its numbers of nodes and edges symbols, its edges in the caller's order; and what
is computed of it by standard operators, in place of solvers, sorting and loops over a batch's members.

`FORMS` and `BY_CONTENT` name the functions whose values a graph caches, or which choose a graph by content.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from functools import reduce
from operator import add
from typing import Any, Self, TypeVar, cast

import torch
from torch import Tensor

from edgewise.errors import ExportError
from edgewise.graphs import EncoderDecoderGraph, Graph
from edgewise.graphs import forms as lowering
from edgewise.graphs.rule import Both, Causal, Complete, Either, Itself, Rule
from edgewise.layers.graph.graph_attention import SMALLEST

T = TypeVar("T")


@dataclass(frozen=True, eq=False)
class Members(Rule):
    """Receivers listen to the senders of their own member of a batch, or by a rule to some of them.

    Symbols     receivers [I], senders [J] = the member that each is of; inside = the rule, on `places` in the member,
                of receivers and of senders
    """

    receivers: Tensor
    senders: Tensor
    inside: Rule | None = None
    places: tuple[Tensor, Tensor] | None = None

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        together = self.receivers[i] == self.senders[j]
        if self.inside is None or self.places is None:
            return together
        return together & self.inside.listens(self.places[0][i], self.places[1][j])


def members_of(sizes: Tensor, nodes: int) -> Tensor:
    """The member that each node is of [N], from the members' sizes [G].

    Cost        O(N + G)

    >>> members_of(torch.tensor([2, 0, 1]), 3).tolist()
    [0, 0, 2]
    """
    starts = sizes.cumsum(0) - sizes
    marks = torch.zeros(nodes + 1, dtype=torch.int64, device=sizes.device)
    return marks.index_add(0, starts, torch.ones_like(starts))[:-1].cumsum(0) - 1


def places_in(sizes: Tensor, member: Tensor) -> Tensor:
    """Where each node is in its member [N].

    >>> places_in(torch.tensor([2, 0, 1]), torch.tensor([0, 0, 2])).tolist()
    [0, 1, 0]
    """
    return torch.arange(member.shape[0], device=member.device) - (sizes.cumsum(0) - sizes).index_select(0, member)


class TracedGraph(Graph):
    """A graph of which an exporter sees tensors alone: in place of what is computed of it elsewhere stand `FORMS`.

    Edge cases  edges are in the caller's order: `sort_edges` changes nothing; a rule lists its edges by receiver
    """

    @classmethod
    def of_edges(
        cls,
        senders: Tensor,
        receivers: Tensor,
        nodes: tuple[int, int],
        sizes: Tensor | None = None,
        is_square: bool = True,
    ) -> Self:
        """The graph of edges from senders [E] to receivers [E]; nodes = the numbers of receivers and of senders."""
        ends = {"senders": senders, "receivers": receivers, "num_edges": senders.shape[0]}
        return cls._traced(nodes, senders.device, sizes, is_square, rule=None, offset=0, **ends)

    @classmethod
    def of_rule(
        cls,
        rule: Rule,
        nodes: tuple[int, int],
        device: torch.device,
        sizes: Tensor | None = None,
        is_square: bool = True,
        offset: int = 0,
    ) -> Self:
        """The graph of a rule; nodes = the numbers of receivers and of senders; offset = the first receiver's place."""
        return cls._traced(nodes, device, sizes, is_square, rule=rule, offset=offset)

    @classmethod
    def _traced(
        cls, nodes: tuple[int, int], device: torch.device, sizes: Tensor | None, is_square: bool, **fields: Any
    ) -> Self:
        graph = cls.__new__(cls)
        sizes = torch.full((1,), nodes[0], dtype=torch.int64, device=device) if sizes is None else sizes
        fields |= {"num_receivers": nodes[0], "num_senders": nodes[1], "device": device, "sizes": sizes}
        fields |= {"is_complete": isinstance(fields["rule"], Complete), "is_square": is_square, "_order": None}
        graph.__dict__.update(fields, _definition=(), _memo={}, _versions=[])
        return graph

    @property
    def is_single(self) -> bool:
        """Whether it is no batch."""
        return isinstance(self.sizes.shape[0], int) and self.sizes.shape[0] == 1

    def memo(self, key: Hashable, build: Callable[[], T]) -> T:
        if key not in self._memo:
            name, *arguments = cast(tuple[str, ...], key)
            self._memo[key] = FORMS[name](self, *arguments) if name in FORMS else build()
        return cast(T, self._memo[key])

    # What `derived` would compute of ranges, of sorted edges or of numbers: here of edges as they are.

    @property
    def _pairs(self) -> tuple[Tensor, Tensor]:
        """Receivers and senders of all edges of a rule, listed once."""
        if "_listed" not in self.__dict__:
            if self.is_complete:
                i = torch.arange(self.num_receivers, device=self.device)[:, None].expand(-1, self.num_senders)
                j = torch.arange(self.num_senders, device=self.device).expand(self.num_receivers, -1)
                self.__dict__["_listed"] = i.flatten(), j.flatten()
            else:
                self.__dict__["_listed"] = self.dense_mask().nonzero().unbind(1)
        return cast(tuple[Tensor, Tensor], self.__dict__["_listed"])

    @property
    def receivers(self) -> Tensor:
        return cast(Tensor, self.__dict__["receivers"]) if self.rule is None else self._pairs[0]

    @property
    def senders(self) -> Tensor:
        return cast(Tensor, self.__dict__["senders"]) if self.rule is None else self._pairs[1]

    @property
    def num_edges(self) -> int:
        if self.is_complete:
            return self.num_receivers * self.num_senders
        return self.senders.shape[0]

    @property
    def offsets(self) -> Tensor:
        raise ExportError("it reads the edges receiver by receiver, which an exported model has in any order")

    def in_degrees(self) -> Tensor:
        if self.is_complete:
            return torch.full((self.num_receivers,), self.num_senders, dtype=torch.int64, device=self.device)
        return lowering.counts(self.receivers, self.num_receivers)

    def out_degrees(self) -> Tensor:
        return lowering.counts(self.senders, self.num_senders)

    def sort_edges(self, t: Tensor) -> Tensor:
        return t

    def dense_mask(self) -> Tensor:
        i = torch.arange(self.num_receivers, device=self.device) + self.offset
        j = torch.arange(self.num_senders, device=self.device)
        if self.rule is not None:
            return self.rule.listens(i[:, None], j)
        return self.multiplicity() > 0

    @property
    def has_self_loops(self) -> bool:
        raise ExportError("it asks whether every node listens to itself, which differs from graph to graph")

    def add_self_loops(self, fill: float | Tensor | None = None) -> Self:
        """Once in a program, whose layers share what is computed of the edges."""
        if "_looped" not in self.__dict__:
            self.__dict__["_looped"] = self._with_self_loops()
        return cast(Self, self.__dict__["_looped"])

    def _with_self_loops(self) -> Self:
        self.require_square("add_self_loops")
        if self.rule is None:
            return cast(Self, looped(self)[0])
        nodes, sizes = (self.num_senders, self.num_senders), None if self.is_single else self.sizes
        rule = self.rule if self.is_complete else Either(self.rule, Itself())
        return self.of_rule(rule, nodes, self.device, sizes)

    def transpose(self) -> tuple[Self, Tensor]:
        order = torch.arange(self.num_edges, device=self.device)
        return self.of_edges(self.receivers, self.senders, (self.num_senders, self.num_receivers), None, False), order

    def membership(self) -> Self:
        nodes, device = self.num_receivers, self.device
        if self.is_single:
            return self.of_rule(Complete(), (1, nodes), device, is_square=False)
        member = members_of(self.sizes, nodes)
        graphs = self.sizes.shape[0]
        return self.of_edges(torch.arange(nodes, device=device), member, (graphs, nodes), None, False)


def without_loop(graph: TracedGraph) -> Tensor:
    """The nodes that do not listen to themselves, found once in a program."""
    if "_without_loop" not in graph.__dict__:
        loops = (graph.senders == graph.receivers).to(torch.int64)
        zeros = torch.zeros(graph.num_senders, dtype=torch.int64, device=graph.device)
        alone = (zeros.index_add(0, graph.receivers, loops) == 0).nonzero().flatten()
        graph.__dict__["_without_loop"] = alone
    return cast(Tensor, graph.__dict__["_without_loop"])


def positions(graph: TracedGraph) -> Tensor:
    """Where each node is in its member."""
    if graph.is_single:
        return torch.arange(graph.num_receivers, device=graph.device) + graph.offset
    return places_in(graph.sizes, members_of(graph.sizes, graph.num_receivers))


def all_pairs(graph: TracedGraph, inside: Rule | None = None) -> TracedGraph:
    """All nodes of each member, which attend to one another, or by a rule to some of them."""
    nodes = graph.num_receivers, graph.num_senders
    if graph.is_single:
        return TracedGraph.of_rule(inside or Complete(), nodes, graph.device)
    member = members_of(graph.sizes, graph.num_receivers)
    places = None if inside is None else (places_in(graph.sizes, member),) * 2
    return TracedGraph.of_rule(Members(member, member, inside, places), nodes, graph.device, graph.sizes)


def joined(encoder: TracedGraph, decoder: TracedGraph, cross: TracedGraph) -> EncoderDecoderGraph:
    """The three as one, without its check, which compares their numbers."""
    made = object.__new__(EncoderDecoderGraph)
    for name, graph in (("encoder", encoder), ("decoder", decoder), ("cross", cross)):
        object.__setattr__(made, name, graph)
    return made


def twice(graph: TracedGraph) -> EncoderDecoderGraph:
    """Each text of a graph as a source and as its own target."""
    return joined(graph, all_pairs(graph, Causal()), all_pairs(graph))


def within(graph: TracedGraph, parts: Callable[[int], tuple[Graph, ...]]) -> tuple[TracedGraph, ...]:
    """The graph within each of several patterns by rule."""
    rules = [part.rule for part in parts(graph.num_senders)]
    if graph.rule is None or None in rules:
        raise ExportError("factorised attention is on a graph by rule")
    if isinstance(graph.rule, Members):
        return tuple(all_pairs(graph, rule) for rule in rules)
    nodes, square = (graph.num_receivers, graph.num_senders), graph.is_square
    both = [rule if graph.is_complete or rule is None else Both(graph.rule, rule) for rule in rules]
    place = graph.device, None, square, graph.offset
    return tuple(TracedGraph.of_rule(rule or Complete(), nodes, *place) for rule in both)


def random_walk_returns(graph: TracedGraph, steps: int) -> Tensor:
    """How likely a walk is back after 1, ..., `steps` steps, by powers of a dense matrix: O(steps N³)."""
    n = graph.num_receivers
    number = torch.zeros(n * n, dtype=torch.float64, device=graph.device)
    pairs = graph.receivers * n + graph.senders
    walk = number.index_add(0, pairs, torch.ones_like(pairs, dtype=torch.float64)).reshape(n, n)
    walk = walk / walk.sum(-1, keepdim=True).clamp(min=1)
    eye = torch.arange(n, device=graph.device)
    loops = (eye[:, None] == eye).to(torch.float64)
    returns, reached = [], walk
    for _ in range(steps):
        returns.append((reached * loops).sum(-1))
        reached = walk @ reached
    return torch.stack(returns, -1)


def hops(graph: TracedGraph, most: int) -> tuple[TracedGraph, Tensor]:
    """How many edges lead from every node to every other of its member, by products of a dense matrix: O(most N³)."""
    n = graph.num_receivers
    pairs = graph.receivers * n + graph.senders
    linked = torch.zeros(n * n, device=graph.device).index_add(0, pairs, torch.ones_like(pairs, dtype=torch.float32))
    linked = (linked.reshape(n, n) > 0).to(torch.float32)
    i = torch.arange(n, device=graph.device)
    reached = (i[:, None] == i).to(torch.float32)
    apart = torch.where(reached > 0, 0, most + 1)
    for step in range(1, most + 1):
        reached = ((linked @ reached) > 0).to(torch.float32)
        apart = torch.where((reached > 0) & (apart > most), step, apart)
    among = all_pairs(graph)
    listed = apart.flatten()
    return among, listed if graph.is_single else listed.index_select(0, among.receivers * n + among.senders)


def looped(graph: TracedGraph) -> tuple[TracedGraph, int]:
    """The graph with the loops that were missing after its own edges, and their number."""
    missing = without_loop(graph)
    ends = torch.cat([graph.senders, missing]), torch.cat([graph.receivers, missing])
    nodes = graph.num_receivers, graph.num_senders
    return TracedGraph.of_edges(*ends, nodes, None if graph.is_single else graph.sizes, True), missing.shape[0]


def graph_of_clusters(graph: TracedGraph, clusters: int) -> TracedGraph:
    """For each member the complete graph of its clusters."""
    members = graph.sizes.shape[0]
    nodes = members * clusters
    if graph.is_single:
        return TracedGraph.of_rule(Complete(), (nodes, nodes), graph.device)
    member = torch.arange(nodes, device=graph.device) // clusters
    sizes = torch.full((members,), clusters, dtype=torch.int64, device=graph.device)
    return TracedGraph.of_rule(Members(member, member), (nodes, nodes), graph.device, sizes)


def edges_as_senders(graph: TracedGraph, times: int = 1) -> TracedGraph:
    """The graph in which each receiver listens to its own edges."""
    if times > 1:
        raise ExportError("it reads the edges of receivers that stand there several times")
    edges = torch.arange(graph.num_edges, device=graph.device)
    return TracedGraph.of_edges(edges, graph.receivers, (graph.num_receivers, graph.num_edges), None, False)


def one_more(graph: TracedGraph) -> TracedGraph:
    """The complete graph of one node more."""
    nodes = graph.num_receivers + 1
    return TracedGraph.of_rule(Complete(), (nodes, nodes), graph.device)


def lookup(graph: TracedGraph, memories: int) -> TracedGraph:
    """The graph in which every node attends to every memory."""
    nodes = graph.num_receivers, memories
    return TracedGraph.of_rule(Complete(), nodes, graph.device, is_square=False)


def k_nearest_in_members(points: Tensor, sizes: Tensor, k: int, loops: bool = True) -> TracedGraph:
    """Every node listens to the k points of its member that are nearest to it; equally near ones go by their number.

    Cost        all pairs of all members: O(N² (D + log N)) time and O(N²) memory
    """
    n, x = points.shape[0], points.double()
    apart = reduce(add, ((axis[:, None] - axis).square() for axis in x.unbind(-1)))  # exact where ties are
    i = torch.arange(n, device=points.device)
    apart = torch.where(i[:, None] == i, -1.0 if loops else torch.inf, apart)
    if not (isinstance(sizes.shape[0], int) and sizes.shape[0] == 1):
        member = members_of(sizes, n)
        apart = torch.where(member[:, None] == member, apart, torch.inf)
    distance, nearest = apart.sort(stable=True, dim=-1)
    receivers, rank = ((distance < torch.inf) & (i < k)).nonzero().unbind(1)
    senders = nearest.flatten().index_select(0, receivers * n + rank)
    return TracedGraph.of_edges(senders, receivers, (n, n), sizes)


def edges_within(points: Tensor, sizes: Tensor | None, radius: float, cell: Tensor | None) -> Tensor:
    """`edge_index` of the pairs of points of one member that are within a radius of each other, without self-loops.

    Symbols     cell [N, D] = each point's periodic cell, 0 along an open axis: the nearest image counts
    Cost        all pairs of all members: O(N² D) time and memory
    """
    n, x = points.shape[0], points.double()
    apart = x[:, None] - x
    if cell is not None:
        box = cell.double()[:, None]
        apart = apart - box * (apart / torch.where(box > 0, box, 1.0)).round()
    i = torch.arange(n, device=points.device)
    near = (reduce(add, apart.square().unbind(-1)) <= radius * radius) & (i[:, None] != i)
    if sizes is not None:
        member = members_of(sizes, n)
        near = near & (member[:, None] == member)
    receivers, senders = near.nonzero().unbind(1)
    return torch.stack([senders, receivers])


def kernel_pairs(graph: TracedGraph, beta: float, steps: int) -> tuple[TracedGraph, Tensor]:
    """The pairs where the kernel exp(-βL) or (I - βL)^steps of a graph is not 0, and its logarithm there: O(N³) a step.

    exp(-βL) by Taylor's series at βL / 2^s, of norm at most 1/2, squared s times: exact to float64's rounding.
    """
    n, device = graph.num_receivers, graph.device
    number = torch.zeros(n * n, dtype=torch.float64, device=device)
    ends = torch.stack([graph.receivers * n + graph.senders, graph.senders * n + graph.receivers]).flatten()
    i = torch.arange(n, device=device)
    loops = i[:, None] == i
    linked = number.index_add(0, ends, torch.ones_like(ends, dtype=torch.float64)).reshape(n, n)
    a = ((linked > 0) & ~loops).to(torch.float64)
    d, eye = a.sum(1), loops.to(torch.float64)
    laplacian = eye * (d > 0).to(torch.float64) - a * d.clamp(min=1).rsqrt() * d.clamp(min=1).rsqrt()[:, None]
    halvings = 0 if steps else max(0, math.ceil(math.log2(4 * beta)))
    step = -beta / 2**halvings * laplacian
    kernel = eye + step / (1 if steps else TERMS)
    for term in range(TERMS - 1, 0, -1) if not steps else ():
        kernel = eye + step @ kernel / term
    base = kernel
    for _ in range(steps - 1):
        kernel = kernel @ base
    for _ in range(halvings):
        kernel = kernel @ kernel
    receivers, senders = (kernel > SMALLEST).nonzero().unbind(1)
    near = TracedGraph.of_edges(senders, receivers, (n, n), None if graph.is_single else graph.sizes, True)
    return near, kernel.flatten().index_select(0, receivers * n + senders).log().unsqueeze(-1)


def _refused(what: str) -> Callable[..., Any]:
    def refuse(*_: object) -> Any:
        raise ExportError(f"{what} has no form in standard operators")

    return refuse


def loops(graph: TracedGraph) -> tuple[TracedGraph, Tensor, Tensor]:
    """The graph with self-loops; the nodes that lacked one; and each edge's number among the graph's and these."""
    looped = graph.add_self_loops()
    return looped, without_loop(graph), torch.arange(looped.num_edges, device=graph.device)


TERMS = 14  # of Taylor's series of exp at norms up to 1/2: the next is below 2e-17
_GRAPHS, _LAYERS = "edgewise.graphs.make", "edgewise.layers"
FORMS: dict[str, Callable[..., Any]] = {
    f"{_LAYERS}.attention.positions.positions": positions,
    f"{_LAYERS}.attention.positions._longest": lambda graph: 0,  # a longer text reads past the table, which is an error
    f"{_LAYERS}.graph.graph_attention.all_pairs": all_pairs,
    f"{_LAYERS}.attention.sparse.within": within,
    f"{_LAYERS}.graph.encodings.random_walk_returns": random_walk_returns,
    f"{_GRAPHS}.spectral.hops": hops,
    f"{_GRAPHS}.spectral.component_spectra": _refused("the spectrum of a graph by rule"),
    f"{_GRAPHS}.spectral.path_edges": _refused("a shortest path"),
    f"{_GRAPHS}.regular.clique_counts": _refused("the number of cliques of a graph by rule"),
    f"{_LAYERS}.graph.graph_attention.kernel_pairs": kernel_pairs,
    f"{_LAYERS}.graph.graph_attention.counted_pairs": _refused("the multiplicity of pairs"),
    f"{_LAYERS}.graph.sage.reading_order": _refused("the order in which a recurrent network reads neighbours"),
    f"{_LAYERS}.graph.pooling._graph_of_clusters": graph_of_clusters,
    f"{_LAYERS}.attention.hopfield._lookup": lookup,
    f"{_LAYERS}.plain.sides._loops": loops,
    f"{_LAYERS}.geometric.convolutions.linked_pairs": lambda graph: None,
    "edgewise.kernels.messages.weighted.edges_as_senders": edges_as_senders,
    "edgewise.kernels.call._with_own_senders": edges_as_senders,
    "edgewise.models.graph.transformer.looped": looped,
    "edgewise.models.text.transformer._one_more": one_more,
    "edgewise.models.text.encoder_decoder.twice": twice,
}

BY_CONTENT: dict[str, Callable[..., Any]] = {
    f"{_GRAPHS}.neighbors.k_nearest_in_members": k_nearest_in_members,
}
