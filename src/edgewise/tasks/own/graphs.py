"""Graphs of one's own to classify or to measure whole: a table of graphs, one of their nodes and one of their edges."""

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Literal

import numpy as np
import torch

from edgewise.data import record
from edgewise.data.columns import Array, Column, features, fit, in_lines, width
from edgewise.data.edges import RELATION, Edges, columns_of, ends_within, found_ends, graphs_of
from edgewise.data.examples import Asked, Examples, Members, read_examples, read_members, strangers
from edgewise.data.record import Fitted, Settled, labels_in, names_in
from edgewise.data.splits import Splits
from edgewise.data.table import Problems, find_table, find_tables, unread
from edgewise.errors import DataError
from edgewise.files import check_folder, folder_name
from edgewise.tasks.graphs.prediction import GraphClassification, Graphs
from edgewise.tasks.own.examples import Files, OwnExamples, targets_of

FOLDER = ("graphs", "nodes", "edges")


@dataclass(frozen=True)
class Inputs:
    """The nodes of graphs, their edges [2, E], what is known of these, and in which columns their ends were found."""

    nodes: Members
    edges: Array
    e: list[Column]
    found: dict[str, str]


@dataclass(frozen=True)
class GraphFiles(Files[Inputs, OwnExamples]):
    """A folder of three tables.

    Args:
        graph: The column of nodes and edges that names their graph; empty: found.
        undirected: Whether every node also attends to those that attend to it.
        scale: Whether numbers have mean 0 and deviation 1 among what trains.
    """

    graph: str = ""
    undirected: bool = True
    scale: bool = True

    def read(self, place: Path, fitted: Fitted | None) -> tuple[Examples, Inputs]:
        asked = fitted.asked(self.asked) if fitted else self.asked
        place = place if asked.labelled or place.is_dir() else place.parent
        check_folder(place)
        graphs, nodes = find_table(place, FOLDER[0]), find_table(place, FOLDER[1])
        links = find_tables(place, FOLDER[2])
        if not (graphs and nodes and links):
            lacking = [f"{name}.csv" for name, there in zip(FOLDER, (graphs, nodes, links), strict=True) if not there]
            raise DataError(f"{place} lacks {', '.join(lacking)} (or .tsv, .parquet). Give --task.folder")
        problems, wrong = list[str](), Problems()
        rows = read_examples(graphs, asked, problems, (nodes, *links))
        names = [rows.name(number) for number in range(len(rows))]
        of_nodes = read_members(nodes, names, "graph", self.graph, asked, problems)
        tables = [Edges(path, asked.ends, "graph", self.graph) for path in links]
        edges = ends_within(tables, of_nodes, asked, wrong)
        e, of_columns = columns_of(tables, asked)
        problems += [*of_columns, *wrong.sentences()]
        if asked.labelled:
            present = {*rows.header, *of_nodes.header, *(name for one in tables for name in one.names)}
            more = {RELATION} if len(tables) > 1 else set()
            problems += strangers(place, asked.ignore, present | more, *(asked.known or ()))
        if problems:
            raise DataError(*problems)
        notes = [*rows.notes, *of_nodes.notes, *unread(place, rows.files), *(n for one in tables for n in one.notes)]
        notes += in_lines(e, "of edges: ")
        if not of_nodes.columns:
            notes.append("nodes have no features: each has the number 1")
        counts = {"nodes": int(of_nodes.sizes.sum()), "edges": int(edges.shape[1])}
        return replace(rows, notes=tuple(notes), counts=counts), Inputs(of_nodes, edges, e, found_ends(tables))

    def fit(self, inputs: Inputs, fitted: Fitted, splits: Splits) -> Fitted:
        train, owner = splits["train"].numpy(), np.append(inputs.nodes.owner, -1)
        columns = fit(inputs.nodes.columns, np.flatnonzero(np.isin(owner[:-1], train)), self.scale)
        edges = fit(inputs.e, np.flatnonzero(np.isin(owner[inputs.edges[0]], train)), self.scale)
        widths = width(columns) or 1, width(edges)
        return replace(fitted, columns=columns, edges=edges, widths=widths, names=inputs.found)

    def task(self, settled: Settled, inputs: Inputs) -> OwnExamples:
        nodes, fitted = inputs.nodes, settled.fitted
        x = features(nodes.columns, fitted.columns) if fitted.columns else np.ones((int(nodes.sizes.sum()), 1))
        e = features(inputs.e, fitted.edges) if fitted.edges else None
        members, known = graphs_of(inputs.edges, nodes.sizes, e, self.undirected)
        x32 = torch.from_numpy(x.astype(np.float32))
        graphs = Graphs(members, x32, targets_of(settled), settled.splits, e=known)
        strange = record.strange_levels([*nodes.columns, *inputs.e], (*fitted.columns, *fitted.edges))
        own = replace(settled, changes=(*settled.changes, *strange))
        return OwnExamples(folder_name(settled.given.place), graphs, own, self)


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
    ignored = frozenset(names_in(ignore))
    asked = Asked("graphs", label=labels_in(label, like), id=id, ignore=ignored, ends=names_in(ends))
    return GraphFiles(asked, graph, undirected, scale == "standard").settle(folder, like, target, fold)
