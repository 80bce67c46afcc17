"""Graphs and clouds of points of one's own, each an example: from files to a task, and what such a task can."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Generic, Literal, Self, TypeVar

import numpy as np
import torch
from torch import Generator, Tensor, nn
from torch.nn import functional

from edgewise.data import record
from edgewise.data.columns import (
    Array,
    Column,
    Encoding,
    Kind,
    Wanted,
    check_folders,
    features,
    fit,
    fit_weights,
    in_lines,
    read_columns,
    weights_in,
)
from edgewise.data.examples import (
    RELATION,
    Asked,
    Edges,
    Examples,
    Members,
    Parallel,
    apart,
    columns_of,
    ends_within,
    few_rows,
    found_ends,
    graphs_of,
    left_out,
    read_examples,
    read_members,
    strangers,
    table_of,
)
from edgewise.data.options import on_own
from edgewise.data.record import KEPT, Fitted, Settled, labels_in, names_in, settle
from edgewise.data.rows import Row, as_tables, ends_in, listed_in, named
from edgewise.data.splits import Cut, How, Splits
from edgewise.data.table import (
    ENDINGS,
    SHOWN,
    Called,
    Problems,
    Table,
    find_table,
    find_tables,
    is_table,
    object_in,
    read_table,
    stacked,
    unread,
)
from edgewise.data.words import ENDS
from edgewise.errors import ConfigError, DataError
from edgewise.files import check_folder, folder_name, spelt
from edgewise.graphs import k_nearest
from edgewise.models.signature import Features
from edgewise.tasks.core.abilities import Predicts, Rows
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.classification import Classification
from edgewise.tasks.core.subject import Subject, in_columns
from edgewise.tasks.core.task import EXAMPLE, Device, NumberedExamples, Parts, Pattern, given, lay
from edgewise.tasks.graphs.prediction import GraphClassification, Graphs, Member
from edgewise.tasks.own.several import GappedBatch, Several, SeveralTargets, known_terms

DEGREES = 8  # that are counted, the last with all above
ROWS = 256  # examples that a model reads at once for a table of predictions
T = TypeVar("T")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Files(ABC, Generic[T, Made]):
    """A kind of files that examples are read from, and how."""

    asked: Asked  # what of their tables is wanted

    @abstractmethod
    def read(self, place: Path, fitted: Fitted | None) -> tuple[Examples, T]:
        """The examples at a place, and their inputs; all that is wrong is one DataError.

        Symbols     fitted = what a run has kept: its columns are read, as it read them; None: all that are left
        """

    def same(self, examples: Examples, inputs: T) -> Sequence[object] | None:
        """Of each example what must not be in two parts; None: nothing."""
        return None

    def fit(self, inputs: T, fitted: Fitted, splits: Splits) -> Fitted:
        """What was fitted to the targets, and what else is fitted to the inputs that train."""
        return fitted

    def few(self, settled: Settled, inputs: T) -> Mapping[str, bytes | Path]:
        """The files that a run keeps of the first examples of each part: by default their own files, under a folder of
        the same name."""
        given = settled.given
        files = (given.files[row] for row in settled.first)
        return {f"{folder_name(given.place) or KEPT}/{file.relative_to(given.place)}": file for file in files}

    @abstractmethod
    def to_plain(self, own: Settled) -> dict[str, Any]:
        """How they become a model's inputs, as JSON can hold it."""

    @abstractmethod
    def task(self, settled: Settled, inputs: T) -> Made:
        """The task of examples whose inputs are read by what was fitted."""

    def scaffolds(self, examples: Examples) -> Sequence[object]:
        """What each example is a variation of, for a cut by that."""
        raise ConfigError(f"{examples.unit} have no scaffolds: molecules do")

    def settle(self, place: str, like: str, wanted: Wanted, how: How) -> Made:
        """The task of files to train on: see `record.settle`."""
        parted = replace(self.asked, group=how.group, time=how.time if how.cut == "time" else None)
        files = self if like else replace(self, asked=parted)
        examples, inputs = files.read(Path(place).expanduser(), record.read(Path(like).expanduser()) if like else None)
        if how.cut == "scaffold" and not like:
            examples = replace(examples, groups=self.scaffolds(examples))
        same = None if like else self.same(examples, inputs)  # it may take longer than all else
        settled = settle(examples, like, wanted, how, same, fit=partial(self.fit, inputs))
        return self.task(replace(settled, files={} if settled.few else self.few(settled, inputs)), inputs)

    def elsewhere(self, place: Path, fitted: Fitted, labelled: bool) -> Made:
        """The task of other files, whose examples have no parts and, unless they are `labelled`, no labels."""
        reader = replace(self, asked=replace(self.asked, labelled=labelled))
        examples, inputs = reader.read(place, fitted)
        return self.task(Settled(examples, fitted, {}), inputs)


