"""`edgewise explain`: why a run's best weights predict what they predict for an input, on one page."""

from __future__ import annotations

import json
import re
import shlex
import time
from collections.abc import Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch

from edgewise import training
from edgewise.apps.arguments import typed_places
from edgewise.apps.console import columns
from edgewise.apps.report import pages
from edgewise.apps.report.pages import element
from edgewise.apps.report.render import part
from edgewise.deployment.inputs import one_input
from edgewise.explanations import EXPLANATIONS, Explanation, Fidelity, fidelity
from edgewise.tasks.core.abilities import predicting
from edgewise.tasks.core.drawing import Content, Curve, Curves, Drawing, Panel
from edgewise.tasks.core.task import EXAMPLE
from edgewise.training import Moved

FOLDER = "explanations"

SIGNED = """Blue speaks for the output and orange against it: the stronger the colour, the larger the score. Scores are
relative to the one furthest from 0."""
UNSIGNED = "The stronger the colour, the larger the score; there are no scores below 0."
READING = """An edge carries something from its sender to its receiver. The tables list the largest scores with their
values, those that are not 0, so that nothing hangs on colour alone."""
PARTS = "Each sum is checked: the output is what it is at the baseline, and the scores, and a remainder."
NO_PARTS = "The scores of this method are no parts of the output: they add up to nothing."
TRUST = """Left: the output as the edges or nodes of the highest scores are deleted first. Right: as they are inserted
first into an empty graph. The faster the left curve falls and the right one rises, the more the scores say; the curves
of random orders (a mean of several) and of the highest degrees show what an order knows that has not seen the model."""


@dataclass(frozen=True)
class Page:
    """All that a page shows.

    Symbols     run, request, method = as the command line has them; options = further ones; value = what curves show of
                the number; drawings = of the scores; fidelities = of the edges, where there are any, and of the nodes;
                seconds = all that it took
    """

    run: Path
    request: str
    explanation: Explanation
    value: float
    drawings: Sequence[Content]
    fidelities: Sequence[Fidelity]
    options: str
    seconds: float


def default_path(
    run: Path, request: str, method: str, target: str | None = None, layer: int | None = None, head: int | None = None
) -> Path:
    """Where a page is written unless a place is named: a name that any file system takes. Where it says less than the
    request and the target do, a hash tells it from others."""
    texts = [request] if target is None else [request, target]
    names = [re.sub(r"[^\w.-]+", "-", text, flags=re.ASCII).strip("-.")[:60] or "input" for text in texts]
    parts = [names[0], method, *names[1:]]
    parts += [f"{what}-{number}" for what, number in (("layer", layer), ("head", head)) if number is not None]
    if any(name != text and not EXAMPLE.fullmatch(text) for name, text in zip(names, texts, strict=True)):
        parts.append(sha256(json.dumps(texts).encode()).hexdigest()[:8])
    return run / FOLDER / f"{'-'.join(parts)}.html"


def write(made: Page, path: Path) -> None:
    """Write a page, and, where it lies in the run's own folder, the list of these pages that its report links to."""
    why, names = made.explanation, made.explanation.names
    method, error = EXPLANATIONS[why.method], why.missed
    missed = {} if error is None else {"sums miss": f"{error:.1g}"}
    explained = {} if made.value == why.value else {names.unit or "explained": f"{why.value:.4g}"}
    numbers = {"output": f"{made.value:.4g}", **explained, "method": why.method, **missed}
    sums = [element("p", names.told(why.value, one)) for one in why.sums()]
    rows = [
        [one.of, *(f"{order.area:+.3g}" for order in (one.method, one.random, one.degree)), f"{one.margin:+.0%}"]
        for one in made.fidelities
    ]
    head = ["", "area between the curves", "random", "degree", "above random, of the output's range"]
    body = [
        element("p", f"Input {made.request!r} of {made.run.resolve().name}: {method.meaning}.", class_="lead"),
        pages.headline(numbers | {"seconds": f"{made.seconds:.1f}"}),
        element("h2", "What is shown"),
        *(part(content, None) for content in made.drawings),
        element("p", element("b", "Legend. "), SIGNED if method.signed else UNSIGNED),
        element("p", element("b", "How to read it. "), READING),
        element("h2", "What adds up"),
        *([element("p", PARTS), *sums] if sums else [element("p", NO_PARTS)]),
        element("h2", "The largest scores"),
        *(
            part
            for one in why.listings()
            for part in (element("h3", one.title), pages.table([*one.head, "score"], one.rows, ["score"]))
        ),
        element("h2", "How far to trust it"),
        element("p", TRUST),
        *(part(trusted(one), None) for one in made.fidelities),
        pages.table(head, rows, head[1:]),
        element("h2", "Reproduction"),
        element("pre", f"edgewise explain {shlex.quote(str(made.run))} {shlex.quote(made.request)} {made.options}"),
    ]
    pages.write(path, f"Why {names.what}", "explanation", f"Why {names.what}", *body)
    if path.parent.resolve() == (made.run / FOLDER).resolve():
        write_list(made.run)


