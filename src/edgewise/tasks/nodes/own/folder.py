"""A graph of one's own: nodes with features and labels, and who attends to whom, from CSV, Parquet or .npz files."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from edgewise.errors import DataError
from edgewise.graphs import Graph
from edgewise.tables.encoding import Encoding, features, fit, width
from edgewise.tables.features import Array, Column
from edgewise.tables.reading import find_table, find_tables
from edgewise.tasks.core.splits import SPLITS, Splits
from edgewise.tasks.core.task import Pattern
from edgewise.tasks.nodes.classification import NodeClassification, Nodes
from edgewise.tasks.nodes.own.arrays import read_npz
from edgewise.tasks.nodes.own.given import Given
from edgewise.tasks.nodes.own.tables import Reading, read_tables
from edgewise.tasks.nodes.own.times import in_words, times_of_nodes
from edgewise.tasks.nodes.regression import NodeRegression
from edgewise.tasks.nodes.sampled import SampledNodes
from edgewise.tasks.own import record
from edgewise.tasks.own.edges import with_features
from edgewise.tasks.own.fitting import names_in, settle
from edgewise.tasks.own.record import Fitted

LISTED = 20  # columns that a report lists
ARRAYS = "graph.npz"
ROWS = 4096  # of a table of predictions that are lists of Python at once


class OwnNodes(SampledNodes):
    """The nodes of one's own graph, known by their own names; a run keeps their parts and what was fitted to them."""

    kept = (record.SPLIT, record.DATA)
    private = kept
    given: Given
    fitted: Fitted
    undirected: bool
    how: Reading

    def keep(self, run: Path) -> None:
        record.write(run, self.given, self.nodes_of_splits, self.fitted)

    @property
    def nodes_of_splits(self) -> Splits:
        """The nodes of each split."""
        return {split: self.nodes.splits[split] for split in SPLITS}

    def preprocessing(self) -> dict[str, Any]:
        made = self.fitted.to_plain()
        return super().preprocessing() | {name: made[name] for name in ("columns", "edge_columns")}

    def shown(self, node: int) -> int | str:
        return node if self.given.names is None else self.given.names[node]

    def elsewhere(self, place: Path) -> OwnNodes:
        if place.suffix == ".npz":
            given = read_npz(place, labelled=False)
        else:
            how = replace(self.how, labelled=False, known=self.fitted.kinds)
            given = read_folder(place if place.is_dir() else place.parent, how)
        none: Splits = {split: torch.empty(0, dtype=torch.int64) for split in SPLITS}
        task = type(self)(given.place.name, graph_of(given, self.fitted, none, self.undirected), (), False)
        task.changes = (*strange_levels(given, self.fitted), *(note for note in given.notes if note.startswith("not")))
        return task.of(given, self.fitted, self.undirected, self.how)

    @torch.no_grad()
    def table(self, model: nn.Module, pattern: Pattern, device: torch.device | str) -> Iterator[dict[str, Any]]:
        """Each node's name, with its class and the probabilities of all, or with its value."""
        batch = self.batch("test", pattern).to(device)
        for start, part in enumerate(model.eval()(*batch.inputs).cpu().double().split(ROWS)):
            for node, made in enumerate(self._table(part), start * ROWS):
                yield {"node": self.shown(node)} | made

    def _table(self, outputs: Tensor) -> Iterator[dict[str, Any]]:
        p = self.objective.probabilities(outputs)
        for likeliest, row in zip(p.argmax(-1).tolist(), p.tolist(), strict=True):
            yield {"class": self.classes[likeliest], "probabilities": dict(zip(self.classes, row, strict=True))}

    def of(self, given: Given, fitted: Fitted, undirected: bool, how: Reading) -> Self:
        """The same task, which knows where its data come from."""
        self.given, self.fitted, self.undirected, self.how = given, fitted, undirected, how
        columns = given.x if isinstance(given.x, list) else []
        if columns:
            more = f" and {len(columns) - LISTED} more" if len(columns) > LISTED else ""
            self.contents += f" with {', '.join(map(str, columns[:LISTED]))}{more}"
        self.summary = (self.describe(), str(fitted.target), *given.notes)
        return self

    def _parse(self, request: str) -> list[int]:
        """Nodes by name, or where they have none by row."""
        if self.given.names is None or request.strip() == "all":
            return super()._parse(request)
        number_of = vars(self).setdefault("_number_of", record.numbers(self.given))
        names = [request.strip()] if request.strip() in number_of else [name.strip() for name in request.split(",")]
        for name in names:
            if name not in number_of:
                first = ", ".join(map(repr, self.given.names[:3]))
                raise DataError(f"no node {name[:80]!r} in {self.name}: its nodes are called {first}, ...")
        return [number_of[name] for name in names]


