"""Stochastic gradient descent at a constant rate as variational inference: the rate at which it samples the posterior.

Near a minimum, with Hessian A of the mean loss, a mini-batch of S gives the gradient A θ + 1/√S B ξ, ξ ~ N(0, I), and
SGD at a constant rate ends up in a Gaussian around the minimum. The optimisers choose the rate for which it is nearest,
in Kullback-Leibler divergence, to the posterior N(0, (N A)⁻¹).
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from edgewise.errors import ConfigError
from edgewise.training.optimizers.uncompiled import loss_of, uncompiled


@uncompiled
class ConstantSGD(Optimizer):
    """SGD that measures its own noise and then keeps to the constant rate at which it samples the posterior.

    Equation    c = ½ mean_t (ĝ_t - ĝ_{t-1})²  over the burn-in, an estimate of the diagonal of BBᵀ/S
                ε* = 2/N · D/Σ_d c_d = 2 S/N · D/Tr(BBᵀ)
                θ ← θ - ε* (ĝ + λ θ)
    Symbols     examples = N; burn_in = steps at rate lr, in which c is measured; weight_decay = λ, the precision of the
                prior divided by N; D = number of weights
    Errors      ConfigError for rates, numbers of examples or of steps that are impossible
    Edge cases  S is no argument: c is the noise of the mini-batches themselves; a constant gradient counts as noiseless
    Cost        that of SGD, and two numbers per weight
    Differs     differences of consecutive gradients, because their mean still moves in the burn-in
    Reference   Mandt, Hoffman & Blei, "Stochastic gradient descent as approximate Bayesian inference", 2017

    Example
        >>> w = torch.nn.Parameter(torch.zeros(50_000))
        >>> sgd = ConstantSGD([w], lr=0.01, examples=100, burn_in=50)
        >>> for _ in range(60): w.grad = w.detach() + torch.randn(50_000); _ = sgd.step()  # noise of variance 1
        >>> round(sgd.rate, 3)  # 2/N · 1
        0.02
    """

    def __init__(
        self, params: Iterable[Any], lr: float, examples: int, burn_in: int = 1000, weight_decay: float = 0.0
    ) -> None:
        if not (lr > 0 and examples > 0 and burn_in > 1):
            raise ConfigError(f"lr={lr} and examples={examples} must be positive, burn_in={burn_in} at least 2")
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        self.examples, self.burn_in = examples, burn_in

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One move of every weight; after the burn-in at the rate that was measured."""
        loss = loss_of(closure)
        moving = [(group, w) for group in self.param_groups for w in group["params"] if w.grad is not None]
        for _, w in moving:
            self._measure(w)
        rates = self.rates()
        for group, w in moving:
            settled = int(self.state[w]["step"]) > self.burn_in
            w.sub_((w.grad + group["weight_decay"] * w) * (rates[w] if settled else group["lr"]))
        return loss

    def _measure(self, w: Tensor) -> None:
        """Add to the sum of squared differences of consecutive gradients, within the burn-in."""
        assert w.grad is not None
        memory = self.state[w]
        if not memory:
            memory |= {"step": torch.zeros(()), "last": w.grad.clone(), "squares": torch.zeros_like(w)}
        elif memory["step"] < self.burn_in:
            memory["squares"] += (w.grad - memory["last"]).square()
            memory["last"].copy_(w.grad)
        memory["step"] += 1

    def noise(self, w: Tensor) -> Tensor:
        """The diagonal of BBᵀ/S, as measured so far."""
        memory = self.state[w]
        pairs = min(int(memory["step"]), self.burn_in) - 1
        estimate: Tensor = memory["squares"] / (2 * max(pairs, 1))
        return estimate

    @property
    def rate(self) -> float:
        """ε*, from what was measured so far; infinite before there is any noise."""
        noises = [self.noise(w) for w in self.state]
        total = float(sum(noise.sum().double() for noise in noises))
        weights = sum(noise.numel() for noise in noises)
        return 2 / self.examples * weights / total if total else float("inf")

    def rates(self) -> dict[Tensor, float | Tensor]:
        """What each weight's gradient is multiplied with after the burn-in."""
        rate = self.rate if self._settled() else 0.0
        return dict.fromkeys(self.state, rate)

    def _settled(self) -> bool:
        return any(int(memory["step"]) > self.burn_in for memory in self.state.values())


class DiagonalConstantSGD(ConstantSGD):
    """`ConstantSGD` with a constant rate for every weight: the optimal diagonal preconditioner.

    Equation    H*_dd = 2/N · 1/c_d = 2 S/N · 1/(BBᵀ)_dd
    Symbols     as in `ConstantSGD`
    Edge cases  a weight whose gradient never changed keeps the rate ε* of all
    Cost        that of `ConstantSGD`
    Reference   Mandt, Hoffman & Blei, 2017, corollary 1

    Example
        >>> w, scale = torch.nn.Parameter(torch.zeros(2, 1000)), torch.tensor([[1.0], [2.0]])
        >>> sgd = DiagonalConstantSGD([w], lr=0.01, examples=100, burn_in=400)
        >>> for _ in range(401): w.grad = scale * torch.randn(2, 1000); _ = sgd.step()
        >>> [round(rate, 3) for rate in sgd.rates()[w].mean(1).tolist()]
        [0.02, 0.005]
    """

    def rates(self) -> dict[Tensor, float | Tensor]:
        if not self._settled():
            return dict.fromkeys(self.state, 0.0)
        rate = self.rate
        return {w: torch.where(c > 0, 2 / (self.examples * c), rate) for w in self.state for c in [self.noise(w)]}
