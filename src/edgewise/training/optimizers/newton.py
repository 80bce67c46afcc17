"""Newton's method: steps by the exact curvature of the loss, for problems small enough to hold it."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor
from torch.optim import Optimizer

from edgewise.errors import ConfigError
from edgewise.training.optimizers.uncompiled import loss_of, uncompiled

MOST = 5000  # weights: a Hessian of 200 MB in float64, and as much again for its eigenvectors
FLAT = 1e-10  # of the largest curvature: directions with less are not moved along


@uncompiled
class Newton(Optimizer):
    """Newton's method: the step to where the gradient of the loss's second-order expansion vanishes.

    Equation    w ← w - η (∇²f(w) + ε I)⁻¹ ∇f(w),  f(w) = L(w) + λ/2 ‖w‖²
    Symbols     lr = η, 1 for the method itself; weight_decay = λ; damping = ε; ∇²f = H [P, P] of all P weights
    Errors      ConfigError for more than MOST weights, a rate that is not positive, negative damping, or a step without
                `backward(loss)` before it
    Edge cases  directions along which H is 0 are left alone (the pseudo-inverse): those of softmax without weight
                decay. Where H is not positive the step may lead uphill, to a saddle point or a maximum: damping above
                the most negative curvature turns it downhill, and large damping is gradient descent at a rate of η/ε
    Cost        P backward passes through the gradient's graph, O(P³) time and O(P²) memory
    Differs     none: this is the method that §3.4 finds too dear for networks, and 004 calls the exact way
    Reference   Baggag & Saad, §3.4; "Advanced concepts in deep learning" (scale invariance); Nocedal & Wright, 2006, §3

    Example
        >>> w = torch.nn.Parameter(torch.tensor([3.0, -5.0]))
        >>> newton = Newton([w])
        >>> newton.backward((torch.tensor([1.0, 100.0]) * (w - 1).square()).sum())  # a long narrow valley
        >>> _ = newton.step()
        >>> w.round(decimals=4).tolist()  # one step, at any scale
        [1.0, 1.0]
    """

    def __init__(self, params: Iterable[Any], lr: float = 1.0, weight_decay: float = 0.0, damping: float = 0.0) -> None:
        if not (lr > 0 and damping >= 0):
            raise ConfigError(f"lr={lr} must be positive, damping={damping} at least 0")
        super().__init__(params, {"lr": lr, "weight_decay": weight_decay})
        self.damping = damping
        self.loss: Tensor | None = None  # of the step that comes, with its graph
        count = sum(w.numel() for group in self.param_groups for w in group["params"])
        if count > MOST:
            raise ConfigError(f"Newton's method holds the {count:,} x {count:,} curvatures: at most {MOST:,} weights")

    def backward(self, loss: Tensor) -> None:
        """Add the gradients of a loss to those of the weights, as `loss.backward()` does, and its curvature as well."""
        loss.backward(retain_graph=True)
        self.loss = loss if self.loss is None else self.loss + loss

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One move of all weights that have a gradient."""
        result = loss_of(closure)
        if self.loss is None:
            raise ConfigError("Newton's method differentiates twice: call backward(loss) in place of loss.backward()")
        pairs = [(w, group) for group in self.param_groups for w in group["params"] if w.grad is not None]
        weights = [w for w, _ in pairs]
        decay = torch.cat([torch.full_like(w.flatten(), group["weight_decay"]) for w, group in pairs]).double()
        gradient = _flat([w.grad for w in weights]) + decay * _flat(weights)
        curvatures, directions = torch.linalg.eigh(hessian(self.loss, weights) + torch.diag(decay + self.damping))
        steep = curvatures.abs() > FLAT * curvatures.abs().max()
        along = torch.where(steep, directions.T @ gradient / torch.where(steep, curvatures, 1), 0)
        moves = (directions @ along).split([w.numel() for w in weights])
        for (w, group), move in zip(pairs, moves, strict=True):
            w.sub_(move.view_as(w).to(w.dtype), alpha=group["lr"])
        self.loss = None
        return result


def hessian(loss: Tensor, weights: list[Tensor]) -> Tensor:
    """The second derivatives of a loss by all weights, in a row: [P, P], float64.

    Edge cases  weights that the loss does not depend on have curvature 0
    Cost        a backward pass for each weight

    Example
        >>> x, y = (torch.nn.Parameter(torch.tensor([value])) for value in (2.0, 3.0))
        >>> hessian((x.square() * y).sum(), [x, y]).tolist()
        [[6.0, 4.0], [4.0, 0.0]]
    """
    with torch.enable_grad():
        first = torch.autograd.grad(loss, weights, create_graph=True, materialize_grads=True)
        each = torch.cat([g.flatten() for g in first]).unbind()
    if not each[0].requires_grad:
        return each[0].new_zeros(len(each), len(each), dtype=torch.float64)
    rows = [_flat(torch.autograd.grad(g, weights, retain_graph=True, materialize_grads=True)) for g in each]
    square = torch.stack(rows)
    return (square + square.T) / 2


def _flat(parts: Iterable[Tensor]) -> Tensor:
    return torch.cat([part.detach().flatten() for part in parts]).double()
