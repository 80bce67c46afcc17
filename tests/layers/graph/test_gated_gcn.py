import pytest
import torch

from edgewise.layers import EdgeStream, GatedGCN, ResidualGatedGCN
from layers.parity import assert_parity, leaf, messy_graph


def written_out(graph, x, e, A, B, C, D, E, bias):
    """The equation, pair by pair: every edge is looked at alone."""
    rows, edges = [], []
    for i in range(graph.num_receivers):
        heard, total = 0, 1e-6
        for k in range(int(graph.offsets[i]), int(graph.offsets[i + 1])):
            j = graph.senders[k]
            e_ij = D @ x[i] + bias[2] + E @ x[j] + bias[3] + (0 if e is None else C @ e[k])
            edges.append(e_ij)
            heard, total = heard + e_ij.sigmoid() * (B @ x[j] + bias[1]), total + e_ij.sigmoid()
        rows.append(A @ x[i] + bias[0] + heard / total)
    return torch.stack(rows), torch.stack(edges)


@pytest.mark.parametrize("edges", [0, 3])
def test_it_is_the_equation_edge_by_edge(edges):
    graph, x = messy_graph(), leaf(7, 5)
    e = leaf(graph.num_edges, edges, seed=1) if edges else None
    weight, bias, C = leaf(16, 5, seed=2), leaf(16, seed=3), leaf(4, max(edges, 1), seed=4)
    A, B, D, E = weight.chunk(4)
    expected, expected_edges = written_out(graph, x, e, A, B, C, D, E, bias.chunk(4))
    weights = {"nodes.weight": weight, "nodes.bias": bias} | ({"edges.weight": C} if edges else {})
    layer = GatedGCN(5, 4, edges).double()
    leaves = [x, weight, bias, *([e, C] if edges else [])]
    assert_parity(layer, weights, (graph, x, e), expected, leaves)
    layer.load_state_dict(weights)
    assert torch.allclose(layer.update(graph, x, e)[1], expected_edges, atol=1e-12)


def test_without_shares_it_is_that_of_pytorch_geometric():
    theirs = pytest.importorskip("torch_geometric.nn").ResGatedGraphConv(5, 4).double()
    graph, x = messy_graph(), leaf(7, 5)
    maps = theirs.lin_skip, theirs.lin_value, theirs.lin_key, theirs.lin_query
    weight = torch.cat([one.weight for one in maps]).detach().requires_grad_()
    bias = torch.cat([theirs.bias, *(one.bias for one in maps[1:])]).detach().requires_grad_()
    with torch.no_grad():
        expected = theirs(x, graph.edge_index())
    layer = ResidualGatedGCN(5, 4).double()
    layer.load_state_dict({"nodes.weight": weight, "nodes.bias": bias})
    torch.testing.assert_close(layer(graph, x), expected, atol=1e-12, rtol=1e-9)


def test_gates_are_shares_of_one():
    """With A = 0, B x_j = 1 every receiver that hears anybody gets Σ_j η_ij = 1, up to ε."""
    graph = messy_graph()
    layer = GatedGCN(5, 4, edges=2).double()
    with torch.no_grad():
        layer.nodes.weight[:8], layer.nodes.bias[:4], layer.nodes.bias[4:8] = 0, 0, 1
    y = layer(graph, leaf(7, 5), leaf(graph.num_edges, 2, seed=1))
    assert torch.allclose(y, (graph.in_degrees() > 0).double()[:, None].expand(7, 4), atol=1e-4)


@pytest.mark.parametrize("edges", [0, 3, 4])
def test_a_stream_of_edges_is_normalised_and_added_to_what_was_there(edges):
    """(47)-(49) written out, and where the widths differ no residual; both results at once."""
    graph, x = messy_graph(), leaf(7, 5)
    e = leaf(graph.num_edges, edges, seed=1) if edges else None
    weight, bias, C = leaf(16, 5, seed=2), leaf(16, seed=3), leaf(4, max(edges, 1), seed=4)
    scale, shift = leaf(4, seed=5), leaf(4, seed=6)
    A, B, D, E = weight.chunk(4)
    y, made = written_out(graph, x, e, A, B, C, D, E, bias.chunk(4))
    made = (made - made.mean(0)) / (made.var(0, unbiased=False) + 1e-5).sqrt() * scale + shift
    made = made.clamp(min=0) + (e if edges == 4 else 0)
    layer = Both(EdgeStream(5, 4, edges).double())
    weights = {"stream.convolution.nodes.weight": weight, "stream.convolution.nodes.bias": bias}
    weights |= {"stream.norm.weight": scale, "stream.norm.bias": shift}
    weights |= {"stream.convolution.edges.weight": C} if edges else {}
    leaves = [x, weight, bias, scale, shift, *([e, C] if edges else [])]
    assert_parity(layer, weights, (graph, x, e), torch.cat([y, made]), leaves)


class Both(torch.nn.Module):
    """What a stream returns, one below the other."""

    def __init__(self, stream):
        super().__init__()
        self.stream = stream

    def forward(self, *inputs):
        return torch.cat(self.stream(*inputs))
