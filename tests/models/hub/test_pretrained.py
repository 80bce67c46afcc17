"""Folders in the layout of Hugging Face, against the library `transformers`, and folders that contradict themselves."""

import dataclasses
import json
from functools import partial

import pytest
import torch
from safetensors import torch as safetensors

from edgewise import CheckpointError, ConfigError, DataError, causal, complete, window
from edgewise.configuration import Choice
from edgewise.graphs import EncoderDecoderGraph
from edgewise.models import BERT, BERTSettings, Tokens, Transformer, TransformerSettings
from edgewise.models.hub.pretrained import Pretrained, from_hugging_face, hugging_face_graph, to_hugging_face
from edgewise.models.text.encoder_decoder import EncoderDecoderSettings
from models.hub.peers import (
    LOCAL,
    PEERS,
    bart,
    bert,
    decoder,
    gpt2,
    inputs_of,
    roberta,
    spread,
    swin,
    t5,
    transformers,
    vit,
)


@pytest.mark.parametrize("kind", PEERS)
def test_logits_and_every_gradient_are_the_peers(kind, tmp_path):
    peer, exact = (
        PEERS[kind](),
        kind in ("gpt2", "vit", "swin", "bert", "roberta"),
    )  # others normalise in single precision
    if kind.endswith("bert") or kind == "roberta":  # ours adds the first segment to the positions, in single precision
        peer.base_model.embeddings.token_type_embeddings.weight.data.zero_()
    peer.save_pretrained(tmp_path)
    weights = safetensors.load_file(tmp_path / "model.safetensors")
    given, ours = inputs_of(peer, hugging_face_graph(tmp_path))
    model, dtype = from_hugging_face(tmp_path), torch.float64 if exact else torch.float32
    peer, model = peer.to(dtype), model.to(dtype)
    given, (graph, x) = {n: v.to(dtype) if v.is_floating_point() else v for n, v in given.items()}, ours
    expected, found = peer(**given).logits, model(graph, x.to(dtype) if x.is_floating_point() else x)
    found = found[:, 0] if expected.ndim == 2 else found
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
    assert {name for name, leaf in leaves.items() if leaf.grad is None} <= {"lm_head.weight", "final_logits_bias"}
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
    again.config.pad_token_id = getattr(peer.config, "pad_token_id", None)
    with torch.no_grad():
        expected, found = again.eval()(**given).logits, model(graph, x)
    found = found[:, 0] if expected.ndim == 2 else found
    assert (found - expected).abs().max() < 1e-5 * expected.abs().max().clamp(min=1)
    ours = from_hugging_face(tmp_path / "out")
    for name, value in model.state_dict().items():
        assert torch.allclose(value, ours.state_dict()[name], rtol=1e-6, atol=0), name
    with pytest.raises(ConfigError, match="holds a model already"):
        to_hugging_face(model, tmp_path / "out")


