"""The systems that work here, from `systems.tsv`: a row is listed only if its code, its test and its recipe exist."""

from pathlib import Path
from typing import NamedTuple


class System(NamedTuple):
    """One architecture, method or task: what it computes, where that is written and which recipe runs it.

    `file` is a path below src/edgewise; `recipe` is a name of `edgewise list recipes`.
    """

    id: str
    name: str
    equation: str
    file: str
    recipe: str


_TABLE = Path(__file__).with_suffix(".tsv").read_text(encoding="utf-8")
SYSTEMS = tuple(System(*line.split("\t")) for line in _TABLE.splitlines()[1:])
