"""What the annotations of a settings class or a typed function say about its options.

    width: Count = 64                                            a whole number, at least 1
    norm: Annotated[str, OneOf(NORMS)] = "layer"                 a name of a table
    layer: Annotated[Choice | str, OneOf(GRAPH_LAYERS)] = "gcn"  the same, with options: {name: gat, heads: 8}

The options of a table's entry are the parameters of that function or class that can be passed by name.
"""

from __future__ import annotations

import dataclasses
import inspect
import re
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cache, partial
from math import inf, isfinite
from typing import Annotated, Any, NamedTuple, get_type_hints


@dataclass(frozen=True)
class Choice:
    """A name of a table, and options for what it stands for; a name alone may stand for a choice without options.

    Args:
        name: A name of the table.
        options: What that entry takes, by name.
    """

    name: str
    options: dict[str, Any] = field(default_factory=dict)

    @staticmethod
    def of(choice: Choice | str) -> Choice:
        """The choice that a name stands for."""
        return Choice(choice) if isinstance(choice, str) else choice


@dataclass(frozen=True, eq=False)
class OneOf:
    """In an annotation: the value is a name of this table and, where the type is `Choice`, has options.

    Args:
        table: Functions or classes by name; of a tuple, the first takes the options.
        without: Parameters that are no options, because the caller gives them.
    """

    table: Mapping[str, Any]
    without: Collection[str] = ()

    def options(self, name: str) -> dict[str, Option]:
        """What the entry of that name takes."""
        entry = self.table[name]
        known = options_of(entry[0] if isinstance(entry, tuple) else entry)
        return {name: option for name, option in known.items() if name not in self.without}


@dataclass(frozen=True)
class Bounds:
    """In an annotation: the value is a number within these bounds."""

    at_least: float = -inf
    above: float = -inf
    at_most: float = inf
    below: float = inf

    def __contains__(self, value: float) -> bool:
        return self.at_least <= value <= self.at_most and self.above < value < self.below

    def __str__(self) -> str:
        bounds = dataclasses.asdict(self).items()
        return " and ".join(f"{name.replace('_', ' ')} {bound:g}" for name, bound in bounds if isfinite(bound))


Count = Annotated[int, Bounds(at_least=1)]
Natural = Annotated[int, Bounds(at_least=0)]
Positive = Annotated[float, Bounds(above=0)]
NonNegative = Annotated[float, Bounds(at_least=0)]
Share = Annotated[float, Bounds(at_least=0, below=1)]
Portion = Annotated[float, Bounds(at_least=0, at_most=1)]
Real = Annotated[float, Bounds()]


class Text(str):
    """A value as the command line gives it: text where its option wants text, anything else in YAML's notation."""


class Option(NamedTuple):
    """A parameter of a function or class, with its description under "Args:"."""

    hint: Any
    default: Any
    description: str

    @property
    def table(self) -> OneOf | None:
        """The table of which the option names an entry."""
        return next((extra for extra in getattr(self.hint, "__metadata__", ()) if isinstance(extra, OneOf)), None)


def options_of(target: Callable[..., Any]) -> dict[str, Option]:
    """The parameters of a dataclass or a typed function that can be passed by name."""
    return _options_of(target).copy()


@cache
def _options_of(target: Callable[..., Any]) -> dict[str, Option]:
    made = target.func if isinstance(target, partial) else target
    described: dict[str, str] = {}
    for one in reversed(getattr(made, "__mro__", (made,))):
        described |= descriptions(inspect.getdoc(one) or "")
    is_plain_class = inspect.isclass(made) and not dataclasses.is_dataclass(made)
    hints = get_type_hints(made.__init__ if is_plain_class else made, include_extras=True)
    factories = {
        entry.name: entry.default_factory()
        for entry in (dataclasses.fields(made) if dataclasses.is_dataclass(made) else ())
        if entry.default_factory is not dataclasses.MISSING
    }
    return {
        name: Option(hints.get(name, Any), factories.get(name, parameter.default), described.get(name, ""))
        for name, parameter in inspect.signature(target).parameters.items()
        if parameter.kind in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY)
    }


def descriptions(documented: str) -> dict[str, str]:
    """What a docstring says under "Args:", by name."""
    _, _, listed = documented.partition("Args:\n")
    described: dict[str, str] = {}
    for line in listed.split("\n"):
        entry = re.match(r"    (\w+): (.*)", line)
        if entry:
            described[entry[1]] = entry[2]
        elif line.startswith("        ") and described:
            described[list(described)[-1]] += " " + line.strip()
        else:
            break
    return described