@pytest.mark.parametrize(
    ("peer", "options", "rates"),
    [
        (bert, {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2}, (0.3, 0.2)),
        (gpt2, {"embd_pdrop": 0.3, "resid_pdrop": 0.3, "attn_pdrop": 0.2}, (0.3, 0.2)),
        (gpt2, {}, (0.1, 0.1)),  # the layout's own rates
        (partial(decoder, "Llama"), {"attention_dropout": 0.25}, (0.0, 0.25)),
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
        TransformerSettings(width=8, depth=1, heads=2, tied=True, local=3),
        TransformerSettings(width=8, depth=1, heads=2, tied=True, attention=Choice("softmax", {"cap": 2.0})),
    ):
        with pytest.raises(ConfigError, match=r"has others|is none|no counterpart there"):
            to_hugging_face(Transformer(settings, Tokens(9, 9, 8)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_name_of_the_hub_in_place_of_a_folder_leads_to_the_download(tmp_path):
    with pytest.raises(DataError, match=r"no folder .*gpt2: give a folder; `edgewise\.models\.hub\.download"):
        Pretrained.open(tmp_path / "gpt2")


@pytest.mark.parametrize("peer", [gpt2, bert, roberta])
def test_positions_are_repeated_or_interpolated_on_request_or_the_first_ones_taken(peer, tmp_path):
    peer().save_pretrained(tmp_path)
    whole = from_hugging_face(tmp_path).positions.weight
    repeated = from_hugging_face(tmp_path, length=40, extend="repeated").positions.weight
    assert torch.equal(repeated, torch.cat([whole, whole, whole[:8]]))
    longer = from_hugging_face(tmp_path, length=31, extend="interpolated").positions.weight
    assert torch.allclose(longer[::2], whole, atol=1e-6)  # 30 steps where 15 were
    assert torch.allclose(longer[1::2], (whole[:-1] + whole[1:]) / 2, atol=1e-6)
    assert torch.equal(from_hugging_face(tmp_path, length=5).positions.weight, whole[:5])
    with pytest.raises(ConfigError, match="has 16 positions, and 17 are needed: extend them, 'interpolated' or 'rep"):
        from_hugging_face(tmp_path, length=17)
    with pytest.raises(ConfigError, match="extend='repeated' needs the length"):
        from_hugging_face(tmp_path, extend="repeated")


def test_a_longer_model_is_written_and_gives_what_transformers_does(tmp_path):
    gpt2().save_pretrained(tmp_path / "in")
    model, tokens = from_hugging_face(tmp_path / "in", length=40, extend="repeated"), torch.randint(50, (1, 40))
    to_hugging_face(model, tmp_path / "out")
    peer = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "out").eval()
    assert (model(causal(40), tokens) - peer(tokens).logits).abs().max() < 1e-5


def test_interpolated_positions_of_patches_are_those_of_transformers(tmp_path):
    peer = vit()
    peer.save_pretrained(tmp_path)
    images = torch.randn(2, 3, 20, 20)
    patches = images.unflatten(3, (5, 4)).unflatten(2, (5, 4)).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
    model = from_hugging_face(tmp_path, length=25, extend="interpolated")
    expected = peer(images, interpolate_pos_encoding=True).logits
    assert (model(complete(25), patches)[:, 0] - expected).abs().max() < 1e-5
    whole, repeated = (
        made.positions.weight
        for made in (from_hugging_face(tmp_path), from_hugging_face(tmp_path, length=25, extend="repeated"))
    )
    assert torch.equal(repeated[0], whole[0])  # the class node's
    assert torch.equal(repeated[1:].view(5, 5, -1)[3:, 3:], whole[1:].view(3, 3, -1)[:2, :2])
    with pytest.raises(ConfigError, match="no square number of patches"):
        from_hugging_face(tmp_path, length=24, extend="interpolated")


def test_biases_that_a_layout_has_and_a_model_lacks_are_written_as_zeros(tmp_path):
    torch.manual_seed(0)
    block = Choice("pre-norm", {"norm": "layer", "bias": False})
    settings = TransformerSettings(width=12, depth=2, heads=2, tied=True, feed_forward="gelu-tanh", block=block)
    model, x = spread(Transformer(settings, Tokens(9, 9, 8))), torch.randint(9, (2, 8))
    to_hugging_face(model, tmp_path / "gpt2")
    written = safetensors.load_file(tmp_path / "gpt2" / "model.safetensors")
    assert written["transformer.h.1.attn.c_attn.bias"].shape == (36,)
    assert not written["transformer.h.1.attn.c_attn.bias"].any()
    peer = transformers.GPT2LMHeadModel.from_pretrained(tmp_path / "gpt2").eval()
    assert (peer(x).logits - model(causal(8), x)).abs().max() < 1e-5
    decoder("Llama").save_pretrained(tmp_path / "llama")
    model, x = from_hugging_face(tmp_path / "llama"), torch.randint(50, (2, 8))
    to_hugging_face(model, tmp_path / "qwen", kind="qwen2")  # which has biases of queries, keys and values
    peer = transformers.Qwen2ForCausalLM.from_pretrained(tmp_path / "qwen").eval()
    assert (peer(x).logits - model(causal(8), x)).abs().max() < 1e-4


def test_a_model_is_written_as_the_kind_that_it_is(tmp_path):
    model = Transformer(TransformerSettings(width=8, depth=1, heads=2, tied=True), Tokens(9, 9, 8))
    for kind, message in {
        "llama": "Llama is a language model of pre-norm blocks with rotary",
        "vit": "ViT reads square patches",
        "gpt": "kind 'gpt' has no counterpart here: known are gpt2",
        "bert": "Bert is the model bert, of post-norm blocks: this model is none",
    }.items():
        with pytest.raises(ConfigError, match=message):
            to_hugging_face(model, tmp_path / "out", kind=kind)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("peer", "table"), [(t5, "embed.weight"), (bert, "positions.weight")])
def test_a_folder_in_half_precision_is_computed_in_full(peer, table, tmp_path):
    """T5's embedding is scaled and BERT's positions are a sum: neither is rounded twice."""
    peer().bfloat16().save_pretrained(tmp_path / "half")
    transformers.AutoModel.from_pretrained(tmp_path / "half").float().save_pretrained(tmp_path / "full")
    half, full = (from_hugging_face(tmp_path / name).state_dict()[table] for name in ("half", "full"))
    assert full.dtype == torch.float32 and torch.equal(half, full.bfloat16())


@pytest.mark.parametrize("kind", ["Llama", "Gemma"])
def test_a_folder_in_half_precision_stays_in_it(kind, tmp_path):
    peer = decoder(kind).bfloat16()
    peer.save_pretrained(tmp_path / "in")
    model, tokens = from_hugging_face(tmp_path / "in"), torch.randint(50, (1, 9))
    assert {weight.dtype for weight in model.state_dict().values()} == {torch.bfloat16}
    to_hugging_face(model, tmp_path / "out", kind=kind.lower())
    again = type(peer).from_pretrained(tmp_path / "out").eval()
    assert again.dtype == torch.bfloat16
    expected = peer(tokens).logits
    for found in (model(causal(9), tokens), again(tokens).logits):
        assert found.dtype == torch.bfloat16
        assert (found - expected).abs().max() < 0.05 * expected.abs().max()


def changed(tmp_path, peer, options=None, change=None):
    """A peer's folder with other options in its configuration, and with its weights changed in place."""
    peer.save_pretrained(tmp_path)
    path, weights = tmp_path / "config.json", tmp_path / "model.safetensors"
    config = json.loads(path.read_text()) | (options or {})
    path.write_text(json.dumps({name: value for name, value in config.items() if value != "left out"}))
    if change is not None:
        tensors = safetensors.load_file(weights)
        change(tensors)
        safetensors.save_file(
            {name: tensor.contiguous() for name, tensor in tensors.items()}, weights, {"format": "pt"}
        )
    return tmp_path


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("Llama", {"rope_parameters": {"rope_type": "default"}, "rope_theta": 50.0}),
        ("Llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}),  # beside rope_parameters, which it overrides
        ("Llama", {"sliding_window": 3}),
        ("Gemma2", {"sliding_window": 3, "layer_types": "left out"}),
        (
            "Gemma3Text",
            {"rope_theta": 50.0, "rope_local_base_freq": 8.0, "rope_scaling": {"rope_type": "linear", "factor": 2.0}}
            | {"sliding_window": 3, "sliding_window_pattern": 2}
            | dict.fromkeys(("layer_types", "rope_parameters"), "left out"),
        ),
    ],
)
def test_options_of_a_decoder_mean_what_they_mean_to_transformers(kind, options, tmp_path):
    peer = decoder(kind)
    folder = changed(tmp_path, peer, options)
    given, ours = inputs_of(peer, hugging_face_graph(folder))
    expected = type(peer).from_pretrained(folder).eval()(**given).logits
    assert (from_hugging_face(folder)(*ours) - expected).abs().max() < 1e-4


