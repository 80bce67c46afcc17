"""Graph data sets in the TU Dortmund folder format: NAME_A.txt, NAME_graph_indicator.txt and what goes with them."""

import io
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.data.splits import Splits, held_out
from edgewise.errors import ConfigError, DataError, counted
from edgewise.files import read_bytes, read_json, reading
from edgewise.graphs import Graph
from edgewise.tasks.core.source import local_folder
from edgewise.tasks.graphs.prediction import GraphClassification, GraphRegression, Graphs

MAX_BYTES = 1 << 27
MAX_NUMBERS = 1 << 24  # in one file; 8 bytes each
MAX_FEATURES = 1 << 26  # rows times columns; one-hot labels can ask for as many columns as rows
NEEDED = ("A", "graph_indicator")
FOLDS = 10

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True)
class TUFolder:
    """What the files of a data set say.

    Senders and receivers [2, E] are counted from 0 over all graphs, of which `owner` [N], ascending, names each node's.
    Labels [N, L] are integers; targets [G] are classes as the file writes them, or values."""

    edges: Array
    owner: Array
    node_labels: Array | None
    node_attributes: Array | None
    edge_labels: Array | None
    edge_attributes: Array | None
    targets: Array
    is_class: bool


def read_tudataset(folder: Path, name: str) -> TUFolder:
    """Read and check a folder; a file that is missing, malformed or does not fit the others is a `DataError`."""
    owner = _table(folder / f"{name}_graph_indicator.txt", np.int64, columns=1)[:, 0] - 1
    edges = _table(folder / f"{name}_A.txt", np.int64, columns=2).T - 1
    nodes = len(owner)
    if nodes == 0 or owner[0] != 0 or not np.isin(np.diff(owner), (0, 1)).all():
        raise DataError(f"{folder / f'{name}_graph_indicator.txt'}: the graphs' numbers must rise 1, 1, ..., 2, 2, ...")
    outside = (edges < 0) | (edges >= nodes)
    if outside.any():
        edge = 1 + int(outside.any(0).argmax())
        raise DataError(f"{folder / f'{name}_A.txt'}: edge {edge} names a node outside 1 to {nodes}")
    crossing = owner[edges[0]] != owner[edges[1]]
    if crossing.any():
        raise DataError(f"{folder / f'{name}_A.txt'}: edge {1 + int(crossing.argmax())} joins nodes of two graphs")

    def of(what: str, dtype: type, rows: int) -> Array | None:
        path = folder / f"{name}_{what}.txt"
        return _table(path, dtype, rows=rows) if path.exists() else None

    is_class, graphs = (folder / f"{name}_graph_labels.txt").exists(), int(owner[-1]) + 1
    if is_class:
        targets = _table(folder / f"{name}_graph_labels.txt", np.int64, columns=1, rows=graphs)[:, 0]
    else:
        targets = _table(folder / f"{name}_graph_attributes.txt", np.float64, rows=graphs)[:, 0]
    of_nodes = of("node_labels", np.int64, nodes), of("node_attributes", np.float64, nodes)
    of_edges = of("edge_labels", np.int64, edges.shape[1]), of("edge_attributes", np.float64, edges.shape[1])
    return TUFolder(edges, owner, *of_nodes, *of_edges, targets, is_class)


