import networkx
import pytest
import torch

from edgewise import Graph, GraphError
from edgewise.graphs.make.regular import (
    biplanes,
    chang,
    circulant,
    clique_counts,
    quadrangles,
    rook,
    shrikhande,
    strongly_regular_25,
)
from edgewise.graphs.refinement import refinement_classes
from edgewise.tasks.graphs.isomorphism import NODES, SKIPS

STRONGLY_REGULAR = [
    # graphs, nodes, neighbours, common to neighbours, common to others
    ((rook(4), shrikhande()), (16, 6, 2, 2)),
    (strongly_regular_25(), (25, 12, 5, 6)),
    (chang(), (28, 12, 6, 4)),
    (quadrangles(), (40, 12, 2, 4)),
]


def complement(graph: Graph) -> Graph:
    others = ~graph.dense_mask() & ~torch.eye(graph.num_receivers, dtype=torch.bool)
    return Graph.from_edge_index(others.nonzero().T.flip(0), graph.num_receivers)


def cliques(graph: Graph) -> tuple[tuple[float, ...], ...]:
    """In how many cliques of a graph and of its complement the nodes are: the same for isomorphic graphs."""
    counts = torch.cat([clique_counts(graph, 5), clique_counts(complement(graph), 5)], 1)
    return tuple(sorted(map(tuple, counts.tolist())))


@pytest.mark.parametrize(("graphs", "parameters"), STRONGLY_REGULAR)
def test_graphs_are_strongly_regular_and_2_wl_takes_them_for_one(graphs, parameters):
    nodes, degree, between_neighbors, between_others = parameters
    eye = torch.eye(nodes)
    for graph in graphs:
        a = graph.dense_mask().float()
        assert torch.equal(a, a.T)
        assert torch.equal(a @ a, degree * eye + between_neighbors * a + between_others * (1 - a - eye))
    assert refinement_classes(graphs, 2).unique().tolist() == [0]


@pytest.mark.parametrize("graphs", [strongly_regular_25(), chang()], ids=["25", "28"])
def test_no_two_are_isomorphic_by_their_cliques(graphs):
    assert len({cliques(graph) for graph in graphs}) == len(graphs)


def test_the_biplanes_are_distance_regular_and_their_designs_differ_in_rank():
    ranks = []
    for graph in biplanes():
        assert networkx.intersection_array(networkx.Graph(graph.to_networkx())) == ([6, 5, 4], [1, 2, 6])
        incidence = graph.dense_mask()[:16, 16:].long()
        ranks.append(rank_modulo_2(incidence))
    assert ranks == [6, 7]
    assert refinement_classes(biplanes(), 2).unique().tolist() == [0]


def rank_modulo_2(matrix: torch.Tensor) -> int:
    rows = [int("".join(map(str, row)), 2) for row in matrix.tolist()]
    rank = 0
    while rows:
        pivot = rows.pop()
        if pivot:
            rank += 1
            rows = [min(row, row ^ pivot) for row in rows]
    return rank


@pytest.mark.parametrize("skip", SKIPS)
def test_circulants_are_networkxs(skip):
    graph = circulant(NODES, (1, skip))
    expected = torch.from_numpy(networkx.to_numpy_array(networkx.circulant_graph(NODES, [1, skip]))).bool()
    assert torch.equal(graph.dense_mask(), expected)
    assert graph.in_degrees().tolist() == [4] * NODES


@pytest.mark.parametrize("steps", [(0,), (3,), (1, 1), (-1,)])
def test_steps_that_make_no_circulant_are_refused(steps):
    with pytest.raises(GraphError, match="less than half of 6"):
        circulant(6, steps)
