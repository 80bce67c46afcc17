"""A graph of one's own from a folder: a table of nodes and one or more of edges, or one .npz file."""

import io
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from math import prod
from pathlib import Path
from typing import Any, Self
from zipfile import ZipFile, ZipInfo

import numpy as np
import torch
from torch import Tensor

from edgewise.data.columns import NODES, Array, Column, in_lines, read_columns
from edgewise.data.dialect import LARGEST
from edgewise.data.edges import RELATION, Edges, columns_of, ends_of, found_ends
from edgewise.data.examples import (
    Asked,
    Examples,
    chosen_id,
    distinct,
    labels_of,
    left_out,
    parts_of,
    repeated,
    rows_at,
    strangers,
)
from edgewise.data.splits import SPLITS, Splits, check_apart
from edgewise.data.table import Called, Problems, Table, find_table, find_tables, read_table, unread, wrong
from edgewise.errors import DataError, GraphError
from edgewise.files import check_folder, read_bytes, reading
from edgewise.graphs import Graph

MAX_BYTES = 1 << 27  # of a .npz file, packed and unpacked
MAX_NODES = 1 << 21  # of a table: each has a name
DEGREE = "log(1 + degree)"  # the feature of nodes of which nothing else is known
ARRAYS = "graph.npz"
ENDS, X, LABELS, EDGES = "edge_index", "x", "labels", "edge_attr"
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True)
class OneGraph(Examples):
    """The nodes of one graph, and its edges.

    Args:
        edges: Senders and receivers [2, E], by the nodes' rows.
        x: What is known of the nodes: columns, or numbers [N, C].
        e: What is known of the edges: columns, or numbers [E, D]; None: nothing.
    """

    edges: Array = field(default_factory=lambda: np.zeros((2, 0), dtype=np.int64))
    x: list[Column] | Array = field(default_factory=list)
    e: list[Column] | Array | None = None

    def described(self, edges: Array) -> Self:
        """The same, with each node's degree among edges [2, E] where nothing else is known of the nodes."""
        if not isinstance(self.x, list) or self.x:
            return self
        degrees = np.log1p(np.bincount(edges.reshape(-1), minlength=len(self)))
        column = Column(DEGREE, "number", degrees, np.ones(len(self), dtype=bool))
        return replace(self, x=[column], notes=(*self.notes, f"each node has {DEGREE}: nothing else is known of it"))


def read_graph(place: Path, asked: Asked) -> OneGraph:
    """The graph of a folder."""
    check_folder(place)
    nodes, edges = find_table(place, "nodes"), find_tables(place, "edges")
    found = [table.name for table in (nodes, *edges) if table]
    if (place / ARRAYS).is_file():
        if found:
            raise DataError(f"{place}: it has {ARRAYS} and {', '.join(found)}: which is meant? Leave one of them")
        return read_npz(place / ARRAYS, asked)
    if not (nodes and edges):
        lacking = ", ".join(f"{name}.csv" for name, table in (("nodes", nodes), ("edges", edges)) if not table)
        raise DataError(f"{place} lacks {lacking} (or .tsv, .parquet), and it has no {ARRAYS}. Give --task.folder")
    if asked.known and not asked.known[0]:
        raise DataError(f"{place}: it has tables, and the run was trained with arrays: give {ARRAYS}")
    return read_tables(nodes, edges, asked)


