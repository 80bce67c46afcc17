"""Nodes of one graph: their classes or values, read whole or a few at a time with some of their neighbours."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import isnan
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from edgewise.configuration import convert
from edgewise.data.splits import Split, check_apart, check_listed, check_splits
from edgewise.errors import ConfigError, DataError
from edgewise.graphs import Graph, LayerSample, Neighborhood, Sample, importance, sample_layers, sample_neighbors
from edgewise.graphs.derived import cached
from edgewise.kernels.call import check_graph
from edgewise.layers.graph.gcn import renormalised
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.models.signature import Features
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.classification import Classification, Regression, class_probabilities, one_each
from edgewise.tasks.core.drawing import Drawing, Network, Parity, Section
from edgewise.tasks.core.measures import joined
from edgewise.tasks.core.subject import Subject, captured, last_attention
from edgewise.tasks.core.task import Device, OneGraph, Parts, Pattern, check_range

WHOLE, AROUND, NAMED = 150, 60, 40  # nodes: larger graphs are drawn in part, such a part, graphs whose nodes have names
ATTENTION = (
    "The half of an edge next to a node shows the node's attention to the other end: the stronger, the more. "
    "Mean over the heads of the last attention layer."
)


@dataclass(frozen=True)
class Nodes:
    """The data of a node classification.

    Args:
        graph: Who attends to whom among N nodes.
        x: Their features [N, C], dense or sparse; of a store, `StoredRows`.
        labels: Their classes [N], -1 where unknown; or their values [N], NaN where unknown; or several targets [N, T].
        classes: The classes' names; none where the labels are no classes alone.
        splits: For "train", "valid" and "test" the nodes [M] that it reads, each with a label; there may be none to
            test, and where all are empty, nodes are only predicted.
        e: Features of the edges [E, D], or the number of each edge's relation [E], in the graph's own order; None:
            there are none.
        relations: How many relations there are, where e are their numbers.
        kinds: How many types of nodes there are: the last features are the type, one-hot. 0: all are of one.
        weighted: Whether the one feature of an edge is its weight.

    Errors      DataError for parts that do not fit one another; those of a store are what its manifest says
    """

    graph: Graph
    x: Tensor | SparseFeatures
    labels: Tensor
    classes: tuple[str, ...]
    splits: Mapping[Split, Tensor]
    e: Tensor | None = None
    relations: int = 0
    kinds: int = 0
    weighted: bool = False

    def __post_init__(self) -> None:
        check_graph(self.graph)
        if not isinstance(self.x, Tensor | SparseFeatures):
            return
        count = self.graph.num_receivers
        for name, rows in (("x", self.x.shape[0]), ("labels", len(self.labels))):
            if rows != count:
                raise DataError(f"{name} has {rows:,} rows, and the graph {count:,} nodes")
        if self.classes and (self.labels.is_floating_point() or not bool((self.labels < len(self.classes)).all())):
            raise DataError(f"labels must be whole numbers below {len(self.classes)}, one for each class, or -1")
        check_listed(self.splits, count, "node")
        check_apart(self.splits, "node")
        if self.classes:
            object.__setattr__(self, "labels", self.labels.long())
        check_splits(self.splits, self.labels, bool(self.classes), "node")


class NodeClassification(OneGraph, Classification):
    """The classes of one graph's nodes."""

    unit = "nodes"

    def __init__(self, name: str, nodes: Nodes) -> None:
        super().__init__(nodes.graph, nodes.x, nodes.labels, nodes.splits, nodes.e)
        self.name, self.nodes, self.classes = name, nodes, nodes.classes
        self.has_test = len(nodes.splits["test"]) > 0
        kinds = f"of {len(nodes.classes)} classes" if nodes.classes else "with a value"
        self.contents = f"{nodes.graph.num_receivers:,} nodes {kinds}"
        edges = nodes.relations or (0 if nodes.e is None else nodes.e.shape[-1])
        width, outputs = nodes.x.shape[-1], len(nodes.classes) or 1
        types, classes = nodes.kinds, bool(nodes.classes)
        self.signature = Features(width, outputs, edges=edges, kinds=types, classes=classes, weighted=nodes.weighted)

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        yield Section("Attention", lambda: [self.attention(model, pattern)])
        yield from super().draw(model, pattern, scores)

    @torch.no_grad()
    def attention(self, model: nn.Module, pattern: Pattern) -> Drawing:
        """The model's last attention on the graph, of a large one around one of its nodes; the colours are predictions.

        Edge cases  a model without attention: the graph's edges
        """
        graph = self.graph(pattern)
        outputs, call = last_attention(model, *self.batch("test", pattern).inputs)
        predicted, wrong, legend, colours = self._coloured(outputs)
        seen = graph if call is None else call.graph
        count, centre = graph.num_receivers, None
        shown = torch.arange(count)
        if count > WHOLE:
            centre = _example(graph, self.nodes.splits["test" if self.has_test else "valid"], wrong)
            shown = neighbourhood(graph, centre, AROUND).sort().values
        inside = torch.isin(seen.receivers, shown) & torch.isin(seen.senders, shown)
        network = Network(
            seen.subgraph(shown),
            predicted[shown].numpy(),
            legend,
            None if call is None else call.weights.double().mean(-1)[inside].numpy(),
            wrong[shown].numpy(),
            [self.name_of(node) for node in shown.tolist()] if len(shown) <= NAMED else (),
            None if centre is None else shown.tolist().index(centre),
        )
        what = f"All {count} nodes of {self.name}"
        if centre is not None:
            around = f"{len(shown) - 1} of the nodes around it"
            what = f"Node {self.name_of(centre)} of {self.name} (circled) and {around}"
        edges = "This model has no attention weights: the lines are the graph's edges." if call is None else ATTENTION
        return Drawing("graph" if call is None else "attention", network, f"{what}; {colours}. {edges}")

    def _coloured(self, outputs: Tensor) -> tuple[Tensor, Tensor, tuple[str, ...], str]:
        """The colour of each node, which nodes are crossed, the colours' names, and what both mean."""
        predicted, labels = self.predicted(outputs), self.nodes.labels
        what = "the colour is the predicted class, a cross marks a wrong prediction"
        return predicted, (predicted != labels) & (labels >= 0), self.classes, what

    @property
    def typical(self) -> str:
        return str(self.shown(0))

    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """Class probabilities of nodes, "all" of them or some by their names, or numbers as in "0,33"."""
        return {"nodes": self._of_nodes(model, pattern, self._parse(request), device)}

    def predictions(
        self, model: nn.Module, pattern: Pattern, requests: Sequence[str], device: Device
    ) -> list[dict[str, Any]]:
        """Those of several nodes, each by its number, from one pass over the graph."""
        return self._of_nodes(model, pattern, [self.number_of(request) for request in requests], device)

    @torch.no_grad()
    def _of_nodes(self, model: nn.Module, pattern: Pattern, chosen: list[int], device: Device) -> list[dict[str, Any]]:
        outputs, labels = self._outputs(model, pattern, chosen, device)
        parts = zip(chosen, outputs, labels.tolist(), strict=True)
        return [{"node": self.shown(node)} | self._named(output, label) for node, output, label in parts]

    def _named(self, output: Tensor, label: Any) -> dict[str, Any]:
        """What the outputs for a node mean, beside its label, or its labels of several targets."""
        probabilities = class_probabilities(output, self.classes)
        known = self.classes[int(label)] if label >= 0 else None
        return {"class": next(iter(probabilities)), "label": known, "probabilities": probabilities}

    def shown(self, node: int) -> int | str:
        """How a prediction names a node: by its number, where it has no name of its own."""
        return node

    def name_of(self, node: int) -> str:
        """A node's name in a drawing."""
        return str(self.shown(node))

    def _outputs(self, model: nn.Module, pattern: Pattern, chosen: list[int], device: Device) -> tuple[Tensor, Tensor]:
        """The model's outputs for some nodes, and their labels."""
        batch = self.batch("test", pattern).to(device)
        return model.eval()(*batch.inputs)[chosen].cpu(), self.nodes.labels[chosen]

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """What the model says of one node."""
        node = self.number_of(request)
        inputs = captured(model, lambda: self.predict(model, pattern, request, "cpu"))
        return Subject(inputs, (node,), self.nodes.classes, node=node)

    def number_of(self, request: str) -> int:
        """The one node that a request names.

        Errors      DataError for none, or several
        """
        nodes = self._parse(request)
        if len(nodes) != 1:
            raise DataError(f"{request!r} names {len(nodes)} nodes: give one at a time")
        return nodes[0]

    def _parse(self, request: str) -> list[int]:
        count = self.nodes.graph.num_receivers
        if request.strip() == "all":
            return list(range(count))
        nodes = []
        for part in request.split(","):
            if (node := number_below(part, count)) is None:
                known = f"give 'all' or numbers 0 to {count - 1} as in '0,2'"
                raise DataError(f"no node {part.strip()!r} in {self.name}: {known}")
            nodes.append(node)
        return nodes


