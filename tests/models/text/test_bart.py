import pytest
import torch
from torch import nn

from edgewise import Graph, causal, complete
from edgewise.configuration import Choice
from edgewise.models import BART, BARTSettings, EncoderDecoder, EncoderDecoderSettings, TokenPairs, Tokens

WHOLE = Tokens(11, 3, length=20, whole_graph=True)
OPTIONS = {"width": 8, "encoder_depth": 2, "decoder_depth": 2, "heads": 2, "dropout": 0.0}
NAMES = {
    "linear1": "feed_forward.up",
    "linear2": "feed_forward.down",
    "self_attn.in_proj_": "attention.projection.",
    "self_attn.out_proj": "attention.output",
    "multihead_attn.in_proj_": "cross.projection.",
    "multihead_attn.out_proj": "cross.output",
    "norm1": "norm_1",
    "norm2": "norm_2",
    "norm3": "norm_3",
    "encoder.layers": "encoder",
    "decoder.layers": "decoder",
    "encoder.norm.": "encoder_norm.",
    "decoder.norm.": "decoder_norm.",
}


def _model(signature=WHOLE, **options):
    made = OPTIONS | {"feed_forward": Choice("relu", {"hidden": 16})} | options
    model = BART(BARTSettings(**made), signature).double()
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model.eval()


def _peer(model):
    """torch.nn.Transformer with the model's weights, and the pairs of weights."""
    options = {"dropout": 0.0, "batch_first": True, "norm_first": True, "dtype": torch.float64}
    layer, norm = nn.TransformerEncoderLayer(8, 2, 16, **options), nn.LayerNorm(8, dtype=torch.float64)
    encoder = nn.TransformerEncoder(layer, 2, norm, enable_nested_tensor=False)
    peer = nn.Transformer(8, 2, 2, 2, 16, custom_encoder=encoder, **options)
    ours, pairs = dict(model.named_parameters()), []
    for name, parameter in peer.named_parameters():
        for theirs, called in NAMES.items():
            name = name.replace(theirs, called)
        parameter.data.copy_(ours[name])
        pairs.append((ours[name], parameter))
    return peer.eval(), pairs


def test_it_is_torchs_transformer_reading_the_text_on_both_sides_and_a_linear_map_of_its_last_state():
    model, sizes = _model(positions="none"), [4, 2, 7]
    (peer, pairs), x = _peer(model), torch.randint(11, (sum(sizes),))
    found = model(Graph.batch([complete(n) for n in sizes]), x)

    padded = nn.utils.rnn.pad_sequence(x.split(sizes), batch_first=True)
    embedded, pad = model.embed(padded) * 8**0.5, torch.arange(7) >= torch.tensor(sizes)[:, None]
    future = ~causal(7).dense_mask()
    y = peer(embedded, embedded, tgt_mask=future, src_key_padding_mask=pad, memory_key_padding_mask=pad)
    last = torch.stack([y[text, n - 1] for text, n in enumerate(sizes)])
    expected = last @ model.classifier.weight.T + model.classifier.bias
    assert found.shape == (3, 3)
    assert (found - expected).abs().max() <= 1e-10

    weights = [model.embed.weight, model.classifier.weight, model.classifier.bias]
    projection = torch.randn(3, 3, dtype=torch.float64)
    mine = torch.autograd.grad((found * projection).sum(), weights + [a for a, _ in pairs])
    theirs = torch.autograd.grad((expected * projection).sum(), weights + [b for _, b in pairs])
    for a, b in zip(mine, theirs, strict=True):
        assert b.abs().max() > 0
        assert (a - b).abs().max() <= 1e-10 * max(1, b.abs().max())


def test_its_weights_are_those_of_the_encoder_decoder_that_restores_texts():
    own = {name: value.shape for name, value in _model().state_dict().items()}
    before = EncoderDecoder(EncoderDecoderSettings(**OPTIONS, feed_forward=Choice("relu", {"hidden": 16})),
                            TokenPairs(11, 11, length=20)).state_dict()  # fmt: skip
    assert own == {name: value.shape for name, value in before.items()} | {
        "classifier.weight": (3, 8),
        "classifier.bias": (3,),
    }


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
def test_texts_side_by_side_are_texts_on_their_own(positions):
    model, texts = _model(positions=positions), [torch.randint(11, (n,)) for n in (5, 1, 9)]
    flat = model(Graph.batch([complete(len(text)) for text in texts]), torch.cat(texts))
    alone = torch.cat([model(complete(len(text)), text) for text in texts])
    assert (flat - alone).abs().max() < 1e-10
