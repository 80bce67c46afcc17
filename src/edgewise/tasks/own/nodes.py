"""The nodes of one's own graph, their class, a value or several of both, and its links; from tables or a .npz file."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import torch
from torch import Tensor, nn

from edgewise.data import record
from edgewise.data.columns import Array, Encoding, features, fit, fit_weights, read_columns, weights_in
from edgewise.data.examples import (
    Asked,
    Edges,
    OneGraph,
    apart,
    graph_of,
    in_words,
    left_out,
    times_of_edges,
    times_of_links,
    times_of_nodes,
)
from edgewise.data.graph import read_graph, read_npz
from edgewise.data.options import on_own
from edgewise.data.record import Fitted, Settled, listed, names_in, read_cut, settle, strange_levels, write_cut
from edgewise.data.rows import with_node
from edgewise.data.splits import SPLITS, Cut, How, Split, Splits, by_time, divided
from edgewise.data.table import Called, find_tables, object_in
from edgewise.errors import DataError
from edgewise.files import folder_name
from edgewise.graphs import Graph, cut_links
from edgewise.graphs.derived import cached
from edgewise.graphs.make.links import hold_out, links_of, sample_non_links
from edgewise.tasks.core.abilities import Alone, Predicts, Rows
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.drawing import Section
from edgewise.tasks.core.subject import Subject, in_columns
from edgewise.tasks.core.task import Device, Pattern
from edgewise.tasks.core.task import given as is_own
from edgewise.tasks.links.prediction import TEST, VALID, LinkPrediction
from edgewise.tasks.links.queries import Queries
from edgewise.tasks.nodes.classification import (
    NodeClassification,
    Nodes,
    SampledBatch,
    SampledNodes,
    Seen,
    fifths,
    parity,
)
from edgewise.tasks.own.several import Gapped, Several, SeveralTargets, known_terms

LISTED = 20  # columns that a report lists
ROWS = 4096  # of a table of predictions that are lists of Python at once


class GappedNodes(Gapped, Batch):
    """The nodes of a graph."""

    shared = True


class GappedSample(Gapped, SampledBatch):
    """Some of them, with some of their neighbours."""


class InOwnGraph(Predicts):
    """A task on one's own graph, whose nodes are known by their own names, and to which a request may add one."""

    kept = record.FILES
    private = kept
    form = '{"node": {COLUMN: CELL, ...}, "edges": [["new", NODE], ...]}'
    given: OneGraph
    asked: Asked
    fitted: Fitted

    def shown(self, node: int) -> int | str:
        return node if self.given.names is None else self.given.names[node]

    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        task, name = self.holding(request)
        return super(InOwnGraph, task).predict(model, pattern, name, device)  # type: ignore[safe-super]

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        task, name = self.holding(request)
        features, edges = in_columns(self.fitted.columns), in_columns(self.fitted.edges, "edge")
        made = super(InOwnGraph, task).subject(model, pattern, name)
        return replace(made, names=task.given.names or (), features=features, edge_features=edges)

    def holding(self, request: str) -> tuple[Self, str]:
        """The task whose graph holds the nodes that a request asks for, and their names: of a new one, a row, the graph
        with that node."""
        row = object_in(request)
        if row is None:
            return self, request
        if isinstance(row.get("node"), dict | list):
            return self.grown(row)
        column = next((name for name in (self.given.found.get("node", "node"), "node") if name in row), None)
        if column is None:
            raise DataError(f'a row names a node as {{"node": NAME}}, or has a new one as {self.form}')
        return self, str(row[column])

    @abstractmethod
    def grown(self, row: Mapping[str, Any]) -> tuple[Self, str]:
        """The task with one node more, of which a row tells, and what that is called."""

    def _parse(self, request: str) -> list[int]:
        """Nodes by name, or where they have none by row."""
        rows, text = self.given.number_of, request.strip()
        if self.given.names is None or text == "all":
            return super()._parse(request)  # type: ignore[misc]
        names = [text] if text in rows else [name.strip() for name in text.split(",")]
        if lacking := [name for name in names if name not in rows]:
            first = ", ".join(map(repr, self.given.names[:3]))
            raise DataError(f"no node {lacking[0][:80]!r} in {self.name}: its nodes are called {first}, ...")
        return [rows[name] for name in names]


