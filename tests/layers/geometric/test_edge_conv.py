from itertools import pairwise

import pytest
import torch
from torch import nn

from edgewise import Graph, GraphError, complete
from edgewise.layers import MLP, DynamicEdgeConv, EdgeConv
from layers.parity import assert_parity, leaf, messy_graph


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
