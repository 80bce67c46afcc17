import torch

from edgewise.graphs import importance, sample_layers
from edgewise.layers import GCN, FastGCN, renormalised
from layers.parity import assert_parity, leaf, messy_graph


def test_without_weights_it_is_gcn():
    layer, peer, x = FastGCN(3, 4).double(), GCN(3, 4).double(), leaf(7, 3)
    peer.load_state_dict(layer.state_dict())
    assert torch.equal(layer(messy_graph(), x), peer(messy_graph(), x))


def test_with_weights_it_is_the_weighted_sum_forward_and_gradient():
    loops, entries = renormalised(messy_graph(), torch.float64)
    sample = sample_layers(loops, entries, importance(loops, entries), [4, 0, 6], [5])
    x, W, b = leaf(len(sample.nodes), 3), leaf(4, 3), leaf(4)
    dense = torch.zeros(3, len(sample.nodes), dtype=torch.float64)
    dense.index_put_((sample.graphs[0].receivers, sample.graphs[0].senders), sample.weights[0], accumulate=True)
    weights = {"linear.weight": W, "bias": b}
    layer = FastGCN(3, 4).double()
    assert_parity(layer, weights, (sample.graphs[0], x, sample.weights[0]), dense @ x @ W.T + b, [x, W, b])


def test_its_mean_over_draws_is_gcn():
    """Within four standard errors, receiver by receiver and channel by channel."""
    graph, layer, x = messy_graph(), FastGCN(3, 2).double(), torch.randn(7, 3, dtype=torch.float64)
    loops, entries = renormalised(graph, torch.float64)
    chance, generator = importance(loops, entries), torch.Generator().manual_seed(0)
    drawn = []
    with torch.no_grad():
        for _ in range(500):
            sample = sample_layers(loops, entries, chance, range(7), [4], generator)
            drawn.append(layer(sample.graphs[0], x[sample.nodes], sample.weights[0]))
        found, expected = torch.stack(drawn), layer(graph, x)
    assert ((found.mean(0) - expected).abs() <= 4 * found.std(0) / 500**0.5).all()
