"""A graph of one's own: nodes with features and classes, and who attends to whom, from CSV, Parquet or .npz files."""

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import DataError, GraphError
from edgewise.graphs import Graph
from edgewise.tables.features import Column, matrix, read_columns
from edgewise.tables.table import Table, find_table, read_table
from edgewise.tasks.core.splits import SPLITS, Splits, named, shuffled
from edgewise.tasks.nodes.classification import NodeClassification, Nodes, read_arrays
from edgewise.tasks.nodes.sampled import SampledNodes

ARRAYS = ("edge_index", "x", "labels")
NAMES = ("node", "id", "label", "split")  # the columns of nodes that hold texts
ENDS = (("sender", "receiver"), ("source", "target"), ("from", "to"), ("src", "dst"))  # what those of edges are called
MAX_CLASSES = 20  # of labels that hardly repeat: more are taken for something else, such as a quantity
LISTED = 20  # columns that a report lists
MAX_NODES = 1 << 21  # of a table: each has a name

Array = np.ndarray[Any, np.dtype[Any]]
Parts = tuple[Array, Array | list[Column], Tensor, tuple[str, ...], Splits]


def node_folder(
    folder: str = "nodes",
    undirected: bool = True,
    fold: int = 0,
    ignore: str = "",
    scale: Literal["standard", "none"] = "standard",
    fanouts: tuple[int, ...] = (),
) -> NodeClassification:
    """Guess the classes of a graph's nodes: your own graph, from a folder.

    Either two tables, each a CSV file with a line of column names first, or a Parquet file (with .parquet for .csv):
        nodes.csv   a column `label` (empty: unknown); if there are columns `node` (or `id`) and `split`, the nodes'
                    names and their parts "train", "valid", "test" or nothing; every other column is a feature: numbers,
                    truth values, or texts that repeat, which are categories
        edges.csv   the columns `sender` and `receiver` (or `source` and `target`, `from` and `to`, `src` and `dst`):
                    names of nodes or, without a column of them, their rows from 0
    or one file graph.npz with the arrays `edge_index` [2, E] (senders, receivers), `x` [N, C] and integer `labels` [N]
    (-1: unknown) and, if there are, `train`, `valid` and `test`: nodes, or masks [N].

    Without parts, the labelled nodes are cut at random into 60 % to train, 20 % to choose the weights by and 20 % to
    test. Numbers of tables are standardised by the nodes that train; a cell without a value is their mean, and a
    further feature says that it was missing. Arrays are read as they are.

    Args:
        folder: Where the files lie.
        undirected: Let every node also attend to those that attend to it.
        fold: Seed of the random cut: another number, another cut.
        ignore: Columns of both tables that are not read, with commas between them.
        scale: Numbers of tables have mean 0 and deviation 1 among the nodes that train ("standard"), or stay ("none").
        fanouts: Neighbours to draw in each hop of training, one number per layer. Empty: the whole graph at once.

    Errors      a file that is missing, malformed or does not fit the others is a `DataError` that names the line, each
                column or the array, and so are columns of edges.csv that nothing reads and labels that hardly repeat;
                a Parquet file without pyarrow is an `EdgewiseError` that names the extra.
    """
    place = Path(folder).expanduser()
    tables = {name: find_table(place, name) for name in ("nodes", "edges")}
    if (place / "graph.npz").is_file():
        edges, x, labels, classes, splits = _read_npz(place / "graph.npz")
    elif tables["nodes"] and tables["edges"]:
        edges, x, labels, classes, splits = _read_tables(tables["nodes"], tables["edges"], _columns(ignore))
    else:
        lacking = ", ".join(f"{name}.csv" for name, table in tables.items() if not table)
        raise DataError(f"{place} lacks {lacking} (or .parquet), and it has no graph.npz. Give folder=")
    graph = Graph.from_edge_index(torch.from_numpy(edges), len(labels))
    known = (labels >= 0).nonzero()[:, 0]
    splits = splits or {split: known[rows] for split, rows in shuffled(len(known), fold, (0.6, 0.8)).items()}
    columns = x if isinstance(x, list) else []
    features = matrix(columns, splits["train"].numpy(), scale == "standard") if isinstance(x, list) else x
    nodes = Nodes(
        graph.symmetrise().coalesce() if undirected else graph,
        torch.from_numpy(features.astype(np.float32)),
        labels,
        classes,
        splits,
    )
    for split in SPLITS:
        rows = splits[split]
        if len(rows) == 0:
            raise DataError(f"{place}: no node is in the {split} split")
        if bool((labels[rows] < 0).any()):
            raise DataError(f"{place}: node {int(rows[labels[rows] < 0][0])} of the {split} split has no label")
    task = SampledNodes(place.name, nodes, fanouts, inductive=False)
    if columns:
        more = f" and {len(columns) - LISTED} more" if len(columns) > LISTED else ""
        task.contents += f" with {', '.join(map(str, columns[:LISTED]))}{more}"
    return task


