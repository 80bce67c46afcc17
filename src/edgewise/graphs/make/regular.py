"""Graphs that look alike to Weisfeiler-Lehman tests: regular ones, from designs, Latin squares and geometries, and
lifts, in which several nodes stand for each node of a base; and counts of cliques, which tell some of them apart.

All are undirected and without self-loops. Of one function all have the same parameters, and no two are isomorphic.
"""

from collections.abc import Sequence
from collections.abc import Set as AbstractSet
from itertools import combinations, product
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs.checks import check_generator, whole_number
from edgewise.graphs.graph import Graph

LATIN_SQUARE = ((0, 1, 2, 3, 4), (1, 0, 3, 4, 2), (2, 3, 4, 0, 1), (3, 4, 1, 2, 0), (4, 2, 0, 1, 3))  # not a group's


def rook(size: int) -> Graph:
    """Squares of a chess board, neighbours in one row or column: strongly regular."""
    return _from_adjacency(_sharing([({("row", i), ("column", j)}) for i, j in product(range(size), repeat=2)]))


def shrikhande() -> Graph:
    """The strongly regular graph of 16 nodes, 6 neighbours each, that is not `rook(4)`: a torus of triangles.

    Reference   Shrikhande, "The uniqueness of the L2 association scheme", 1959
    """
    row, column = torch.arange(16) // 4, torch.arange(16) % 4
    steps = ((0, 1), (0, 3), (1, 0), (3, 0), (1, 1), (3, 3))
    senders = torch.stack([(row + down) % 4 * 4 + (column + right) % 4 for down, right in steps])
    return Graph.from_edge_index(torch.stack([senders.flatten(), torch.arange(16).repeat(6)]), num_nodes=16)


def strongly_regular_25() -> tuple[Graph, ...]:
    """The 15 strongly regular graphs of 25 nodes with 12 neighbours each, 5 or 6 of them common to two nodes.

    Equation    of a symmetric matrix S of ±1 around a diagonal of 0, S² = 25 I, node v isolated by switching: 25 nodes
    Symbols     four S, up to switching: those of both kinds of Latin squares of order 5 and of both Steiner triple
                systems of 13 points
    Reference   Paulus, 1973; Bussemaker, Mathon & Seidel, "Tables of two-graphs", 1979
    """
    cyclic = [[(i + j) % 5 for j in range(5)] for i in range(5)]
    triples = [{(i + k) % 13 for k in block} for i in range(13) for block in ((0, 1, 4), (0, 2, 7))]
    steiner = [1 - 2 * _sharing(blocks) - torch.eye(26, dtype=torch.int64) for blocks in (triples, _traded(triples))]
    latin = [_extended(_latin(square)) for square in (cyclic, LATIN_SQUARE)]
    isolated = ((latin[0], (0,)), (latin[1], (0, 2, 5, 25)), (steiner[0], (0, 1)), (steiner[1], STEINER_ORBITS))
    return tuple(_from_adjacency(_descendant(s, node)) for s, nodes in isolated for node in nodes)


STEINER_ORBITS = (0, 1, 2, 4, 5, 6, 11, 22)  # a triple of each orbit of the second system's symmetries


