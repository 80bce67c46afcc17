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


def wigner(R: Tensor, types: int) -> Tensor:
    """How features of types 0, ..., types turn: the D [(types + 1)², (types + 1)²] with Y(R x) = D Y(x).

    Solved for type by type, on e3nn's harmonics in float64: e3nn's own Wigner matrices are exact to 1e-7 only.
    """
    from e3nn import o3

    x = torch.randn(50, 3, generator=torch.Generator().manual_seed(0)).double()
    blocks = []
    for kind in range(types + 1):
        here, there = (o3.spherical_harmonics(kind, y, True, "component") for y in (x, x @ R.T))
        blocks.append(torch.linalg.lstsq(here, there).solution.T)
    return torch.block_diag(*blocks)
