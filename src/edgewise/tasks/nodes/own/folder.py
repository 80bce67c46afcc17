"""A graph of one's own: nodes with features and labels, and who attends to whom, from CSV, Parquet or .npz files."""

from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from edgewise.data.splits import Splits
from edgewise.files import folder_name
from edgewise.tasks.nodes.classification import NodeClassification
from edgewise.tasks.nodes.own.data import fit_to, graph_of, read_folder, strange_levels, width_of
from edgewise.tasks.nodes.own.known import OwnNodes, OwnSeveral, OwnValues
from edgewise.tasks.nodes.own.tables import Reading
from edgewise.tasks.nodes.own.times import in_words, times_of_nodes
from edgewise.tasks.own import record
from edgewise.tasks.own.fitting import names_in, settle
from edgewise.tasks.own.record import Fitted


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
                    every other column is a feature: numbers, truth values, dates, or texts that repeat, categories.
                    Without a feature every node has the logarithm of 1 + its degree
        edges.csv   the columns `sender` and `receiver` (or `source` and `target`, `from` and `to`, or any two that hold
                    names of nodes alone): names of nodes or, where they have none, their rows from 0; all other columns
                    are features of the edges. Of edges-a.csv, edges-b.csv, ... a further one says which an edge is from
    or one file graph.npz with the arrays `edge_index` [2, E] (senders, receivers) and `labels` [N], or of several
    targets [N, T] (whole numbers, -1 where unknown, or numbers of a quantity, NaN where unknown), and, if there are,
    `x` [N, C], `edge_attr` [E, D] and `train`, `valid` and `test`: nodes, or masks [N].

    Of several targets (`--task.label age,party`) each is classes or a quantity of its own, and may be missing in some
    nodes: the loss is over those that are known.

    A CSV file may be in UTF-8, UTF-16 or Windows-1252, with cells between commas, semicolons, tabs or bars, and with
    decimal commas; how it was read is said.

    Without parts, the labelled nodes are cut at random into 60 % to train, 20 % to choose the weights by and 20 % to
    test. Numbers of tables are standardised by the nodes that train; a cell without a value is their mean, and a
    further feature says that it was missing, if a node that trains lacks one. Arrays are read as they are. A run keeps
    each node's part, the classes and the scales, and goes by them when it is evaluated or resumed, whatever has become
    of the files.

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
        label: The column with the labels; of several targets all of them, with commas between them.
        ends: The two columns of edges with senders and receivers, with a comma between them. Empty: they are found.
        time: A column of dates or numbers that says when a node is, or of edges, the first of which says it: the
            earliest nodes train and the latest test. It is no feature then, and no column `split` may name the parts.

    Errors      files that are missing, malformed or do not fit each other are a `DataError` with all that is wrong, by
                line and column, and so are labels that may be either; a Parquet file without pyarrow is an
                `EdgewiseError` that names the extra. Features of edges go with models that read them and without
                `fanouts`, else they are a `ConfigError`.
    """
    place = Path(folder).expanduser()
    how = Reading(frozenset(names_in(ignore)), id, names_in(label) or ("label",), names_in(ends))
    how = how.like(record.read(Path(like).expanduser())) if like else how
    given = read_folder(place, how)
    given, when = times_of_nodes(given, time) if time and not like else (given, None)
    given = given.described(given.edges)
    times = None if when is None else torch.from_numpy(when.values)

    def fit_columns(fitted: Fitted, splits: Splits) -> Fitted:
        columns = fit_to(given.x, splits["train"].numpy(), scale == "standard")
        edges = fit_to(given.e, slice(None), scale == "standard")
        widths = width_of(given.x, columns), width_of(given.e, edges)
        return replace(fitted, columns=columns, edges=edges, widths=widths, names=given.found)

    fitted, splits, changes = settle(given, like, target, fold, times=times, fit=fit_columns)
    if when is not None and times is not None:
        given = replace(given, notes=(*given.notes, in_words(when, times, splits, "nodes")))
    kind = OwnSeveral if len(fitted.targets) > 1 else OwnNodes if fitted.target.kind == "class" else OwnValues
    task = kind(folder_name(place), graph_of(given, fitted, splits, undirected), fanouts, False)
    task.changes = (*changes, *strange_levels(given, fitted))
    return task.of(given, fitted, undirected, how)
