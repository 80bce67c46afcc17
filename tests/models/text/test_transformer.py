import math

import pytest
import torch
from torch import nn

from edgewise import ConfigError, Graph, causal, complete, grid
from edgewise.configuration import Choice
from edgewise.layers import READOUTS
from edgewise.models import Features, Tokens, Transformer, TransformerSettings
from edgewise.models.text.transformer import ATTENTIONS, POSITIONS
from examples.gpt import GPT
from layers.parity import each

TEXT = Tokens(11, 11, length=8)
IMAGE = Features(4, 10, length=6, whole_graph=True)


def _small(signature=TEXT, **options):
    return Transformer(TransformerSettings(**({"width": 8, "depth": 2, "heads": 2} | options)), signature)


@pytest.mark.parametrize(
    ("activation", "positions", "order"), each(["relu", "gelu", "swiglu"], POSITIONS, ["pre-norm", "post-norm"])
)
def test_every_choice_trains(order, positions, activation):
    attention, block = Choice("softmax", {"key_value_heads": 1}), Choice(order, {"bias": False})
    model = _small(attention=attention, positions=positions, feed_forward=activation, block=block)
    assert not any(name.endswith("bias") for name, _ in model.blocks.named_parameters() if "norm" not in name)
    scores = model(causal(8), torch.randint(11, (3, 8)))
    assert scores.shape == (3, 8, 11)
    scores.square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_every_attention_trains(attention):
    model = _small(attention=attention)
    model(causal(8), torch.randint(11, (3, 8))).square().sum().backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


@pytest.mark.parametrize("readout", READOUTS)
def test_one_output_per_graph(readout):
    model = _small(IMAGE, readout=readout)
    assert model(grid(2, 3), torch.randn(5, 6, 4)).shape == (5, 1, 10)
    assert model(Graph.batch([complete(6), complete(2)]), torch.randn(8, 4)).shape == (2, 10)


def test_it_is_its_blocks_one_after_the_other():
    """(4.3) and (4.6), then a linear map without bias."""
    model, graph, tokens = _small(), causal(8), torch.randint(11, (2, 8))
    x = model.embed.weight[tokens] + model.positions.weight
    for block in model.blocks:
        x = block(graph, x)
    assert torch.allclose(model(graph, tokens), model.norm(x) @ model.head.weight.T, atol=1e-6)
    assert model.head.bias is None


@pytest.mark.parametrize("positions", POSITIONS)
def test_positions_tell_the_order(positions):
    model, tokens = _small(positions=positions).double(), torch.tensor([[1, 2, 3, 4, 5, 6, 7, 8]])
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.5)
    moved = model(complete(8), tokens.roll(3, 1)).roll(-3, 1)
    assert torch.allclose(model(complete(8), tokens), moved) == (positions == "none")


def test_sequences_of_different_lengths_in_one_graph_are_read_as_if_alone():
    model = _small(positions="learned").double()
    texts = [torch.randint(11, (n,)) for n in (3, 8, 1)]
    together = model(Graph.batch([causal(len(text)) for text in texts]), torch.cat(texts))
    alone = torch.cat([model(causal(len(text)), text) for text in texts])
    assert torch.allclose(together, alone, atol=1e-12)


def test_weights_start_as_gpt2s():
    model = _small(width=128, heads=4, depth=8)
    for block in model.blocks:
        for weight in (block.attention.output.weight, block.feed_forward.down.weight):
            assert weight.std().item() == pytest.approx(0.02 / math.sqrt(16), rel=0.1)
        assert block.attention.projection.weight.std().item() == pytest.approx(0.02, rel=0.1)
    for weight in (model.embed.weight, model.head.weight, model.positions.weight):
        assert weight.std().item() == pytest.approx(0.02, rel=0.1)
    assert all((p == 0).all() for name, p in model.named_parameters() if name.endswith("bias"))


@pytest.mark.parametrize("attention", ATTENTIONS)
def test_dropout_reaches_the_weights_of_those_attentions_that_the_settings_name(attention):
    named = TransformerSettings.__doc__.partition("dropout: ")[2].partition("the weights.")[0]
    attentions = {block.attention.dropout for block in _small(dropout=0.3, attention=attention).blocks}
    assert attentions == {0.3 if f'"{attention}"' in named else 0.0}