def trusted(fidelity: Fidelity) -> Drawing:
    """The curves of deletion and insertion."""
    shares = np.linspace(0, 100, len(fidelity.method.deletion)).tolist()

    def panel(part: str, done: str) -> Panel:
        curves = [
            Curve("this", shares, getattr(fidelity.method, part).tolist(), "accent"),
            Curve("random", shares, getattr(fidelity.random, part).tolist(), "muted"),
            Curve("degree", shares, getattr(fidelity.degree, part).tolist(), "warm"),
        ]
        return Panel(f"{fidelity.of} {done}", curves, f"% of the {fidelity.count:,} {fidelity.of} within reach")

    panels = [panel("deletion", "deleted"), panel("insertion", "inserted")]
    return Drawing(f"fidelity-{fidelity.of}", Curves(panels), f"The output, as {fidelity.of} are deleted or inserted.")


def write_list(run: Path) -> None:
    """Write the list of a run's explanations, to which its report links."""
    folder, title = run / FOLDER, f"Explanations of {run.resolve().name}"
    written = sorted(path for path in folder.glob("*.html") if path.name != "index.html")
    links = [element("p", element("a", path.stem, href=f"./{path.name}")) for path in written]
    body = [
        *(links or [element("p", "There are none yet.")]),
        element("pre", f"edgewise explain {shlex.quote(str(run))} INPUT"),
        element("p", element("a", "the run's report", href="../report.html")),
    ]
    pages.write(folder / "index.html", title, "run", title, *body)


NAMED = 5  # of the largest scores, in the summary


def explain(
    run: str,
    input: str,
    method: str,
    layer: int | None,
    head: int | None,
    target: str | None,
    out: str | None,
    accept: bool,
    data: Moved,
) -> dict[str, Any]:
    """Write the page of an explanation; print where it is, and the largest scores."""
    started = time.perf_counter()
    loaded = training.load_any(Path(run), device="cpu", accept=accept, folder=data)
    request = one_input(input, loaded.task)
    subject = predicting(loaded.task).subject(loaded.model.eval(), loaded.pattern, request)
    explanation, shown = subject.explanation(loaded.model, target, method, layer, head)
    names, explained = explanation.names, explanation.explained
    with torch.no_grad():
        value = float(shown(explained.outputs()))
    of: list[Literal["edges", "nodes"]] = ["nodes"] if explanation.edges is None else ["edges", "nodes"]
    fidelities = [fidelity(explanation, part, shown) for part in of]
    drawings = subject.drawings(explanation.edges, explanation.nodes, explained.node)
    chosen = {"method": method, "layer": layer, "head": head, "target": target}
    options = " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in chosen.items() if value is not None)
    options += typed_places(data)
    path = default_path(Path(run), input, method, target, layer, head) if out is None else Path(out)
    seconds = time.perf_counter() - started
    write(Page(Path(run), input, explanation, value, drawings, fidelities, options, seconds), path)
    print(f"{names.what}: {value:.4g}")
    sums, listings = explanation.sums(), explanation.listings()
    print("".join(f"{names.told(explanation.value, one)}\n" for one in sums), end="")
    titles = [*listings[0].head, "score"]
    print(columns([dict(zip(titles, row, strict=True)) for row in listings[0].rows], heads=True))
    for one in fidelities:
        print(f"{one.of}: {one.margin:+.0%} of the output's range above random orders (deletion and insertion)")
    print(path)
    best = explanation.nodes.abs().topk(min(NAMED, len(explanation.nodes))).indices.tolist()
    nodes = [{"node": names.nodes[j] if names.nodes else j, "score": float(explanation.nodes[j])} for j in best]
    margins = {part.of: part.margin for part in fidelities}
    found = {"run": run, "input": input, "what": names.what, "value": value, "method": method, "page": str(path)}
    found |= {"unit": names.unit, "explained": explanation.value, "sums": [one._asdict() for one in sums]}
    found |= {one.title.lower(): one.plain() for one in listings}
    return found | {"nodes": nodes, "fidelity": margins, "seconds": time.perf_counter() - started}
