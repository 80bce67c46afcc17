"""Weights, rollout, flow and relevance against their equations, written out with dense matrices."""

import networkx
import pytest
import torch
from torch import Tensor, nn

from edgewise import Dot, ExplanationError, Graph, attend, causal, complete, explain, record
from edgewise.explanations import Explained, scores
from edgewise.graphs import EncoderDecoderGraph
from edgewise.layers import GCN, RGAT
from edgewise.models import MODELS, Features, TokenPairs, Tokens
from explanations.families import EVERY, baseline_of, family

RING = Graph.from_edge_index([[0, 1, 2, 3, 0], [1, 2, 3, 0, 2]], num_nodes=4).add_self_loops()


class Attentive(nn.Module):
    """Two layers of attention of two heads, residual, and a linear readout of each node."""

    def __init__(self) -> None:
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(4, 12) for _ in range(2))
        self.head = nn.Linear(4, 3)

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        for layer in self.maps:
            q, k, v = layer(x).unflatten(-1, (3, 2, 2)).unbind(-3)
            x = x + attend(graph, q, k, v, Dot()).flatten(-2)
        return self.head(x)


def test_the_attention_of_a_relational_layer_is_that_along_its_edges() -> None:
    graph = Graph.from_edge_index([[0, 1, 1, 2], [2, 2, 2, 0]], num_nodes=3)
    layer, x, e = RGAT(2, 2, relations=2).eval(), torch.randn(3, 2), torch.tensor([0, 0, 1, 1])
    W, q, k = (weight.detach()[e] for weight in (layer.maps, layer.a_receiver[:, 0], layer.a_sender[:, 0]))
    g_i, g_j = torch.einsum("ecd,ed->ec", W, x[graph.receivers]), torch.einsum("ecd,ed->ec", W, x[graph.senders])
    s = nn.functional.leaky_relu((q * g_i + k * g_j).sum(-1), layer.slope)
    for method in ("attention", "rollout"):
        why = explain(layer, graph, x, (2, 0), method, features=(e,))
        share = 1.0 if method == "attention" else 0.5 * (graph.receivers == 2)
        right = torch.cat([s[graph.receivers == i].softmax(0) for i in range(3)]) * share
        torch.testing.assert_close(why.edges, right)


def dense(graph: Graph, values: Tensor) -> Tensor:
    """Values [E, H] as matrices [H, N, N]."""
    matrix = torch.zeros(values.shape[1], graph.num_receivers, graph.num_senders)
    return matrix.index_put((torch.arange(values.shape[1])[:, None], graph.receivers, graph.senders), values.T)


@pytest.fixture
def model() -> Attentive:
    torch.manual_seed(3)
    return Attentive().eval()


ATTENTIVE = {
    *("gnn gat", "gnn gatv2", "bert", "bart", "encoder-decoder", "transformer", "swin", "kernel regression"),
    *(name for name in EVERY if name.startswith(("graph transformer", "vision", "class", "set transformer"))),
    *(f"text {kind}" for kind in ("linear", "performer", "strided-heads", "alibi", "shaw", "t5", "transformer-xl")),
    *("text learned", "text sinusoidal", "particles se3-attention"),
}
X = torch.randn(4, 4, generator=torch.Generator().manual_seed(1))


@pytest.mark.parametrize(("layer", "head"), [(0, None), (1, 0), (-1, 1)])
def test_weights_are_those_that_record_lists(model: Attentive, layer: int, head: int | None) -> None:
    with record() as seen:
        model(RING, X)
    p = seen[layer].weights
    expected = p.mean(-1) if head is None else p[:, head]
    shown = explain(model, RING, X, (2, 0), "attention", layer=layer, head=head)
    assert shown.edges is not None and torch.equal(shown.edges, expected)
    torch.testing.assert_close(shown.nodes, dense(RING, expected[:, None])[0, 2])


