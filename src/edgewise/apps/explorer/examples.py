"""A run's validation examples as the page reads them: embedded nodes, names, targets, and graphs to put them on."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from math import isqrt
from typing import Any

import torch
from torch import Tensor

import edgewise
from edgewise.apps.explorer.weights import Plain, pack, read
from edgewise.data.splits import Split
from edgewise.errors import ConfigError
from edgewise.graphs import Graph, causal, complete, grid, window
from edgewise.kernels import Plan
from edgewise.tasks.core.abilities import FindsByName, Predicts
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.task import Pattern, Task
from edgewise.tasks.nodes.classification import neighbourhood

MOST_NODES = 2000  # of one example; of a larger graph a neighbourhood is shown
MOST_EDGES = 50_000  # of one example's own graph, so that a page stays below 2 MB
AROUND = 300  # nodes of a neighbourhood
COUNT = 4  # examples
SPLITS: tuple[Split, ...] = ("train", "valid", "test")
RADIUS = 2  # of the window
STEPS = 7  # sizes of edge lists between which the page interpolates the planner's times
CAFFEINE = "CNCNCCCONCONCC"  # the atoms of CN1C=NC2=C1C(=O)N(C(=O)N2C)C, in that order
BONDS = (
    (0, 1), (1, 2), (2, 3), (3, 4), (4, 5), (5, 1), (5, 6), (6, 7), (6, 8), (8, 9), (9, 10), (9, 11), (11, 4),
    (11, 12), (8, 13),
)  # fmt: skip
PLACES = (  # of those atoms, as the formula is drawn
    (2.13, -1.76), (1.82, -0.81), (2.41, 0.0), (1.82, 0.81), (0.87, 0.5), (0.87, -0.5), (0.0, -1.0), (0.0, -2.0),
    (-0.87, -0.5), (-0.87, 0.5), (-1.73, 1.0), (0.0, 1.0), (0.0, 2.0), (-1.73, -1.0),
)  # fmt: skip


Planner = Callable[[Graph], Plan]
Named = tuple[str, Graph, list[str], list[float] | None]  # title, graph, names and places of nodes


@dataclass(frozen=True)
class Piece:
    """One example: its graph, what the first block reads of it, what is said of its nodes."""

    title: str
    note: str
    graph: Graph
    features: Tensor
    names: list[str]
    targets: Tensor | None

    def packed(self, title: str, plan: Planner) -> Plain:
        """The example for the page; `title` names its own graph."""
        graphs = choices(self.graph, title, plan)
        targets = None if self.targets is None or self.targets.is_floating_point() else self.targets.tolist()
        return {
            "title": self.title,
            "note": self.note,
            "names": self.names,
            "features": pack(self.features),
            "targets": targets,
            "graphs": graphs,
            "predictions": predictions({graph["nodes"] for graph in graphs}, plan),
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
    some = getattr(task.signature, "places", False)  # the page shows the outputs of all tokens
    reading = read(model, *batch.inputs[: 2 if some else None])
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
            Piece(f"validation example {k}", "", graph, h, _names(task, rows[k], len(h)), target[k].reshape(-1))
            for k, h in enumerate(features[:COUNT])
        ]
    return list(islice(_members(task, graph, features, target), COUNT))


def _at_nodes(graph: Graph, parts: Sequence[Batch]) -> Tensor:
    """The target of each node, from batches that read some of the graph's nodes; -1 where none has one."""
    targets = torch.full((graph.num_receivers,), -1, dtype=torch.int64)
    for part in parts:
        if part.rows is not None:
            targets[part.rows] = part.target.reshape(len(part.rows), -1)[:, 0].long()  # own data: weights come after
    return targets


def _members(task: Task, graph: Graph, features: Tensor, target: Tensor) -> Iterator[Piece]:
    """The graphs of a batch, one by one."""
    start = 0
    for k, size in enumerate(graph.sizes.tolist()):
        nodes = torch.arange(start, start + size)
        own = target[nodes] if len(target) == len(features) else target[k].reshape(-1)
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


def planner(heads: int, channels: int) -> Planner:
    """The planner for plain attention of so many heads and channels."""
    return partial(edgewise.plan, what=edgewise.Dot(), heads=heads, channels=channels)


