import dataclasses
import hashlib
import json
import shutil
import sys
from types import SimpleNamespace

import pytest
import torch
from safetensors import torch as safetensors

from edgewise import CheckpointError, ConfigError, DataError, causal, complete
from edgewise.models import BERT, BERTSettings, Features, Tokens, Transformer, TransformerSettings
from edgewise.models.hub.hugging_face import ARCHITECTURES, download, from_hugging_face, to_hugging_face

transformers = pytest.importorskip("transformers")


def _gpt2(**options):
    torch.manual_seed(0)
    small = {"vocab_size": 50, "n_positions": 16, "n_embd": 24, "n_layer": 2, "n_head": 3}
    config = transformers.GPT2Config(**small, bos_token_id=None, eos_token_id=None, **options)
    return _spread(transformers.GPT2LMHeadModel(config))


def _vit(**options):
    torch.manual_seed(0)
    small = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
    config = transformers.ViTConfig(**small, image_size=12, patch_size=4, num_channels=3, num_labels=5, **options)
    return _spread(transformers.ViTForImageClassification(config))


def _bert(kind="ForMaskedLM", **options):
    torch.manual_seed(0)
    small = {"hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3, "intermediate_size": 40}
    config = transformers.BertConfig(vocab_size=50, max_position_embeddings=16, num_labels=3, **small, **options)
    return _spread(getattr(transformers, f"Bert{kind}")(config))


def _spread(model):
    """Weights large enough, and biases not zero, so that a mistake would show."""
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model.eval()


def _images(count=2):
    images = torch.randn(count, 3, 12, 12)
    patches = images.unflatten(3, (3, 4)).unflatten(2, (3, 4)).permute(0, 2, 4, 1, 3, 5).flatten(3).flatten(1, 2)
    return images, patches


def test_gpt2_gives_the_same_logits(tmp_path):
    peer = _gpt2()
    peer.save_pretrained(tmp_path)
    model, tokens = from_hugging_face(tmp_path), torch.randint(50, (2, 16))
    expected = peer(tokens).logits
    assert expected.std() > 0.5
    assert (model(causal(16), tokens) - expected).abs().max() < 1e-5
    ours = model.generate(tokens[:, :4], 8, causal, temperature=0.0)
    theirs = peer.generate(tokens[:, :4], max_new_tokens=8, do_sample=False, pad_token_id=0)
    assert torch.equal(ours, theirs)


def test_vit_gives_the_same_logits(tmp_path):
    peer = _vit()
    peer.save_pretrained(tmp_path)
    model, (images, patches) = from_hugging_face(tmp_path), _images()
    expected = peer(images).logits
    assert expected.std() > 0.5
    assert (model(complete(9), patches)[:, 0] - expected).abs().max() < 1e-5


def test_bert_gives_the_same_logits_and_hidden_states(tmp_path):
    peer, tokens = _bert(), torch.randint(50, (2, 16))
    peer.save_pretrained(tmp_path / "masked")
    model, expected = from_hugging_face(tmp_path / "masked"), peer(tokens, output_hidden_states=True)
    assert expected.logits.std() > 0.5
    assert (model(complete(16), tokens) - expected.logits).abs().max() < 1e-5
    assert (model.hidden(complete(16), tokens) - expected.hidden_states[-1]).abs().max() < 1e-5
    bare = _bert("Model")
    bare.save_pretrained(tmp_path / "bare")
    hidden = from_hugging_face(tmp_path / "bare").hidden(complete(9), tokens[:, :9])
    assert (hidden - bare(tokens[:, :9]).last_hidden_state).abs().max() < 1e-5


@pytest.mark.parametrize("kind", ["gpt2", "vit", "bert"])
def test_in_double_precision_logits_and_every_gradient_are_the_peers(kind, tmp_path):
    peer, graph = {"gpt2": (_gpt2(), causal(16)), "vit": (_vit(), complete(9)), "bert": (_bert(), complete(16))}[kind]
    if kind == "bert":  # ours adds the first segment to the positions, in single precision
        peer.bert.embeddings.token_type_embeddings.weight.data.zero_()
    peer.save_pretrained(tmp_path)
    model = from_hugging_face(tmp_path).double()
    given, x = (torch.randint(1, 50, (2, 16)),) * 2 if kind != "vit" else (part.double() for part in _images())
    expected, found = peer.double()(given).logits, model(graph, x)
    found = found[:, 0] if kind == "vit" else found
    assert (found - expected).abs().max() < 1e-10

    projection = torch.randn_like(expected)
    (expected * projection).sum().backward()
    (found * projection).sum().backward()
    for parameter in peer.parameters():
        parameter.data = parameter.grad  # written, gradients have the names that weights have in a file
    peer.save_pretrained(tmp_path / "gradients")
    theirs = safetensors.load_file(tmp_path / "gradients" / "model.safetensors")
    if kind == "bert":  # what the sum of the two is read from has the gradient of either
        theirs["bert.embeddings.token_type_embeddings.weight"].zero_()
    parts = {part.ours: part for part in ARCHITECTURES[kind].parts(2)}
    for name, parameter in model.named_parameters():
        wanted = parts[name].read([theirs[other] for other in parts[name].theirs])
        assert wanted.abs().max() > 0, name
        assert (parameter.grad - wanted).abs().max() <= 1e-10 * max(1, wanted.abs().max()), name


def test_bert_with_a_head_for_texts_gives_the_same_logits(tmp_path):
    peer, tokens = _bert("ForSequenceClassification"), torch.randint(50, (2, 9))
    peer.save_pretrained(tmp_path)
    model = from_hugging_face(tmp_path)
    assert model.settings.readout == "first"
    assert (model(complete(9), tokens)[:, 0] - peer(tokens).logits).abs().max() < 1e-5


def test_bert_with_a_next_sentence_head_and_old_names_is_read(tmp_path):
    peer, tokens = _bert("ForPreTraining"), torch.randint(50, (2, 9))
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


@pytest.mark.parametrize(
    ("settings", "outputs", "kind"),
    [
        (BERTSettings(width=12, depth=2, heads=2, hidden=20), 9, "ForMaskedLM"),
        (BERTSettings(width=12, depth=1, heads=3, norm="layer", readout="first"), 3, "ForSequenceClassification"),
    ],
    ids=["tokens", "texts"],
)
def test_a_bert_that_is_written_is_read_by_transformers_and_by_us(settings, outputs, kind, tmp_path):
    torch.manual_seed(0)
    texts = settings.readout == "first"
    signature = Tokens(9, outputs, length=8, whole_graph=texts)
    model, x = _spread(BERT(settings, signature)), torch.randint(9, (2, 7))
    to_hugging_face(model, tmp_path / "out")
    again = from_hugging_face(tmp_path / "out")
    assert (again.settings, again.signature) == (dataclasses.replace(settings, hidden=again.settings.hidden), signature)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    peer, info = getattr(transformers, f"Bert{kind}").from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["unexpected_keys"]
    expected = peer.eval()(x).logits
    assert (model(complete(7), x) - (expected[:, None] if texts else expected)).abs().max() < 1e-5


def test_a_bert_without_a_counterpart_is_neither_read_nor_written(tmp_path):
    _bert(is_decoder=True).save_pretrained(tmp_path / "in")
    with pytest.raises(ConfigError, match="is_decoder True has no counterpart"):
        from_hugging_face(tmp_path / "in")
    signature = Tokens(9, 3, length=8, whole_graph=True)
    model = BERT(BERTSettings(width=8, depth=1, heads=2, readout="mean"), signature)
    with pytest.raises(ConfigError, match="readout='first', not 'mean'"):
        to_hugging_face(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_several_files_and_a_bare_model_are_read(tmp_path):
    peer = _gpt2()
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
        (TransformerSettings(width=12, depth=2, heads=2, tied=True, activation="gelu-tanh"), Tokens(9, 9, 8)),
        (
            TransformerSettings(width=12, depth=1, heads=3, hidden=20, readout="class", norm="fine-layer"),
            Features(4, 3, length=9, whole_graph=True),
        ),
    ],
    ids=["gpt2", "vit"],
)
def test_what_is_written_is_read_by_transformers_and_by_us(settings, signature, tmp_path):
    torch.manual_seed(0)
    model = _spread(Transformer(settings, signature))
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