@pytest.mark.parametrize("name", EVERY)
def test_weights_of_every_family_are_those_that_record_lists(name: str) -> None:
    model, inputs, index = family(name)
    explained = Explained(model, inputs, index, baseline=baseline_of(name))
    with record() as seen:
        model(*inputs)
    among = [call for call in seen if explained.places(call.graph) is not None]
    assert bool(among) == (name in ATTENTIVE)
    for layer, call in enumerate(among):
        place, p = explained.places(call.graph), call.weights.reshape(-1, *call.weights.shape[-2:])[0]
        for head in (None, *range(p.shape[-1])):
            shown = scores(explained, "attention", layer, head).edges
            expected = p.mean(-1) if head is None else p[:, head]
            inside = place < explained.edges.num_edges  # without what a layer adds: self-loops, a class node's edges
            assert shown is not None and torch.equal(shown[place[inside]], expected[inside])
            assert shown.count_nonzero() == expected[inside].count_nonzero()


def test_rollout_is_the_product_of_half_attention_and_half_identity(model: Attentive) -> None:
    with record() as seen:
        model(RING, X)
    mixed = [0.5 * dense(RING, call.weights).mean(0) + 0.5 * torch.eye(4) for call in seen]
    shown = explain(model, RING, X, (2, 0), "rollout")
    torch.testing.assert_close(shown.nodes, (mixed[1] @ mixed[0])[2])
    assert shown.edges is not None and float(shown.edges.sum()) == pytest.approx(1.0)  # ½ in each of two layers


@pytest.mark.parametrize("method", ["rollout", "flow"])
def test_a_node_without_senders_stays_what_it_is(model: Attentive, method: str) -> None:
    chain = Graph.from_edge_index([[0], [1]], num_nodes=4)
    torch.testing.assert_close(explain(model, chain, X, (0, 0), method).nodes, torch.tensor([1.0, 0, 0, 0]))


def test_flow_is_the_largest_flow_to_each_node(model: Attentive) -> None:
    with record() as seen:
        model(RING, X)
    network = networkx.DiGraph()
    for number, call in enumerate(seen, start=1):
        mixed = 0.5 * dense(RING, call.weights).mean(0) + 0.5 * torch.eye(4)
        for i, j in mixed.nonzero().tolist():
            network.add_edge((number, i), (number - 1, j), capacity=mixed[i, j].item())
    shown = explain(model, RING, X, (2, 0), "flow")
    largest = [networkx.maximum_flow_value(network, (2, 2), (0, j)) if (0, j) in network else 0.0 for j in range(4)]
    torch.testing.assert_close(shown.nodes, torch.tensor(largest), atol=1e-4, rtol=0)


def test_flow_is_shared_by_parallel_edges_and_by_a_loop_and_what_stays(model: Attentive) -> None:
    twice = Graph.from_edge_index([[0, 0, 1], [1, 1, 1]], num_nodes=2)
    rolled, flown = (explain(model, twice, X[:2], (1, 0), method).edges for method in ("rollout", "flow"))
    assert rolled is not None and flown is not None
    assert flown[0] == pytest.approx(float(flown[1]), rel=1e-3)
    assert float(flown.sum()) <= 1.0 + 1e-3  # half of two layers: the rest stays


def test_relevance_is_its_equation_on_dense_matrices(model: Attentive) -> None:
    weights = []
    x = X
    for layer in model.maps:
        q, k, v = layer(x).unflatten(-1, (3, 2, 2)).unbind(-3)
        s = torch.einsum("ihc,jhc->hij", q, k) / 2**0.5
        A = s.masked_fill(~RING.dense_mask(), -torch.inf).softmax(-1)
        A.retain_grad()
        weights.append(A)
        x = x + torch.einsum("hij,jhc->ihc", A, v).flatten(-2)
    model.head(x)[2, 1].backward()
    R = torch.eye(4)
    for A in weights:
        assert A.grad is not None
        R = R + (A.grad * A).clamp(min=0).mean(0) @ R
    shown = explain(model, RING, X, (2, 1), "relevance")
    torch.testing.assert_close(shown.nodes, (R - torch.eye(4))[2])