class OwnNodes(InOwnGraph, SeveralTargets, SampledNodes):
    """The nodes of one's own graph, known by their own names, with one target or several, classes and values, some of
    which may be unknown; a run keeps their parts and what was fitted to them."""

    whole, sampled = GappedNodes, GappedSample

    def __init__(self, own: Settled, undirected: bool, asked: Asked, fanouts: tuple[int, ...] = ()) -> None:
        assert isinstance(own.given, OneGraph)
        given, fitted, self.several = own.given, own.fitted, Several.of(own.fitted)
        x, e = inputs_of(given, fitted)
        graph, known = graph_of(given.edges, e, len(given), undirected, fitted.parallel)
        y = self.several.values(given.targets, own.weights, len(given))
        nodes = Nodes(graph, x, y, (), own.splits, known, weighted=bool(fitted.weight))
        super().__init__(folder_name(given.place), nodes, fanouts, False)
        strange = strange_levels([*given.x, *given.e], (*fitted.columns, *fitted.edges))
        self.given, self.undirected, self.asked = weighed(given, fitted), undirected, asked
        self.own, self.changes = replace(own, given=self.given), (*own.changes, *strange)
        self.metric = self.several.metric
        self.classes = fitted.target.classes if len(fitted.targets) == 1 else ()
        self.signature = replace(self.signature, outputs=self.several.width, classes=bool(self.classes))
        if self.classes:
            self.contents = f"{len(given):,} nodes of {len(self.classes)} classes"
        elif len(fitted.targets) > 1:
            self.contents = f"{len(given):,} nodes with {len(fitted.targets)} targets"
        if given.x:
            more = f" and {len(given.x) - LISTED} more" if len(given.x) > LISTED else ""
            self.contents += f"; features: {', '.join(map(str, given.x[:LISTED]))}{more}"
        self.summary = (self.describe(), *map(str, fitted.targets), *self.given.notes)

    @property
    def fitted(self) -> Fitted:  # type: ignore[override]  # which changes with what is owned
        """What was fitted to the data that trained."""
        return self.own.fitted

    def keep(self, run: Path) -> None:
        self.own.keep(run)

    def preprocessing(self) -> dict[str, Any]:
        made = self.fitted.to_plain()
        form = '{"nodes": [{COLUMN: CELL, ...}, ...], "edges": [{COLUMN: CELL, ...}, ...]}'
        rows = {
            "kind": "nodes",
            "unit": "node",
            "input": f"a folder with nodes.csv and edges.csv, or a JSON file {form}",
            "columns": made["columns"],
            "edge_columns": made["edge_columns"],
            "both_ways": self.undirected,
            "parallel": self.fitted.parallel,
            "found": dict(self.given.found),
        }
        classes = {"classes": list(self.classes)} if self.classes else {}
        return classes | {"targets": made["targets"], "rows": rows}

    @cached
    def until(self, split: Split, pattern: Pattern) -> tuple[Graph, Tensor | None]:
        """The graph that a split reads, and its edges' features: where nodes have times, no edge is later than the last
        node that trains, or chooses the weights."""
        one, times = self.given, self.given.times
        if one.when is None or times is None or split == "test" or not is_own(pattern):
            return self.graph(pattern), self.nodes.e
        early = one.when <= times.values[self.splits[split].numpy()].max()
        e = inputs_of(one, self.fitted)[1]
        known = None if e is None else e[early]
        return graph_of(one.edges[:, early], known, len(one), self.undirected, self.fitted.parallel)

    @cached
    def batch(self, split: Split, pattern: Pattern) -> Batch:
        (graph, e), rows = self.until(split, pattern), self.splits[split]
        return self.whole(graph, self.nodes.x, self.nodes.labels[rows], rows, e)

    def seen(self, pattern: Pattern = None) -> Seen:
        graph, e = self.until("train", pattern)
        return Seen(graph, self.nodes.x, self.nodes.labels, self.splits["train"], e)

    def _whole(self, pattern: Pattern) -> Batch:
        return self.batch("train", pattern)

    def rows(self, numbers: Tensor) -> Iterator[Rows]:
        """Each node's features and degree; and with them the means of its neighbours' features and of its edges'."""
        assert isinstance(self.nodes.x, Tensor)
        edges, x = self.graph().to_scipy(), self.nodes.x.numpy()
        degree = np.asarray(edges.sum(1)).reshape(-1, 1)
        own = np.concatenate([x, np.log1p(degree)], 1)
        yield Rows("a node's features", own[numbers])
        sums, e = [edges @ own], self.nodes.e
        if e is not None:
            sums.append(torch.segment_reduce(e, "sum", lengths=self.graph().in_degrees(), unsafe=True).numpy())
        both = np.concatenate([own, *(part / np.maximum(degree, 1) for part in sums)], 1)
        yield Rows("a node's features and its neighbours' means", both[numbers])

    def elsewhere(self, place: Path, labelled: bool = False) -> OwnNodes:
        asked = self.fitted.asked(replace(self.asked, labelled=labelled))
        arrays = place.suffix.lower() == ".npz"
        given = read_npz(place, asked) if arrays else read_graph(place if place.is_dir() else place.parent, asked)
        none: Splits = {split: torch.empty(0, dtype=torch.int64) for split in SPLITS}
        left = tuple(note for note in given.notes if note.startswith("not"))
        own = Settled(given.described(given.edges), self.fitted, none, left)
        return OwnNodes(own, self.undirected, self.asked)

    def predictions(
        self, model: nn.Module, pattern: Pattern, requests: Sequence[str], device: Device
    ) -> list[dict[str, Any]]:
        """Those of nodes of the graph from one pass over it, and of each new node from another."""
        made = [self.holding(request) for request in requests]
        here = iter(super().predictions(model, pattern, [name for task, name in made if task is self], device))
        return [
            next(here) if task is self else super(OwnNodes, task).predictions(model, pattern, [name], device)[0]
            for task, name in made
        ]

    def grown(self, row: Mapping[str, Any]) -> tuple[OwnNodes, str]:
        given, name = with_node(self.given, row, self.fitted, self.asked, self.form)
        none: Splits = {split: torch.empty(0, dtype=torch.int64) for split in SPLITS}
        return OwnNodes(Settled(given, self.fitted, none), self.undirected, self.asked), name

    @torch.no_grad()
    def table(self, model: nn.Module, pattern: Pattern, device: torch.device | str) -> Iterator[dict[str, Any]]:
        """Each node's name, with its class and the probabilities of all, or with its value."""
        batch = self.batch("test", pattern).to(device)
        for start, part in enumerate(model.eval()(*batch.inputs).cpu().double().split(ROWS)):
            for node, made in enumerate(self.several.table(part), start * ROWS):
                yield {"node": self.shown(node)} | made

    def _named(self, output: Tensor, label: Any) -> dict[str, Any]:
        return self.several.named(output, torch.tensor(label, dtype=torch.float64))

    def _terms(self, labels: Tensor) -> int:
        return known_terms(labels)

    def _targets_of(self, labels: Tensor) -> Tensor:
        return labels

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        yield from super().draw(model, pattern, scores)
        if self.several.metric == "rmse" and self.has_test:
            yield Section("Predicted and measured", lambda: [parity(self, model, pattern)])

    def _coloured(self, outputs: Tensor) -> tuple[Tensor, Tensor, tuple[str, ...], str]:
        """By the first target: the predicted classes, or fifths of the predicted values."""
        target, first, known = self.several.targets[0], self.predicted(outputs), self.nodes.labels[:, 0]
        if target.kind == "number":
            return fifths(first.double(), f"the predicted {target.name}")
        what = f"the colour is the predicted {target.name}, a cross marks a wrong prediction"
        return first, (first != known) & ~known.isnan(), target.classes, what


