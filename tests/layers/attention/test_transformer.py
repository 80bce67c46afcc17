import pytest
import torch
from torch import nn

from edgewise import Graph, causal, complete
from edgewise.graphs import blocks
from edgewise.layers import (
    NORMS,
    FeedForward,
    GatedFeedForward,
    MultiHeadAttention,
    OneResidualBlock,
    PostNormBlock,
    PostNormDecoderBlock,
    PreNormBlock,
    PreNormDecoderBlock,
    Rotary,
    SandwichBlock,
)
from layers.parity import assert_parity, each, leaf

BLOCKS = [PreNormBlock, PostNormBlock, OneResidualBlock, SandwichBlock]
DECODER_BLOCKS = [PreNormDecoderBlock, PostNormDecoderBlock]


def _block(kind, norm="layer", dropout=0.0, attention_dropout=0.0):
    attention = MultiHeadAttention(8, 2, dropout=attention_dropout)
    return kind(8, attention, FeedForward(8, 16, "relu"), norm, dropout).double()


def _decoder_block(kind):
    return kind(8, MultiHeadAttention(8, 2), MultiHeadAttention(8, 2), FeedForward(8, 16, "relu")).double()


def _as_edges(graph):
    return Graph.from_edge_index(graph.edge_index(), num_nodes=graph.num_receivers)


@pytest.mark.parametrize(("kind", "graph"), each(BLOCKS, [complete(7), causal(7)]))
def test_a_transformer_is_a_graph_network(kind, graph):
    """The documents' claim: attention over all tokens is message passing on the complete graph, to the same numbers."""
    edges, x = _as_edges(graph), leaf(7, 8)
    assert edges.rule is None
    block = _block(kind)
    expected = block(graph, x)
    assert_parity(block, dict(block.named_parameters()), (edges, x), expected, [x, *block.parameters()], 1e-11)
    single = block.float()
    assert (single(edges, x.float()) - expected).abs().max() <= 1e-5
    assert (single(graph, x.float()) - expected).abs().max() <= 1e-5


def test_the_block_with_one_residual_is_equations_9_and_19():
    """Joshi's block, head by head: MLP(LayerNorm(h_i + Σ_j w_ij W_V h_j O)), forward and gradient."""
    block, x = _block(OneResidualBlock), leaf(5, 8)
    q, k, v = (x @ block.attention.projection.weight.T + block.attention.projection.bias).chunk(3, -1)
    heads = [(q[:, part] @ k[:, part].T / 2.0).softmax(-1) @ v[:, part] for part in (slice(0, 4), slice(4, 8))]
    sums = x + torch.cat(heads, -1) @ block.attention.output.weight.T + block.attention.output.bias
    mean, variance = sums.mean(-1, keepdim=True), sums.var(-1, keepdim=True, correction=0)
    normal = (sums - mean) / (variance + 1e-5).sqrt() * block.norm_1.weight + block.norm_1.bias
    expected = block.feed_forward.down(torch.relu(block.feed_forward.up(normal)))
    leaves = [x, block.attention.projection.weight, block.norm_1.weight, block.feed_forward.up.weight]
    assert_parity(block, dict(block.named_parameters()), (complete(5), x), expected, leaves)


PARTS = {
    "attention.projection": "self_attn.in_proj_",
    "attention.output": "self_attn.out_proj.",
    "norm_1": "norm1.",
    "norm_2": "norm2.",
    "feed_forward.up": "linear1.",
    "feed_forward.down": "linear2.",
}
CROSS = {"cross.projection": "multihead_attn.in_proj_", "cross.output": "multihead_attn.out_proj.", "norm_3": "norm3."}


def _peer(kind, norm_first, parts):
    """PyTorch's layer with weights of its own, and our names of them."""
    peer = kind(8, 2, 16, 0.0, batch_first=True, norm_first=norm_first, dtype=torch.float64)
    for parameter in peer.parameters():
        nn.init.normal_(parameter, std=0.4)
    theirs = dict(peer.named_parameters())
    return peer, {f"{a}.{part}": theirs[f"{b}{part}"] for a, b in parts.items() for part in ("weight", "bias")}


