"""Langevin dynamics and SGD at a constant rate as samplers of a posterior that is known: how far off, how calibrated?

python -m benchmarks.studies.claims.posteriors [picture.svg]

Bayesian linear regression of the 442 patients of scikit-learn's diabetes data: ten columns and the target standardised,
a prior N(0, 0.3²), noise as large as what least squares leaves. The posterior is a Gaussian, (N A)⁻¹ its covariance.
500 runs on mini-batches of S = 10 start at its mean and take steps until they have settled: the divergence of where
they are from it, over the rate in multiples of ε* = 2 S/N · D/Tr(BBᵀ), and of the matrix H* = 2 S/N · (BBᵀ)⁻¹. Then
calibration: 100 times weights are drawn from the prior and targets from the weights; how often 50 and 90 % intervals of
the 50 samples of one run hold the weight that was drawn (10,000 steps at ε*, more at lower rates). The rate of
least divergence, from a curve through the values, and the one that `ConstantSGD` measures are multiples of ε* and H*.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from sklearn.datasets import load_diabetes
from torch import Tensor, nn

from edgewise.apps.report import figures, render
from edgewise.files import write_file
from edgewise.tasks.core.drawing import Curve, Curves, Drawing, Panel
from edgewise.training.optimizers.langevin import SGLD
from edgewise.training.optimizers.variational import ConstantSGD

BATCH, PRIOR, RUNS, SETTLED = 10, 0.3, 500, 2.5
FACTORS = (0.25, 0.5, 0.71, 1.0, 1.41, 2.0, 4.0)
REPEATS, LONG, SAMPLES = 100, 10_000, 50
SLOW = 0.1  # of ε*: the rate of Langevin dynamics, whose own error falls with it


class Regression(NamedTuple):
    """Inputs [N, D] and, for each run, targets [runs, N], in units of the noise; the posterior of each."""

    X: Tensor
    y: Tensor

    @property
    def decay(self) -> float:
        """λ of the prior N(0, 1/(N λ)) = N(0, PRIOR²) on weights in units of the noise."""
        return 1 / (len(self.X) * PRIOR**2)

    @property
    def curvature(self) -> Tensor:
        return self.X.T @ self.X / len(self.X) + self.decay * torch.eye(self.X.shape[1])

    @property
    def mean(self) -> Tensor:
        return torch.linalg.solve(self.curvature, self.X.T @ self.y.T / len(self.X)).T

    @property
    def noise(self) -> Tensor:
        """BBᵀ, the covariance of one example's gradient at the posterior's mean of the first run."""
        return ((self.X @ self.mean[0] - self.y[0])[:, None] * self.X).T.cov(correction=0)

    def gradient(self, theta: Tensor, generator: torch.Generator) -> Tensor:
        """Of a mini-batch of each run, without the prior: [runs, D]."""
        drawn = torch.randint(len(self.X), (len(theta), BATCH), generator=generator)
        x = self.X[drawn]
        left = (x @ theta[:, :, None])[..., 0] - self.y.expand(len(theta), -1).gather(1, drawn)
        return (left[:, None] @ x)[:, 0] / BATCH

    def divergence(self, theta: Tensor) -> float:
        """KL from the Gaussian of the runs' weights to the posterior, in nats."""
        q, apart = len(self.X) * self.curvature @ theta.T.cov(), theta.mean(0) - self.mean[0]
        return 0.5 * (q.trace() - q.logdet() - len(q) + len(self.X) * apart @ self.curvature @ apart).item()


def patients() -> Regression:
    data = load_diabetes()
    X, y = (torch.tensor(part, dtype=torch.float32) for part in (data.data, data.target))
    X, y = (X - X.mean(0)) / X.std(0), (y - y.mean()) / y.std()
    left = y - X @ torch.linalg.lstsq(X, y[:, None]).solution[:, 0]
    return Regression(X, y[None] / left.std())


def ends(regression: Regression, H: Tensor, runs: int, settled: float) -> Tensor:
    """Weights of many runs of θ ← θ - H (ĝ + λ θ), after so many times the steps that shrink the slowest by e."""
    generator, theta = torch.Generator().manual_seed(0), regression.mean.expand(runs, -1)
    for _ in range(round(settled / torch.linalg.eigvals(H @ regression.curvature).real.min().item())):
        theta = theta - (regression.gradient(theta, generator) + regression.decay * theta) @ H
    return theta


def preconditioners(regression: Regression) -> dict[str, Tensor]:
    """The best rate for all weights, and the best matrix."""
    noise, scale = regression.noise, 2 * BATCH / len(regression.X)
    return {"ε*": scale * len(noise) / noise.trace() * torch.eye(len(noise)), "H*": scale * noise.inverse()}


@dataclass(frozen=True)
class Sampler:
    """SGD with a multiple of its best rate or matrix, or Langevin dynamics."""

    kind: str
    factor: float
    langevin: bool = False

    def __str__(self) -> str:
        return f"{'Langevin dynamics' if self.langevin else 'SGD'}, {self.kind} × {self.factor:g}"


