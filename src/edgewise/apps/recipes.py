"""Recipes, YAML files that name a task, a graph, a model and how to train it, read as data;
and the systems that work here, from `systems.tsv`: each has its code, its test and its recipe."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from edgewise.configuration import parse_yaml, read_yaml
from edgewise.errors import ConfigError, nearest

FOLDER = Path(__file__).parent.parent / "recipes"
SECTIONS = ("task", "graph", "model", "start", "optimizer", "schedule", "train", "evaluation", "machine")
LARGEST = 64 * 1024  # bytes


@dataclass(frozen=True)
class Recipe:
    """A recipe as it is written: its sections hold options by name, not yet checked against the tables."""

    name: str
    description: str
    system: tuple[str, ...]
    sections: Mapping[str, Any]


def names() -> list[str]:
    """The recipes that come with Edgewise."""
    return sorted(path.stem for path in FOLDER.glob("*.yaml"))


def described() -> dict[str, str]:
    """The recipes that come with Edgewise, each with its description, the first line of its file."""
    texts = {name: (FOLDER / f"{name}.yaml").read_text(encoding="utf-8") for name in names()}
    return {name: parse(name, text.partition("\n")[0]).description for name, text in texts.items()}


def read(recipe: str) -> Recipe:
    """A packaged recipe by name, or a user's own by the path of its YAML file."""
    own = recipe.endswith((".yaml", ".yml")) or "/" in recipe
    if not own and recipe not in names():
        if found := of_task(recipe):
            raise ConfigError(f"{recipe!r} is a task, and no recipe: `edgewise train {found}` trains on it")
        raise ConfigError(
            f"unknown recipe {recipe!r}{nearest(recipe, names())}; `edgewise list recipes` names them all"
        )
    path = Path(recipe) if own else FOLDER / f"{recipe}.yaml"
    name = path.stem.encode(errors="replace").decode()  # a file's name may be no text, which YAML could not hold
    return checked(name, read_yaml(path, LARGEST))


def of_task(task: str) -> str:
    """The recipe of a task, one for data of one's own before others; or nothing."""
    own_first = sorted(names(), key=lambda name: not name.startswith("own-"))
    return next((name for name in own_first if task_of(read(name)) == task), "")


def task_of(recipe: Recipe) -> str:
    """The name of a recipe's task."""
    task = recipe.sections.get("task")
    return str(task.get("name") if isinstance(task, dict) else task)


def parse(name: str, text: str) -> Recipe:
    """A recipe from its YAML text."""
    return checked(name, parse_yaml(text, name))


def checked(name: str, content: Any) -> Recipe:
    """A recipe from its plain data, of which the sections are checked where the tables are known."""
    if not isinstance(content, dict):
        raise ConfigError(f"the recipe {name!r} must be a mapping with the sections {', '.join(SECTIONS)}")
    known = ("description", "system", *SECTIONS)
    for key in content:
        if key not in known:
            raise ConfigError(
                f"the recipe {name!r} has an unknown section {key!r}{nearest(key, known)}; known are {', '.join(known)}"
            )
    description, system = content.pop("description", ""), content.pop("system", [])
    if not isinstance(description, str):
        raise ConfigError(f"the description of the recipe {name!r} must be text, not {type(description).__name__}")
    if not isinstance(system, list) or not all(isinstance(row, str) for row in system):
        raise ConfigError(f"`system` of the recipe {name!r} must be a list of identifiers such as [B5, G5]")
    return Recipe(name, " ".join(description.split()), tuple(system), content)


class System(NamedTuple):
    """One architecture, method or task: what it computes, where that is written and which recipe runs it.

    `file` is a path below src/edgewise, `code` the names in it, with spaces between, that compute the equation;
    `recipe` is a name of `edgewise list recipes`.
    """

    id: str
    name: str
    equation: str
    file: str
    code: str
    recipe: str


_TABLE = Path(__file__).with_name("systems.tsv").read_text(encoding="utf-8")
SYSTEMS = tuple(System(*line.split("\t")) for line in _TABLE.splitlines()[1:])
