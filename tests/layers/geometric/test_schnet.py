import pytest
import torch

from edgewise import Graph, collect
from edgewise.layers import SchNet
from edgewise.layers.geometric import schnet
from edgewise.testing import assert_equivariant
from layers.parity import assert_parity, leaf, messy_graph
from layers.rigid import rotation, translation


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
            monkeypatch.setattr(schnet, "linked_pairs", lambda graph: None)
        y = layer(graph, h, x, cell)
        found.append([y, *torch.autograd.grad(y.square().sum(), [h, x, *layer.parameters()])])
    assert made == [graph.num_edges // 2, graph.num_edges]
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-11)
