"""Graphs that a model writes: drawn beside the data's own, and measured beside random ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from edgewise.apps.report import figures
from edgewise.apps.report.attention import Drawing, lay_out
from edgewise.apps.report.pages import Markup, table
from edgewise.graphs import Graph
from edgewise.tasks import GraphGeneration
from edgewise.training import LoadedRun, write_file

COLUMNS = 5
TRIES = 40  # sequences that are written to find graphs to draw


def rows(graphs: Sequence[Graph], good: Sequence[bool], titles: dict[int, str] | None = None) -> Figure:
    """Graphs in rows of five; one that is not `good` has another colour. A row's title stands above its first graph."""
    height = -(-len(graphs) // COLUMNS)
    with figures.drawing(height * 1.55 + 0.2, (height, COLUMNS)) as (figure, _):
        for number, axes in enumerate(figure.axes):
            figures.bare(axes)
            if number < len(graphs):
                graph, kind = graphs[number], 0 if good[number] else 1
                receivers, senders = graph.receivers.numpy(), graph.senders.numpy()
                colour = np.full(graph.num_receivers, kind)
                places = lay_out(graph.num_receivers, receivers, senders, unfold=True)
                figures.draw_small_network(axes, places, receivers, senders, colour)
            if titles and number in titles:
                axes.set_title(titles[number])
    return figure


def drawings(loaded: LoadedRun) -> list[Drawing]:
    """Test graphs, and the first graphs that the model writes."""
    task = loaded.task
    assert isinstance(task, GraphGeneration)
    drawn = task.sample(loaded.model, TRIES, loaded.pattern)
    written = [graph for graph in drawn if graph is not None][: 2 * COLUMNS]
    shown = [*task.splits["test"][:COLUMNS], *written]
    good = [task.family.valid(graph) for graph in shown]
    titles = {0: "test graphs", COLUMNS: "written by the model"}
    broken = sum(graph is None for graph in drawn)
    told = f"Of {TRIES} sequences {broken} did not end and are no graph. A graph of another colour is not valid."
    return [Drawing("generated", rows(shown, good, titles), told)]


def scores(test: dict[str, float]) -> Markup:
    """The test split's scores as a table, the discrepancies beside those of random graphs."""
    shares = [[name, f"{100 * test[name]:.1f} %", ""] for name in ("valid", "novel", "valid and novel", "unique")]
    apart = [
        [f"{name} MMD²", f"{test[name]:.5f}", f"{test[f'{name} of random graphs']:.5f}"]
        for name in ("degree", "clustering")
    ]
    return table(["", "the model's graphs", "random graphs, as many nodes and links"], shares + apart)


def generate_graphs(loaded: LoadedRun, run: Path, count: int, temperature: float, seed: int) -> dict[str, Any]:
    """Write graphs, print what each is, and draw those that are graphs into the run's figures."""
    task = loaded.task
    assert isinstance(task, GraphGeneration)
    device = next(loaded.model.parameters()).device
    drawn = task.sample(loaded.model, count, loaded.pattern, device, temperature, seed)
    described = [task.described(graph) for graph in drawn]
    for number, one in enumerate(described):
        size = f"{one['nodes']} nodes, {len(one['links'])} links" if "nodes" in one else "the sequence does not end"
        print(f"{number}: {size}, {'valid' if one['valid'] else 'not valid'}")
    shown = [(graph, one["valid"]) for graph, one in zip(drawn, described, strict=True) if graph is not None]
    answer: dict[str, Any] = {"run": str(run), "graphs": described}
    if shown:
        path = run / "figures" / f"generated-{seed}.svg"
        path.parent.mkdir(exist_ok=True)
        graphs, good = zip(*shown, strict=True)
        write_file(path, figures.standalone(figures.svg(rows(graphs, good), f"generated-{seed}")).encode())
        answer["drawing"] = str(path)
        print(path)
    return answer
