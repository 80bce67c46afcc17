"""Distances as Gaussians of them, which a network of the edges reads."""

from __future__ import annotations

from math import inf

import torch
from torch import Tensor

from edgewise.errors import ShapeError
from edgewise.graphs.checks import dense_tensor, real_number, whole_number


def check_gaussians(count: int, reach: float, called: str = "count") -> tuple[int, float]:
    """Both as numbers; GraphError or ShapeError unless so many Gaussians can be spread evenly over so much."""
    count, reach = whole_number(count, called, least=2), real_number(reach, "reach")
    if not 0 < reach < inf:
        raise ShapeError(f"reach must be a finite length above 0, not {reach}")
    return count, reach


def gaussians(length: Tensor, count: int, reach: float = 1.0) -> Tensor:
    """A length as `count` Gaussians of it, whose centres are spread evenly from 0 to `reach`: far beyond, all are 0.

    Equation    exp(-(G - 1)² (d - k L / (G - 1))² / 2 L²) for k = 0, ..., G - 1
    Symbols     length = d, count = G > 1, reach = L
    Shapes      length [*, 1] -> [*, count], whole numbers as PyTorch's default dtype

    Example
        >>> gaussians(torch.tensor([0.5]), 3)  # exp(-1/2) = 0.6065
        tensor([0.6065, 1.0000, 0.6065])
    """
    count, reach = check_gaussians(count, reach)
    if dense_tensor(length, "length", "of distances [*, 1]").shape[-1:] != (1,):
        raise ShapeError(f"length must be distances [*, 1], not {list(length.shape)}")
    length = length if length.is_floating_point() else length.to(torch.get_default_dtype())
    centres = torch.linspace(0, reach, count, dtype=length.dtype, device=length.device)
    # Where a Gaussian is next to nothing it is exp(-80): exponentials that underflow take ten times as long.
    return torch.exp((-0.5 * ((count - 1) / reach * (length - centres)).square()).clamp(min=-80))
