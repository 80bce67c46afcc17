"""Weights of others: folders in the layout of Hugging Face, read into our models and written from them.

A folder in that layout holds `config.json` and the weights as safetensors, in one file or in several with an index.
Files of pickled tensors (`pytorch_model.bin`) are not read: to read them is to run what they say.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import isqrt
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Choice
from edgewise.errors import CheckpointError, ConfigError, DataError, a_kind
from edgewise.files import check_header, holds, read_json, reading
from edgewise.graphs import Graph
from edgewise.kernels.operator.layout import widened
from edgewise.models.hub.architectures import (
    ARCHITECTURES,
    Architecture,
    Config,
    Part,
    is_plain,
    known,
    reach_of,
    refuse,
)
from edgewise.models.signature import Tokens
from edgewise.models.size import build, outline
from edgewise.models.text.bert import BERT
from edgewise.models.text.encoder_decoder import EncoderDecoder
from edgewise.models.text.transformer import Transformer
from edgewise.models.vision.swin import Swin

CONFIG = "config.json"
LARGEST = 1 << 20  # bytes of a configuration
EMBEDDING, POSITIONS = "embed.weight", "positions.weight"
HEADS = ("head.", "masked.", "readout.")
Made = Callable[[], Tensor]
Extension = Literal["interpolated", "repeated"]


@dataclass(frozen=True)
class Pretrained:
    """A folder's model: what it is, and where its weights lie.

    Symbols     written = the configuration that the weights fit; config = the same, or one of another length
    """

    folder: Path
    kind: Architecture
    written: Config
    config: Config

    @classmethod
    def open(cls, folder: Path | str) -> Pretrained:
        """Read a folder's configuration."""
        path = Path(folder) / CONFIG
        if not path.parent.is_dir():
            raise DataError(f"no folder {folder}: give a folder; `edgewise.models.hub.download.download` fetches one")
        config = read_json(path, "a model's configuration", LARGEST)
        if not isinstance(config, dict):
            raise DataError(f"{path}: a configuration is a JSON object, not {type(config).__name__}")
        architecture = known(ARCHITECTURES, "model_type", config.get("model_type"))
        refuse(config, quantization_config=None)
        return cls(path.parent, architecture, config, config)

    def make(self) -> Any:
        """The model, with weights drawn; its `window` is that of its graph, which `to_hugging_face` writes."""
        model = self.kind.model(self.config)
        model.window = reach_of(self.kind.graph(self.config))
        return model

    @cached_property
    def outline(self) -> Any:
        """The model without values."""
        path = self.folder / CONFIG
        with reading(path, "a model's configuration", ConfigError):
            try:
                return outline(self.make, f"the model of {path}")
            except ConfigError as error:
                raise ConfigError(f"{path}: {error}") from error

    def of_length(self, length: int, extend: Extension | None) -> Pretrained:
        """The same with another number of positions."""
        longer = self.kind.longer(self.config, length)
        if not longer:
            raise ConfigError(f"{self.folder}: this model reads any length: leave out length={length}")
        if length < 1 or (self.kind.plane and isqrt(length) ** 2 != length):
            raise ConfigError(f"length={length} is no square number of patches, or below 1")
        if "rope_parameters" in longer and extend != "interpolated":
            raise ConfigError("rotary positions have no table: extend='interpolated' divides them")
        return replace(self, config={**self.config, **longer})

    def weights(self, model: nn.Module, extend: Extension | None = None, exact: bool = True) -> dict[str, Made]:
        """What makes each weight of a model; where the model need not be `exact`ly this one, of those that fit it.

        Errors      CheckpointError for a tensor that is missing, left over or misshapen; ConfigError for a model that
                    has more positions, without `extend`
        """
        own, known_here = model.state_dict(), self.outline.state_dict()
        given = self._given()
        parts = [part for part in self.kind.parts(self.outline.settings) if part.ours in known_here]
        self._untie(parts, given)
        there = {""} | {_head(part) for part in parts if any(name in given for name in part.theirs)}
        made: dict[str, Made] = {}
        for part in parts:
            if _head(part) not in there:
                continue
            if absent := [name for name in part.theirs if name not in given]:
                raise CheckpointError(f"{self.folder} lacks the weight {absent[0]!r}")
            theirs = [given.pop(name) for name in part.theirs]
            if others := [t.dtype for t in theirs if not t.is_floating_point()]:
                what = f"{' and '.join(part.theirs)}: weights are floating-point numbers"
                raise CheckpointError(f"{self.folder}: {what}, not {str(others[0]).removeprefix('torch.')}")
            shape = self._shape(part, theirs)
            if part.ours not in own:
                continue
            wanted = own[part.ours].shape
            make = partial(_read, part, theirs, self.written)
            if part.ours.endswith(POSITIONS) and shape != wanted and (self.config != self.written or not exact):
                made[part.ours] = self._resized(make, shape, wanted, extend)
            elif shape == wanted:
                made[part.ours] = make
            elif exact:
                found = f"{list(shape)} instead of {list(wanted)}"
                raise CheckpointError(
                    f"{self.folder}: {' and '.join(part.theirs)} give {part.ours!r} the shape {found}"
                )
        full = [name for name in self.kind.zero if given.pop(name, torch.zeros(())).any()]
        left = full + [name for name in given if not any(spare in name for spare in self.kind.spare)]
        if left:
            names = ", ".join(sorted(left)[:5])
            raise CheckpointError(f"{self.folder} holds weights that this model has no place for: {names}")
        return made

    def _given(self) -> dict[str, Tensor]:
        """The folder's tensors by the names that they have inside a model with a head."""
        given, written = dict[str, Tensor](), dict[str, str]()
        for own, tensor in _read_tensors(self.folder).items():
            name = _with_prefix(own, self.kind)
            if name in given:
                raise CheckpointError(f"{self.folder} holds {written[name]!r} and {own!r}, which are one weight here")
            given[name], written[name] = tensor, own
        return given

    def _untie(self, parts: Sequence[Part], given: dict[str, Tensor]) -> None:
        """Leave each tied weight under its first name: it is written once, or several times as the same numbers."""
        used = {name for part in parts for name in part.theirs}
        for part in parts:
            name = part.theirs[0]
            for copy in set(part.copies) & given.keys() - used:
                if not torch.equal(given.setdefault(name, given[copy]), given[copy]):
                    untie = f": set tie_word_embeddings to false in {CONFIG}" if copy == "lm_head.weight" else ""
                    raise CheckpointError(
                        f"{self.folder}: {copy!r} and {name!r} are one weight here, but differ{untie}"
                    )
                del given[copy]

    def _shape(self, part: Part, theirs: Sequence[Tensor]) -> torch.Size:
        """The shape that a part will have, before anything is copied."""
        with reading(self.folder, f"a model: {' and '.join(part.theirs)} do not fit one another", CheckpointError):
            return part.read([tensor.to("meta") for tensor in theirs], self.written).shape

    def _resized(self, make: Made, shape: torch.Size, wanted: torch.Size, extend: Extension | None) -> Made:
        """A table of positions with other rows."""
        front = int(self.kind.plane)  # the class node's
        given, needed = shape[0] - front, wanted[0] - front
        if shape[1:] != wanted[1:]:
            raise CheckpointError(f"{self.folder}: positions of shape {list(shape)} do not make {list(wanted)}")
        if extend is None and (needed > given or self.kind.plane):
            how = "'interpolated' or 'repeated'"
            raise ConfigError(f"{self.folder} has {given} positions, and {needed} are needed: extend them, {how}")
        resize = resized_plane if self.kind.plane else resized

        def build() -> Tensor:
            table = make()
            return torch.cat([table[:front], resize(table[front:], needed, extend)])

        return build