def test_a_tied_weight_is_read_under_any_of_its_names(tmp_path):
    def moved(tensors):
        tensors["cls.predictions.decoder.weight"] = tensors.pop("bert.embeddings.word_embeddings.weight")
        tensors["cls.predictions.decoder.bias"] = tensors.pop("cls.predictions.bias")

    peer = bert()
    folder = changed(tmp_path, peer, change=moved)
    given, ours = inputs_of(peer, hugging_face_graph(folder))
    assert (from_hugging_face(folder)(*ours) - peer(**given).logits).abs().max() < 1e-4


@pytest.mark.parametrize(
    ("peer", "name", "value", "message"),
    [
        (bert, "cls.predictions.decoder.weight", torch.ones(50, 24), "are one weight here, but differ$"),
        (bert, "cls.predictions.decoder.bias", torch.ones(50), "and 'cls.predictions.bias' are one weight here"),
        (roberta, "lm_head.decoder.weight", torch.ones(50, 24), "are one weight here, but differ$"),
        (t5, "decoder.embed_tokens.weight", torch.ones(50, 16), "and 'shared.weight' are one weight here"),
        (bart, "final_logits_bias", torch.ones(1, 50), "no place for: final_logits_bias"),
        (gpt2, "lm_head.weight", torch.ones(50, 24), "differ: set tie_word_embeddings to false in config.json"),
        (gpt2, "wte.weight", torch.ones(50, 24), "'transformer.wte.weight' and 'wte.weight', which are one weight"),
        (gpt2, "transformer.ln_f.bias", torch.ones(24, dtype=torch.int8), "floating-point numbers, not int8"),
        (gpt2, "transformer.ln_f.bias", torch.ones(24, dtype=torch.complex64), "floating-point numbers, not complex64"),
        (bert, "cls.predictions.transform.dense.bias", None, "lacks the weight 'cls.predictions.transform.dense.bias'"),
        (vit, "classifier.bias", None, r"lacks the weight 'classifier\.bias'"),
    ],
)
def test_weights_that_contradict_one_another_are_refused(peer, name, value, message, tmp_path):
    def change(tensors):
        tensors.pop(name, None)
        if value is not None:
            tensors[name] = value

    folder = changed(tmp_path, peer(), change=change)
    with pytest.raises(CheckpointError, match=message):
        from_hugging_face(folder)