LANGEVIN, WITHOUT = Sampler("ε*", SLOW, langevin=True), Sampler("ε*", SLOW)
SGD = [Sampler(kind, factor) for kind in ("ε*", "H*") for factor in FACTORS]
CALIBRATED = [LANGEVIN, WITHOUT, *(one for one in SGD if one.factor in (1, 4))]


def divergence(sampler: Sampler, runs: int = RUNS, settled: float = SETTLED) -> float:
    regression = patients()
    H = sampler.factor * preconditioners(regression)[sampler.kind]
    return regression.divergence(ends(regression, H, runs, settled))


def best(kind: str, found: dict[Sampler, float]) -> float:
    """The multiple of the rate at which a ε - b log ε + c, through the values from a half to twice, is least."""
    near = {one.factor: nats for one, nats in found.items() if one.kind == kind and 0.5 <= one.factor <= 2}
    factors = torch.tensor(list(near))
    terms = torch.stack([factors, -factors.log(), torch.ones_like(factors)], 1)
    a, b, _ = torch.linalg.lstsq(terms, torch.tensor(list(near.values()))).solution
    return (b / a).item()


def covered(sampler: Sampler, repeats: int, steps: int) -> tuple[float, float]:
    """The share of drawn weights that lie in their 50 and 90 % intervals."""
    X, generator = patients().X, torch.Generator().manual_seed(1)
    truth = PRIOR * torch.randn(repeats, X.shape[1], generator=generator)
    regression = Regression(X, truth @ X.T + torch.randn(repeats, len(X), generator=generator))
    H = sampler.factor * preconditioners(regression)[sampler.kind]
    theta = nn.Parameter(regression.mean.clone())
    chain, samples = SGLD([theta], H[0, 0].item(), len(X), regression.decay), []
    every = round(steps / min(sampler.factor, 1) / SAMPLES)
    for step in range(every * (SAMPLES + 5)):  # a tenth of the samples' steps is burn-in
        gradient = regression.gradient(theta.detach(), generator)
        if sampler.langevin:
            theta.grad = gradient
            chain.step()
        else:
            theta.data -= (gradient + regression.decay * theta.data) @ H
        if step >= 5 * every and step % every == 0:
            samples.append(theta.detach().clone())
    rank = (torch.stack(samples) < truth).float().mean(0)
    half, most = (((rank - 0.5).abs() <= share / 2).float().mean().item() for share in (0.5, 0.9))
    return half, most


def measured_rate(steps: int = 2_000) -> float:
    """The rate that `ConstantSGD` finds from one run's gradients, in multiples of ε*."""
    regression, generator = patients(), torch.Generator().manual_seed(2)
    theta = nn.Parameter(regression.mean.clone())
    sgd = ConstantSGD([theta], 0.01, len(regression.X), steps, regression.decay)
    for _ in range(steps):
        theta.grad = regression.gradient(theta.detach(), generator)
        sgd.step()
    return sgd.rate / preconditioners(regression)["ε*"][0, 0].item()


def measure(
    runs: int = RUNS, settled: float = SETTLED, repeats: int = REPEATS, steps: int = LONG
) -> dict[Sampler, float]:
    """The divergences; it prints the whole table."""
    found = dict[Sampler, float]()
    print("| sampler | divergence | in 50 % intervals | in 90 % intervals | rate |\n|---|---|---|---|---|")
    for sampler in [LANGEVIN, WITHOUT, *SGD]:
        if sampler in SGD:
            found[sampler] = divergence(sampler, runs, settled)
        nats = f"{found[sampler]:.2f}" if sampler in found else ""
        shares = covered(sampler, repeats, steps) if sampler in CALIBRATED else ()
        inside = [f"{100 * share:.1f} %" for share in shares] or ["", ""]
        print(f"| {sampler} | {nats} | {' | '.join(inside)} | |", flush=True)
    for kind in ("ε*", "H*"):
        print(f"| least divergence, {kind} | | | | {best(kind, found):.2f} |", flush=True)
    print(f"| `ConstantSGD`, ε* | | | | {measured_rate():.2f} |", flush=True)
    return found


def draw(found: dict[Sampler, float], path: Path) -> None:
    lines = []
    for number, kind in enumerate(("ε*", "H*")):
        own = {one.factor: nats for one, nats in found.items() if one.kind == kind}
        lines.append(Curve(kind, torch.tensor(list(own)).log2().tolist(), list(own.values()), number))
    panel = Panel("divergence from the posterior, nats", lines, "log₂ of the multiple of the best rate")
    svg = render.drawn(Drawing("posteriors", Curves([panel], mark=0.0)))
    write_file(path, figures.standalone(svg).encode())


def main() -> None:
    torch.set_num_threads(1)
    found = measure()
    if len(sys.argv) > 1:
        draw(found, Path(sys.argv[1]))


if __name__ == "__main__":
    main()
