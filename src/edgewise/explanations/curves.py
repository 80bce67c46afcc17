"""How far an explanation is to be trusted: what becomes of the output as its highest scores are deleted or inserted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from edgewise.errors import ExplanationError
from edgewise.explanations.explained import Explained, one_number
from edgewise.explanations.methods import Explanation
from edgewise.explanations.reach import around, within_reach
from edgewise.graphs.checks import whole_number

POINTS = 11  # of a curve: after every tenth of what is deleted
ORDERS = 5  # drawn at random, for the mean curve


@dataclass(frozen=True)
class Curve:
    """Outputs after the shares 0, 1/10, ..., 1 of edges or nodes were deleted, or inserted, highest scores first."""

    deletion: Tensor
    insertion: Tensor

    @property
    def area(self) -> float:
        """How much higher the insertion lies than the deletion, on average: about 0 for a random order."""
        difference = self.insertion - self.deletion
        return float(torch.trapezoid(difference) / (len(difference) - 1))


@dataclass(frozen=True)
class Fidelity:
    """The curves of an explanation, of random orders (their mean), and of the highest degrees first.

    Symbols     of = what is deleted; count = how many of them are within reach
    """

    of: Literal["edges", "nodes"]
    count: int
    method: Curve
    random: Curve
    degree: Curve

    @property
    def margin(self) -> float:
        """By how much the explanation's area exceeds that of random orders, as a share of the output's range."""
        curves = (self.method, self.random, self.degree)
        seen = torch.cat([part for curve in curves for part in (curve.deletion, curve.insertion)])
        span = float(seen.max() - seen.min())
        return (self.method.area - self.random.area) / span if span > 0 else 0.0


@torch.no_grad()
def fidelity(
    explanation: Explanation,
    of: Literal["edges", "nodes"] = "edges",
    shown: Callable[[Tensor], Tensor] | None = None,
    orders: int = ORDERS,
) -> Fidelity:
    """The deletion and insertion curves of an explanation, beside random orders and beside degrees.

    Equation    deletion: F without the ⌊s n⌋ highest of n scores, for s = 0, 1/10, ..., 1; insertion: F with these
                alone. An edge is deleted by removing it, a node by its features becoming the baseline, or, where there
                is none, by removing its edges
    Symbols     of = "edges" or "nodes"; shown = another number to draw than the one explained, such as a probability;
                orders = how many random ones are averaged; an edge's degree is the sum of its ends'
    Errors      ExplanationError for edges where the model reads none
    Cost        2 POINTS (orders + 2) evaluations; only what is within reach of the explained node is deleted
    Reference   Petsiuk, Das & Saenko, "RISE", 2018, §4.2; Yuan et al., "Explainability in graph neural networks", 2022
    """
    if not isinstance(explanation, Explanation):
        raise ExplanationError(f"fidelity is of an Explanation, which explain returns, not of {explanation!r:.60}")
    if of not in ("edges", "nodes"):
        raise ExplanationError(f"of must be 'edges' or 'nodes', not {of!r}")
    orders = whole_number(orders, "orders", least=1)
    scores, explained = explanation.edges if of == "edges" else explanation.nodes, explanation.explained
    if scores is None:
        raise ExplanationError("the model reads no edges: there are none to delete; take the nodes")
    small = around(explained)
    if small is not None:
        explained, scores = small.explained, scores[small.edges if of == "edges" else small.nodes]
    reach = within_reach(explained)[0 if of == "edges" else 1].nonzero()[:, 0]
    graph, size = explained.edges, len(scores)
    degrees = graph.in_degrees() + graph.out_degrees() if graph.is_square else graph.out_degrees()
    ends = degrees[graph.senders] + (degrees[graph.receivers] if graph.is_square else 0)
    per_node = degrees if len(degrees) == size else degrees.new_zeros(size)  # tokens of sources have none
    degree = ends if of == "edges" else per_node
    generator = torch.Generator("cpu").manual_seed(0)  # the same orders on all devices

    def number(outputs: Tensor) -> Tensor:
        if shown is None:
            return explained.target(outputs)
        return one_number(shown(outputs if small is None else small.outputs(outputs)), "shown")

    def curve(order: Tensor) -> Curve:
        return _curve(explained, reach[order], of, size, number)

    drawn = [
        curve(torch.randperm(len(reach), generator=generator, device="cpu").to(reach.device)) for _ in range(orders)
    ]
    mean = Curve(
        *(torch.stack(parts).mean(0) for parts in zip(*((c.deletion, c.insertion) for c in drawn), strict=True))
    )
    by_method = curve(scores[reach].argsort(descending=True, stable=True))
    return Fidelity(of, len(reach), by_method, mean, curve(degree[reach].argsort(descending=True, stable=True)))


def _curve(explained: Explained, order: Tensor, of: str, size: int, shown: Callable[[Tensor], Tensor]) -> Curve:
    def output(gate: Tensor) -> Tensor:
        if of == "nodes" and explained.baseline is not None:
            return shown(explained.outputs(gate)).reshape(())
        ends = explained.edges  # a node without a baseline goes with its edges
        m = gate if of == "edges" else gate[ends.receivers] * gate[ends.senders]
        return shown(explained.outputs(None, m, removing=True)).reshape(())

    deletion, insertion = [], []
    for share in (n * len(order) // (POINTS - 1) for n in range(POINTS)):
        without, alone = (torch.ones(size, device=order.device) for _ in range(2))
        without[order[:share]] = 0.0
        alone[order[share:]] = 0.0
        deletion.append(output(without))
        insertion.append(output(alone))
    return Curve(torch.stack(deletion).float(), torch.stack(insertion).float())
