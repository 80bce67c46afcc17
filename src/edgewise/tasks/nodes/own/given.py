"""What a folder says of a graph, before anything is fitted to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from edgewise.tables.features import Array, Column
from edgewise.tasks.core.splits import Splits


@dataclass(frozen=True)
class Given:
    """The nodes, edges, features, labels and parts that files hold.

    Args:
        place: Their folder.
        files: Those that were read.
        edges: Senders and receivers [2, E], by the nodes' rows.
        names: The nodes' names; None: they are their rows.
        x: What is known of the nodes: columns, or numbers [N, C].
        labels: Texts, "" where unknown; of arrays whole numbers [N], -1 where unknown, or numbers, NaN where unknown.
        splits: The parts that the files name; empty: none.
        notes: How they were read, in lines.
        e: What is known of the edges: columns, or numbers [E, D]; None: nothing.
    """

    place: Path
    files: tuple[Path, ...]
    edges: Array
    names: Sequence[str] | None
    x: list[Column] | Array
    labels: list[str] | Array
    splits: Splits
    notes: tuple[str, ...] = ()
    e: list[Column] | Array | None = None

    def __len__(self) -> int:
        return len(self.labels)

    @property
    def width(self) -> int:
        """How many columns or numbers are known of a node."""
        return len(self.x) if isinstance(self.x, list) else int(self.x.shape[1])

    @property
    def unit(self) -> str:
        """What its examples are."""
        return "nodes"

    @property
    def called(self) -> tuple[str, ...]:
        """What the labels are called."""
        return ("labels" if isinstance(self.labels, np.ndarray) else "label",)

    @property
    def targets(self) -> list[list[str] | Array]:
        """The labels, as those of one target."""
        return [self.labels]

    @property
    def counts(self) -> dict[str, int]:
        """What else is counted."""
        return {"edges": int(self.edges.shape[1])}
