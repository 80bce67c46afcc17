"""A graph of one's own: nodes with features and classes, and who listens to whom, from CSV files or one .npz file."""

from __future__ import annotations

import csv
import io
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import DataError, GraphError
from edgewise.graphs import Graph
from edgewise.tasks.nodes import NodeClassification, Nodes, read_arrays
from edgewise.tasks.sources import local_folder, read_bytes
from edgewise.tasks.task import Split

MAX_BYTES = 1 << 30
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
ARRAYS = ("edge_index", "x", "labels")

Array = np.ndarray[Any, np.dtype[Any]]
Parts = tuple[Array, Array, Tensor, tuple[str, ...], dict[Split, Tensor]]


def node_folder(folder: str = "nodes", undirected: bool = True, fold: int = 0) -> NodeClassification:
    """Guess the classes of a graph's nodes: your own graph, from a folder.

    Either two CSV files, each with a line of column names first:
        nodes.csv   a column `label` (empty: unknown); if there are columns `node` and `split`, the nodes' names and
                    their parts "train", "valid", "test" or nothing; every other column is a feature, a number
        edges.csv   the columns `sender` and `receiver`: names of nodes or, without a column `node`, their rows from 0
    or one file graph.npz with the arrays `edge_index` [2, E] (senders, receivers), `x` [N, C] and integer `labels` [N]
    (-1: unknown) and, if there are, `train`, `valid` and `test`: nodes, or masks [N].

    Without parts, the labelled nodes are cut at random into 60 % to train, 20 % to choose the weights by and 20 % to
    test. Features are read as they are.

    Args:
        folder: Where the files lie.
        undirected: Let every node also listen to those that listen to it.
        fold: Seed of the random cut: another number, another cut.

    Errors      a file that is missing, malformed or does not fit the others is a `DataError` that names the line, the
                column or the array.
    """
    place = Path(folder).expanduser()
    if (place / "graph.npz").is_file():
        edges, x, labels, classes, splits = _read_npz(place / "graph.npz")
    else:
        place = local_folder("nodes", ["nodes.csv", "edges.csv"], folder)
        edges, x, labels, classes, splits = _read_csv(place)
    graph = Graph.from_edge_index(torch.from_numpy(edges), len(labels))
    nodes = Nodes(
        graph.symmetrise().coalesce() if undirected else graph,
        torch.from_numpy(x.astype(np.float32)),
        labels,
        classes,
        splits or _random_cut(labels, fold),
    )
    for split in SPLITS:
        rows = nodes.splits[split]
        if len(rows) == 0:
            raise DataError(f"{place}: no node is in the {split} split")
        if bool((labels[rows] < 0).any()):
            raise DataError(f"{place}: node {int(rows[labels[rows] < 0][0])} of the {split} split has no label")
    return NodeClassification(place.name, nodes)


def _random_cut(labels: Tensor, seed: int) -> dict[Split, Tensor]:
    known = (labels >= 0).nonzero().squeeze(1)
    order = known[torch.randperm(len(known), generator=torch.Generator().manual_seed(seed))]
    train, valid = round(0.6 * len(known)), round(0.8 * len(known))
    parts = zip(SPLITS, (order[:train], order[train:valid], order[valid:]), strict=True)
    return {split: rows.sort().values for split, rows in parts}


def _read_npz(path: Path) -> Parts:
    arrays = read_arrays(path, ARRAYS, SPLITS)
    edges, x, labels = (arrays[name] for name in ARRAYS)
    if x.ndim != 2 or x.shape[1] == 0 or x.dtype.kind not in "buif" or not np.isfinite(x).all():
        raise DataError(f"{path}: x must be finite numbers [N, C], not {x.dtype} {list(x.shape)}")
    if labels.shape != x.shape[:1] or labels.dtype.kind not in "ui" or labels.max(initial=-1) < 0:
        raise DataError(f"{path}: labels must be integers [{len(x)}], one of them at least 0")
    if int(labels.max()) >= len(x):
        raise DataError(f"{path}: labels must be 0, 1, ..., and this one is {int(labels.max())} with {len(x)} nodes")
    try:
        Graph.from_edge_index(torch.from_numpy(edges.astype(np.int64, casting="safe")), len(x))
    except (GraphError, TypeError) as error:
        raise DataError(f"{path}: edge_index: {error}") from error
    given = [split for split in SPLITS if split in arrays]
    if given and len(given) < len(SPLITS):
        raise DataError(f"{path}: it has {', '.join(given)} of the arrays train, valid and test: give all or none")
    splits = {split: _chosen(path, split, arrays[split], len(x)) for split in given}
    classes = tuple(f"class {c}" for c in range(int(labels.max()) + 1))
    return edges.astype(np.int64), x, torch.from_numpy(np.maximum(labels.astype(np.int64), -1)), classes, splits