def choices(graph: Graph, title: str, plan: Planner) -> list[dict[str, Any]]:
    """The example's own graph, patterns on as many nodes, and a molecule and friendships where there are enough."""
    n = graph.num_receivers
    columns = max(isqrt(max(n - 1, 0)) + 1, 1)
    rules: dict[str, tuple[str, Graph]] = {
        "causal": ("causal", causal(n)),
        "window": (f"window ±{RADIUS}", window(n, RADIUS)),
        "grid": ("grid", grid(-(-n // columns), columns).subgraph(range(n))),  # the last row may be short
        "complete": ("complete", complete(n)),
    }
    made = [_listed("given", title, graph, plan)]
    for name, (label, rule) in rules.items():
        known = {"kind": name, "radius": RADIUS, "columns": columns}
        made.append(_entry(name, label, rule, plan) | {"rule": known, "edges": None})
    for name, (label, other, names, places) in _named(n, title).items():
        made.append(_listed(name, label, other, plan) | {"names": names, "places": places})
    same = [one for one in made[1:5] if _edges_of(graph) == _edges_of(rules[one["name"]][1])]
    if same:  # the example's own graph is one of the patterns: listed once, first
        own = min(same, key=lambda one: one["name"] != title)  # patterns agree on a few nodes
        made.remove(own)
        made[0] = own | {"title": f"{own['title']} (trained)"}
    return made


def caffeine() -> Graph:
    """The 14 heavy atoms of caffeine; each attends to those that it is bound to, and to itself.

    Example
        >>> caffeine().num_receivers, caffeine().num_edges
        (14, 44)
    """
    ends = torch.tensor(BONDS).T
    return Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), len(CAFFEINE)).add_self_loops()


def _named(n: int, title: str) -> dict[str, Named]:
    """Graphs of a fixed size."""
    made: dict[str, Named] = {}
    if n >= len(CAFFEINE):
        names = [f"{atom}{k}" for k, atom in enumerate(CAFFEINE)]
        made["molecule"] = "molecule", caffeine(), names, list(chain(*PLACES))
    if n >= 34 and title != "friendship":
        from edgewise.tasks import TASKS

        karate: Any = TASKS["karate"](loops=True)
        made["friendship"] = ("friendship", karate.graph(), [f"member {k}" for k in range(34)], None)
    return made


def _edges_of(graph: Graph) -> set[tuple[int, int]]:
    receivers, senders = graph.receivers.tolist(), graph.senders.tolist()
    return set(zip(receivers, senders, strict=True))


def _listed(name: str, title: str, graph: Graph, plan: Planner) -> dict[str, Any]:
    pairs = torch.stack([graph.receivers, graph.senders], 1).flatten()
    return _entry(name, title, graph, plan) | {"rule": None, "edges": pack(pairs.numpy(), "<i4")}


def _entry(name: str, title: str, graph: Graph, plan: Planner) -> dict[str, Any]:
    shown = [one for one in plan(graph).candidates if not one.by_name and (one.seconds is not None or one.refusal)]
    return {
        "name": name,
        "title": title,
        "nodes": graph.num_receivers,
        "names": None,
        "places": None,
        "plan": [{"backend": one.backend, "seconds": one.seconds, "refusal": one.refusal} for one in shown],
    }


def predictions(sizes: set[int], plan: Planner) -> list[dict[str, Any]]:
    """The planner's seconds on lists of few to all edges, for each number of nodes: what the page interpolates."""
    made = []
    for n in sorted(sizes):
        counts = sorted({max(1, round(n * max(n, 1) ** (step / (STEPS - 1)))) for step in range(STEPS)})
        seconds: dict[str, list[float]] = {}
        for count in counts:
            for one in plan(_evenly(n, count)).candidates:
                if one.seconds is not None and not one.by_name:
                    seconds.setdefault(one.backend, []).append(one.seconds)
        all_sizes = {name: times for name, times in seconds.items() if len(times) == len(counts)}
        made.append({"nodes": n, "edges": counts, "seconds": all_sizes})
    return made


def _evenly(n: int, count: int) -> Graph:
    """A graph of so many different edges, drawn at random from a fixed seed."""
    drawn = torch.randperm(max(n * n, 1), generator=torch.Generator().manual_seed(0))[:count]
    return Graph.from_edge_index(torch.stack([drawn % max(n, 1), drawn // max(n, 1)]), n)
