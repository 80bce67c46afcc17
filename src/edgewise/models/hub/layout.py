"""How a model is written in the layout of Hugging Face and here: names of tensors and of options, and their maps."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from edgewise.configuration import Choice, chosen
from edgewise.errors import ConfigError
from edgewise.graphs import Graph, complete
from edgewise.models.parts import BLOCKS, PreNorm
from edgewise.models.text.encoder_decoder import EncoderDecoderSettings
from edgewise.models.text.transformer import TransformerSettings

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Part:
    """One of our tensors and the tensors of theirs that it is made of, by name, {} being a block's number; `read` makes
    ours from theirs and their configuration, and `write` theirs from ours and their configuration. `copies` are other
    names of the first one, where it is tied: a file may have it under any of them."""

    ours: str
    theirs: tuple[str, ...]
    read: Callable[[Sequence[Tensor], Config], Tensor] = lambda theirs, config: theirs[0]
    write: Callable[[Tensor, Config], Sequence[Tensor]] = lambda ours, config: (ours,)
    copies: tuple[str, ...] = ()

    def block(self, number: int) -> Part:
        """The same part of one block."""
        return replace(self, ours=self.ours.format(number), theirs=tuple(t.format(number) for t in self.theirs))


def pair(ours: str, theirs: str) -> tuple[Part, Part]:
    """A weight and its bias."""
    return Part(f"{ours}.weight", (f"{theirs}.weight",)), Part(f"{ours}.bias", (f"{theirs}.bias",))


def transposed(ours: str, theirs: str) -> tuple[Part, Part]:
    """The same where they multiply from the right."""
    weight, bias = pair(ours, theirs)
    return replace(weight, read=lambda theirs, config: theirs[0].T, write=lambda weight, config: (weight.T,)), bias


def stacked(ours: str, theirs: Sequence[str]) -> tuple[Part, Part]:
    """Several linear maps that are one here."""
    weight, bias = (
        Part(
            f"{ours}.{part}",
            tuple(f"{name}.{part}" for name in theirs),
            lambda theirs, config: torch.cat(list(theirs)),
            lambda x, config: x.chunk(len(theirs)),
        )
        for part in ("weight", "bias")
    )
    return weight, bias


def grouped(ours: str, theirs: Sequence[str]) -> tuple[Part, Part]:
    """Queries, keys and values that are one linear map here, where several heads may share keys and values."""

    def write(x: Tensor, config: Config) -> Sequence[Tensor]:
        heads, shared = config["num_attention_heads"], config["num_key_value_heads"]
        channels = len(x) // (heads + 2 * shared)
        return x.split([heads * channels, shared * channels, shared * channels])

    weight, bias = stacked(ours, theirs)
    return replace(weight, write=write), replace(bias, write=write)


def embedded(ours: str, theirs: str, segments: str, padded: bool = False) -> tuple[Part, ...]:
    """Learned positions, to which the embedding of the first segment is added: every text here is one. Where they are
    `padded`, position 0 comes after the row of the token that pads."""

    def skipped(config: Config) -> int:
        return config["pad_token_id"] + 1 if padded else 0

    def write(weight: Tensor, config: Config) -> Sequence[Tensor]:
        front = torch.zeros(skipped(config), weight.shape[1])
        return torch.cat([front, weight]), torch.zeros(config["type_vocab_size"], weight.shape[1])

    names = (f"{theirs}.weight", f"{segments}.weight")
    return (Part(f"{ours}.weight", names, lambda theirs, c: theirs[0][skipped(c) :] + theirs[1][0], write),)


@dataclass(frozen=True)
class Architecture:
    """How one kind of model is written there and here.

    The names of the bare model begin with `prefix` inside a model with a head. The tensors are those outside the
    blocks, of all heads that there are, and those of one block of each stack, by the setting that says how many blocks
    it has. `spare` is what names of tensors contain that ours has no use for: old masks, and what only another head
    reads. `graph` says who attends to whom, and `longer` what their options are
    for more positions; those of a `plane` are of a square of patches, after the class node's."""

    prefix: str
    whole: tuple[Part, ...]
    blocks: Mapping[str, tuple[Part, ...]]
    model: Callable[[Config], Any]
    config: Callable[[Any], dict[str, Any]]
    spare: tuple[str, ...]
    graph: Callable[[Config], Callable[[int], Graph]] = lambda config: complete
    longer: Callable[[Config, int], dict[str, Any]] = lambda config, length: {"max_position_embeddings": length}
    plane: bool = False

    def parts(self, settings: Any) -> list[Part]:
        """All tensors of a model with those settings."""
        stacks = ((range(getattr(settings, depth)), block) for depth, block in self.blocks.items())
        return [*self.whole, *(part.block(n) for numbers, block in stacks for n in numbers for part in block)]


