import networkx
import pytest
import torch
from torch import nn

from edgewise import ConfigError, Graph
from edgewise.layers import GIN, I2GNN, MLP, PPGN, Marked, PairProduct
from edgewise.layers.graph.higher import products
from layers.parity import assert_parity, each, leaf, messy_graph

BATCH = Graph.batch([messy_graph(), messy_graph().subgraph(torch.tensor([0, 1, 2]))])


def network(weights, name, h):
    """W₂ sin(W₁ h + b₁) + b₂."""
    first, second = (f"{name}.linears.{number}" for number in range(2))
    hidden = torch.sin(h @ weights[f"{first}.weight"].T + weights[f"{first}.bias"])
    return hidden @ weights[f"{second}.weight"].T + weights[f"{second}.bias"]


def dense_product(weights, name, h):
    """The block on one graph's pairs as a tensor [n, n, C]."""
    a, b = network(weights, f"{name}left", h), network(weights, f"{name}right", h)
    mean_a, mean_b = a.mean(1, keepdim=True), b.mean(0, keepdim=True)
    together = torch.einsum("iwc,wjc->ijc", a - mean_a, b - mean_b) / len(h) ** 0.5
    y = network(weights, f"{name}both", torch.cat([h, together, mean_a * mean_b], -1))
    scaled = (y - y.mean(-1, keepdim=True)) / (y.var(-1, correction=0, keepdim=True) + 1e-5).sqrt()
    return scaled * weights[f"{name}norm.weight"] + weights[f"{name}norm.bias"]


def drawn(layer):
    return {name: p.detach().clone().requires_grad_() for name, p in layer.double().named_parameters()}


def test_a_pair_product_is_the_equation_on_members_of_different_sizes():
    layer, h = PairProduct(3, 4), leaf(7 * 7 + 3 * 3, 3)
    weights = drawn(layer)
    parts = [dense_product(weights, "", part.view(n, n, 3)) for part, n in zip(h.split([49, 9]), (7, 3), strict=True)]
    expected = torch.cat([part.reshape(-1, 4) for part in parts])
    assert_parity(layer, weights, (BATCH, h), expected, [h, *weights.values()])


def test_the_two_parts_are_the_papers_product():
    a, b = leaf(49, 2), leaf(49, 2, seed=1)
    together, apart = products(messy_graph(), a, b)
    product = torch.einsum("iwc,wjc->ijc", a.view(7, 7, 2), b.view(7, 7, 2)).reshape(49, 2)
    assert torch.allclose(7**0.5 * together + 7 * apart, product)


def test_ppgn_is_the_equation():
    layer, x = PPGN(5, 4, hidden=3, depth=2), leaf(10, 5)
    weights = drawn(layer)
    count, expected = BATCH.multiplicity().double(), []
    for start, n in ((0, 7), (7, 3)):
        own, links = x[start : start + n], count[start : start + n, start : start + n]
        known = torch.stack([links, links.T, torch.eye(n, dtype=torch.float64)], -1)
        x_i = own @ weights["receiver.weight"].T + weights["receiver.bias"]
        h = known @ weights["pair.weight"].T + x_i[:, None] + own @ weights["sender.weight"].T
        for block in range(2):
            h = dense_product(weights, f"blocks.{block}.", h)
        read = torch.cat([h[range(n), range(n)], h.mean(1)], -1)
        expected.append(read @ weights["out.weight"].T + weights["out.bias"])
    assert_parity(layer, weights, (BATCH, x), torch.cat(expected), [x, *weights.values()], tolerance=1e-8)


@pytest.mark.parametrize("depth", [-1, 1.5, True])
def test_the_number_of_blocks_is_a_whole_number_from_0(depth):
    with pytest.raises(ConfigError, match="depth must be"):
        PPGN(3, 4, depth=depth)


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
