import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from edgewise import Graph
from edgewise.graphs import importance, sample_layers
from edgewise.layers import ACM, GCN, GCNII, FastGCN, MeanReadout, renormalised
from layers.parity import assert_parity, assert_same, each, leaf, messy_graph


@pytest.mark.parametrize(("bias", "outputs", "weighted"), each([True, False], [3, 8], [False, True]))
def test_gcn_is_pygs(outputs, bias, weighted):
    pyg = pytest.importorskip("torch_geometric.nn")
    graph, x = messy_graph(), leaf(7, 5)
    weight = torch.linspace(0, 3, graph.num_edges, dtype=torch.float64) if weighted else None
    peer = pyg.GCNConv(5, outputs, bias=bias).double()
    weights = {"linear.weight": peer.lin.weight} | ({"bias": peer.bias} if bias else {})
    expected = peer(x, graph.edge_index(), weight)
    arguments = (graph, x, None, weight)
    assert_parity(GCN(5, outputs, bias).double(), weights, arguments, expected, [x, *peer.parameters()])


def test_two_sides_are_the_equation():
    """D^-½ A S^-½ X W + b for a pair; in a sampled graph with the receivers' self-loops."""
    layer, users, items = GCN(4, 3).double(), leaf(2, 4), leaf(5, 4, seed=1)
    A = torch.tensor([[1, 1, 0, 0, 1], [0, 1, 0, 0, 0]], dtype=torch.float64)
    graph = Graph.from_edge_index(A.t().nonzero().t(), num_nodes=5, num_receivers=2)

    def written(A):
        d, s = A.sum(1, keepdim=True), A.sum(0).clamp(min=1)
        return (A / (d * s).sqrt()) @ items @ layer.linear.weight.t() + layer.bias

    torch.testing.assert_close(layer(graph, (users, items)), written(A))
    torch.testing.assert_close(layer(graph, items), written((A + torch.eye(2, 5)).clamp(max=1)))


def test_fastgcn_without_weights_is_gcn():
    layer, peer, x = FastGCN(3, 4).double(), GCN(3, 4).double(), leaf(7, 3)
    peer.load_state_dict(layer.state_dict())
    assert torch.equal(layer(messy_graph(), x), peer(messy_graph(), x))


def test_fastgcn_with_weights_is_the_weighted_sum_forward_and_gradient():
    loops, entries = renormalised(messy_graph(), torch.float64)
    sample = sample_layers(loops, entries, importance(loops, entries), [4, 0, 6], [5])
    x, W, b = leaf(len(sample.nodes), 3), leaf(4, 3), leaf(4)
    dense = torch.zeros(3, len(sample.nodes), dtype=torch.float64)
    dense.index_put_((sample.graphs[0].receivers, sample.graphs[0].senders), sample.weights[0], accumulate=True)
    weights = {"linear.weight": W, "bias": b}
    layer = FastGCN(3, 4).double()
    assert_parity(layer, weights, (sample.graphs[0], x, sample.weights[0]), dense @ x @ W.T + b, [x, W, b])


@pytest.mark.parametrize("number", [1, 5])
def test_gcnii_is_pygs(number):
    pyg = pytest.importorskip("torch_geometric.nn")
    graph, x, first = messy_graph(), leaf(7, 4), leaf(7, 4, seed=1)
    peer = pyg.GCN2Conv(4, alpha=0.3, theta=0.5, layer=number).double()
    expected = peer(x, first, graph.edge_index())
    layer = GCNII(4, 0.3, peer.beta).double()
    weights = {"linear.weight": peer.weight1.t()}
    assert_parity(layer, weights, (graph, x, first), expected, [x, first, *peer.parameters()])


def test_gcnii_of_a_sampled_graph_reads_the_receivers_own_first_state():
    hop = Graph.from_edge_index([[2, 1], [0, 0]], num_nodes=3, num_receivers=1)
    layer, x, first = GCNII(4).double(), leaf(3, 4), leaf(3, 4, seed=1)
    assert torch.equal(layer(hop, x, first), layer(hop, x, first[:1]))


@pytest.mark.compiled
@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which the compiler reads of what a graph break leaves
def test_a_compiled_layer_and_readout_serve_batches_of_any_size():
    layer, readout = GCN(6, 4), MeanReadout()

    def model(graph, x):
        return readout(graph, layer(graph, x))

    counted = CompileCounterWithBackend("eager")
    compiled, frames = torch.compile(model, backend=counted), []
    for n in range(20, 24):
        members = [Graph.from_edge_index(torch.randint(k, (2, 3 * k)), k) for k in (n, n + 2, n + 5)]
        graph, x = Graph.batch(members), torch.randn(3 * n + 7, 6)
        torch.testing.assert_close(compiled(graph, x), model(graph, x))
        frames.append(counted.frame_count)
    assert frames[1] == frames[3]


def test_the_two_sides_of_a_pair_may_be_as_many():
    """A sender's degree is the number of its receivers, with or without a third sender whom nobody hears."""
    layer, edges = GCN(1, 1, bias=False), [[0, 0], [0, 1]]
    layer.linear.weight.data.fill_(1.0)
    for senders in (2, 3):
        graph = Graph.from_edge_index(edges, num_nodes=senders, num_receivers=2)
        y = layer(graph, (torch.zeros(2, 1), torch.ones(senders, 1)))
        assert torch.allclose(y.flatten(), torch.tensor(0.5).sqrt().expand(2))
    one_way = Graph.from_edge_index([[1], [0]], num_nodes=2)  # receiver 1 hears nobody: an entry was 1/√0
    assert renormalised(one_way, torch.float32, paired=True)[1].tolist() == [1.0]


def written(graph: Graph, x: torch.Tensor, layer: ACM) -> torch.Tensor:
    """(4)-(5) of the paper, with dense matrices."""
    a = dense(graph)
    loops = (a.diagonal() == 0).to(x.dtype)
    a = a + torch.diag(loops)
    p = a / a.sum(1, keepdim=True)
    W_L, W_H, W_I = layer.channels.weight.chunk(3)
    H = [(p @ x @ W_L.T).relu(), ((torch.eye(len(x)).double() - p) @ x @ W_H.T).relu(), (x @ W_I.T).relu()]
    told = torch.cat([(h @ w).sigmoid().unsqueeze(-1) for h, w in zip(H, layer.scores, strict=True)], -1)
    alpha = (told @ layer.mix / 3).softmax(-1)
    return 3 * sum(alpha[:, k : k + 1] * H[k] for k in range(3))


def dense(graph: Graph) -> torch.Tensor:
    """How often each edge occurs."""
    counts = torch.zeros(graph.num_receivers, graph.num_senders, dtype=torch.float64)
    ones = torch.ones(graph.num_edges, dtype=torch.float64)
    return counts.index_put((graph.receivers, graph.senders), ones, accumulate=True)


def test_acm_is_the_equations_with_their_gradient():
    graph, x, layer = messy_graph(), leaf(7, 5), ACM(5, 3).double()
    assert_same(layer(graph, x), written(graph, x, layer), [x, *layer.parameters()])