def _table(path: Path, dtype: type, columns: int | None = None, rows: int | None = None) -> Array:
    """The numbers of a file [lines, columns], separated by commas; a line with nothing in it is none."""
    content = read_bytes(path, MAX_BYTES)
    numbers = sum(map(content.count, (b"\n", b"\r", b","))) + 1
    if numbers > MAX_NUMBERS:
        raise DataError(f"{path}: {numbers:,} numbers are more than the {MAX_NUMBERS:,} that such a file may have")
    if not content.strip():
        table: Array = np.empty((0, 0))
    else:
        with reading(path, "a table of numbers with commas between them"):
            lines = re.sub(rb"(?m)^[ \t]+$", b"", content)
            table = np.loadtxt(io.BytesIO(lines), delimiter=",", ndmin=2, comments=None)
    if columns is not None and table.shape[1] != columns:
        if table.size:
            expected = f"{counted(columns, 'number')} per line {'was' if columns == 1 else 'were'} expected"
            raise DataError(f"{path}: {expected}, not {table.shape[1]}")
        table = table.reshape(0, columns)
    if rows is not None and len(table) != rows:
        raise DataError(f"{path}: {rows} lines were expected, not {len(table)}")
    right, what = np.isfinite(table), "finite"
    if right.all() and dtype is np.int64:
        right, what = (table == np.round(table)) & (np.abs(table) < 1 << 53), "a whole number below 2⁵³"
    if not right.all():
        row, column = np.argwhere(~right)[0]
        raise DataError(f"{path}: row {row + 1} is not {what}: {table[row, column]:g}")
    return table.astype(dtype, copy=False)