def test_quantized_weights_are_refused(tmp_path):
    folder = changed(tmp_path, gpt2(), {"quantization_config": {"quant_method": "gptq"}})
    with pytest.raises(ConfigError, match=r"quantization_config .*gptq.* has no counterpart here"):
        from_hugging_face(folder)


def test_several_files_hold_what_their_index_lists_and_nothing_twice(tmp_path):
    gpt2().save_pretrained(tmp_path, max_shard_size="20KB")
    first, second, *_ = sorted(tmp_path.glob("*.safetensors"))
    index, name = tmp_path / "model.safetensors.index.json", "transformer.h.9.ln_1.bias"
    listed = json.loads(index.read_text())
    listed["weight_map"][name] = first.name
    index.write_text(json.dumps(listed))
    with pytest.raises(CheckpointError, match=f"{first.name} lacks the weight '{name}', which the index lists"):
        from_hugging_face(tmp_path)
    safetensors.save_file(safetensors.load_file(first) | safetensors.load_file(second), first, {"format": "pt"})
    with pytest.raises(CheckpointError, match=f"{second.name} holds the weight 'transformer.*', as another file does"):
        from_hugging_face(tmp_path)


def test_one_file_comes_before_an_index_of_several_as_in_transformers(tmp_path):
    gpt2().save_pretrained(tmp_path, max_shard_size="20KB")
    whole, tokens = spread(gpt2()), torch.randint(50, (1, 9))
    safetensors.save_model(whole, str(tmp_path / "model.safetensors"), {"format": "pt"})
    expected = transformers.GPT2LMHeadModel.from_pretrained(tmp_path).eval()(tokens).logits
    assert torch.equal(expected, whole(tokens).logits)
    assert (from_hugging_face(tmp_path)(causal(9), tokens) - expected).abs().max() < 1e-5


@pytest.mark.parametrize("kind", [bert, roberta])
def test_a_head_for_texts_gives_the_same_logits(kind, tmp_path):
    peer, tokens = kind("ForSequenceClassification"), torch.randint(2, 50, (2, 9))
    peer.save_pretrained(tmp_path)
    model = from_hugging_face(tmp_path)
    assert (model(complete(9), tokens)[:, 0] - peer(tokens).logits).abs().max() < 1e-5


