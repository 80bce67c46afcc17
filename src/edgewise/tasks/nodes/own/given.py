"""What a folder says of a graph, before anything is fitted to it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Self

import numpy as np

from edgewise.data.features import Array, Column
from edgewise.data.splits import Splits
from edgewise.tasks.own.record import numbers
from edgewise.tasks.own.target import Labels

DEGREE = "log(1 + degree)"  # the feature of nodes of which nothing else is known


@dataclass(frozen=True)
class Given:
    """The nodes, edges, features, labels and parts that files hold.

    Args:
        place: Their folder.
        files: Those that were read.
        count: How many nodes there are.
        edges: Senders and receivers [2, E], by the nodes' rows.
        names: The nodes' names; None: they are their rows.
        x: What is known of the nodes: columns, or numbers [N, C].
        called: The targets' names.
        targets: The labels of each target: texts, "" where unknown; of arrays whole numbers [N], -1 where unknown, or
            numbers, NaN where unknown. None where labels were not read.
        splits: The parts that the files name; empty: none.
        notes: How they were read, in lines.
        e: What is known of the edges: columns, or numbers [E, D]; None: nothing.
        found: The columns that were found by what they hold or are called, by their meaning: `node`, which names the
            nodes, `sender` and `receiver`.
    """

    place: Path
    files: tuple[Path, ...]
    count: int
    edges: Array
    names: Sequence[str] | None
    x: list[Column] | Array
    called: tuple[str, ...]
    targets: Sequence[Labels]
    splits: Splits
    notes: tuple[str, ...] = ()
    e: list[Column] | Array | None = None
    found: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return self.count

    @cached_property
    def number_of(self) -> dict[str, int]:
        """Each node's row by its name."""
        return numbers(self)

    @property
    def width(self) -> int:
        """How many columns or numbers are known of a node."""
        return len(self.x) if isinstance(self.x, list) else int(self.x.shape[1])

    def described(self, edges: Array) -> Self:
        """The same, with each node's degree among edges [2, E] where nothing else is known of the nodes."""
        if not isinstance(self.x, list) or self.x:
            return self
        degrees = np.log1p(np.bincount(edges.reshape(-1), minlength=len(self)))
        column = Column(DEGREE, "number", degrees, np.ones(len(self), dtype=bool))
        return replace(self, x=[column], notes=(*self.notes, f"each node has {DEGREE}: nothing else is known of it"))

    @property
    def unit(self) -> str:
        """What its examples are."""
        return "nodes"

    @property
    def counts(self) -> dict[str, int]:
        """What else is counted."""
        return {"edges": int(self.edges.shape[1])}
