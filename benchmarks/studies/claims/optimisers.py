"""One convex problem, ten ways down: gradient descent, SGD, momentum, AdaGrad, RMSprop, Adam, Newton's method.

python -m benchmarks.studies.claims.optimisers [picture.svg]

Softmax regression on the 1,297 training digits with a weight decay of 1/1297 (650 weights, one minimum, which Newton's
method finds); then the same loss with each pixel's weight in a unit of its own, from 0.1 to 10. What is left above the
minimum after so many passes over the digits: mini-batches have 32 of them, each value of the loss that a line search
asks for is a pass, too, and Newton's method takes all curvatures in one. Of the rates from 0.001 to 10, √10 times each
other, each method has the one that leaves least with seed 0; the figures are the mean of seeds 1 to 3.
"""

import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from scipy.optimize import minimize_scalar
from torch import Tensor, nn
from torch.optim import SGD, Adagrad, Adam, Optimizer, RMSprop
from torch.optim.lr_scheduler import LambdaLR

from benchmarks.studies.labels import Data, parts
from edgewise.apps.report import figures, render
from edgewise.files import write_file
from edgewise.tasks.core.drawing import Curve, Curves, Drawing, Panel
from edgewise.training.optimizers.newton import Newton

PASSES, BATCH, SEEDS = 30, 32, (1, 2, 3)
RATES = [10.0 ** (power / 2) for power in range(-6, 3)]  # 0.001 to 10
Loss = Callable[[Data], Tensor]  # of the digits given, at the weights as they are


@dataclass(frozen=True)
class Way:
    """An optimiser from its rate, on all digits or on mini-batches; how its rate falls with the passes made."""

    make: Callable[[list[nn.Parameter], float], Optimizer]
    batch: int = BATCH
    falls: Callable[[float], float] = lambda passes: 1.0


def descent(weights: list[nn.Parameter], rate: float) -> Optimizer:
    return SGD(weights, rate)


WAYS = {
    "gradient descent": Way(descent, batch=0),
    "SGD, constant rate": Way(descent),
    "SGD, rate ~ 1/√t": Way(descent, falls=lambda passes: (1 + passes) ** -0.5),
    "SGD, rate ~ 1/t": Way(descent, falls=lambda passes: 1 / (1 + passes)),
    "momentum": Way(lambda weights, rate: SGD(weights, rate, momentum=0.9)),
    "AdaGrad": Way(lambda weights, rate: Adagrad(weights, rate)),
    "RMSprop": Way(lambda weights, rate: RMSprop(weights, rate)),
    "Adam": Way(lambda weights, rate: Adam(weights, rate)),
}
LINE, NEWTON = "gradient descent, line search", "Newton"


def problem(units: Tensor) -> tuple[list[nn.Parameter], Loss]:
    """The weights, from zero, and the loss by them: the linear map of the digits is units · W."""
    weights = [nn.Parameter(torch.zeros(64, 10, dtype=torch.float64)), nn.Parameter(torch.zeros(10).double())]
    W, b = weights

    def loss(data: Data) -> Tensor:
        own = units[:, None] * W
        decay = (own.square().sum() + b.square().sum()) / (2 * 1297)
        return nn.functional.cross_entropy(data[0] @ own + b, data[1]) + decay

    return weights, loss


