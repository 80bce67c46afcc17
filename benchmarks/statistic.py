"""Medians and quartiles of repeated measurements."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True)
class Spread:
    """The median of several measurements, the quartiles around it, and how many there were."""

    median: float
    low: float
    high: float
    rounds: int


def spread(values: Sequence[float]) -> Spread:
    """Median and quartiles.

    Example
        >>> spread([3.0, 1.0, 2.0, 5.0, 4.0])
        Spread(median=3.0, low=2.0, high=4.0, rounds=5)
    """
    if len(values) == 1:
        return Spread(values[0], values[0], values[0], 1)
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return Spread(middle, low, high, len(values))


def slope(sizes: Sequence[float], values: Sequence[float]) -> float:
    """The exponent s of the least-squares fit value = c · size^s.

    Example
        >>> round(slope([1, 2, 4], [3, 12, 48]), 6)
        2.0
    """
    x, y = [math.log(size) for size in sizes], [math.log(max(value, 1e-12)) for value in values]
    return statistics.linear_regression(x, y).slope
