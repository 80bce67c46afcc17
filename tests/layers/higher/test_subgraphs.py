import networkx
import pytest
import torch
from torch import nn

from edgewise import ConfigError, Graph
from edgewise.layers import GIN, I2GNN, MLP, PPGN, Marked
from layers.parity import assert_parity, each, leaf, messy_graph


def test_marked_reads_one_copy_for_each_node():
    inner, x = PPGN(4, 2, hidden=3, depth=1), leaf(7, 3)
    layer = Marked(inner).double()
    weights = {name: p.detach().clone().requires_grad_() for name, p in layer.named_parameters()}
    own = {name.removeprefix("layer."): weight for name, weight in weights.items()}
    rows = []
    for node in range(7):
        mark = torch.eye(7, dtype=torch.float64)[:, node : node + 1]
        rows.append(torch.func.functional_call(inner, own, (messy_graph(), torch.cat([x, mark], 1))).mean(0))
    assert_parity(layer, weights, (messy_graph(), x), torch.stack(rows), [x, *weights.values()], tolerance=1e-8)


def test_i2gnn_is_message_passing_whose_message_reads_a_marked_subgraph():
    graph, x = messy_graph(), leaf(7, 3)
    layer = I2GNN(3, 2, hidden=4, depth=2, hops=2).double()
    weights = {name: p.detach().clone().requires_grad_() for name, p in layer.named_parameters()}

    def linear(name, y):
        return y @ weights[f"{name}.weight"].T + weights.get(f"{name}.bias", 0.0)

    def network(name, y):
        return linear(f"{name}.linears.1", torch.sin(linear(f"{name}.linears.0", y)))

    listens, count = networkx.MultiDiGraph(graph.to_networkx()).reverse(), graph.multiplicity().double()
    expected = list(linear("own", x))
    for i, j in zip(graph.receivers.tolist(), graph.senders.tolist(), strict=True):
        distances = networkx.single_source_shortest_path_length(listens, i, cutoff=2)
        around = sorted(distances)
        marks = [[float(distances[v] == d) for d in range(3)] + [float(v == j)] for v in around]
        h = linear("embed", x[around]) + linear("mark", torch.tensor(marks, dtype=torch.float64))
        for number in range(2):
            total = (1 + weights[f"layers.{number}.epsilon"]) * h + count[around][:, around] @ h
            h = h + network(f"layers.{number}.mlp", total)
            h = nn.functional.layer_norm(h, (4,), weights[f"norms.{number}.weight"], weights[f"norms.{number}.bias"])
        expected[i] = expected[i] + network("message", h.mean(0))
    assert_parity(layer, weights, (graph, x), torch.stack(expected), [x, *weights.values()], tolerance=1e-8)


def test_a_marked_gin_tells_apart_what_gin_does_not():
    ring = [torch.arange(6), (torch.arange(6) + 1) % 6]
    hexagon = Graph.from_edge_index(torch.cat([torch.stack(ring), torch.stack(ring[::-1])], 1), 6)
    three = Graph.from_edge_index([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]], num_nodes=3)
    two = Graph.from_edge_index(Graph.batch([three, three]).edge_index(), 6)
    x = torch.ones(6, 1, dtype=torch.float64)
    deep = nn.ModuleList(GIN(MLP([width, 8, 8], "tanh")) for width in (2, 8, 8)).double()

    def stacked(graph, features):
        for layer in deep:
            features = layer(graph, features)
        return features

    class Deep(nn.Module):
        def forward(self, graph, features):
            return stacked(graph, features)

    plain = [stacked(graph, torch.cat([x, x], 1)).sum(0) for graph in (hexagon, two)]
    marked = [Marked(Deep())(graph, x).sum(0) for graph in (hexagon, two)]
    assert torch.allclose(*plain)
    assert not torch.allclose(*marked, rtol=1e-6)


@pytest.mark.parametrize(("wrong", "name"), each([-1, 1.5, True], ["depth", "hops"]))
def test_counts_are_whole_numbers_from_0(name, wrong):
    with pytest.raises(ConfigError, match=f"{name} must be"):
        I2GNN(3, 4, **{name: wrong})
