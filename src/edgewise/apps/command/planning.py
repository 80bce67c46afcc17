"""`edgewise plan`: what the planner would choose for a graph and a score, and why."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import asdict, fields
from typing import Any

import torch
from torch import nn

import edgewise
from edgewise import configuration
from edgewise.apps.command.listing import columns
from edgewise.apps.options import assignments, overridden
from edgewise.configuration import known, options_of
from edgewise.errors import ConfigError
from edgewise.graphs import PATTERNS, Graph
from edgewise.kernels import Score
from edgewise.kernels.choose import measure as calibration
from edgewise.kernels.choose.machines import Machine

SPEEDS = [field.name for field in fields(Machine)]


def plan(
    pattern: str | None,
    options: Sequence[str],
    score: str,
    heads: int,
    channels: int,
    batch: int,
    dtype: str,
    device: str = "cpu",
    *,
    calibrate: bool = False,
) -> dict[str, Any]:
    """Print the planner's table for a device, after measuring it where that is asked for."""
    if device == "cuda" and not torch.cuda.is_available():
        raise ConfigError("--device cuda: PyTorch sees no GPU of NVIDIA's here; use cpu")
    answer: dict[str, Any] = {}
    if calibrate:
        measured = {kind: asdict(machine) for kind, machine in calibration.calibrate(device).items()}
        print(f"{'this machine' if device == 'cpu' else torch.cuda.get_device_name()}, per second (launch: seconds):")
        rows = [{"": "", **{kind: kind for kind in measured}}] if len(measured) > 1 else []
        rows += [{"": name} | {kind: f"{measured[kind][name]:.3g}" for kind in measured} for name in SPEEDS]
        print(columns(rows))
        answer["machine"] = measured
    if pattern is None:
        if not calibrate:
            raise ConfigError(f"name a pattern, such as `edgewise plan causal n=1024`; known are {', '.join(PATTERNS)}")
        return answer
    known("pattern", pattern, PATTERNS)
    known("score", score, SCORES)
    graph = build(pattern, options).to(device)
    table = edgewise.plan(
        graph,
        SCORES[score](heads, channels),
        heads=heads,
        channels=channels,
        batch=() if batch == 1 else (batch,),
        dtype=getattr(torch, dtype),
    )
    print(table)
    candidates = [{"backend": one.backend, "seconds": one.seconds, "refusal": one.refusal} for one in table.candidates]
    return answer | {"graph": repr(graph), "choice": table.choice, "candidates": candidates}


def build(pattern: str, options: Sequence[str]) -> Graph:
    """A pattern's graph from options written `name=value`."""
    made = PATTERNS[pattern]
    given = overridden({}, assignments(options, options_of(made)))
    return configuration.build(made, given, pattern)


def _gated(heads: int, channels: int) -> Score:
    return edgewise.GatedAdditive(torch.zeros(heads, channels))


SCORES: dict[str, Callable[[int, int], Score]] = {
    "Dot": lambda heads, channels: edgewise.Dot(),
    "Additive": lambda heads, channels: edgewise.Additive(),
    "GatedAdditive": _gated,
    "Gaussian": lambda heads, channels: edgewise.Gaussian(1.0),
    "Uniform": lambda heads, channels: edgewise.Uniform(),
    "Kernel": lambda heads, channels: edgewise.Kernel(nn.Softplus()),
}
