"""What is computed of a graph, by standard operators: in place of solvers, sorting and loops over a batch's members.

Keys are the names of the functions whose values a graph caches, or which choose a graph by content.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import reduce
from operator import add
from typing import Any

import torch
from torch import Tensor

from edgewise.deployment.graph import Members, TracedGraph, members_of, places_in, without_loop
from edgewise.errors import ExportError
from edgewise.graphs import EncoderDecoderGraph, Graph
from edgewise.graphs.rule import Both, Causal, Complete, Rule
from edgewise.layers.graph.graph_attention import SMALLEST


def positions(graph: TracedGraph) -> Tensor:
    """Where each node is in its member."""
    if graph.is_single:
        return torch.arange(graph.num_receivers, device=graph.device) + graph.offset
    return places_in(graph.sizes, members_of(graph.sizes, graph.num_receivers))


def all_pairs(graph: TracedGraph, inside: Rule | None = None) -> TracedGraph:
    """All nodes of each member, which attend to one another, or by a rule to some of them."""
    nodes = graph.num_receivers, graph.num_senders
    if graph.is_single:
        return TracedGraph.of_rule(inside or Complete(), nodes, graph.device, graph.forms)
    member = members_of(graph.sizes, graph.num_receivers)
    places = None if inside is None else (places_in(graph.sizes, member),) * 2
    return TracedGraph.of_rule(Members(member, member, inside, places), nodes, graph.device, graph.forms, graph.sizes)


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
    place = graph.device, graph.forms, None, square, graph.offset
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
    return graph.another(*ends, nodes, None if graph.is_single else graph.sizes, True), missing.shape[0]


def graph_of_clusters(graph: TracedGraph, clusters: int) -> TracedGraph:
    """For each member the complete graph of its clusters."""
    members = graph.sizes.shape[0]
    nodes = members * clusters
    if graph.is_single:
        return TracedGraph.of_rule(Complete(), (nodes, nodes), graph.device, graph.forms)
    member = torch.arange(nodes, device=graph.device) // clusters
    sizes = torch.full((members,), clusters, dtype=torch.int64, device=graph.device)
    return TracedGraph.of_rule(Members(member, member), (nodes, nodes), graph.device, graph.forms, sizes)


def edges_as_senders(graph: TracedGraph, times: int = 1) -> TracedGraph:
    """The graph in which each receiver listens to its own edges."""
    if times > 1:
        raise ExportError("it reads the edges of receivers that stand there several times")
    edges = torch.arange(graph.num_edges, device=graph.device)
    return graph.another(edges, graph.receivers, (graph.num_receivers, graph.num_edges), None, False)


def one_more(graph: TracedGraph) -> TracedGraph:
    """The complete graph of one node more."""
    nodes = graph.num_receivers + 1
    return TracedGraph.of_rule(Complete(), (nodes, nodes), graph.device, graph.forms)


def lookup(graph: TracedGraph, memories: int) -> TracedGraph:
    """The graph in which every node attends to every memory."""
    nodes = graph.num_receivers, memories
    return TracedGraph.of_rule(Complete(), nodes, graph.device, graph.forms, is_square=False)


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
    return TracedGraph.of_edges(senders, receivers, (n, n), FORMS, sizes)


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
    near = graph.another(senders, receivers, (n, n), None if graph.is_single else graph.sizes, True)
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
    f"{_GRAPHS}.spectral.random_walk_returns": random_walk_returns,
    f"{_GRAPHS}.spectral.hops": hops,
    f"{_GRAPHS}.spectral.component_spectra": _refused("the spectrum of a graph by rule"),
    f"{_GRAPHS}.spectral.path_edges": _refused("a shortest path"),
    f"{_GRAPHS}.cliques.clique_counts": _refused("the number of cliques of a graph by rule"),
    f"{_LAYERS}.graph.graph_attention.kernel_pairs": kernel_pairs,
    f"{_LAYERS}.graph.graph_attention.counted_pairs": _refused("the multiplicity of pairs"),
    f"{_LAYERS}.graph.sage.reading_order": _refused("the order in which a recurrent network reads neighbours"),
    f"{_LAYERS}.pooling.min_cut._graph_of_clusters": graph_of_clusters,
    f"{_LAYERS}.attention.hopfield._lookup": lookup,
    f"{_LAYERS}.plain.sides._loops": loops,
    f"{_LAYERS}.geometric.schnet.linked_pairs": lambda graph: None,
    "edgewise.kernels.messages.weighted.edges_as_senders": edges_as_senders,
    "edgewise.kernels.call._with_own_senders": edges_as_senders,
    "edgewise.models.graph.transformer.looped": looped,
    "edgewise.models.text.transformer._one_more": one_more,
    "edgewise.models.text.bart.twice": twice,
}

BY_CONTENT: dict[str, Callable[..., Any]] = {
    f"{_GRAPHS}.neighbors.k_nearest_in_members": k_nearest_in_members,
}
