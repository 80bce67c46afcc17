"""A trained model's attention, drawn on its graph: edges between nodes, patches on an image, a matrix over a text."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from matplotlib.figure import Figure
from torch import Tensor, nn

from edgewise.apps.report import figures
from edgewise.apps.report.figures import Array, Labels
from edgewise.graphs import Graph
from edgewise.kernels import Recorded, record
from edgewise.tasks import Batch, ImageClassification, NodeClassification, Pattern, Task, Text

WHOLE = 150  # nodes: a larger graph is shown around one of its nodes
AROUND = 60
CHARACTERS = 40
IMAGES = 6


@dataclass(frozen=True)
class Drawing:
    """A figure, the name of its file and what it shows."""

    name: str
    figure: Figure
    caption: str


@torch.no_grad()
def draw_attention(task: Task, pattern: Pattern, model: nn.Module) -> Drawing | None:
    """The model's last attention on its graph; of a model without attention the predictions, if they can be drawn."""
    model.eval()
    if isinstance(task, NodeClassification):
        return _nodes(task, pattern, model)
    if isinstance(task, ImageClassification):
        return _images(task, pattern, model)
    return _text(task, pattern, model) if isinstance(task, Text) else None


def watch(model: nn.Module, graph: Graph, x: object) -> tuple[Tensor, Recorded | None]:
    """A model's outputs, and its last call of `attend` if it makes any among the graph's own nodes."""
    with record() as seen:
        outputs = model(graph, x)
    own = graph.num_receivers, graph.num_senders
    among = [one for one in seen if (one.graph.num_receivers, one.graph.num_senders) == own]
    return outputs, among[-1] if among else None


def tensor(batch: Batch) -> Tensor:
    """What a batch of dense features or tokens reads."""
    assert isinstance(batch.x, Tensor)
    return batch.x


def dense(recorded: Recorded, weights: Tensor) -> Array:
    """Weights [*, E] in the graph's edge order as matrices [*, I, J]; parallel edges add up."""
    graph = recorded.graph
    matrix = weights.new_zeros(*weights.shape[:-1], graph.num_receivers * graph.num_senders)
    cells = (graph.receivers * graph.num_senders + graph.senders).expand(weights.shape)
    matrix.scatter_add_(-1, cells, weights)
    return matrix.unflatten(-1, (graph.num_receivers, graph.num_senders)).double().numpy()


def _nodes(task: NodeClassification, pattern: Pattern, model: nn.Module) -> Drawing:
    graph, nodes = task.graph(pattern), task.nodes
    outputs, seen = watch(model, graph, nodes.x)
    listening = graph if seen is None else seen.graph
    receivers, senders = listening.receivers.numpy(), listening.senders.numpy()
    weights = None if seen is None else seen.weights.double().mean(-1).numpy()
    predicted = outputs.argmax(-1).numpy()
    labels = nodes.labels.numpy()
    wrong = (predicted != labels) & (labels >= 0)
    centre = None
    shown = np.arange(graph.num_receivers)
    if graph.num_receivers > WHOLE:
        centre = _example(graph, nodes.splits["test"].numpy(), wrong)
        shown = _around(graph, centre)
    kept = np.isin(receivers, shown) & np.isin(senders, shown)
    place = np.full(graph.num_receivers, -1)
    place[shown] = np.arange(len(shown))
    i, j = place[receivers[kept]], place[senders[kept]]
    figure = figures.network(
        lay_out(len(shown), i, j),
        i,
        j,
        None if weights is None else weights[kept],
        predicted[shown],
        wrong[shown],
        names=[str(node) for node in shown] if len(shown) <= 40 else None,
        centre=None if centre is None else int(place[centre]),
        classes=nodes.classes,
    )
    return Drawing(
        "attention" if weights is not None else "graph",
        figure,
        _nodes_caption(task, weights is not None, centre, len(shown)),
    )


def _nodes_caption(task: NodeClassification, attends: bool, centre: int | None, shown: int) -> str:
    total = task.nodes.graph.num_receivers
    what = (
        f"All {total} nodes of {task.name}"
        if centre is None
        else f"Node {centre} of {task.name} (circled) and {shown - 1} of the nodes around it"
    )
    edges = (
        "The half of an edge next to a node shows how much this node listens to the other end: the stronger, the more. "
        "Mean over the heads of the last attention layer."
        if attends
        else "This model has no attention weights: the lines are the graph's edges."
    )
    return f"{what}; the colour is the predicted class, a cross marks a wrong one. {edges}"


def _example(graph: Graph, test: Labels, wrong: np.ndarray) -> int:
    """A test node, rightly classified, with about eight neighbours."""
    degree = graph.in_degrees().numpy()
    score = np.abs(degree[test] - 8) + 1000 * wrong[test]
    return int(test[np.argmin(score)])


def _around(graph: Graph, centre: int) -> Labels:
    """A node, its neighbours and their neighbours, the nearest `AROUND` of them."""
    offsets, senders = graph.offsets.numpy(), graph.senders.numpy()
    found = [centre]
    for node in found:
        found += [j for j in senders[offsets[node] : offsets[node + 1]].tolist() if j not in found]
        if len(found) >= AROUND:
            break
    return np.array(sorted(found[:AROUND]))


