"""What a folder says of a graph, before anything is fitted to it."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.tables.features import Column
from edgewise.tasks.core.splits import Splits

Array = np.ndarray[Any, np.dtype[Any]]


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

    def name(self, node: int) -> str:
        """A node's name, or its row."""
        return str(node) if self.names is None else self.names[node]

    def numbers(self) -> dict[str, int]:
        """Each node's row by its name."""
        return {name: row for row, name in enumerate(map(str, range(len(self))) if self.names is None else self.names)}


def unread(place: Path, files: Sequence[Path]) -> tuple[str, ...]:
    """A line that names the other files of a folder, where there are any."""
    known = {file.name for file in files}
    others = sorted(file.name for file in place.iterdir() if file.is_file() and file.name not in known)
    more = f" and {len(others) - 10} more" if len(others) > 10 else ""
    return (f"not read: {', '.join(others[:10])}{more}",) if others else ()
