"""WebKB: the pages of a university, their words and their links; neighbours are mostly of other classes."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from scipy.sparse import csr_matrix
from torch import Tensor

from edgewise.errors import ConfigError, DataError
from edgewise.graphs import Graph
from edgewise.layers.linear import SparseFeatures
from edgewise.tasks.nodes import NodeClassification, Nodes, read_arrays
from edgewise.tasks.sources import local_folder, read_bytes
from edgewise.tasks.task import Split

MAX_BYTES = 1 << 26
FOLDS = 10
CLASSES = 5
MASKS: dict[Split, str] = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}

Array = np.ndarray[Any, np.dtype[Any]]


def webkb(
    dataset: Literal["texas", "wisconsin", "cornell"] = "texas",
    fold: int = 0,
    undirected: bool = True,
    folder: str | None = None,
) -> NodeClassification:
    """Guess what kind of page it is (student, project, course, staff, faculty) from its words and links.

    The ten published cuts hold out 20 % to choose the weights by and 20 % to test. Texas has 183 pages of 1,703 words
    (each there or not, divided by their number) and 325 links, of which only about one in ten joins pages of one class.

    Reference   Craven et al. 1998; Pei et al. 2020, "Geom-GCN" (the cuts)

    Args:
        dataset: "texas", "wisconsin" or "cornell": the files' first word. The project's tests read Texas alone.
        fold: Which of the ten cuts, from 0 to 9.
        undirected: Let pages also listen to those that link to them. False: only to those that they are linked from.
        folder: Where the files NAME_out1_graph_edges.txt etc. lie (default: webkb in $EDGEWISE_DATA, then the cache).

    Errors      a file that is missing, malformed or does not fit the others is a `DataError` that names it.
    """
    if not 0 <= fold < FOLDS:
        raise ConfigError(f"task.fold must be one of 0 to {FOLDS - 1}, not {fold}")
    if dataset not in ("texas", "wisconsin", "cornell"):
        raise ConfigError(f"unknown WebKB data set {dataset!r}; known are texas, wisconsin, cornell")
    cut = f"{dataset}_split_0.6_0.2_{fold}.npz"
    pages, links = f"{dataset}_out1_node_feature_label.txt", f"{dataset}_out1_graph_edges.txt"
    place = local_folder("webkb", [pages, links, cut], folder)
    words, labels = _pages(place / pages)
    edges = _links(place / links, len(labels))
    graph = Graph.from_edge_index(edges, len(labels)).remove_self_loops()
    graph = (graph.symmetrise() if undirected else graph).coalesce()
    totals = np.maximum(words.sum(1, keepdims=True), 1)
    x = SparseFeatures.from_scipy(csr_matrix((words / totals).astype(np.float32)))
    classes = tuple(f"class {c}" for c in range(CLASSES))
    return NodeClassification(dataset, Nodes(graph, x, labels, classes, _cut(place / cut, len(labels))))


def _pages(path: Path) -> tuple[Array, Tensor]:
    """Words [N, C] and classes [N], by the pages' numbers."""
    lines = read_bytes(path, MAX_BYTES).splitlines()[1:]
    rows: dict[int, tuple[list[int], int]] = {}
    for number, line in enumerate(lines, start=2):
        try:
            node, words, label = line.split(b"\t")
            rows[int(node)] = [int(word) for word in words.split(b",")], int(label)
        except ValueError as error:
            raise DataError(f"{path}: line {number} is not 'page, words, class' ({error})") from error
    lengths = {len(words) for words, _ in rows.values()}
    if len(rows) != len(lines) or sorted(rows) != list(range(len(rows))) or len(lengths) != 1:
        raise DataError(f"{path}: it does not list each page 0, 1, ... once, all with as many words")
    labels = [rows[node][1] for node in range(len(rows))]
    if not all(0 <= label < CLASSES for label in labels):
        raise DataError(f"{path}: a class is not one of 0 to {CLASSES - 1}")
    return np.array([rows[node][0] for node in range(len(rows))]), torch.tensor(labels)


def _links(path: Path, pages: int) -> Tensor:
    """Senders and receivers [2, E]."""
    try:
        table = np.loadtxt(io.BytesIO(read_bytes(path, MAX_BYTES)), dtype=np.int64, skiprows=1, ndmin=2)
    except (ValueError, OverflowError) as error:
        raise DataError(f"{path}: not a table of pages' numbers ({error})") from error
    if table.shape[1] != 2 or table.min() < 0 or table.max() >= pages:
        raise DataError(f"{path}: each line must name two of the pages 0 to {pages - 1}")
    return torch.from_numpy(table.T.copy())


def _cut(path: Path, pages: int) -> dict[Split, Tensor]:
    arrays = read_arrays(path, MASKS.values())
    if any(mask.shape != (pages,) for mask in arrays.values()):
        raise DataError(f"{path}: its masks are not for {pages} pages")
    splits = {split: torch.from_numpy(np.flatnonzero(arrays[name])) for split, name in MASKS.items()}
    if not all(map(len, splits.values())):
        raise DataError(f"{path}: a mask is empty")
    return splits
