"""Graphs that look alike to Weisfeiler-Lehman tests: regular ones, of a catalogue, and lifts, in which several nodes
stand for each node of a base; and counts of cliques, which tell some of them apart.

All are undirected and without self-loops. Of one function all have the same parameters, and no two are isomorphic.
"""

from collections.abc import Sequence
from itertools import combinations
from pathlib import Path

import torch
from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs.checks import check_generator, whole_number
from edgewise.graphs.graph import Graph

FILE = Path(__file__).with_name("regular.g6")


def catalogue(nodes: int) -> tuple[Graph, ...]:
    """The graphs of so many nodes in the catalogue, which 2-WL takes for one.

    Symbols     nodes = 16: the squares of a 4 × 4 board, neighbours in one row or column, and Shrikhande's graph;
                25: the 15 strongly regular ones whose nodes have 12 neighbours, 5 or 6 of them common to two nodes;
                28: the triangular graph of 8 points and the three of Chang, all strongly regular;
                32: points and blocks of two biplanes, neighbours where they meet, distance-regular;
                40: points of a generalised quadrangle of order 3, and its lines, neighbours where they meet: strongly
                regular, and the number of subgraphs of any kind on 4 nodes over a pair depends only on whether the two
                are neighbours
    Errors      GraphError for another number
    Reference   Shrikhande, 1959; Paulus, 1973; Chang, 1959; Hussain, 1945; Payne & Thas, 1984; Brouwer, Cohen &
                Neumaier, "Distance-regular graphs", 1989

    >>> [len(catalogue(nodes)) for nodes in (16, 25, 28, 32, 40)]
    [2, 15, 4, 2, 2]
    """
    listed = map(Graph.from_graph6, FILE.read_text("ascii").splitlines())
    graphs = tuple(graph for graph in listed if graph.num_receivers == nodes)
    if not graphs:
        raise GraphError(f"the catalogue has regular graphs of 16, 25, 28, 32 and 40 nodes, not of {nodes}")
    return graphs


def circulant(nodes: int, steps: Sequence[int]) -> Graph:
    """Nodes on a ring, neighbours where they are one of `steps` apart.

    Errors      GraphError where a step is none, half the ring or more, or occurs twice

    >>> circulant(6, (1, 2)).senders[:4].tolist()  # those of node 0
    [1, 2, 4, 5]
    """
    if len(set(steps)) != len(steps) or any(not 0 < 2 * step < nodes for step in steps):
        raise GraphError(
            f"steps {list(steps)} must differ, and each be more than 0 and less than half of {nodes} nodes"
        )
    i = torch.arange(nodes)
    ends = torch.stack([i.repeat(len(steps)), torch.cat([i[:0], *((i + step) % nodes for step in steps)])])
    return Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), nodes)


MOST_LINKS = 12  # of one node of a base: 2¹¹ nodes stand for it


def cai_furer_immerman(base: Graph, twisted: bool = False) -> Graph:
    """The Cai-Fürer-Immerman graph of a base, or its twist: alike to k-WL wherever the base has a treewidth above k.

    Equation    nodes (v, S): S an even set of v's edges, at the first v an odd one if `twisted`;
                (u, S) and (v, T) are neighbours where e = uv is an edge, in both of S and T or in neither
    Symbols     k = the order of the folklore test, which is `refine` for 1 and `refined_pairs` for 2
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


def clique_counts(graph: Graph, largest: int = 5) -> Tensor:
    """How many cliques of 3, 4, ..., `largest` nodes each node is in.

    Shapes      -> [N, largest - 2], float64
    Errors      GraphError for a graph whose receivers are not its senders, or a largest clique of fewer than 3
    Edge cases  directions, self-loops and parallel edges do not count
    Cost        time that of listing the cliques, many where the graph is dense; O(N²) bits
    Reference   Bouritsas et al., "Improving graph neural network expressivity via subgraph isomorphism counting", 2020

    >>> from edgewise.graphs.patterns import complete
    >>> clique_counts(complete(4), 4)[0].tolist()  # a node of K4 is in 3 triangles and 1 clique of 4
    [3.0, 1.0]
    """
    graph.require_square("a count of cliques")
    counts = torch.zeros(graph.num_receivers, whole_number(largest, "largest", least=3) - 2, dtype=torch.float64)
    neighbors = [0] * graph.num_receivers
    for i, j in graph.symmetrise().remove_self_loops().edge_index().T.tolist():
        neighbors[i] |= 1 << j
    # Each clique, and as bits the later nodes that would make it larger.
    stack = [([i], others >> (i + 1) << (i + 1)) for i, others in enumerate(neighbors)]
    members: list[list[int]] = [[] for _ in range(counts.shape[1])]
    while stack:
        clique, common = stack.pop()
        if len(clique) > 2:
            members[len(clique) - 3] += clique
        while common and len(clique) < largest:
            node = common.bit_length() - 1
            common ^= 1 << node
            stack.append(([*clique, node], common & neighbors[node]))
    for size, nodes in enumerate(members):
        counts[:, size] = torch.bincount(torch.tensor(nodes, dtype=torch.int64), minlength=len(counts))
    return counts.to(graph.device)