class Own(Predicts):
    """A task of one's own examples, of which a run keeps the parts and what was fitted to those that train."""

    kept: tuple[str, ...] = record.FILES
    private: tuple[str, ...] = record.FILES
    own: Settled
    how: Files[Any, Any]

    def keep(self, run: Path) -> None:
        self.own.keep(run)

    def elsewhere(self, place: Path, labelled: bool = False) -> Self:
        made: Self = self.how.elsewhere(place, self.own.fitted, labelled)
        return made

    def name_of(self, number: int) -> str:
        return self.own.given.name(number)

    def find(self, request: str) -> int:
        """One of the data, by its name or as "test:7"; any other is a DataError."""
        names, text, unit = self.own.given.number_of, request.strip(), self.own.given.unit
        if text not in names and not EXAMPLE.fullmatch(text):
            first = ", ".join(map(repr, [*names][:3]))
            raise DataError(f"no {unit[:-1]} {request[:80]!r} in {self.name}: its {unit} are called {first}, ...")
        return names[text] if text in names else int(self.example(text, unit))


class OwnAnswers(Own, SeveralTargets, NumberedExamples, Classification):
    """A task on one's own examples that answers with a class or a value of each, or several."""

    def preprocessing(self) -> dict[str, Any]:
        made = super().preprocessing()
        return made | {"targets": self.own.fitted.to_plain()["targets"], "rows": self.how.to_plain(self.own)}

    @torch.no_grad()
    def table(self, model: nn.Module, pattern: Pattern, device: Device) -> Iterator[dict[str, Any]]:
        """Each example's name and input, with what the model says of it."""
        for numbers in torch.arange(len(self.own.given)).split(ROWS):
            batch = self.batch(numbers, pattern).to(device)
            outputs = batch.read(model.eval()(*batch.inputs)).cpu()
            for number, made in zip(numbers.tolist(), self.several.table(outputs), strict=True):
                yield self.known(number) | made

    def known(self, number: int) -> dict[str, Any]:
        """How an example is called, and what of its input a table of predictions has."""
        return {self.unit[:-1]: self.name_of(number)}