def test_bert_with_a_next_sentence_head_and_old_names_is_read(tmp_path):
    peer, tokens = bert("ForPreTraining"), torch.randint(50, (2, 9))
    peer.save_pretrained(tmp_path)
    path = tmp_path / "model.safetensors"
    old = {"LayerNorm.weight": "LayerNorm.gamma", "LayerNorm.bias": "LayerNorm.beta"}
    tensors = safetensors.load_file(path)
    for new, name in old.items():
        tensors = {key.replace(new, name): value for key, value in tensors.items()}
    assert any(key.endswith("gamma") for key in tensors)
    safetensors.save_file(tensors, path)
    found = from_hugging_face(tmp_path)(complete(9), tokens)
    assert (found - peer(tokens).prediction_logits).abs().max() < 1e-5


def test_a_bert_for_texts_that_is_written_is_read_by_transformers_and_by_us(tmp_path):
    torch.manual_seed(0)
    settings = BERTSettings(width=12, depth=1, heads=3, norm="layer", readout="first")
    signature = Tokens(9, 3, length=8, whole_graph=True)
    model, x = spread(BERT(settings, signature)), torch.randint(9, (2, 7))
    to_hugging_face(model, tmp_path / "out")
    again = from_hugging_face(tmp_path / "out")
    assert (again.settings, again.signature) == (dataclasses.replace(settings, hidden=again.settings.hidden), signature)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    kind = transformers.BertForSequenceClassification
    peer, info = kind.from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["unexpected_keys"]
    assert (model(complete(7), x) - peer.eval()(x).logits[:, None]).abs().max() < 1e-5


def test_a_bert_without_a_counterpart_is_neither_read_nor_written(tmp_path):
    bert(is_decoder=True).save_pretrained(tmp_path / "in")
    with pytest.raises(ConfigError, match="is_decoder True has no counterpart"):
        from_hugging_face(tmp_path / "in")
    signature = Tokens(9, 3, length=8, whole_graph=True)
    model = BERT(BERTSettings(width=8, depth=1, heads=2, readout="mean"), signature)
    with pytest.raises(ConfigError, match="readout='first', not 'mean'"):
        to_hugging_face(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_rotary_positions_are_divided_and_windows_and_lengths_without_limit_known(tmp_path):
    decoder("Llama").save_pretrained(tmp_path / "in")
    rope = {"rope_type": "linear", "factor": 3.0, "rope_theta": 10000.0}
    peer = decoder("Llama", rope_parameters=rope)
    model, tokens = from_hugging_face(tmp_path / "in", length=48, extend="interpolated"), torch.randint(50, (1, 48))
    assert (model(causal(48), tokens) - peer(tokens).logits).abs().max() < 1e-4
    with pytest.raises(ConfigError, match="rotary positions have no table"):
        from_hugging_face(tmp_path / "in", length=48, extend="repeated")
    t5().save_pretrained(tmp_path / "t5")
    with pytest.raises(ConfigError, match="reads any length"):
        from_hugging_face(tmp_path / "t5", length=48, extend="repeated")
    decoder("Mistral", sliding_window=4).save_pretrained(tmp_path / "mistral")
    assert torch.equal(hugging_face_graph(tmp_path / "mistral")(9).senders, window(9, radius=3, sides="past").senders)


@pytest.mark.parametrize("written", [True, False])  # whether the file has layer_types, as since transformers 4.53
@pytest.mark.parametrize(
    ("options", "reach"),
    [
        ({"sliding_window": 4}, None),
        ({"sliding_window": 4, "use_sliding_window": True}, None),  # beginning at layer 28 of 2
        ({"sliding_window": 4, "use_sliding_window": True, "max_window_layers": 0}, 4),
    ],
)
def test_qwen_2_has_a_window_where_transformers_has_one(options, reach, written, tmp_path):
    peer = decoder("Qwen2", **options)
    peer.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | options
    if not written:
        del config["layer_types"]
    (tmp_path / "config.json").write_text(json.dumps(config))
    graph, tokens = hugging_face_graph(tmp_path)(9), torch.randint(50, (1, 9))
    assert graph == (causal(9) if reach is None else window(9, radius=reach - 1, sides="past"))
    model = from_hugging_face(tmp_path)
    assert (model(graph, tokens) - peer(tokens).logits).abs().max() < 1e-4
    to_hugging_face(model, tmp_path / "out", kind="qwen2")
    again = transformers.Qwen2ForCausalLM.from_pretrained(tmp_path / "out").eval()
    assert (again(tokens).logits - peer(tokens).logits).abs().max() < 1e-4


def test_a_window_is_written_with_its_model(tmp_path):
    peer, tokens = decoder("Mistral", sliding_window=4), torch.randint(50, (1, 9))
    peer.save_pretrained(tmp_path / "in")
    model = from_hugging_face(tmp_path / "in")
    to_hugging_face(model, tmp_path / "out")
    again = transformers.MistralForCausalLM.from_pretrained(tmp_path / "out").eval()
    assert (again(tokens).logits - peer(tokens).logits).abs().max() < 1e-4
    with pytest.raises(ConfigError, match="Llama has no window, and this model reads 4 tokens: write it as mistral"):
        to_hugging_face(model, tmp_path / "llama", kind="llama")


def test_a_window_in_some_layers_is_refused(tmp_path):
    decoder("Qwen2", sliding_window=4, use_sliding_window=True, max_window_layers=1).save_pretrained(tmp_path)
    for read in (from_hugging_face, hugging_face_graph):
        with pytest.raises(ConfigError, match="a window of 4 tokens in 1 of 2 layers"):
            read(tmp_path)
    decoder("Gemma2", **LOCAL, layer_types=["full_attention"] + ["sliding_attention"] * 2).save_pretrained(tmp_path)
    with pytest.raises(ConfigError, match=r"layer_types \['full_attention', 'sliding.* has no counterpart here"):
        from_hugging_face(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rope_parameters": {"rope_type": "longrope", "rope_theta": 1e4}}, "rope_type 'longrope'"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "truncate": False}}, "truncate False"),
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "attention_factor": 2.0}}, "attention_factor 2.0"),
        ({"rms_norm_eps": 0.1}, "rms_norm_eps 0.1 has no counterpart here: known are 1e-06, 1e-05"),
        ({"hidden_act": "relu"}, "hidden_act 'relu'"),
    ],
)
def test_a_decoder_with_an_option_that_ours_lacks_is_refused(options, message, tmp_path):
    decoder("Llama").save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | options
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(ConfigError, match=message):
        from_hugging_face(tmp_path)


