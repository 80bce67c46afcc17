"""What a case is: tables as a person has them, and what is to be read there."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

COUNT = 12  # nodes of a case
LABELS = [("u", "v")[row % 2] for row in range(COUNT)]
RING = [(row, (row + 1) % COUNT) for row in range(COUNT)]


@dataclass
class Read:
    """What is to be read.

    Args:
        columns: The kind of each feature, with the levels of a category in brackets.
        first: The first values of some columns; None: missing.
        target: "class" or "number".
        classes: The classes' names.
        names: The first nodes' names.
        nodes, edges: How many there are; edges as the tables list them.
        edge_columns: As `columns`, of edges.
        said: What the summary must say.
    """

    columns: dict[str, str]
    first: dict[str, list[Any]] = field(default_factory=dict)
    target: str = "class"
    classes: Sequence[str] = ("u", "v")
    names: Sequence[str] = ()
    nodes: int = COUNT
    edges: int = COUNT
    edge_columns: dict[str, str] = field(default_factory=dict)
    said: Sequence[str] = ()


@dataclass
class Refused:
    """A message that holds all of these."""

    problems: Sequence[str]


@dataclass
class Case:
    """Files by name, and what is to become of them."""

    files: dict[str, bytes]
    expected: Read | Refused


Make = Callable[[], Case]


def listed(cases: dict[str, Make]) -> Callable[[Make], Make]:
    """A decorator that adds a case by its function's name."""

    def add(make: Make) -> Make:
        cases[make.__name__] = make
        return make

    return add


def lines(head: Sequence[str], rows: Sequence[Sequence[object]], separator: str = ",", end: str = "\n") -> str:
    """A table as text; cells are written as they are."""
    return end.join([separator.join(head), *(separator.join(map(str, row)) for row in rows)]) + end


def table(columns: dict[str, Sequence[object]], separator: str = ",", labels: Sequence[object] = LABELS) -> str:
    """A table of nodes with ids n0, n1, ...; columns are repeated to their length."""
    made = {name: [cells[row % len(cells)] for row in range(COUNT)] for name, cells in columns.items()}
    ids = [f"n{row}" for row in range(COUNT)]
    return lines(["id", *made, "label"], list(zip(ids, *made.values(), labels, strict=True)), separator)


def edges(
    name: Callable[[int], object] = lambda row: f"n{row}", head: Sequence[str] = ("source", "target"), by: str = ","
) -> bytes:
    """A ring."""
    return lines(head, [(name(a), name(b)) for a, b in RING], by).encode()


def plainly(nodes: str | bytes, expected: Read | Refused, links: bytes | None = None, suffix: str = "csv") -> Case:
    """A case of nodes, with the ring as edges."""
    content = nodes.encode() if isinstance(nodes, str) else nodes
    return Case({f"nodes.{suffix}": content, "edges.csv": links or edges()}, expected)


AGES = list(range(20, 20 + COUNT))
AGE = Read({"age": "number"}, {"age": AGES[:3]}, names=["n0", "n1"])
