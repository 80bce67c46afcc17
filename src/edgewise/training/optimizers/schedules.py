"""Learning-rate schedules: the fraction of the learning rate that a step uses, a pure function of its number."""

from collections.abc import Callable
from math import cos, pi

Schedule = Callable[[int, int, int, float], float]


def warming(step: int, warmup: int) -> float:
    """The linear rise (t + 1) / (warmup + 1) over steps t < warmup, then 1: no step is wasted on a rate of zero."""
    return min(1.0, (step + 1) / (warmup + 1))


def constant(step: int, steps: int, warmup: int = 0, minimum: float = 0.0) -> float:
    """The full rate after the warm-up, to the end."""
    return warming(step, warmup)


def linear(step: int, steps: int, warmup: int = 0, minimum: float = 0.0) -> float:
    """Warm-up, then decay by the same amount every step, as RoBERTa and BERT are trained.

    Equation    f(t) = minimum + (1 - minimum) (T - t) / (T - W), for W ≤ t ≤ T.
    Symbols     `step` = t, counted from 0; `steps` = T, where f reaches `minimum`; `warmup` = W.
    Reference   Liu et al. (2019), "RoBERTa: a robustly optimized BERT pretraining approach", section 3.1.

    Example
        >>> [linear(t, steps=6, warmup=2) for t in range(7)]
        [0.3333333333333333, 0.6666666666666666, 1.0, 0.75, 0.5, 0.25, 0.0]
    """
    if step < warmup:
        return warming(step, warmup)
    return minimum + (1 - minimum) * (1 - _progress(step, steps, warmup))


def cosine(step: int, steps: int, warmup: int = 0, minimum: float = 0.0) -> float:
    """Warm-up, then half a cosine down to the minimum, as nanoGPT is trained.

    Equation    f(t) = minimum + (1 - minimum) (1 + cos(π (t - W) / (T - W))) / 2, for W ≤ t ≤ T.
    Symbols     `step` = t, counted from 0; `steps` = T, where f reaches `minimum`; `warmup` = W.
    Reference   Loshchilov and Hutter (2017), "SGDR: stochastic gradient descent with warm restarts", eq. 5.

    Example
        >>> [round(cosine(t, steps=4, minimum=0.1), 3) for t in range(5)]
        [1.0, 0.868, 0.55, 0.232, 0.1]
    """
    if step < warmup:
        return warming(step, warmup)
    return minimum + (1 - minimum) * 0.5 * (1 + cos(pi * _progress(step, steps, warmup)))


def _progress(step: int, steps: int, warmup: int) -> float:
    """How much of the decay is over, 0 to 1."""
    return min(1.0, (step - warmup) / max(1, steps - warmup))


def polynomial(step: int, steps: int, warmup: int = 0, minimum: float = 0.0) -> float:
    """Warm-up, then the fall that Langevin dynamics needs: its steps add up to infinity, their squares do not.

    Equation    f(t) = (1 + (t - W)/b)^-γ, γ = 0.55, for W ≤ t ≤ T, which is a (b + t)^-γ for a = b^γ.
    Symbols     `step` = t, counted from 0; `warmup` = W; `steps` = T, where f reaches `minimum` (0: a hundredth): this
                decides b.
    Reference   Welling and Teh (2011), "Bayesian learning via stochastic gradient Langevin dynamics", (2), section 5.

    Example
        >>> [round(polynomial(t, steps=4, minimum=0.1), 3) for t in range(5)]
        [1.0, 0.209, 0.145, 0.117, 0.1]
    """
    if step < warmup:
        return warming(step, warmup)
    ratio = float((minimum or 0.01) ** (-1 / 0.55))  # 1 + (T - W)/b
    return float((1 + (ratio - 1) * _progress(step, steps, warmup)) ** -0.55)


SCHEDULES: dict[str, Schedule] = {
    "constant": constant,
    "linear": linear,
    "cosine": cosine,
    "polynomial": polynomial,
}
