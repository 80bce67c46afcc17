import networkx
import pytest
import torch

from edgewise import Graph, GraphError, complete
from edgewise.graphs.make.regular import clique_counts


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
