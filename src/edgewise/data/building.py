"""A store from files, or from edges that are generated: sorted on the disk, within a given memory."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.data.sources import STORED_FEATURES, NodeColumns, edges_of
from edgewise.errors import DataError, GraphError
from edgewise.files import flush, path_of
from edgewise.graphs.checks import index_tensor, shown, whole_number
from edgewise.graphs.layout import MANIFEST, MAX_NODES, Array, Manifest, Stored, Writer, writing_store
from edgewise.graphs.store.sorting import LOW, EdgeSorter

LEAST_MEMORY = 64 << 20  # bytes
SHARE = 0.5  # of the memory, that the sort takes: Python, PyTorch and the readers take some, too
ROWS = 1 << 20  # offsets written at once

SPARSEST, ALWAYS = 64, 1 << 20  # nodes for each edge, and besides, that a largest number may imply

Edges = Iterable[tuple[Any, Any, Any]]


def build_store(
    store: Path | str,
    edges: Sequence[Path | str] | Edges,
    nodes: Iterable[Path | str | Mapping[str, Tensor]] | int = (),
    memory: int = 2 << 30,
    undirected: bool = False,
    features: torch.dtype | None = None,
    ends: Sequence[str] = (),
) -> Manifest:
    """Write a graph that may be larger than memory to a folder, from which `Graph.open` maps it.

    Symbols     edges = files, or an iterable of (senders, receivers, attributes [*, D] or None); nodes = files, or an
                iterable of what is known of the next ones (x [*, C], labels [*], masks), or how many; memory = bytes
                that it may take, about; undirected: every node also listens to those that listen to it, each once, with
                the attributes of the first such edge, or else of the first one turned around; features = the type that
                x is stored in (float32, float16, bfloat16, int8); ends = the columns of tables with senders and
                receivers; empty: `sender` and `receiver`, `source` and `target`, `from` and `to`, ...
    Errors      GraphError: edges or nodes in memory that are none; DataError: a file that is missing, malformed or
                does not fit the others, a node without a number or a name, a number so large that most nodes would
                have no edge, a disk that is full, something at `store` already, or another process that writes it
    Edge cases  without nodes there are as many as the largest end says; a process that is killed leaves no store
    Cost        reads everything once; edges that do not fit in memory are written and read once more, 8 bytes each
                and 4 for each attribute; time O(E log E)

    Example
        >>> import tempfile
        >>> from edgewise import Graph
        >>> place = Path(tempfile.mkdtemp()) / "store"
        >>> build_store(place, [([1, 2, 0], [0, 0, 2], None)], nodes=3).edges
        3
        >>> Graph.open(place).senders.tolist()
        [1, 2, 0]
    """
    if features not in (None, *STORED_FEATURES):
        kinds = ", ".join(str(dtype).removeprefix("torch.") for dtype in STORED_FEATURES)
        raise DataError(f"features are stored as {kinds}, not {features}")
    if whole_number(memory, "memory") < LEAST_MEMORY:
        raise DataError(f"a store is built within {LEAST_MEMORY >> 20} MB or more, not {memory:,} bytes")
    count = whole_number(nodes, "nodes") if isinstance(nodes, int) else None
    described = () if isinstance(nodes, int) else nodes
    for name, parts in (("edges", edges), ("nodes", described), ("ends", ends)):
        if isinstance(parts, str | bytes | Path | Tensor) or not isinstance(parts, Iterable):
            raise GraphError(f"{name} must be a list, of files or of what they would hold, not {shown(parts)}")
    with writing_store(path_of(store, "a store", DataError)) as folder:
        columns = NodeColumns(folder, features)
        for number, part in enumerate(described):
            if isinstance(part, Path | str):
                columns.read(Path(part))
            else:
                columns.add(part, f"nodes[{number}]")
        arrays, classes = columns.finish()
        known = columns.count if count is None and columns.kinds else count

        def blocks() -> Iterator[tuple[Array, Array, Array | None]]:
            for number, part in enumerate(edges):
                if isinstance(part, Path | str):
                    yield from edges_of(Path(part), columns.names, ends)
                else:
                    yield _block(part, f"edges[{number}]")

        size, sorted_arrays = _write_edges(folder, blocks, known, int(SHARE * memory), undirected)
        arrays = sorted_arrays | arrays
        about = {"undirected": bool(undirected)}
        manifest = Manifest(size, arrays["senders"].shape[0], arrays, classes, columns.features, about)
        with (folder / MANIFEST).open("x", encoding="utf-8") as file:
            file.write(manifest.to_json())
        flush(folder / MANIFEST)
    return Manifest.read(store)


def _block(part: Any, where: str) -> tuple[Array, Array, Array | None]:
    """Some edges that were handed over: (senders [M], receivers [M], attributes [M, D] or None)."""
    if not isinstance(part, tuple | list) or len(part) != 3:
        raise GraphError(f"{where} must be a file, or (senders, receivers, attributes or None), not {shown(part)}")
    senders, receivers = (
        index_tensor(ends, f"{name} of {where}", axes=1).numpy()
        for name, ends in zip(("senders", "receivers"), part[:2], strict=True)
    )
    if len(senders) != len(receivers):
        raise GraphError(f"{where} has {len(senders)} senders and {len(receivers)} receivers, but must have as many")
    if part[2] is None:
        return senders, receivers, None
    try:
        with np.errstate(over="ignore"):  # what is too large is named later
            e = np.asarray(part[2], np.float32)
    except (TypeError, ValueError, RuntimeError):
        raise GraphError(f"attributes of {where} must be numbers [{len(senders)}, D], not {shown(part[2])}") from None
    if e.ndim != 2 or len(e) != len(senders):
        raise GraphError(f"attributes of {where} must be numbers [{len(senders)}, D], not {list(e.shape)}")
    return senders, receivers, e


def _write_edges(
    folder: Path, blocks: Callable[[], Iterator[Any]], nodes: int | None, memory: int, undirected: bool
) -> tuple[int, dict[str, Stored]]:
    """offsets, senders and e; how many nodes there are, and the arrays by name."""
    sorter: EdgeSorter | None = None
    largest, number, width = -1, 0, 0
    for senders, receivers, e in blocks():
        if sorter is None:
            width = 0 if e is None else e.shape[1]
            sorter = EdgeSorter(folder, memory, width + 1 if width and undirected else width)
        if (0 if e is None else e.shape[1]) != width:
            raise DataError(f"edge {number:,}: {0 if e is None else e.shape[1]} attributes, and {width} before")
        if e is not None and not np.isfinite(e).all():
            row, column = np.argwhere(~np.isfinite(e))[0]
            raise DataError(f"edge {number + row:,}: attribute {column} is {e[row, column]:g}: no float32")
        if len(senders):
            most = max(int(senders.max()), int(receivers.max()))
            if most >= (MAX_NODES if nodes is None else nodes) or min(senders.min(), receivers.min()) < 0:
                _refuse(senders, receivers, number, MAX_NODES if nodes is None else nodes)
            largest = max(largest, most)
        sorter.add(senders, receivers, _marked(e, 0) if undirected else e)
        if undirected:
            sorter.add(receivers, senders, _marked(e, 1))
        number += len(senders)
    count = largest + 1 if nodes is None else nodes
    if nodes is None and count > SPARSEST * number + ALWAYS:
        of = f"{number:,} edges name node {largest:,}, so there would be {count:,} nodes, most without an edge"
        raise DataError(f"{of}: describe the nodes, or say how many they are")
    of_senders = Writer(folder, "senders", torch.int32 if count <= 1 << 31 else torch.int64)
    offsets, numbers = _Offsets(folder, count), Writer(folder, "e", torch.float32, (width,)) if width else None
    for keys, e in () if sorter is None else sorter.pieces():
        if undirected:
            kept = _kept(keys, e)
            keys, e = keys[kept], e[kept, :width]
        of_senders.write(torch.from_numpy((keys & LOW).astype(np.int64)))
        offsets.add(keys)
        if numbers is not None:
            numbers.write(torch.from_numpy(e))
    for file in [] if sorter is None else sorter.files:
        file.unlink(missing_ok=True)
    done = [offsets.finish(), of_senders, *([numbers] if numbers is not None else [])]
    return count, {writer.name: writer.finish() for writer in done}


def _marked(e: Array | None, turned: int) -> Array | None:
    """Attributes, and behind them whether their edge was turned around."""
    return e if e is None or not e.shape[1] else np.column_stack([e, np.full(len(e), turned, np.float32)])


def _kept(keys: Array, e: Array) -> Array:
    """Of the edges of each key the first that was not turned around, or else the first."""
    first = np.flatnonzero(np.concatenate([[True], keys[1:] != keys[:-1]])[: len(keys)])
    if not e.shape[1] or not len(keys):
        return first
    listed = np.where(e[:, -1] == 0, np.arange(len(keys)), len(keys))
    soonest = np.minimum.reduceat(listed, first)
    return np.where(soonest < len(keys), soonest, first)


def _refuse(senders: Array, receivers: Array, number: int, nodes: int) -> None:
    for role, ends in (("sender", senders), ("receiver", receivers)):
        wrong = np.flatnonzero((ends < 0) | (ends >= nodes))
        if len(wrong):
            edge = number + int(wrong[0])
            raise DataError(f"edge {edge:,}: {role} {int(ends[wrong[0]])} is out of range: there are {nodes:,} nodes")


class _Offsets:
    """The offsets of rows, from keys in ascending order."""

    def __init__(self, folder: Path, nodes: int) -> None:
        self.writer, self.nodes, self.edges = Writer(folder, "offsets", torch.int64), nodes, 0
        self.row = 0  # the first whose offset is still to be written

    def add(self, keys: Array) -> None:
        receivers = (keys >> np.uint64(32)).astype(np.int64)
        stop = int(receivers[-1]) + 1 if len(keys) else self.row
        for start in range(self.row, stop, ROWS):
            rows = np.arange(start, min(start + ROWS, stop))
            self.writer.write(torch.from_numpy(np.searchsorted(receivers, rows)) + self.edges)
        self.row, self.edges = max(self.row, stop), self.edges + len(keys)

    def finish(self) -> Writer:
        """With the rows behind the last edge."""
        for start in range(self.row, self.nodes + 1, ROWS):
            self.writer.write(torch.full((min(ROWS, self.nodes + 1 - start),), self.edges))
        return self.writer
