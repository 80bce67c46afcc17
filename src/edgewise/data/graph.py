"""A graph of one's own from a folder: a table of nodes and one or more of edges, or one .npz file."""

import io
from collections.abc import Iterable, Mapping
from math import prod
from pathlib import Path
from typing import Any
from zipfile import ZipFile, ZipInfo

import numpy as np
import torch
from torch import Tensor

from edgewise.data.columns import Array, Column
from edgewise.data.examples import ARRAYS, DEGREE, Asked, OneGraph, read_tables
from edgewise.data.splits import SPLITS, Splits, check_apart
from edgewise.data.table import LARGEST, find_table, find_tables, unread, wrong
from edgewise.errors import DataError, GraphError
from edgewise.files import check_folder, read_bytes, reading
from edgewise.graphs import Graph

MAX_BYTES = 1 << 27  # of a .npz file, packed and unpacked
ENDS, X, LABELS, EDGES = "edge_index", "x", "labels", "edge_attr"


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
    return read_tables(nodes, edges, asked)


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
    if asked.weights and asked.labelled:
        raise DataError(f"{path}: weights are a column of a table: give nodes.csv, or leave out --task.sample_weight")
    named = (X, LABELS, EDGES, *(SPLITS if asked.labelled else ()))
    arrays = read_arrays(path, (ENDS, LABELS) if asked.labelled else (ENDS,), named)
    edges, count = arrays[ENDS], _count(arrays)
    bare = X not in arrays or (asked.known is not None and [*asked.known[0]] == [DEGREE])
    x = [] if bare else _columns(path, X, arrays[X], f"[{count}, C]")
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
    e = _columns(path, EDGES, arrays[EDGES], f"[{edges.shape[1]}, D]") if EDGES in arrays else []
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


def _columns(path: Path, name: str, x: Array, shape: str) -> list[Column]:
    """An array of numbers as columns, called by its name, with its place where there are several.

    Errors      DataError for an array of another shape, and for the first number that no float32 holds
    """
    x = x[:, None] if x.ndim == 1 and name == EDGES else x
    if x.ndim != 2 or str(len(x)) != shape[1:-4] or x.shape[1] == 0 or x.dtype.kind not in "buif":
        raise DataError(f"{path}: {name} must be numbers {shape}, not {x.dtype} {list(x.shape)}")
    first, present = 0, np.ones(len(x), dtype=bool)
    for part in np.array_split(x, 1 + x.nbytes // (1 << 24)):
        if len(cells := np.argwhere(~(np.abs(part.astype(np.float64)) <= LARGEST))):
            row, column = cells[0].tolist()
            value = part[row, column]
            raise DataError(f"{path}: {name}[{first + row}, {column}] is {value}, {wrong(value)}")
        first += len(part)
    names = [name] if x.shape[1] == 1 else [f"{name} {number}" for number in range(x.shape[1])]
    each = zip(names, x.T.astype(np.float64), strict=True)
    return [Column(one, "number", values, present) for one, values in each]


def _chosen(path: Path, split: str, array: Array, nodes: int) -> Tensor:
    """The nodes that a mask [N], which is bool, or a list of nodes names."""
    if array.dtype.kind == "b" and array.shape == (nodes,):
        return torch.from_numpy(np.flatnonzero(array))
    if array.dtype.kind not in "ui" or array.ndim != 1 or not ((array >= 0) & (array < nodes)).all():
        raise DataError(f"{path}: {split} must be a mask [{nodes}] or nodes from 0 to {nodes - 1}")
    return torch.from_numpy(array.astype(np.int64))
