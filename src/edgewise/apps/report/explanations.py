"""One page for one explanation: what is shown, a legend, how to read it, the scores, and how far to trust them."""

import json
import re
import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import sha256
from pathlib import Path

import numpy as np
from torch import Tensor

from edgewise.apps.report import pages
from edgewise.apps.report.pages import Markup, element
from edgewise.apps.report.report import footer
from edgewise.explanations import EXPLANATIONS, Explanation, Fidelity
from edgewise.files import write_file
from edgewise.tasks.core.drawing import Content, Curve, Curves, Drawing, Panel
from edgewise.tasks.core.task import EXAMPLE

FOLDER = "explanations"
LISTED = 10  # edges and nodes in the tables

SIGNED = """Blue speaks for the output and orange against it: the stronger the colour, the larger the score. Scores are
relative to the one furthest from 0."""
UNSIGNED = "The stronger the colour, the larger the score; there are no scores below 0."
READING = """An edge carries something from its sender to its receiver. The tables list the largest scores with their
values, those that are not 0, so that nothing hangs on colour alone."""
TRUST = """Left: the output as the edges or nodes of the highest scores are deleted first. Right: as they are inserted
first into an empty graph. The faster the left curve falls and the right one rises, the more the scores say; the curves
of random orders (a mean of several) and of the highest degrees show what an order knows that has not seen the model."""


@dataclass(frozen=True)
class Explained:
    """All that a page shows.

    Symbols     run, request, method = as the command line has them; options = further ones; what = the number in words;
                value = what curves show of it; names = of the nodes; drawings = of the scores; fidelities = of the
                edges, where there are any, and of the nodes; seconds = all that it took
    """

    run: Path
    request: str
    explanation: Explanation
    what: str
    value: float
    names: Sequence[str]
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


def write(made: Explained, path: Path) -> None:
    """Write a page, and, where it lies in the run's own folder, the list of these pages that its report links to."""
    from edgewise.apps.report.render import part  # matplotlib is loaded when something is drawn

    method = EXPLANATIONS[made.explanation.method]
    edges = made.explanation.edges
    body = [
        element("p", "Edgewise explanation", class_="eyebrow"),
        element("h1", f"Why {made.what}"),
        element("p", f"Input {made.request!r} of {made.run.resolve().name}: {method.meaning}.", class_="lead"),
        pages.headline(numbers(made)),
        element("h2", "What is shown"),
        *(part(content, None) for content in made.drawings),
        element("p", element("b", "Legend. "), SIGNED if method.signed else UNSIGNED),
        element("p", element("b", "How to read it. "), READING),
        element("h2", "The largest scores"),
        *([] if edges is None else [element("h3", "Edges"), table(made, edges, True)]),
        element("h3", "Nodes"),
        table(made, made.explanation.nodes, False),
        element("h2", "How far to trust it"),
        element("p", TRUST),
        *(part(trusted(one), None) for one in made.fidelities),
        *margins(made.fidelities),
        element("h2", "Reproduction"),
        element("pre", f"edgewise explain {shlex.quote(str(made.run))} {shlex.quote(made.request)} {made.options}"),
        footer(),
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    write_file(path, pages.page(f"Why {made.what} · Edgewise", *body).encode(errors="replace"))
    if path.parent.resolve() == (made.run / FOLDER).resolve():
        write_list(made.run)


def numbers(made: Explained) -> dict[str, str]:
    """The few that matter."""
    explanation = made.explanation
    found = {"output": f"{made.value:.4g}", "method": explanation.method}
    if explanation.missed is not None:
        found["sums miss"] = f"{explanation.missed:.1g}"
    return found | {"seconds": f"{made.seconds:.1f}"}


def table(made: Explained, scores: Tensor, of_edges: bool) -> Markup:
    """The edges or nodes of the largest scores, by their names; those whose score is 0 say nothing."""
    graph = made.explanation.graph
    names = made.names or [str(node) for node in range(max(graph.num_senders, graph.num_receivers))]
    top = scores.abs().topk(min(LISTED, int(scores.count_nonzero()))).indices.tolist()
    if not of_edges:
        return pages.table(["node", "score"], [[names[j], f"{float(scores[j]):+.4g}"] for j in top], ["score"])
    # Of a cross graph, receivers are named after the senders.
    first = 0 if graph.is_square else graph.num_senders
    ends = [(graph.senders[e].item(), graph.receivers[e].item() + first, e) for e in top]
    rows = [[names[int(j)], names[int(i)], f"{float(scores[e]):+.4g}"] for j, i, e in ends]
    return pages.table(["from", "to", "score"], rows, ["score"])


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


def margins(fidelities: Iterable[Fidelity]) -> list[Markup]:
    """How much better than random the orders are, in words."""
    rows = [
        [one.of, f"{one.method.area:+.3g}", f"{one.random.area:+.3g}", f"{one.degree.area:+.3g}", f"{one.margin:+.0%}"]
        for one in fidelities
    ]
    head = ["", "area between the curves", "random", "degree", "above random, of the output's range"]
    return [pages.table(head, rows, head[1:])]


def write_list(run: Path) -> None:
    """Write the list of a run's explanations, to which its report links."""
    folder = run / FOLDER
    folder.mkdir(exist_ok=True)
    written = sorted(path for path in folder.glob("*.html") if path.name != "index.html")
    links = [element("p", element("a", path.stem, href=f"./{path.name}")) for path in written]
    body = [
        element("p", "Edgewise run", class_="eyebrow"),
        element("h1", f"Explanations of {run.resolve().name}"),
        *(links or [element("p", "There are none yet.")]),
        element("pre", f"edgewise explain {shlex.quote(str(run))} INPUT"),
        element("p", element("a", "the run's report", href="../report.html")),
        footer(),
    ]
    write_file(
        folder / "index.html", pages.page(f"Explanations of {run.resolve().name}", *body).encode(errors="replace")
    )