class OwnExamples(OwnAnswers, GraphClassification):
    """Graphs, molecules, texts or clouds of one's own, with one target or several, some of which may be unknown.

    Errors      DataError for an example that is not there
    """

    tables = True
    kind = GappedBatch

    def __init__(self, name: str, graphs: Graphs, own: Settled, files: Files[Any, Any]) -> None:
        super().__init__(name, graphs)
        self.own, self.how, fitted = own, files, own.fitted
        self.several = Several.of(fitted)
        self.unit, self.metric = own.given.unit, self.several.metric
        self.classes = fitted.target.classes if len(fitted.targets) == 1 else ()
        self.contents = f"{len(graphs.members):,} {self.unit} of {len(graphs.x):,} nodes"
        edges, whole = (0 if known is None else known.shape[-1] for known in (graphs.e, graphs.u))
        width, classes = self.several.width, bool(self.classes)
        weighted = bool(fitted.weight)
        self.signature = Features(
            graphs.x.shape[-1], width, None, True, edges, whole, classes=classes, weighted=weighted
        )
        self.changes, self.few = own.changes, own.few
        self.summary = (self.describe(), *map(str, fitted.targets), *own.given.notes)

    def rows(self, numbers: Tensor) -> Iterator[Rows]:
        """How many nodes and edges a graph has, nodes of each degree, and sums and means of its features."""
        graphs = self.graphs
        known = [torch.tensor([[one.num_receivers, one.num_edges] for one in graphs.members]).double()]
        degrees = torch.cat([one.in_degrees() for one in graphs.members]).clamp(max=DEGREES - 1)
        parts = [(functional.one_hot(degrees, DEGREES), known[0][:, 0]), (graphs.x, known[0][:, 0])]
        parts += [] if graphs.e is None else [(graphs.e, known[0][:, 1])]
        for values, counts in parts:
            sums = torch.segment_reduce(values.double(), "sum", lengths=counts.long(), unsafe=True)
            known += [sums, sums / counts.clamp(min=1)[:, None]]
        known += [] if graphs.u is None else [graphs.u.double()]
        yield Rows("sums and counts", torch.cat(known, 1)[numbers].numpy())

    def member(self, request: str, pattern: Pattern) -> Member:
        """An example by its name, or as "test:7"; or else what `read` makes of it."""
        rows = self.own.given.number_of
        text = request.strip()
        if (row := object_in(request)) is not None:
            return self.made(row, pattern)
        named = text in rows and (self.own.given.names is not None or not self.reads(text))
        if named or EXAMPLE.fullmatch(text):
            return self.numbered(self.find(text), pattern)
        return self.read(text, pattern)

    def reads(self, request: str) -> bool:
        """Whether a request is itself an input, as a molecule in SMILES is."""
        return False

    def made(self, row: Row, pattern: Pattern) -> Member:
        """A new example that a row describes."""
        raise DataError(f"{self.name} reads no rows such as one of {', '.join(row) or 'nothing'}")

    def new(self, place: Path, pattern: Pattern) -> Member:
        """The one example of other files, which belongs to no data."""
        one = self.elsewhere(place)
        made = one.numbered(0, None)._replace(known={}, target=None)
        return made if given(pattern) else made._replace(graph=lay(pattern, len(made.x)))

    def read(self, request: str, pattern: Pattern) -> Member:
        """What a request is that may be an input itself; by default an example of the data."""
        return self.numbered(self.find(request), pattern)

    def numbered(self, number: int, pattern: Pattern) -> Member:
        return super().numbered(number, pattern)._replace(known=self.known(number))

    def train_parts(self, size: int, generator: Generator, pattern: Pattern, parts: Parts) -> tuple[int, list[Batch]]:
        """As cut by graphs; each part has as many terms as targets that are known."""
        _, made = super().train_parts(size, Generator().set_state(generator.get_state()), pattern, parts)
        drawn = self._drawn(size, generator)
        terms = known_terms(self.graphs.targets[drawn])
        return (terms if len(drawn) >= parts.count else parts.count * terms), made

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """A class, or a value in its own unit, by the columns that were read, where there are any."""
        subject, fitted = super().subject(model, pattern, request), self.own.fitted
        if not fitted.columns and not fitted.edges:
            return subject
        return replace(subject, features=in_columns(fitted.columns), edge_features=in_columns(fitted.edges, "edge"))

    def _named(self, output: Tensor, target: Tensor | None) -> dict[str, Any]:
        return self.several.named(output, target)


FOLDER = ("graphs", "nodes", "edges")


class OwnGraphs(OwnExamples):
    """Graphs of one's own; a prediction is for one of the data by its name, or for a new one."""

    form = '{"nodes": [{COLUMN: CELL, ...}, ...], "edges": [[NODE, NODE], ...]}'
    how: GraphFiles

    def made(self, row: Row, pattern: Pattern) -> Member:
        """A graph of rows of nodes and edges, whose ends are nodes by name, or by their places from 0."""
        nodes, kinds = listed_in(row, "nodes", self.form), self.own.fitted.kinds
        if not nodes:
            raise DataError(f"a graph has nodes: give {self.form}")
        asked, graph = self.own.fitted.asked(self.how.asked), self.how.graph or "graph"
        edges = listed_in(row, "edges", self.form)
        columns = [*ends_in(asked, edges), *kinds[1]]
        tables: dict[str, list[Any]] = {
            "graphs": [{asked.id if asked.id not in ("", "row") else "graph": "0"}],
            "nodes": [{**node, graph: "0"} for node in named(nodes, [*kinds[0]], "nodes")],
            "edges": named(edges, columns, "edges"),
        }
        with as_tables(tables, columns) as folder:
            return self.new(folder, pattern)