def _head(part: Part) -> str:
    """Of which head, if any, a part is: a folder may lack it as a whole."""
    return next((head for head in HEADS if part.ours.startswith(head)), "")


def _read(part: Part, theirs: Sequence[Tensor], config: Config) -> Tensor:
    """One of our tensors; of half precisions it is computed in float32, and rounded to the model's type alone."""
    return part.read([widened(tensor) for tensor in theirs], config)


def resized(table: Tensor, length: int, extend: Extension | None) -> Tensor:
    """A table of positions [P, C] with `length` rows: the first ones, or more, interpolated among them or repeated.

    Edge cases  interpolated, the first and the last row stay the first and the last
    """
    if length <= len(table):
        return table[:length]
    if extend == "repeated":
        return table[torch.arange(length) % len(table)]
    return functional.interpolate(table.T[None], size=length, mode="linear", align_corners=True)[0].T


def resized_plane(table: Tensor, length: int, extend: Extension | None) -> Tensor:
    """The same for the rows of a square: interpolated in both directions (bicubic), or repeated."""
    old, new = isqrt(len(table)), isqrt(length)
    plane = table.unflatten(0, (old, old))
    if extend == "repeated":
        place = torch.arange(new) % old
        return plane[place][:, place].flatten(0, 1)
    channels = functional.interpolate(plane.permute(2, 0, 1)[None], size=(new, new), mode="bicubic")
    return channels[0].permute(1, 2, 0).flatten(0, 1)