def read_tables(nodes: Path, edges: Sequence[Path], asked: Asked) -> OneGraph:
    """The nodes and edges of tables.

    Errors      DataError with all that is wrong: rows, cells, columns and names that do not fit
    """
    table, links = read_table(nodes, whole=False), [Edges(path, asked.ends) for path in edges]
    problems, lower = Problems(table.problems), Called(nodes, table.header, asked.ignore)
    known = asked.known[0] if asked.known else None
    labels = [lower.meant(name) for name in asked.label]
    has_split = asked.labelled and "split" in lower
    split = lower["split"] if has_split else lower.get("split", "split")
    named_by = _named(table, asked, lower)
    needed = labels if asked.labelled else []
    table.need(needed)
    if not len(table) and not table.problems:
        raise DataError(f"{nodes}: it has no nodes: no line follows the columns' names")
    if len(table) > MAX_NODES:
        raise DataError(f"{nodes}: {len(table):,} nodes, of at most {MAX_NODES:,}: such a graph is read from {ARRAYS}")
    notes = [*table.notes]
    if not named_by and asked.id != "row":
        named_by = _covering(table, links, {*asked.ignore, *labels, split, *(known or ())})
        notes += [f"{named_by} names the nodes: each end of an edge is one of its cells"] if named_by else []
    names = table.names(named_by) if named_by else [str(row) for row in range(len(table))]
    present, taken = {*table.header}, {*asked.ignore, named_by, *labels, split, ""}
    others = [name for name in table.header if name not in taken]
    features = others if known is None else [] if [*known] == [DEGREE] else [*known]
    read = [name for name in (*features, *needed, *([split] if has_split else ())) if name in present]

    def called(row: int) -> str:
        return f"the node {names[row][:40]!r}"

    rows = distinct(table, names, read, problems, "the node has no name", called)
    notes += repeated(table, rows)
    names = [names[row] for row in rows.tolist()] if len(rows) < len(names) else names
    number_of = {name: number for number, name in enumerate(names)}
    for one in links:
        one.look(number_of, asked)
        notes += one.notes
    problems.extend(_misfits(table, links, asked, features, {named_by, *labels}))
    x, wrong_cells = read_columns(table, [name for name in features if name in present], known)
    e, wrong_edges = columns_of(links, asked)
    ends = ends_of(links, number_of, problems)
    parts = table.texts(split) if has_split else []
    splits = parts_of([parts[row] for row in rows.tolist()], rows_at(table, rows), problems) if has_split else {}
    if all_wrong := [*wrong_cells, *wrong_edges, *problems.sentences()]:
        raise DataError(*all_wrong)
    of_targets = [labels_of(table, name, table.texts(name)) for name in needed]
    new = [name for name in others if name not in {*features}]
    new += [n for one in links for n in one.names if asked.known and n not in {*one.ends, *asked.known[1]}]
    new += ["without a name"] * ("" in table.header)
    notes += [*in_lines(x), *in_lines(e, "of edges: "), *left_out(new), *unread(nodes.parent, (nodes, *edges))]
    return OneGraph(
        nodes.parent,
        (nodes, *edges),
        "nodes",
        len(rows),
        names if named_by else None,
        tuple(needed),
        [[cells[row] for row in rows.tolist()] for cells in of_targets],
        splits,
        found=({"node": named_by} if named_by else {}) | found_ends(links),
        notes=tuple(notes),
        counts={"edges": ends.shape[1]},
        edges=ends,
        x=[column.taken(rows) for column in x],
        e=e or None,
    )


def _named(table: Table, asked: Asked, lower: Called) -> str:
    """The column that is chosen to name the nodes, or that is called so; or nothing."""
    if asked.id:
        return chosen_id(table, asked)
    if asked.found.get("node") in table.header:
        return asked.found["node"]
    found = [lower[name] for name in NODES if name in lower]
    if len(found) > 1:
        which = f"{' or '.join(found)}, which names the nodes?"
        raise DataError(f"{table.path}: {which} Give --task.id, or --task.ignore the other")
    return found[0] if found else ""


def _covering(table: Table, links: Sequence[Edges], left_out: set[str]) -> str:
    """The one column of which each cell is another, and that has all ends of edges; nothing: nodes are their rows."""
    ends = {name for one in links for end in one.ends for name in one.names_of(end)}
    rows = {str(row) for row in range(len(table))}
    fitting = []
    for name, cells in table.columns.items():
        if ends and name not in left_out and cells.n_unique() == len(table):  # before texts are made of them
            texts = {*table.texts(name)}
            if len(texts) == len(table) and ends <= texts and texts != rows:
                fitting.append(name)
    if len(fitting) > 1 or (fitting and ends <= rows):
        choice = ", ".join([*fitting, *(["row"] if ends <= rows else [])])
        raise DataError(f"{table.path}: what names the nodes? Give --task.id, one of {choice}")
    return fitting[0] if fitting else ""


