"""Learning-rate schedules: the fraction of the learning rate that a step uses, a pure function of its number.

A schedule is called with the step t, counted from 0, and the number of steps T. Over the first W steps, its `warmup`,
it rises linearly, (t + 1) / (W + 1), so that no step is wasted on a rate of zero; then it follows its equation, for
W ≤ t ≤ T.
"""

from dataclasses import dataclass
from math import cos, pi
from typing import Annotated

from edgewise.configuration import Bounds, Natural


@dataclass(frozen=True)
class Constant:
    """The full rate after the warm-up, to the end.

    Args:
        warmup: Steps over which the rate rises linearly to the learning rate.
    """

    warmup: Natural = 0

    def __call__(self, step: float, steps: int) -> float:
        if step < self.warmup:
            return (step + 1) / (self.warmup + 1)
        return self.after(min(1.0, (step - self.warmup) / max(1, steps - self.warmup)))

    def after(self, progress: float) -> float:
        """The fraction after the warm-up, at a progress (t - W) / (T - W) from 0 to 1."""
        return 1.0

    def left(self, cuts: int) -> float:
        """What the validation scores leave of the rate that have stood still so often; 0: training ends."""
        return 0.0 if cuts else 1.0


@dataclass(frozen=True)
class Plateau(Constant):
    """Warm-up, then the full rate, which is cut whenever the validation score has stood still for
    `evaluation.patience` evaluations; over the last part of the steps or the time it falls to zero.

    Args:
        factor: What a cut leaves of the rate; training goes on from the best weights.
        minimum: A rate below this fraction ends training.
        decay: The share of all steps in which it falls to zero.

    Equation    f(t) = factor^k min(1, (T - t) / (decay (T - W))), k the number of cuts

    Example
        >>> plateau = Plateau(factor=0.5, minimum=0.2, decay=0.25)
        >>> [plateau(t, 8) for t in range(9)], [plateau.left(k) for k in range(4)]
        ([1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0, 0.5, 0.0], [1.0, 0.5, 0.25, 0.0])
    """

    factor: Annotated[float, Bounds(above=0, below=1)] = 0.3
    minimum: Annotated[float, Bounds(above=0, at_most=1)] = 0.02
    decay: Annotated[float, Bounds(above=0, at_most=1)] = 0.2

    def after(self, progress: float) -> float:
        return max(0.0, min(1.0, (1 - progress) / self.decay))

    def left(self, cuts: int) -> float:
        rate = self.factor**cuts
        return rate if rate >= self.minimum else 0.0


@dataclass(frozen=True)
class Linear(Constant):
    """Warm-up, then decay by the same amount every step, as RoBERTa and BERT are trained.

    Args:
        minimum: Fraction of the learning rate that one step more would have: the last step, T - 1, is just above it.

    Equation    f(t) = minimum + (1 - minimum) (T - t) / (T - W)
    Reference   Liu et al. (2019), "RoBERTa: a robustly optimized BERT pretraining approach", section 3.1.

    Example
        >>> [Linear(warmup=2)(t, 6) for t in range(7)]
        [0.3333333333333333, 0.6666666666666666, 1.0, 0.75, 0.5, 0.25, 0.0]
    """

    minimum: Annotated[float, Bounds(at_least=0, at_most=1)] = 0.0

    def after(self, progress: float) -> float:
        return self.minimum + (1 - self.minimum) * (1 - progress)


@dataclass(frozen=True)
class Cosine(Linear):
    """Warm-up, then half a cosine down to the minimum, as nanoGPT is trained.

    Equation    f(t) = minimum + (1 - minimum) (1 + cos(π (t - W) / (T - W))) / 2
    Reference   Loshchilov and Hutter (2017), "SGDR: stochastic gradient descent with warm restarts", eq. 5.

    Example
        >>> [round(Cosine(minimum=0.1)(t, 4), 3) for t in range(5)]
        [1.0, 0.868, 0.55, 0.232, 0.1]
    """

    def after(self, progress: float) -> float:
        return self.minimum + (1 - self.minimum) * 0.5 * (1 + cos(pi * progress))


@dataclass(frozen=True)
class Polynomial(Linear):
    """Warm-up, then the fall that Langevin dynamics needs: its steps add up to infinity, their squares do not.

    Equation    f(t) = (1 + (t - W)/b)^-γ, γ = 0.55, which is a (b + t)^-γ for a = b^γ; b follows from the minimum at T
    Edge cases  a minimum of 0 stands for a hundredth
    Reference   Welling and Teh (2011), "Bayesian learning via stochastic gradient Langevin dynamics", (2), section 5.

    Example
        >>> [round(Polynomial(minimum=0.1)(t, 4), 3) for t in range(5)]
        [1.0, 0.209, 0.145, 0.117, 0.1]
    """

    def after(self, progress: float) -> float:
        ratio = float((self.minimum or 0.01) ** (-1 / 0.55))  # 1 + (T - W)/b
        return float((1 + (ratio - 1) * progress) ** -0.55)


SCHEDULES: dict[str, type[Constant]] = {
    "constant": Constant,
    "plateau": Plateau,
    "linear": Linear,
    "cosine": Cosine,
    "polynomial": Polynomial,
}
