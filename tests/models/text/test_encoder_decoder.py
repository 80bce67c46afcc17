import pytest
import torch
from torch import nn

from edgewise import ConfigError, Graph, ShapeError, causal, complete
from edgewise.configuration import Choice
from edgewise.graphs import EncoderDecoderGraph
from edgewise.models import (
    BART,
    BARTSettings,
    EncoderDecoder,
    EncoderDecoderSettings,
    TokenPairs,
    Tokens,
)
from edgewise.models.text.transformer import POSITIONS
from layers.parity import each

PAIRED, WHOLE = TokenPairs(11, 11, length=20), Tokens(11, 3, length=20, whole_graph=True)


def _model(dtype=torch.float64, signature=PAIRED, **options):
    settings = {"width": 8, "encoder_depth": 2, "decoder_depth": 2, "heads": 2, "dropout": 0.0} | options
    settings["feed_forward"] = Choice(options.get("feed_forward", "relu"), {"hidden": 16})
    whole = signature == WHOLE
    model = (
        BART(BARTSettings(**settings), WHOLE)
        if whole
        else EncoderDecoder(EncoderDecoderSettings(**settings), signature)
    ).to(dtype)
    for parameter in model.parameters():
        nn.init.normal_(parameter, std=0.4)
    return model


def _peer(order, model):
    """torch.nn.Transformer with the model's weights; its extra norms after post-norm stacks are left out."""
    options = {"dropout": 0.0, "batch_first": True, "norm_first": order == "pre", "dtype": torch.float64}
    ends = [nn.LayerNorm(8, dtype=torch.float64) if order == "pre" else None for _ in range(2)]
    encoder = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(8, 2, 16, **options), 2, ends[0], enable_nested_tensor=False
    )
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(8, 2, 16, **options), 2, ends[1])
    peer = nn.Transformer(8, 2, custom_encoder=encoder, custom_decoder=decoder, **options)
    names = {"linear1": "feed_forward.up", "linear2": "feed_forward.down"}
    names |= {"self_attn.in_proj_": "attention.projection.", "self_attn.out_proj": "attention.output"}
    names |= {"multihead_attn.in_proj_": "cross.projection.", "multihead_attn.out_proj": "cross.output"}
    names |= {f"norm{n}": f"norm_{n}" for n in (1, 2, 3)}
    names |= {"encoder.layers": "encoder", "decoder.layers": "decoder"}
    names |= {"encoder.norm.": "encoder_norm.", "decoder.norm.": "decoder_norm."}
    ours = dict(model.named_parameters())
    pairs = []
    for name, parameter in peer.named_parameters():
        for theirs, called in names.items():
            name = name.replace(theirs, called)
        parameter.data.copy_(ours[name])
        pairs.append((ours.pop(name), parameter))
    assert {name for name in ours if not name.startswith("classifier.")} == {"embed.weight"}
    return peer.eval(), pairs


@pytest.mark.parametrize("order", ["pre", "post"])
def test_it_is_torchs_transformer(order):
    """Flat pairs of different lengths, without padding, against torch's padded batch: to 1e-10 in float64."""
    model = _model(block=f"{order}-norm", positions="none")
    peer, pairs = _peer(order, model)
    sources, targets = [4, 2], [3, 5]
    x = torch.randint(11, (sum(sources) + sum(targets),))
    found = model(EncoderDecoderGraph.of(sources, targets), x)

    source, target = (part.split(n) for part, n in zip(x.split([6, 8]), (sources, targets), strict=True))
    padded = [nn.utils.rnn.pad_sequence(side, batch_first=True) for side in (source, target)]
    embedded = [nn.functional.embedding(side, model.embed.weight) * 8**0.5 for side in padded]
    pad = torch.arange(4) >= torch.tensor(sources)[:, None]
    y = peer(
        *embedded,
        tgt_mask=~causal(5).dense_mask(),
        src_key_padding_mask=pad,
        memory_key_padding_mask=pad,
    )
    expected = torch.cat([y[0, :3], y[1]]) @ model.embed.weight.T
    assert found.shape == (8, 11)
    assert (found - expected).abs().max() <= 1e-10

    projection = torch.randn(8, 11, dtype=torch.float64)
    mine = torch.autograd.grad((found * projection).sum(), [model.embed.weight, *(a for a, _ in pairs)])
    theirs = torch.autograd.grad((expected * projection).sum(), [model.embed.weight, *(b for _, b in pairs)])
    for a, b in zip(mine, theirs, strict=True):
        assert b.abs().max() > 0
        assert (a - b).abs().max() <= 1e-10 * max(1, b.abs().max())

    single = model.float()(EncoderDecoderGraph.of(sources, targets), x)
    assert (single - expected).abs().max() <= 1e-6 * max(1, expected.abs().max())