def _misfits(
    table: Table, links: Sequence[Edges], asked: Asked, features: Iterable[str], needed: set[str]
) -> list[str]:
    """What is wrong with the names of columns."""
    problems, place = [], table.path.parent
    present = {*table.header}
    if lacking := [name for name in features if name not in present]:
        problems.append(f"{table.path}: it lacks the columns {', '.join(lacking)}, which the run was trained with")
    present |= {name for one in links for name in one.names} | ({RELATION} if len(links) > 1 else set())
    if needless := asked.ignore & (needed | {end for one in links for end in one.ends}):
        names = ", ".join(sorted(needless))
        problems.append(f"{place}: the columns {names} are needed: they cannot be ignored")
    split = next((name for name in table.header if name.lower() == "split"), "")
    if split and not asked.labelled and asked.known is None and split not in asked.ignore:
        problems.append(
            f"{table.path}: nothing reads its column {split}, which parts nodes: give --task.ignore {split}"
        )
    return problems + (strangers(place, asked.ignore, present, *(asked.known or ())) if asked.labelled else [])


def read_arrays(path: Path, needed: Iterable[str], optional: Iterable[str] = ()) -> dict[str, np.ndarray[Any, Any]]:
    """Arrays of a .npz file by name, never unpickled.

    Errors      a file that is missing, damaged or too large, or lacks one that is needed: `DataError`.
    """
    content = read_bytes(path, MAX_BYTES)
    with reading(path, "a .npz file with the arrays that were expected"), ZipFile(io.BytesIO(content)) as file:
        parts = {entry.filename.removesuffix(".npy"): entry for entry in file.infolist()}
        lacking = [name for name in needed if name not in parts]
        if lacking:
            raise ValueError(f"it lacks {', '.join(lacking)}")
        wanted = {name: parts[name] for name in (*needed, *optional) if name in parts}
        size = sum(entry.file_size for entry in wanted.values())  # the reader of a part stops there
        if size > MAX_BYTES:
            raise DataError(f"{path}: unpacks to {size:,} bytes, of at most {MAX_BYTES:,}")
        return {name: _read_part(file, entry) for name, entry in wanted.items()}


def _read_part(file: ZipFile, entry: ZipInfo) -> np.ndarray[Any, Any]:
    """One array of a .npz file, once its header promises no more than its bytes."""
    with file.open(entry) as part:
        major, _ = np.lib.format.read_magic(part)
        header = np.lib.format.read_array_header_1_0 if major == 1 else np.lib.format.read_array_header_2_0
        shape, _, dtype = header(part)
        if prod(shape) * dtype.itemsize > entry.file_size:
            raise ValueError(f"{entry.filename} promises {list(shape)} of {dtype} in {entry.file_size} bytes")
    with file.open(entry) as part:
        return np.lib.format.read_array(part, allow_pickle=False)


