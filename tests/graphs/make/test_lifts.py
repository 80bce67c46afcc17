import networkx
import pytest
import torch

from edgewise import Graph, GraphError, complete
from edgewise.graphs.make.regular import cai_furer_immerman, random_lift
from edgewise.graphs.refinement import refinement_classes

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
