from itertools import pairwise

import networkx
import pytest
import torch

from edgewise import Graph, complete
from edgewise.layers import (
    CentralityEncoding,
    EdgeTransformerBlock,
    GraphAttention,
    GraphormerAttention,
    HadamardAttention,
    KernelAttention,
    WeightedAttention,
)
from layers.parity import assert_parity, assert_same, leaf, messy_graph

TREE = Graph.from_networkx(networkx.balanced_tree(2, 2))
BATCH = Graph.batch([messy_graph(), complete(2)])


def heads_of(layer, x):
    """q, k and v of every head, each [H, N, C]."""
    q, k, v = (x @ layer.projection.weight.T + layer.projection.bias).chunk(3, -1)
    heads = layer.split[0]
    return (part.unflatten(-1, (heads, -1)).transpose(0, 1) for part in (q, k, v))


def written_out(layer, x, scores, mask):
    """W_O ‖_h softmax(scores) v over the dense mask; rows without senders give 0."""
    _, _, v = heads_of(layer, x)
    p = scores.masked_fill(~mask, -torch.inf).softmax(-1).nan_to_num(0)
    return (p @ v).transpose(0, 1).flatten(1) @ layer.output.weight.T + layer.output.bias


def dots(layer, x):
    q, k, _ = heads_of(layer, x)
    return q @ k.transpose(1, 2) / layer.channels**0.5