@pytest.mark.parametrize(("kind", "norm_first"), [(PreNormBlock, True), (PostNormBlock, False)])
def test_blocks_are_torchs_encoder_layer(kind, norm_first):
    peer, weights = _peer(nn.TransformerEncoderLayer, norm_first, PARTS)
    x = leaf(2, 6, 8)
    expected = peer(x, src_mask=~causal(6).dense_mask())
    assert_parity(_block(kind), weights, (causal(6), x), expected, [x, *peer.parameters()])


@pytest.mark.parametrize(("kind", "norm_first"), [(PreNormDecoderBlock, True), (PostNormDecoderBlock, False)])
def test_decoder_blocks_are_torchs_decoder_layer(kind, norm_first):
    peer, weights = _peer(nn.TransformerDecoderLayer, norm_first, PARTS | CROSS)
    x, memory = leaf(2, 6, 8), leaf(2, 4, 8, seed=1)
    expected = peer(x, memory, tgt_mask=~causal(6).dense_mask())
    arguments = (causal(6), x, memory, complete(6, 4))
    assert_parity(_decoder_block(kind), weights, arguments, expected, [x, memory, *peer.parameters()])


@pytest.mark.parametrize("kind", DECODER_BLOCKS)
def test_keys_and_values_computed_once_serve_as_the_memory_does(kind):
    block, x, memory = _decoder_block(kind), leaf(3, 8), leaf(5, 8, seed=1)
    keys_and_values = block.cross.keys_and_values(memory)
    assert torch.equal(
        block(causal(3), x, keys_and_values, complete(3, 5)), block(causal(3), x, memory, complete(3, 5))
    )


@pytest.mark.parametrize("kind", DECODER_BLOCKS)
def test_members_of_a_batch_can_each_have_a_part_of_one_memory(kind):
    """Two targets of three positions, whose sources are 4 and 1 of the memory's 5 rows."""
    block, x, memory = _decoder_block(kind), leaf(2, 3, 8), leaf(5, 8, seed=1)
    together = block(causal(3), x, memory, blocks([3, 3], senders=[4, 1]))
    assert torch.allclose(together[0], block(causal(3), x[0], memory[:4], complete(3, 4)), atol=1e-12)
    assert torch.allclose(together[1], block(causal(3), x[1], memory[4:], complete(3, 1)), atol=1e-12)


def test_a_memory_in_a_batch_is_turned_by_the_positions_in_each_text():
    attention, cross = (MultiHeadAttention(8, 2, rotary=Rotary(4)) for _ in range(2))
    block = PreNormDecoderBlock(8, attention, cross, FeedForward(8, 8)).double()
    x, memory = leaf(5, 8), leaf(7, 8)
    both = block(Graph.batch([causal(2), causal(3)]), x, memory, Graph.batch([complete(2, 3), complete(3, 4)]))
    first = block(causal(2), x[:2], memory[:3], complete(2, 3))
    second = block(causal(3), x[2:], memory[3:], complete(3, 4))
    assert torch.allclose(both, torch.cat([first, second]), atol=1e-12)


def test_norms_are_their_formulas():
    x = leaf(4, 6, 5).detach()
    centred = x - x.mean(-1, keepdim=True)
    layer = centred / (centred.square().mean(-1, keepdim=True) + 1e-5).sqrt()  # (4.16)
    fine = centred / (centred.square().mean(-1, keepdim=True) + 1e-12).sqrt()
    rms = x / (x.square().mean(-1, keepdim=True) + 1e-6).sqrt()
    coarse = x / (x.square().mean(-1, keepdim=True) + 1e-5).sqrt()
    over_nodes = x - x.mean((0, 1))
    batch = over_nodes / (over_nodes.square().mean((0, 1)) + 1e-5).sqrt()
    expected = {"layer": layer, "fine-layer": fine, "rms": rms, "coarse-rms": coarse, "batch": batch, "none": x}
    assert expected.keys() == NORMS.keys()
    for name, value in expected.items():
        assert torch.allclose(NORMS[name](5).double()(x), value, atol=1e-12), name


def test_gated_feed_forward_is_swiglu():
    layer, x = GatedFeedForward(3, 7, bias=False).double(), leaf(4, 3)
    w, v = layer.gate_and_value.weight.chunk(2)
    gate = x @ w.T
    expected = (gate * torch.sigmoid(gate) * (x @ v.T)) @ layer.down.weight.T
    assert torch.allclose(layer(x), expected, atol=1e-12)
