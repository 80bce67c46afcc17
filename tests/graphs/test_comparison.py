import networkx
import pytest
import torch
from scipy.stats import wasserstein_distance

from edgewise import Graph, GraphError
from edgewise.graphs import links_of
from edgewise.graphs.comparison import (
    clustering,
    clustering_distribution,
    degree_distribution,
    discrepancy,
    isomorphism_classes,
    random_alike,
    undirected,
)


def drawn(n: int, p: float, seed: int) -> Graph:
    return Graph.from_networkx(networkx.gnp_random_graph(n, p, seed=seed))


@pytest.mark.parametrize("seed", range(5))
def test_clustering_and_degrees_are_those_of_networkx(seed):
    graph = drawn(12, 0.4, seed)
    other = graph.to_networkx().to_undirected()
    assert torch.allclose(clustering(graph), torch.tensor([networkx.clustering(other)[i] for i in range(12)]).double())
    histogram = torch.tensor(networkx.degree_histogram(other)).double() / 12
    assert torch.equal(degree_distribution(graph)[: len(histogram)], histogram)
    assert degree_distribution(graph)[len(histogram) :].sum() == 0
    assert clustering_distribution(graph).sum() == pytest.approx(1)


def test_directions_loops_and_parallel_edges_do_not_count():
    plain = undirected([[0, 0, 1], [1, 2, 2]], 4)
    other = Graph.from_edge_index([[0, 0, 2, 1, 3, 0], [1, 2, 1, 2, 3, 1]], num_nodes=4)
    assert torch.equal(clustering(plain), clustering(other))
    assert torch.equal(degree_distribution(plain), degree_distribution(other))
    assert isomorphism_classes([plain, other]) == [0, 0]


def test_discrepancy_is_the_kernel_mean_over_all_pairs():
    """The equation, pair by pair, with another library's distance."""
    first = [torch.rand(4).double().softmax(0) for _ in range(3)]
    second = [torch.rand(6).double().softmax(0) for _ in range(2)]

    def mean(one, other):
        values = []
        for p in one:
            for q in other:
                distance = wasserstein_distance(range(len(p)), range(len(q)), p.numpy(), q.numpy())
                values.append(torch.exp(torch.tensor(-((0.5 * distance) ** 2) / (2 * 0.3**2))))
        return sum(values) / len(values)

    expected = mean(first, first) + mean(second, second) - 2 * mean(first, second)
    assert discrepancy(first, second, width=0.5, sigma=0.3) == pytest.approx(float(expected), abs=1e-12)
    assert discrepancy(first, first) == pytest.approx(0, abs=1e-12)
    with pytest.raises(GraphError, match="at least one graph"):
        discrepancy(first, [])


def test_random_alike_keeps_nodes_and_links_and_nothing_else():
    ring = Graph.from_networkx(networkx.cycle_graph(6))
    many = [random_alike(ring, torch.Generator().manual_seed(seed)) for seed in range(300)]
    assert {(graph.num_receivers, graph.num_edges) for graph in many} == {(6, 12)}
    share = torch.stack([graph.dense_mask().double() for graph in many]).mean(0)
    off = ~torch.eye(6, dtype=torch.bool)
    assert (share[off] - 6 / 15).abs().max() < 0.12  # every pair as likely: 0.4, four deviations of 0.028
    assert share.diagonal().sum() == 0


def test_random_alike_of_many_nodes_lists_no_pairs():
    nodes = 10_000_000  # 5 · 10¹³ pairs
    graph = random_alike(undirected([[0, 1, 2], [1, 2, nodes - 1]], nodes), torch.Generator().manual_seed(0))
    assert (graph.num_receivers, graph.num_edges, links_of(graph).shape[1]) == (nodes, 6, 3)


def test_isomorphism_classes_see_what_colours_do_not():
    """Two triangles and a hexagon have the same colours; graphs are the same under any numbering."""
    triangles = Graph.batch([undirected([[0, 1, 2], [1, 2, 0]], 3)] * 2)
    hexagon = Graph.from_networkx(networkx.cycle_graph(6))
    some = [drawn(9, 0.5, seed) for seed in range(6)]
    turned = [graph.permute(torch.randperm(9)) for graph in some]
    assert isomorphism_classes([triangles, hexagon, *some, *turned]) == [*range(8), *range(2, 8)]
    assert isomorphism_classes([]) == []
