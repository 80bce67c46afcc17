import torch

from edgewise import causal
from edgewise.models.hub.folder import from_hugging_face
from models.hub.peers import gpt2


def test_gpt2_gives_the_same_logits(tmp_path):
    peer = gpt2()
    peer.save_pretrained(tmp_path)
    model, tokens = from_hugging_face(tmp_path), torch.randint(50, (2, 16))
    expected = peer(tokens).logits
    assert expected.std() > 0.5
    assert (model(causal(16), tokens) - expected).abs().max() < 1e-5
    ours = model.generate(tokens[:, :4], 8, causal, temperature=0.0)
    theirs = peer.generate(tokens[:, :4], max_new_tokens=8, do_sample=False, pad_token_id=0)
    assert torch.equal(ours, theirs)