class OwnValues(NodeRegression, OwnNodes):
    """The same where each node has a value."""

    def of(self, given: Given, fitted: Fitted, undirected: bool, how: Reading) -> Self:
        self.mean, self.deviation = fitted.scale
        return super().of(given, fitted, undirected, how)

    def _table(self, outputs: Tensor) -> Iterator[dict[str, Any]]:
        yield from ({"value": self.value(output)} for output in outputs)


def node_folder(
    folder: str = "nodes",
    undirected: bool = True,
    fold: int = 0,
    ignore: str = "",
    scale: Literal["standard", "none"] = "standard",
    fanouts: tuple[int, ...] = (),
    target: Literal["auto", "class", "number"] = "auto",
    like: str = "",
    id: str = "",
    label: str = "label",
    ends: str = "",
    time: str = "",
) -> NodeClassification:
    """Guess the classes of a graph's nodes, or a quantity: your own graph, from a folder.

    Either two tables, each a CSV file with a line of column names first, or a Parquet file (with .parquet for .csv):
        nodes.csv   a column `label` (empty: unknown), and if there are, a column that names the nodes (`node`, `id`, or
                    any that all ends of edges are in) and `split`, their parts "train", "valid", "test" or nothing;
                    every other column is a feature: numbers, truth values, dates, or texts that repeat, categories
        edges.csv   the columns `sender` and `receiver` (or `source` and `target`, `from` and `to`, or any two that hold
                    names of nodes alone): names of nodes or, where they have none, their rows from 0; all other columns
                    are features of the edges. Of edges-a.csv, edges-b.csv, ... a further one says which an edge is from
    or one file graph.npz with the arrays `edge_index` [2, E] (senders, receivers), `x` [N, C] and `labels` [N]
    (whole numbers, -1 where unknown, or numbers of a quantity, NaN where unknown) and, if there are, `edge_attr` [E, D]
    and `train`, `valid` and `test`: nodes, or masks [N].

    A CSV file may be in UTF-8, UTF-16 or Windows-1252, with cells between commas, semicolons, tabs or bars, and with
    decimal commas; how it was read is said.

    Without parts, the labelled nodes are cut at random into 60 % to train, 20 % to choose the weights by and 20 % to
    test. Numbers of tables are standardised by the nodes that train; a cell without a value is their mean, and a
    further feature says that it was missing. Arrays are read as they are. A run keeps each node's part, the
    classes and the scales, and goes by them when it is evaluated or resumed, whatever has become of the files.

    Args:
        folder: Where the files lie.
        undirected: Let every node also attend to those that attend to it.
        fold: Seed of the random cut: another number, another cut.
        ignore: Columns of both tables that are not read, with commas between them.
        scale: Numbers of tables have mean 0 and deviation 1 among the nodes that train ("standard"), or stay ("none").
        fanouts: Neighbours to draw in each hop of training, one number per layer. Empty: the whole graph at once.
        target: Whether labels are classes or a number to predict. "auto": numbers with fractions are a quantity, texts
            and up to 20 different whole numbers classes; of more whole numbers it must be said.
        like: A run folder: its split, classes and scales of columns are taken.
        id: The column that names the nodes, or "row": they are their rows from 0. Empty: it is found.
        label: The column with the labels.
        ends: The two columns of edges with senders and receivers, with a comma between them. Empty: they are found.
        time: A column of dates or numbers that says when a node is, or of edges, the first of which says it: the
            earliest nodes train and the latest test. It is no feature then.

    Errors      files that are missing, malformed or do not fit each other are a `DataError` with all that is wrong, by
                line and column, and so are labels that may be either; a Parquet file without pyarrow is an
                `EdgewiseError` that names the extra. Features of edges go with models that read them and without
                `fanouts`, else they are a `ConfigError`.
    """
    place, known = Path(folder).expanduser(), record.read(Path(like).expanduser()).kinds if like else None
    how = Reading(frozenset(names_in(ignore)), id, label, names_in(ends), True, known)
    given = read_folder(place, how)
    given, when = times_of_nodes(given, time) if time and not like else (given, None)
    times = None if when is None else torch.from_numpy(when.values)

    def fit_columns(fitted: Fitted, splits: Splits) -> Fitted:
        columns = _fit(given.x, splits["train"].numpy(), scale == "standard")
        edges = _fit(given.e, slice(None), scale == "standard")
        return replace(fitted, columns=columns, edges=edges, widths=(_width(given.x, columns), _width(given.e, edges)))

    fitted, splits, changes = settle(given, like, target, fold, times=times, fit=fit_columns)
    if when is not None and times is not None:
        given = replace(given, notes=(*given.notes, in_words(when, times, splits, "nodes")))
    kind = OwnNodes if fitted.target.kind == "class" else OwnValues
    task = kind(place.name, graph_of(given, fitted, splits, undirected), fanouts, False)
    task.changes = (*changes, *(strange_levels(given, fitted) if like else ()))
    return task.of(given, fitted, undirected, how)


