"""`edgewise demo`: the same attention layer on text, on images and in a social network; only the graph differs."""

import time
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import edgewise
from edgewise import training
from edgewise.apps import recipes
from edgewise.apps.command.runs import carry_out, free
from edgewise.apps.console import columns, shown
from edgewise.apps.options import configure
from edgewise.apps.report import pages
from edgewise.apps.report.pages import element
from edgewise.apps.report.report import RunPage
from edgewise.errors import ConfigError
from edgewise.training import Result, load_run, read_metrics


class Part(NamedTuple):
    """One of the demonstration's runs."""

    recipe: str
    data: str
    title: str


PARTS = (
    Part("demo-text", "English text", "A text: each character listens to those before it"),
    Part("demo-digits", "handwritten digits", "An image: each patch listens to all"),
    Part("demo-digits-grid", "handwritten digits", "The same image: each patch listens to its neighbours"),
    Part("demo-karate", "karate club", "A social network: each member listens to friends"),
)

TITLE = "One attention, any graph"
INTRODUCTION = """One transformer block was trained four times. What differs is who listens to whom: the graph. The
attention that it learnt is drawn on that graph."""

EQUATION = "y_i = Σ_{j ∈ N(i)} softmax_j(q_i · k_j / √d) v_j"


def demo(run: str | None) -> dict[str, Any]:
    """Train the four runs, print one table and write one page."""
    place = Path(run) if run else free(Path("runs/demo"))
    if (place / "report.html").exists():
        raise ConfigError(f"{place} already holds a demonstration: name a new folder")
    started = time.perf_counter()
    rows, body = [], []
    for part in PARTS:
        print(f"{part.title} ...", flush=True)
        config = configure(recipes.read(part.recipe))
        own = place / part.recipe.removeprefix("demo-")
        result = carry_out(own, partial(training.train, config, own, progress=False))
        made = RunPage(own, load_run(own, device="cpu"), read_metrics(own))
        rows.append(row(part, made, result))
        link = element("a", "the run's own report", href=f"{own.name}/report.html")
        for section in made.drawn()[:1]:
            body += made.section(part.title, section.make)
        body.append(element("p", "More in ", link, "."))
    seconds = time.perf_counter() - started
    numbers = ("nodes", "edges", "value", "seconds")
    opening = [
        element("p", INTRODUCTION, class_="lead"),
        element("p", pages.equation(EQUATION), class_="equation"),
        pages.table(list(rows[0]), [list(row.values()) for row in rows], numbers),
    ]
    pages.write(place / "report.html", TITLE, "demonstration", TITLE, *opening, *body)
    print("\n" + columns(rows, heads=True))
    print(f"\n{seconds:.0f} s in all; the page: {place / 'report.html'}")
    return {"rows": rows, "seconds": seconds, "report": str(place / "report.html")}


def row(part: Part, page: RunPage, result: Result) -> dict[str, str]:
    """A run as a row of the table; the backend is what the planner chose for the run's batches."""
    config, graph = page.loaded.config, page.graph
    assert graph is not None
    model: Any = page.loaded.model
    heads, width = model.settings.heads, model.settings.width
    batch = () if config.train.batch == 1 else (config.train.batch,)
    plan = edgewise.plan(graph, edgewise.Dot(), heads=heads, channels=width // heads, batch=batch)
    return {
        "data": part.data,
        "graph": "friendship" if config.graph.name == "given" else config.graph.name,
        "nodes": f"{graph.num_receivers}",
        "edges": f"{graph.num_edges:,}",
        "backend": plan.choice,
        "measure": result.measure,
        "value": shown(result.metric, result.value),
        "seconds": f"{result.seconds:.1f}",
    }