def lay_out(count: int, receivers: Labels, senders: Labels, unfold: bool = False) -> Array:
    """Places [N, 2] in the plane that keep friends close, the longest extent from left to right.

    `unfold` begins with the Laplacian's eigenvectors instead of a circle, so that a grid is not twisted.
    """
    import networkx

    network = networkx.Graph()
    network.add_nodes_from(range(count))
    network.add_edges_from((i, j) for i, j in zip(receivers.tolist(), senders.tolist(), strict=True) if i != j)
    # Kamada and Kawai read distances on the graph, which are infinite between its parts.
    layout = networkx.kamada_kawai_layout if networkx.is_connected(network) else networkx.spring_layout
    options: dict[str, Any] = {} if layout is networkx.kamada_kawai_layout else {"seed": 0, "k": 0.35}
    if unfold and count > 2 and networkx.is_connected(network):
        spread, ring = networkx.spectral_layout(network), networkx.circular_layout(network, scale=0.01)
        options |= {"pos": {node: spread[node] + ring[node] for node in network}}  # eigenvectors may agree on two nodes
    found = layout(network, **options)
    places = np.array([found[node] for node in range(count)])
    places = places - places.mean(0)
    axes = np.linalg.eigh(places.T @ places)[1].T[::-1]
    axes = axes * np.sign(axes[np.arange(2), np.abs(axes).argmax(1)])[:, None]  # eigenvectors have no sign of their own
    return places @ axes.T


def _images(task: ImageClassification, pattern: Pattern, model: nn.Module) -> Drawing:
    batch = next(iter(task.batches("test", 64, pattern)))
    labels = batch.target.reshape(-1)
    chosen = _one_of_each(labels, IMAGES)
    outputs, seen = watch(model, task.graph(pattern), tensor(batch)[chosen])
    predicted = outputs.reshape(len(chosen), -1).argmax(-1)
    pixels = task.images.pixels[task.images.splits["test"][chosen]].double().numpy()
    images = pixels / max(float(pixels.max()), 1.0)
    classes = task.images.classes
    said = [
        f"{classes[p]}" if p == t else f"{classes[p]}, not {classes[t]}"
        for p, t in zip(predicted, labels[chosen], strict=True)
    ]
    if seen is None:
        wrong = (predicted != labels[chosen]).numpy()
        caption = (
            "Images that the model had never seen, and what it says they are. This model has no attention weights."
        )
        return Drawing("examples", figures.examples(images, said, wrong), caption)
    matrices = dense(seen, seen.weights.double().mean(-1))
    received = matrices.mean(1).reshape(len(chosen), *task.layout)
    ink = images.reshape(len(chosen), task.layout[0], task.patch[0], task.layout[1], task.patch[1]).mean((2, 4))
    centre = [
        (int(flat) // task.layout[1], int(flat) % task.layout[1]) for flat in ink.reshape(len(chosen), -1).argmax(-1)
    ]
    heard = np.stack(
        [matrix[a * task.layout[1] + b].reshape(task.layout) for matrix, (a, b) in zip(matrices, centre, strict=True)]
    )
    caption = (
        f"Images that the model had never seen, cut into {task.layout[0]} × {task.layout[1]} patches. "
        "The outlined patch is the one with the most ink. Mean over the heads of the last attention layer."
    )
    return Drawing("attention", figures.image_attention(images, received, heard, centre, said), caption)


def _one_of_each(labels: Tensor, count: int) -> Tensor:
    """The first image of each class, in the classes' order."""
    first = [int((labels == c).nonzero()[0]) for c in labels.unique().tolist()]
    return torch.tensor(first[:count])


def _text(task: Text, pattern: Pattern, model: nn.Module) -> Drawing | None:
    tokens = readable(task, pattern, CHARACTERS)
    length = tokens.shape[-1]
    _, seen = watch(model, task.graph(pattern, length), tokens)
    if seen is None:
        return None
    matrices = dense(seen, seen.weights[0].double().T)
    characters = [{" ": "␣", "\n": "↵", "\t": "⇥"}.get(c, c) for c in task.decode(tokens[0])]
    caption = (
        f"{length} characters of the validation text. A row listens, a column is heard; the stronger, the more, "
        "each row relative to its largest weight. "
        f"Last attention layer, {len(matrices)} head{'s' if len(matrices) > 1 else ''}."
    )
    return Drawing("attention", figures.token_matrix(matrices, characters), caption)


def readable(task: Text, pattern: Pattern, length: int) -> Tensor:
    """At most `length` characters of the validation text: of its first 64 windows the one with most letters."""
    windows = tensor(next(iter(task.batches("valid", 64, pattern))))[:, :length]
    letters = [sum(map(str.isalpha, task.decode(window))) for window in windows]
    best = letters.index(max(letters))
    return windows[best : best + 1]