def _chosen(path: Path, split: str, array: Array, nodes: int) -> Tensor:
    """The nodes that a mask [N] or a list of nodes names."""
    if array.dtype.kind == "b" and array.shape == (nodes,):
        return torch.from_numpy(np.flatnonzero(array))
    if array.dtype.kind not in "ui" or array.ndim != 1 or not ((array >= 0) & (array < nodes)).all():
        raise DataError(f"{path}: {split} must be a mask [{nodes}] or nodes from 0 to {nodes - 1}")
    return torch.from_numpy(array.astype(np.int64))


def _read_csv(place: Path) -> Parts:
    columns, rows = _rows(place / "nodes.csv", ("label",))
    features = [name for name in columns if name not in ("node", "label", "split")]
    if not features:
        raise DataError(f"{place / 'nodes.csv'}: it has no column with a feature")
    x = np.array([[_number(place, line, name, row) for name in features] for line, row in enumerate(rows, start=2)])
    names = [row["node"] if "node" in columns else str(number) for number, row in enumerate(rows)]
    number_of = {name: number for number, name in enumerate(names)}
    if len(number_of) < len(names):
        twice = next(name for number, name in enumerate(names) if number_of[name] != number)
        raise DataError(f"{place / 'nodes.csv'}: the node {twice!r} is there twice")
    classes = tuple(sorted({row["label"] for row in rows} - {""}))
    if not classes:
        raise DataError(f"{place / 'nodes.csv'}: no node has a label")
    labels = torch.tensor([classes.index(row["label"]) if row["label"] else -1 for row in rows])
    _, lines = _rows(place / "edges.csv", ("sender", "receiver"))
    ends = [_edge(place, line, row, number_of) for line, row in enumerate(lines, start=2)]
    edges = np.array(ends, dtype=np.int64).reshape(-1, 2).T
    return edges, x, labels, classes, _splits(place, rows) if "split" in columns else {}


def _rows(path: Path, needed: tuple[str, ...]) -> tuple[list[str], list[dict[str, str]]]:
    """The column names and the rows of a CSV file, every row complete."""
    try:
        reader = csv.DictReader(io.StringIO(read_bytes(path, MAX_BYTES).decode("utf-8-sig")), strict=True)
        columns, rows = list(reader.fieldnames or ()), list(reader)
    except (ValueError, csv.Error) as error:
        raise DataError(f"{path}: not a CSV file ({error})") from error
    lacking = [name for name in needed if name not in columns]
    if lacking or len(set(columns)) < len(columns):
        raise DataError(f"{path}: its columns are {', '.join(columns)}; expected {', '.join(needed)}, each once")
    for line, row in enumerate(rows, start=2):
        if None in row or None in row.values():
            raise DataError(f"{path}: line {line} does not have {len(columns)} columns")
    return columns, [{name: value.strip() for name, value in row.items()} for row in rows]


def _number(place: Path, line: int, name: str, row: dict[str, str]) -> float:
    try:
        value = float(row[name])
    except ValueError:
        value = float("nan")
    if not np.isfinite(value):
        raise DataError(f"{place / 'nodes.csv'}: line {line}: {name} is {row[name][:40]!r}, not a finite number")
    return value


def _edge(place: Path, line: int, row: dict[str, str], number_of: dict[str, int]) -> tuple[int, int]:
    for end in ("sender", "receiver"):
        if row[end] not in number_of:
            raise DataError(f"{place / 'edges.csv'}: line {line}: there is no node {row[end][:40]!r}")
    return number_of[row["sender"]], number_of[row["receiver"]]


def _splits(place: Path, rows: list[dict[str, str]]) -> dict[Split, Tensor]:
    parts: dict[Split, list[int]] = {split: [] for split in SPLITS}
    for number, row in enumerate(rows):
        if row["split"] in parts:
            parts[row["split"]].append(number)
        elif row["split"]:
            what = f"{row['split'][:40]!r} is none of {', '.join(SPLITS)}"
            raise DataError(f"{place / 'nodes.csv'}: line {number + 2}: the split {what}")
    return {split: torch.tensor(nodes, dtype=torch.int64) for split, nodes in parts.items()}
