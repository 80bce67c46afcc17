import json

import pytest
import torch

from edgewise import ConfigError, causal, window
from edgewise.models import hugging_face_graph
from edgewise.models.hub.pretrained import from_hugging_face
from models.hub.peers import decoder, t5


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
    assert (from_hugging_face(tmp_path)(graph, tokens) - peer(tokens).logits).abs().max() < 1e-4


def test_a_window_in_some_layers_is_refused(tmp_path):
    decoder("Qwen2", sliding_window=4, use_sliding_window=True, max_window_layers=1).save_pretrained(tmp_path)
    for read in (from_hugging_face, hugging_face_graph):
        with pytest.raises(ConfigError, match="a window of 4 tokens in 1 of 2 layers"):
            read(tmp_path)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rope_parameters": {"rope_type": "yarn", "factor": 2.0, "rope_theta": 1e4}}, "rope_type 'yarn'"),
        ({"head_dim": 8}, "head_dim 8 has no counterpart here: only 4"),
        ({"attention_bias": True}, "attention_bias True has no counterpart"),
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