def test_a_class_node_needs_a_complete_graph():
    settings = TransformerSettings(width=8, depth=1, heads=2, readout="class")
    model = Transformer(settings, Features(4, 3, length=9, whole_graph=True))
    assert model(complete(9), torch.randn(2, 9, 4)).shape == (2, 1, 3)
    with pytest.raises(ConfigError, match="needs a complete graph, not"):
        model(causal(9), torch.randn(2, 9, 4))


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"model_type": "llama"}, ConfigError, "model_type 'llama' has no counterpart here: known are gpt2, vit, bert"),
        ({"activation_function": "mish"}, ConfigError, "activation_function 'mish'"),
        ({"scale_attn_by_inverse_layer_idx": True}, ConfigError, "scale_attn_by_inverse_layer_idx True"),
        ({"n_layer": 3}, CheckpointError, "lacks the weight 'transformer.h.2.ln_1.weight'"),
        ({"n_layer": 1}, CheckpointError, "no place for: transformer.h.1"),
        ({"n_positions": 8}, CheckpointError, r"the shape \[16, 24\] instead of \[8, 24\]"),
        ({"n_head": "three"}, ConfigError, "lacks or garbles"),
    ],
)
def test_a_model_that_does_not_fit_is_refused(change, error, message, tmp_path):
    _gpt2().save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text()) | change
    (tmp_path / "config.json").write_text(json.dumps(config))
    with pytest.raises(error, match=message):
        from_hugging_face(tmp_path)


