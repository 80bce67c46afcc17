"""`edgewise explain`: why a run's best weights predict what they predict for an input, on one page."""

from __future__ import annotations

import shlex
import time
from pathlib import Path
from typing import Any, Literal

import torch

from edgewise import training
from edgewise.apps.arguments import typed_places
from edgewise.apps.report.explanations import Explained, default_path, write
from edgewise.explanations import fidelity, scores
from edgewise.tasks.core.abilities import predicting
from edgewise.training import Moved

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
    loaded = training.load_run(Path(run), device="cpu", accept=accept, folder=data)
    subject = predicting(loaded.task).subject(loaded.model.eval(), loaded.pattern, input)
    explained, shown, what = subject.explained(loaded.model, target)
    explanation = scores(explained, method, layer, head)
    with torch.no_grad():
        value = float(shown(explained.outputs()))
    of: list[Literal["edges", "nodes"]] = ["nodes"] if explanation.edges is None else ["edges", "nodes"]
    fidelities = [fidelity(explanation, part, shown) for part in of]
    drawings = subject.drawings(explanation.edges, explanation.nodes, explained.node)
    chosen = {"method": method, "layer": layer, "head": head, "target": target}
    options = " ".join(f"--{name} {shlex.quote(str(value))}" for name, value in chosen.items() if value is not None)
    options += typed_places(data)
    path = default_path(Path(run), input, method, target, layer, head) if out is None else Path(out)
    names = list(subject.names)
    seconds = time.perf_counter() - started
    made = (Path(run), input, explanation, what, value, names, drawings, fidelities, options, seconds)
    write(Explained(*made), path)
    print(f"{what}: {value:.4g}")
    for part in fidelities:
        print(f"{part.of}: {part.margin:+.0%} of the output's range above random orders (deletion and insertion)")
    print(path)
    best = explanation.nodes.abs().topk(min(NAMED, len(explanation.nodes))).indices.tolist()
    nodes = [{"node": names[j] if names else j, "score": float(explanation.nodes[j])} for j in best]
    margins = {part.of: part.margin for part in fidelities}
    found = {"run": run, "input": input, "what": what, "value": value, "method": method, "page": str(path)}
    return found | {"nodes": nodes, "fidelity": margins, "seconds": time.perf_counter() - started}
