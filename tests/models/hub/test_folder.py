import json
from functools import partial

import pytest
import torch
from safetensors import torch as safetensors

from edgewise import CheckpointError, ConfigError, DataError, causal, complete
from edgewise.configuration import Choice
from edgewise.models import Features, Tokens, Transformer, TransformerSettings
from edgewise.models.hub.pretrained import Pretrained, from_hugging_face, hugging_face_graph, to_hugging_face
from edgewise.models.text.encoder_decoder import EncoderDecoderSettings
from models.hub.peers import PEERS, bert, decoder, gpt2, inputs_of, spread, t5, transformers, vit


@pytest.mark.parametrize("kind", PEERS)
def test_logits_and_every_gradient_are_the_peers(kind, tmp_path):
    peer, exact = PEERS[kind](), kind in ("gpt2", "vit", "bert", "roberta")  # others normalise in single precision
    if kind.endswith("bert") or kind == "roberta":  # ours adds the first segment to the positions, in single precision
        peer.base_model.embeddings.token_type_embeddings.weight.data.zero_()
    peer.save_pretrained(tmp_path)
    weights = safetensors.load_file(tmp_path / "model.safetensors")
    given, ours = inputs_of(peer, hugging_face_graph(tmp_path))
    model, dtype = from_hugging_face(tmp_path), torch.float64 if exact else torch.float32
    peer, model = peer.to(dtype), model.to(dtype)
    given, (graph, x) = {n: v.to(dtype) if v.is_floating_point() else v for n, v in given.items()}, ours
    expected, found = peer(**given).logits, model(graph, x.to(dtype) if x.is_floating_point() else x)
    found = found[:, 0] if kind == "vit" else found
    assert expected.std() > 0.1
    assert (found - expected).abs().max() < (1e-10 if exact else 1e-5) * expected.abs().max().clamp(min=1)

    projection = torch.randn_like(expected)
    (expected * projection).sum().backward()
    (found * projection).sum().backward()
    for parameter in peer.parameters():
        parameter.data = parameter.grad  # written, gradients have the names that weights have in a file
    peer.save_pretrained(tmp_path / "gradients")
    theirs = safetensors.load_file(tmp_path / "gradients" / "model.safetensors")
    leaves = {name: weight.to(dtype).requires_grad_() for name, weight in weights.items()}
    opened = Pretrained.open(tmp_path)
    parts = {part.ours: part for part in opened.kind.parts(model.settings)}
    for name, parameter in model.named_parameters():  # by the chain rule, through what reads their weights
        parts[name].read([leaves[other] for other in parts[name].theirs], opened.config).backward(parameter.grad)
    assert {name for name, leaf in leaves.items() if leaf.grad is None} <= {"lm_head.weight"}
    for name, leaf in leaves.items():
        if leaf.grad is not None:
            wanted, nothing = theirs[name], name.endswith(("key.bias", "k_proj.bias"))  # the softmax cancels it
            assert nothing or wanted.abs().max() > 1e-3, name
            error = (leaf.grad - wanted)[: 1 if "token_type" in name else None].abs().max()
            assert error <= (1e-10 if exact else 1e-4) * wanted.abs().max().clamp(min=1), name


@pytest.mark.parametrize("kind", PEERS)
def test_what_was_read_is_written_for_transformers_with_the_same_logits(kind, tmp_path):
    peer = PEERS[kind]()
    peer.save_pretrained(tmp_path / "in")
    given, (graph, x) = inputs_of(peer, hugging_face_graph(tmp_path / "in"))
    model = from_hugging_face(tmp_path / "in")
    to_hugging_face(model, tmp_path / "out", kind=peer.config.model_type)
    again, info = type(peer).from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["unexpected_keys"] and not info["mismatched_keys"]
    again.config.sliding_window = getattr(peer.config, "sliding_window", None)  # a graph's, and so not the model's
    with torch.no_grad():
        expected, found = again.eval()(**given).logits, model(graph, x)
    found = found[:, 0] if kind == "vit" else found
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max().clamp(min=1)
    ours = from_hugging_face(tmp_path / "out")
    for name, value in model.state_dict().items():
        assert torch.allclose(value, ours.state_dict()[name], rtol=1e-6, atol=0), name


@pytest.mark.parametrize(
    ("peer", "options", "rates"),
    [
        (bert, {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2}, (0.3, 0.2)),
        (bert, {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}, (0.0, 0.0)),
        (vit, {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2}, (0.3, 0.2)),
        (gpt2, {"embd_pdrop": 0.3, "resid_pdrop": 0.3, "attn_pdrop": 0.2}, (0.3, 0.2)),
        (gpt2, {}, (0.1, 0.1)),  # the layout's own rates
        (partial(decoder, "Llama"), {"attention_dropout": 0.25}, (0.0, 0.25)),
        (partial(decoder, "Llama"), {}, (0.0, 0.0)),
        (t5, {}, (0.2, 0.2)),
    ],
)
def test_what_is_trained_drops_out_at_the_rates_of_the_folder(peer, options, rates, tmp_path):
    peer(**options).save_pretrained(tmp_path / "in")
    if peer is t5:
        path = tmp_path / "in" / "config.json"
        path.write_text(json.dumps(json.loads(path.read_text()) | {"dropout_rate": 0.2}))
    model = from_hugging_face(tmp_path / "in")
    assert _rates(model) == rates
    stages, weights = rates
    dropped = {name: module.dropout for name, module in model.named_modules() if hasattr(module, "dropout")}
    assert set(dropped.values()) == {stages, weights}
    assert all(rate == weights for name, rate in dropped.items() if name.endswith((".attention", ".cross")))
    to_hugging_face(model, tmp_path / "out")
    assert _rates(from_hugging_face(tmp_path / "out")) == rates


