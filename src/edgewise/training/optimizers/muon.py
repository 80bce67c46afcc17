"""Muon: momentum whose matrices are made orthogonal before they move the weights, and AdamW for all other weights."""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import optim
from torch.optim import Optimizer

from edgewise.errors import ConfigError
from edgewise.training.optimizers.uncompiled import loss_of, uncompiled


@uncompiled
class Muon(Optimizer):
    """PyTorch's Muon for matrices, its AdamW for all other weights, as one optimiser with one memory.

    Equation    B_t = μ B_{t-1} + (1 - μ) G_t;  O_t = orthogonal((1 - μ) G_t + μ B_t);
                W_t = (1 - η λ) W_{t-1} - 0.2 √max(rows, columns) η O_t
    Symbols     lr = η; weight_decay = λ; momentum = μ; betas, epsilon = those of AdamW; a group whose "orthogonal" is
                True moves so, any other as AdamW
    Errors      ConfigError for a weight that is no matrix in an orthogonal group
    Edge cases  a gradient of zeros, with no momentum, moves nothing but by weight decay
    Cost        beside a step of momentum 15 products of matrices, O(rows · columns · the lesser of both)
    Differs     moves are as large as Adam's, so that its rate and decay fit (Liu et al.), where Jordan scales by
                √max(1, rows/columns)
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
        super().__init__(params, {"lr": lr, "weight_decay": 0.0, "orthogonal": False})
        self.parts: dict[bool, Optimizer] = {}
        matrices, others = ([g for g in self.param_groups if g["orthogonal"] is kind] for kind in (True, False))
        if wrong := [w for group in matrices for w in group["params"] if w.ndim != 2]:
            raise ConfigError(f"only a matrix can be made orthogonal, not a weight of {list(wrong[0].shape)}")
        if matrices:
            muon = uncompiled(optim.Muon)
            self.parts[True] = muon(matrices, lr, momentum=momentum, adjust_lr_fn="match_rms_adamw")
        if others:
            self.parts[False] = uncompiled(optim.AdamW)(others, lr, betas=betas, eps=epsilon)

    @torch.no_grad()
    def step(self, closure: Callable[[], Any] | None = None) -> Any:
        """One move of all weights that have a gradient."""
        result = loss_of(closure)
        for orthogonal, part in self.parts.items():
            part.state = self.state
            part.param_groups = [group for group in self.param_groups if group["orthogonal"] is orthogonal]
            part.step()
        return result
