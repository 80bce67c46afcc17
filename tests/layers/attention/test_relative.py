"""Relative positions against peers, and against their equations written out pair by pair in float64."""

import copy
import math
from functools import partial

import pytest
import torch
from torch import nn

from edgewise import Graph, causal, complete, strided, window
from edgewise.layers import (
    ALiBiAttention,
    Buckets,
    KeyValueCache,
    ShawAttention,
    T5Attention,
    TransformerXLAttention,
)
from edgewise.layers.attention.positions import sinusoids
from edgewise.layers.attention.relative import slopes
from layers.parity import assert_parity, each, leaf

KINDS = {
    "alibi": ALiBiAttention,
    "t5": partial(T5Attention, buckets=Buckets(6, 5)),
    "shaw": partial(ShawAttention, reach=2),
    "transformer-xl": TransformerXLAttention,
}
GRAPHS = {
    "complete": complete(6),
    "causal": causal(6),
    "window": window(6, 1),
    "strided": strided(6, 2),
    "edges": Graph.from_edge_index([[0, 5, 2, 4, 1, 3, 0], [1, 0, 0, 4, 3, 5, 5]], num_nodes=6),  # nobody speaks to 2
}


def strong(layer: nn.Module) -> nn.Module:
    """Weights so large that every term of the score tells."""
    for parameter in layer.parameters():
        nn.init.normal_(parameter, std=0.5)
    return layer.double()


def written_out(name: str, layer: nn.Module, graph: Graph, x: torch.Tensor) -> torch.Tensor:
    """The layer's equation for every pair (i, j), head by head, on senders that are the receivers."""
    heads, shared, _ = layer.split
    c, n = layer.channels, len(x)
    q, k, v = layer.projection(x).split((heads * c, shared * c, shared * c), -1)
    listens, outputs = graph.dense_mask(), []
    for h in range(heads):
        g = h * shared // heads
        q_h, k_h, v_h = q[:, h * c : (h + 1) * c], k[:, g * c : (g + 1) * c], v[:, g * c : (g + 1) * c]
        s = torch.zeros(n, n, dtype=torch.float64)
        values = v_h.expand(n, n, c).clone()
        for i in range(n):
            for j in range(n):
                s[i, j] = q_h[i] @ k_h[j]
                if name == "alibi":
                    s[i, j] -= math.sqrt(c) * slopes(heads)[h] * abs(i - j)
                elif name == "t5":
                    s[i, j] += math.sqrt(c) * layer.b[h, layer.buckets.of(torch.tensor(i - j))]
                elif name == "shaw":
                    row = max(-layer.reach, min(layer.reach, j - i)) + layer.reach
                    s[i, j] = q_h[i] @ (k_h[j] + layer.a_key[row])
                    values[i, j] += layer.a_value[row]
                else:
                    r = sinusoids(torch.tensor([i - j]), x.shape[1])[0]
                    w_r = layer.relative.weight[h * c : (h + 1) * c] @ r
                    s[i, j] += q_h[i] @ w_r + layer.u[h] @ k_h[j] + layer.v[h] @ w_r
        weight = torch.where(listens, (s / math.sqrt(c)).exp(), 0)
        p = weight / weight.sum(1, keepdim=True).clamp(min=1e-300)
        outputs.append(torch.einsum("ij,ijc->ic", p, values))
    return layer.output(torch.cat(outputs, -1))


@pytest.mark.parametrize(("name", "graph", "shared"), each([*KINDS, *KINDS], GRAPHS, [4, 2, 2]))
def test_the_layer_is_its_equation(name, graph, shared):
    layer, x = strong(KINDS[name](8, 4, key_value_heads=shared)), leaf(6, 8)
    expected = written_out(name, layer, GRAPHS[graph], x)
    assert_parity(layer, dict(layer.named_parameters()), (GRAPHS[graph], x), expected, [x, *layer.parameters()], 1e-10)


@pytest.mark.parametrize(("count", "reach", "both"), [(32, 128, True), (8, 20, False), (6, 300, True)])
def test_buckets_are_transformers(count, reach, both):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    d = torch.arange(-400, 401)
    expected = t5.T5Attention._relative_position_bucket(-d, both, count, reach)
    assert torch.equal(Buckets(count, reach, both).of(d), expected)


