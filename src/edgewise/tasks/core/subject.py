"""What can be explained of an input: what the model reads, which number of its outputs, and how scores are drawn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from edgewise.configuration import known
from edgewise.data.columns import Encoding
from edgewise.errors import ConfigError, ExplanationError, a_kind
from edgewise.explanations import Explained, Explanation, Feature, Names, scores
from edgewise.graphs import Graph
from edgewise.kernels import Recorded, record
from edgewise.tasks.core.drawing import Alignment, Array, Coloured, Content, Drawing, Scores

Number = Callable[[Tensor], Tensor]
DRAWN = 48  # nodes of a large graph that are drawn: those of the highest scores
HALVES = "The half of a line next to a node, thicker for larger scores, shows what that node receives."
SQUARE = 48  # positions whose edges are drawn as a matrix, at most


@dataclass(frozen=True)
class Subject:
    """An input as a model reads it, and what is explained of its outputs.

    Args:
        inputs: What the model is called with.
        row: Which row of the outputs is explained, an index; not read where there is a `number`.
        classes: The names of the outputs of a row, where they are logits of classes.
        first: Where in the row those of the classes begin.
        threshold: Of two classes, the probability above which the second is the answer.
        number: What is explained instead of an output of a row, as a function of the outputs.
        shown: What curves show, where it is neither a probability nor the explained number itself.
        what: The number in words.
        unit: In what it is counted; of a class that is log-odds.
        names: Those of the nodes.
        features: What the entries of a node's features are, in order; empty where they have no names that say anything.
        edge_features: Those of an edge's features; they vary with the nodes' where they have names.
        groups: Nodes that are one thing, as the tokens of a word, by its name.
        absent: The baseline in words; empty: what the features say there.
        draw: Drawings of scores of the edges [E], where there are any, and of the nodes [J].
        edges: Whose edges are explained; None: the model's own graph.
        baseline: The features that stand for "not there"; None where none do.
        node: The node whose output it is, where that does not follow from the row.
        reads: The model as it reads these inputs, where they are not its own.
        parts: Of several targets each, by name: what the subject is where that one alone is explained.
    """

    inputs: tuple[Any, ...]
    row: tuple[int, ...] = ()
    classes: Sequence[str] = ()
    first: int = 0
    threshold: float = 0.5
    number: Number | None = None
    shown: Number | None = None
    what: str = "the output"
    unit: str = ""
    names: Sequence[str] = ()
    features: Sequence[Feature] = ()
    edge_features: Sequence[Feature] = ()
    groups: Sequence[tuple[str, Sequence[int]]] = ()
    absent: str = ""
    draw: Callable[[Tensor | None, Tensor], list[Content]] | None = None
    edges: Graph | None = None
    baseline: float | Tensor | None = 0.0
    node: int | None = None
    reads: Callable[[nn.Module], nn.Module] | None = None
    parts: Mapping[str, Callable[[Subject], Subject]] = field(default_factory=dict)

    def explanation(
        self, model: nn.Module, wanted: str | None, method: str, layer: int | None = None, head: int | None = None
    ) -> tuple[Explanation, Number]:
        """The scores of a method, with the names of all that has some; and the number that curves show."""
        explained, shown, what = self.explained(model, wanted)
        one = self.parts[self._part(wanted)[0]](replace(self, parts={})) if self.parts else self
        unit = one.unit or ("log-odds" if one.classes and one.number is None else "")
        names = Names(what, unit, self.names, self.features, self.edge_features, self.groups, self.absent)
        return scores(explained, method, layer, head, names), shown

    def explained(self, model: nn.Module, wanted: str | None = None) -> tuple[Explained, Number, str]:
        """The number that is explained, the one that curves show, and it in words.

        Symbols     wanted = a class by its name, or an output of the row by its number; None: the answer. Of several
                    targets one by its name, or a class of it as in "party:left"; None: the first
        Equation    of a class log p / (1 - p), which does not saturate where p is nearly 1; curves show p
        Errors      ConfigError for a target, a class or an output that is not there
        """
        if self.parts:
            return self._explained_part(model, *self._part(wanted))
        model = model if self.reads is None else self.reads(model)
        baseline = self.baseline, 0.0 if self.edge_features else None
        where: dict[str, Any] = {"edges": self.edges, "baseline": baseline, "node": self.node}
        if self.number is not None:
            if wanted is not None:
                raise ConfigError(f"{self.what} is one number: there is no target {wanted!r} to choose")
            return Explained(model, self.inputs, self.number, **where), self.shown or self.number, self.what
        whole = Explained(model, self.inputs, lambda outputs: outputs[self.row].amax(), **where)
        with torch.no_grad():
            row = self._row(whole.outputs())
        column = self._column(row, wanted)
        index = (*self.row, self.first + column)
        if not self.classes:
            name = self.what if len(row) == 1 else f"{self.what} {column}"
            return Explained(model, self.inputs, index, **where), self.shown or (lambda y: y[index]), name
        if where["node"] is None:
            where["node"] = Explained(model, self.inputs, index, edges=self.edges).node

        def odds(outputs: Tensor) -> Tensor:
            logits = self._row(outputs)
            others = torch.cat([logits[:column], logits[column + 1 :]])
            return logits[column] - others.logsumexp(-1) if len(others) else logits[column]

        def chance(outputs: Tensor) -> Tensor:
            return self._row(outputs).softmax(-1)[column]

        return Explained(model, self.inputs, odds, **where), chance, repr(self.classes[column])

    def _row(self, outputs: Tensor) -> Tensor:
        """The outputs of the row; where classes have names, theirs alone."""
        row = outputs[self.row]
        return row[self.first : self.first + len(self.classes)] if self.classes else row

    def _part(self, wanted: str | None) -> tuple[str, str | None]:
        """Which of several targets is wanted, and what of it."""
        if wanted is None or wanted in self.parts:
            return wanted or next(iter(self.parts)), None
        name = next((name for name in self.parts if wanted.startswith(f"{name}:")), wanted)
        known("target", name, list(self.parts))
        return name, wanted[len(name) + 1 :]

    def _explained_part(self, model: nn.Module, name: str, wanted: str | None) -> tuple[Explained, Number, str]:
        one = self.parts[name](replace(self, parts={}))
        explained, shown, what = one.explained(model, wanted)
        return explained, shown, f"{name} {what}" if one.classes else name

    def _column(self, row: Tensor, wanted: str | None) -> int:
        if wanted is None and len(self.classes) == 2 and self.threshold != 0.5:
            return int(row.softmax(-1)[1] > self.threshold)
        if wanted is None:
            return int(row.argmax()) if self.classes else 0
        if wanted in self.classes:
            return list(self.classes).index(wanted)
        if wanted.isascii() and wanted.isdigit() and len(wanted) < 9 and int(wanted) < len(row):
            return int(wanted)
        if self.classes:
            known("target", wanted, list(self.classes))
        raise ConfigError(f"target: {wanted!r} is no output of this model: give a number from 0 to {len(row) - 1}")

    def drawings(self, edges: Tensor | None, nodes: Tensor, node: int | None) -> list[Content]:
        """The scores as the task draws them, else on the graph."""
        if self.draw is not None:
            return self.draw(edges, nodes)
        graph = self.inputs[0] if self.edges is None else self.edges
        return on_graph(graph, edges, nodes, self.names, node)


def in_columns(encodings: Sequence[Encoding], kind: str = "") -> list[Feature]:
    """What features made of columns are.

    Symbols     kind = what stands before a name, such as "edge"
    """
    made = list[Feature]()
    for one in encodings:
        name = f"{kind} {one.name}".strip()
        if one.kind == "text":
            made += [Feature(f"{name}: {word}") for word in one.levels]
        elif one.width:
            made.append(Feature(name, one.width, partial(_said, one), one.says([0.0] * one.width)))
    return made


def _said(one: Encoding, x: Tensor) -> str:
    return one.says(x.tolist())


class OfFeatures(nn.Module):
    """A model that reads one node, with the features of that node as nodes: the pixels of an image that is not cut.

    Shapes      x [*, C, 1] -> what the model gives for [*, 1, C]
    """

    def __init__(self, model: nn.Module, graph: Graph) -> None:
        super().__init__()
        self.model, self.graph = model, graph

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        outputs: Tensor = self.model(self.graph, x.transpose(-1, -2))
        return outputs


def captured(model: nn.Module, run: Callable[[], Any]) -> tuple[Any, ...]:
    """What a model is called with inside a function: at its first call, on the CPU."""
    seen: list[tuple[Any, ...]] = []

    def look(module: nn.Module, arguments: tuple[Any, ...]) -> None:
        seen.append(arguments)

    hook = model.register_forward_pre_hook(look)
    try:
        run()
    finally:
        hook.remove()
    if not seen or not isinstance(seen[0][0], Graph):
        what = "is not evaluated on a graph" if not seen else f"reads {a_kind(seen[0][0])}"
        raise ExplanationError(f"{type(model).__name__} {what} for this input: what it reads cannot be explained")
    return seen[0]


def on_graph(
    graph: Graph,
    edges: Tensor | None,
    nodes: Tensor,
    names: Sequence[str] = (),
    centre: int | None = None,
    places: Array | None = None,
) -> list[Content]:
    """Scores on a graph, of a large one on the nodes that matter most."""
    shown = torch.arange(graph.num_senders)
    if graph.num_senders > DRAWN:
        weight = nodes.abs() / nodes.abs().max().clamp(min=1e-30)
        if edges is not None and graph.num_edges:
            strong = edges.abs() / edges.abs().max().clamp(min=1e-30)
            weight = weight.scatter_reduce(0, graph.senders, strong, "amax")
            weight = weight.scatter_reduce(0, graph.receivers, strong, "amax")
        if centre is not None:
            weight[centre] = 2.0
        scored = max(1, int(weight.count_nonzero()))
        shown = weight.topk(min(DRAWN, scored)).indices.sort().values
    inside = torch.isin(graph.receivers, shown) & torch.isin(graph.senders, shown)
    labels = names or [str(node) for node in range(graph.num_senders)]
    scores = Scores(
        graph.subgraph(shown),
        None if edges is None else edges[inside].double().numpy(),
        nodes[shown].double().numpy(),
        [labels[node] for node in shown.tolist()],
        None if places is None else places[shown.numpy()],
        centre=None if centre is None else shown.tolist().index(centre),
    )
    count = graph.num_senders
    few = len(shown) < min(DRAWN, count)
    which = "that matter" if few else "that matter most"
    what = f"The {len(shown)} of {count:,} nodes {which}" if count > len(shown) else f"All {count} nodes"
    ring = "" if centre is None else " A ring marks the explained node."
    halves = "" if edges is None else f" {HALVES}"
    return [Drawing("explanation", scores, f"{what}.{ring}{halves}")]


def on_matrix(graph: Graph, edges: Tensor | None, rows: Sequence[str], columns: Sequence[str]) -> list[Content]:
    """Scores of the edges as a matrix with a row for each receiver, where it is small enough to be read."""
    if edges is None or max(len(rows), len(columns)) > SQUARE:
        return []
    matrix = np.zeros((len(rows), len(columns)))
    np.add.at(matrix, (graph.receivers.numpy(), graph.senders.numpy()), edges.double().numpy())
    return [Drawing("edges", Alignment(matrix, rows, columns), "A row for each receiver, a column for each sender.")]


def in_a_row(
    names: Sequence[str], what: str, graph: Graph | None = None, gap: str = ""
) -> Callable[[Tensor | None, Tensor], list[Content]]:
    """How scores of a text's pieces are drawn: in a row, with gaps in between, and those of edges as a matrix."""

    def draw(edges: Tensor | None, nodes: Tensor) -> list[Content]:
        text = Coloured([f"{name}{gap}" for name in names], nodes.double().numpy(), what)
        return [text, *([] if graph is None else on_matrix(graph, edges, names, names))]

    return draw


