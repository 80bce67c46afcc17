import dataclasses

import pytest
import torch
from safetensors import torch as safetensors

from edgewise import ConfigError, complete
from edgewise.models import BERT, BERTSettings, Tokens
from edgewise.models.hub.pretrained import from_hugging_face, to_hugging_face
from models.hub.peers import bert, roberta, spread, transformers


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
    model, x = spread(BERT(settings, signature)), torch.randint(9, (2, 7))
    to_hugging_face(model, tmp_path / "out")
    again = from_hugging_face(tmp_path / "out")
    assert (again.settings, again.signature) == (dataclasses.replace(settings, hidden=again.settings.hidden), signature)
    assert all(torch.equal(value, again.state_dict()[name]) for name, value in model.state_dict().items())
    peer, info = getattr(transformers, f"Bert{kind}").from_pretrained(tmp_path / "out", output_loading_info=True)
    assert not info["unexpected_keys"]
    expected = peer.eval()(x).logits
    assert (model(complete(7), x) - (expected[:, None] if texts else expected)).abs().max() < 1e-5


def test_a_bert_without_a_counterpart_is_neither_read_nor_written(tmp_path):
    bert(is_decoder=True).save_pretrained(tmp_path / "in")
    with pytest.raises(ConfigError, match="is_decoder True has no counterpart"):
        from_hugging_face(tmp_path / "in")
    signature = Tokens(9, 3, length=8, whole_graph=True)
    model = BERT(BERTSettings(width=8, depth=1, heads=2, readout="mean"), signature)
    with pytest.raises(ConfigError, match="readout='first', not 'mean'"):
        to_hugging_face(model, tmp_path / "out")
    assert not (tmp_path / "out").exists()
