"""Models with more positions than their weights were trained on, and folders that contradict themselves."""

import json

import pytest
import torch
from safetensors import torch as safetensors

from edgewise import CheckpointError, ConfigError, causal, complete
from edgewise.configuration import Choice
from edgewise.models import Tokens, Transformer, TransformerSettings
from edgewise.models.hub.pretrained import from_hugging_face, hugging_face_graph, to_hugging_face
from models.hub.peers import bert, decoder, gpt2, inputs_of, roberta, spread, t5, transformers, vit


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


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize(("peer", "table"), [(t5, "embed.weight"), (bert, "positions.weight")])
def test_a_folder_in_half_precision_is_computed_in_full(peer, table, dtype, tmp_path):
    """T5's embedding is scaled and BERT's positions are a sum: neither is rounded on the way."""
    peer().to(dtype).save_pretrained(tmp_path / "half")
    transformers.AutoModel.from_pretrained(tmp_path / "half").float().save_pretrained(tmp_path / "full")
    half, full = (from_hugging_face(tmp_path / name).state_dict()[table] for name in ("half", "full"))
    assert half.dtype == torch.float32 and torch.equal(half, full)


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
