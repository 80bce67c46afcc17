"""Node classification: one graph, a class per node, and the nodes whose class is known in each split."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.data.splits import Split, check_apart, check_listed, check_splits
from edgewise.errors import DataError
from edgewise.graphs import Graph
from edgewise.kernels.call import check_graph
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.models.signature import Features
from edgewise.tasks.core.attention import last_attention
from edgewise.tasks.core.classification import Classification, class_probabilities
from edgewise.tasks.core.drawing import Drawing, Network, Section
from edgewise.tasks.core.examples import OneGraph
from edgewise.tasks.core.subject import Subject, captured
from edgewise.tasks.core.task import Device, Pattern

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
        self.signature = Features(
            inputs=width, outputs=outputs, edges=edges, kinds=nodes.kinds, classes=bool(nodes.classes)
        )

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
        predicted, labels = outputs.argmax(-1), self.nodes.labels
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
            number = part.strip()
            if not (number.isascii() and number.isdigit() and len(number) < 19 and int(number) < count):
                known = f"give 'all' or numbers 0 to {count - 1} as in '0,2'"
                raise DataError(f"no node {number!r} in {self.name}: {known}")
            nodes.append(int(number))
        return nodes


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
    offsets, senders = graph.offsets.tolist(), graph.senders
    near = {centre: None}
    for node in (queue := [centre]):
        fresh = [j for j in senders[offsets[node] : offsets[node + 1]].tolist() if j not in near]
        near.update(dict.fromkeys(fresh))
        queue += dict.fromkeys(fresh)
        if len(near) >= most:
            break
    return torch.tensor(list(near)[:most])