@pytest.mark.parametrize("method", ["attention", "rollout", "flow", "relevance"])
def test_a_model_without_attention_is_refused(method: str) -> None:
    with pytest.raises(ExplanationError, match=r"GCN has no .* it calls attend nowhere"):
        explain(GCN(4, 3), RING, X, (0, 0), method)


@pytest.mark.parametrize(
    ("method", "layer", "head", "message"),
    [
        ("attention", 2, None, "has 2 layers"),
        ("attention", -3, None, "2 layers"),
        ("attention", 0, 2, "layer 0 has 2 heads"),
        ("attention", 0, -3, "has 2 heads"),
        ("rollout", 0, None, "'attention' alone, not for 'rollout'"),
    ],
)
def test_a_layer_or_head_that_is_not_there_is_refused(
    model: Attentive, method: str, layer: int, head: int | None, message: str
) -> None:
    with pytest.raises(ExplanationError, match=message):
        explain(model, RING, X, (0, 0), method, layer=layer, head=head)


def test_of_an_encoder_decoder_the_cross_attention_is_shown() -> None:
    settings, built = MODELS["encoder-decoder"]
    model = built(settings(width=8, heads=2, encoder_depth=1, decoder_depth=2), TokenPairs(9, 9, length=9)).eval()
    graph, x = EncoderDecoderGraph.of([3], [3]), torch.tensor([1, 2, 3, 4, 5, 6])
    with record() as seen:
        model(graph, x)
    shown = explain(model, graph, x, (2, 4), "attention")
    assert shown.edges is not None and torch.equal(shown.edges, seen[-1].weights.mean(-1))
    expected = dense(graph.cross, seen[-1].weights.mean(-1, keepdim=True))[0, 2]
    torch.testing.assert_close(shown.nodes, torch.cat([expected, torch.zeros(3)]))


def test_through_an_encoder_decoder_all_of_its_attention_is_followed() -> None:
    sources = 4
    settings, built = MODELS["encoder-decoder"]
    torch.manual_seed(0)
    model = built(settings(width=8, heads=2, encoder_depth=2, decoder_depth=2), TokenPairs(9, 9, length=9)).eval()
    graph, x = EncoderDecoderGraph.of([sources], [3]), torch.arange(sources + 3)
    count = sources + 3
    with record() as seen:
        model(graph, x)
    assert [call.graph for call in seen] == [graph.encoder] * 2 + [graph.decoder, graph.cross] * 2
    total, network = torch.eye(count), networkx.DiGraph()
    for number, call in enumerate(seen, start=1):
        rows = slice(0, sources) if call.graph is graph.encoder else slice(sources, count)
        columns = slice(sources, count) if call.graph is graph.decoder else slice(0, sources)
        mixed = torch.eye(count)
        mixed[rows] *= 0.5
        mixed[rows, columns] += 0.5 * dense(call.graph, call.weights).mean(0)
        total = mixed @ total
        for i, j in mixed.nonzero().tolist():
            network.add_edge((number, i), (number - 1, j), capacity=mixed[i, j].item())
    rolled = explain(model, graph, x, (2, 4), "rollout")
    torch.testing.assert_close(rolled.nodes, total[sources + 2])
    assert rolled.edges is not None and rolled.edges.shape == (3 * sources,)
    flown = explain(model, graph, x, (2, 4), "flow")
    largest = [networkx.maximum_flow_value(network, (6, sources + 2), (0, j)) for j in range(sources)]
    torch.testing.assert_close(flown.nodes[:sources], torch.tensor(largest), atol=1e-4, rtol=0)
    relevant = explain(model, graph, x, (2, 4), "relevance")
    assert relevant.edges is not None and float(relevant.edges.sum()) > 0
    assert float(relevant.nodes[:sources].min()) > 0
    ahead = explain(model, graph, x, (0, 4), "relevance")  # the first target does not see the later ones
    assert float(ahead.nodes[sources + 1 :].abs().sum()) == 0


