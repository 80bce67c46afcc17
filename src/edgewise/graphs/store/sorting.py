"""Edges sorted by receiver, then by sender, within a given memory: sorted runs on disk, merged range by range."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

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
