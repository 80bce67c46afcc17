import pytest
import torch

from edgewise import ConfigError, causal, complete
from edgewise.models import Features, Transformer, TransformerSettings
from edgewise.models.hub.folder import from_hugging_face
from models.hub.peers import drawn_images, vit


def test_vit_gives_the_same_logits(tmp_path):
    peer = vit()
    peer.save_pretrained(tmp_path)
    model, (images, patches) = from_hugging_face(tmp_path), drawn_images()
    expected = peer(images).logits
    assert expected.std() > 0.5
    assert (model(complete(9), patches)[:, 0] - expected).abs().max() < 1e-5


def test_a_class_node_needs_a_complete_graph():
    settings = TransformerSettings(width=8, depth=1, heads=2, readout="class")
    model = Transformer(settings, Features(4, 3, length=9, whole_graph=True))
    assert model(complete(9), torch.randn(2, 9, 4)).shape == (2, 1, 3)
    with pytest.raises(ConfigError, match="needs a complete graph, not"):
        model(causal(9), torch.randn(2, 9, 4))