@pytest.mark.parametrize(
    ("signature", "options", "message"),
    [
        (TEXT, {"attention": "linear", "positions": "t5"}, "choose none, sinusoidal, learned or rotary"),
        (
            TEXT,
            {"attention": Choice("fixed-heads", {"key_value_heads": 1})},
            "'key_value_heads'; it takes block",
        ),
        (TEXT, {"attention": "fixed-heads", "heads": 1}, "1 heads need a number of patterns"),
        (TEXT, {"attention": Choice("softmax", {"cap": 2.0}), "positions": "t5"}, "not normalised, scaled or capped"),
        (TEXT, {"readout": "mean"}, "one output per node"),
        (IMAGE, {}, "choose a readout"),
        (IMAGE, {"readout": "class", "attention": "strided-heads"}, "looks back, and readout='class'"),
        (IMAGE, {"readout": "first", "attention": "fixed-heads"}, "choose another readout"),
        (IMAGE, {"readout": "mean", "tied": True}, "same tokens"),
        (Features(4, 2), {}, "largest length"),
    ],
)
def test_impossible_settings_are_refused(signature, options, message):
    with pytest.raises(ConfigError, match=message):
        _small(signature, **options)


def test_the_gpt_on_one_page_is_the_transformer_in_logits_and_gradients():
    page = GPT(tokens=11, length=8, width=8, heads=2)
    model, x = _small(tied=True).double(), torch.randint(11, (3, 8))
    names = {name.replace("attention.", "").replace("feed_forward.", ""): name for name in model.state_dict()}
    weights = {short: torch.randn_like(model.state_dict()[name]) for short, name in names.items()}
    page.double().load_state_dict(weights)
    model.load_state_dict({names[short]: weight for short, weight in weights.items()})
    found, expected = page(x), model(causal(8), x)
    assert (found - expected).abs().max() < 1e-10 * expected.abs().max()
    for y in (found, expected):
        y.square().mean().backward()
    theirs = dict(model.named_parameters())
    for short, parameter in page.named_parameters():
        torch.testing.assert_close(parameter.grad, theirs[names[short]].grad)


def test_hopfield_attention_is_reached_and_takes_no_rotations():
    """Two steps: softmax(β softmax(β q Kᵀ) K Kᵀ) V in the block of the model."""
    options = {"attention": Choice("hopfield", {"steps": 2, "beta": 0.7}), "depth": 1, "heads": 1, "width": 4}
    model = Transformer(TransformerSettings(**options, positions="none"), Features(3, 2)).double()
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    block, h = model.blocks[0], model.embed(x)
    q, k, v = block.attention.projection(block.norm_1(h)).chunk(3, -1)
    q = (0.7 * q @ k.T).softmax(-1) @ k
    h = h + block.attention.output((0.7 * q @ k.T).softmax(-1) @ v)
    expected = model.head(model.norm(h + block.feed_forward(block.norm_2(h))))
    found = model(complete(6), x)
    assert torch.allclose(found, expected, atol=1e-10)
    assert torch.allclose(*(torch.autograd.grad(y.square().sum(), x, retain_graph=True)[0] for y in (found, expected)))
    with pytest.raises(ConfigError, match="choose positions none"):
        Transformer(TransformerSettings(attention="hopfield", positions="rotary"), Tokens(9, 9, length=8))


@pytest.mark.parametrize("depth", [0, 1, 3])
def test_a_shared_table_is_that_of_the_first_block_where_there_is_one(depth):
    model = _small(positions=Choice("t5", {"shared": True}), depth=depth)
    tables = [name for name, _ in model.named_parameters() if name.endswith("attention.b")]
    assert tables == ["blocks.0.attention.b"][:depth]
    assert model(causal(3), torch.zeros(3, dtype=torch.int64)).shape == (3, model.signature.outputs)


def test_a_class_node_needs_a_complete_graph():
    model = _small(Features(4, 3, length=9, whole_graph=True), readout="class")
    assert model(complete(9), torch.randn(2, 9, 4)).shape == (2, 1, 3)
    with pytest.raises(ConfigError, match="needs a complete graph, not"):
        model(causal(9), torch.randn(2, 9, 4))