def _read_npz(path: Path) -> Parts:
    arrays = read_arrays(path, ARRAYS, SPLITS)
    edges, x, labels = (arrays[name] for name in ARRAYS)
    if x.ndim != 2 or x.shape[1] == 0 or x.dtype.kind not in "buif" or not _finite(x):
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


def _finite(x: Array) -> bool:
    """Whether all numbers are finite, in float32 too."""
    parts = np.array_split(x, 1 + x.nbytes // (1 << 24))
    return all((np.abs(part.astype(np.float64)) <= np.finfo(np.float32).max).all() for part in parts)


def _chosen(path: Path, split: str, array: Array, nodes: int) -> Tensor:
    """The nodes that a mask [N] or a list of nodes names."""
    if array.dtype.kind == "b" and array.shape == (nodes,):
        return torch.from_numpy(np.flatnonzero(array))
    if array.dtype.kind not in "ui" or array.ndim != 1 or not ((array >= 0) & (array < nodes)).all():
        raise DataError(f"{path}: {split} must be a mask [{nodes}] or nodes from 0 to {nodes - 1}")
    return torch.from_numpy(array.astype(np.int64))


def _columns(ignore: str) -> set[str]:
    return {name.strip() for name in ignore.split(",")} - {""}


def _read_tables(nodes: Path, edges: Path, ignored: set[str]) -> Parts:
    table = read_table(nodes, ("label",), NAMES)
    features = [name for name in table.columns if name not in NAMES and name not in ignored]
    if not features:
        raise DataError(f"{nodes}: it has no column with a feature")
    if len(table) > MAX_NODES:
        raise DataError(f"{nodes}: {len(table):,} nodes, of at most {MAX_NODES:,}: such a graph is read from graph.npz")
    x = read_columns(table, features)
    named_by = [name for name in ("node", "id") if name in table.columns and name not in ignored]
    if len(named_by) > 1:
        raise DataError(f"{nodes}: node or id, which names the nodes? Give ignore= the other")
    names = table.texts(named_by[0]) if named_by else [str(number) for number in range(len(table))]
    number_of = {name: number for number, name in enumerate(names)}
    if len(number_of) < len(names):
        twice = next(name for number, name in enumerate(names) if number_of[name] != number)
        raise DataError(f"{nodes}: the node {twice!r} is there twice")
    given = table.texts("label")
    classes = tuple(sorted(set(given) - {""}))
    if not classes:
        raise DataError(f"{nodes}: no node has a label")
    labelled = len(given) - given.count("")
    if len(classes) > MAX_CLASSES and 2 * len(classes) > labelled:
        raise DataError(f"{nodes}: {len(classes)} labels of {labelled} nodes differ: classes are few, and repeat")
    class_of = {name: number for number, name in enumerate(classes)} | {"": -1}
    labels = torch.tensor([class_of[name] for name in given])
    lines = read_table(edges, (), [name for pair in ENDS for name in pair])
    pairs = [pair for pair in ENDS if {*pair} <= {*lines.columns}]
    if len(pairs) != 1:
        wanted = "one of " if pairs else ""
        known = "; ".join(" and ".join(pair) for pair in pairs or ENDS[:1])
        raise DataError(f"{edges}: its columns are {', '.join(lines.columns)}; expected {wanted}{known}")
    unread = [name for name in lines.columns if name not in pairs[0] and name not in ignored]
    if unread:
        raise DataError(
            f"{edges}: nothing reads {', '.join(unread)}: leave it out, or give ignore={','.join(unread)!r}"
        )
    if needed := ignored & {*named_by, "label", *pairs[0]}:
        raise DataError(f"{edges.parent}: the columns {', '.join(sorted(needed))} are needed: they cannot be ignored")
    if strangers := ignored - {*table.columns, *lines.columns}:
        raise DataError(
            f"{edges.parent}: no table has the columns {', '.join(sorted(strangers))} that are to be ignored"
        )
    ends = [_ends(lines, end, number_of) for end in pairs[0]]
    has_splits = "split" in table.columns and "split" not in ignored
    splits = named(table.texts("split"), table.at) if has_splits else {}
    return np.array(ends, dtype=np.int64), x, labels, classes, splits


def _ends(lines: Table, end: str, number_of: dict[str, int]) -> list[int]:
    names = lines.texts(end)
    for row, name in enumerate(names):
        if name not in number_of:
            raise DataError(f"{lines.at(row)}: there is no node {name[:40]!r}")
    return [number_of[name] for name in names]
