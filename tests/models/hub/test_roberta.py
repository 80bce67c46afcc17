import torch

from edgewise import complete
from edgewise.models.hub.folder import from_hugging_face
from models.hub.peers import roberta


def test_roberta_with_a_head_for_texts_gives_the_same_logits(tmp_path):
    peer, tokens = roberta("ForSequenceClassification"), torch.randint(2, 50, (2, 9))
    peer.save_pretrained(tmp_path)
    model = from_hugging_face(tmp_path)
    assert (model(complete(9), tokens)[:, 0] - peer(tokens).logits).abs().max() < 1e-5