@on_own("node")
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
    parallel: Literal["keep", "mean"] = "keep",
    cut: Cut = "auto",
    folds: int = 0,
    group: str = "",
    bad_rows: Literal["refuse", "skip"] = "refuse",
    edge_weight: str = "",
    sample_weight: str = "",
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

    Without parts, the labelled nodes are cut into 60 % to train, 20 % to choose the weights by and 20 % to test (80, 10
    and 10 % of 1,000 and more). Numbers of tables are standardised by the nodes that train; a cell without a value is
    their mean, and a further feature says that it was missing, if a node that trains lacks one. Arrays are read as they
    are. A run keeps each node's part, the classes and the scales, and goes by them when it is evaluated or resumed,
    whatever has become of the files.

    Args:
        folder: Where the files lie.
        scale: Numbers of tables have mean 0 and deviation 1 among the nodes that train ("standard"), or stay ("none").
        id: The column that names the nodes, or "row": they are their rows from 0. Empty: it is found.
        label: The column with the labels; of several targets all of them, with commas between them.
        time: A column of dates or numbers that says when a node is, or of edges, the first of which says it: the
            earliest nodes train and the latest test. It is no feature then, and no column `split` may name the parts.
            With cut "time" and without a name: the only one with dates.

    Errors      files that are missing, malformed or do not fit each other are a `DataError` with all that is wrong, by
                line and column, and so are labels that may be either. Features of edges go with models that read
                them, else they are a `ConfigError`.
    """
    label_of = names_in(label) or ("label",)
    how = How(cut, fold, folds, group, time)
    asked = Asked("nodes", label=label_of, id=id, ignore=frozenset(names_in(ignore)), ends=names_in(ends))
    asked = replace(asked, skip=bad_rows == "skip", weights=sample_weight)
    asked = asked if like else replace(asked, group=group)
    kept = record.read(Path(like).expanduser()) if like else None
    dated = kept.names.get("time") if kept else None
    given = read_graph(Path(folder).expanduser(), replace(kept.asked(asked), time=dated) if kept else asked)
    given = times_of_nodes(given, dated or time) if dated or (how.cut == "time" and not like) else given
    given = given.described(given.edges)

    def fit_columns(fitted: Fitted, splits: Splits) -> Fitted:
        scaled = scale == "standard" and given.scaled
        columns, edges = fit(given.x, splits["train"].numpy(), scaled), fit_edges(given, edge_weight, scaled)
        names = dict(given.found) | ({"weight": edge_weight} if edge_weight else {})
        return replace(fitted, columns=columns, edges=edges, names=names, parallel=parallel)

    own = settle(given, like, target, how, fit=fit_columns)
    if given.e:
        told = apart(given.edges, len(given), undirected, own.fitted.parallel)
        own = replace(own, given=replace(own.given, notes=(*own.given.notes, *told)))
    return OwnNodes(replace(own, files=record.files_of(given)), undirected, asked, fanouts)


def inputs_of(given: OneGraph, fitted: Fitted) -> tuple[Tensor, Array | None]:
    """The features of nodes and of edges in float32, by what was fitted to those that trained.

    Errors      DataError for others than those that trained
    """
    made = list[Array]()
    for what, columns, encodings in (("nodes", given.x, fitted.columns), ("edges", given.e, fitted.edges)):
        has, wanted = ([one.name for one in some] for some in (columns, encodings))
        if has != wanted:
            told, right = (listed(some) or "nothing" for some in (has, wanted))
            raise DataError(f"{given.place}: what is known of {what} is {told}, and the run was trained with {right}")
        made += [features(columns, encodings).astype(np.float32)] if columns else []
    return torch.from_numpy(made[0]), made[1] if given.e else None


def fit_edges(given: OneGraph, weight: str, scale: bool) -> tuple[Encoding, ...]:
    """The encodings of what is known of all edges, or of their weights."""
    if not weight:
        return fit(given.e, slice(None), scale)
    return fit_weights(weights_in(given.e, weight, given.place), slice(None), scale)


def weighed(given: OneGraph, fitted: Fitted) -> OneGraph:
    """The data, with a line about the weights of edges where these are what is known of them.

    Errors      DataError for what are no weights
    """
    if not fitted.weight:
        return given
    weights_in(given.e, fitted.weight, given.place)
    scale = f", divided by {fitted.edges[0].deviation:.4g}" if given.scaled else ""
    return replace(given, notes=(*given.notes, f"edges count by {fitted.weight}{scale}"))


def of_links(given: OneGraph, links: Tensor, weight: str) -> OneGraph:
    """The data with links [2, M] as edges, each with the mean weight of its edges, whichever way they lead."""
    pairs, wanted = np.sort(given.edges, 0), np.sort(links.numpy(), 0)
    codes, edge_of = np.unique(pairs[0] * len(given) + pairs[1], return_inverse=True)
    chosen = np.searchsorted(codes, wanted[0] * len(given) + wanted[1])

    def mean(values: Array) -> Array:
        return (np.bincount(edge_of, values) / np.bincount(edge_of))[chosen]

    one = weights_in(given.e, weight, given.place)
    e = [replace(one, values=mean(one.values), present=np.ones(len(chosen), dtype=bool))]
    return replace(given, edges=links.numpy(), e=e)


class OwnLinks(InOwnGraph, LinkPrediction):
    """The links of one's own graph, whose nodes are known by their own names; a run keeps its cut and its scales."""

    def keep(self, run: Path) -> None:
        write_cut(run, self.given, self.cut, self.fitted)
        record.keep_files(run, record.files_of(self.given))

    @torch.no_grad()
    def alone(self, model: nn.Module, pattern: Pattern) -> Alone:
        """The embeddings that the model computes of the links that train: how likely a node is linked to each."""
        z = self.embeddings(model.eval()(*self._whole("valid", pattern).inputs))
        return Queries.alone(z, lambda z, queries: z[queries[:, 0]] @ z.T, torch.tensor([[0], [1]]))

    def preprocessing(self) -> dict[str, Any]:
        rows = {
            "kind": "links",
            "input": "a .txt file with a node, or two with a comma between them, in each line, or a table of them",
            "queries": "the place of a node in `nodes`",
            "output": "whether each node is linked to it, in their order: logits, of which sigmoid makes probabilities",
            "nodes": [self.shown(node) for node in range(len(self.given))],
            "known": self.cut.train.T.tolist(),
            "shown": 10,
        }
        return {"rows": rows}

    def grown(self, row: Mapping[str, Any]) -> tuple[Self, str]:
        seen = replace(self.given, edges=self.cut.train.numpy())  # those that are held out are in no degree
        given, name = with_node(seen, row, self.fitted, self.asked, self.form)
        task, (x, e) = copy(self), inputs_of(given, self.fitted)
        vars(task).pop("_values", None)
        graph, known = graph_of(given.edges, e, len(given), True, "mean")
        task.given, task.cut, task.x = given, replace(self.cut, graph=graph, e=known), x
        return task, name

    def tested_on(self, place: Path) -> Self:
        """Other links between the same nodes, of a table of edges or a folder with some; and as many pairs without one,
        at random, or those of the rows whose column `label` says no."""
        files = find_tables(place, "edges") if place.is_dir() else [place]
        if not files:
            raise DataError(f"{place} lacks edges.csv (or .tsv, .parquet): links are measured by a table of edges")
        asked, number_of, told = self.fitted.asked(self.asked), self.given.number_of, list[str]()
        rows: tuple[list[tuple[str, ...]], list[tuple[str, ...]]] = ([], [])  # linked, and not
        for one in (Edges(path, asked.ends) for path in files):
            one.look(number_of, asked)
            label = Called(one.path, one.names, {*one.ends, *asked.ignore}).first(("label",))
            says, wrong = read_columns(one.table, [label] * bool(label), {label: "boolean"})
            if problems := [*one.table.problems, *wrong]:
                raise DataError(*problems)
            told += left_out(name for name in one.names if name not in {*one.ends, label})
            for number, pair in enumerate(zip(*map(one.names_of, one.ends), strict=True)):
                if pair[0] != pair[1] and (not says or says[0].present[number]):
                    rows[bool(says and not says[0].values[number])].append(pair)
        known = torch.cat([self.cut.train, self.cut.valid, self.cut.valid_none], 1).T
        of, made, nodes = (number_of, number_of), copy(self), len(self.given)
        links, lines = record.to_measure(place, "links", rows[0], of, known, pairs=True)
        if rows[1]:
            none, more = record.to_measure(place, "pairs without a link", rows[1], of, known, pairs=True)
            lines = *lines, *more
        else:
            linked = torch.cat([self.cut.train, self.cut.valid, self.cut.test, links.T], 1)
            generator = torch.Generator().manual_seed(0)
            none = sample_non_links(Graph.from_edge_index(linked, nodes), len(links), generator).T
        vars(made).pop("_values", None)
        made.cut, made.changes = replace(self.cut, test=links.T, test_none=none.T), (*told, *lines)
        made.splits = {**self.splits, "test": links}
        return made

    def _parse(self, request: str) -> list[int]:
        """One or two nodes by name, or where they have none by row."""
        if len(found := super()._parse(request)) > 2:
            raise DataError(f"no nodes {request[:80]!r} in {self.name}: give one or two of its nodes")
        return found


