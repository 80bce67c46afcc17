import pytest
import torch
from torch import nn

from edgewise import ConfigError, Graph, ShapeError, causal, complete, window
from edgewise.layers import KeyValueCache, MultiHeadAttention, Rotary
from layers.parity import assert_parity, each, leaf


def _peer(width=12, heads=3, bias=True):
    torch.manual_seed(0)
    peer = nn.MultiheadAttention(width, heads, bias=bias, batch_first=True, dtype=torch.float64)
    for parameter in peer.parameters():
        nn.init.normal_(parameter, std=0.3)
    return peer


def _weights(peer):
    weights = {"projection.weight": peer.in_proj_weight, "output.weight": peer.out_proj.weight}
    if peer.in_proj_bias is not None:
        weights |= {"projection.bias": peer.in_proj_bias, "output.bias": peer.out_proj.bias}
    return weights


@pytest.mark.parametrize(
    ("graph", "bias"),
    each(
        [complete(6), causal(6), window(6, 1), Graph.from_edge_index(window(6, 2).edge_index(), num_nodes=6)],
        [True, False],
    ),
)
def test_self_attention_is_torchs(graph, bias):
    peer, x = _peer(bias=bias), leaf(2, 6, 12)
    expected, _ = peer(x, x, x, attn_mask=~graph.dense_mask(), need_weights=False)
    layer = MultiHeadAttention(12, 3, bias=bias).double()
    assert_parity(layer, _weights(peer), (graph, x), expected, [x, *peer.parameters()])


@pytest.mark.parametrize("bias", [True, False])
def test_cross_attention_is_torchs(bias):
    peer, x, senders = _peer(bias=bias), leaf(2, 4, 12), leaf(2, 7, 12, seed=1)
    expected, _ = peer(x, senders, senders, need_weights=False)
    layer = MultiHeadAttention(12, 3, bias=bias).double()
    arguments = (complete(4, 7), x, senders)
    assert_parity(layer, _weights(peer), arguments, expected, [x, senders, *peer.parameters()])


def test_grouped_queries_share_keys_and_values():
    grouped = MultiHeadAttention(12, 6, key_value_heads=2, bias=False).double()
    q, k, v = grouped.projection.weight.split((12, 4, 4))
    repeated = [part.view(2, 2, 12).repeat_interleave(3, 0).flatten(0, 1) for part in (k, v)]
    weights = {"projection.weight": torch.cat([q, *repeated]), "output.weight": grouped.output.weight}
    x = leaf(2, 5, 12)
    expected = grouped(causal(5), x)
    full = MultiHeadAttention(12, 6, bias=False).double()
    assert_parity(full, weights, (causal(5), x), expected, [x, *grouped.parameters()])


@pytest.mark.parametrize(("steps", "rotary"), [([1, 1, 1, 1, 1], True), ([3, 2], False)])
def test_cached_attention_is_attention(rotary, steps):
    layer = MultiHeadAttention(8, 2, key_value_heads=1, rotary=Rotary(4) if rotary else None).double()
    x, graph, cache = leaf(3, 5, 8).detach(), window(5, 2, sides="past"), KeyValueCache()
    found, start = [], 0
    for n in steps:
        rows = window(start + n, 2, sides="past").rows(start, start + n)
        with torch.no_grad():
            found.append(layer(rows, x[:, start : start + n], cache=cache))
        start += n
    assert torch.allclose(torch.cat(found, 1), layer(graph, x), atol=1e-12)


def test_a_cache_is_as_before_where_the_graph_does_not_fit():
    layer, x, cache = MultiHeadAttention(8, 2).double(), leaf(5, 8).detach(), KeyValueCache()
    layer(causal(3), x[:3], cache=cache)
    with pytest.raises(ShapeError, match=r"hold 4 positions, .*: give pattern\(4\)\.rows\(3, 4\)"):
        layer(causal(5).rows(4, 5), x[3:4], cache=cache)
    assert torch.allclose(layer(causal(4).rows(3, 4), x[3:4], cache=cache), layer(causal(4), x[:4])[3:], atol=1e-12)


def test_decoding_goes_on_outside_of_inference_mode():
    layer, x, cache = MultiHeadAttention(8, 2).double(), leaf(5, 8).detach(), KeyValueCache()
    with torch.inference_mode():
        layer(causal(3), x[:3], cache=cache)
        layer(causal(4).rows(3, 4), x[3:4], cache=cache)  # which makes room for more
    with torch.no_grad():
        found = layer(causal(5).rows(4, 5), x[4:], cache=cache)
    assert torch.allclose(found, layer(causal(5), x)[4:], atol=1e-12)


def test_cache_refuses_keys_of_another_shape():
    cache = KeyValueCache()
    cache.append(torch.zeros(2, 1, 1, 4), torch.zeros(2, 1, 1, 4))
    with pytest.raises(ShapeError, match="cannot follow"):
        cache.append(torch.zeros(3, 1, 1, 4), torch.zeros(3, 1, 1, 4))


@pytest.mark.parametrize(("heads", "shared"), [(5, None), (0, None), (4, 3), (4, 0)])
def test_heads_that_do_not_divide_are_refused(heads, shared):
    with pytest.raises(ConfigError, match=r"do not divide|must be a whole number, at least 1"):
        MultiHeadAttention(12, heads, key_value_heads=shared)
