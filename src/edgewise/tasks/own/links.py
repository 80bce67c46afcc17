"""Links of one's own graph, from CSV, Parquet or .npz files."""

from pathlib import Path
from typing import Literal

import torch

from edgewise.data import record
from edgewise.data.examples import Asked, OneGraph, in_words, times_of_edges, times_of_links
from edgewise.data.graph import read_graph
from edgewise.data.record import Fitted, names_in, read_cut, strange_levels, write_cut
from edgewise.data.splits import SPLITS, by_time
from edgewise.errors import DataError
from edgewise.files import folder_name
from edgewise.graphs import Graph, cut_links
from edgewise.graphs.make.links import hold_out, links_of
from edgewise.tasks.links.prediction import TEST, VALID, LinkPrediction
from edgewise.tasks.own.nodes import columns_in, fit_to, inputs_of, named_nodes, width_of


class OwnLinks(LinkPrediction):
    """The links of one's own graph, whose nodes are known by their own names; a run keeps its cut and its scales."""

    kept = record.FILES
    private = kept
    given: OneGraph
    fitted: Fitted

    def keep(self, run: Path) -> None:
        write_cut(run, self.given, self.cut, self.fitted)

    def shown(self, node: int) -> int | str:
        return node if self.given.names is None else self.given.names[node]

    def _parse(self, request: str) -> list[int]:
        """One or two nodes by name, or where they have none by row."""
        if self.given.names is None:
            return super()._parse(request)
        found = named_nodes(self.given, request)
        if len(found) > 2 or None in found:
            first = ", ".join(map(repr, self.given.names[:3]))
            raise DataError(f"no nodes {request[:80]!r} in {self.name}: give one or two of its nodes {first}, ...")
        return found


def link_folder(
    folder: str = "nodes",
    width: int = 16,
    variational: bool = True,
    fold: int = 0,
    ignore: str = "",
    scale: Literal["standard", "none"] = "standard",
    fanouts: tuple[int, ...] = (),
    id: str = "",
    ends: str = "",
    time: str = "",
    like: str = "",
) -> LinkPrediction:
    """Guess which nodes of your own graph are linked, from their features and the links that are not held out.

    The folder is that of `node-folder`, without need of labels; every column of nodes that does not name them is a
    feature, and without any every node has the logarithm of 1 + its number of links that train. Of the links, without
    regard to their direction, 85 % train, 5 % choose the weights and 10 % test, at random or (`time`) from past to
    future, a link that is there several times by its first. Each held-out part has as many pairs of nodes without a
    link. The held-out links are in no graph that the model reads. A run keeps the part of each link and the scales, and
    goes by them when it is evaluated or resumed, whatever has become of the files.

    Args:
        folder: Where the files lie.
        width: Channels of a node's embedding.
        variational: Learn a normal distribution for each node, not a point: the model gives 2 x width channels.
        fold: Seed of the random cut: another number, another cut.
        ignore: Columns of both tables that are not read, with commas between them.
        scale: Numbers of tables have mean 0 and deviation 1 among all nodes ("standard"), or stay ("none").
        fanouts: Neighbours to draw in each hop of training, one number per layer. Empty: the whole graph at once.
        id: The column that names the nodes, or "row": they are their rows from 0. Empty: it is found.
        ends: The two columns of edges with senders and receivers, with a comma between them. Empty: they are found.
        time: A column of edges with dates or numbers: the earliest links train and the latest test. It is no feature
            then.
        like: A run folder: its cut and its scales of columns are taken.

    Errors      as those of `node-folder`; what is known of the edges is read by no model of links: a DataError names it
    """
    run, fitted = Path(like).expanduser(), record.read(Path(like).expanduser()) if like else None
    asked = Asked("nodes", id=id, ignore=frozenset(names_in(ignore)), labelled=False, ends=names_in(ends))
    given = read_graph(Path(folder).expanduser(), fitted.asked(asked) if fitted else asked)
    given, when = times_of_edges(given, time) if time and not like else (given, None)
    if given.e is not None:
        names = ",".join(column.name for column in given.e) if isinstance(given.e, list) else "edge_attr"
        what = f"nothing reads what is known of edges: give --task.ignore {names}"
        raise DataError(f"{given.place}: {what}")
    graph = Graph.from_edge_index(torch.from_numpy(given.edges), len(given)).symmetrise().coalesce()
    generator, notes, changes = torch.Generator().manual_seed(fold), list[str](), list[str]()
    if like:
        cut, changes = read_cut(run, given, graph)
    elif when is None:
        cut = cut_links(graph, VALID, TEST, generator)
    else:
        times, links = times_of_links(given.edges, when.values, len(given)), links_of(graph)
        parts = by_time(times, (1 - VALID - TEST, 1 - TEST))
        train, valid, test = (links[:, parts[split]] for split in SPLITS)
        cut = hold_out(graph, train, valid, test, generator)
        notes.append(in_words(when, times, parts, "links"))
    if empty := [split for split in SPLITS if not getattr(cut, split).numel()]:
        count = links_of(graph).shape[1]
        raise DataError(f"{given.place}: {count} links between two nodes are too few: none is left for {empty[0]}")
    given = given.described(cut.train.numpy())  # those that are held out are in no degree
    if fitted is None:
        columns = fit_to(given.x, slice(None), scale == "standard")
        fitted = Fitted((), columns, widths=(width_of(given.x, columns), 0), names=given.found)
    changes += strange_levels(columns_in(given), (*fitted.columns, *fitted.edges)) if like else ()
    x, _ = inputs_of(given, fitted)
    task = OwnLinks(f"links of {folder_name(given.place)}", cut, x, width, variational, fanouts)
    task.given, task.fitted, task.changes = given, fitted, tuple(changes)
    task.summary = (task.describe(), *given.notes, *notes)
    return task
