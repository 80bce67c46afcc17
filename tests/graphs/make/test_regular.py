import networkx
import pytest
import torch

from edgewise import Graph, GraphError, complete
from edgewise.graphs.make.regular import (
    cai_furer_immerman,
    catalogue,
    circulant,
    clique_counts,
    random_lift,
)
from edgewise.graphs.refinement import refinement_classes
from edgewise.tasks.graphs.isomorphism import NODES, SKIPS

STRONGLY_REGULAR = [
    # graphs, nodes, neighbours, common to neighbours, common to others
    (catalogue(16), (16, 6, 2, 2)),
    (catalogue(25), (25, 12, 5, 6)),
    (catalogue(28), (28, 12, 6, 4)),
    (catalogue(40), (40, 12, 2, 4)),
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


@pytest.mark.parametrize("graphs", [catalogue(25), catalogue(28)], ids=["25", "28"])
def test_no_two_are_isomorphic_by_their_cliques(graphs):
    assert len({cliques(graph) for graph in graphs}) == len(graphs)


def test_the_biplanes_are_distance_regular_and_their_designs_differ_in_rank():
    ranks = []
    for graph in catalogue(32):
        assert networkx.intersection_array(networkx.Graph(graph.to_networkx())) == ([6, 5, 4], [1, 2, 6])
        incidence = graph.dense_mask()[:16, 16:].long()
        ranks.append(rank_modulo_2(incidence))
    assert ranks == [6, 7]
    assert refinement_classes(catalogue(32), 2).unique().tolist() == [0]


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


BASES = [networkx.cycle_graph(5), networkx.ladder_graph(3), networkx.diamond_graph(), networkx.complete_graph(4)]


@pytest.mark.parametrize("base", BASES, ids=["ring", "ladder", "diamond", "K4"])
def test_a_twist_is_another_graph_to_2_wl_only_where_the_bases_treewidth_is_2(base):
    treewidth, _ = networkx.algorithms.approximation.treewidth_min_degree(base)
    straight, twisted = (cai_furer_immerman(Graph.from_networkx(base), turn) for turn in (False, True))
    assert straight.num_receivers == sum(2 ** (degree - 1) for _, degree in base.degree)
    assert len(refinement_classes([straight, twisted], 1).unique()) == 1
    assert len(refinement_classes([straight, twisted], 2).unique()) == (2 if treewidth == 2 else 1)
    assert not networkx.is_isomorphic(networkx.Graph(straight.to_networkx()), networkx.Graph(twisted.to_networkx()))


def test_a_node_with_too_many_edges_and_a_bipartite_base_are_refused():
    with pytest.raises(GraphError, match="node 0 of the base has 13 edges, more than 12"):
        cai_furer_immerman(Graph.from_networkx(networkx.star_graph(13)))
    with pytest.raises(GraphError, match="a lift"):
        cai_furer_immerman(Graph.from_edge_index([[0], [0]], 1, num_receivers=2))


@pytest.mark.parametrize("copies", [1, 2, 3])
def test_a_lift_covers_its_base(copies):
    base = Graph.from_networkx(networkx.petersen_graph())
    lift = random_lift(base, torch.Generator().manual_seed(0), copies)
    over = torch.arange(lift.num_receivers) // copies
    ends = lift.edge_index()
    assert lift.in_degrees().tolist() == [3] * 10 * copies
    assert not lift.has_duplicates
    assert {tuple(pair) for pair in over[ends].T.tolist()} == {tuple(pair) for pair in base.edge_index().T.tolist()}


def test_1_wl_takes_lifts_of_one_base_for_one_graph():
    base = complete(5).remove_self_loops()
    lifts = [random_lift(base, torch.Generator().manual_seed(seed)) for seed in range(5)]
    assert refinement_classes(lifts, 1).unique().tolist() == [0]
    assert len(refinement_classes(lifts, 2).unique()) > 1


@pytest.mark.parametrize("twisted", [False, True])
def test_a_base_without_edges_has_a_lift_without_nodes(twisted: bool) -> None:
    assert cai_furer_immerman(Graph.from_edge_index([[], []], 3), twisted).num_receivers == 0


def test_a_complete_graph_has_every_subset():
    """A node of K6 is in C(5, 2), C(5, 3) and C(5, 4) cliques."""
    assert clique_counts(complete(6)).tolist() == [[10, 10, 5]] * 6


def test_triangles_are_those_of_networkx_in_each_member():
    drawn = [networkx.gnp_random_graph(15, 0.4, seed=seed) for seed in range(3)]
    found = clique_counts(Graph.batch([Graph.from_networkx(one) for one in drawn]), 3).flatten()
    expected = [triangles for one in drawn for triangles in networkx.triangles(one).values()]
    assert found.tolist() == expected


def test_sr251256_falls_into_fifteen_by_its_cliques(data):
    """2-WL takes them for one graph."""
    graphs = networkx.read_graph6(data("expressiveness") / "sr251256.g6")
    counts = [clique_counts(Graph.from_networkx(graph)) for graph in graphs]
    assert len({tuple(sorted(map(tuple, count.tolist()))) for count in counts}) == 15


def test_what_has_no_cliques_is_refused_or_zero():
    assert torch.equal(clique_counts(Graph.from_edge_index([[], []], num_nodes=2), 3), torch.zeros(2, 1).double())
    with pytest.raises(GraphError):
        clique_counts(complete(2, 3))
    with pytest.raises(GraphError, match="largest"):
        clique_counts(complete(3), 2)
