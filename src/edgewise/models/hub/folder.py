"""Weights of others: folders in the layout of Hugging Face, read into our models and written from them.

A folder in that layout holds `config.json` and the weights as safetensors, in one file or in several with an index.
Files of pickled tensors (`pytorch_model.bin`) are not read: to read them is to run what they say.
"""

import json
from pathlib import Path

from safetensors.torch import load_file, save_file
from torch import Tensor

from edgewise.errors import CheckpointError, ConfigError, DataError
from edgewise.files import check_header, holds, read_json, reading
from edgewise.models.hub import bert, gpt2, vit
from edgewise.models.hub.layout import Architecture, is_plain, known
from edgewise.models.signature import Tokens
from edgewise.models.size import build, outline
from edgewise.models.text.bert import BERT
from edgewise.models.text.transformer import Transformer

LARGEST = 1 << 20  # bytes of a configuration

ARCHITECTURES = {"gpt2": gpt2.ARCHITECTURE, "vit": vit.ARCHITECTURE, "bert": bert.ARCHITECTURE}


def from_hugging_face(folder: Path | str) -> Transformer | BERT:
    """A model with the settings and weights of a folder in the layout of Hugging Face: GPT-2, ViT or BERT.

    Shapes      GPT-2 reads tokens on `causal(n)`; ViT reads patches [*, N, colours · rows · columns] on `complete(N)`,
                with the task's output in front: [*, 1, labels]; BERT reads tokens on `complete(n)`
    Errors      DataError for a folder without `config.json` and safetensors; ConfigError for another model or one that
                has an option that ours has not; CheckpointError for a tensor that is missing, left over or misshapen
    Edge cases  names with or without the prefix of the bare model; a head that the folder lacks keeps its own weights;
                BERT has the head that the folder's `architectures` name, else that for masked tokens. Its second
                segment and next-sentence head are left out
    Reference   Radford et al., 2019; Dosovitskiy et al., 2021; Devlin et al., 2019; layout: the library `transformers`
    """
    folder = Path(folder)
    config = read_json(folder / "config.json", "a model's configuration", LARGEST)
    if not isinstance(config, dict):
        raise DataError(f"{folder / 'config.json'}: a configuration is a JSON object, not {type(config).__name__}")
    kind = known(ARCHITECTURES, "model_type", config.get("model_type"))

    def make() -> Transformer | BERT:
        model: Transformer | BERT = kind.model(config)
        return model

    with reading(folder / "config.json", "a model's configuration", ConfigError):
        shapes = outline(make, f"the model of {folder / 'config.json'}")
    own = shapes.state_dict()
    given = {_with_prefix(name, kind): tensor for name, tensor in _read_tensors(folder).items()}
    weights = {}
    for part in kind.parts(shapes.settings.depth):
        optional = part.ours.startswith(("head.", "masked.", "readout."))
        if part.ours not in own or (optional and not any(name in given for name in part.theirs)):
            continue
        for name in part.theirs:
            if name not in given:
                raise CheckpointError(f"{folder} lacks the weight {name!r}")
        theirs = [given.pop(name) for name in part.theirs]
        with reading(folder, f"a model: {' and '.join(part.theirs)} do not fit one another", CheckpointError):
            shape = part.read([tensor.to("meta") for tensor in theirs]).shape  # before anything is copied
        if shape != own[part.ours].shape:
            given_shape = f"{list(shape)} instead of {list(own[part.ours].shape)}"
            raise CheckpointError(f"{folder}: {' and '.join(part.theirs)} give {part.ours!r} the shape {given_shape}")
        weights[part.ours] = part.read, theirs
    left = [name for name in given if not any(spare in name for spare in kind.spare)]
    if left:
        raise CheckpointError(f"{folder} holds weights that this model has no place for: {', '.join(sorted(left)[:5])}")
    model = build(make, str(folder / "config.json"))
    model.load_state_dict(model.state_dict() | {name: read(theirs) for name, (read, theirs) in weights.items()})
    return model.eval()


def to_hugging_face(model: Transformer | BERT, folder: Path | str) -> None:
    """Write a model as a folder that the library `transformers` reads: BERT, GPT-2 for tokens or ViT for images.

    Errors      ConfigError for a model that is none of them, or a folder that holds a model already; nothing is written
    """
    folder = Path(folder)
    if (folder / "config.json").exists():
        raise ConfigError(f"{folder} holds a model already: name a new folder")
    decoder = isinstance(model.signature, Tokens)
    kind = ARCHITECTURES["bert" if isinstance(model, BERT) else "gpt2" if decoder else "vit"]
    config = kind.config(model)
    own, tensors = model.state_dict(), dict[str, Tensor]()
    for part in kind.parts(model.settings.depth):
        if part.ours not in own:
            continue
        values = part.write(own[part.ours].detach().cpu(), config)
        tensors |= {name: value.contiguous() for name, value in zip(part.theirs, values, strict=True)}
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: value.clone() for name, value in tensors.items()}, folder / ".writing", {"format": "pt"})
    (folder / ".writing").replace(folder / "model.safetensors")
    (folder / ".writing").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / ".writing").replace(folder / "config.json")


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors, mapped: their values are read where they are used."""
    files, index = ["model.safetensors"], folder / "model.safetensors.index.json"
    if index.exists():
        content = read_json(index, "an index of safetensors")
        with reading(index, "an index of safetensors"):
            files = sorted(set(content["weight_map"].values()))
    if not all(isinstance(file, str) and is_plain(file) for file in files):
        raise DataError(f"{index} names something else than safetensors beside it")
    if absent := [file[:80] for file in files if not holds(folder, file)]:
        unread = "; pytorch_model.bin is a pickle, which is never read: convert it" if any(folder.glob("*.bin")) else ""
        raise DataError(f"{folder} holds no {' and '.join(absent[:5])}{unread}")
    tensors: dict[str, Tensor] = {}
    for file in files:
        with reading(folder / file, "a file of safetensors"):
            with (folder / file).open("rb") as start:
                check_header(start.read(8))
            tensors |= load_file(folder / file)
    return tensors


def _with_prefix(name: str, kind: Architecture) -> str:
    heads = ("classifier.", "lm_head.", "cls.")
    name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")  # old files
    return name if name.startswith((kind.prefix, *heads)) else kind.prefix + name