def test_a_swin_whose_windows_are_padded_is_refused(tmp_path):
    folder = changed(tmp_path, swin(), {"window_size": 3})
    with pytest.raises(ConfigError, match="8 rows of patches are no multiple of 6"):
        from_hugging_face(folder)
    assert from_hugging_face(changed(folder, swin()), length=256).signature.length == 256  # of more, the same windows


def test_t5_1_1_whose_output_layer_is_its_own_is_read_and_written(tmp_path):
    peer = t5(feed_forward_proj="gated-gelu", tie_word_embeddings=False)
    peer.save_pretrained(tmp_path / "in")
    path = tmp_path / "in" / "model.safetensors"
    head = torch.randn(50, 16)
    safetensors.save_file({**safetensors.load_file(path), "lm_head.weight": head}, path, {"format": "pt"})
    with pytest.raises(CheckpointError, match="set tie_word_embeddings to false"):
        from_hugging_face(tmp_path / "in")
    config = json.loads((tmp_path / "in" / "config.json").read_text())
    (tmp_path / "in" / "config.json").write_text(json.dumps(config | {"tie_word_embeddings": False}))
    model = from_hugging_face(tmp_path / "in")
    source, target = torch.randint(50, (1, 7)), torch.randint(50, (1, 5))
    decoded = peer(input_ids=source, decoder_input_ids=target, output_hidden_states=True).decoder_hidden_states[-1]
    found = model(EncoderDecoderGraph.of([7], [5]), torch.cat([source, target], -1))
    assert (found - decoded @ head.T).abs().max() < 1e-4
    to_hugging_face(model, tmp_path / "out")
    again = transformers.T5ForConditionalGeneration.from_pretrained(tmp_path / "out").eval()
    assert (again(input_ids=source, decoder_input_ids=target).logits - found).abs().max() < 1e-4
