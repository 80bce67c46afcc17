"""Weights of others: GPT-2, ViT and BERT in the layout of Hugging Face, read into our models and written from them.

A folder in that layout holds `config.json` and the weights as safetensors, in one file or in several with an index.
Files of pickled tensors (`pytorch_model.bin`) are not read: to read them is to run what they say.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import isqrt
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from edgewise.errors import CheckpointError, ConfigError, DataError
from edgewise.models.signature import Features, Tokens
from edgewise.models.text.bert import BERT, BERTSettings
from edgewise.models.text.transformer import Transformer, TransformerSettings

LARGEST = 1 << 20  # bytes of a configuration
Config = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """One of our tensors, and the tensors of theirs that it is made of; {} stands for a block's number.

    Args:
        ours: Its name here.
        theirs: Their names there.
        read: Ours from theirs.
        write: Theirs from ours, and from what their configuration says.
    """

    ours: str
    theirs: tuple[str, ...]
    read: Callable[[Sequence[Tensor]], Tensor] = lambda found: found[0]
    write: Callable[[Tensor, Config], Sequence[Tensor]] = lambda ours, config: (ours,)

    def block(self, number: int) -> Part:
        """The same part of one block."""
        return Part(self.ours.format(number), tuple(t.format(number) for t in self.theirs), self.read, self.write)


def _pair(ours: str, theirs: str) -> tuple[Part, Part]:
    """A weight and its bias."""
    return Part(f"{ours}.weight", (f"{theirs}.weight",)), Part(f"{ours}.bias", (f"{theirs}.bias",))


def _transposed(ours: str, theirs: str) -> tuple[Part, Part]:
    """The same where they multiply from the right."""
    turned = Part(f"{ours}.weight", (f"{theirs}.weight",), lambda found: found[0].T, lambda weight, config: (weight.T,))
    return turned, Part(f"{ours}.bias", (f"{theirs}.bias",))


def _stacked(ours: str, theirs: Sequence[str]) -> tuple[Part, Part]:
    """Several linear maps that are one here."""
    weight, bias = (
        Part(
            f"{ours}.{part}",
            tuple(f"{name}.{part}" for name in theirs),
            lambda found: torch.cat(list(found)),
            lambda x, config: x.chunk(len(theirs)),
        )
        for part in ("weight", "bias")
    )
    return weight, bias


@dataclass(frozen=True)
class Architecture:
    """How one kind of model is written there and here.

    Args:
        prefix: What the names of the bare model begin with, inside a model with a head.
        whole: The tensors outside the blocks, of all heads that there are.
        block: The tensors of one block.
        model: An untrained model of ours from their configuration.
        config: Their configuration from our model.
        spare: What the names of tensors contain that ours has no use for: old masks, the embedding once more, and what
            only another head reads.
    """

    prefix: str
    whole: tuple[Part, ...]
    block: tuple[Part, ...]
    model: Callable[[Config], Transformer | BERT]
    config: Callable[[Any], dict[str, Any]]
    spare: tuple[str, ...]

    def parts(self, depth: int) -> list[Part]:
        """All tensors of a model with that many blocks."""
        return [*self.whole, *(part.block(number) for number in range(depth) for part in self.block)]


ACTIVATIONS = {
    "gelu_new": "gelu-tanh",
    "gelu_pytorch_tanh": "gelu-tanh",
    "gelu": "gelu",
    "relu": "relu",
    "silu": "silu",
}
NORMS = {1e-5: "layer", 1e-12: "fine-layer"}


def _gpt2_model(config: Config) -> Transformer:
    _refuse(config, scale_attn_weights=True, scale_attn_by_inverse_layer_idx=False, add_cross_attention=False)
    _refuse(config, tie_word_embeddings=True)
    settings = TransformerSettings(
        width=config["n_embd"],
        depth=config["n_layer"],
        heads=config["n_head"],
        hidden=config.get("n_inner"),
        activation=_known(ACTIVATIONS, "activation_function", config["activation_function"]),
        norm=_known(NORMS, "layer_norm_epsilon", config["layer_norm_epsilon"]),
        tied=True,
    )
    tokens, length = config["vocab_size"], config["n_positions"]
    return Transformer(settings, Tokens(tokens, tokens, length=length))


def _gpt2_config(model: Transformer) -> dict[str, Any]:
    settings, signature = model.settings, model.signature
    _refuse_unusual(settings)
    if not (settings.tied and isinstance(signature, Tokens) and settings.readout == "none"):
        raise ConfigError("GPT-2 is a language model with tied embeddings: this model is none")
    return {
        "architectures": ["GPT2LMHeadModel"],
        "model_type": "gpt2",
        "activation_function": _named(ACTIVATIONS, settings.activation, "activation"),
        "layer_norm_epsilon": _named(NORMS, settings.norm, "norm"),
        "n_embd": settings.width,
        "n_layer": settings.depth,
        "n_head": settings.heads,
        "n_inner": settings.hidden or 4 * settings.width,
        "n_positions": signature.length,
        "vocab_size": signature.inputs,
        "tie_word_embeddings": True,
        "bos_token_id": None,
        "eos_token_id": None,
    }


def _vit_model(config: Config) -> Transformer:
    _refuse(config, qkv_bias=True)
    rows, left = divmod(config["image_size"], config["patch_size"])
    if left:
        raise ConfigError(f"patches of {config['patch_size']} do not cut images of {config['image_size']} pixels")
    settings = TransformerSettings(
        width=config["hidden_size"],
        depth=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        hidden=config["intermediate_size"],
        activation=_known(ACTIVATIONS, "hidden_act", config["hidden_act"]),
        norm=_known(NORMS, "layer_norm_eps", config["layer_norm_eps"]),
        readout="class",
    )
    inputs, outputs = config["num_channels"] * config["patch_size"] ** 2, len(config.get("id2label", (0, 1)))
    return Transformer(settings, Features(inputs, outputs, length=rows * rows, whole_graph=True))


def _vit_config(model: Transformer) -> dict[str, Any]:
    settings, signature = model.settings, model.signature
    _refuse_unusual(settings)
    rows = isqrt(signature.length or 0)
    sizes = {c: isqrt(signature.inputs // c) for c in (1, 3) if signature.inputs % c == 0}
    channels = next((c for c, size in sizes.items() if c * size * size == signature.inputs), None)
    images = settings.readout == "class" and isinstance(signature, Features) and rows * rows == signature.length
    if channels is None or not images:
        raise ConfigError("ViT reads square patches of square images, grey or of three colours, with readout='class'")
    return {
        "architectures": ["ViTForImageClassification"],
        "model_type": "vit",
        "hidden_act": _named(ACTIVATIONS, settings.activation, "activation"),
        "layer_norm_eps": _named(NORMS, settings.norm, "norm"),
        "hidden_size": settings.width,
        "num_hidden_layers": settings.depth,
        "num_attention_heads": settings.heads,
        "intermediate_size": settings.hidden or 4 * settings.width,
        "image_size": rows * sizes[channels],
        "patch_size": sizes[channels],
        "num_channels": channels,
        "qkv_bias": True,
        "id2label": {str(number): f"LABEL_{number}" for number in range(signature.outputs)},
        "label2id": {f"LABEL_{number}": number for number in range(signature.outputs)},
    }


def _bert_model(config: Config) -> BERT:
    _refuse(config, position_embedding_type="absolute", is_decoder=False, add_cross_attention=False)
    _refuse(config, tie_word_embeddings=True)
    texts = "BertForSequenceClassification" in config.get("architectures", ())
    settings = BERTSettings(
        width=config["hidden_size"],
        depth=config["num_hidden_layers"],
        heads=config["num_attention_heads"],
        hidden=config["intermediate_size"],
        activation=_known(ACTIVATIONS, "hidden_act", config["hidden_act"]),
        norm=_known(NORMS, "layer_norm_eps", config["layer_norm_eps"]),
        readout="first" if texts else "none",
    )
    tokens, length = config["vocab_size"], config["max_position_embeddings"]
    outputs = len(config.get("id2label", (0, 1))) if texts else tokens
    return BERT(settings, Tokens(tokens, outputs, length=length, whole_graph=texts))


def _bert_config(model: BERT) -> dict[str, Any]:
    settings, signature = model.settings, model.signature
    if settings.readout not in ("none", "first"):
        raise ConfigError(f"BERT reads a text by its first token, readout='first', not {settings.readout!r}")
    head = "ForSequenceClassification" if signature.whole_graph else "ForMaskedLM"
    labels = range(signature.outputs if signature.whole_graph else 2)
    return {
        "architectures": [f"Bert{head}"],
        "model_type": "bert",
        "hidden_act": _named(ACTIVATIONS, settings.activation, "activation"),
        "layer_norm_eps": _named(NORMS, settings.norm, "norm"),
        "hidden_size": settings.width,
        "num_hidden_layers": settings.depth,
        "num_attention_heads": settings.heads,
        "intermediate_size": settings.hidden or 4 * settings.width,
        "hidden_dropout_prob": settings.dropout,
        "attention_probs_dropout_prob": settings.dropout,
        "max_position_embeddings": signature.length,
        "type_vocab_size": 1,
        "vocab_size": signature.inputs,
        "pad_token_id": None,
        "id2label": {str(number): f"LABEL_{number}" for number in labels},
        "label2id": {f"LABEL_{number}": number for number in labels},
    }


ARCHITECTURES: dict[str, Architecture] = {
    "gpt2": Architecture(
        prefix="transformer.",
        whole=(
            Part("embed.weight", ("transformer.wte.weight",)),
            Part("positions.weight", ("transformer.wpe.weight",)),
            *_pair("norm", "transformer.ln_f"),
        ),
        block=(
            *_pair("blocks.{}.norm_1", "transformer.h.{}.ln_1"),
            *_transposed("blocks.{}.attention.projection", "transformer.h.{}.attn.c_attn"),
            *_transposed("blocks.{}.attention.output", "transformer.h.{}.attn.c_proj"),
            *_pair("blocks.{}.norm_2", "transformer.h.{}.ln_2"),
            *_transposed("blocks.{}.feed_forward.up", "transformer.h.{}.mlp.c_fc"),
            *_transposed("blocks.{}.feed_forward.down", "transformer.h.{}.mlp.c_proj"),
        ),
        model=_gpt2_model,
        config=_gpt2_config,
        spare=(".attn.bias", ".attn.masked_bias", "lm_head.weight"),
    ),
    "vit": Architecture(
        prefix="vit.",
        whole=(
            Part(
                "class_node",
                ("vit.embeddings.cls_token",),
                lambda found: found[0].flatten(),
                lambda node, config: (node.view(1, 1, -1),),
            ),
            Part(
                "embed.weight",
                ("vit.embeddings.patch_embeddings.projection.weight",),
                lambda found: found[0].flatten(1),
                lambda weight, config: (
                    weight.unflatten(1, (config["num_channels"], config["patch_size"], config["patch_size"])),
                ),
            ),
            Part("embed.bias", ("vit.embeddings.patch_embeddings.projection.bias",)),
            Part(
                "positions.weight",
                ("vit.embeddings.position_embeddings",),
                lambda found: found[0][0],
                lambda weight, config: (weight[None],),
            ),
            *_pair("norm", "vit.layernorm"),
            *_pair("head", "classifier"),
        ),
        block=(
            *_pair("blocks.{}.norm_1", "vit.encoder.layer.{}.layernorm_before"),
            *_stacked(
                "blocks.{}.attention.projection",
                [f"vit.encoder.layer.{{}}.attention.attention.{name}" for name in ("query", "key", "value")],
            ),
            *_pair("blocks.{}.attention.output", "vit.encoder.layer.{}.attention.output.dense"),
            *_pair("blocks.{}.norm_2", "vit.encoder.layer.{}.layernorm_after"),
            *_pair("blocks.{}.feed_forward.up", "vit.encoder.layer.{}.intermediate.dense"),
            *_pair("blocks.{}.feed_forward.down", "vit.encoder.layer.{}.output.dense"),
        ),
        model=_vit_model,
        config=_vit_config,
        spare=(),
    ),
    "bert": Architecture(
        prefix="bert.",
        whole=(
            Part("embed.weight", ("bert.embeddings.word_embeddings.weight",)),
            Part(
                "positions.weight",
                ("bert.embeddings.position_embeddings.weight", "bert.embeddings.token_type_embeddings.weight"),
                lambda found: found[0] + found[1][0],  # every text here is a first segment
                lambda weight, config: (weight, torch.zeros(config["type_vocab_size"], weight.shape[1])),
            ),
            *_pair("norm", "bert.embeddings.LayerNorm"),
            *_pair("readout.dense", "bert.pooler.dense"),
            *_pair("head", "classifier"),
            *_pair("masked.dense", "cls.predictions.transform.dense"),
            *_pair("masked.norm", "cls.predictions.transform.LayerNorm"),
            Part("masked.bias", ("cls.predictions.bias",)),
        ),
        block=(
            *_stacked(
                "blocks.{}.attention.projection",
                [f"bert.encoder.layer.{{}}.attention.self.{name}" for name in ("query", "key", "value")],
            ),
            *_pair("blocks.{}.attention.output", "bert.encoder.layer.{}.attention.output.dense"),
            *_pair("blocks.{}.norm_1", "bert.encoder.layer.{}.attention.output.LayerNorm"),
            *_pair("blocks.{}.feed_forward.up", "bert.encoder.layer.{}.intermediate.dense"),
            *_pair("blocks.{}.feed_forward.down", "bert.encoder.layer.{}.output.dense"),
            *_pair("blocks.{}.norm_2", "bert.encoder.layer.{}.output.LayerNorm"),
        ),
        model=_bert_model,
        config=_bert_config,
        spare=(".position_ids", "cls.", "bert.pooler.", "classifier."),
    ),
}


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
    config = _read_config(folder)
    kind = _known(ARCHITECTURES, "model_type", config.get("model_type"))
    try:
        model = kind.model(config)
    except (KeyError, TypeError) as error:
        raise ConfigError(f"{folder / 'config.json'} lacks or garbles an option: {error}") from error
    found = {_with_prefix(name, kind): tensor for name, tensor in _read_tensors(folder).items()}
    own, weights = model.state_dict(), {}
    for part in kind.parts(model.settings.depth):
        optional = part.ours.startswith(("head.", "masked.", "readout."))
        if part.ours not in own or (optional and not any(name in found for name in part.theirs)):
            continue
        for name in part.theirs:
            if name not in found:
                raise CheckpointError(f"{folder} lacks the weight {name!r}")
        value = part.read([found.pop(name) for name in part.theirs])
        if value.shape != own[part.ours].shape:
            shapes = f"{list(value.shape)} instead of {list(own[part.ours].shape)}"
            raise CheckpointError(f"{folder}: {' and '.join(part.theirs)} give {part.ours!r} the shape {shapes}")
        weights[part.ours] = value
    left = [name for name in found if not any(spare in name for spare in kind.spare)]
    if left:
        raise CheckpointError(f"{folder} holds weights that this model has no place for: {', '.join(sorted(left)[:5])}")
    model.load_state_dict(own | weights)
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


def download(name: str, revision: str, folder: Path | str) -> Path:
    """Fetch a model from the Hugging Face hub into a folder, over TLS, each file of weights verified by its sha256.

    Args:
        name: The model's name there, such as "openai-community/gpt2".
        revision: The commit to fetch, 40 hexadecimal digits: a branch may hold other weights tomorrow.
        folder: Where to put `config.json` and the safetensors.

    Errors      ConfigError without the library `huggingface_hub` or for a revision that is no commit; DataError for a
                file whose hash is another one, which is removed
    """
    try:
        from huggingface_hub import HfApi, hf_hub_download
    except ImportError as error:
        raise ConfigError("downloading from the hub needs huggingface_hub: pip install 'edgewise[hub]'") from error
    if len(revision) != 40 or not set(revision) <= set("0123456789abcdef"):
        raise ConfigError(f"revision must be a commit of 40 hexadecimal digits, not {revision!r}")
    listed = HfApi().model_info(name, revision=revision, files_metadata=True).siblings or []
    hashes = {
        file.rfilename: file.lfs.sha256 if file.lfs else None
        for file in listed
        if file.rfilename in ("config.json", "model.safetensors.index.json") or _is_plain(file.rfilename)
    }
    for file, expected in hashes.items():
        if expected is None and file.endswith(".safetensors"):
            raise DataError(f"{name}: the hub gives no sha256 for {file}")
        path = Path(hf_hub_download(name, file, revision=revision, local_dir=folder))
        with path.open("rb") as content:
            if expected is not None and hashlib.file_digest(content, "sha256").hexdigest() != expected:
                path.unlink()
                raise DataError(f"{path}: its sha256 is not {expected}, as the hub says: it was removed")
    return Path(folder)


def _read_config(folder: Path) -> Config:
    path = folder / "config.json"
    try:
        if path.stat().st_size > LARGEST:
            raise DataError(f"{path} is larger than {LARGEST >> 20} MiB")
        config = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise DataError(f"{path}: cannot be read as a configuration ({reason})") from error
    if not isinstance(config, dict):
        raise DataError(f"{path}: a configuration is a JSON object, not {type(config).__name__}")
    return config


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    files = ["model.safetensors"]
    index = folder / "model.safetensors.index.json"
    try:
        if index.exists():
            files = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
        if not all(isinstance(file, str) and _is_plain(file) for file in files):
            raise DataError(f"{index} names something else than safetensors beside it")
        return {name: tensor for file in files for name, tensor in load_file(folder / file).items()}
    except FileNotFoundError as error:
        unread = "; pytorch_model.bin is a pickle, which is never read: convert it" if any(folder.glob("*.bin")) else ""
        raise DataError(f"{folder} holds no {' and '.join(map(str, files))}{unread}") from error
    except (OSError, SafetensorError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DataError(f"the weights in {folder} cannot be read: {error}") from error


def _is_plain(file: str) -> bool:
    return file.endswith(".safetensors") and Path(file).name == file and "\\" not in file


def _with_prefix(name: str, kind: Architecture) -> str:
    heads = ("classifier.", "lm_head.", "cls.")
    name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")  # old files
    return name if name.startswith((kind.prefix, *heads)) else kind.prefix + name


def _refuse_unusual(settings: TransformerSettings) -> None:
    plain = settings.order == "pre" and settings.positions == "learned" and settings.attention == "softmax"
    if not plain or not settings.bias or settings.key_value_heads not in (None, settings.heads):
        raise ConfigError(
            "their layout has pre-norm blocks with biases, learned positions and as many keys as queries: this model "
            "has others"
        )


def _known(table: Mapping[Any, Any], option: str, value: Any) -> Any:
    if value not in table:
        raise ConfigError(f"{option} {value!r} has no counterpart here: known are {', '.join(map(str, table))}")
    return table[value]


def _named(table: Mapping[Any, str], ours: str, option: str) -> Any:
    for theirs, name in table.items():
        if name == ours:
            return theirs
    raise ConfigError(f"{option}={ours!r} has no counterpart there: known are {', '.join(table.values())}")


def _refuse(config: Config, **expected: Any) -> None:
    for option, value in expected.items():
        if config.get(option, value) != value:
            raise ConfigError(f"{option} {config[option]!r} has no counterpart here: only {value!r} has")
