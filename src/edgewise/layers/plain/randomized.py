"""Randomised automatic differentiation: a random part of the activations is saved for an unbiased backward pass."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Bounds, Count
from edgewise.errors import ConfigError
from edgewise.layers.plain.linear import Dense, Linear, check_features
from edgewise.layers.plain.mlp import MLP

Kept = Annotated[float, Bounds(above=0, at_most=1)]


class RandomizedLinear(Linear):
    """The linear map whose weights learn from a random part of its inputs: less memory, the same gradient on average.

    Equation    y = W x + b;  dL/dW = Σ_n g_n x̃_nᵀ,  x̃_nd = D/k x_nd for k of the D inputs d, and 0 for the others
                each d is saved with probability k/D, so E[x̃] = x and E[dL/dW] is exact; dL/dx and dL/db are exact
    Symbols     keep = k/D, the memory budget; g_n = dL/dy_n
    Shapes      x [*, inputs] -> [*, outputs]
    Errors      ConfigError for a budget that is not above 0 and at most 1, and for second derivatives
    Edge cases  keep = 1, or a forward pass without gradient, is `torch.nn.Linear`; at least one input is saved
    Cost        saves n k numbers instead of n D: which inputs they are is recomputed in the backward pass;
                variance of a weight's gradient: Σ_n g_n² x_nd² (D/k - 1)
    Differs     of each row other inputs are saved: k neighbours on a circle in random order, which is cheap
    Reference   Oktay, McGreivy, Aduol, Beatson & Adams, "Randomized automatic differentiation", 2021, §4

    Example
        >>> layer = RandomizedLinear(4, 1, keep=0.5)
        >>> layer(torch.ones(1, 4)).backward()
        >>> sorted(layer.weight.grad[0].tolist())  # on average, 1 each
        [0.0, 0.0, 2.0, 2.0]
    """

    def __init__(self, inputs: Count, outputs: Count, bias: bool = True, keep: Kept = 0.5) -> None:
        super().__init__(inputs, outputs, bias)
        self.keep = keep

    def forward(self, x: Dense) -> Tensor:  # type: ignore[override]
        check_features(x, self.weight)
        count = max(1, round(self.keep * self.in_features))
        if count == self.in_features or not torch.is_grad_enabled():
            return super().forward(x)
        return _SampledLinear.apply(x, self.weight, self.bias, count)  # type: ignore[no-untyped-call]


class _SampledLinear(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, W: Tensor, b: Tensor | None, count: int) -> Tensor:
        ctx.seed = int(torch.randint(2**62, ()))
        rows = x.flatten(0, -2) if x.ndim > 1 else x[None]
        ctx.shape, ctx.has_bias = x.shape, b is not None
        ctx.save_for_backward(rows.gather(1, _chosen(ctx.seed, rows.shape, count, x.device)), W)
        return functional.linear(x, W, b)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        if torch.is_grad_enabled():  # create_graph=True; `once_differentiable` leaves zeros to some callers
            what = "a RandomizedLinear saves a part of its inputs, so it has no second derivatives"
            raise ConfigError(f"{what}: one with keep=1 has them, or a Linear")
        values, W = ctx.saved_tensors
        rows, (n, count), inputs = g.reshape(-1, g.shape[-1]), values.shape, W.shape[1]
        chosen = _chosen(ctx.seed, (n, inputs), count, g.device)
        x = values.new_zeros(n, inputs).scatter_(1, chosen, values * (inputs / count))
        dx = (rows @ W.to(rows.dtype)).view(ctx.shape) if ctx.needs_input_grad[0] else None
        return dx, rows.T @ x.to(rows.dtype), rows.sum(0) if ctx.has_bias else None, None


def _chosen(seed: int, shape: Sequence[int], count: int, device: torch.device) -> Tensor:
    """Which inputs of each row are saved: [rows, count], the same for the same seed."""
    generator = torch.Generator().manual_seed(seed)
    rows, inputs = shape
    order = torch.randperm(inputs, generator=generator)
    first = torch.randint(inputs, (rows, 1), generator=generator)
    return order[(first + torch.arange(count)) % inputs].to(device)


class _LeanReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x > 0)  # a byte for each number, where PyTorch's keeps the result
        return x.clamp(min=0)

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (positive,) = ctx.saved_tensors
        return g * positive


class RandomizedMLP(MLP):
    """Multilayer perceptron with ReLU that saves a random part of every layer's inputs for the backward pass.

    Equation    that of `MLP`; gradients as in `RandomizedLinear`
    Symbols     keep = the part of the activations that is saved
    Shapes      x [*, d_0] -> [*, d_{L+1}]
    Edge cases  keep = 1 is `MLP`, gradients included
    Cost        saves keep Σ_l n d_l numbers, and Σ_l n d_l bytes for the signs, instead of Σ_l n d_l numbers
    Reference   Oktay, McGreivy, Aduol, Beatson & Adams, 2021, §4

    Example
        >>> RandomizedMLP([2, 8, 3], keep=0.25)(torch.zeros(5, 2)).shape
        torch.Size([5, 3])
    """

    def __init__(self, sizes: Sequence[int], keep: Kept) -> None:
        super().__init__(sizes, "relu")
        self.linears = nn.ModuleList(RandomizedLinear(i, o, keep=keep) for i, o in pairwise(sizes))
        self.activation = _LeanReLU.apply
