"""A store that is open, rows of its arrays read where they lie, and the sort within a given memory that builds one."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from edgewise import native
from edgewise.errors import DataError
from edgewise.graphs.checks import index_tensor
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


READERS = 16  # threads that wait for pages at once: the queue that a disk works on


class StoredRows:
    """An array [N, ...] on disk, of which `rows[numbers]` reads some rows.

    Symbols     cache = bytes of rows that stay in memory: those that were read again since they were last considered
                (second chance: a clock); hits, reads = rows that were there, and that were read; row_bytes of each
    Shapes      numbers [M] integers -> [M, ...], float32 where the store has fewer bits
    Errors      DataError for a number that is out of range
    Edge cases  the same bits whatever the cache; several threads may read at once
    Cost        memory of the cache; besides it, some 60 bytes for each row in it

    Example
        >>> import tempfile
        >>> from pathlib import Path
        >>> from edgewise.data import build_store
        >>> from edgewise.graphs import Store
        >>> place = Path(tempfile.mkdtemp()) / "three"
        >>> manifest = build_store(place, [], [{"x": torch.tensor([[1.0], [2.0], [3.0]])}])
        >>> rows = StoredRows(Store.open(place).x, cache=1000)
        >>> rows[torch.tensor([2, 0])].tolist(), rows[torch.tensor([0])].tolist()
        ([[3.0], [1.0]], [[1.0]])
        >>> rows.hits, rows.reads
        (1, 2)
    """

    def __init__(self, stored: Stored, cache: int = 0) -> None:
        self.stored, self.mapped, self.hits, self.reads = stored, stored.mapped(), 0, 0
        self._before = 0, 0
        self.shape, self.row_bytes = torch.Size(stored.shape), stored.row_bytes
        self.rows: Any = None
        if native.library is not None and self.row_bytes:
            at = self.mapped.data_ptr(), self.shape[0], self.row_bytes
            self.rows = native.library.RowCache(*at, cache // self.row_bytes)

    @property
    def device(self) -> torch.device:
        return self.mapped.device

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, numbers: Tensor) -> Tensor:
        found = self.read(numbers)
        return found if found.dtype.itemsize >= 4 else found.float()

    def read(self, numbers: Tensor) -> Tensor:
        """The rows in the type that is stored."""
        numbers = index_tensor(numbers, "numbers", axes=1).cpu().contiguous()
        if self.rows is None:
            outside = ((numbers < 0) | (numbers >= len(self))).nonzero()
            hits = -1 - int(outside[0]) if len(outside) else 0
            found = self.mapped[numbers.new_empty(0) if hits else numbers]
        else:
            found = torch.empty((len(numbers), *self.shape[1:]), dtype=self.stored.dtype)
            hits = self.rows.gather(READERS, numbers.data_ptr(), len(numbers), found.data_ptr())
        if hits < 0:
            raise DataError(f"{self.stored.path}: there is no row {int(numbers[-1 - hits])} of {len(self):,}")
        self.hits, self.reads = self.hits + hits, self.reads + len(numbers) - hits
        return found

    def measured(self) -> dict[str, float]:
        """Since the last call: the share of rows that were in the cache, and the bytes that were read."""
        hits, reads = self.hits - self._before[0], self.reads - self._before[1]
        self._before = self.hits, self.reads
        return {"cache_hits": hits / max(1, hits + reads), "bytes_read": reads * self.row_bytes}


Array = np.ndarray[Any, np.dtype[Any]]
SPARSE = 1024  # keys for each that is also in memory, to find where a range of keys begins in a run
LEAST = 1 << 14  # edges of a run
LOW = np.uint64((1 << 32) - 1)


class EdgeSorter:
    """Takes edges in any order and gives them back in the order of a graph, with what belongs to each.

    Equation    key(e) = receiver(e) 2³² + sender(e); edges of one key keep their order
    Symbols     width = numbers that belong to an edge; memory = bytes that the sort may take; count = edges so far
    Cost        one write and one read of 8 + 4 width bytes an edge, and none where all edges fit in one run; memory
                O(memory + E / 128)
    Edge cases  edges that are parallel to more others than fit in memory are sorted in more memory: there are
                that many of one pair
    """

    def __init__(self, folder: Path, memory: int, width: int = 0) -> None:
        # In memory at once: the run; its order and the numbers twice, where there are any; and what `sort` takes.
        self.room = max(LEAST, memory // (24 + (width and 16 + 8 * width)))
        self.keys, self.e = np.empty(self.room, np.uint64), np.empty((self.room, width), np.float32)
        self.held = self.count = 0
        self.files = folder / "keys.part", folder / "e.part"
        self.runs: list[tuple[int, Array]] = []  # of each its length and every SPARSE-th key

    def add(self, senders: Array, receivers: Array, e: Array | None = None) -> None:
        """Some edges; their ends are from 0 to 2³² - 1."""
        start = 0
        while start < len(senders):
            stop = min(len(senders), start + self.room - self.held)
            here = slice(self.held, self.held + stop - start)
            self.keys[here] = receivers[start:stop]
            self.keys[here] <<= np.uint64(32)
            self.keys[here] |= senders[start:stop].astype(np.uint64)
            if e is not None:
                self.e[here] = e[start:stop]
            self.count, self.held, start = self.count + stop - start, here.stop, stop
            if self.held == self.room:
                self._write_run()

    def pieces(self) -> Iterator[tuple[Array, Array]]:
        """(keys, e) in ascending order, piece by piece; edges of one key are in one piece."""
        if not self.runs:
            if self.held:
                yield _sorted(self.keys[: self.held], self.e[: self.held])
            return
        if self.held:
            self._write_run()
        self.keys, self.e = np.empty(0, np.uint64), self.e[:0].copy()
        starts = np.cumsum([0, *(length for length, _ in self.runs)])
        sample = np.sort(np.concatenate([sparse for _, sparse in self.runs]))
        count = -(-2 * self.count // self.room)  # pieces of half a run: a range holds more or less
        bounds = np.unique(sample[np.arange(1, count) * len(sample) // count])
        with self.files[0].open("rb") as keys, self.files[1].open("rb") as e:
            below = [0] * len(self.runs)
            for bound in [*bounds, None]:
                cuts = [self._cut(keys, int(starts[n]), n, bound) for n in range(len(self.runs))]
                parts = [(int(start) + low, high - low) for start, low, high in zip(starts, below, cuts, strict=False)]
                below = cuts
                yield _sorted(_read(keys, parts, np.uint64, ()), _read(e, parts, np.float32, self.e.shape[1:]))

    def _write_run(self) -> None:
        keys, e = _sorted(self.keys[: self.held], self.e[: self.held])
        for path, values in zip(self.files, (keys, e), strict=True):
            with path.open("ab") as file:
                values.tofile(file)
        self.runs.append((len(keys), keys[::SPARSE].copy()))
        self.held = 0

    def _cut(self, keys: Any, start: int, run: int, bound: np.uint64 | None) -> int:
        """How many keys of a run are below the bound."""
        length, sparse = self.runs[run]
        if bound is None:
            return length
        first = max(0, int(np.searchsorted(sparse, bound)) - 1) * SPARSE
        block = _read(keys, [(start + first, min(SPARSE, length - first))], np.uint64, ())
        return first + int(np.searchsorted(block, bound))


def _sorted(keys: Array, e: Array) -> tuple[Array, Array]:
    if e.shape[1] == 0:
        keys.sort()  # in place, with vector instructions; equal keys are the same edge
        return keys, e
    order = keys.argsort(kind="stable")
    return keys[order], e[order]


def _read(file: Any, parts: list[tuple[int, int]], dtype: type, shape: tuple[int, ...]) -> Array:
    """Rows of a file, by where each part of them begins and how many it has."""
    rows: Array = np.empty((sum(count for _, count in parts), *shape), dtype)
    place, size = 0, rows.itemsize * int(np.prod(shape, dtype=np.int64))
    for start, count in parts:
        if count and size:
            file.seek(start * size)
            if file.readinto(memoryview(rows[place : place + count].data).cast("B")) != count * size:
                raise OSError(5, "the sorted runs were cut short")
        place += count
    return rows
