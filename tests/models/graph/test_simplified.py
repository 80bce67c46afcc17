import torch

from edgewise import Graph
from edgewise.models import Features, Simplified, SimplifiedSettings


def test_features_spread_as_powers_of_the_mean():
    graph = Graph.from_edge_index([[0, 1, 2, 2], [1, 2, 0, 1]], num_nodes=3)
    model, x = Simplified(SimplifiedSettings(depth=3), Features(4, 2)).double(), torch.randn(3, 4, dtype=torch.float64)
    a = graph.dense_mask().double() + torch.eye(3, dtype=torch.float64)
    walk = a / a.sum(1, keepdim=True)
    expected = torch.linalg.matrix_power(walk, 3) @ x @ model.linear.weight.T + model.linear.bias
    torch.testing.assert_close(model(graph, x), expected, rtol=0, atol=1e-12)
