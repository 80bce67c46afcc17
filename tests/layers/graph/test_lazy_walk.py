import torch

from edgewise import Graph
from edgewise.layers import LazyWalk


def test_a_lazy_walk_is_half_of_the_identity_and_half_of_the_walk():
    graph = Graph.from_edge_index([[0, 1, 2, 2], [1, 2, 0, 1]], num_nodes=3)
    layer, x = LazyWalk(4, 2).double(), torch.randn(3, 4, dtype=torch.float64)
    a = graph.dense_mask().double()
    walk = 0.5 * (torch.eye(3, dtype=torch.float64) + a / a.sum(1, keepdim=True))
    assert torch.allclose(layer(graph, x), walk @ x @ layer.linear.weight.T + layer.linear.bias, atol=1e-12)
