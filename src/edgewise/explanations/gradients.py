"""Explanations from gradients: gradient times input, and integrated gradients, whose scores add up to the output."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from heapq import heappop, heappush
from math import isfinite, prod
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import ExplanationError
from edgewise.explanations.explained import Explained

POINTS = torch.from_numpy(np.polynomial.legendre.leggauss(2)[0]).float()  # in [-1, 1]; both count 1
TOLERANCE = 5e-4  # of the sum of integrated gradients, relative to the output's change or to 1, whichever is larger
SPREAD = 1e-2  # of what Gauss's rule misses on the intervals, regardless of signs, relative to the same
MOST_INTERVALS = 100  # of a part, by halving: at most 398 gradients and 200 values; most models need 1 to 30 (counted)
SHORTEST = 1e-6  # of an interval, relative to its end: what misses much there is a jump, which no gradient sees


def gradient(explained: Explained) -> tuple[Tensor, Tensor | None, None, list[Tensor]]:
    """Gradient times input: ∂F/∂g_jc, which is x_jc ∂F/∂x_jc for a baseline of 0, their sum over c, and ∂F/∂m_e.

    Reference   Shrikumar et al., "Not just a black box", 2016; on edges: Sundararajan et al. 2017 at one point
    """
    edges = _slope(lambda m: explained(None, m), torch.ones(explained.edges.num_edges, device=explained.device))
    if explained.baseline is None:
        return edges, None, None, []
    g = torch.ones(_count(explained), device=explained.device)
    return edges, *_by_feature(explained, _slope(lambda g: explained(explained.gates(g)), g), None)


def integrated(explained: Explained) -> tuple[Tensor, Tensor | None, float, list[Tensor]]:
    """Integrated gradients of all features and of the edges' messages, and by how much their sums miss.

    Equation    s_jc = ∫₀¹ ∂F(α 1, 1)/∂g_jc dα, so that Σ_jc s_jc = F(1, 1) - F(0, 1), with those of further features
                where they vary; s_j = Σ_c s_jc;  s_e = ∫₀¹ ∂F(1, α 1)/∂m_e dα, so that Σ_e s_e = F(1, 1) - F(1, 0)
                On an interval the integral is h (w ∂(a) + (1 - w) ∂(b)) of the gradients at Gauss's two points, with
                the w that makes its sum the change of F; w = 1/2 where that one is not in [0, 1]. It is exact for one
                kink between the points, as a ReLU makes them, and of Gauss's order where F is smooth
    Cost        2 gradients for each interval, of at most 100: that on which Gauss's rule misses most is halved until
                both sums hold to 1e-3. A model that jumps along the way misses more, and the result says by how much
    Reference   Sundararajan, Taly & Yan, "Axiomatic attribution for deep networks", 2017, eq. 1
    """
    edges, missed = _along(lambda m: explained(None, m), explained.edges.num_edges, explained.device)
    if explained.baseline is None:
        return edges, None, missed, []
    features, more = _along(lambda g: explained(explained.gates(g)), _count(explained), explained.device)
    return edges, *_by_feature(explained, features, max(missed, more))


def _count(explained: Explained) -> int:
    return sum(map(prod, explained.shapes))


def _by_feature(explained: Explained, flat: Tensor, missed: Any) -> tuple[Tensor, Any, list[Tensor]]:
    """Of one long tensor of scores those of the nodes, and those of each feature, where x has some of its own."""
    own, *more = explained.gates(flat)
    return own if own.ndim == 1 else own.sum(-1), missed, [] if own.ndim == 1 and not more else [own, *more]


def _slope(function: Callable[[Tensor], Tensor], at: Tensor) -> Tensor:
    at = at.detach().requires_grad_()
    value = function(at)
    if not value.requires_grad:
        return torch.zeros_like(at)
    (slope,) = torch.autograd.grad(value, at, allow_unused=True)
    return torch.zeros_like(at) if slope is None else slope


class _Interval(NamedTuple):
    """A part of the way, ordered by what Gauss's rule misses: -|bent|, or 0 where it is too short to be divided."""

    order: float
    low: float
    high: float
    bent: float
    missed: float
    integral: Tensor


def _along(function: Callable[[Tensor], Tensor], count: int, device: torch.device) -> tuple[Tensor, float]:
    """The integral of the gradient from all gates shut to all open, and the difference to the function's change."""

    @cache
    def at(place: float) -> float:
        with torch.no_grad():
            return float(function(torch.full((count,), place, device=device)))

    def interval(low: float, high: float) -> _Interval:
        places = (low + (high - low) * (POINTS + 1) / 2).tolist()
        slopes = torch.stack([_slope(function, torch.full((count,), place, device=device)) for place in places])
        first, second = slopes.sum(-1).tolist()
        change, length = at(high) - at(low), high - low
        bent = length * (first + second) / 2 - change
        part = (change / length - second) / (first - second) if first != second else 0.5
        part = part if 0 <= part <= 1 else 0.5
        missed = length * (part * first + (1 - part) * second) - change
        integral = length * (part * slopes[0] + (1 - part) * slopes[1])
        if not isfinite(missed):
            where = f"between {low:g} and {high:g} of the way from the baseline"
            raise ExplanationError(f"the gradient {where} is not finite: choose another baseline, or leave-one-out")
        order = -abs(bent) if length > SHORTEST * high else 0.0
        return _Interval(order, low, high, bent, missed, integral)

    parts = [interval(0.0, 1.0)]
    change = at(1.0) - at(0.0)
    scale = max(1.0, abs(change))
    while len(parts) < MOST_INTERVALS and parts[0].order < 0:
        missed, bent = sum(part.missed for part in parts), sum(abs(part.bent) for part in parts)
        if abs(missed) <= TOLERANCE * scale and bent <= SPREAD * scale:
            break
        _, low, high, *_ = heappop(parts)  # that which misses most
        middle = (low + high) / 2
        heappush(parts, interval(low, middle))
        heappush(parts, interval(middle, high))
    total = torch.stack([part.integral for part in parts]).double().sum(0).float()
    return total, abs(float(total.sum()) - change)