def chang() -> tuple[Graph, ...]:
    """The triangular graph of 8 points and the three Chang graphs: strongly regular, 28 nodes of 12 neighbours.

    Equation    pairs of 8 points, neighbours where they share one; switched at the edges of a matching, of a ring, and
                of a triangle and a pentagon
    Reference   Chang, 1959; Seidel, 1967
    """
    pairs = [set(pair) for pair in combinations(range(8), 2)]
    matching, rest = [(0, 1), (2, 3), (4, 5), (6, 7)], _ring(range(3)) + _ring(range(3, 8))
    rings: tuple[list[tuple[int, int]], ...] = ([], matching, _ring(range(8)), rest)
    triangular = _sharing(pairs)
    side = [torch.tensor([1 - 2 * (pair in map(set, ring)) for pair in pairs]) for ring in rings]
    eye = torch.eye(28, dtype=torch.int64)
    return tuple(_from_adjacency((1 - eye - s[:, None] * (1 - eye - 2 * triangular) * s) // 2) for s in side)


def quadrangles() -> tuple[Graph, Graph]:
    """Points of a generalised quadrangle of order 3, and its lines: strongly regular, 40 nodes of 12 neighbours.

    Equation    points of the projective space over 3 elements, neighbours where x₀y₁ − x₁y₀ + x₂y₃ − x₃y₂ = 0 (mod 3);
                the lines of 4 mutual neighbours, neighbours where they meet
    Edge cases  both satisfy the 4-vertex condition: the number of subgraphs of any kind on 4 nodes over a pair depends
                only on whether the two are neighbours
    Reference   Payne & Thas, "Finite generalized quadrangles", 1984; Higman, 1971
    """
    points = torch.tensor([x for x in product(range(3), repeat=4) if any(x) and next(filter(None, x)) == 1])
    form = torch.tensor([[0, 1, 0, 0], [-1, 0, 0, 0], [0, 0, 0, 1], [0, 0, -1, 0]])
    collinear = ((points @ form @ points.T) % 3 == 0).long() - torch.eye(40, dtype=torch.int64)
    lines = {
        frozenset((i, j, *(collinear[i] * collinear[j]).nonzero().flatten().tolist()))
        for i, j in collinear.nonzero().tolist()
    }
    return _from_adjacency(collinear), _from_adjacency(_sharing(sorted(map(set, lines), key=sorted)))


def biplanes() -> tuple[Graph, Graph]:
    """Points and blocks of two designs, neighbours where they meet: distance-regular, 32 nodes of 6 neighbours.

    Equation    points x and blocks b + D of the group Z₂ × Z₈, for two sets D of 6 elements in whose differences each
                element other than 0 occurs twice
    Reference   Hussain, 1945; Brouwer, Cohen & Neumaier, "Distance-regular graphs", 1989, §1.6
    """
    first, second = _development(DIFFERENCE_SETS[0]), _development(DIFFERENCE_SETS[1])
    return first, second


DIFFERENCE_SETS = (
    ((0, 0), (0, 1), (0, 2), (0, 5), (1, 0), (1, 6)),
    ((0, 0), (0, 1), (0, 2), (0, 4), (1, 1), (1, 6)),
)


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


def _ring(points: Sequence[int]) -> list[tuple[int, int]]:
    return list(zip(points, [*points[1:], points[0]], strict=True))


def _sharing(sets: Sequence[AbstractSet[Any]]) -> Tensor:
    """The adjacency of sets, neighbours where they meet."""
    shared = [int(a is not b and not a.isdisjoint(b)) for b in sets for a in sets]
    return torch.tensor(shared, dtype=torch.int64).view(len(sets), len(sets))


def _latin(square: Sequence[Sequence[int]]) -> Tensor:
    """The adjacency of a Latin square's cells, neighbours in one row, in one column, or with one symbol."""
    return _sharing([{("row", i), ("column", j), ("symbol", square[i][j])} for i in range(5) for j in range(5)])


def _traded(triples: Sequence[set[int]]) -> list[set[int]]:
    """Another Steiner system: four triples on six points {abc, ade, fbd, fce} replaced by {fbc, fde, abd, ace}."""
    for four in combinations(triples, 4):
        points = set().union(*four)
        if len(points) == 6 and all(sum(point in triple for triple in four) == 2 for point in points):
            return [triple for triple in triples if triple not in four] + [points - triple for triple in four]
    raise GraphError("these triples have no four on six points")


def _extended(adjacency: Tensor) -> Tensor:
    """The matrix of ±1 of a graph beside an isolated node."""
    matrix = torch.ones(26, 26, dtype=torch.int64) - torch.eye(26, dtype=torch.int64)
    matrix[:25, :25] -= 2 * adjacency
    return matrix


def _descendant(matrix: Tensor, node: int) -> Tensor:
    """The adjacency of the other nodes after switching so that this one is isolated."""
    rest = torch.arange(len(matrix)) != node
    switched = (matrix[node, :, None] * matrix * matrix[node])[rest][:, rest]
    return (switched < 0).long()


def _development(differences: Sequence[tuple[int, int]]) -> Graph:
    incidence = torch.zeros(16, 16, dtype=torch.int64)
    for (a, b), (c, d) in product(product(range(2), range(8)), differences):
        incidence[8 * a + b, 8 * ((a + c) % 2) + (b + d) % 8] = 1
    nothing = torch.zeros_like(incidence)
    return _from_adjacency(torch.cat([torch.cat([nothing, incidence], 1), torch.cat([incidence.T, nothing], 1)]))


def _from_adjacency(adjacency: Tensor) -> Graph:
    return Graph.from_edge_index(adjacency.nonzero().T.flip(0), num_nodes=len(adjacency))


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
