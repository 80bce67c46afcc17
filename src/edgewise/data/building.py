"""A store from files, or from edges that are generated: sorted on the disk, within a given memory."""

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.data.columns import NODES, ends_called
from edgewise.data.table import Called, Problems, Table, is_table, names_in, pieces
from edgewise.data.words import ENDS, UNKNOWN
from edgewise.errors import DataError, GraphError, nearest
from edgewise.files import check_header, flush, path_of, reading
from edgewise.graphs.checks import dense_tensor, index_tensor, shown, whole_number
from edgewise.graphs.layout import MANIFEST, MAX_NODES, TYPES, Array, Manifest, Stored, Writer, as_array, writing_store
from edgewise.graphs.store import LOW, EdgeSorter

ROWS = 1 << 16  # edges or nodes at once, of a table
NUMBERS = 1 << 22  # numbers at once, of an array
PARTS = ("train", "valid", "test")
MAX_CLASSES = 1 << 16
UNNAMED = "no column 'node' or 'id' of --nodes names the nodes, so that the edges' ends are rows, from 0"


@dataclass
class Names:
    """The nodes' numbers by name: a sorted table of 64-bit hashes, 16 bytes for each node.

    Differs     two different names have one hash with a probability of N² / 2⁶⁵, and are then refused as one
    """

    parts: list[Array] = field(default_factory=list)
    hashes: Array = field(default_factory=lambda: np.empty(0, np.int64))
    numbers: Array = field(default_factory=lambda: np.empty(0, np.int64))

    def add(self, names: Sequence[str]) -> None:
        self.parts.append(_hashes(names))

    def finish(self) -> int | None:
        """Sort the table; the number of a node whose name was there before, if there is one."""
        hashes = np.concatenate([np.empty(0, np.int64), *self.parts])
        self.parts.clear()
        self.numbers = hashes.argsort(kind="stable")
        self.hashes = hashes[self.numbers]
        twice = np.flatnonzero(self.hashes[1:] == self.hashes[:-1])
        return int(self.numbers[twice + 1].min()) if len(twice) else None

    def find(self, table: Table, column: str) -> Array:
        """The nodes that a column names."""
        names = table.names(column)
        hashes = _hashes(names)
        place = np.searchsorted(self.hashes, hashes).clip(max=max(len(self.hashes) - 1, 0))
        strange = np.flatnonzero(self.hashes[place] != hashes) if len(self.hashes) else np.arange(len(names))
        if len(strange):
            raise DataError(f"{table.at(int(strange[0]))}: there is no node {names[strange[0]][:40]!r}")
        return self.numbers[place]


def _hashes(names: Sequence[str]) -> Array:
    return np.fromiter(map(hash, names), np.int64, len(names))  # SipHash with a key of this process


