"""A store that is open: its graph, and what is known of the nodes and edges, read where it lies."""

from dataclasses import dataclass
from pathlib import Path
from typing import Self

from torch import Tensor

from edgewise.errors import DataError
from edgewise.graphs.graph import Graph
from edgewise.graphs.layout import Manifest, Stored


@dataclass(frozen=True, eq=False)
class Store:
    """A graph on disk, with its nodes' features, labels and parts.

    Symbols     graph = `Graph.open` of it; x, e = features of nodes [N, C] and of edges [E, D] where they lie, or None;
                labels [N], -1 where unknown

    Example
        >>> import tempfile
        >>> from edgewise.data import build_store
        >>> place = Path(tempfile.mkdtemp()) / "pair"
        >>> manifest = build_store(place, [([0, 1], [1, 0], [[0.5], [1.5]])])
        >>> Store.open(place).e.rows(0, 2).tolist()
        [[1.5], [0.5]]
    """

    path: Path
    manifest: Manifest
    graph: Graph

    @classmethod
    def open(cls, store: Path | str) -> Self:
        """Map a store; the errors are those of `Graph.open`."""
        return cls(Path(store), Manifest.read(store), Graph.open(store))

    @property
    def x(self) -> Stored | None:
        return self.manifest.arrays.get("x")

    @property
    def e(self) -> Stored | None:
        return self.manifest.arrays.get("e")

    def labels(self) -> Tensor | None:
        """The nodes' classes [N], mapped."""
        stored = self.manifest.arrays.get("labels")
        return None if stored is None else stored.mapped()

    def nodes_of(self, part: str) -> Tensor | None:
        """The nodes of "train", "valid" or "test", ascending; None where the store has no parts."""
        stored = self.manifest.arrays.get(part)
        return None if stored is None else stored.rows(0, stored.shape[0])

    def name(self, node: int) -> str:
        """A node's name, or its number where nodes have none."""
        ends, names = (self.manifest.arrays.get(part) for part in ("name_ends", "names"))
        if not 0 <= node < self.manifest.nodes:
            raise DataError(f"{self.path}: there is no node {node} of {self.manifest.nodes:,}")
        if ends is None or names is None:
            return str(node)
        bounds = ends.rows(max(node - 1, 0), node + 1).tolist()
        start, stop = bounds[0] if node else 0, bounds[-1]
        if not 0 <= start <= stop <= names.shape[0]:
            where = f"from {start:,} to {stop:,} of {names.shape[0]:,} bytes"
            raise DataError(f"{ends.path}: the name of node {node} would go {where}; `edgewise store check` says more")
        return bytes(names.rows(start, stop).numpy().tobytes()).decode("utf-8", "replace")
