"""Looking a name up in a table, with an error that lists what there is."""

from collections.abc import Mapping
from typing import TypeVar

from torch import Tensor

from edgewise.errors import ConfigError

T = TypeVar("T")


def chosen(what: str, name: str, table: Mapping[str, T]) -> T:
    """The table's entry of that name; an unknown name is a ConfigError that lists the known ones.

    Example
        >>> chosen("norm", "layr", {"layer": 1, "none": 2})
        Traceback (most recent call last):
            ...
        edgewise.errors.ConfigError: norm 'layr' is unknown: choose one of layer, none
    """
    if name not in table:
        raise ConfigError(f"{what} {name!r} is unknown: choose one of {', '.join(table)}")
    return table[name]


def given(*tensors: Tensor | None) -> list[Tensor]:
    """Those that are there."""
    return [t for t in tensors if t is not None]
