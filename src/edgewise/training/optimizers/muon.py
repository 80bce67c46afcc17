"""Muon: momentum whose matrices are made orthogonal before they move the weights."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from edgewise.errors import ConfigError
from edgewise.training.optimizers.eager import eager, loss_of
from edgewise.training.ranks.shards import is_shared, like

COEFFICIENTS = (3.4445, -4.7750, 2.0315)  # a, b, c: the steepest at 0 among those that keep singular values near 1
SIZE = 0.2  # root mean square of Adam's moves, over its rate


@eager
class Muon(Optimizer):
    """Momentum along the nearest orthogonal matrix for matrices, AdamW for all other weights.

    Equation    B_t = μ B_{t-1} + G_t;  O_t = orthogonal(G_t + μ B_t);
                W_t = (1 - η λ) W_{t-1} - 0.2 √max(rows, columns) η O_t
    Symbols     lr = η; weight_decay = λ; momentum = μ; betas, epsilon = those of AdamW; a group whose "orthogonal" is
                True moves so, any other as AdamW
    Errors      ConfigError for a weight that is no matrix in an orthogonal group
    Edge cases  a gradient of zeros, with no momentum, moves nothing but by weight decay. Where ranks share the weights
                (`train.shard`), each matrix is gathered for its step, on every rank
    Cost        beside a step of momentum 15 products of matrices, O(rows · columns · the lesser of both)
    Differs     the iteration computes in the gradient's own precision instead of bfloat16; moves are as large as
                Adam's, so that its rate and decay fit (Liu et al.), where Jordan scales by √max(1, rows/columns)
    Reference   Jordan et al., "Muon: an optimizer for hidden layers in neural networks", 2024; Liu et al., "Muon is
                scalable for LLM training", 2025, (4)

    Example
        >>> w = torch.nn.Parameter(torch.eye(2))
        >>> muon = Muon([{"params": [w], "orthogonal": True}], lr=1.0)
        >>> (torch.tensor([[100.0, 0.0], [0.0, 1.0]]) * w).sum().backward()
        >>> _ = muon.step()
        >>> (1 - w.diagonal()).round(decimals=1)  # both move alike, though one gradient is 100 times the other
        tensor([0.2000, 0.2000], grad_fn=<RoundBackward1>)
    """

    def __init__(
        self,
        params: Iterable[Any],
        lr: float = 1e-3,
        momentum: float = 0.95,
        betas: tuple[float, float] = (0.9, 0.999),
        epsilon: float = 1e-8,
    ) -> None:
        defaults = {"lr": lr, "weight_decay": 0.0, "orthogonal": False}
        super().__init__(params, defaults)
        self.momentum, self.betas, self.epsilon = momentum, betas, epsilon
        for group in self.param_groups:
            for w in group["params"]:
                if group["orthogonal"] and w.ndim != 2:
                    raise ConfigError(f"only a matrix can be made orthogonal, not a weight of {list(w.shape)}")

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One move of all weights that have a gradient."""
        result = loss_of(closure)
        for group in self.param_groups:
            for w in group["params"]:
                if w.grad is not None:
                    w.mul_(1 - group["lr"] * group["weight_decay"])
                    move = self._orthogonal(w, w.grad) if group["orthogonal"] else self._adam(w, w.grad)
                    w.sub_(move, alpha=group["lr"])
        return result

    def _orthogonal(self, w: Tensor, g: Tensor) -> Tensor:
        total = self.state[w].setdefault("momentum", torch.zeros_like(w)).mul_(self.momentum).add_(g)
        ahead = g + self.momentum * total
        whole = orthogonal(ahead.full_tensor() if is_shared(ahead) else ahead)
        return SIZE * max(w.shape) ** 0.5 * like(whole, w)

    def _adam(self, w: Tensor, g: Tensor) -> Tensor:
        memory, (first, second) = self.state[w], self.betas
        t = memory.setdefault("step", torch.zeros(())).add_(1)
        mean = memory.setdefault("exp_avg", torch.zeros_like(w)).lerp_(g, 1 - first)
        square = memory.setdefault("exp_avg_sq", torch.zeros_like(w)).lerp_(g.square(), 1 - second)
        return (mean / (1 - first**t)) / ((square / (1 - second**t)).sqrt() + self.epsilon)


def orthogonal(g: Tensor, steps: int = 5) -> Tensor:
    """Nearly the orthogonal matrix that is nearest to g, by an iteration of Newton and Schulz.

    Equation    X_0 = g / ‖g‖_F;  X_{k+1} = a X_k + b (X_k X_kᵀ) X_k + c (X_k X_kᵀ)² X_k
                of g = U Σ Vᵀ it makes U φ(Σ) Vᵀ, where φ is between 0.65 and 1.22 for all of Σ that is at least a
                fiftieth of its length
    Shapes      g [A, B] -> [A, B]
    Edge cases  zeros stay zeros
    Cost        3 products a step, O(A B min(A, B))

    Example
        >>> orthogonal(torch.tensor([[0.0, -5.0], [2.0, 0.0]])).round().tolist()
        [[0.0, -1.0], [1.0, 0.0]]
    """
    a, b, c = COEFFICIENTS
    x = g if g.shape[0] <= g.shape[1] else g.T
    x = x / x.norm().clamp(min=torch.finfo(x.dtype).tiny ** 0.5)
    for _ in range(steps):
        gram = x @ x.T
        x = torch.addmm(x, torch.addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if g.shape[0] <= g.shape[1] else x.T