@dataclass(frozen=True)
class Inputs:
    """The nodes of graphs, their edges [2, E], what is known of these, and in which columns their ends were found."""

    nodes: Members
    edges: Array
    e: list[Column]
    found: dict[str, str]


@dataclass(frozen=True)
class GraphFiles(Files[Inputs, OwnExamples]):
    """A folder of three tables."""

    graph: str = ""  # the column of nodes and edges that names their graph; empty: found
    undirected: bool = True  # whether every node also attends to those that attend to it
    scale: bool = True  # whether numbers have mean 0 and deviation 1 among what trains
    parallel: Parallel = "keep"  # what becomes of features of parallel edges
    weight: str = ""  # the column of edges with their weights

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
        if weight := fitted.weight if fitted else self.weight:
            weights_in(e, weight, place)
        notes = [*rows.notes, *of_nodes.notes, *unread(place, rows.files), *(n for one in tables for n in one.notes)]
        notes += [*in_lines(e, "of edges: "), *([f"edges count by {weight}"] if weight else [])]
        if not of_nodes.columns:
            notes.append("nodes have no features: each has the number 1")
        counts = {"nodes": int(of_nodes.sizes.sum()), "edges": int(edges.shape[1])}
        return replace(rows, notes=tuple(notes), counts=counts), Inputs(of_nodes, edges, e, found_ends(tables))

    def few(self, settled: Settled, inputs: Inputs) -> Mapping[str, bytes | Path]:
        given, nodes, rows = settled.given, inputs.nodes, np.array(settled.first)
        first, names = np.cumsum(nodes.sizes) - nodes.sizes, [given.name(row) for row in rows.tolist()]
        names = names if given.names else [*map(str, range(len(rows)))]
        group = [name for name, row in zip(names, rows.tolist(), strict=True) for _ in range(nodes.sizes[row])]
        of = np.concatenate([first[row] + np.arange(nodes.sizes[row]) for row in rows.tolist()])
        called = nodes.names if nodes.named_by else (np.arange(len(nodes.owner)) - first[nodes.owner]).astype(str)
        own = {nodes.named_by: [nodes.names[node] for node in of.tolist()]} if nodes.named_by else {}
        of_nodes = {nodes.group: group} | own | {column.name: column.texts(of) for column in nodes.columns}
        place = dict(zip(of.tolist(), group, strict=True))
        edges = np.flatnonzero(np.isin(inputs.edges[0], of))
        ends = dict(zip(self.asked.ends or ENDS[0], inputs.edges[:, edges].tolist(), strict=True))
        of_edges = {nodes.group: [place[node] for node in inputs.edges[0, edges].tolist()]}
        of_edges |= {end: [str(called[node]) for node in those] for end, those in ends.items()}
        of_edges |= {column.name: column.texts(edges) for column in inputs.e}
        tables = few_rows(given, rows.tolist(), self.asked.ignore), table_of(of_nodes), table_of(of_edges)
        folder = folder_name(given.place) or KEPT
        return {f"{folder}/{name}.csv": table for name, table in zip(FOLDER, tables, strict=True)}

    def fit(self, inputs: Inputs, fitted: Fitted, splits: Splits) -> Fitted:
        train, owner = splits["train"].numpy(), np.append(inputs.nodes.owner, -1)
        columns = fit(inputs.nodes.columns, np.flatnonzero(np.isin(owner[:-1], train)), self.scale)
        rows, names = np.flatnonzero(np.isin(owner[inputs.edges[0]], train)), inputs.found
        if self.weight:
            names = names | {"weight": self.weight}
            edges: tuple[Encoding, ...] = fit_weights(inputs.e[0], rows, self.scale)
        else:
            edges = fit(inputs.e, rows, self.scale)
        return replace(fitted, columns=columns, edges=edges, names=names, parallel=self.parallel)

    def to_plain(self, own: Settled) -> dict[str, Any]:
        made = own.fitted.to_plain()
        form = '[{"nodes": [{COLUMN: CELL, ...}, ...], "edges": [{COLUMN: CELL, ...}, ...]}, ...]'
        return {
            "kind": "graphs",
            "unit": "graph",
            "input": f"a folder with graphs.csv, nodes.csv and edges.csv, or a JSON file {form}",
            "columns": made["columns"],
            "edge_columns": made["edge_columns"],
            "both_ways": self.undirected,
            "parallel": own.fitted.parallel,
            "found": dict(own.given.found),
        }

    def task(self, settled: Settled, inputs: Inputs) -> OwnExamples:
        nodes, fitted = inputs.nodes, settled.fitted
        found = {"group": nodes.group, "node": nodes.named_by, **inputs.found}
        settled = replace(settled, given=replace(settled.given, found={**settled.given.found, **found}))
        x = features(nodes.columns, fitted.columns) if fitted.columns else np.ones((int(nodes.sizes.sum()), 1))
        e = features(inputs.e, fitted.edges) if fitted.edges else None
        members, known = graphs_of(inputs.edges, nodes.sizes, e, self.undirected, fitted.parallel)
        if e is not None:
            told = apart(inputs.edges, len(x), self.undirected, fitted.parallel)
            settled = replace(settled, given=replace(settled.given, notes=(*settled.given.notes, *told)))
        x32 = torch.from_numpy(x.astype(np.float32))
        y = Several.of(fitted).values(settled.given.targets, settled.weights, len(settled.given))
        graphs = Graphs(members, x32, y, settled.splits, e=known)
        strange = record.strange_levels([*nodes.columns, *inputs.e], (*fitted.columns, *fitted.edges))
        own = replace(settled, changes=(*settled.changes, *strange))
        return OwnGraphs(folder_name(settled.given.place), graphs, own, self)


