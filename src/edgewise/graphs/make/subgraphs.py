"""Copies of a graph with marked nodes: what networks read that see more than 1-WL does."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import forms as lowering
from edgewise.graphs.checks import whole_number
from edgewise.graphs.derived import cached
from edgewise.graphs.graph import Graph


@dataclass(frozen=True)
class Copies:
    """Many copies of parts of a graph, side by side.

    Args:
        graph: Their disjoint union, a batch of which each copy is a member.
        nodes: For each node of the union, the node of the graph that it is a copy of.
        marks: For each node of the union, what it is in its copy, int64 [nodes of the union, marks].
    """

    graph: Graph
    nodes: Tensor
    marks: Tensor


@dataclass(frozen=True)
class Pairs:
    """All pairs (i, j) of nodes of one member of a batch: (0, 0), (0, 1), ..., (1, 0), ... member by member.

    Args:
        graph: The complete graph on each member's nodes, whose edges from j to i they are.
        links: How many edges lead from j to i and from i to j, and whether they are one node: int64 [P, 3].
        diagonal: The places of the pairs of a node with itself, [N].
        squares: For each number of nodes that a member has, that number and the places of all such members' pairs.
        back: From the places of all squares, one after the other, back to the order of the pairs.
    """

    graph: Graph
    links: Tensor
    diagonal: Tensor
    squares: tuple[tuple[int, Tensor], ...]
    back: Tensor


@cached
def pairs(graph: Graph) -> Pairs:
    """All pairs of nodes of each member of a batch.

    Errors      GraphError for a graph whose receivers are not its senders
    Cost        O(Σ n²) time and memory, n the nodes of each member
    """
    graph.require_square("pairs of nodes")
    sizes, nodes = graph.sizes, graph.num_receivers
    stops = sizes.cumsum(0).repeat_interleave(sizes)[:, None]
    ranges = stops - sizes.repeat_interleave(sizes)[:, None], stops
    every = Graph._of(nodes, nodes, device=graph.device, _ranges=ranges, sizes=sizes)
    row = every.offsets[:-1] - ranges[0].flatten()  # (i, j) is pair number row[i] + j
    links = torch.bincount(row[graph.receivers] + graph.senders, minlength=every.num_edges)
    back = torch.bincount(row[graph.senders] + graph.receivers, minlength=every.num_edges)
    same = every.receivers == every.senders
    size = sizes.repeat_interleave(sizes.square())
    squares = tuple((n, (size == n).nonzero().flatten()) for n in sizes.unique().tolist() if n)
    order = torch.cat([places for _, places in squares]).argsort() if squares else size
    return Pairs(every, torch.stack([links, back, same.long()], -1), same.nonzero().flatten(), squares, order)


@cached
def marked_copies(graph: Graph) -> Copies:
    """A copy of each member for each of its nodes, in which that node is marked with 1 and the others with 0.

    Shapes      a member of n nodes: n copies, in the order of the nodes that they mark; Σ n² nodes in all
    Errors      GraphError for a graph whose receivers are not its senders
    """
    both = pairs(graph).graph
    root, node = both.receivers, both.senders
    return Copies(_induced(graph, root, node, graph.num_receivers), node, (root == node).long()[:, None])


@cached
def rooted_copies(graph: Graph, hops: int) -> Copies:
    """For each edge from j to i, the nodes within some hops of i and their edges, in which i and j are marked.

    Symbols     hops = the farthest node of a copy, counted along edges from i to what it listens to
    Shapes      copies in the order of the graph's edges; marks = the distance from i, and 1 for j
    Errors      GraphError for a graph whose receivers are not its senders
    Edge cases  parallel edges have a copy each
    Cost        O(Σ_i d_i · (nodes and edges within `hops` of i))
    """
    graph.require_square("copies around a root")
    n = graph.num_receivers
    key = torch.arange(n, device=graph.device) * (n + 1)  # root · n + node
    distance = torch.zeros_like(key)
    for hop in range(1, whole_number(hops, "hops", least=1) + 1):
        listening, senders = _listened_to(graph, key % n)
        found = torch.cat([key, key[listening] // n * n + senders]).unique()
        far = torch.full_like(found, hop)
        far[torch.searchsorted(found, key)] = distance
        key, distance = found, far
    sizes = lowering.counts(key // n, n)
    root, neighbor = graph.receivers, graph.senders
    copy, rows = lowering.edges_of(lowering.offsets_of(sizes), root)  # of each edge, the nodes around its root
    node = key[rows] % n
    marks = torch.stack([distance[rows], (node == neighbor[copy]).long()], -1)
    return Copies(_induced(graph, copy, node, len(root)), node, marks)


def _induced(graph: Graph, copy: Tensor, node: Tensor, copies: int) -> Graph:
    """The disjoint union of induced subgraphs: `copy` ascends, and of one copy so do the nodes."""
    n = max(graph.num_receivers, 1)
    edges, senders = _listened_to(graph, node)
    wanted, key = copy[edges] * n + senders, copy * n + node
    place = torch.searchsorted(key, wanted).clamp(max=max(len(key) - 1, 0))
    inside = key[place] == wanted
    receivers, senders = edges[inside], place[inside]
    offsets = lowering.offsets_of(lowering.counts(receivers, len(node)))
    forms: dict[str, Any] = {"offsets": offsets, "senders": senders, "sizes": lowering.counts(copy, copies)}
    return Graph._of(len(node), len(node), device=graph.device, **forms)


def _listened_to(graph: Graph, nodes: Tensor) -> tuple[Tensor, Tensor]:
    """Of some nodes the edges, each as the place of its receiver among `nodes` and its sender."""
    place, edges = lowering.edges_of(graph.offsets, nodes)
    return place, graph.senders[edges]