def read_folder(place: Path, how: Reading) -> Given:
    """The graph of a folder."""
    nodes, links = find_table(place, "nodes"), find_tables(place, "edges")
    found = [table.name for table in (nodes, *links) if table]
    if (place / ARRAYS).is_file():
        if found:
            raise DataError(f"{place}: it has {ARRAYS} and {', '.join(found)}: which is meant? Leave one of them")
        return read_npz(place / ARRAYS, how.labelled)
    if not (nodes and links):
        lacking = ", ".join(f"{name}.csv" for name, table in (("nodes", nodes), ("edges", links)) if not table)
        raise DataError(f"{place} lacks {lacking} (or .tsv, .parquet), and it has no {ARRAYS}. Give folder=")
    if how.known and not how.known[0]:
        raise DataError(f"{place}: it has tables, and the run was trained with arrays: give {ARRAYS}")
    return read_tables(nodes, links, how)


def graph_of(given: Given, fitted: Fitted, splits: Splits, undirected: bool) -> Nodes:
    """The graph, its features and its targets, as models read them."""
    if fitted.columns and not isinstance(given.x, list):
        raise DataError(f"{given.place}: it has arrays, and the run was trained with tables")
    x, e = _features(given.x, fitted.columns), _features(given.e, fitted.edges)
    for name, array, wanted in zip(("x", "edge_attr"), (x, e), fitted.widths, strict=True):
        if (0 if array is None else array.shape[1]) != wanted:
            has = 0 if array is None else array.shape[1]
            raise DataError(f"{given.place}: {name} has {has} features, and the run was trained with {wanted}")
    edges = torch.from_numpy(given.edges)
    if e is None:
        graph = Graph.from_edge_index(edges, len(given))
        graph, known = graph.symmetrise().coalesce() if undirected else graph, None
    else:
        graph, known = with_features(edges, torch.from_numpy(e.astype(np.float32)), len(given), undirected)
    assert x is not None
    labels = fitted.target.values(given.labels)
    return Nodes(graph, torch.from_numpy(x.astype(np.float32)), labels, fitted.target.classes, splits, known)


def _fit(given: list[Column] | Array | None, rows: Any, scale: bool) -> tuple[Encoding, ...]:
    return fit(given, rows, scale) if isinstance(given, list) else ()


def _features(given: list[Column] | Array | None, encodings: tuple[Encoding, ...]) -> Array | None:
    return features(given, encodings) if isinstance(given, list) else given


def _width(given: list[Column] | Array | None, encodings: tuple[Encoding, ...]) -> int:
    return width(encodings) if given is None or isinstance(given, list) else int(given.shape[1])


def strange_levels(given: Given, fitted: Fitted) -> Iterator[str]:
    """In sentences, the categories that training never saw."""
    both = (given.x if isinstance(given.x, list) else []) + (given.e if isinstance(given.e, list) else [])
    return record.strange_levels(both, (*fitted.columns, *fitted.edges))
