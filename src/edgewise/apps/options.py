"""From a recipe and `--section.option value` to a run's configuration, every option checked against what takes it."""

from __future__ import annotations

import argparse
import inspect
import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, get_type_hints

from jsonargparse import ArgumentParser, Namespace

from edgewise.apps.recipes import SECTIONS, Recipe, Value
from edgewise.errors import ConfigError, nearest
from edgewise.graphs import PATTERNS
from edgewise.models import MODELS
from edgewise.tasks import TASKS
from edgewise.training import OptimizerSettings, RunConfig, ScheduleSettings, StartSettings, TrainSettings

Names = dict[str, str]
Overrides = Sequence[tuple[str, str]]


def configure(recipe: Recipe, overrides: Overrides = ()) -> RunConfig:
    """The configuration of a run: the defaults, then the recipe, then the command line, the later over the earlier."""
    names = choose(recipe, overrides)
    parser = parser_of(names, recipe.name)
    settle(parser, recipe, names)
    known = _known(parser)
    for option, _ in overrides:
        _check_known(option, known, "unknown option --")
    try:
        parsed = parser.parse_args([f"--{option}={value}" for option, value in overrides])
    except argparse.ArgumentError as error:
        raise ConfigError(_readable(error)) from error
    return _config(recipe.name, names, parsed)


def show_options(recipe: Recipe, overrides: Overrides = ()) -> None:
    """Print a recipe's options, what they mean and the values that the recipe gives them."""
    names = choose(recipe, overrides)
    parser = parser_of(names, recipe.name)
    settle(parser, recipe, names)
    print(f"{recipe.name}: {recipe.description}\n" if recipe.description else recipe.name)
    parser.print_help()


def choose(recipe: Recipe, overrides: Overrides) -> Names:
    """Which task, graph and model: the command line's, else the recipe's."""
    names = {}
    for section, table in TABLES.items():
        given = [value for option, value in overrides if option == f"{section}.name"]
        name = (
            given[-1]
            if given
            else recipe.sections.get(section, {}).get("name", "given" if section == "graph" else None)
        )
        if name is None:
            raise ConfigError(f"the recipe {recipe.name!r} names no {section}: it needs `{section}: {{name: ...}}`")
        if not isinstance(name, str) or name not in table:
            raise ConfigError(
                f"unknown {section} {str(name)[:80]!r}{nearest(name, table)}; known are {', '.join(table)}"
            )
        names[section] = name
    return names


def parser_of(names: Names, recipe: str) -> ArgumentParser:
    """A parser of every option that these task, graph and model take, and of how to train."""
    parser = ArgumentParser(
        prog=f"edgewise train {recipe}",
        usage="%(prog)s [--SECTION.OPTION VALUE ...]",
        formatter_class=_Formatter,
        exit_on_error=False,
        default_env=False,
        allow_abbrev=False,
        add_help=False,
    )
    targets = {section: TABLES[section][name] for section, name in names.items()}
    targets |= {
        "optimizer": OptimizerSettings,
        "schedule": ScheduleSettings,
        "train": TrainSettings,
        "start": StartSettings,
    }
    for section in SECTIONS:
        _add(parser, section, names.get(section), targets[section])
    return parser


def settle(parser: ArgumentParser, recipe: Recipe, names: Names) -> None:
    """Make the recipe's values the parser's defaults. A section for which another name was chosen keeps its own."""
    known = _known(parser)
    given: dict[str, Value] = {}
    for section, options in recipe.sections.items():
        if section in names and options.get("name", "given") != names[section]:
            continue
        for option, value in options.items():
            _check_known(f"{section}.{option}", known, f"the recipe {recipe.name!r} has an unknown option ")
            given[f"{section}.{option}"] = value
    nested: dict[str, dict[str, Value]] = {}
    for option, value in given.items():
        section, name = option.split(".")
        nested.setdefault(section, {})[name] = value
    try:
        checked = parser.parse_object(nested, defaults=False)
    except argparse.ArgumentError as error:
        raise ConfigError(f"the recipe {recipe.name!r}: {_readable(error)}") from error
    parser.set_defaults({option: checked[option] for option in given})


def _given() -> None:
    """The data's own graph."""