def _rates(model):
    settings = model.settings
    of_attention = "attention_dropout" if isinstance(settings, EncoderDecoderSettings) else "of_attention"
    return settings.dropout, getattr(settings, of_attention)


def test_several_files_and_a_bare_model_are_read(tmp_path):
    peer = gpt2()
    peer.save_pretrained(tmp_path / "sharded", max_shard_size="20KB")
    assert len(list((tmp_path / "sharded").glob("*.safetensors"))) > 1
    peer.transformer.save_pretrained(tmp_path / "bare")
    tokens = torch.randint(50, (1, 9))
    first, second = (from_hugging_face(tmp_path / name)(causal(9), tokens) for name in ("sharded", "bare"))
    assert torch.equal(first, second)
    assert (first - peer(tokens).logits).abs().max() < 1e-5


@pytest.mark.parametrize(
    ("settings", "signature"),
    [
        (TransformerSettings(width=12, depth=2, heads=2, tied=True, feed_forward="gelu-tanh"), Tokens(9, 9, 8)),
        (
            TransformerSettings(
                width=12,
                depth=1,
                heads=3,
                feed_forward=Choice("gelu", {"hidden": 20}),
                block=Choice("pre-norm", {"norm": "fine-layer"}),
                readout="class",
            ),
            Features(4, 3, length=9, whole_graph=True),
        ),
    ],
    ids=["gpt2", "vit"],
)
def test_what_is_written_is_read_by_transformers_and_by_us(settings, signature, tmp_path):
    torch.manual_seed(0)
    model = spread(Transformer(settings, signature))
    to_hugging_face(model, tmp_path / "out")
    again = from_hugging_face(tmp_path / "out")
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    if isinstance(signature, Tokens):
        x = torch.randint(9, (2, 8))
        found, expected = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "out")(x).logits, model(causal(8), x)
    else:
        images = torch.randn(2, 1, 6, 6)
        x = images.view(2, 3, 2, 3, 2).transpose(2, 3).reshape(2, 9, 4)
        peer = transformers.ViTForImageClassification.from_pretrained(tmp_path / "out")
        found, expected = peer(images).logits, model(complete(9), x)[:, 0]
    assert (found - expected).abs().max() < 1e-5
    with pytest.raises(ConfigError, match="holds a model already"):
        to_hugging_face(model, tmp_path / "out")


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model_type": "mamba"}, ConfigError, "model_type 'mamba' has no counterpart here: known are gpt2, llama"),
        ({"activation_function": "mish"}, ConfigError, "activation_function 'mish'"),
        ({"scale_attn_by_inverse_layer_idx": True}, ConfigError, "scale_attn_by_inverse_layer_idx True"),
        ({"n_layer": 3}, CheckpointError, "lacks the weight 'transformer.h.2.ln_1.weight'"),
        ({"n_layer": 1}, CheckpointError, "no place for: transformer.h.1"),
        ({"n_positions": 8}, CheckpointError, r"the shape \[16, 24\] instead of \[8, 24\]"),
        ({"n_head": "three"}, ConfigError, r"config\.json: .*heads must be an integer, not 'three'"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(change, error, message, tmp_path):
    gpt2().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(error, match=message):
        from_hugging_face(tmp_path)


def test_what_transformers_leaves_unread_is_left_out(tmp_path):
    peer = t5()
    peer.save_pretrained(tmp_path / "t5")
    path = tmp_path / "t5" / "model.safetensors"
    old = {"decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight": torch.randn(8, 4)}
    safetensors.save_file({**safetensors.load_file(path), **old}, path, {"format": "pt"})
    given, ours = inputs_of(peer, hugging_face_graph(tmp_path / "t5"))
    assert (from_hugging_face(tmp_path / "t5")(*ours) - peer(**given).logits).abs().max() < 1e-4
    bare = spread(transformers.ViTModel(vit().config))  # with a pooler
    bare.save_pretrained(tmp_path / "vit")
    weights = from_hugging_face(tmp_path / "vit").state_dict()
    assert torch.equal(weights["norm.weight"], bare.layernorm.weight)


def test_damaged_and_unsafe_folders_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"config\.json: cannot be read"):
        from_hugging_face(tmp_path)
    gpt2().save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-100])
    with pytest.raises(DataError, match=r"model\.safetensors: not a file of safetensors"):
        from_hugging_face(tmp_path)
    weights.unlink()
    (tmp_path / "pytorch_model.bin").write_bytes(b"")
    with pytest.raises(DataError, match="a pickle, which is never read"):
        from_hugging_face(tmp_path)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"x": "../other.safetensors"}}))
    with pytest.raises(DataError, match="something else than safetensors beside it"):
        from_hugging_face(tmp_path)


def test_a_model_without_a_counterpart_is_not_written(tmp_path):
    for settings in (
        TransformerSettings(width=8, depth=1, heads=2, positions="rotary", tied=True),
        TransformerSettings(width=8, depth=1, heads=2, tied=False),
        TransformerSettings(width=8, depth=1, heads=2, tied=True, block=Choice("pre-norm", {"norm": "rms"})),
    ):
        with pytest.raises(ConfigError, match=r"has others|is none|no counterpart there"):
            to_hugging_face(Transformer(settings, Tokens(9, 9, 8)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_name_of_the_hub_in_place_of_a_folder_leads_to_the_download(tmp_path):
    with pytest.raises(DataError, match=r"no folder .*gpt2: give a folder; `edgewise\.models\.hub\.download"):
        Pretrained.open(tmp_path / "gpt2")