@pytest.mark.parametrize("heads", [1, 2])
def test_graph_attention_without_edge_features_is_pygs_transformer_conv(heads):
    pyg = pytest.importorskip("torch_geometric.nn")
    graph, x = messy_graph(), leaf(7, 4)
    peer = pyg.TransformerConv(4, 4 // heads, heads, root_weight=False).double()
    mix, shift = leaf(4, 4, seed=1), leaf(4, seed=2)
    weights = {
        "projection.weight": torch.cat([peer.lin_query.weight, peer.lin_key.weight, peer.lin_value.weight]),
        "projection.bias": torch.cat([peer.lin_query.bias, peer.lin_key.bias, peer.lin_value.bias]),
        "output.weight": mix,
        "output.bias": shift,
    }
    expected = peer(x, graph.edge_index()) @ mix.T + shift
    leaves = [x, mix, shift, peer.lin_query.weight, peer.lin_key.weight, peer.lin_value.weight, peer.lin_value.bias]
    assert_parity(GraphAttention(4, heads).double(), weights, (graph, x), expected, leaves)


@pytest.mark.parametrize("part", [0, 1], ids=["nodes", "edges"])
def test_edge_features_multiply_the_scores(part):
    """Equations (5.17), (5.18) with Dwivedi & Bresson's edges, dense and in a loop over the edges."""
    graph, x = messy_graph().coalesce(), leaf(7, 4)
    e = leaf(graph.num_edges, 3, seed=1)
    layer = GraphAttention(4, 2, edges=3).double()
    q, k, _ = heads_of(layer, x)
    scores, rows = torch.zeros(2, 7, 7, dtype=torch.float64), []
    for number, (i, j) in enumerate(zip(graph.receivers.tolist(), graph.senders.tolist(), strict=True)):
        of_edge = (layer.edge.weight @ e[number] + layer.edge.bias).view(2, 2)
        w = q[:, i] * k[:, j] / 2**0.5 * of_edge
        scores = scores.index_put((torch.arange(2), torch.tensor(i), torch.tensor(j)), w.sum(-1))
        rows.append(layer.edge_output.weight @ w.flatten() + layer.edge_output.bias)
    expected = (written_out(layer, x, scores, graph.dense_mask()), torch.stack(rows))[part]
    assert_same(layer.update(graph, x, e)[part], expected, [x, e, layer.projection.weight, layer.edge.weight])


@pytest.mark.parametrize("graph", [messy_graph().coalesce(), BATCH.coalesce()], ids=["one", "batch"])
def test_edge_weights_multiply_the_scores_as_equation_5_18_has_it(graph):
    """A_g written out: the edge's weight, -inf without an edge."""
    nodes = graph.num_receivers
    x, e = leaf(nodes, 4), leaf(graph.num_edges, 1, seed=1)
    layer = WeightedAttention(4, 2).double()
    a = torch.zeros(nodes, nodes, dtype=torch.float64).index_put((graph.receivers, graph.senders), e[:, 0])
    expected = written_out(layer, x, a * dots(layer, x), graph.dense_mask())
    assert_same(layer(graph, x, e), expected, [x, e, layer.projection.weight, layer.output.weight])


def test_graphormers_biases_are_the_equation():
    """(6)-(7) on a tree, where there is one path only: distances and paths from networkx, pair by pair."""
    x, drawn = leaf(7, 4), TREE.to_networkx()
    e = leaf(TREE.num_edges, 3, seed=1)
    layer = GraphormerAttention(4, 2, most=3, edges=3).double()
    torch.nn.init.normal_(layer.distance)
    torch.nn.init.normal_(layer.path)
    number = {(int(j), int(i)): edge for edge, (j, i) in enumerate(TREE.edge_index().T.tolist())}
    bias = torch.zeros(2, 7, 7, dtype=torch.float64)
    for i in range(7):
        for j in range(7):
            path = networkx.shortest_path(drawn, j, i)
            steps = list(pairwise(path))[::-1]  # the edge into i first
            if len(steps) > 3:
                value = layer.distance[4]
            else:
                terms = [e[number[step]] @ layer.path[n] for n, step in enumerate(steps)]
                value = layer.distance[len(steps)] + (sum(terms) / len(terms) if terms else 0)
            bias = bias.index_put((torch.arange(2), torch.tensor(i), torch.tensor(j)), value)
    expected = written_out(layer, x, dots(layer, x) + bias, torch.ones(7, 7, dtype=torch.bool))
    assert_same(layer(TREE, x, e), expected, [x, e, layer.distance, layer.path, layer.projection.weight])


def test_centrality_is_a_row_for_each_degree():
    x, layer = leaf(7, 4), CentralityEncoding(4, largest=3).double()
    graph = messy_graph()
    senders, receivers = ([ends.count(i) for i in range(7)] for ends in graph.edge_index().tolist())
    assert max(senders) > 3 or max(receivers) > 3
    expected = [x[i] + layer.in_degree[min(3, receivers[i])] + layer.out_degree[min(3, senders[i])] for i in range(7)]
    assert torch.equal(layer(graph, x), torch.stack(expected))


@pytest.mark.parametrize(("kernel", "steps"), [("diffusion", 3), ("random-walk", 2)])
def test_kernel_attention_is_the_equation(kernel, steps):
    """Σ_j K exp(s) v / Σ_j K exp(s), with the exponential of the Laplacian from its Taylor series."""
    x, layer = leaf(9, 4), KernelAttention(4, 2, kernel, beta=0.7, steps=steps).double()
    a = (BATCH.dense_mask() | BATCH.dense_mask().T).double()
    a.fill_diagonal_(0)
    d = a.sum(1)
    lap = torch.diag((d > 0).double()) - a / (d.clamp(min=1).sqrt() * d.clamp(min=1).sqrt()[:, None])
    step, k = torch.eye(9).double() - 0.7 * lap, torch.eye(9).double()
    if kernel == "random-walk":
        k = step @ step
    else:
        term = torch.eye(9).double()
        for n in range(1, 40):
            term = term @ (-0.7 * lap) / n
            k = k + term
    weight = k.clamp(min=0) * dots(layer, x).exp() * (k > 1e-12)
    _, _, v = heads_of(layer, x)
    expected = (weight / weight.sum(-1, keepdim=True) @ v).transpose(0, 1).flatten(1)
    expected = expected @ layer.output.weight.T + layer.output.bias
    assert_same(layer(BATCH, x), expected, [x, layer.projection.weight])


def test_hadamard_attention_is_equation_5_19():
    graph, x = messy_graph(), leaf(7, 4)
    layer = HadamardAttention(4, 2).double()
    _, _, v = heads_of(layer, x)
    p = dots(layer, x).softmax(-1) * graph.multiplicity()
    expected = (p @ v).transpose(0, 1).flatten(1) @ layer.output.weight.T + layer.output.bias
    found = layer(graph, x)
    assert_same(found, expected, [x, layer.projection.weight])
    alone = torch.cat([found, layer(complete(2), leaf(2, 4, seed=5))])
    assert torch.allclose(layer(BATCH, torch.cat([x, leaf(2, 4, seed=5)])), alone, atol=1e-12)


@pytest.mark.parametrize("order", ["pre", "post"])
def test_the_edge_block_is_its_equations_in_value_and_gradient(order):
    """Attention written out edge by edge; layer norms and perceptrons by torch.nn.functional."""
    graph, x, e = messy_graph(), leaf(7, 4), leaf(10, 4, seed=1)
    block = EdgeTransformerBlock(4, heads=2, order=order).double()
    norms = [
        lambda t, k=k: torch.nn.functional.layer_norm(t, (4,), block.norms[k].weight, block.norms[k].bias)
        for k in range(4)
    ]

    def attend(x, e):
        layer, heads = block.attention, 2
        q, k, v = heads_of(layer, x)
        i, j = graph.receivers, graph.senders
        w = (q[:, i] * k[:, j]).transpose(0, 1).flatten(1) * layer.edge(e) / 2**0.5
        rows = []
        for node in range(7):
            mine = (i == node).nonzero().flatten()
            p = w[mine].unflatten(-1, (heads, 2)).sum(-1).softmax(0)  # [edges of the node, H]
            rows.append((p.T.unsqueeze(-1) * v[:, j[mine]]).sum(1).flatten())
        return layer.output(torch.stack(rows)), layer.edge_output(w)

    def perceptron(ff, t):
        return ff.down(torch.relu(ff.up(t)))

    def written(x, e):
        if order == "pre":
            y, new = attend(norms[0](x), norms[2](e))
            x, e = x + y, e + new
            return x + perceptron(block.feed_forward, norms[1](x)), e + perceptron(block.edge_feed_forward, norms[3](e))
        y, new = attend(x, e)
        x, e = norms[0](x + y), norms[2](e + new)
        return norms[1](x + perceptron(block.feed_forward, x)), norms[3](e + perceptron(block.edge_feed_forward, e))

    with torch.no_grad():
        for norm in block.norms:
            norm.weight.normal_()
    found, expected = block(graph, x, e), written(x, e)
    assert_same(torch.cat(found), torch.cat(expected), [x, e, *block.parameters()])