@on_own("graph")
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
    parallel: Literal["keep", "mean"] = "keep",
    cut: Cut = "auto",
    folds: int = 0,
    group: str = "",
    time: str = "",
    edge_weight: str = "",
    sample_weight: str = "",
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
    known, and each has its own measures. Without parts, the graphs are cut into 60 % to train, 20 % to choose the
    weights by and 20 % to test (80, 10 and 10 % of 1,000 and more). A run keeps the parts, classes and scales, as with
    `node-folder`.

    Args:
        folder: Where the files lie.
        scale: Numbers of nodes and edges have mean 0 and deviation 1 in the graphs that train ("standard"), or stay.
        graph: The column of nodes and edges that names their graph. Empty: it is found.

    Errors      files that are missing, malformed or do not fit each other are a `DataError` with all that is wrong
    """
    ignored = frozenset(names_in(ignore))
    labels = labels_in(label, like)
    asked = Asked("graphs", label=labels, id=id, ignore=ignored, ends=names_in(ends), weights=sample_weight)
    return GraphFiles(asked, graph, undirected, scale == "standard", parallel, edge_weight).settle(
        folder, like, target, How(cut, fold, folds, group, time)
    )


AXES = (("x", "y", "z"), ("x", "y"))
MAX_FILES = 1 << 17


@dataclass(frozen=True)
class Points:
    """Points, the clouds one after the other: their coordinates, from which each cloud's mean is taken, and what else
    is known of them; how many each cloud has [G], and how many columns are coordinates."""

    columns: list[Column]
    sizes: Array
    axes: int

    @property
    def position(self) -> Array:
        """The coordinates [N, D]."""
        return np.stack([column.values for column in self.columns[: self.axes]], 1)


class OwnClouds(OwnExamples):
    """Clouds of one's own; a prediction is for one of the data, or for a file of points."""

    files = ENDINGS
    form = '{"points": [{"x": X, "y": Y, ...}, ...]}'

    def rows(self, numbers: Tensor) -> Iterator[Rows]:
        """How many points a cloud has, moments of what is known of them, and how their coordinates vary together."""
        sizes = [member.num_receivers for member in self.graphs.members]
        made = []
        for number in numbers.tolist():
            x = self._x[number].double()
            mean, centred = x.mean(0), x - x.mean(0)
            spread = centred.square().mean(0).sqrt()
            odd = [(centred / spread.clamp(min=1e-9)).pow(order).mean(0) for order in (3, 4)]
            together = (centred.T @ centred / len(x))[*torch.triu_indices(x.shape[1], x.shape[1], 1)]
            count = torch.tensor([float(sizes[number])])
            made.append(torch.cat([count, mean, spread, *odd, x.amin(0), x.amax(0), together]))
        yield Rows("moments", torch.stack(made).numpy())

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        subject, axes = super().subject(model, pattern, request), int(self.own.given.found["axes"])
        features = [
            replace(one, name=f"{one.name} from the middle") if n < axes else one
            for n, one in enumerate(subject.features)
        ]
        return replace(subject, features=features)

    def reads(self, request: str) -> bool:
        return request.lower().endswith(ENDINGS)

    def read(self, request: str, pattern: Pattern) -> Member:
        if not self.reads(request):
            return super().read(request, pattern)
        return self.new(Path(request), pattern)._replace(known={"cloud": request})

    def made(self, row: Row, pattern: Pattern) -> Member:
        if not (points := listed_in(row, "points", self.form)):
            raise DataError(f"a cloud has points: give {self.form}")
        with as_tables({"points": named(points, [*self.own.fitted.kinds[0]], "points")}) as folder:
            return self.new(folder / "points.jsonl", pattern)


