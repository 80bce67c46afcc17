"""What the files of a folder hold of a graph, and what models read of that."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from edgewise.data.encoding import Encoding, features, fit, width
from edgewise.data.features import Array, Column
from edgewise.data.reading import find_table, find_tables
from edgewise.data.splits import Splits
from edgewise.errors import DataError
from edgewise.files import check_folder
from edgewise.graphs import Graph
from edgewise.tasks.nodes.classification import Nodes
from edgewise.tasks.nodes.own.arrays import read_npz
from edgewise.tasks.nodes.own.given import Given
from edgewise.tasks.nodes.own.tables import Reading, read_tables
from edgewise.tasks.own import record
from edgewise.tasks.own.edges import with_features
from edgewise.tasks.own.record import Fitted
from edgewise.tasks.own.several import Several

ARRAYS = "graph.npz"


def read_folder(place: Path, how: Reading) -> Given:
    """The graph of a folder."""
    check_folder(place)
    nodes, links = find_table(place, "nodes"), find_tables(place, "edges")
    found = [table.name for table in (nodes, *links) if table]
    if (place / ARRAYS).is_file():
        if found:
            raise DataError(f"{place}: it has {ARRAYS} and {', '.join(found)}: which is meant? Leave one of them")
        return read_npz(place / ARRAYS, how)
    if not (nodes and links):
        lacking = ", ".join(f"{name}.csv" for name, table in (("nodes", nodes), ("edges", links)) if not table)
        raise DataError(f"{place} lacks {lacking} (or .tsv, .parquet), and it has no {ARRAYS}. Give --task.folder")
    if how.known and not how.known[0]:
        raise DataError(f"{place}: it has tables, and the run was trained with arrays: give {ARRAYS}")
    return read_tables(nodes, links, how)


def graph_of(given: Given, fitted: Fitted, splits: Splits, undirected: bool) -> Nodes:
    """The graph, its features and its targets, as models read them."""
    x, e = inputs_of(given, fitted)
    edges = torch.from_numpy(given.edges)
    if e is None:
        graph = Graph.from_edge_index(edges, len(given))
        graph, known = graph.symmetrise().coalesce() if undirected else graph, None
    else:
        graph, known = with_features(edges, e, len(given), undirected)
    several = len(fitted.targets) > 1
    classes = () if several else fitted.target.classes
    return Nodes(graph, x, _labels(given, fitted), classes, splits, known)


def inputs_of(given: Given, fitted: Fitted) -> tuple[Tensor, Tensor | None]:
    """The features of nodes and of edges in float32, by what was fitted to those that trained.

    Errors      DataError for data of another form or width
    """
    if fitted.columns and not isinstance(given.x, list):
        raise DataError(f"{given.place}: it has arrays, and the run was trained with tables")
    if isinstance(given.x, list) and not fitted.columns:
        raise DataError(f"{given.place}: it has no x, and the run was trained with {fitted.widths[0]} features")
    x, e = _features(given.x, fitted.columns), _features(given.e, fitted.edges)
    for name, array, wanted in zip(("x", "edge_attr"), (x, e), fitted.widths, strict=True):
        if (0 if array is None else array.shape[1]) != wanted:
            has = 0 if array is None else array.shape[1]
            raise DataError(f"{given.place}: {name} has {has} features, and the run was trained with {wanted}")
    assert x is not None
    x32 = torch.from_numpy(x.astype(np.float32))
    return x32, None if e is None else torch.from_numpy(e.astype(np.float32))


def _labels(given: Given, fitted: Fitted) -> Tensor:
    """Classes or values [N], or several targets [N, T]; all unknown where labels were not read."""
    if len(fitted.targets) > 1:
        unknown = torch.full((len(given), len(fitted.targets)), torch.nan)
        return Several(fitted.targets, fitted.scales).values(given.targets) if given.targets else unknown
    if given.targets:
        return fitted.target.values(given.targets[0])
    return torch.full((len(given),), -1 if fitted.target.kind == "class" else torch.nan)


def fit_to(given: list[Column] | Array | None, rows: Any, scale: bool) -> tuple[Encoding, ...]:
    return fit(given, rows, scale) if isinstance(given, list) else ()


def _features(given: list[Column] | Array | None, encodings: tuple[Encoding, ...]) -> Array | None:
    return features(given, encodings) if isinstance(given, list) else given


def width_of(given: list[Column] | Array | None, encodings: tuple[Encoding, ...]) -> int:
    return width(encodings) if given is None or isinstance(given, list) else int(given.shape[1])


def strange_levels(given: Given, fitted: Fitted) -> Iterator[str]:
    """In sentences, the categories that training never saw."""
    both = (given.x if isinstance(given.x, list) else []) + (given.e if isinstance(given.e, list) else [])
    return record.strange_levels(both, (*fitted.columns, *fitted.edges))