def read_npz(path: Path, asked: Asked) -> OneGraph:
    """The arrays of a graph.npz, whose x may be absent.

    Errors      DataError for an array that is missing, malformed or does not fit the others
    """
    named = (X, LABELS, EDGES, *(SPLITS if asked.labelled else ()))
    arrays = read_arrays(path, (ENDS, LABELS) if asked.labelled else (ENDS,), named)
    edges, count = arrays[ENDS], _count(arrays)
    bare = X not in arrays or (asked.known is not None and [*asked.known[0]] == [DEGREE])
    x: list[Column] | Array = [] if bare else arrays[X]
    if not isinstance(x, list):
        if x.ndim != 2 or x.shape[1] == 0 or x.dtype.kind not in "buif":
            raise DataError(f"{path}: x must be numbers [N, C], not {x.dtype} {list(x.shape)}")
        _check_finite(path, X, x)
    targets = _targets(path, arrays[LABELS], count) if asked.labelled else {}
    if edges.dtype.kind not in "ui" or edges.ndim != 2:
        raise DataError(f"{path}: {ENDS} must be whole numbers [2, E], not {edges.dtype} {list(edges.shape)}")
    try:
        Graph.from_edge_index(torch.from_numpy(edges.astype(np.int64)), count)
    except GraphError as error:
        raise DataError(f"{path}: edge_index: {error}") from error
    given = [split for split in SPLITS if split in arrays]
    if given and len(given) < len(SPLITS):
        raise DataError(f"{path}: it has {', '.join(given)} of the arrays train, valid and test: give all or none")
    splits: Splits = {split: _chosen(path, split, arrays[split], count) for split in given}
    check_apart(splits, "node", f"{path}: ")
    e = arrays.get(EDGES)
    if e is not None:
        e = e[:, None] if e.ndim == 1 else e
        if e.ndim != 2 or len(e) != edges.shape[1] or e.dtype.kind not in "buif":
            raise DataError(f"{path}: {EDGES} must be numbers [{edges.shape[1]}, D], not {e.dtype} {list(e.shape)}")
        _check_finite(path, EDGES, e)
    with reading(path, "a .npz file"), ZipFile(path) as file:
        others = sorted({name.removesuffix(".npy") for name in file.namelist()} - {ENDS, *named, *SPLITS})
    others += [X] if bare and X in arrays else []
    return OneGraph(
        path.parent,
        (path,),
        "nodes",
        count,
        called=tuple(targets),
        targets=[*targets.values()],
        splits=splits,
        notes=(*([f"not read: the arrays {', '.join(others)}"] if others else []), *unread(path.parent, [path])),
        counts={"edges": edges.shape[1]},
        edges=edges.astype(np.int64),
        x=x,
        e=e,
    )


def _count(arrays: Mapping[str, Array]) -> int:
    """How many nodes there are: rows of x, else of labels, else as many as the largest end says."""
    for name in (X, LABELS):
        if name in arrays and arrays[name].ndim:
            return len(arrays[name])
    edges = arrays[ENDS]
    return max(0, int(edges.max()) + 1) if edges.size and edges.dtype.kind in "ui" else 0


def _targets(path: Path, labels: Array, nodes: int) -> dict[str, Array]:
    """The labels of each target by its name: of an array [N] one, of [N, T] the columns."""
    shaped = labels.ndim in (1, 2) and len(labels) == nodes and 0 not in labels.shape[1:]
    if not shaped or labels.dtype.kind not in "uif" or bool(np.isinf(labels).any()):
        what = f"whole numbers [{nodes}], or finite numbers of a quantity; of several targets [{nodes}, T]"
        raise DataError(f"{path}: labels must be {what}, not {labels.dtype} {list(labels.shape)}")
    labels = labels.astype(np.float64 if labels.dtype.kind == "f" else np.int64)
    if labels.dtype.kind == "i" and len(strange := np.argwhere(labels < -1)):
        right = "whole numbers are -1 where unknown: give a quantity as floating numbers"
        raise DataError(f"{path}: labels of node {strange[0, 0]} are {labels[tuple(strange[0])]}, and {right}")
    if labels.ndim == 1:
        return {"labels": labels}
    return {f"labels {number}": np.ascontiguousarray(labels[:, number]) for number in range(labels.shape[1])}


