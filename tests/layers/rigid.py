"""Rigid motions: what an equivariant layer has to follow."""

import torch
from torch import Tensor


def rotation(seed: int, dimensions: int = 3, reflect: bool = False) -> Tensor:
    """A random orthogonal matrix in float64, of determinant -1 where it reflects."""
    R = torch.linalg.qr(torch.randn(dimensions, dimensions, generator=torch.Generator().manual_seed(seed)).double())[0]
    if (torch.linalg.det(R) < 0) != reflect:
        R[:, 0] *= -1
    return R


def translation(seed: int, dimensions: int = 3) -> Tensor:
    return torch.randn(dimensions, generator=torch.Generator().manual_seed(seed + 1000)).double()
