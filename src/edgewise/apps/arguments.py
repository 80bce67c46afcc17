"""The command line's parser, and the kinds of its arguments. Only argparse is imported here."""

import argparse
import re
import shlex
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import NoReturn

from edgewise.errors import ConfigError, nearest

MOST = 2**31 - 1  # of an option that is a whole number


class Parser(argparse.ArgumentParser):
    """An argparse parser whose complaints are `ConfigError`s that name the nearest valid word."""

    def error(self, message: str) -> NoReturn:
        choice = re.search(r"invalid choice: '(.*)' \(choose from (.*)\)", message, flags=re.DOTALL)
        if choice:
            known = re.findall(r"[\w-]+", choice[2])
            what = message.split(":")[0].removeprefix("argument ")
            raise ConfigError(
                f"{what}: {choice[1]!r} is unknown{nearest(choice[1], known) or ';'} known are {', '.join(known)}"
            )
        message = message.replace("ignored explicit argument", "takes no value, not")
        raise ConfigError(f"{message}; see `{self.prog} --help`")

    def refuse(self, extra: str, of_recipes: Iterable[str] = ()) -> NoReturn:
        """Complain about an argument that nothing takes; it may be the last word of an option of recipes."""
        flag = extra.split("=")[0]
        if flag.startswith("-"):
            own = nearest(flag, self._option_string_actions)
            word = flag.removeprefix("--").replace("-", "_")
            meant = [f"--{path}" for path in of_recipes if path.rpartition(".")[2] == word]
            near = f"; did you mean {' or '.join(map(repr, meant))}?" if meant else own
            raise ConfigError(f"unknown option {flag!r}{near or ';'} see `{self.prog} --help`")
        raise ConfigError(f"unexpected argument {extra!r}; see `{self.prog} --help`")


def whole(least: int, most: int = MOST) -> Callable[[str], int]:
    """An argparse type: a whole number within bounds."""

    def parse(text: str) -> int:
        if not re.fullmatch(r"[+-]?[0-9]{1,18}", text) or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return parse


def folder(text: str) -> str:
    """An argparse type: the name of a folder to write. An empty one, as of a shell's variable that is not set, would be
    the current folder."""
    if not text.strip():
        raise argparse.ArgumentTypeError("the name of a folder is empty")
    return text


def amount(text: str) -> float:
    """An argparse type: a finite number, zero or more."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0.0 <= value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number >= 0")
    return value


def duration(text: str) -> float:
    """An argparse type: seconds, written 90s, 30m or 2h."""
    found = re.fullmatch(r"(\d{1,9}(?:\.\d+)?)([smh]?)", text)
    if not found or float(found[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time such as 90s, 30m or 2h")
    return float(found[1]) * {"m": 60, "h": 3600}.get(found[2], 1)


def add_places(parser: argparse.ArgumentParser) -> None:
    """The options that say where a task's data lie now: pairs of an option of the task and a place, in `data`."""

    def place(name: str, text: str) -> tuple[str, str]:
        return name, text

    for name in ("folder", "file"):
        parser.add_argument(
            f"--task.{name}",
            dest="data",
            action="append",
            default=[],
            type=partial(place, name),
            metavar=name.upper(),
            help=f"the {name} where its data lie now, if not where they were",
        )


def typed_places(places: str | Mapping[str, str] | None) -> str:
    """These options as they are typed after a command on a run, each after a space.

    Example
        >>> typed_places({"file": "my table.csv"})
        " --task.file 'my table.csv'"
    """
    named = {"folder": places} if isinstance(places, str) else places or {}
    return "".join(f" --task.{name} {shlex.quote(place)}" for name, place in named.items())
