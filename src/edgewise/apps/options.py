"""From a recipe and `--section.option value` to a run's configuration; and what `train RECIPE --help` shows."""

import json
import re
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import is_dataclass
from typing import Any, get_type_hints

from edgewise.apps import recipes
from edgewise.apps.recipes import SECTIONS, Recipe, task_of
from edgewise.apps.standard import named, placed
from edgewise.configuration import Choice, OneOf, Option, Text, options_of, plain
from edgewise.errors import ConfigError
from edgewise.tasks import TASKS
from edgewise.training import RunConfig

Overrides = Sequence[tuple[str, str]]
COLUMN, WIDTH = 36, 116  # where descriptions begin, and where their lines end


def configure(recipe: Recipe, overrides: Overrides = ()) -> RunConfig:
    """The configuration of a run: the defaults, then the recipe, then the command line, the later over the earlier."""
    if data := dict(overrides).get("task.data"):  # before anything is fetched
        _check_kind(recipe, task_of(recipes.read(named(data).recipe)))
    content = overridden(recipe.sections, placed(overrides))
    for section in ("task", "model"):
        if section not in content:
            raise ConfigError(f"the recipe {recipe.name!r} names no {section}: it needs `{section}: NAME`")
    config = RunConfig.from_plain({**content, "recipe": recipe.name})
    _check_kind(recipe, config.task.name)
    return config


def _check_kind(recipe: Recipe, name: str) -> None:
    """Raise ConfigError for a task of another kind than the recipe's: its model, metric and description are not its.
    A recipe that names no task that there is takes any."""
    if task_of(recipe) not in TASKS:
        return
    own, other = (_kind(task) for task in (task_of(recipe), name))
    if own is other:
        return
    fitting = [one for one in recipes.names() if _kind(task_of(recipes.read(one))) is other]
    raise ConfigError(
        f"the recipe {recipe.name!r} is for tasks such as {task_of(recipe)!r} ({_words(own)}), and {name!r} is of "
        f"another kind ({_words(other)}): take a recipe for it, such as {', '.join(fitting[:3])}"
    )


def _kind(task: str) -> type:
    made: type = get_type_hints(TASKS[task])["return"]
    return made


def _words(kind: type) -> str:
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", kind.__name__).lower()


def overridden(content: Mapping[str, Any], overrides: Overrides) -> dict[str, Any]:
    """Plain settings with options replaced, each named by its path; another name starts a choice from its defaults.

    Example
        >>> overridden({"layer": {"name": "gat", "heads": 8}}, [("layer.heads", "4"), ("width", "16")])
        {'layer': {'name': 'gat', 'heads': '4'}, 'width': '16'}
        >>> overridden({"layer": {"name": "gat", "heads": 8}}, [("layer.name", "gcn")])
        {'layer': 'gcn'}
    """
    result = deepcopy(dict(content))
    # A name comes before its options, wherever it stands.
    for option, text in sorted(overrides, key=lambda override: override[0].removesuffix(".name").count(".")):
        *path, last = option.removesuffix(".name").split(".")
        inside: dict[str, Any] = result
        for part in path:
            value = inside.get(part, {})
            if not isinstance(value, dict | str):
                raise ConfigError(f"unknown option --{option}: {part} is one value, {value!r}")
            inside[part] = inside = {"name": value} if isinstance(value, str) else value
        value = inside.get(last)
        if not (isinstance(value, dict) and value.get("name") == text):
            inside[last] = Text(text)
    return result


def assignments(words: Sequence[str], known: Mapping[str, object]) -> list[tuple[str, str]]:
    """Options written NAME=VALUE."""
    pairs: dict[str, str] = {}
    for word in words:
        name, equals, value = word.partition("=")
        if not equals:
            raise ConfigError(f"write {word!r} as OPTION=VALUE; the options are {', '.join(known)}")
        if name in pairs:
            raise ConfigError(f"the option {name!r} is given twice")
        pairs[name] = value
    return list(pairs.items())


def show_options(recipe: Recipe, overrides: Overrides = ()) -> None:
    """Print a recipe's options, what they mean and the values that the recipe gives them."""
    config = configure(recipe, overrides)
    print(f"{recipe.name}: {recipe.description}\n" if recipe.description else recipe.name)
    print(f"usage: edgewise train {recipe.name} [--SECTION.OPTION VALUE ...]")
    sections = options_of(RunConfig)
    for section in SECTIONS:
        option, value = sections[section], getattr(config, section)
        print(f"\n{section}: {option.description.rstrip('.')}")
        for flag, text in described({section: option}, {section: value}):
            print(entry(f"--{flag} VALUE", text))


def paths(name: str, overrides: Overrides) -> list[str]:
    """All options of a recipe."""
    config, sections = configure(recipes.read(name), overrides), options_of(RunConfig)
    listed = (described({one: sections[one]}, {one: getattr(config, one)}) for one in SECTIONS)
    return [path for section in listed for path, _ in section]


def described(options: Mapping[str, Option], values: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Every option by its path, and what it means, with its value; below a choice, the options of what was chosen."""
    for name, option in options.items():
        value, table, flag = values[name], option.table, f"{path}{name}"
        if table is None and is_dataclass(value):
            yield from described(options_of(type(value)), vars(value), f"{flag}.")
            continue
        words = [option.description] if path else []
        if table is not None:
            nested = path and isinstance(value, Choice)
            words.append(f"One of {', '.join(taking(table, one) if nested else one for one in table.table)}.")
        current = value.name if isinstance(value, Choice) else plain(value)
        text = json.dumps(current) if isinstance(current, bool) else str(current)
        words += [] if current in (None, "") else [text if isinstance(current, list) else f"[{text}]"]
        yield flag, " ".join(words)
        if isinstance(value, Choice) and table is not None:
            yield from described(table.options(value.name), value.options, f"{flag}.")


def taking(table: OneOf, name: str) -> str:
    """An entry of a table, with what it takes."""
    options = ", ".join(table.options(name))
    return f"{name} ({options})" if options else name


def entry(flag: str, text: str) -> str:
    """A flag and its description in two columns."""
    lines = textwrap.wrap(text, WIDTH - COLUMN, break_on_hyphens=False) or [""]
    head = f"  {flag}"
    if len(head) > COLUMN - 2:
        return "\n".join([head, *(" " * COLUMN + line for line in lines)])
    return "\n".join([f"{head:<{COLUMN}}{lines[0]}", *(" " * COLUMN + line for line in lines[1:])]).rstrip()
