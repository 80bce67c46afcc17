"""Lifts: graphs in which several nodes stand for each node of a base, so that locally they look like the base."""

from itertools import combinations

import torch
from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs.checks import check_generator, whole_number
from edgewise.graphs.graph import Graph

MOST_LINKS = 12  # of one node of a base: 2¹¹ nodes stand for it


def cai_furer_immerman(base: Graph, twisted: bool = False) -> Graph:
    """The Cai-Fürer-Immerman graph of a base, or its twist: alike to k-WL wherever the base has a treewidth above k.

    Equation    nodes (v, S): S an even set of v's edges, at the first v an odd one if `twisted`;
                (u, S) and (v, T) are neighbours where e = uv is an edge, in both of S and T or in neither
    Symbols     k = the order of the folklore test, which is `refine` for 1 and `refine_pairs` for 2
    Errors      GraphError for a base whose receivers are not its senders, or a node with more than MOST_LINKS edges
    Edge cases  directions, self-loops and parallel edges of the base do not count; nodes without edges are left out
    Cost        2^(d - 1) nodes for one of degree d
    Differs     there each edge has nodes too, and nodes have colours; here neither
    Reference   Cai, Fürer & Immerman, "An optimal lower bound on the number of variables for graph identification",
                1992; Fürer, "Weisfeiler-Lehman refinement requires at least a linear number of iterations", 2001

    >>> triangle = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], num_nodes=3)
    >>> from edgewise.graphs.refinement import refinement_classes
    >>> pair = [cai_furer_immerman(triangle), cai_furer_immerman(triangle, twisted=True)]  # two triangles, a hexagon
    >>> refinement_classes(pair, 1).unique().tolist(), refinement_classes(pair, 2).unique().tolist()
    ([0], [0, 1])
    """
    nodes: list[tuple[int, frozenset[int]]] = []
    links = _links(base)
    first = min((u for u, _ in links), default=0)
    for v in range(base.num_receivers):
        own = [number for number, link in enumerate(links) if v in link]
        if len(own) > MOST_LINKS:
            raise GraphError(f"node {v} of the base has {len(own)} edges, more than {MOST_LINKS}")
        odd = int(twisted and v == first)
        sizes = range(odd, len(own) + 1, 2) if own else ()
        nodes += [(v, frozenset(chosen)) for size in sizes for chosen in combinations(own, size)]
    number = {(u, v): n for n, (u, v) in enumerate(links)}
    edges = [
        (a, b)
        for (a, (u, s)), (b, (v, t)) in combinations(enumerate(nodes), 2)
        if (u, v) in number and (number[u, v] in s) == (number[u, v] in t)
    ]
    return _undirected(edges, len(nodes))


def random_lift(base: Graph, generator: torch.Generator, copies: int = 2) -> Graph:
    """Some copies of a base, the ends of each edge matched at random: 1-WL takes all lifts of one base for one graph.

    Equation    nodes (v, c); (u, c) and (v, π_uv(c)) are neighbours where uv is an edge, π_uv a random permutation
    Errors      GraphError for a base whose receivers are not its senders
    Edge cases  directions, self-loops and parallel edges of the base do not count
    Reference   Amit & Linial, "Random graph coverings I", 2002

    >>> square = Graph.from_edge_index([[0, 1, 2, 3], [1, 2, 3, 0]], num_nodes=4)
    >>> random_lift(square, torch.Generator().manual_seed(0)).in_degrees().tolist()
    [2, 2, 2, 2, 2, 2, 2, 2]
    """
    copies = whole_number(copies, "copies", least=1)
    check_generator(generator)
    edges = []
    for u, v in _links(base):
        matched = torch.randperm(copies, generator=generator).tolist()
        edges += [(u * copies + c, v * copies + d) for c, d in enumerate(matched)]
    return _undirected(edges, base.num_receivers * copies)


def _links(base: Graph) -> list[tuple[int, int]]:
    """Every pair of neighbours once, the smaller number first."""
    base.require_square("a lift")
    both: Tensor = base.symmetrise().remove_self_loops().coalesce().edge_index()
    return sorted((u, v) for u, v in both.T.tolist() if u < v)


def _undirected(edges: list[tuple[int, int]], nodes: int) -> Graph:
    ends = torch.tensor(edges, dtype=torch.int64).view(-1, 2).T
    return Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), nodes)
