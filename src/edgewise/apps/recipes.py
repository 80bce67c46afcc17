"""Recipes: YAML files that name a task, a graph, a model and how to train it; read as data, never as code."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from edgewise.errors import ConfigError, nearest

FOLDER = Path(__file__).parent.parent / "recipes"
SECTIONS = ("task", "graph", "model", "optimizer", "schedule", "train", "start")
LARGEST = 64 * 1024  # bytes

Value = str | int | float | bool | None | list[str | int | float | bool]


@dataclass(frozen=True)
class Recipe:
    """A recipe as it is written: its sections hold options by name, not yet checked against the tables."""

    name: str
    description: str
    system: tuple[str, ...]
    sections: Mapping[str, Mapping[str, Value]]


def names() -> list[str]:
    """The recipes that come with Edgewise."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def read(recipe: str) -> Recipe:
    """A packaged recipe by name, or a user's own by the path of its YAML file."""
    own = recipe.endswith((".yaml", ".yml")) or "/" in recipe
    if not own and recipe not in names():
        raise ConfigError(
            f"unknown recipe {recipe!r}{nearest(recipe, names())}; `edgewise list recipes` names them all"
        )
    path = Path(recipe) if own else FOLDER / f"{recipe}.yaml"
    return parse(path.stem, _text(path))


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a path"
        raise ConfigError(f"cannot read the recipe {str(path)!r}: {reason}") from error
    if len(data) > LARGEST:
        raise ConfigError(f"the recipe {str(path)!r} is larger than {LARGEST // 1024} KiB")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise ConfigError(
            f"the recipe {str(path)!r} is not UTF-8 text: byte {error.start} is {data[error.start]:#04x}"
        ) from error


def parse(name: str, text: str) -> Recipe:
    """A recipe from its YAML text. Values are scalars or flat lists of them; tags, aliases and nesting are refused."""
    try:
        content = yaml.load(text, Loader=_Loader)  # noqa: S506 (a SafeLoader)
    except yaml.YAMLError as error:
        raise ConfigError(f"the recipe {name!r} is not valid YAML: {' '.join(str(error).split())}") from error
    except (RecursionError, ValueError) as error:
        raise ConfigError(
            f"the recipe {name!r} is not valid YAML: it nests too deeply or holds an impossible value"
        ) from error
    if not isinstance(content, dict):
        raise ConfigError(f"the recipe {name!r} must be a mapping with the sections {', '.join(SECTIONS)}")
    known = ("description", "system", *SECTIONS)
    for key in content:
        if key not in known:
            raise ConfigError(
                f"the recipe {name!r} has an unknown section {key!r}{nearest(key, known)}; known are {', '.join(known)}"
            )
    description = content.pop("description", "")
    system = content.pop("system", [])
    if not isinstance(description, str):
        raise ConfigError(f"the description of the recipe {name!r} must be text, not {_kind(description)}")
    if not isinstance(system, list) or not all(isinstance(row, str) for row in system):
        raise ConfigError(f"`system` of the recipe {name!r} must be a list of identifiers such as [B5, G5]")
    sections = {section: _options(name, section, options) for section, options in content.items()}
    return Recipe(name, " ".join(description.split()), tuple(system), sections)


def _options(name: str, section: str, options: object) -> dict[str, Value]:
    if not isinstance(options, dict):
        raise ConfigError(
            f"the section {section!r} of the recipe {name!r} must hold options by name, not {_kind(options)}"
        )
    for key, value in options.items():
        if not isinstance(key, str):
            raise ConfigError(
                f"the section {section!r} of the recipe {name!r} has a key that is {_kind(key)}, not a name"
            )
        for part in value if isinstance(value, list) else (value,):
            if not isinstance(part, str | int | float | bool | None):
                raise ConfigError(
                    f"{section}.{key} of the recipe {name!r} must be one value or a flat list, not {_kind(part)}"
                )
            if isinstance(part, float) and not math.isfinite(part):
                raise ConfigError(f"{section}.{key} of the recipe {name!r} is {part}; it must be finite")
    return options


def _kind(value: object) -> str:
    """What a value is, without writing it out: it may be huge."""
    kinds = {dict: "a mapping", list: "a list", type(None): "nothing", bool: "true or false", str: "text"}
    return kinds.get(type(value), f"a {type(value).__name__}")


class _Loader(yaml.SafeLoader):
    """Safe YAML without two of its traps: a key given twice, and aliases (which can grow without bound)."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        if self.check_event(yaml.AliasEvent):
            raise yaml.YAMLError("a recipe may not use aliases (*name)")
        return super().compose_node(parent, index)

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Hashable, Any]:
        keys = [(key.value, key.start_mark) for key, _ in node.value if isinstance(key, yaml.ScalarNode)]
        for number, (key, mark) in enumerate(keys):
            if key in (earlier for earlier, _ in keys[:number]):
                raise yaml.constructor.ConstructorError(None, None, f"{key!r} is given twice", mark)
        return super().construct_mapping(node, deep)
