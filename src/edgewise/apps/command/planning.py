"""`edgewise plan`: what the planner would choose for a graph and a score, or for every call of a layer, and why."""

import math
from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any

import torch
from torch import nn

import edgewise
from edgewise import configuration, kernels, layers
from edgewise.apps.console import columns
from edgewise.apps.options import assignments, overridden
from edgewise.configuration import known, options_of
from edgewise.errors import ConfigError
from edgewise.graphs import PATTERNS, Graph
from edgewise.kernels import Plan, Score
from edgewise.kernels.planning import machines

SPEEDS = [field.name for field in fields(machines.Machine)]


def plan(
    pattern: str | None,
    options: Sequence[str],
    score: str | None,
    layer: str | None,
    heads: int,
    channels: int,
    batch: int,
    dtype: str,
    device: str,
    calibrate: bool,
) -> dict[str, Any]:
    """Print the planner's table for a score, or one for each call of a layer; first measure the device, to `calibrate`.

    Symbols     score = a name of SCORES, layer = one of PLANNED, None where it is the other; both None: Dot
    """
    if None not in (score, layer):
        raise ConfigError("--score and --layer exclude one another: a layer has its own scores")
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: PyTorch sees no GPU of NVIDIA's here; use cpu")
    result: dict[str, Any] = {}
    if calibrate:
        measured = {kind: asdict(machine) for kind, machine in machines.calibrate(device).items()}
        print(f"{'this machine' if device == 'cpu' else torch.cuda.get_device_name()}, per second (launch: seconds):")
        rows = [{"": name} | {kind: f"{speeds[name]:.3g}" for kind, speeds in measured.items()} for name in SPEEDS]
        print(columns(rows, heads=len(measured) > 1))
        result["machine"] = measured
    if pattern is None:
        if not calibrate:
            raise ConfigError(f"name a pattern, such as `edgewise plan causal n=1024`; known are {', '.join(PATTERNS)}")
        return result
    known("pattern", pattern, PATTERNS)
    if layer is None:
        score = "Dot" if score is None else score
        known("score", score, SCORES)
    else:
        known("layer", layer, PLANNED)
    graph, lead, precision = build(pattern, options).to(device), () if batch == 1 else (batch,), getattr(torch, dtype)
    if score is not None:
        size: dict[str, Any] = {"heads": heads, "channels": channels, "batch": lead, "dtype": precision}
        tables = [edgewise.plan(graph, SCORES[score].example(heads, channels), **size)]
    elif layer is not None:
        made, shapes = PLANNED[layer](heads, channels)
        inputs = [torch.randn(*lead, graph.num_receivers, *shape, dtype=precision, device=device) for shape in shapes]
        with torch.no_grad(), edgewise.plans() as tables:
            made.to(graph.device, precision)(graph, *inputs)
    print(*tables, sep="\n")
    plans = [{"what": table.what, "choice": table.choice, "candidates": _candidates(table)} for table in tables]
    return result | {"graph": repr(graph)} | (plans[0] if score is not None else {"calls": plans})


def _candidates(table: Plan) -> list[dict[str, Any]]:
    known = {c.backend: None if c.seconds is None or math.isinf(c.seconds) else c.seconds for c in table.candidates}
    return [{"backend": c.backend, "seconds": known[c.backend], "refusal": c.refusal} for c in table.candidates]


def build(pattern: str, options: Sequence[str]) -> Graph:
    """A pattern's graph from options written `name=value`."""
    made = PATTERNS[pattern]
    given = overridden({}, assignments(options, options_of(made)))
    return configuration.build(made, given, pattern)


SCORES: dict[str, type[Score]] = {
    name: kind
    for name, kind in vars(kernels).items()
    if isinstance(kind, type) and issubclass(kind, Score) and kind is not Score
}

Planned = tuple[nn.Module, tuple[tuple[int, ...], ...]]  # a layer, and the shapes of a node's inputs

PLANNED: dict[str, Callable[[int, int], Planned]] = {
    "GAT": lambda heads, C: (layers.GAT(heads * C, C, heads), ((heads * C,),)),
    "GraphNetwork": lambda heads, C: (_graph_network(C), ((C,),)),
    "EdgeConv": lambda heads, C: (layers.EdgeConv(layers.MLP([2 * C, C, C])), ((C,),)),
    "MessageNetwork": lambda heads, C: (layers.MessageNetwork(C, C), ((C,),)),
    "RadialField": lambda heads, C: (layers.RadialField(C), ((3,), (3,))),
    "EGNN": lambda heads, C: (layers.EGNN(C, C), ((C,), (3,))),
    "AttentionEGNN": lambda heads, C: (layers.AttentionEGNN(C, C), ((C,), (3,))),
    "SchNet": lambda heads, C: (layers.SchNet(C, C), ((C,), (3,))),
    "TFN": lambda heads, C: (layers.TFN(C), ((4, C), (3,))),
    "SE3Attention": lambda heads, C: (layers.SE3Attention(heads * C, heads), ((4, heads * C), (3,))),
}


def _graph_network(C: int) -> nn.Module:
    edge, node = (layers.MLP([width * C, C, C]) for width in (2, 2))
    return layers.GraphNetwork(layers.EdgeUpdate(edge), layers.NodeUpdate(node), None)