def _read_tensors(folder: Path) -> dict[str, Tensor]:
    """All tensors, mapped: their values are read where they are used."""
    files, index, listed = ["model.safetensors"], folder / "model.safetensors.index.json", dict[str, Any]()
    if index.exists() and not holds(folder, files[0]):  # transformers prefers the one file, too
        content = read_json(index, "an index of safetensors")
        with reading(index, "an index of safetensors"):
            listed = dict(content["weight_map"])
            files = sorted(set(listed.values()))
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
            found = load_file(folder / file)
        if twice := sorted(found.keys() & tensors.keys()):
            raise CheckpointError(f"{folder}: {file} holds the weight {twice[0]!r}, as another file does")
        tensors |= found
    if lacking := sorted(listed.keys() - tensors.keys()):
        raise CheckpointError(f"{folder}: {listed[lacking[0]]} lacks the weight {lacking[0]!r}, which the index lists")
    return tensors


def _with_prefix(name: str, kind: Architecture) -> str:
    heads = ("classifier.", "lm_head.", "score.", "cls.", *kind.zero)
    name = name.replace("LayerNorm.gamma", "LayerNorm.weight").replace("LayerNorm.beta", "LayerNorm.bias")  # old files
    return name if name.startswith((kind.prefix, *heads)) else kind.prefix + name


def from_hugging_face(
    folder: Path | str, *, length: int | None = None, extend: Extension | None = None
) -> Transformer | BERT | EncoderDecoder | Swin:
    """A model with the settings and weights of a folder in the layout of Hugging Face.

    Symbols     length = positions that the model is to have, where other than those of the folder; extend = where the
                positions beyond those come from: "interpolated" among them, or "repeated"
    Shapes      GPT-2, LLaMA, Mistral, Qwen 2 and 3 and Gemma 1 to 3 read tokens on `causal(n)`, BERT and RoBERTa on
                `complete(n)`; ViT and Swin read patches [*, N, colours · rows · columns] on `complete(N)`; T5 and BART
                read sources and targets on an `EncoderDecoderGraph`. One output of a whole text or image is
                [*, 1, labels]. `hugging_face_graph(folder)` knows the folder's own window
    Errors      DataError for a folder without `config.json` and safetensors; ConfigError for another model or one that
                has an option that ours has not, or more positions without `extend`; CheckpointError for a tensor that
                is missing, left over, misshapen or of whole numbers, or that contradicts another of the same weight
    Edge cases  names with or without the prefix of the bare model; a head of which the folder has nothing keeps its own
                weights; BERT has the head that the folder's `architectures` name, else that for masked tokens. Its
                second segment and next-sentence head are left out. Fewer positions are the first ones. Rotary positions
                are interpolated by dividing them; T5 has no largest length. The model has the type of the folder's
                weights, which are computed in float32 and rounded once
    Reference   Radford et al., 2019; Dosovitskiy et al., 2021; Devlin et al., 2019; Liu et al., 2019; Touvron et al.,
                2023; Jiang et al., 2023; Raffel et al., 2020; layout: the library `transformers`
    """
    given = Pretrained.open(folder)
    if extend is not None and length is None:
        raise ConfigError(f"extend={extend!r} needs the length to extend to")
    if length is not None:
        given = given.of_length(length, extend)
    weights = given.weights(given.outline, extend)
    model: Transformer | BERT | EncoderDecoder | Swin = build(given.make, str(given.folder / CONFIG))
    types = {tensor.dtype for tensor in _read_tensors(given.folder).values() if tensor.is_floating_point()}
    model.to(types.pop() if len(types) == 1 else torch.float32)
    model.load_state_dict(model.state_dict() | {name: make() for name, make in weights.items()})
    return model.eval()


