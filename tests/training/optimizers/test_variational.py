"""On a quadratic, where every formula of the paper is exact for small rates, SGD ends up where the formula says."""

import pytest
import torch
from torch import nn

from edgewise.errors import ConfigError
from edgewise.training.optimizers.variational import ConstantSGD, DiagonalConstantSGD

A = torch.tensor([[1.0, 0.4], [0.4, 0.5]], dtype=torch.float64)  # the Hessian of the mean loss
B = torch.tensor([[2.0, 0.0], [1.0, 1.5]], dtype=torch.float64)
NOISE = B @ B.T
BATCH, N, CHAINS = 10, 100, 4000
BEST = 2 * BATCH / N * 2 / NOISE.trace().item()  # theorem 1: 2 S/N · D/Tr(BBᵀ)


def end(H, steps=500):
    """Weights of many runs of θ ← θ - H ĝ, ĝ = A θ + B ξ/√S."""
    theta = torch.zeros(CHAINS, 2, dtype=torch.float64)
    for _ in range(steps):
        theta -= (theta @ A + torch.randn_like(theta) @ B.T / BATCH**0.5) @ H.T
    return theta


def test_runs_at_several_rates_are_nearest_to_the_posterior_at_the_optimal_one():
    """Measured, not computed: the divergence of where SGD ends up is least within 10 % of the formula's rate."""
    factors = torch.tensor([0.5, 0.7, 1.0, 1.4, 2.0], dtype=torch.float64)
    found = []
    for factor in factors.tolist():
        q = N * A @ end(factor * BEST * torch.eye(2).double()).T.cov()
        found.append(0.5 * (q.trace() - torch.logdet(q) - 2))
    # KL is a ε - b log ε + c near its least value: three unknowns, five rates.
    terms = torch.stack([factors, -factors.log(), torch.ones_like(factors)], 1)
    a, b, _ = torch.linalg.lstsq(terms, torch.stack(found)).solution
    assert b / a == pytest.approx(1.0, rel=0.1)


@pytest.mark.parametrize("kind", [ConstantSGD, DiagonalConstantSGD])
def test_the_optimiser_finds_its_rate_while_it_descends(kind):
    w = nn.Parameter(torch.full((2,), 3.0, dtype=torch.float64))
    sgd = kind([w], lr=0.01, examples=N, burn_in=3000)
    for _ in range(3001):
        w.grad = A @ w.detach() + B @ torch.randn(2, dtype=torch.float64) / BATCH**0.5
        sgd.step()
    assert sgd.rate == pytest.approx(BEST, rel=0.1)
    rates = sgd.rates()[w]
    if kind is DiagonalConstantSGD:
        assert torch.allclose(rates, 2 * BATCH / N / NOISE.diagonal(), rtol=0.1)
    else:
        assert rates == sgd.rate
    before, slope = w.detach().clone(), torch.tensor([1.0, 2.0], dtype=torch.float64)
    for _ in range(2):  # from now on the rate is constant, whatever the gradients are
        w.grad = slope.clone()
        sgd.step()
    assert torch.allclose(w.detach(), before - 2 * slope * rates)


@pytest.mark.parametrize("options", [{"lr": 0.0}, {"examples": 0}, {"burn_in": 1}])
def test_impossible_options_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        ConstantSGD([nn.Parameter(torch.zeros(1))], **({"lr": 0.1, "examples": 1} | options))