TABLES: dict[str, Mapping[str, Callable[..., Any]]] = {
    "task": TASKS,
    "graph": {"given": _given, **PATTERNS},
    "model": {name: settings for name, (settings, _) in MODELS.items()},
}
# A pattern's layout is the task's to give, not an option.
LAYOUT = ("n", "receivers", "senders", "offset", "sizes", "left", "right", "height", "width")


def _add(parser: ArgumentParser, section: str, name: str | None, target: Callable[..., Any]) -> None:
    """Add a group with the options of a settings class, a task or a pattern."""
    documented = inspect.getdoc(target) or ""
    title = f"{section} {name}" if name else section
    group = parser.add_argument_group(f"{title}: {documented.split(chr(10))[0].rstrip('.')}")
    if section in TABLES:
        group.add_argument(f"--{section}.name", type=str, default=name, help=f"One of {', '.join(TABLES[section])}.")
    described, hints = descriptions(documented), get_type_hints(target)
    for option, parameter in inspect.signature(target).parameters.items():
        if section == "graph" and option in LAYOUT:
            continue
        default = None if parameter.default is parameter.empty else parameter.default
        group.add_argument(f"--{section}.{option}", type=hints[option], default=default, help=described.get(option, ""))


def descriptions(documented: str) -> dict[str, str]:
    """What a docstring says under "Args:", by name."""
    _, _, listed = documented.partition("Args:\n")
    found: dict[str, str] = {}
    for line in listed.split("\n"):
        entry = re.match(r"    (\w+): (.*)", line)
        if entry:
            found[entry[1]] = entry[2]
        elif line.startswith("        ") and found:
            found[list(found)[-1]] += " " + line.strip()
        else:
            break
    return found


def _known(parser: ArgumentParser) -> list[str]:
    return [flag[2:] for action in parser._actions for flag in action.option_strings if "." in flag]


def _check_known(option: str, known: Sequence[str], complaint: str) -> None:
    if option in known:
        return
    section, _, name = option.partition(".")
    if section not in SECTIONS:
        raise ConfigError(f"{complaint}{option}{nearest(option, known)}; sections are {', '.join(SECTIONS)}")
    options = [flag.removeprefix(f"{section}.") for flag in known if flag.startswith(f"{section}.")]
    raise ConfigError(f"{complaint}{option}{nearest(name, options)}; {section} takes {', '.join(options)}")


def _readable(error: argparse.ArgumentError) -> str:
    """jsonargparse's complaint in one line: the option, what it takes and what it got."""
    message = " ".join(str(error).split())
    message = re.sub(r'^Parser key "([\w.]+)": ?', r"\1: ", message)
    message = re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", message).replace("typing.", "")
    return message.replace("a int", "an int")


def _config(recipe: str, names: Names, parsed: Namespace) -> RunConfig:
    content: dict[str, Any] = {"recipe": recipe}
    for section in SECTIONS:
        options = {option: getattr(parsed[section], option) for option in vars(parsed[section])}
        if section in TABLES:
            options.pop("name")
            content[section] = {"name": names[section], "options": options}
        else:
            content[section] = options
    pattern = content["graph"]
    for option, value in pattern["options"].items():
        if value is None:
            raise ConfigError(f"the graph {pattern['name']!r} needs an option: --graph.{option} VALUE")
    return RunConfig.from_plain(content)


def flat(config: RunConfig) -> dict[str, Any]:
    """A configuration as a recipe writes it: a name and its options side by side."""
    content = config.to_plain()
    for section in TABLES:
        content[section] = {"name": content[section]["name"], **content[section]["options"]}
    return {section: content[section] for section in SECTIONS}


class _Formatter(argparse.HelpFormatter):
    """Each option, what it means, and in brackets the value that it would have."""

    def __init__(self, prog: str) -> None:
        super().__init__(prog, max_help_position=36, width=116)

    def _get_help_string(self, action: argparse.Action) -> str:
        default = list(action.default) if isinstance(action.default, tuple) else action.default
        shown = "" if default in (None, "") else f" [{json.dumps(default) if isinstance(default, bool) else default}]"
        return f"{action.help}{shown}".replace("%", "%%").strip()

    def _format_args(self, action: argparse.Action, default_metavar: str) -> str:
        return "VALUE"