def hugging_face_graph(folder: Path | str) -> Callable[[int], Graph]:
    """Who attends to whom in a folder's model: `hugging_face_graph(folder)(n)` is the graph of n tokens or patches.

    Errors      as `from_hugging_face`
    """
    given = Pretrained.open(folder)
    return given.kind.graph(given.config)


def to_hugging_face(
    model: Transformer | BERT | EncoderDecoder | Swin, folder: Path | str, kind: str | None = None
) -> None:
    """Write a model as a folder that the library `transformers` reads.

    Symbols     kind = the folder's model_type, such as "roberta" or "qwen2"; None: the likeliest for the model; its
                `model.window`, where `from_hugging_face` or its user set one, is how many tokens each attends to
    Errors      ConfigError for a model that is none of that kind, or a folder that holds a model already; nothing is
                written
    Edge cases  biases that the layout has and the model lacks are written as zeros
    """
    folder = Path(folder)
    if (folder / CONFIG).exists():
        raise ConfigError(f"{folder} holds a model already: name a new folder")
    architecture = known(ARCHITECTURES, "kind", _kind_of(model) if kind is None else kind)
    with reading(a_kind(model), f"a model of kind {kind!r}", ConfigError):
        config = architecture.config(model)
        theirs = outline(lambda: architecture.model(config), "the model of that layout").state_dict()
    own, tensors = model.state_dict(), dict[str, Tensor]()
    dtype = own[EMBEDDING].dtype
    for part in architecture.parts(model.settings):
        if part.ours not in theirs and part.ours not in own:
            continue
        if part.ours not in own and not part.ours.endswith(".bias"):
            raise ConfigError(f"this model lacks {part.ours!r}, which that layout has")
        ours = own[part.ours].detach().cpu() if part.ours in own else torch.zeros(theirs[part.ours].shape)
        values = part.write(widened(ours), config)
        tensors |= {name: value.to(dtype).contiguous() for name, value in zip(part.theirs, values, strict=True)}
    config["dtype"] = str(dtype).removeprefix("torch.")
    folder.mkdir(parents=True, exist_ok=True)
    save_file({name: value.clone() for name, value in tensors.items()}, folder / ".writing", {"format": "pt"})
    (folder / ".writing").replace(folder / "model.safetensors")
    (folder / ".writing").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    (folder / ".writing").replace(folder / CONFIG)


def _kind_of(model: Transformer | BERT | EncoderDecoder | Swin) -> str:
    if isinstance(model, BERT):
        return "bert"
    if isinstance(model, Swin):
        return "swin"
    if isinstance(model, EncoderDecoder):
        return "bart" if Choice.of(model.settings.positions).name == "learned" else "t5"
    if not isinstance(model.signature, Tokens):
        return "vit"
    if Choice.of(model.settings.positions).name != "rotary":
        return "gpt2"
    options = Choice.of(model.settings.attention).options
    if Choice.of(model.settings.block).name == "sandwich":
        return "gemma3_text" if options.get("normed") else "gemma2"
    if options.get("normed"):
        return "qwen3"
    if getattr(model, "window", None) is not None:
        return "mistral"
    return "qwen2" if options.get("inputs_bias") and not options.get("output_bias") else "llama"
