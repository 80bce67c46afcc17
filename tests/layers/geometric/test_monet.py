import pytest
import torch

from edgewise import Graph
from edgewise.layers import DegreeCoordinates, MoNet
from layers.parity import assert_parity, each, leaf, messy_graph


@pytest.mark.parametrize(("dimensions", "kernels"), each([1, 2], [1, 3]))
def test_monet_is_pygs(kernels, dimensions):
    pyg = pytest.importorskip("torch_geometric.nn")
    graph, x = messy_graph(), leaf(7, 5)
    u = leaf(graph.num_edges, dimensions, seed=1)
    peer = pyg.GMMConv(5, 4, dimensions, kernels).double()
    weights = {
        "theta.weight": peer.g.T,
        "mean": peer.mu,
        "deviation": peer.sigma,
        "root.weight": peer.root.weight,
        "root.bias": peer.bias,
    }
    expected = peer(x, graph.edge_index(), u)
    layer = MoNet(5, 4, kernels, dimensions).double()
    assert_parity(layer, weights, (graph, x, u), expected, [x, u, *peer.parameters()])


def test_degree_coordinates_are_those_of_both_ends():
    graph = Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 0, 1]], num_nodes=4)  # 0 hears three, 1 hears one, 2 and 3 none
    coordinates = DegreeCoordinates(2).double()
    with torch.no_grad():
        coordinates.linear.weight.copy_(torch.eye(2))
        coordinates.linear.bias.zero_()
    s = 3**-0.5
    expected = torch.tensor([[s, 1.0], [s, 1.0], [s, 1.0], [1.0, s]], dtype=torch.float64).tanh()
    assert torch.allclose(coordinates(graph, torch.float64), expected)


def test_a_narrow_gaussian_is_finite_in_float16():
    """Its variance of 10⁻⁸ is 0 there, and the distance from the mean, 10⁸ variances, infinite."""
    pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
    layer = MoNet(1, 1, kernels=1, dimensions=1).half()
    layer.mean.data.fill_(0.5)
    layer.deviation.data.fill_(1e-4)
    y = layer(pair, torch.ones(2, 1).half(), torch.tensor([[0.5], [1.5]]).half())
    assert y.dtype == torch.float16
    y.sum().backward()
    assert y.isfinite().all() and all(p.grad.isfinite().all() for p in layer.parameters())


def test_the_two_sides_of_a_pair_may_be_as_many():
    layer, edges = MoNet(1, 1, coordinates=DegreeCoordinates(2)), [[0, 0], [0, 1]]
    two, three = (Graph.from_edge_index(edges, num_nodes=senders, num_receivers=2) for senders in (2, 3))
    y = layer(two, (torch.ones(2, 1), torch.ones(2, 1)))
    assert torch.equal(y, layer(three, (torch.ones(2, 1), torch.ones(3, 1))))
    layer.coordinates = OfAnEdge()
    layer(two, (torch.ones(2, 1), torch.ones(2, 1)))


class OfAnEdge(torch.nn.Module):
    """Coordinates of one's own, which know of no pairs."""

    def forward(self, graph: Graph, dtype: torch.dtype) -> torch.Tensor:
        return torch.ones(graph.num_edges, 2, dtype=dtype)