def number_below(text: str, count: int) -> int | None:
    """A whole number from 0 to below `count`, or None."""
    number = text.strip()
    known = number.isascii() and number.isdigit() and len(number) < 19 and int(number) < count
    return int(number) if known else None


def _example(graph: Graph, test: Tensor, wrong: Tensor) -> int:
    """A test node, classified correctly, with about eight neighbours."""
    distance = (graph.in_degrees()[test] - 8).abs()
    return int(test[(distance + 1000 * wrong[test]).argmin()])


def neighbourhood(graph: Graph, centre: int, most: int) -> Tensor:
    """The nodes nearest to one, hop by hop along its senders, itself first.

    Example
        >>> path = Graph.from_edge_index([[0, 1, 2], [1, 2, 3]], num_nodes=4)
        >>> neighbourhood(path, 3, 3).tolist()
        [3, 2, 1]
    """
    from scipy.sparse.csgraph import breadth_first_order

    near = breadth_first_order(graph.to_scipy(), centre, return_predecessors=False)[:most]
    return torch.from_numpy(near.astype("int64"))


Rows = Tensor | SparseFeatures
MOST_WORKERS = 64


class Seen(NamedTuple):
    """A graph, the features and labels of its nodes, which of these train, and the features of its edges."""

    graph: Graph
    x: Rows
    labels: Tensor
    train: Tensor
    e: Tensor | None = None


