import pytest
import torch
from torch import nn

from edgewise import Graph
from edgewise.layers import (
    GIN,
    GPS,
    MLP,
    AngularHash,
    Centroids,
    FeedForward,
    LSHAttention,
    MultiHeadAttention,
    RoutingAttention,
    SinkhornAttention,
)
from layers.parity import assert_parity, leaf, messy_graph

BATCH = Graph.batch([messy_graph(), Graph.from_edge_index([[0, 1, 2], [1, 2, 1]], num_nodes=3)])
MEMBER = torch.tensor([0] * 7 + [1] * 3)


@pytest.mark.parametrize("norm", ["batch", "layer"])
@pytest.mark.filterwarnings("ignore")
def test_gps_is_pygs(norm):
    pyg = pytest.importorskip("torch_geometric.nn")
    network = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 4))
    kind = {"batch": "batch_norm", "layer": "layer_norm"}[norm]
    options = {"norm_kwargs": {"mode": "node"}} if norm == "layer" else {}
    peer = pyg.GPSConv(4, pyg.GINConv(network, train_eps=True), heads=2, norm=kind, **options).double()
    nn.init.normal_(peer.attn.in_proj_bias)
    layer = GPS(4, GIN(MLP([4, 6, 4])), MultiHeadAttention(4, 2), FeedForward(4, 8, "relu"), norm).double()
    names = {
        "messages.mlp.linears.0": network[0],
        "messages.mlp.linears.1": network[2],
        "attention.output": peer.attn.out_proj,
        "feed_forward.up": peer.mlp[0],
        "feed_forward.down": peer.mlp[3],
        **{f"norm_{n}": getattr(peer, f"norm{n}") for n in (1, 2, 3)},
    }
    weights = {
        f"{name}.{key.removeprefix('module.')}": value
        for name, module in names.items()
        for key, value in module.named_parameters()
    }
    weights |= {
        "messages.epsilon": peer.conv.eps[0],
        "attention.projection.weight": peer.attn.in_proj_weight,
        "attention.projection.bias": peer.attn.in_proj_bias,
    }
    x = leaf(10, 4)
    expected = peer(x, BATCH.edge_index(), MEMBER)
    leaves = [x, *network.parameters(), peer.attn.in_proj_weight, peer.mlp[0].weight, peer.mlp[3].weight]
    assert_parity(layer, weights, (BATCH, x), expected, leaves)


@pytest.mark.parametrize(
    "attention",
    [
        lambda: RoutingAttention(4, 2, Centroids(2, 2, count=2), size=2),
        lambda: LSHAttention(4, 2, AngularHash(2, buckets=2), size=2),
        lambda: SinkhornAttention(4, 2, size=3),
    ],
)
def test_each_member_of_a_batch_attends_as_alone(attention):
    layer = GPS(4, GIN(MLP([4, 4])), attention(), FeedForward(4, 4), norm="layer").double().eval()
    x, second = leaf(10, 4), Graph.from_edge_index([[0, 1, 2], [1, 2, 1]], num_nodes=3)
    alone = torch.cat([layer(messy_graph(), x[:7]), layer(second, x[7:])])
    assert torch.allclose(layer(BATCH, x), alone, atol=1e-12)