TABLES: dict[str, Mapping[Any, str]] = {
    "activation": dict.fromkeys(("gelu_new", "gelu_pytorch_tanh"), "gelu-tanh")
    | {name: name for name in ("gelu", "relu", "silu")},
    "norm": {1e-5: "layer", 1e-12: "fine-layer"},
}
OPTIONS = {  # what our settings are called in the configuration of an encoder
    "width": "hidden_size",
    "depth": "num_hidden_layers",
    "heads": "num_attention_heads",
    "hidden": "intermediate_size",
    "activation": "hidden_act",
    "norm": "layer_norm_eps",
}


def refuse_unusual(settings: TransformerSettings) -> None:
    block, attention = chosen("block", settings.block, BLOCKS)(), Choice.of(settings.attention)
    plain = type(block) is PreNorm and Choice.of(settings.positions) == Choice("learned")
    shared = attention.options.get("key_value_heads") not in (None, settings.heads)
    if not plain or attention.name != "softmax" or shared:
        theirs = "pre-norm blocks, learned positions and as many keys as queries"
        raise ConfigError(f"their layout has {theirs}: this model has others")


def known(table: Mapping[Any, Any], option: str, value: Any) -> Any:
    if value not in table:
        raise ConfigError(f"{option} {value!r} has no counterpart here: known are {', '.join(map(str, table))}")
    return table[value]


def named(table: Mapping[Any, str], ours: str, option: str) -> Any:
    for theirs, name in table.items():
        if name == ours:
            return theirs
    raise ConfigError(f"{option}={ours!r} has no counterpart there: known are {', '.join(table.values())}")


def refuse(config: Config, **expected: Any) -> None:
    for option, value in expected.items():
        if config.get(option, value) != value:
            raise ConfigError(f"{option} {config[option]!r} has no counterpart here: only {value!r} has")


def labelled(count: int) -> dict[str, dict[Any, Any]]:
    """The names of that many classes, both ways."""
    numbers = {f"LABEL_{number}": number for number in range(count)}
    return {"id2label": {str(number): name for name, number in numbers.items()}, "label2id": numbers}


def settings_from(
    config: Config, options: Mapping[str, str], tables: Mapping[str, Mapping[Any, str]] = TABLES
) -> dict[str, Any]:
    """What our settings are in their configuration; options = the names of ours there."""
    settings = {ours: config[theirs] for ours, theirs in options.items()}
    return settings | {name: known(table, options[name], settings[name]) for name, table in tables.items()}


def rates_from(config: Config, stages: str, attention: str, default: float) -> dict[str, float | None]:
    """Our two rates of dropout, by the names of theirs, which are the default where they are left out."""
    dropout, weights = (float(config.get(name, default)) for name in (stages, attention))
    return {"dropout": dropout, "attention_dropout": None if weights == dropout else weights}


def transformer_from(config: Config, options: Mapping[str, str], **others: Any) -> TransformerSettings:
    """The same for a transformer, whose parts have their own options."""
    settings, rate = settings_from(config, options), others.pop("attention_dropout", None)
    if rate is not None:
        others["attention"] = Choice("softmax", {"dropout": rate})
    feed_forward = Choice(settings.pop("activation"), {"hidden": settings.pop("hidden")})
    block = Choice("pre-norm", {"norm": settings.pop("norm")})
    return TransformerSettings(**settings, feed_forward=feed_forward, block=block, **others)


def options_from(
    settings: Any, options: Mapping[str, str], tables: Mapping[str, Mapping[Any, str]] = TABLES
) -> dict[str, Any]:
    """What their options are in our settings."""
    given = vars(settings)
    if isinstance(settings, TransformerSettings | EncoderDecoderSettings):
        feed_forward, block = Choice.of(settings.feed_forward), chosen("block", settings.block, BLOCKS)()
        given = given | {"hidden": feed_forward.options.get("hidden"), "norm": block.norm}
        given |= {"activation": feed_forward.name}
    given = {name: given[name] for name in options}
    given["hidden"] = given["hidden"] or 4 * settings.width
    given |= {name: named(table, given[name], name) for name, table in tables.items()}
    return {options[name]: value for name, value in given.items()}


def is_plain(file: str) -> bool:
    """Whether a name is that of a file of safetensors, and of no other folder."""
    return file.endswith(".safetensors") and Path(file).name == file and "\\" not in file