def test_relevance_of_one_cross_attention_is_the_positive_part_of_its_gradient() -> None:
    settings, built = MODELS["encoder-decoder"]
    torch.manual_seed(0)
    model = built(settings(width=8, heads=2, encoder_depth=0, decoder_depth=1), TokenPairs(9, 9, length=9)).eval()
    graph, x = EncoderDecoderGraph.of([3], [1]), torch.arange(4)
    slope = explain(model, graph, x, (0, 4), "gradient").edges  # summed over the heads
    why = explain(model, graph, x, (0, 4), "relevance")
    assert slope is not None and why.edges is not None
    assert bool((why.edges >= (0.5 * slope).clamp(min=0) - 1e-7).all())
    torch.testing.assert_close(why.nodes[:3], why.edges)


@pytest.mark.parametrize("method", ["attention", "rollout", "flow", "relevance"])
def test_attention_to_edges_is_attention_to_their_senders(method: str) -> None:
    model, inputs, index = family("particles se3-attention")
    why = explain(model, *inputs, index, method, baseline=None)
    assert why.edges is not None and why.edges.shape == (25,) and why.nodes.shape == (5,)
    assert float(why.nodes.abs().sum()) > 0
    if method == "attention":
        torch.testing.assert_close(why.nodes, why.edges[inputs[0].receivers == index[0]])


def test_a_class_node_is_where_the_rollout_begins() -> None:
    settings, built = MODELS["transformer"]
    made = settings(width=8, heads=2, depth=2, readout="class")
    model = built(made, Features(3, 2, length=5, whole_graph=True)).eval()
    shown = explain(model, complete(5), torch.randn(1, 5, 3), (0, 0, 1), "rollout")
    assert shown.nodes.shape == (5,) and 0 < float(shown.nodes.sum()) < 1
    assert shown.edges is not None and shown.edges.shape == (25,) and float(shown.edges.sum()) > 0


def test_a_text_is_explained_at_its_position() -> None:
    settings, built = MODELS["transformer"]
    model = built(settings(width=8, heads=2, depth=2), Tokens(9, 9, length=6)).eval()
    shown = explain(model, causal(6), torch.arange(6)[None], (0, 3), "relevance")
    assert float(shown.nodes[:4].sum()) > 0 and float(shown.nodes[4:].abs().sum()) == 0


@pytest.mark.parametrize("method", ["attention", "rollout", "flow", "relevance"])
def test_of_a_batch_the_member_is_explained_that_the_index_names(model: Attentive, method: str) -> None:
    x = torch.randn(3, 4, 4, generator=torch.Generator().manual_seed(2))
    for member in (0, 2, -1):
        alone, batch = (
            explain(model, RING, given, index, method) for given, index in ((x[member], (2, 1)), (x, (member, 2, 1)))
        )
        assert alone.edges is not None and batch.edges is not None
        torch.testing.assert_close(batch.edges, alone.edges)
        torch.testing.assert_close(batch.nodes, alone.nodes)


@pytest.mark.parametrize("method", ["attention", "rollout", "flow"])
def test_a_function_of_a_batch_does_not_say_whose_attention_is_explained(model: Attentive, method: str) -> None:
    with pytest.raises(ExplanationError, match=r"does not say which of 3 members of the batch .* such as \(1, 0, 2\)"):
        explain(model, RING, X.expand(3, 4, 4), lambda y: y[1, 2, 0], method)
    assert explain(model, RING, X[None], lambda y: y[0, 2, 0], method).value


def test_without_edges_nothing_is_attended_to(model: Attentive) -> None:
    shown = explain(model, Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), 4), X, (2, 0), "attention")
    assert shown.edges is not None and shown.edges.shape == (0,) and not shown.nodes.any()
