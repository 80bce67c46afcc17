"""The explorer's page run by node, beside the same numbers by PyTorch."""

import json
import random
import shutil
import subprocess
from collections.abc import Sequence
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import edgewise
from edgewise.apps.explorer import page
from edgewise.apps.explorer.examples import choices, planner
from edgewise.apps.explorer.weights import exported, pack, read
from edgewise.graphs import Graph

WEB = Path(__file__).parents[3] / "web"
Plain = dict[str, Any]
Pairs = list[tuple[int, int]]

node_needed = pytest.mark.skipif(shutil.which("node") is None, reason="needs node")


def in_node(content: Plain, cases: Sequence[Plain]) -> list[Plain]:
    """What the built script computes of some cases."""
    return all_in_node([(content, cases)])[0]


def all_in_node(jobs: Sequence[tuple[Plain, Sequence[Plain]]]) -> list[list[Plain]]:
    """The same of several pages."""
    listed = [{"page": content, "cases": cases} for content, cases in jobs]
    job = {"script": str(page.FOLDER / "page.js"), "jobs": listed}
    done = subprocess.run(
        ["node", str(WEB / "test" / "numbers.mjs")], input=json.dumps(job), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-600:]
    return json.loads(done.stdout)


def content_of(model: nn.Module, graph: Graph, features: Tensor, outputs: int) -> Plain:
    """A page's content for a model that no run has trained."""
    data = exported(model, [f"class {k}" for k in range(outputs)])
    graphs = choices(graph, "its own", planner(data["heads"], data["width"] // data["heads"]))
    names = [str(k) for k in range(graph.num_receivers)]
    example = {
        "title": "",
        "note": "",
        "names": names,
        "features": pack(features),
        "targets": None,
        "graphs": graphs,
        "predictions": [],
    }
    return {"title": "", "lead": "", "source": "", "start": {}, "model": data, "examples": [example]}


def edited(graph: Graph, edits: Pairs) -> Graph:
    """The graph whose edges (receiver, sender) in `edits` are drawn where they are not, and removed where they are."""
    edges = set(zip(graph.receivers.tolist(), graph.senders.tolist(), strict=True)).symmetric_difference(edits)
    pairs = torch.tensor(sorted(edges), dtype=torch.int64).reshape(-1, 2)
    return Graph.from_edge_index(pairs.T.flip(0), graph.num_receivers)


def random_edits(nodes: int, count: int, seed: int) -> Pairs:
    """Different pairs."""
    pairs = [(i, j) for i in range(nodes) for j in range(nodes)]
    return random.Random(seed).sample(pairs, min(count, len(pairs)))


@torch.no_grad()
def by_torch(model: Any, graph: Graph, *inputs: Any) -> Plain:
    """Outputs, what each block leaves, and the weights of every attention, by PyTorch."""
    states: list[Tensor] = []
    hooks = [block.register_forward_hook(lambda _, given, made: states.append(made)) for block in model.blocks]
    with edgewise.record() as seen:
        reading = read(model, graph, *inputs)
    for hook in hooks:
        hook.remove()
    return {
        "graph": reading.graph,
        "outputs": reading.output,
        "states": [reading.features, *states],
        "p": [one.weights for one in seen],
    }


def in_double(model: nn.Module, graph: Graph, *inputs: Any) -> Plain:
    """The same in float64, from the embedded nodes in float32 that the page has: float32 rounding is out of the way."""
    embedded, twin = read(model, graph, *inputs).features, deepcopy(model).double()
    doubled = [x.double() if x.is_floating_point() else x for x in inputs]
    first: Any = twin.blocks[0]
    first.register_forward_pre_hook(lambda _, given: (given[0], embedded.double(), *given[2:]))
    return by_torch(twin, graph, *doubled)


def close(found: Plain, expected: Plain, tolerance: float) -> bool:
    """Whether the page's numbers are PyTorch's, but for an absolute difference."""
    pairs = [(found["outputs"], expected["outputs"])]
    pairs += zip(found["states"], expected["states"], strict=True)
    pairs += zip(found["p"], expected["p"], strict=True)
    return all(
        torch.allclose(torch.tensor(a, dtype=torch.float64), b.flatten().double(), rtol=0, atol=tolerance)
        for a, b in pairs
    )
