import hashlib
import shutil
import sys
from types import SimpleNamespace

import pytest
import torch

from edgewise import ConfigError, DataError, causal
from edgewise.models.hub.download import download
from edgewise.models.hub.pretrained import from_hugging_face
from models.hub.peers import gpt2


@pytest.mark.parametrize("damaged", [False, True])
def test_what_the_hub_sends_is_kept_where_its_hash_is_right(damaged, tmp_path, monkeypatch):
    """A hub that lies in a folder: of its files, the pickle is never asked for."""
    hub, asked = tmp_path / "hub", []
    peer = gpt2()
    peer.save_pretrained(hub)
    tokens_of = ["special_tokens_map.json", "tokenizer.json", "tokenizer_config.json"]
    for name in ("pytorch_model.bin", "vocab.json", *tokens_of):
        (hub / name).write_bytes(b"{}")
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
        assert sorted(asked) == ["config.json", "model.safetensors", *tokens_of]
    for branch in ("main", "g" * 40, "a" * 39):
        with pytest.raises(ConfigError, match=f"40 hexadecimal digits, not '{branch}'"):
            download("someone/gpt", branch, tmp_path / "here")


def test_weights_without_a_hash_are_refused(tmp_path, monkeypatch):
    file = SimpleNamespace(rfilename="model.safetensors", lfs=None)
    hub = SimpleNamespace(model_info=lambda *_, **__: SimpleNamespace(siblings=[file]))

    def fetched(name, file, revision, local_dir):
        (local_dir / file).write_bytes(b"anything")
        return local_dir / file

    monkeypatch.setitem(sys.modules, "huggingface_hub", SimpleNamespace(HfApi=lambda: hub, hf_hub_download=fetched))
    with pytest.raises(DataError, match=r"no sha256 for model\.safetensors"):
        download("someone/gpt", "a" * 40, tmp_path)
