"""Vectors of length 1."""

from torch import Tensor
from torch.nn import functional

from edgewise.kernels.operator.layout import widened


def unit(x: Tensor) -> Tensor:
    """Vectors along the last axis divided by their length; 0 stays 0.

    Equation    y = x / ‖x‖
    Shapes      x [*, C] -> [*, C]
    Edge cases  half precisions go through float32: in float16 the ε that keeps 0 from 0 / 0 is 0 itself

    >>> import torch
    >>> unit(torch.tensor([[0.0, -5.0], [0.0, 0.0]])).tolist()
    [[0.0, -1.0], [0.0, 0.0]]
    """
    return functional.normalize(widened(x), dim=-1).to(x.dtype)
