"""A run's validation examples as the page reads them: embedded nodes, names, targets, and graphs to put them on."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any

import torch
from torch import Tensor

from edgewise.apps.explorer.choices import Shape, choices, predictions
from edgewise.apps.explorer.weights import Plain, pack, read
from edgewise.data.splits import Split
from edgewise.errors import ConfigError
from edgewise.graphs import Graph
from edgewise.tasks.core.abilities import FindsByName, Predicts
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.task import Pattern, Task
from edgewise.tasks.nodes.classification import neighbourhood

MOST_NODES = 2000  # of one example; of a larger graph a neighbourhood is shown
MOST_EDGES = 50_000  # of one example's own graph, so that a page stays below 2 MB
AROUND = 300  # nodes of a neighbourhood
COUNT = 4  # examples
SPLITS: tuple[Split, ...] = ("train", "valid", "test")


@dataclass(frozen=True)
class Piece:
    """One example: its graph, what the first block reads of it, what is said of its nodes."""

    title: str
    note: str
    graph: Graph
    features: Tensor
    names: list[str]
    targets: Tensor | None

    def packed(self, title: str, shape: Shape) -> Plain:
        """The example for the page; `title` names its own graph."""
        graphs = choices(self.graph, title, shape)
        targets = None if self.targets is None or self.targets.is_floating_point() else self.targets.tolist()
        return {
            "title": self.title,
            "note": self.note,
            "names": self.names,
            "features": pack(self.features),
            "targets": targets,
            "graphs": graphs,
            "predictions": predictions({graph["nodes"] for graph in graphs}, shape),
        }


def pieces(model: Any, task: Task, pattern: Pattern, node: str | None) -> list[Piece]:
    """A few validation examples; of a graph that is too large, what lies around a node.

    Symbols     node = its name, or its number where nodes have none, as `edgewise predict` takes it
    Errors      DataError for a node that is not there; ConfigError for one among many examples, or several targets
    """
    several = getattr(task, "several", None)
    if several is not None and len(several.targets) > 1:
        names = ", ".join(target.name for target in several.targets)
        raise ConfigError(f"{task.name} has several targets ({names}): the explorer shows the classes of one")
    batch = next(iter(task.batches("valid", COUNT, pattern)))
    if not isinstance(batch.graph, Graph):
        raise ConfigError(
            f"{task.name} gives its model sampled or paired graphs: the explorer shows examples of one graph"
        )
    reading = read(model, *batch.inputs)
    graph, features = reading.graph, reading.features
    target = batch.target
    if batch.rows is not None and task.train_batch(1, torch.Generator(), pattern).x is batch.x:
        parts = [next(iter(task.batches(split, COUNT, pattern))) for split in SPLITS[: 3 if task.has_test else 2]]
        return [_around(task, graph, features, _at_nodes(graph, parts), node)]
    if batch.rows is not None and not task.signature.whole_graph:
        target = _at_nodes(graph, [batch])
    if node is not None:
        raise ConfigError(f"--node {node}: {task.name} has many examples: the option is for one large graph")
    if features.ndim == 3:
        rows: Any = batch.x
        return [
            Piece(f"validation example {k}", "", graph, h, _names(task, rows[k], len(h)), _of(target, k))
            for k, h in enumerate(features[:COUNT])
        ]
    return list(islice(_members(task, graph, features, target), COUNT))


def _at_nodes(graph: Graph, parts: Sequence[Batch]) -> Tensor:
    """The target of each node, from batches that read some of the graph's nodes; -1 where none has one."""
    targets = torch.full((graph.num_receivers,), -1, dtype=torch.int64)
    for part in parts:
        if part.rows is not None:
            targets[part.rows] = part.target.long()
    return targets


def _of(target: Tensor, k: int) -> Tensor:
    return target[k].reshape(-1)


def _members(task: Task, graph: Graph, features: Tensor, target: Tensor) -> Iterator[Piece]:
    """The graphs of a batch, one by one."""
    start = 0
    for k, size in enumerate(graph.sizes.tolist()):
        nodes = torch.arange(start, start + size)
        own = target[nodes] if len(target) == len(features) else _of(target, k)
        yield Piece(f"validation graph {k}", "", graph.subgraph(nodes), features[nodes], _numbers(size), own)
        start += size


def _around(task: Task, graph: Graph, features: Tensor, targets: Tensor, node: str | None) -> Piece:
    count, name_of = graph.num_receivers, task.name_of if isinstance(task, Predicts) else str
    if node is None and count <= MOST_NODES and graph.num_edges <= MOST_EDGES:
        return Piece(task.name, "", graph, features, [name_of(k) for k in range(count)], targets)
    if node is None:
        centre = 0
    elif isinstance(task, FindsByName):
        centre = task.number_of(node)
    else:
        raise ConfigError(f"{task.name} is not asked for one example by its name: {node!r}")
    near = neighbourhood(graph, centre, AROUND)
    names = [name_of(k) for k in near.tolist()]
    note = (
        f"{len(near)} of {count} nodes: those nearest to node {names[0]}; nodes at the rim lack the senders beyond it."
    )
    return Piece(f"around node {names[0]}", note, graph.subgraph(near), features[near], names, targets[near])


def _names(task: Any, x: Any, count: int) -> list[str]:
    """A token's text where the task has tokens, else numbers; a node that the model adds in front is named so."""
    if not isinstance(x, Tensor) or x.is_floating_point() or x.ndim != 1 or not hasattr(task, "decode"):
        return _numbers(count)
    written = [str(task.decode(token.reshape(1))) for token in x]
    return ["class"] * (count - len(written)) + [visible(text) for text in written]


def visible(text: str) -> str:
    """A token's text with white space made visible.

    Example
        >>> visible(" "), visible("\\n")
        ('␣', '⏎')
    """
    return text.replace(" ", "␣").replace("\n", "⏎").replace("\t", "⇥")


def _numbers(count: int) -> list[str]:
    return [str(node) for node in range(count)]


def outputs_of(task: Any) -> list[str]:
    """What the outputs are called: classes, or tokens; the page numbers those without a name."""
    if classes := getattr(task, "classes", None):
        return [str(name) for name in classes]
    count = task.signature.outputs
    if hasattr(task, "decode"):
        return [visible(str(task.decode(torch.tensor([k])))) for k in range(count)]
    return [f"output {k}" for k in range(count)]
