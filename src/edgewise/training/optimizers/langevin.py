"""Stochastic gradient Langevin dynamics: gradient descent with as much noise as makes it sample the posterior."""

from collections.abc import Callable, Iterable
from math import cos, pi, sqrt
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from edgewise.errors import ConfigError
from edgewise.training.optimizers.uncompiled import loss_of, uncompiled
from edgewise.training.seeds import mix


@uncompiled
class SGLD(Optimizer):
    """Stochastic gradient Langevin dynamics: after a burn-in, every weight vector is a sample of the posterior.

    Equation    θ ← θ + ε_t/2 (∇ log p(θ) + N/n Σ_i ∇ log p(x_ti | θ)) + η_t,  η_t ~ N(0, ε_t)    (4)
                with the mean loss L = -1/n Σ_i log p(x_ti | θ), a prior N(0, 1/(N λ)) and ε_t = 2 lr/N:
                θ ← θ - lr (∇L + λ θ) + sqrt(2 lr/N) ξ,  ξ ~ N(0, I)
    Symbols     examples = N of the whole training set; weight_decay = λ; lr = ε_t N/2, falling over the steps as
                a (b + t)^-γ (the schedule "polynomial") or small enough
    Errors      ConfigError for a rate or a number of examples that is not positive
    Edge cases  one chain; a parameter [chains, ...] holds independent ones. `temperature` 0 is SGD
    Cost        that of SGD and one normal number per weight and step
    Differs     the noise depends on `seed` and the step only: a run resumes, and several processes agree, to the bit
    Reference   Welling & Teh, 2011, (4)

    Example
        >>> w = torch.nn.Parameter(torch.zeros(100_000))
        >>> chain = SGLD([w], lr=0.05, examples=4)  # samples exp(-4 · w²/2), of standard deviation 1/2
        >>> for _ in range(100): w.grad = w.detach().clone(); _ = chain.step()
        >>> round(w.std().item(), 1)
        0.5
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float,
        examples: int,
        weight_decay: float = 0.0,
        temperature: float = 1.0,
        seed: int = 0,
    ) -> None:
        if not (lr > 0 and examples > 0 and temperature >= 0):
            raise ConfigError(f"lr={lr} and examples={examples} must be positive, temperature={temperature} at least 0")
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        self.examples, self.temperature, self.seed = examples, temperature, seed

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One move of every weight that has a gradient."""
        loss = loss_of(closure)
        generators: dict[torch.device, torch.Generator] = {}
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is None:
                    continue
                t = self.state[w].setdefault("step", torch.zeros(()))
                if w.device not in generators:
                    generators[w.device] = torch.Generator(w.device).manual_seed(mix(self.seed, int(t)))
                rate, noise = self.rates(group["lr"], int(t))
                w.sub_(w.grad + group["weight_decay"] * w, alpha=rate)
                if noise:
                    w.add_(self.draw(w, generators[w.device]), alpha=sqrt(2 * noise * self.temperature / self.examples))
                t.add_(1)
        return loss

    def rates(self, lr: float, step: int) -> tuple[float, float]:
        """The rate of the gradient and that of the noise at a step."""
        return lr, lr

    @staticmethod
    def draw(w: Tensor, generator: torch.Generator) -> Tensor:
        return torch.randn(w.shape, generator=generator, dtype=w.dtype, device=w.device)


class CyclicalSGLD(SGLD):
    """Langevin dynamics in cycles: each begins with long steps, which find another mode, and ends by sampling it.

    Equation    lr_t = lr/2 (cos(π (t mod T)/T) + 1);  noise only where (t mod T)/T ≥ β    (1), algorithm 1
    Symbols     cycle = T steps; explore = β, the part of a cycle without noise; the rest as in `SGLD`
    Errors      ConfigError for a cycle without steps, or a β that leaves none to sample
    Edge cases  β = 0: noise at every step
    Cost        that of `SGLD`
    Reference   Zhang, Li, Zhang, Chen & Wilson, "Cyclical stochastic gradient MCMC", 2020

    Example
        >>> chain = CyclicalSGLD([torch.nn.Parameter(torch.zeros(1))], lr=1.0, examples=1, cycle=4, explore=0.5)
        >>> [tuple(round(rate, 2) for rate in chain.rates(1.0, t)) for t in range(5)]
        [(1.0, 0.0), (0.85, 0.0), (0.5, 0.5), (0.15, 0.15), (1.0, 0.0)]
    """

    def __init__(
        self, params: Iterable[Any], lr: float, examples: int, weight_decay: float = 0.0, *, cycle: int, explore: float
    ) -> None:
        if cycle < 1 or not 0 <= explore < 1:
            raise ConfigError(f"cycle={cycle} must be at least 1, and explore={explore} from 0 to below 1")
        super().__init__(params, lr, examples, weight_decay)
        self.cycle, self.explore = cycle, explore

    def rates(self, lr: float, step: int) -> tuple[float, float]:
        done = step % self.cycle / self.cycle
        rate = lr / 2 * (cos(pi * done) + 1)
        return rate, rate if done >= self.explore else 0.0