def tudataset(
    dataset: str = "ENZYMES",
    fold: int = 0,
    validate: bool = True,
    attributes: bool = True,
    edges: bool = False,
    folder: str | None = None,
) -> GraphClassification:
    """Classes (or values) of whole graphs, from a folder in the TU Dortmund format; ten-fold cross-validation.

    A node's features are its labels, one-hot among those of all graphs, beside its attributes, which are shifted and
    scaled by the training graphs' mean and deviation; a data set with neither has one-hot in-degrees. So are an edge's,
    with `edges`.
    Graph labels are classes; where there are only graph attributes, the first one is a value to regress.

    The folds are those of NAME_splits.json where the folder has one (a list with, for each fold, "test" and
    "model_selection": [{"train", "validation"}], as the fair comparison publishes them), else ten stratified folds
    drawn with seed 0; of the training graphs a stratified tenth is held out to choose the weights.

    Reference   Morris et al. 2020 (format); Errica et al. 2020 (the folds of ENZYMES); Xu et al. 2019 (validate=false)

    Args:
        dataset: The name that the files begin with: "ENZYMES", "MUTAG" or your own.
        fold: Which fold to hold out, from 0 to 9.
        validate: Choose the weights on held-out training graphs, and test on the fold. False: train on all nine other
            folds and report the fold itself as validation, for protocols that choose one epoch for all folds.
        attributes: Read the nodes' attributes too, where there are any.
        edges: Read the edges' labels and attributes, for a model that reads edge features.
        folder: Where the files lie (default: tudataset/NAME in $EDGEWISE_DATA, then the cache).

    Errors      a file that is missing, malformed or does not fit the others is a `DataError` that names it.
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]{0,99}", dataset, re.ASCII):
        raise ConfigError(f"task.dataset must be the name of a TU data set, not {dataset!r}")
    needed = [f"{dataset}_{part}.txt" for part in NEEDED]
    place = local_folder(f"tudataset/{dataset}", needed, folder)
    data = read_tudataset(place, dataset)
    splits = folds(data, place / f"{dataset}_splits.json", fold, validate)
    members, order = _members(data)
    x = _features(place / f"{dataset}_node_labels.txt", data, members, splits["train"], attributes)
    e = _edge_features(dataset, data, members, order, splits["train"]) if edges else None
    if not data.is_class:
        return GraphRegression(dataset, Graphs(members, x, torch.from_numpy(data.targets), splits, e=e))
    names, classes = np.unique(data.targets, return_inverse=True)
    targets = torch.from_numpy(classes.reshape(-1).astype(np.int64))
    return GraphClassification(dataset, Graphs(members, x, targets, splits, tuple(f"class {c}" for c in names), e=e))


def folds(data: TUFolder, published: Path, fold: int, validate: bool) -> Splits:
    """Which graphs train, choose and test in a fold: the published ones, else ten stratified ones."""
    count = len(data.targets)
    if published.exists():
        train, valid, test = _published(published, fold, count)
    else:
        classes = data.targets if data.is_class else None
        train, test = held_out(torch.arange(count), classes, fold)
        train, valid = held_out(train, classes, 0)
    if not validate:
        train, valid, test = torch.cat([train, valid]).sort().values, test, test[:0]
    return {"train": train, "valid": valid, "test": test}


def _published(path: Path, fold: int, count: int) -> tuple[Tensor, ...]:
    held = read_json(path, "a list of folds")
    with reading(path, "a list of folds"):
        if not 0 <= fold < len(held):
            raise ConfigError(f"task.fold must be one of 0 to {len(held) - 1}, not {fold}")
        chosen, test = held[fold]["model_selection"][0], held[fold]["test"]
        parts = [np.array(part, dtype=np.int64).reshape(-1) for part in (chosen["train"], chosen["validation"], test)]
    together = np.concatenate(parts)
    if together.min(initial=0) < 0 or together.max(initial=0) >= count or len(np.unique(together)) != len(together):
        raise DataError(f"{path}: fold {fold} names a graph twice, or one outside 0 to {count - 1}")
    return tuple(map(torch.from_numpy, parts))


def _members(data: TUFolder) -> tuple[tuple[Graph, ...], Array]:
    """Each graph on its own, its nodes counted from 0; and the file's edges [E] in the graphs' order."""
    sizes = np.bincount(data.owner)
    first = np.cumsum(sizes) - sizes
    owner = data.owner[data.edges[0]]
    order = np.argsort(owner, kind="stable")
    inside = torch.from_numpy((data.edges - first[owner])[:, order])
    edges = inside.split(np.bincount(owner, minlength=len(sizes)).tolist(), dim=1)
    return tuple(Graph.from_edge_index(e, n) for e, n in zip(edges, sizes.tolist(), strict=True)), order


def _features(path: Path, data: TUFolder, members: tuple[Graph, ...], train: Tensor, attributes: bool) -> Tensor:
    """Labels one-hot beside scaled attributes [N, C]; one-hot in-degrees where there are neither."""
    seen = np.isin(data.owner, train.numpy())
    parts = _columns(path, data.node_labels, data.node_attributes if attributes else None, seen)
    if not parts:
        degrees = torch.cat([member.in_degrees() for member in members]).numpy()
        parts.append(_one_hot(path, degrees))
    return torch.from_numpy(_joined(path, parts))


def _edge_features(name: str, data: TUFolder, members: tuple[Graph, ...], order: Array, train: Tensor) -> Tensor:
    """Labels one-hot beside scaled attributes [E, C], in the graphs' own order."""
    path = Path(f"{name}_edge_labels.txt")
    parts = _columns(path, data.edge_labels, data.edge_attributes, np.isin(data.owner[data.edges[0]], train.numpy()))
    if not parts:
        raise ConfigError(f"task.edges: {name} has neither edge labels nor edge attributes")
    columns = torch.from_numpy(_joined(path, parts)[order])
    each = columns.split([member.num_edges for member in members])
    return torch.cat([member.sort_edges(e) for member, e in zip(members, each, strict=True)])


def _columns(path: Path, labels: Array | None, attributes: Array | None, seen: Array) -> list[Array]:
    """Labels one-hot, and attributes shifted and scaled by the mean and deviation of the rows that training sees."""
    parts: list[Array] = []
    if labels is not None:
        parts += [_one_hot(path, column) for column in labels.T]
    if attributes is not None:
        mean, deviation = attributes[seen].mean(0), attributes[seen].std(0)
        differ = deviation > 1e-12 * np.abs(mean)  # else an error of rounding
        parts.append((attributes - mean) / np.where(differ, deviation, 1))
    return parts


def _one_hot(path: Path, column: Array) -> Array:
    kinds = np.unique(column)
    _check_features(path, len(column), len(kinds))
    return column[:, None] == kinds


def _joined(path: Path, parts: list[Array]) -> Array:
    _check_features(path, len(parts[0]), sum(part.shape[1] for part in parts))
    return np.concatenate(parts, 1, dtype=np.float32)


def _check_features(path: Path, rows: int, columns: int) -> None:
    if rows * columns > MAX_FEATURES:
        raise DataError(f"{path}: {columns:,} features of {rows:,} rows are more than {MAX_FEATURES:,} numbers")
