"""Vectors of length 1."""

import torch
from torch import Tensor

from edgewise.kernels.operator.layout import widened


def unit(x: Tensor) -> Tensor:
    """Vectors along the last axis divided by their length; 0 stays 0.

    Equation    y = x / ‖x‖
    Shapes      x [*, C] -> [*, C]
    Edge cases  0 has the gradient of y = x; no vector is divided by less than 1e-12. Half precisions go through
                float32, since in float16 that is 0 itself

    >>> unit(torch.tensor([[0.0, -5.0], [0.0, 0.0]])).tolist()
    [[0.0, -1.0], [0.0, 0.0]]
    """
    wide = widened(x)
    length = wide.norm(dim=-1, keepdim=True)
    return (wide / torch.where(length > 0, length.clamp(min=1e-12), 1)).to(x.dtype)