@dataclass(frozen=True)
class PointFiles(Files[Points, OwnClouds]):
    """Two tables, or a table for each cloud."""

    cloud: str = ""  # the column of points that names their cloud; empty: found
    position: tuple[str, ...] = ()  # the columns with coordinates; empty: found
    neighbors: int = 8  # to how many of the nearest points a point attends

    def read(self, place: Path, fitted: Fitted | None) -> tuple[Examples, Points]:
        problems, asked = list[str](), fitted.asked(self.asked) if fitted else self.asked
        clouds, points = (find_table(place, name) for name in ("clouds", "points")) if place.is_dir() else (None, None)
        if clouds and points:
            rows = read_examples(clouds, asked, problems, (points,))
            names = [rows.name(number) for number in range(len(rows))]
            members = read_members(points, names, "cloud", self.cloud, asked, problems)
            columns, sizes, present = members.columns, members.sizes, {*rows.header, *members.header}
            found = {**rows.found, "group": members.group, "node": members.named_by}
            rows = replace(rows, found=found, notes=(*rows.notes, *members.notes, *unread(place, rows.files)))
        elif asked.group or asked.time is not None or (asked.weights and asked.labelled):
            what = "to be cut or weighted by"
            raise DataError(f"{place}: clouds in folders of their classes have no columns {what}: give clouds.csv")
        else:
            rows, columns, sizes, present = read_files(place, asked, problems)
        if asked.labelled:
            problems += strangers(place, asked.ignore, present, asked.known and asked.known[0])
        if problems:
            raise DataError(*problems)
        return replace(rows, counts={"points": int(sizes.sum())}), centred(rows, columns, sizes, self.position)

    def few(self, settled: Settled, inputs: Points) -> Mapping[str, bytes | Path]:
        given, rows, first = settled.given, settled.first, np.cumsum(inputs.sizes) - inputs.sizes
        if not given.header:  # each cloud has its own file
            return super().few(settled, inputs)
        names = given.names or {row: str(number) for number, row in enumerate(rows)}
        cloud = {self.cloud or "cloud": [names[row] for row in rows for _ in range(inputs.sizes[row])]}
        of = np.concatenate([first[row] + np.arange(inputs.sizes[row]) for row in rows])
        points = table_of(cloud | {column.name: column.texts(of) for column in inputs.columns})
        folder = folder_name(given.place) or KEPT
        return {f"{folder}/clouds.csv": few_rows(given, rows, self.asked.ignore), f"{folder}/points.csv": points}

    def fit(self, inputs: Points, fitted: Fitted, splits: Splits) -> Fitted:
        owner = np.repeat(np.arange(len(inputs.sizes)), inputs.sizes)
        rows = np.flatnonzero(np.isin(owner, splits["train"].numpy()))
        radius = float(np.sqrt(np.square(inputs.position[rows]).sum(1).mean())) or 1.0
        axes = tuple(Encoding(axis.name, "number", deviation=radius) for axis in inputs.columns[: inputs.axes])
        return replace(fitted, columns=(*axes, *fit(inputs.columns[inputs.axes :], rows, scale=True)))

    def to_plain(self, own: Settled) -> dict[str, Any]:
        form = '[{"points": [{COLUMN: NUMBER, ...}, ...]}, ...]'
        return {
            "kind": "clouds",
            "unit": "cloud",
            "input": f"a folder with clouds.csv and points.csv, or of a table for each cloud, or a JSON file {form}",
            "columns": own.fitted.to_plain()["columns"],
            "neighbors": self.neighbors,
            "found": dict(own.given.found),
        }

    def task(self, settled: Settled, inputs: Points) -> OwnClouds:
        rows, fitted, columns = settled.given, settled.fitted, inputs.columns
        if [column.name for column in columns] != [one.name for one in fitted.columns]:
            wanted, has = (", ".join(one.name for one in some) for some in (fitted.columns, columns))
            raise DataError(f"{rows.place}: points have {has}, and the run was trained with {wanted}")
        x = torch.from_numpy(features(columns, fitted.columns).astype(np.float32))
        parts = torch.from_numpy(inputs.position).split(inputs.sizes.tolist())
        members = tuple(k_nearest(part, self.neighbors) for part in parts)
        given = replace(rows, found={**rows.found, "axes": str(inputs.axes)})
        changes = (*settled.changes, *record.strange_levels(columns, fitted.columns))
        own = replace(settled, given=given, changes=changes)
        y = Several.of(settled.fitted).values(settled.given.targets, settled.weights, len(settled.given))
        graphs = Graphs(members, x, y, settled.splits)
        return OwnClouds(folder_name(rows.place), graphs, own, self)


