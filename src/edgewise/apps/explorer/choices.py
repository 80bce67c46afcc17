"""The graphs that an example can be put on, and what the planner says of each."""

from dataclasses import asdict, dataclass
from itertools import chain
from math import isqrt
from typing import Any

import numpy as np
import torch

import edgewise
from edgewise.apps.explorer.weights import pack
from edgewise.graphs import Graph, causal, complete, window

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


Named = tuple[str, Graph, list[str], list[float] | None]  # title, graph, names and places of nodes


@dataclass(frozen=True)
class Shape:
    """How many heads and channels the planner plans for."""

    heads: int
    channels: int


def choices(graph: Graph, title: str, shape: Shape) -> list[dict[str, Any]]:
    """The example's own graph, patterns on as many nodes, and a molecule and friendships where there are enough."""
    n = graph.num_receivers
    columns = max(isqrt(max(n - 1, 0)) + 1, 1)
    rules: dict[str, tuple[str, Graph]] = {
        "causal": ("causal", causal(n)),
        "window": (f"window ±{RADIUS}", window(n, RADIUS)),
        "grid": ("grid", short_grid(n, columns)),
        "complete": ("complete", complete(n)),
    }
    made = [_listed("given", title, graph, shape)]
    for name, (label, rule) in rules.items():
        known = {"kind": name, "radius": RADIUS, "columns": columns}
        made.append(_entry(name, label, rule, shape) | {"rule": known, "edges": None})
    for name, (label, other, names, places) in _named(n, title).items():
        made.append(_listed(name, label, other, shape) | {"names": names, "places": places})
    same = [one for one in made[1:5] if _edges_of(graph) == _edges_of(rules[one["name"]][1])]
    if same:  # the example's own graph is one of the patterns: listed once, first
        own = min(same, key=lambda one: one["name"] != title)  # patterns agree on a few nodes
        made.remove(own)
        made[0] = own | {"title": f"{own['title']} (trained)"}
    return made


def short_grid(n: int, columns: int) -> Graph:
    """A grid in which each node attends to those around it and to itself; the last row may be short.

    Example
        >>> short_grid(3, 2).num_edges
        9
    """
    row, column = np.divmod(np.arange(n), columns)
    near = [
        (i + dy * columns + dx, i)
        for i in range(n)
        for dy in (-1, 0, 1)
        for dx in (-1, 0, 1)
        if 0 <= i + dy * columns + dx < n and 0 <= column[i] + dx < columns and row[i] + dy >= 0
    ]
    return Graph.from_edge_index(torch.tensor(near, dtype=torch.int64).reshape(-1, 2).T, n)


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
        made["molecule"] = (
            "molecule",
            caffeine(),
            [f"{atom}{k}" for k, atom in enumerate(CAFFEINE)],
            list(chain(*PLACES)),
        )
    if n >= 34 and title != "friendship":
        from edgewise.tasks import TASKS

        karate: Any = TASKS["karate"](loops=True)
        made["friendship"] = ("friendship", karate.graph(), [f"member {k}" for k in range(34)], None)
    return made


def _edges_of(graph: Graph) -> set[tuple[int, int]]:
    receivers, senders = graph.receivers.tolist(), graph.senders.tolist()
    return set(zip(receivers, senders, strict=True))


def _listed(name: str, title: str, graph: Graph, shape: Shape) -> dict[str, Any]:
    pairs = torch.stack([graph.receivers, graph.senders], 1).flatten()
    return _entry(name, title, graph, shape) | {"rule": None, "edges": pack(pairs.numpy(), "<i4")}


def _entry(name: str, title: str, graph: Graph, shape: Shape) -> dict[str, Any]:
    plan = edgewise.plan(graph, edgewise.Dot(), heads=shape.heads, channels=shape.channels)
    kept = [asdict(one) for one in plan.candidates if not one.by_name and (one.seconds is not None or one.refusal)]
    return {
        "name": name,
        "title": title,
        "nodes": graph.num_receivers,
        "names": None,
        "places": None,
        "plan": [{key: one[key] for key in ("backend", "seconds", "refusal")} for one in kept],
    }


def predictions(sizes: set[int], shape: Shape) -> list[dict[str, Any]]:
    """The planner's seconds on lists of few to all edges, for each number of nodes: what the page interpolates."""
    made = []
    for n in sorted(sizes):
        counts = sorted({max(1, round(n * max(n, 1) ** (step / (STEPS - 1)))) for step in range(STEPS)})
        seconds: dict[str, list[float]] = {}
        for count in counts:
            plan = edgewise.plan(_evenly(n, count), edgewise.Dot(), heads=shape.heads, channels=shape.channels)
            for one in plan.candidates:
                if one.seconds is not None and not one.by_name:
                    seconds.setdefault(one.backend, []).append(one.seconds)
        all_sizes = {name: times for name, times in seconds.items() if len(times) == len(counts)}
        made.append({"nodes": n, "edges": counts, "seconds": all_sizes})
    return made


def _evenly(n: int, count: int) -> Graph:
    """A graph of so many different edges, drawn at random from a fixed seed."""
    drawn = torch.randperm(max(n * n, 1), generator=torch.Generator().manual_seed(0))[:count]
    return Graph.from_edge_index(torch.stack([drawn % max(n, 1), drawn // max(n, 1)]), n)
