"""Graphs of one's own to classify or to measure whole: a table of graphs, one of their nodes and one of their edges."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from edgewise.data.encoding import features, fit, width
from edgewise.data.features import Array, Column, in_lines
from edgewise.data.reading import File, find_table, find_tables, unread
from edgewise.data.splits import Splits
from edgewise.errors import DataError
from edgewise.files import check_folder, folder_name
from edgewise.tasks.graphs.prediction import GraphClassification, Graphs
from edgewise.tasks.own import record
from edgewise.tasks.own.edges import found_ends, strangers
from edgewise.tasks.own.examples import Own, OwnExamples, targets_of
from edgewise.tasks.own.fitting import labels_in, names_in, settle
from edgewise.tasks.own.groups import EdgesOfMembers, Members, edges_of, graphs_of, read_members
from edgewise.tasks.own.record import Fitted
from edgewise.tasks.own.rows import Asked, Rows, read_rows

FOLDER = ("graphs", "nodes", "edges")


@dataclass(frozen=True)
class Manner:
    """How a folder of graphs is to be read.

    Args:
        asked: What of the table of graphs is wanted.
        graph: The column of nodes and edges that names their graph; empty: found.
        ends: The columns of edges with senders and receivers; empty: found.
        undirected: Whether every node also attends to those that attend to it.
        scale: Whether numbers have mean 0 and deviation 1 among what trains.
    """

    asked: Asked
    graph: str = ""
    ends: tuple[str, ...] = ()
    undirected: bool = True
    scale: bool = True


@dataclass(frozen=True)
class Folder:
    """What a folder says: its graphs, their nodes, the edges [2, E], what is known of these, and in which columns their
    ends were found."""

    rows: Rows
    nodes: Members
    edges: Array
    e: list[Column]
    found: Mapping[str, str]


class OwnGraphs(OwnExamples):
    """Graphs of one's own from a folder."""

    manner: Manner

    def elsewhere(self, place: Path) -> OwnGraphs:
        fitted, manner = self.own.fitted, self.manner
        asked = replace(manner.asked, labelled=False)
        folder = read_folder(place if place.is_dir() else place.parent, replace(manner, asked=asked), fitted)
        return task_of(folder, fitted, {}, (), manner)


def graph_folder(
    folder: str = "graphs",
    label: str = "",
    target: Literal["auto", "class", "number"] = "auto",
    undirected: bool = True,
    fold: int = 0,
    ignore: str = "",
    scale: Literal["standard", "none"] = "standard",
    like: str = "",
    id: str = "",
    graph: str = "",
    ends: str = "",
) -> GraphClassification:
    """Guess a class or a quantity of each of your own graphs, or several of them: from a folder of three tables.

    Each is a CSV file with a line of column names first, a TSV or a Parquet file:
        graphs.csv  a row for each graph: a column that names it (`graph` or `id`; else graphs are rows from 0), the
                    columns with targets and, if there is one, `split` ("train", "valid", "test" or nothing)
        nodes.csv   a row for each node: the column `graph`, if there is one a column that names the node (`node`,
                    `id`), and features: numbers, truth values, dates, or texts that repeat, categories. Without a
                    feature every node has the number 1
        edges.csv   a row for each edge: the names of both nodes (`source` and `target`, ...) or, where nodes have none,
                    their rows from 0; a column `graph` where nodes of two graphs have one name, and rows then count
                    within their graph; other columns are features of edges

    Of several targets (`--task.label mass,toxic`) each may be missing in some graphs: the loss is over those that are
    known, and each has its own measures. Without parts, the graphs are cut at random into 60 % to train, 20 % to choose
    the weights by and 20 % to test. A run keeps the parts, classes and scales, as with `node-folder`.

    Args:
        folder: Where the files lie.
        label: The columns with targets, with commas between them. Empty: those of `like`, else `label`,
            `target`, or the only one left.
        target: Whether labels are classes or numbers. "auto": numbers with fractions are a quantity, texts and up to 20
            different whole numbers classes; of more whole numbers it must be said.
        undirected: Let every node also attend to those that attend to it.
        fold: Seed of the random cut: another number, another cut.
        ignore: Columns that are not read, with commas between them.
        scale: Numbers of nodes and edges have mean 0 and deviation 1 in the graphs that train ("standard"), or stay.
        like: A run folder: its parts, classes and scales are taken.
        id: The column that names the graphs. Empty: it is found.
        graph: The column of nodes and edges that names their graph. Empty: it is found.
        ends: The two columns of edges with senders and receivers, with a comma between them. Empty: they are found.

    Errors      files that are missing, malformed or do not fit each other are a `DataError` with all that is wrong
    """
    asked = Asked("graphs", label=labels_in(label, like), id=id, ignore=frozenset(names_in(ignore)))
    manner = Manner(asked, graph, names_in(ends), undirected, scale == "standard")
    read = read_folder(Path(folder).expanduser(), manner, record.read(Path(like).expanduser()) if like else None)

    def fit_columns(fitted: Fitted, splits: Splits) -> Fitted:
        rows, owner = read.nodes.of(splits["train"]), np.append(read.nodes.owner, -1)
        columns = fit(read.nodes.columns, rows, manner.scale)
        edges = fit(read.e, np.flatnonzero(np.isin(owner[read.edges[0]], splits["train"].numpy())), manner.scale)
        widths = width(columns) or 1, width(edges)
        return replace(fitted, columns=columns, edges=edges, widths=widths, names=read.found)

    fitted, splits, changes = settle(read.rows, like, target, fold, fit=fit_columns)
    return task_of(read, fitted, splits, changes, manner)