@pytest.mark.parametrize(("order", "positions"), each(["pre", "post"], POSITIONS))
def test_pairs_side_by_side_are_each_pair_alone(positions, order):
    model = _model(positions=positions, block=f"{order}-norm", feed_forward="swiglu").eval()
    sources, targets = [4, 1, 6], [3, 5, 1]
    x, y = torch.randint(11, (11,)), torch.randint(11, (9,))
    together = model(EncoderDecoderGraph.of(sources, targets), torch.cat([x, y]))
    alone = [
        model(EncoderDecoderGraph.of([len(a)], [len(b)]), torch.cat([a, b]))
        for a, b in zip(x.split(sources), y.split(targets), strict=True)
    ]
    assert torch.allclose(together, torch.cat(alone), atol=1e-10)


def test_no_target_hears_its_future_nor_another_source():
    model, x = _model().eval(), torch.randint(10, (4 + 6,))
    graph = EncoderDecoderGraph.of([2, 2], [3, 3])
    for changed, same in ((0, [3, 4, 5]), (3, [0, 1, 2]), (5, [0, 3, 4, 5]), (9, [0, 1, 2, 3, 4])):
        other = x.clone()
        other[changed] = 10
        difference = (model(graph, other) - model(graph, x)).abs().amax(-1)
        unchanged = torch.zeros(6, dtype=torch.bool).index_fill(0, torch.tensor(same), True)
        assert bool((difference[unchanged] == 0).all()) and bool((difference[~unchanged] > 0).all())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"signature": TokenPairs(11, 4)}, "reads and writes the same tokens"),
        ({"signature": TokenPairs(3, 3), "positions": "learned"}, "largest length"),
    ],
)
def test_impossible_settings_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        _model(**options)


def test_tokens_that_do_not_fit_the_graph_are_refused():
    with pytest.raises(ShapeError, match="2 source and then 3 target"):
        _model()(EncoderDecoderGraph.of([2], [3]), torch.zeros(6, dtype=torch.int64))
    model, target = _model(), torch.zeros(2, dtype=torch.int64)
    memory = model.keys_and_values(torch.zeros(3, 8, dtype=torch.float64))
    with pytest.raises(ShapeError, match="4"):
        model.decode(causal(2), target, complete(2, 4), memory)


def _bart():
    """The peer library's BART, without the norm of its embeddings, which ours has not; weights that differ from 0."""
    transformers = pytest.importorskip("transformers")
    sizes = {"encoder_layers": 2, "decoder_layers": 2, "encoder_ffn_dim": 16, "decoder_ffn_dim": 16, "dropout": 0.0}
    heads = {"encoder_attention_heads": 2, "decoder_attention_heads": 2}
    options = {
        "vocab_size": 12,
        "d_model": 8,
        "max_position_embeddings": 20,
        "pad_token_id": 11,
        "forced_eos_token_id": 0,
    }
    config = transformers.BartConfig(**sizes, **heads, **options, scale_embedding=True, attn_implementation="eager")
    peer = transformers.BartForConditionalGeneration(config).double().eval()
    for side in (peer.model.encoder, peer.model.decoder):
        side.layernorm_embedding = nn.Identity()
    for parameter in peer.parameters():
        nn.init.normal_(parameter, std=0.4)
    return peer