@on_own("link")
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
    cut: Literal["auto", "random", "time"] = "auto",
    folds: int = 0,
    bad_rows: Literal["refuse", "skip"] = "refuse",
    edge_weight: str = "",
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
        scale: Numbers of tables have mean 0 and deviation 1 among all nodes ("standard"), or stay ("none").
        id: The column that names the nodes, or "row": they are their rows from 0. Empty: it is found.
        time: A column of edges with dates or numbers: the earliest links train and the latest test. It is no feature
            then.
        like: A run folder: its cut and its scales of columns are taken.
        cut: How to cut: "random", or by "time", of which `time` names the column; else it is the only one with dates.
            "auto": by time where that is named.
        edge_weight: A column of edges, numbers of at least 0: how much a link that trains counts in the sums and means
            of layers that have a place for that, the mean where it is there several times. `scale` divides them by
            their mean.

    Errors      as those of `node-folder`; what is known of the edges is read by no model of links: a DataError names it
    """
    how = How("random" if cut == "auto" and not time else cut, fold, folds, time=time)
    run, fitted = Path(like).expanduser(), record.read(Path(like).expanduser()) if like else None
    asked = Asked("nodes", id=id, ignore=frozenset(names_in(ignore)), labelled=False, ends=names_in(ends))
    asked = replace(asked, skip=bad_rows == "skip")
    given = read_graph(Path(folder).expanduser(), fitted.asked(asked) if fitted else asked)
    given, when = times_of_edges(given, time) if how.cut == "time" and not like else (given, None)
    weight = fitted.weight if fitted else edge_weight
    if given.e and not weight:
        names = ",".join(column.name for column in given.e)
        what = f"nothing reads what is known of edges: give --task.ignore {names}, or --task.edge_weight NAME"
        raise DataError(f"{given.place}: {what}")
    graph = Graph.from_edge_index(torch.from_numpy(given.edges), len(given)).symmetrise().coalesce()
    generator, notes, changes = torch.Generator().manual_seed(fold), list[str](), list[str]()
    if like:
        made, changes = read_cut(run, given, graph)
    elif when is None and not folds:
        made = cut_links(graph, VALID, TEST, generator)
    else:
        links = links_of(graph)
        if when is None:
            parts = divided(how, links.shape[1])
            notes.append(f"links cut at random, fold {fold % folds} of {folds} tests")
        else:
            times = times_of_links(given.edges, when.values, len(given))
            parts = by_time(times, (1 - VALID - TEST, 1 - TEST))
            notes.append(in_words(when, times, parts, "links"))
        train, valid, test = (links[:, parts[split]] for split in SPLITS)
        made = hold_out(graph, train, valid, test, generator)
    if empty := [split for split in SPLITS if not getattr(made, split).numel()]:
        count = links_of(graph).shape[1]
        raise DataError(f"{given.place}: {count} links between two nodes are too few: none is left for {empty[0]}")
    given = given.described(made.train.numpy())  # those that are held out are in no degree
    if weight:
        notes += apart(given.edges, len(given), True, "mean")
        given = of_links(given, made.train, weight)
    if fitted is None:
        scaled, found = scale == "standard" and given.scaled, dict(given.found) | ({"weight": weight} if weight else {})
        columns, edges = fit(given.x, slice(None), scaled), fit_edges(given, weight, scaled)
        fitted = Fitted((), columns, edges, names=found)
    given, (x, e) = weighed(given, fitted), inputs_of(given, fitted)
    changes += strange_levels([*given.x, *given.e], (*fitted.columns, *fitted.edges)) if like else ()
    if e is not None:
        graph, known = graph_of(made.train.numpy(), e, len(given), True, "mean")
        made = replace(made, graph=graph, e=known)
    task = OwnLinks(f"links of {folder_name(given.place)}", made, x, width, variational, fanouts)
    task.given, task.fitted, task.asked, task.changes = given, fitted, asked, tuple(changes)
    task.summary = (task.describe(), *given.notes, *notes)
    return task