@dataclass
class SampledBatch(Batch):
    """Some seeds and, for each layer, some of their neighbours: `x` is of all these nodes, the outputs of the seeds."""

    graph: Sample | LayerSample | Neighborhood

    divisible = False

    @property
    def inputs(self) -> tuple[Any, ...]:
        """Features of a store wait in its own type, half as large, and become float32 when they are read first."""
        if isinstance(self.x, Tensor) and self.x.dtype.itemsize < 4:
            self.x = self.x.float()
        return super().inputs


class SampledNodes(NodeClassification):
    """Node classification that trains on a few nodes at a time and some of their neighbours, hop by hop.

    Equation    each step: seeds B drawn from the training nodes, y_B = f(B's sampled neighbourhood)      (Alg. 2)
    Cost        a step reads at most |B| Π (1 + fan-out) nodes, whatever the size of the graph
    Edge cases  inductive: training reads only the graph that the training nodes induce; other nodes, their features
                and their edges are first seen in evaluation, which reads all neighbours of the whole graph
    Reference   Hamilton, Ying & Leskovec, "Inductive representation learning on large graphs", 2017

    Without fan-outs it trains on the whole training graph at once; the options are those of `planted`. Which neighbours
    are drawn depends on the generator, the hop and the node alone, so that a part of the seeds draws what all would.
    """

    sampled: type[SampledBatch] = SampledBatch
    """What a batch of sampled neighbours is."""

    def __init__(
        self,
        name: str,
        nodes: Nodes,
        fanouts: tuple[int, ...],
        inductive: bool = True,
        layerwise: bool = False,
        workers: int = 0,
    ) -> None:
        super().__init__(name, nodes)
        check_range(0, MOST_WORKERS, workers=workers)
        fanouts = fanouts_of(fanouts)
        if nodes.e is not None and (inductive or layerwise):
            raise ConfigError(
                f"the features of {name}'s edges go with its own graph: leave out inductive and layerwise"
            )
        self.workers = workers if fanouts else 0  # without fan-outs there is one batch
        self.fanouts, self.inductive, self.layerwise = fanouts, inductive, layerwise
        idle = {"workers": workers, "layerwise": layerwise} if not fanouts else {}
        self.idle = tuple(f"task.{name} has no effect without task.fanouts" for name, given in idle.items() if given)
        if fanouts:
            self.epoch_size = len(nodes.splits["train"])

    @cached
    def seen(self, pattern: Pattern = None) -> Seen:
        """What training may see."""
        graph, x, train = self.graph(pattern), self.nodes.x, self.nodes.splits["train"]
        if not self.inductive:
            return Seen(graph, x, self.nodes.labels, train, self.nodes.e)
        return Seen(graph.subgraph(train), x[train], self.nodes.labels[train], torch.arange(len(train)))

    @cached
    def _whole(self, pattern: Pattern) -> Batch:
        graph, x, labels, train, e = self.seen(pattern)
        return self.whole(graph, x, labels[train], train, e)

    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> Batch:
        """`size` different training nodes with some of their neighbours; without fan-outs all of them with all."""
        return self.train_parts(size, generator, pattern, Parts(1, range(1)))[1][0]

    def train_parts(
        self, size: int, generator: torch.Generator, pattern: Pattern, parts: Parts
    ) -> tuple[int, list[Batch]]:
        if not self.fanouts:
            return parts.of_one(self._whole(pattern))
        seen = self.seen(pattern)
        train = seen.train
        # Drawn with repetitions, of which few are there: a permutation of all nodes would cost more than the step.
        seeds = train[torch.randint(len(train), (size,), generator=generator)].unique()
        if self.layerwise or len(seeds) < parts.count:  # what is drawn for a layer depends on all seeds
            return parts.of_one(self._sampled(seen, seeds, generator))
        state, pieces = generator.get_state(), seeds.tensor_split(parts.count)
        alike = [torch.Generator().set_state(state) for _ in parts.mine]
        mine = [self._sampled(seen, pieces[n], own) for n, own in zip(parts.mine, alike, strict=True)]
        return self._terms(seen.labels[seeds]), mine

    def _sampled(self, seen: Seen, seeds: Tensor, generator: torch.Generator) -> Batch:
        graph, x, labels, _, e = seen
        sample: Sample | LayerSample
        if self.layerwise:
            assert isinstance(x, Tensor)
            loops, entries = renormalised(graph, x.dtype)
            sample = sample_layers(loops, entries, _importance(loops, x.dtype), seeds, self.fanouts, generator)
        else:
            sample, e = sample_neighbors(graph, seeds, self.fanouts, generator).with_rows(e)
        return self.sampled(sample, self._features(x, sample.nodes), self._targets_of(labels[seeds]), e=e)

    def _features(self, x: Rows, nodes: Tensor) -> Rows:
        # A quarter of the time of x[nodes].
        return x.index_select(0, nodes) if isinstance(x, Tensor) else x[nodes]

    def _terms(self, labels: Tensor) -> int:
        """The terms of the mean loss of nodes with these labels."""
        return len(labels)

    def _targets_of(self, labels: Tensor) -> Tensor:
        """Labels as the loss compares them: classes may be stored in fewer bytes."""
        return labels.long()