def _from_bart(peer, model):
    """Give our model the peer's weights; pairs of ours and what of theirs it holds."""
    names = {"feed_forward.up": "fc1", "feed_forward.down": "fc2", "attention.output": "self_attn.out_proj"}
    names |= {"attention.projection": "self_attn.{}_proj", "cross.projection": "encoder_attn.{}_proj"}
    names |= {"cross.output": "encoder_attn.out_proj", "norm_1": "self_attn_layer_norm"}
    theirs, pairs = dict(peer.model.named_parameters()), {}
    for name, parameter in model.named_parameters():
        if name == "embed.weight":
            pairs[parameter] = (theirs["shared.weight"],)
        elif "positions" in name:  # theirs begins with two rows that no token reads
            pairs[parameter] = (theirs[f"{name.split('_')[0]}.embed_positions.weight"],)
        else:
            side, number, rest = name.split(".", 2)
            part, kind = rest.rsplit(".", 1)
            last = {"encoder": "norm_2", "decoder": "norm_3"}[side]
            called = (names | {"norm_2": "encoder_attn_layer_norm", last: "final_layer_norm"})[part]
            keys = [called.format(x) for x in "qkv"] if "{}" in called else [called]
            pairs[parameter] = tuple(theirs[f"{side}.layers.{number}.{key}.{kind}"] for key in keys)
    for ours, held in pairs.items():
        ours.data.copy_(torch.cat(held)[-len(ours) :])
    return pairs


def test_it_is_bart():
    """The whole model and so each of its blocks, against `transformers`: to 1e-10 in float64, forward and gradient."""
    model = _model(block="post-norm", positions="learned", feed_forward="gelu", signature=TokenPairs(12, 12, 20))
    peer = _bart()
    pairs = _from_bart(peer, model)
    source, target = torch.randint(11, (3, 7)), torch.randint(11, (3, 5))
    found = model(EncoderDecoderGraph.of([7], [5]), torch.cat([source, target], 1))
    expected = peer(input_ids=source, decoder_input_ids=target).logits
    assert expected.std() > 0.3
    assert (found - expected).abs().max() <= 1e-10

    projection = torch.randn(3, 5, 12, dtype=torch.float64)
    mine = torch.autograd.grad((found * projection).sum(), list(pairs))
    flat = [parameter for held in pairs.values() for parameter in held]
    theirs = iter(torch.autograd.grad((expected * projection).sum(), flat))
    for gradient, held in zip(mine, pairs.values(), strict=True):
        wanted = torch.cat([next(theirs) for _ in held])[-len(gradient) :]
        assert wanted.abs().max() > 0
        assert (gradient - wanted).abs().max() <= 1e-10 * max(1, wanted.abs().max())


@pytest.mark.parametrize("depths", [(0, 1), (1, 0), (0, 0)])
def test_a_side_without_blocks_shares_no_table(depths):
    shared = Choice("t5", {"shared": True})
    model = _model(torch.float32, positions=shared, encoder_depth=depths[0], decoder_depth=depths[1])
    assert model(EncoderDecoderGraph.of([2], [3]), torch.zeros(5, dtype=torch.int64)).shape == (3, 11)


def test_bart_is_torchs_transformer_reading_the_text_on_both_sides_and_a_linear_map_of_its_last_state():
    model, sizes = _model(signature=WHOLE, positions="none").eval(), [4, 2, 7]
    (peer, pairs), x = _peer("pre", model), torch.randint(11, (sum(sizes),))
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


def test_barts_weights_are_those_of_the_encoder_decoder_that_restores_texts():
    own, before = (
        {name: value.shape for name, value in _model(signature=kind).state_dict().items()} for kind in (WHOLE, PAIRED)
    )
    assert own == before | {"classifier.weight": (3, 8), "classifier.bias": (3,)}


@pytest.mark.parametrize("positions", ["sinusoidal", "learned", "rotary"])
def test_texts_side_by_side_are_texts_on_their_own(positions):
    model, texts = _model(signature=WHOLE, positions=positions).eval(), [torch.randint(11, (n,)) for n in (5, 1, 9)]
    flat = model(Graph.batch([complete(len(text)) for text in texts]), torch.cat(texts))
    alone = torch.cat([model(complete(len(text)), text) for text in texts])
    assert (flat - alone).abs().max() < 1e-10