def movement(inputs: tuple[Any, ...], model: nn.Module, space: int) -> Subject:
    """How far the particle that is expected to move furthest moves, along its own way."""
    graph, x, *_ = inputs
    with torch.no_grad():
        moves = model.eval()(*inputs) - x[..., :space]
    flat = moves.reshape(-1, space)
    node = int(flat.norm(dim=-1).argmax())
    way, start = flat[node] / flat[node].norm().clamp(min=1e-30), x.reshape(-1, x.shape[-1])[node, :space]

    def number(outputs: Tensor) -> Tensor:
        return (outputs.reshape(-1, space)[node] - start) @ way

    places = x.reshape(-1, x.shape[-1])[:, :2].double().numpy()

    def draw(edges: Tensor | None, nodes: Tensor) -> list[Content]:
        return on_graph(graph, edges, nodes, (), node, places)

    return Subject(inputs, number=number, what=f"how far particle {node} moves", draw=draw, baseline=None, node=node)


def only_row(outputs_of: nn.Module, inputs: tuple[Any, ...]) -> tuple[int, ...]:
    """The index of the first row of a model's outputs: of a graph's, the only one."""
    with torch.no_grad():
        outputs: Tensor = outputs_of.eval()(*inputs)
    return (0,) * (outputs.ndim - 1)


@torch.no_grad()
def last_attention(model: nn.Module, graph: Graph, *x: object) -> tuple[Tensor, Recorded | None]:
    """A model's outputs, and its last call of `attend` among the graph's own nodes, if it makes any."""
    with record() as calls:
        outputs = model(graph, *x)
    size = graph.num_receivers, graph.num_senders
    own = [call for call in calls if (call.graph.num_receivers, call.graph.num_senders) == size]
    return outputs, own[-1] if own else None


def matrices(graph: Graph, weights: Tensor) -> Array:
    """Weights [*, E] in the graph's edge order as matrices [*, I, J]; parallel edges add up.

    Example
        >>> graph = Graph.from_edge_index([[1, 0, 0], [0, 1, 1]], num_nodes=2)
        >>> matrices(graph, torch.tensor([1.0, 0.25, 0.75])).tolist()
        [[0.0, 1.0], [1.0, 0.0]]
    """
    matrix = weights.new_zeros(*weights.shape[:-1], graph.num_receivers * graph.num_senders)
    cells = (graph.receivers * graph.num_senders + graph.senders).expand(weights.shape)
    matrix.scatter_add_(-1, cells, weights)
    return matrix.unflatten(-1, (graph.num_receivers, graph.num_senders)).double().numpy()