@pytest.mark.parametrize("decoder", [True, False])
def test_t5_attention_is_transformers(decoder):
    t5 = pytest.importorskip("transformers.models.t5.modeling_t5")
    from transformers import T5Config

    config = T5Config(
        d_model=12, d_kv=4, num_heads=3, relative_attention_num_buckets=8, relative_attention_max_distance=6,
        is_decoder=decoder, dropout_rate=0.0, attn_implementation="eager",
    )  # fmt: skip
    peer = strong(t5.T5Attention(config, has_relative_attention_bias=True, layer_idx=0))
    x, graph = leaf(2, 10, 12), causal(10) if decoder else complete(10)
    closed = torch.zeros(10, 10, dtype=torch.float64).masked_fill(~graph.dense_mask(), -torch.inf)
    (expected, *_) = peer(x, mask=closed[None, None])
    layer = T5Attention(12, 3, Buckets(8, 6, both=not decoder), bias=False).double()
    weights = {
        # T5 does not divide by √C
        "projection.weight": torch.cat([peer.q.weight * 2, peer.k.weight, peer.v.weight]),
        "output.weight": peer.o.weight,
        "b": peer.relative_attention_bias.weight.T,
    }
    assert_parity(layer, weights, (graph, x), expected, [x, *peer.parameters()], 1e-10)


@pytest.mark.parametrize("heads", [1, 4, 12])
def test_slopes_are_transformers(heads):
    bloom = pytest.importorskip("transformers.models.bloom.modeling_bloom")
    alibi = bloom.build_alibi_tensor(torch.ones(1, 5), heads, torch.float64).view(heads, 5)
    assert torch.allclose(torch.tensor(slopes(heads), dtype=torch.float64), alibi[:, 1], rtol=1e-6)


@pytest.mark.parametrize(("name", "steps"), each(KINDS, [[1, 1, 1, 1, 1, 1], [3, 1, 2]]))
def test_cached_attention_is_attention(name, steps):
    layer, x = strong(KINDS[name](8, 4, key_value_heads=2)), leaf(3, 6, 8).detach()
    cache, found, start = KeyValueCache(), [], 0
    for n in steps:
        rows = window(start + n, 4, sides="past").rows(start, start + n)
        with torch.no_grad():
            found.append(layer(rows, x[:, start : start + n], cache=cache))
        start += n
    assert torch.allclose(torch.cat(found, 1), layer(window(6, 4, sides="past"), x), atol=1e-12)


@pytest.mark.parametrize("name", KINDS)
def test_only_the_distance_counts(name):
    """Receivers and senders that move together hear the same; a text in a batch hears what it hears alone."""
    layer, x = strong(KINDS[name](8, 2)), leaf(7, 8)
    near = layer(window(7, 2, sides="past"), x)
    assert torch.allclose(layer(window(5, 2, sides="past"), x[2:])[2:], near[4:], atol=1e-12)
    texts = Graph.batch([causal(4), causal(3)])
    alone = torch.cat([layer(causal(4), x[:4]), layer(causal(3), x[4:])])
    assert torch.allclose(layer(texts, x), alone, atol=1e-12)


@pytest.mark.compiled
@pytest.mark.parametrize("name", KINDS)
def test_a_layer_is_compiled_whole_and_serves_other_graphs_of_the_same_size(name):
    torch._dynamo.reset()
    layer = strong(KINDS[name](8, heads=2))
    compiled, x = torch.compile(layer, backend="eager", fullgraph=True), torch.randn(6, 8, dtype=torch.float64)
    edges = [[0, 5, 2, 4, 1, 3, 0], [1, 0, 0, 4, 3, 5, 5]], [[3, 3, 2, 4, 1, 3, 0], [3, 2, 2, 4, 0, 4, 0]]
    for graph in [causal(6), *(Graph.from_edge_index(ends, num_nodes=6) for ends in edges)]:
        torch.testing.assert_close(compiled(graph, x), layer(graph, x))


@pytest.mark.parametrize("key_value_heads", [2, 1])
def test_shaws_dropout_drops_an_edge_from_both_sums(key_value_heads):
    """Where all values are 1 and all a^V are 1, every output is twice the sum of the weights that are left."""
    torch.manual_seed(0)
    layer = ShawAttention(4, 2, reach=2, key_value_heads=key_value_heads, bias=True, dropout=0.5).double()
    layer.a_value.data.fill_(1)
    q = torch.randn(6, 2, 2, dtype=torch.float64)
    k, v = q[:, :key_value_heads], torch.ones(6, key_value_heads, 2, dtype=torch.float64)
    torch.manual_seed(1)
    both = layer.average(complete(6), q, k, v)
    torch.manual_seed(1)
    values = layer.average(complete(6), q, k, 0 * v)
    assert not torch.allclose(values, torch.ones_like(values))
    assert torch.allclose(both, 2 * values, atol=1e-12)


def test_a_table_may_be_shared_in_a_chain():
    """In either order of the two calls; a layer that shares with itself keeps its table."""
    x = leaf(5, 8)
    for late in (False, True):
        a, b, c = (T5Attention(8, 2).double() for _ in range(3))
        if late:
            a.share(b)
        b.share(c)
        if not late:
            a.share(b)
        for one, other in ((c, a), (c, c), (a, a), (b, a)):
            one.share(other)
        twin = copy.deepcopy(a)
        twin.b = c.b
        assert torch.equal(a(causal(5), x), twin(causal(5), x))
