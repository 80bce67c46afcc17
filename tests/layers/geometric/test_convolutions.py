from itertools import pairwise

import pytest
import torch
from torch import nn

from edgewise import Graph, GraphError, collect, complete
from edgewise.layers import MLP, DegreeCoordinates, DynamicEdgeConv, EdgeConv, MoNet, SchNet
from edgewise.layers.geometric import convolutions
from edgewise.testing import assert_equivariant
from layers.parity import assert_parity, each, leaf, messy_graph
from layers.rigid import rotation, translation


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


def peer_of(pyg, sizes):
    """PyTorch Geometric's layer around a perceptron, and our names of the perceptron's weights."""
    parts = []
    for inputs, outputs in pairwise(sizes):
        parts += [nn.Linear(inputs, outputs), nn.ReLU()]
    network = nn.Sequential(*parts[:-1]).double()
    linears = [part for part in network if isinstance(part, nn.Linear)]
    weights = {}
    for number, linear in enumerate(linears):
        weights |= {f"mlp.linears.{number}.weight": linear.weight, f"mlp.linears.{number}.bias": linear.bias}
    return pyg.EdgeConv(network), weights


@pytest.mark.parametrize("sizes", [[10, 4], [10, 6, 4], [10, 6, 5, 4]])
def test_edge_conv_is_pygs(sizes):
    pyg = pytest.importorskip("torch_geometric.nn")
    graph, x = messy_graph(), leaf(7, 5)
    peer, weights = peer_of(pyg, sizes)
    expected = peer(x, graph.edge_index())
    assert_parity(EdgeConv(MLP(sizes)).double(), weights, (graph, x), expected, [x, *peer.parameters()])


@pytest.mark.parametrize("k", [1, 3, 9])
def test_dynamic_edge_conv_is_pygs_on_the_nearest_by_distance(k):
    """PyTorch Geometric's own search needs a package of its own: here all distances are compared."""
    pyg = pytest.importorskip("torch_geometric.nn")
    x, members = leaf(11, 5), [(0, 4), (4, 11)]
    peer, weights = peer_of(pyg, [10, 6, 4])
    pairs = []
    for first, last in members:
        distance = torch.cdist(x[first:last], x[first:last])
        for i, row in enumerate(distance):
            pairs += [(first + int(j), first + i) for j in row.argsort()[:k]]
    expected = peer(x, torch.tensor(pairs).T)
    graph = Graph.batch([complete(4), messy_graph()])
    layer = DynamicEdgeConv(MLP([10, 6, 4]), k).double()
    assert_parity(layer, weights, (graph, x), expected, [x, *peer.parameters()])


def test_moving_every_point_alike_moves_only_what_the_node_says_of_itself():
    """§3.3: with the own half of the first map at 0, only offsets count and the layer is blind to translation."""
    layer, x = DynamicEdgeConv(MLP([6, 8, 4]), k=3).double(), leaf(9, 3)
    with torch.no_grad():
        layer.mlp.linears[0].weight[:, :3] = 0
    assert torch.allclose(layer(complete(9), x), layer(complete(9), x + torch.tensor([1.0, -2.0, 0.5])), atol=1e-12)
    layer.mlp.linears[0].weight.data[:, :3] = 1
    assert not torch.allclose(layer(complete(9), x), layer(complete(9), x + 1.0), atol=1e-3)


def test_the_graph_changes_with_the_features():
    layer = DynamicEdgeConv(MLP([2, 1]), k=2)
    with torch.no_grad():
        layer.mlp.linears[0].weight.copy_(torch.tensor([[1.0, 1.0]]))  # the message is x_j
        layer.mlp.linears[0].bias.zero_()
    assert layer(complete(3), torch.tensor([[0.0], [1.0], [5.0]])).flatten().tolist() == [1, 1, 5]
    assert layer(complete(3), torch.tensor([[0.0], [4.0], [5.0]])).flatten().tolist() == [4, 5, 5]


def test_a_feature_that_is_not_finite_is_named():
    with pytest.raises(GraphError, match="row 1"):
        DynamicEdgeConv(MLP([2, 1]), k=1)(complete(2), torch.tensor([[0.0], [torch.nan]]))


def test_schnet_is_pygs_interaction_block():
    schnet = pytest.importorskip("torch_geometric.nn.models.schnet")
    graph, h, x = messy_graph().remove_self_loops(), leaf(7, 5), leaf(7, 3, seed=1)
    peer = schnet.InteractionBlock(5, num_gaussians=12, num_filters=6, cutoff=10.0).double()
    smearing = schnet.GaussianSmearing(0.0, 10.0, 12).double()
    r = (x[graph.receivers] - x[graph.senders]).norm(dim=-1)
    weights = {
        "into.weight": peer.conv.lin1.weight,
        "filters.0.weight": peer.mlp[0].weight,
        "filters.0.bias": peer.mlp[0].bias,
        "filters.1.weight": peer.mlp[2].weight,
        "filters.1.bias": peer.mlp[2].bias,
        "first.weight": peer.conv.lin2.weight,
        "first.bias": peer.conv.lin2.bias,
        "second.weight": peer.lin.weight,
        "second.bias": peer.lin.bias,
    }
    expected = h + peer(h, graph.edge_index(), r, smearing(r))
    layer = SchNet(5, filters=6, gaussians=12, cutoff=10.0).double()
    assert_parity(layer, weights, (graph, h, x), expected, [h, x, *weights.values()], tolerance=1e-6)


@pytest.mark.parametrize(("reflect", "seed"), [(False, 0), (True, 1)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_no_rigid_motion_changes_the_features(reflect, dtype, tolerance, seed):
    graph, layer = messy_graph(), SchNet(4, filters=8, gaussians=10, cutoff=5.0).to(dtype)
    R, t = rotation(seed, reflect=reflect).to(dtype), translation(seed).to(dtype)
    assert_equivariant(
        lambda h, x: layer(graph, h, x),
        lambda h, x: (h, x @ R + t),
        lambda y: y,
        torch.randn(7, 4, dtype=dtype),
        torch.randn(7, 3, dtype=dtype),
        tolerance=tolerance,
    )


def test_the_filter_ends_smoothly_at_the_cutoff():
    layer = SchNet(2, filters=3, gaussians=5, cutoff=4.0).double()
    r = torch.tensor([[3.999], [4.0], [7.0]], dtype=torch.float64, requires_grad=True)
    graph = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], num_nodes=3)
    W = collect(graph, layer.filter(r), None)
    (slope,) = torch.autograd.grad(W.sum(), r)
    assert W[0].abs().max() < 1e-6 and slope[0].abs() < 1e-2
    assert torch.equal(W[1:], torch.zeros(2, 3, dtype=torch.float64))


@pytest.mark.parametrize("cell", [None, torch.tensor(2.5, dtype=torch.float64)])
def test_one_filter_serves_both_directions(monkeypatch, cell):
    """Where all listen to one another, filters are made for pairs: the same as for every edge."""
    graph = messy_graph().remove_self_loops().symmetrise()
    layer, h, x = SchNet(5, filters=6, gaussians=8, cutoff=4.0).double(), leaf(7, 5), leaf(7, 3, seed=1)
    made, make = [], layer.filter
    layer.filter = lambda r: made.append(len(r)) or make(r)
    found = []
    for pairs in (True, False):
        if not pairs:
            monkeypatch.setattr(convolutions, "linked_pairs", lambda graph: None)
        y = layer(graph, h, x, cell)
        found.append([y, *torch.autograd.grad(y.square().sum(), [h, x, *layer.parameters()])])
    assert made == [graph.num_edges // 2, graph.num_edges]
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)