def edges_of(
    path: Path, names: Names | None, chosen: Sequence[str] = ()
) -> Iterator[tuple[Array, Array, Array | None]]:
    """(senders, receivers, attributes [*, D]) of a file, some edges at a time.

    A table has the columns `sender` and `receiver` (or another pair of `ENDS`, or those chosen), and its other columns
    with a name are attributes; an array is [2, E] (senders, receivers) or [E, 2]; a safetensors file has `edge_index`
    [2, E] and, if there are, `edge_attr` [E, D].
    """
    if is_table(path):
        columns = names_in(path)
        called = ends_called(path, columns, chosen, "--ends")
        if columns and not called:
            expected = ", ".join(" and ".join(pair) for pair in ENDS[:4])
            raise DataError(
                f"{path}: its columns are {', '.join(columns)}; expected {expected}, ...: give --ends FROM,TO"
            )
        for table in pieces(path, called, ROWS):
            rest = [column for column in table.columns if column and column not in called]
            e = np.stack([table.numbers(column) for column in rest], 1).astype(np.float32) if rest else None
            ends = [names.find(table, end) if names else _numbered(table, end) for end in called]
            yield ends[0], ends[1], e
        return
    if names:
        raise DataError(
            f"{path}: an array's ends are numbers, and the nodes have names: leave out the column that names them"
        )
    arrays = arrays_of(path)
    index = arrays.get("edge_index", arrays.get(""))
    known = [name for name in arrays if name in ("", "edge_index", "edge_attr")]
    whole = index is not None and not index.dtype.is_floating_point and index.dtype != torch.bool
    if index is None or not whole or len(index.shape) != 2 or 2 not in index.shape:
        raise DataError(f"{path}: edges must be integers [2, E] or [E, 2], as `edge_index`; it has {_listed(arrays)}")
    if len(known) < len(arrays):
        raise DataError(f"{path}: nothing reads {', '.join(sorted(set(arrays) - set(known)))}: leave it out")
    attributes = arrays.get("edge_attr")
    sides = _sides(index)
    rows = None if attributes is None else sum(attributes.shape[:1])  # a single number has none
    if rows is not None and rows != sides[0].shape[0]:
        raise DataError(f"{path}: edge_attr has {rows:,} rows for {sides[0].shape[0]:,} edges")
    step = max(1, NUMBERS // (1 if attributes is None else 1 + attributes.row_bytes // 4))
    for first in range(0, sides[0].shape[0], step):
        last = min(first + step, sides[0].shape[0])
        ends = [as_array(side.rows(first, last)) for side in sides]
        if len(sides) == 1:
            ends = [ends[0][:, 0], ends[0][:, 1]]
        e = None if attributes is None else attributes.rows(first, last).float().reshape(last - first, -1).numpy()
        for end in ends:
            if (wrong := np.flatnonzero((end < 0) | (end > MAX_NODES))).size:
                raise DataError(f"{path}: edge {first + wrong[0]:,} has an end {end[wrong[0]]}: nodes count from 0")
        yield ends[0], ends[1], e


def _sides(index: Stored) -> list[Stored]:
    """Senders and receivers of [2, E] apart; [E, 2] as it is."""
    if index.shape[0] != 2:
        return [index]
    size = index.shape[1] * index.dtype.itemsize
    return [Stored(index.path, index.dtype, index.shape[1:], index.start + n * size) for n in range(2)]


def _numbered(table: Table, column: str) -> Array:
    try:
        numbers = table.numbers(column)
    except DataError as error:
        raise DataError(f"{error}; {UNNAMED}") from error
    wrong = np.flatnonzero((numbers != np.floor(numbers)) | (numbers < 0) | (numbers > MAX_NODES))
    if len(wrong):
        raise DataError(f"{table.at(int(wrong[0]))}: {column} is {numbers[wrong[0]]:g}; {UNNAMED}")
    return numbers.astype(np.int64)


def _about_nodes(path: Path, columns: Sequence[str]) -> dict[str, str]:
    """The columns that are no features, by what they say: `node`, `label` and `split`."""
    lower = Called(path, columns)
    named_by = next((name for name in NODES if name in lower), "node")
    means = {"node": named_by, "label": "label", "split": "split"}
    return {meaning: lower[name] for meaning, name in means.items() if name in lower}


class NodeColumns:
    """Collects what is known of the nodes: features and names on the disk, labels and parts in memory."""

    def __init__(self, folder: Path, dtype: torch.dtype | None) -> None:
        self.folder, self.dtype, self.count = folder, dtype, 0
        self.x: Writer | None = None
        self.features: tuple[str, ...] = ()
        self.names: Names | None = None
        self.texts: tuple[Writer, Writer] | None = None
        self.text_end = 0
        self.classes: dict[str, int] = {}
        self.labels: list[Array] = []
        self.splits: list[Array] = []
        self.kinds: set[str] = set()

    def read(self, path: Path) -> None:
        """All nodes of a file, after those of the files before.

        A table's columns are `node` or another of `NODES` (names), `label` (`UNKNOWN`), `split` and features; an array
        is x [N, C]; a safetensors file has `x` and, if there are, `labels` [N] (-1: unknown) and masks `train`,
        `valid`, `test` [N].
        """
        if is_table(path):
            about = _about_nodes(path, names_in(path))
            for table in pieces(path, (), ROWS):
                self._add_rows(table, about)
            return
        arrays = {name or "x": array for name, array in arrays_of(path).items()}
        if "x" not in arrays or len(arrays["x"].shape) != 2 or {*arrays} - {"x", "labels", *PARTS}:
            raise DataError(f"{path}: nodes are x [N, C], labels, train, valid and test [N]; it has {_listed(arrays)}")
        count, width = arrays["x"].shape
        for name in arrays.keys() - {"x"}:
            if arrays[name].shape != (count,) or arrays[name].dtype.is_floating_point:
                raise DataError(f"{path}: {name} must be whole numbers [{count}], not {_listed(arrays)}")
        step = max(1, NUMBERS // max(1, width))
        for first in range(0, count, step):
            last = min(first + step, count)
            self.add({name: array.rows(first, last) for name, array in arrays.items()}, str(path))

    def add(self, rows: Mapping[str, Tensor], where: str) -> None:
        """The next nodes: their features x [n, C] and, if there are, labels [n] and masks [n] of each part."""
        if not isinstance(rows, Mapping):
            what = "a file, or tensors by their names (x, labels, train, ...)"
            raise DataError(f"{where} must be {what}, not {shown(rows)}")
        self._has({*rows}, where)
        if not {"x"} <= {*rows} <= {"x", "labels", *PARTS}:
            raise DataError(f"{where}: nodes are x, labels, train, valid and test, not {', '.join(rows)}")
        known: dict[str, Tensor] = {}
        for name, given in rows.items():
            axes = "[N, C]" if name == "x" else "[N]"
            numbers = known[name] = dense_tensor(given, f"{name} of {where}", axes).detach().cpu()
            if numbers.ndim != axes.count(",") + 1 or len(numbers) != len(rows["x"]):
                raise DataError(f"{name} of {where} must be {axes} for N nodes, not {shown(numbers)}")
        self._add_features(known["x"], where)
        if "labels" in known:
            self.labels.append(_numbers_of_classes(known["labels"], where))
        self._add_splits({part: known[part].numpy() != 0 for part in PARTS if part in known}, len(known["x"]), where)

    def _add_features(self, rows: Tensor, where: str) -> None:
        """Features of the next nodes, which must be finite in the type that is stored."""
        if self.x is None:
            self.dtype = self.dtype or (rows.dtype if rows.dtype in STORED_FEATURES else torch.float32)
            self.x = Writer(self.folder, "x", self.dtype, (rows.shape[1],))
        if rows.shape[1:] != self.x.row_shape:
            raise DataError(f"{where}: {rows.shape[1]} features for a node, and {self.x.row_shape[0]} before")
        stored = rows.to(self.x.dtype)
        fits = torch.isfinite(stored) if stored.dtype.is_floating_point else stored == rows
        if not bool(fits.all()):
            row, column = (~fits).nonzero()[0].tolist()
            name = str(self.x.dtype).removeprefix("torch.")
            raise DataError(f"{where}: node {self.count + row:,}, feature {column} is {rows[row, column]:g}: no {name}")
        self.x.write(stored)
        self.count += len(rows)

    def _add_rows(self, table: Table, about: Mapping[str, str]) -> None:
        features = tuple(column for column in table.columns if column and column not in about.values())
        self._has({*about} | {"x" for _ in features}, str(table.path))
        if features != (self.features or features):
            raise DataError(f"{table.path}: its features are {', '.join(features)}; before: {', '.join(self.features)}")
        self.features = features
        if features:
            numbers = np.stack([table.numbers(column) for column in features], 1).astype(np.float32)
            self._add_features(torch.from_numpy(numbers), str(table.path))
        else:
            self.count += len(table)
        if "node" in about:
            self._add_names(table, about["node"])
        if "label" in about:
            self.labels.append(self._classes(table, about["label"]))
        if "split" in about:
            self._add_named_splits(table, about["split"])

    def _has(self, kinds: set[str], where: str) -> None:
        if self.kinds and kinds != self.kinds:
            raise DataError(
                f"{where}: it has {', '.join(sorted(kinds))}, and the file before {', '.join(sorted(self.kinds))}"
            )
        self.kinds = kinds

    def _add_names(self, table: Table, column: str) -> None:
        names, problems = table.names(column), Problems()
        for row, name in enumerate(names):
            if not name:
                problems.add(f"{table.at(row)}: the node has no name")
        problems.check()
        if self.names is None or self.texts is None:
            self.names = Names()
            self.texts = Writer(self.folder, "names", torch.uint8), Writer(self.folder, "name_ends", torch.int64)
        self.names.add(names)
        content = [name.encode() for name in names]
        ends = torch.tensor([len(text) for text in content], dtype=torch.int64).cumsum(0) + self.text_end
        self.text_end = int(ends[-1]) if len(ends) else self.text_end
        joined = b"".join(content)
        self.texts[0].write(torch.frombuffer(bytearray(joined), dtype=torch.uint8) if joined else torch.empty(0))
        self.texts[1].write(ends)

    def _classes(self, table: Table, column: str) -> Array:
        labels = ["" if label.lower() in UNKNOWN else label for label in table.texts(column)]
        for label in set(labels) - {"", *self.classes}:
            self.classes[label] = len(self.classes)
        if len(self.classes) > MAX_CLASSES:
            raise DataError(f"{table.path}: over {MAX_CLASSES:,} labels that differ: classes are few, and repeat")
        number_of = self.classes | {"": -1}
        return np.fromiter((number_of[label] for label in labels), np.int32, len(labels))

    def _add_named_splits(self, table: Table, column: str) -> None:
        code = {"": 0} | {part: number for number, part in enumerate(PARTS, start=1)}
        given = table.texts(column)
        for row, name in enumerate(given):
            if name not in code:
                raise DataError(
                    f"{table.at(row)}: the split {name[:40]!r} is none of {', '.join(PARTS)}{nearest(name, PARTS)}"
                )
        self.splits.append(np.fromiter((code[name] for name in given), np.int8, len(given)))

    def _add_splits(self, masks: dict[str, Array], count: int, where: str) -> None:
        if masks and len(masks) < len(PARTS):
            raise DataError(f"{where}: it has {', '.join(masks)} of the masks train, valid and test: give all or none")
        if masks:
            before = sum(map(len, self.splits))
            code = np.zeros(count, np.int8)
            for number, part in enumerate(PARTS, start=1):
                if (twice := np.flatnonzero(masks[part] & (code > 0))).size:
                    node, other = before + int(twice[0]), PARTS[code[twice[0]] - 1]
                    raise DataError(f"{where}: node {node:,} is in {other} and in {part}: a node is in one of them")
                code[masks[part]] = number
            self.splits.append(code)

    def finish(self) -> tuple[dict[str, Stored], tuple[str, ...]]:
        """The arrays that are complete now, and the names of the classes, in order."""
        done = [writer for writer in (self.x, *(self.texts or ())) if writer is not None]
        if self.names is not None and (twice := self.names.finish()) is not None:
            raise DataError(f"node {twice:,}: its name is that of a node before")
        classes = tuple(sorted(self.classes))
        if self.labels:
            labels = torch.from_numpy(np.concatenate(self.labels))
            if classes:  # in the order of their names, whatever the files' order
                number_of = {label: number for number, label in enumerate(classes)}
                place = torch.tensor([*map(number_of.__getitem__, self.classes), -1])
                labels = place[labels.long()]
            done.append(Writer(self.folder, "labels", torch.int32))
            done[-1].write(labels)
            if not classes:
                classes = tuple(f"class {number}" for number in range(int(labels.max()) + 1 if len(labels) else 0))
        if self.splits:
            code = np.concatenate(self.splits)
            for number, part in enumerate(PARTS, start=1):
                done.append(Writer(self.folder, part, torch.int64))
                done[-1].write(torch.from_numpy(np.flatnonzero(code == number)))
        return {writer.name: writer.finish() for writer in done}, classes


def _numbers_of_classes(labels: Tensor, where: str) -> Array:
    """Whole numbers below `MAX_CLASSES`, -1 for those below 0."""
    if labels.is_floating_point():
        dtype = str(labels.dtype).removeprefix("torch.")
        raise DataError(f"labels of {where} must be whole numbers [N], not {dtype}")
    labels = labels.long().clamp(min=-1)
    if len(labels) and (most := int(labels.max())) >= MAX_CLASSES:
        raise DataError(f"labels of {where} must be numbers of classes below {MAX_CLASSES:,}, not {most:,}")
    return labels.to(torch.int32).numpy()


STORED_FEATURES = (torch.float32, torch.float16, torch.bfloat16, torch.int8)


def arrays_of(path: Path) -> dict[str, Stored]:
    """The arrays of a .npy file (under the name "") or of a safetensors file, where they lie.

    Errors      DataError: another kind of file, one that is damaged or promises more than it holds, or objects
    """
    with reading(path, "a .npy or safetensors file with numbers"), path.open("rb") as file:
        size = path.stat().st_size
        if path.suffix.lower() == ".npy":
            major, _ = np.lib.format.read_magic(file)
            header = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
            shape, by_column, dtype = header(file)
            if not dtype.isnative:
                raise ValueError("its numbers are in the other order of bytes: write it in that of this machine")
            kind = torch.from_numpy(np.empty(0, dtype)).dtype
            if by_column and len(shape) > 1:
                raise ValueError("its columns lie one after the other: write it in C order")
            found = {"": Stored(path, kind, shape, file.tell())}
        elif path.suffix.lower() == ".safetensors":
            start = file.read(8)
            check_header(start)
            length = int.from_bytes(start, "little")
            parts = json.loads(file.read(length))
            parts.pop("__metadata__", None)
            found = {name: _part(path, known, 8 + length) for name, known in parts.items()}
        else:
            raise DataError(f"{path}: files end in .csv, .parquet, .npy or .safetensors")
        for name, array in found.items():
            if array.dtype.is_complex:
                raise ValueError(f"{name or 'it'} has complex numbers")
            if array.start + array.nbytes > size:
                raise ValueError(f"{name} promises {list(array.shape)} in {size:,} bytes")
    return found


def _part(path: Path, known: dict[str, Any], start: int) -> Stored:
    shape, (first, last) = tuple(map(int, known["shape"])), known["data_offsets"]
    array = Stored(path, TYPES[known["dtype"]], shape, start + int(first))
    if min(shape, default=0) < 0 or first < 0 or last - first != array.nbytes:
        raise ValueError(f"an array of shape {shape} in {last - first} bytes")
    return array


def _listed(arrays: dict[str, Stored]) -> str:
    return ", ".join(f"{name} {list(array.shape)} {array.dtype}".strip() for name, array in arrays.items()) or "nothing"


LEAST_MEMORY = 64 << 20  # bytes
SHARE = 0.5  # of the memory, that the sort takes: Python, PyTorch and the readers take some, too
OFFSETS = 1 << 20  # offsets written at once

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
        for start in range(self.row, stop, OFFSETS):
            rows = np.arange(start, min(start + OFFSETS, stop))
            self.writer.write(torch.from_numpy(np.searchsorted(receivers, rows)) + self.edges)
        self.row, self.edges = max(self.row, stop), self.edges + len(keys)

    def finish(self) -> Writer:
        """With the rows behind the last edge."""
        for start in range(self.row, self.nodes + 1, OFFSETS):
            self.writer.write(torch.full((min(OFFSETS, self.nodes + 1 - start),), self.edges))
        return self.writer
