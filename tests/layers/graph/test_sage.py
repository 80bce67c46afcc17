from functools import partial

import pytest
import torch

from edgewise import Graph, ShapeError
from edgewise.graphs import sample_neighbors
from edgewise.layers import SAGELSTM, SAGEMean, SAGEPool, SAGEUnion
from layers.parity import assert_parity, assert_same, each, leaf, messy_graph


@pytest.fixture
def conv():
    return pytest.importorskip("torch_geometric.nn").SAGEConv


@pytest.mark.parametrize("normalize", [False, True])
def test_mean_is_pygs(conv, normalize):
    graph, x = messy_graph(), leaf(7, 5)
    peer = conv(5, 3, normalize=normalize).double()
    weights = {"W.weight": torch.cat([peer.lin_r.weight, peer.lin_l.weight]), "bias": peer.lin_l.bias}
    expected = peer(x, graph.edge_index())
    layer = SAGEMean(5, 3, normalize).double()
    assert_parity(layer, weights, (graph, x), expected, [x, *peer.parameters()])


@pytest.mark.parametrize("normalize", [False, True])
def test_pool_is_pygs_projected_maximum(conv, normalize):
    graph, x = messy_graph(), leaf(7, 5)
    peer = conv(5, 3, aggr="max", project=True, normalize=normalize).double()
    expected = peer(x, graph.edge_index())
    layer = SAGEPool(5, 3, normalize=normalize).double()
    assert_parity(layer, _pool_weights(peer), (graph, x), expected, [x, *peer.parameters()])


def _pool_weights(peer):
    return {
        "pool.weight": peer.lin.weight,
        "pool.bias": peer.lin.bias,
        "own.weight": peer.lin_r.weight,
        "own.bias": peer.lin_l.bias,
        "neighbors.weight": peer.lin_l.weight,
    }


def _lstm_weights(lstm, own, neighbors, bias):
    recurrent = {f"lstm.{name}": parameter for name, parameter in lstm.named_parameters()}
    return recurrent | {"own.weight": own, "own.bias": bias, "neighbors.weight": neighbors}


@pytest.mark.parametrize("normalize", [False, True])
def test_lstm_is_pygs_where_no_row_is_padded(conv, normalize):
    graph = Graph.from_edge_index([[0, 3, 4, 2, 1, 0, 4, 3, 0, 2], [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]], num_nodes=5)
    x, peer = leaf(5, 3), conv(3, 4, aggr="lstm", normalize=normalize).double()
    expected = peer(x, graph.edge_index())
    weights = _lstm_weights(peer.aggr_module.lstm, peer.lin_r.weight, peer.lin_l.weight, peer.lin_l.bias)
    layer = SAGELSTM(3, 4, normalize=normalize).double()
    assert_parity(layer, weights, (graph, x), expected, [x, *peer.parameters()])


def test_lstm_stops_at_the_last_sender_of_every_row():
    """Against torch's own LSTM, one row at a time, senders ascending; PyG reads on through its padding."""
    graph, x = messy_graph(), leaf(7, 3)
    layer = SAGELSTM(3, 4, hidden=2).double()
    rows = []
    for i in range(7):
        senders = graph.senders[graph.offsets[i] : graph.offsets[i + 1]]
        assert senders.tolist() == sorted(senders.tolist())
        state = layer.lstm(x[senders])[0][-1] if len(senders) else torch.zeros(2, dtype=torch.float64)
        rows.append(layer.own(x[i]) + layer.neighbors(state))
    expected, weights = torch.stack(rows), dict(layer.named_parameters())
    assert_parity(layer, weights, (graph, x), expected, [x, *layer.parameters()])


def test_transforms_read_the_lstm_step_by_step():
    graph, x = messy_graph(), leaf(2, 7, 3)
    layer = SAGELSTM(3, 4, hidden=2).double()
    weights = {name: value.detach() for name, value in layer.named_parameters()}

    def loss(weights, x):
        return torch.func.functional_call(layer, weights, (graph, x)).square().sum()

    expected = torch.autograd.grad(loss(dict(layer.named_parameters()), x), [x, *layer.parameters()])
    of_weights, of_x = torch.func.grad(loss, (0, 1))(weights, x.detach())
    for mine, theirs in zip([of_x, *of_weights.values()], expected, strict=True):
        torch.testing.assert_close(mine, theirs)
    torch.testing.assert_close(torch.func.vmap(lambda x: layer(graph, x))(x), layer(graph, x))


@pytest.mark.parametrize("kind", [SAGEMean, SAGEPool, SAGEUnion, partial(SAGEUnion, reduce="max")])
def test_all_neighbours_sampled_give_what_the_whole_graph_gives(kind):
    """Forward and gradient at the seeds, whichever nodes those are."""
    graph, seeds = messy_graph(), [4, 0, 6]
    layer, x = kind(3, 4).double(), leaf(7, 3)
    sample = sample_neighbors(graph, seeds, [-1])
    assert_same(layer(sample.graphs[0], x[sample.nodes]), layer(graph, x)[seeds], [x, *layer.parameters()])


@pytest.mark.parametrize("pair", [False, True])
def test_on_a_sampled_hop_the_mean_comes_before_the_map(pair):
    """Few receivers and many senders: the map reads the receivers' rows alone, with the equation's result."""
    from torch.utils.flop_counter import FlopCounterMode

    senders, receivers = torch.randint(200, (60,), generator=torch.Generator().manual_seed(0)), torch.arange(60) % 6
    hop = Graph.from_edge_index(torch.stack([senders, receivers]), num_nodes=200, num_receivers=7)
    x, layer = leaf(200, 5), SAGEMean(5, 3, normalize=True).double()
    x_i = leaf(7, 5) if pair else x[:7]
    mean = torch.zeros(7, 5, dtype=torch.float64).index_add(0, receivers, x[senders]) / 10
    expected = torch.nn.functional.normalize(torch.cat([x_i, mean], -1) @ _both(layer).T + layer.bias, dim=-1)
    with FlopCounterMode(display=False) as counter:
        y = layer(hop, (x_i, x) if pair else x)
    assert counter.get_total_flops() == 2 * 2 * 7 * 5 * 3
    assert_same(y, expected, [x, *([x_i] if pair else []), *layer.parameters()])
    with pytest.raises(ShapeError, match="this linear map reads"):
        layer(hop, torch.ones(200, 4, dtype=torch.float64))


def _both(layer):
    """[W_own ‖ W_neighbors], side by side as in the equation."""
    return torch.cat(layer.W.weight.chunk(2), 1)


@pytest.mark.parametrize(("outputs", "reduce"), each([3, 6], ["mean", "max"]))
def test_a_node_among_its_neighbours_is_equation_5_8(reduce, outputs):
    """Node by node: what is combined from N(i) and i, then W."""
    graph, x = messy_graph(), leaf(7, 5)
    weight, bias = leaf(outputs, 5, seed=1), leaf(outputs, seed=2)
    rows = []
    for i in range(7):
        senders = graph.senders[graph.offsets[i] : graph.offsets[i + 1]].tolist()
        x_N = x[senders + [i] * (i not in senders)]
        rows.append(weight @ (x_N.mean(0) if reduce == "mean" else x_N.amax(0)) + bias)
    layer = SAGEUnion(5, outputs, reduce).double()
    weights = {"linear.weight": weight, "bias": bias}
    assert_parity(layer, weights, (graph, x), torch.stack(rows), [x, weight, bias])
