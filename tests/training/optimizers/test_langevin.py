"""The chains reach the posteriors that can be computed exactly: thousands of chains run at once, as one parameter."""

import pytest
import torch
from torch import nn

from edgewise.errors import ConfigError
from edgewise.training.optimizers.langevin import SGLD, CyclicalSGLD

N, CHAINS = 30, 3000


def data():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(N, 2, generator=generator, dtype=torch.float64)
    x[:, 1] += 0.5 * x[:, 0]
    mean = x @ torch.tensor([1.0, -0.5], dtype=torch.float64)
    return x, mean + torch.randn(N, generator=generator, dtype=torch.float64)


def slopes(w, x, y):
    """The gradient of every chain's mean loss over half of the data, drawn for each: w [chains, D] -> [chains, D]."""
    chosen = torch.rand(CHAINS, N) < 0.5
    return ((w @ x.T - y) * chosen) @ x / (N / 2)


def samples(make, keeps, steps=800):
    """Draws from all chains at the steps that are kept, under a prior N(0, 1)."""
    x, y = data()
    w = nn.Parameter(torch.zeros(CHAINS, 2, dtype=torch.float64))
    chain, drawn = make([w]), []
    for step in range(1, steps + 1):
        w.grad = slopes(w.detach(), x, y)
        chain.step()
        if keeps(step):
            drawn.append(w.detach().clone())
    return torch.cat(drawn)


def steady(lr):
    """Small steps: four draws from the last fifth of them."""
    return (lambda w: SGLD(w, lr, N, weight_decay=1 / N)), (lambda step: step > 640 and step % 40 == 0)


def cyclical(lr):
    """Two cycles, of which the second is drawn from, at the end of its sampling."""
    make = lambda w: CyclicalSGLD(w, lr, N, 1 / N, cycle=400, explore=0.25)  # noqa: E731
    return make, lambda step: step in (780, 800)


def assert_moments(drawn, mean, covariance):
    """Within 5 % of the posterior's standard deviations and variances."""
    spread = covariance.diagonal().sqrt()
    assert ((drawn.mean(0) - mean).abs() / spread).max() < 0.05
    assert ((drawn.T.cov() - covariance).abs() / torch.outer(spread, spread)).max() < 0.05


@pytest.mark.parametrize(("make", "keeps"), [steady(0.02), cyclical(0.1)], ids=["steady", "cyclical"])
def test_bayesian_linear_regression_is_sampled(make, keeps):
    x, y = data()
    precision = x.T @ x + torch.eye(2, dtype=torch.float64)
    covariance = precision.inverse()
    assert_moments(samples(make, keeps), covariance @ (x.T @ y), covariance)


def test_without_noise_it_is_sgd_and_the_noise_has_the_papers_variance():
    start, slope = torch.randn(1000, 50), torch.randn(1000, 50)
    moved = {}
    for temperature in (0.0, 1.0):
        w = nn.Parameter(start.clone())
        w.grad = slope
        SGLD([w], lr=0.1, examples=20, weight_decay=0.5, temperature=temperature).step()
        moved[temperature] = w.detach()
    assert torch.allclose(moved[0.0], start - 0.1 * (slope + 0.5 * start))
    noise = moved[1.0] - moved[0.0]
    epsilon = 2 * 0.1 / 20  # of (4)
    assert abs(noise.mean()) < 4 * (epsilon / noise.numel()) ** 0.5
    assert abs(noise.var() / epsilon - 1) < 0.03


def test_the_noise_follows_from_seed_and_step_alone():
    def walk(seed, noise_before=0):
        torch.manual_seed(noise_before)
        w = nn.Parameter(torch.zeros(5))
        chain = SGLD([w], lr=0.1, examples=1, seed=seed)
        for _ in range(3):
            w.grad = torch.zeros(5)
            chain.step()
        return w.detach()

    assert torch.equal(walk(0), walk(0, noise_before=7))
    assert not torch.equal(walk(0), walk(1))


def test_cycles_find_other_modes_where_one_chain_stays():
    """A well at every whole number, far apart for the noise: a cycle's long steps cross, small steady ones do not."""

    def strayed(make):
        w = nn.Parameter(torch.zeros(1000, dtype=torch.float64))
        chain = make([w])
        for _ in range(400):  # mean loss (1 - cos 2πw)/2π of N = 200 examples: a barrier of 64
            w.grad = torch.sin(2 * torch.pi * w.detach()) + 0.7 * torch.randn(1000, dtype=torch.float64)
            chain.step()
        assert (w.detach() - w.detach().round()).abs().median() < 0.1  # it ends in a well
        return (w.abs() > 0.5).double().mean().item()

    assert strayed(lambda w: SGLD(w, lr=0.01, examples=200)) < 0.02
    assert strayed(lambda w: CyclicalSGLD(w, lr=0.8, examples=200, cycle=100, explore=0.8)) > 0.3


def test_a_closure_is_evaluated():
    w = nn.Parameter(torch.ones(2))
    chain = SGLD([w], lr=0.1, examples=10)

    def closure():
        chain.zero_grad()
        loss = w.square().sum()
        loss.backward()
        return loss

    assert chain.step(closure).item() == 2.0
    assert not torch.equal(w.detach(), torch.ones(2))


@pytest.mark.parametrize("options", [{"lr": 0.0}, {"examples": 0}, {"temperature": -1.0}])
def test_impossible_chains_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        SGLD([nn.Parameter(torch.zeros(1))], **({"lr": 0.1, "examples": 1} | options))
    with pytest.raises(ConfigError, match="cycle"):
        CyclicalSGLD([nn.Parameter(torch.zeros(1))], 0.1, 1, cycle=0, explore=0.5)


def test_weights_of_one_shape_have_noise_of_their_own():
    a, b = nn.Parameter(torch.zeros(3)), nn.Parameter(torch.zeros(3))
    a.grad, b.grad = torch.zeros(3), torch.zeros(3)
    SGLD([a, b], lr=0.1, examples=1).step()
    assert not torch.equal(a, b)