def curve(way: Way, units: Tensor, train: Data, rate: float, seed: int, passes: int) -> list[float]:
    """The loss over all digits after each pass."""
    weights, loss = problem(units)
    optimizer, generator, found = way.make(weights, rate), torch.Generator().manual_seed(seed), [loss(train).item()]
    size = way.batch or len(train[0])
    per_pass = -(-len(train[0]) // size)
    schedule = LambdaLR(optimizer, lambda step: way.falls(step / per_pass))
    for _ in range(passes):
        for numbers in torch.randperm(len(train[0]), generator=generator).split(size):
            optimizer.zero_grad()
            loss((train[0][numbers], train[1][numbers])).backward()
            optimizer.step()
            schedule.step()
        found.append(loss(train).item())
    return found


def line_search(units: Tensor, train: Data, passes: int) -> list[float]:
    """Gradient descent to the least loss along each gradient, which `minimize_scalar` finds to a hundredth."""
    weights, loss = problem(units)
    found: list[float] = []
    while len(found) <= passes:
        value = loss(train)
        gradients = torch.autograd.grad(value, weights)
        before = [w.detach().clone() for w in weights]
        along = partial(moved, weights, before, gradients, loss, train)
        best = minimize_scalar(along, (0.0, 1.0), tol=0.01)
        along(best.x)
        found += [value.item()] * (1 + best.nfev)
    return found[: passes + 1]


@torch.no_grad()
def moved(
    weights: list[nn.Parameter], before: list[Tensor], gradients: Sequence[Tensor], loss: Loss, train: Data, rate: float
) -> float:
    """The loss after a move from some weights against some gradients, which stays made."""
    for w, start, gradient in zip(weights, before, gradients, strict=True):
        w.copy_(start - rate * gradient)
    return loss(train).item()


def newton(units: Tensor, train: Data, steps: int) -> list[float]:
    weights, loss = problem(units)
    optimizer, found = Newton(weights), [loss(train).item()]
    for _ in range(steps):
        optimizer.zero_grad()
        optimizer.backward(loss(train))
        optimizer.step()
        found.append(loss(train).item())
    return found


@dataclass(frozen=True)
class Row:
    """What a method leaves above the minimum after each pass, its rate and its seconds for all passes."""

    left: list[float]
    rate: float
    seconds: float

    def passes(self, gap: float) -> int | None:
        """How many passes until so little is left, and for good."""
        above = [n for n, left in enumerate(self.left) if left > gap]
        return above[-1] + 1 if above[-1] < len(self.left) - 1 else None


def rows(units: Tensor, train: Data, least: float, passes: int, seeds: tuple[int, ...]) -> Iterator[tuple[str, Row]]:
    for name, way in WAYS.items():
        ends = {rate: curve(way, units, train, rate, 0, passes)[-1] for rate in RATES}
        rate = min(ends, key=lambda rate: ends[rate] if ends[rate] == ends[rate] else float("inf"))
        began = time.process_time()
        curves = torch.tensor([curve(way, units, train, rate, seed, passes) for seed in seeds], dtype=torch.float64)
        seconds = (time.process_time() - began) / len(seeds)
        yield name, Row((curves.mean(0) - least).tolist(), rate, seconds)
    for name, other in ((LINE, line_search), (NEWTON, newton)):
        count, began = min(7, passes) if other is newton else passes, time.process_time()
        yield name, Row([f - least for f in other(units, train, count)], 0.0, time.process_time() - began)


def measure(passes: int = PASSES, seeds: tuple[int, ...] = SEEDS) -> dict[str, dict[str, Row]]:
    train = parts(torch.float64)[0]
    equal = torch.ones(64, dtype=torch.float64)
    drawn = torch.rand(64, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    least, found = newton(equal, train, 9)[-1], dict[str, dict[str, Row]]()
    head = ("method", "rate", "passes to 0.01", "to 0.0001", "left after all", "seconds")
    print(f"| {' | '.join(head)} |\n|{'---|' * len(head)}")
    for kind, units in (("", equal), (", unequal units", 10 ** (2 * drawn - 1))):
        found[kind] = {}
        for name, row in rows(units, train, least, passes, seeds):
            found[kind][name] = row
            needed = [str(row.passes(gap) or "not in all") for gap in (1e-2, 1e-4)]
            cells = [name + kind, f"{row.rate:.2g}" if row.rate else "", *needed, f"{max(row.left[-1], 0):.1e}"]
            print(f"| {' | '.join(cells)} | {row.seconds:.1f} |", flush=True)
    return found


def draw(found: dict[str, dict[str, Row]], path: Path) -> None:
    """What is left over the passes, in powers of ten, down to a thousandth."""
    panels = []
    for kind, own in found.items():
        curves = []
        for number, (name, row) in enumerate(own.items()):
            y = torch.tensor(row.left).log10().nan_to_num(-3, -3, -3).clamp(min=-3)
            y = y[: int((y > -3).sum()) + 1]
            curves.append(Curve(name, range(len(y)), y.tolist(), number))
        panels.append(Panel(f"log₁₀ of what is left{kind}", curves, "passes"))
    svg = render.drawn(Drawing("optimisers", Curves(panels)))
    write_file(path, figures.standalone(svg).encode())


def main() -> None:
    torch.set_num_threads(1)
    found = measure()
    if len(sys.argv) > 1:
        draw(found, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