def test_damaged_and_unsafe_folders_are_refused(tmp_path):
    with pytest.raises(DataError, match=r"config\.json: cannot be read"):
        from_hugging_face(tmp_path)
    _gpt2().save_pretrained(tmp_path)
    weights = tmp_path / "model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-100])
    with pytest.raises(DataError, match="cannot be read"):
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
        TransformerSettings(width=8, depth=1, heads=2, tied=True, norm="rms"),
    ):
        with pytest.raises(ConfigError, match=r"has others|is none|no counterpart there"):
            to_hugging_face(Transformer(settings, Tokens(9, 9, 8)), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("damaged", [False, True])
def test_what_the_hub_sends_is_kept_where_its_hash_is_right(damaged, tmp_path, monkeypatch):
    """A hub that lies in a folder: of its files, the pickle is never asked for."""
    hub, asked = tmp_path / "hub", []
    peer = _gpt2()
    peer.save_pretrained(hub)
    (hub / "pytorch_model.bin").write_bytes(b"")
    hashes = {"model.safetensors": hashlib.sha256((hub / "model.safetensors").read_bytes()).hexdigest()}
    if damaged:
        hashes["model.safetensors"] = "0" * 64

    class HfApi:
        def model_info(self, name, revision, files_metadata):
            assert (name, revision, files_metadata) == ("someone/gpt", "a" * 40, True)
            lfs = {file: SimpleNamespace(sha256=digest) for file, digest in hashes.items()}
            listed = [SimpleNamespace(rfilename=path.name, lfs=lfs.get(path.name)) for path in hub.iterdir()]
            return SimpleNamespace(siblings=listed)

    def hf_hub_download(name, file, revision, local_dir):
        assert revision == "a" * 40
        asked.append(file)
        return shutil.copy(hub / file, local_dir)

    library = SimpleNamespace(HfApi=HfApi, hf_hub_download=hf_hub_download)
    monkeypatch.setitem(sys.modules, "huggingface_hub", library)
    (tmp_path / "here").mkdir()
    if damaged:
        with pytest.raises(DataError, match="is not 0000"):
            download("someone/gpt", "a" * 40, tmp_path / "here")
        assert not (tmp_path / "here" / "model.safetensors").exists()
    else:
        tokens = torch.randint(50, (1, 9))
        model = from_hugging_face(download("someone/gpt", "a" * 40, tmp_path / "here"))
        assert (model(causal(9), tokens) - peer(tokens).logits).abs().max() < 1e-5
        assert sorted(asked) == ["config.json", "model.safetensors"]
    with pytest.raises(ConfigError, match="40 hexadecimal digits, not 'main'"):
        download("someone/gpt", "main", tmp_path / "here")