def _check_finite(path: Path, name: str, x: Array) -> None:
    """Name the first number that no float32 holds."""
    first = 0
    for part in np.array_split(x, 1 + x.nbytes // (1 << 24)):
        if len(cells := np.argwhere(~(np.abs(part.astype(np.float64)) <= LARGEST))):
            row, column = cells[0].tolist()
            value = part[row, column]
            raise DataError(f"{path}: {name}[{first + row}, {column}] is {value}, {wrong(value)}")
        first += len(part)


def _chosen(path: Path, split: str, array: Array, nodes: int) -> Tensor:
    """The nodes that a mask [N], which is bool, or a list of nodes names."""
    if array.dtype.kind == "b" and array.shape == (nodes,):
        return torch.from_numpy(np.flatnonzero(array))
    if array.dtype.kind not in "ui" or array.ndim != 1 or not ((array >= 0) & (array < nodes)).all():
        raise DataError(f"{path}: {split} must be a mask [{nodes}] or nodes from 0 to {nodes - 1}")
    return torch.from_numpy(array.astype(np.int64))


def times_of_edges(given: OneGraph, column: str) -> tuple[OneGraph, Column]:
    """When each edge is, and the data without that column, which is no feature then.

    Errors      DataError for a column that no table of edges has, that holds neither dates nor numbers, or has gaps
    """
    columns = given.e if isinstance(given.e, list) else []
    found = _time(given, columns, column, "edges")
    left = [one for one in columns if one is not found]
    return replace(given, e=left or None, notes=_without(given, f"of edges: {found}")), found


def times_of_nodes(given: OneGraph, column: str) -> tuple[OneGraph, Column]:
    """When each node is: by a column of the nodes, or where they have none that is called so, by its first edge."""
    columns = given.x if isinstance(given.x, list) else []
    if column in [one.name for one in columns]:
        found = _time(given, columns, column, "nodes")
        return replace(given, x=[one for one in columns if one is not found], notes=_without(given, str(found))), found
    given, found = times_of_edges(given, column)
    first = np.full(len(given), np.inf)
    for ends in given.edges:
        np.minimum.at(first, ends, found.values)
    if len(alone := np.flatnonzero(np.isinf(first))):
        shown = ", ".join(given.name(int(node))[:40] for node in alone[:5])
        more = f" and {len(alone) - 5:,} more" if len(alone) > 5 else ""
        raise DataError(f"{given.place}: {shown}{more} have no edge, and so no {column}: give the column of nodes")
    return given, replace(found, values=first, present=np.ones(len(first), dtype=bool))


def times_of_links(edges: Array, times: Array, nodes: int) -> Tensor:
    """When each link is, [M] in the order of `links_of`: at its first edge, whichever way that leads."""
    low, high = edges.min(0), edges.max(0)
    apart = low < high
    codes, link = np.unique((low * nodes + high)[apart], return_inverse=True)
    first = np.full(len(codes), np.inf)
    np.minimum.at(first, link, times[apart])
    return torch.from_numpy(first)


def in_words(column: Column, times: Tensor, splits: Splits, what: str) -> str:
    """Which times train, choose the weights and test, in a line."""

    def shown(time: float) -> str:
        if column.kind == "date":
            return (EPOCH + timedelta(days=time)).strftime("%Y-%m-%d" if time.is_integer() else "%Y-%m-%d %H:%M")
        return f"{time:g}"

    parts = {split: times[rows] for split, rows in splits.items()}
    ends = [f"{split} {shown(float(part.min()))} to {shown(float(part.max()))}" for split, part in parts.items()]
    return f"{what} by {column.name}: {', '.join(ends)}"


def _without(given: OneGraph, line: str) -> tuple[str, ...]:
    """The notes without the line that calls a column a feature."""
    return tuple(note for note in given.notes if note != line)


def _time(given: OneGraph, columns: Sequence[Column], column: str, what: str) -> Column:
    found = next((one for one in columns if one.name == column), None)
    if found is None:
        has = ", ".join(one.name for one in columns) or "no column beside their ends"
        raise DataError(f"{given.place}: no column of {what} that is read is called {column!r}; they have {has}")
    if found.kind not in ("date", "number", "boolean"):
        raise DataError(f"{given.place}: {column} holds {found.kind} cells: a time is a date or a number")
    if gaps := int((~found.present).sum()):
        raise DataError(f"{given.place}: {column} is missing in {gaps:,} rows of {what}: each needs its time")
    return found