@on_own("cloud")
def point_folder(
    folder: str = "clouds",
    label: str = "",
    target: Literal["auto", "class", "number"] = "auto",
    neighbors: int = 8,
    position: str = "",
    fold: int = 0,
    ignore: str = "",
    like: str = "",
    id: str = "",
    cloud: str = "",
    cut: Cut = "auto",
    folds: int = 0,
    group: str = "",
    time: str = "",
    sample_weight: str = "",
) -> GraphClassification:
    """Guess a class or a quantity of each of your own clouds of points, or several of them: from a folder.

    Either two tables (CSV, TSV or Parquet):
        clouds.csv  a row for each cloud: a column that names it (`cloud` or `id`; else clouds are rows from 0), the
                    columns with targets and, if there is one, `split` ("train", "valid", "test" or nothing)
        points.csv  a row for each point: the column `cloud`, coordinates `x`, `y` and perhaps `z`, and other features
    or a folder for each class, with a table of points for each cloud in it.

    Each cloud's mean is taken off its coordinates, and all are divided by the root mean square of those that train, so
    that sizes and directions stay as they are. Without parts, the clouds are cut into 60 % to train, 20 % to choose the
    weights by and 20 % to test (80, 10 and 10 % of 1,000 and more). A run keeps the parts, classes and scales, as with
    `node-folder`.

    Args:
        folder: Where the files lie.
        neighbors: To how many of the nearest points each point attends.
        position: The columns with coordinates, with commas between them. Empty: `x`, `y` and, where there is one, `z`.
        cloud: The column of points that names their cloud. Empty: it is found.

    Errors      files that are missing, malformed or do not fit each other are a `DataError` with all that is wrong
    """
    if neighbors < 1:
        raise ConfigError(f"task.neighbors must be at least 1, not {neighbors}")
    ignored = frozenset(names_in(ignore))
    asked = Asked("clouds", label=labels_in(label, like), id=id, ignore=ignored, weights=sample_weight)
    files = PointFiles(asked, cloud, names_in(position), neighbors)
    return files.settle(folder, like, target, How(cut, fold, folds, group, time))


