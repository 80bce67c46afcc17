"""Models from the Hugging Face hub: files are verified by their hashes."""

import hashlib
from pathlib import Path

from edgewise.errors import ConfigError, DataError, installing
from edgewise.files import reading
from edgewise.models.hub.architectures import is_plain

BESIDE = ("config.json", "model.safetensors.index.json")  # the weights
TOKENS = ("tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


def download(name: str, revision: str, folder: Path | str) -> Path:
    """Fetch a model from the Hugging Face hub into a folder, over TLS, each file of weights verified by its sha256.

    Args:
        name: The model's name there, such as "openai-community/gpt2".
        revision: The commit to fetch, 40 hexadecimal digits: a branch may hold other weights tomorrow.
        folder: Where to put `config.json`, the safetensors and the tokenizer's JSON files, where there are any.

    Errors      ConfigError without the library `huggingface_hub` or for a revision that is no commit; DataError for a
                file whose hash is another one, which is removed, or a download that fails
    """
    try:
        from huggingface_hub import HfApi, hf_hub_download
    except ImportError as error:
        raise ConfigError(f"downloading from the hub needs huggingface_hub: {installing('hub')}") from error
    if len(revision) != 40 or not set(revision) <= set("0123456789abcdef"):
        raise ConfigError(f"revision must be a commit of 40 hexadecimal digits, not {revision!r}")
    with reading(name, "a model that the hub gives"):
        listed = HfApi().model_info(name, revision=revision, files_metadata=True).siblings or []
    hashes = {
        file.rfilename: file.lfs.sha256 if file.lfs else None
        for file in listed
        if file.rfilename in (*BESIDE, *TOKENS) or is_plain(file.rfilename)
    }
    for file, expected in hashes.items():
        if expected is None and file.endswith(".safetensors"):
            raise DataError(f"{name}: the hub gives no sha256 for {file}")
        with reading(f"{name}/{file}", "a file that the hub gives"):
            path = Path(hf_hub_download(name, file, revision=revision, local_dir=folder))
        with path.open("rb") as content:
            if expected is not None and hashlib.file_digest(content, "sha256").hexdigest() != expected:
                path.unlink()
                raise DataError(f"{path}: its sha256 is not {expected}, as the hub says: it was removed")
    return Path(folder)