def read_folder(place: Path, manner: Manner, fitted: Fitted | None) -> Folder:
    """The graphs of a folder.

    Symbols     fitted = what a run has kept: its columns are read, as it read them; None: all that are left
    """
    check_folder(place)
    graphs, nodes = find_table(place, FOLDER[0]), find_table(place, FOLDER[1])
    links = find_tables(place, FOLDER[2])
    if not (graphs and nodes and links):
        lacking = [f"{name}.csv" for name, there in zip(FOLDER, (graphs, nodes, links), strict=True) if not there]
        raise DataError(f"{place} lacks {', '.join(lacking)} (or .tsv, .parquet). Give --task.folder")
    problems: list[str] = []
    rows = read_rows(graphs, manner.asked, problems, (nodes, *links))
    names = [record.name(rows, number) for number in range(len(rows))]
    ignored, known = {*manner.asked.ignore}, fitted.kinds if fitted else (None, None)
    of_nodes = read_members(nodes, names, "graph", manner.graph, ignored, known[0], problems)
    tables = [EdgesOfMembers(path, manner.ends, "graph", manner.graph) for path in links]
    kept = fitted.names if fitted else None
    edges, e = edges_of(tables, of_nodes, ignored, known[1], problems, kept)
    if manner.asked.labelled and ignored:
        present = {name for path in (graphs, nodes) for name in File(path).names} | {n for t in tables for n in t.names}
        problems += strangers(place, ignored, present, len(tables), *known)
    if problems:
        raise DataError(*problems)
    notes = [*rows.notes, *of_nodes.notes, *unread(place, rows.files)]
    notes += [note for one in tables for note in (*one.table.notes, *one.note())]
    notes += in_lines(e, "of edges: ")
    if not of_nodes.columns:
        notes.append("nodes have no features: each has the number 1")
    counts = {"nodes": int(of_nodes.sizes.sum()), "edges": int(edges.shape[1])}
    return Folder(replace(rows, notes=tuple(notes), counts=counts), of_nodes, edges, e, found_ends(tables))


def task_of(read: Folder, fitted: Fitted, splits: Splits, changes: tuple[str, ...], manner: Manner) -> OwnGraphs:
    """The task of graphs whose features are those that were fitted."""
    nodes, counts = read.nodes, np.ones((int(read.nodes.sizes.sum()), 1))
    x = features(nodes.columns, fitted.columns) if fitted.columns else counts
    e = features(read.e, fitted.edges) if fitted.edges else None
    members, known = graphs_of(read.edges, nodes.sizes, e, manner.undirected)
    y = targets_of(read.rows, fitted)
    graphs = Graphs(members, torch.from_numpy(x.astype(np.float32)), y, splits, e=known)
    strange = record.strange_levels([*nodes.columns, *read.e], (*fitted.columns, *fitted.edges))
    task = OwnGraphs(folder_name(read.rows.place), graphs, Own(read.rows, fitted, (*changes, *strange)))
    task.manner = manner
    return task
