"""Explanations from gradients: gradient times input, and integrated gradients, whose scores add up to the output."""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from math import isfinite

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import ExplanationError
from edgewise.explanations.attention import Scores
from edgewise.explanations.explained import Explained

POINTS, SHARES = (torch.from_numpy(part).float() for part in np.polynomial.legendre.leggauss(2))
TOLERANCE = 5e-4  # of the sum of integrated gradients, relative to the output's change or to 1, whichever is larger
SPREAD = 1e-2  # of what the intervals miss, regardless of signs, which bounds the error of any one score
MOST_INTERVALS = 800  # 2 gradients each; networks of ReLUs on MUTAG and ESOL need 200 to 600 (counted)
Part = tuple[float, float, float, float, Tensor]  # of an interval: -|missed|, from, to, missed, the integral


def gradient(explained: Explained) -> Scores:
    """Gradient times input: ∂F/∂g_j, which is Σ_c x_jc ∂F/∂x_jc for a baseline of 0, and ∂F/∂m_e.

    Reference   Shrikumar et al., "Not just a black box", 2016; on edges: Sundararajan et al. 2017 at one point
    """
    ones = torch.ones(explained.num_nodes), torch.ones(explained.edges.num_edges)
    edges = _slope(lambda m: explained(None, m), ones[1])
    nodes = None if explained.baseline is None else _slope(lambda g: explained(g, None), ones[0])
    return edges, nodes


def integrated(explained: Explained) -> tuple[Tensor, Tensor | None, float]:
    """Integrated gradients of the nodes' features and of the edges' messages, and by how much their sums miss.

    Equation    s_j = ∫₀¹ ∂F(α 1, 1)/∂g_j dα, so that Σ_j s_j = F(1, 1) - F(0, 1);  s_e = ∫₀¹ ∂F(1, α 1)/∂m_e dα, so
                that Σ_e s_e = F(1, 1) - F(1, 0)
    Cost        2 gradients for each interval: the one that misses most is halved until both sums hold to 1e-3, at most
                800 times; a model that jumps along the way misses more, and the result says by how much
    Reference   Sundararajan, Taly & Yan, "Axiomatic attribution for deep networks", 2017, eq. 1
    """
    edges, missed = _along(lambda m: explained(None, m), explained.edges.num_edges)
    if explained.baseline is None:
        return edges, None, missed
    nodes, missed_nodes = _along(lambda g: explained(g, None), explained.num_nodes)
    return edges, nodes, max(missed, missed_nodes)


def _slope(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    at = at.detach().requires_grad_()
    value = function(at)
    if not value.requires_grad:
        return torch.zeros_like(at)
    (slope,) = torch.autograd.grad(value, at, allow_unused=True)
    return torch.zeros_like(at) if slope is None else slope


def _along(function: Callable[[Tensor], Tensor], count: int) -> tuple[Tensor, float]:
    """The integral of the gradient from all gates shut to all open, and the difference to the function's change."""

    def at(place: float) -> float:
        with torch.no_grad():
            return float(function(torch.full((count,), place)))

    def integral(low: float, high: float) -> Tensor:
        places = (low + (high - low) * (POINTS + 1) / 2).tolist()
        slopes = [_slope(function, torch.full((count,), place)) for place in places]
        return torch.stack(slopes).mul(SHARES[:, None] * (high - low) / 2).sum(0)

    def part(low: float, high: float, change: float) -> Part:
        integrated = integral(low, high)
        missed = float(integrated.sum()) - change
        if not isfinite(missed):
            where = f"between {low:g} and {high:g} of the way from the baseline"
            raise ExplanationError(f"the gradient {where} is not finite: choose another baseline, or leave-one-out")
        return -abs(missed), low, high, missed, integrated

    start, end = at(0.0), at(1.0)
    parts = [part(0.0, 1.0, end - start)]
    evaluated = {0.0: start, 1.0: end}
    scale = max(1.0, abs(end - start))
    missed, spread = _missed(parts)
    while len(parts) < MOST_INTERVALS and (abs(missed) > TOLERANCE * scale or spread > SPREAD * scale):
        _, low, high, _, _ = heappop(parts)  # that which misses most
        middle = (low + high) / 2
        evaluated[middle] = at(middle)
        for one, other in ((low, middle), (middle, high)):
            heappush(parts, part(one, other, evaluated[other] - evaluated[one]))
        missed, spread = _missed(parts)
    total = torch.stack([one[-1] for one in parts]).double().sum(0).float()
    return total, abs(float(total.sum()) - (end - start))


def _missed(parts: list[Part]) -> tuple[float, float]:
    return sum(part[3] for part in parts), -sum(part[0] for part in parts)