def read_files(place: Path, asked: Asked, problems: list[str]) -> tuple[Examples, list[Column], Array, set[str]]:
    """A cloud for each file of a folder, in folders of their classes, or one from a file; and the names of all columns.

    Where nothing is known of the columns, all of the first file are read, which hold numbers; a file with others is
    refused."""
    labelled, known = asked.labelled, asked.known and asked.known[0]
    files = [place] if place.is_file() else sorted(filter(is_table, place.rglob("*")))
    files = [path for path in files if place.is_file() or len(path.relative_to(place).parts) <= 2]
    files = [path for path in files if path.parent != place] if labelled else files
    if not files:
        lacking = "it has no tables of points" if place.exists() else "no such file or folder"
        what = "clouds.csv and points.csv, or a folder for each class with tables of points"
        raise DataError(f"{place}: {lacking}: expected {what}")
    if len(files) > MAX_FILES:
        raise DataError(f"{place}: {len(files):,} tables of points, of at most {MAX_FILES:,}")
    tables, wrong = list[Table](), Problems()
    first = [name for name in read_table(files[0], whole=False).header if name and name not in asked.ignore]
    kinds: Mapping[str, Kind] = known or dict.fromkeys(first, "number")
    left, present, written = dict[str, None](), {*first}, dict[str, str]()
    for path in files:
        try:
            tables.append(table := read_table(path, [*kinds], whole=False))
        except DataError as error:
            wrong.add(str(error))
            continue
        others = [name for name in table.header if name and name not in {*kinds, *asked.ignore}]
        if others and known is None:
            lacks = f"which {files[0].relative_to(place)} lacks: give --task.ignore {','.join(others)}"
            wrong.add(f"{path}: it has the columns {', '.join(others)}, {lacks}")
        present |= {*table.header}
        left |= dict.fromkeys(others)
        if table.notes:
            written.setdefault(str(table.dialect), spelt(path.relative_to(place) if place.is_dir() else path.name))
        wrong.extend(table.problems)
    columns, mixed = read_columns(stacked(tables, kinds), [*kinds], kinds) if tables else ([], [])
    wrong.extend(mixed)
    problems += wrong.sentences()
    sizes = np.array([len(table) for table in tables], dtype=np.int64)
    called = [spelt(path.relative_to(place) if place.is_dir() else path.name) for path in files]
    labels = [[spelt(path.parent.name) for path in files]] if labelled else []
    check_folders(place, (label for each in labels for label in each))
    notes = [f"each file is a cloud, of the class that its folder is called; its columns are {', '.join(kinds)}"]
    notes += [f"{name}, and others alike: {how}" for how, name in [*written.items()][:SHOWN]]
    made = Examples(
        place if place.is_dir() else place.parent,
        tuple(files),
        "clouds",
        len(files),
        called,
        ("class",) * labelled,
        labels,
        notes=(*notes, *left_out(left)),
        at=lambda number: str(files[number]),
    )
    return made, columns, sizes, present


def centred(rows: Examples, columns: Sequence[Column], sizes: Array, position: Sequence[str]) -> Points:
    """Clouds from whose coordinates each cloud's mean is taken."""
    by_name, where = {column.name: column for column in columns}, rows.files[-1]
    lower = Called(where, by_name)
    axes = position or next(([lower[axis] for axis in some] for some in AXES if {*some} <= {*lower}), [])
    if not axes or not {*axes} <= {*by_name}:
        expected = ", ".join(position) or "x, y and perhaps z, or --task.position"
        raise DataError(f"{where}: its columns are {', '.join(by_name)}; expected coordinates {expected}")
    for axis in axes:
        if by_name[axis].kind not in ("number", "boolean"):
            raise DataError(f"{where}: {axis} must be a number in each row: it is a coordinate")
        if len(gaps := np.flatnonzero(~by_name[axis].present)):
            cloud = rows.name(int(np.searchsorted(np.cumsum(sizes), gaps[0], side="right")))
            what = f"{axis} must be a number in each row: it is a coordinate, which {cloud} lacks"
            raise DataError(f"{rows.place}: {what}")
    if empty := [rows.name(number) for number in np.flatnonzero(sizes == 0).tolist()]:
        raise DataError(f"{where}: {record.listed(empty)} has no points")
    starts, made = np.cumsum(sizes) - sizes, []
    for axis in axes:
        means = np.add.reduceat(by_name[axis].values, starts) / sizes
        made.append(Column(axis, "number", by_name[axis].values - np.repeat(means, sizes), by_name[axis].present))
    return Points([*made, *(column for column in columns if column.name not in axes)], sizes, len(axes))
