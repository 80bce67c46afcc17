import json

import pytest
import torch
from safetensors import torch as safetensors

from edgewise import CheckpointError
from edgewise.graphs import EncoderDecoderGraph
from edgewise.models.hub.pretrained import from_hugging_face, to_hugging_face
from models.hub.peers import t5, transformers


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