def fanouts_of(given: Any) -> tuple[int, ...]:
    """Numbers of neighbours, from any sequence of whole numbers, an array or a tensor.

    Errors      ConfigError for what are no such numbers

    >>> fanouts_of(torch.tensor([10, -1]))
    (10, -1)
    >>> fanouts_of((10, -2))
    Traceback (most recent call last):
    edgewise.errors.ConfigError: task.fanouts are numbers of neighbours, or -1 for all of them, not [10, -2]
    """
    fanouts: tuple[int, ...] = convert(given, tuple[int, ...], "task.fanouts")
    if any(fanout < -1 for fanout in fanouts):
        raise ConfigError(f"task.fanouts are numbers of neighbours, or -1 for all of them, not {list(fanouts)}")
    return fanouts


@cached
def _importance(loops: Graph, dtype: torch.dtype) -> Tensor:
    return importance(*renormalised(loops, dtype))


FIFTHS = 5  # colours of a drawing
MOST_DRAWN = 5_000  # points


class NodeRegression(Regression, SampledNodes):
    """Each node has a value; the other nodes are context.

    Equation    as `Regression`, M the nodes of a batch
    Edge cases  nodes without a value, NaN, are in no split
    """

    unit = "nodes"

    def __init__(
        self, name: str, nodes: Nodes, fanouts: tuple[int, ...] = (), inductive: bool = False, workers: int = 0
    ) -> None:
        nodes = replace(nodes, labels=one_each(nodes.labels))
        super().__init__(name, nodes, fanouts, inductive, workers=workers)
        if len(train := nodes.splits["train"]):
            self.fit(nodes.labels[train])

    def _targets_of(self, labels: Tensor) -> Tensor:
        return labels

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        yield Section("Attention", lambda: [self.attention(model, pattern)])
        if self.has_test:
            yield Section("Predicted and measured", lambda: [parity(self, model, pattern)])

    def _coloured(self, outputs: Tensor) -> tuple[Tensor, Tensor, tuple[str, ...], str]:
        return fifths(self.mean + self.deviation * outputs.double().squeeze(-1), "the predicted value")

    def _named(self, output: Tensor, label: Any) -> dict[str, Any]:
        return {"value": self.value(output), "measured": None if isnan(label) else label}


@torch.no_grad()
def parity(task: Classification | Regression, model: nn.Module, pattern: Pattern) -> Drawing:
    """The value of each test example, predicted against measured."""
    (made,) = joined([task.answers(model(*batch.inputs), batch) for batch in task.batches("test", 500, pattern)])
    far = (made.true - made.said).abs()
    worst = f"The largest error is {far.max():.4g}, and half of them are below {far.median():.4g}."
    some = torch.linspace(0, len(made) - 1, min(MOST_DRAWN, len(made))).long()
    return Drawing("parity", Parity(made.true[some].numpy(), made.said[some].numpy(), ""), worst)


def fifths(values: Tensor, what: str) -> tuple[Tensor, Tensor, tuple[str, ...], str]:
    """How a drawing shows values of nodes: the fifth of each, no cross, the fifths' names, and their meaning."""
    values = values.contiguous()
    ends = values.quantile(torch.arange(1, FIFTHS, dtype=torch.float64) / FIFTHS)
    legend = (*(f"up to {end:.3g}" for end in ends.tolist()), "above")
    none = torch.zeros(len(values), dtype=torch.bool)
    return torch.searchsorted(ends, values), none, legend, f"the colour is {what}, in fifths of the nodes"
