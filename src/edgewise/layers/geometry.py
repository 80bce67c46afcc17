"""Where senders are, seen from their receivers: displacements and distances, in open space or in a periodic box."""

from __future__ import annotations

import torch
from torch import Tensor

from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.kernels import ends


def displacements(graph: Graph, x: Tensor, cell: Tensor | None = None) -> Tensor:
    """The vector from the sender of every edge to its receiver; in a periodic cell, between their nearest images.

    Equation    x_ij = x_i - x_j;  in a cell of edges L: x_ij - L round(x_ij / L)
    Shapes      x [*, N, D], cell [D] or [] -> [*, E, D]; in the unit of x
    Errors      ShapeError where x does not fit the graph, or the cell is not one length per axis
    Edge cases  at exactly half an edge either image is as near; the one with the even number is taken
    Cost        O(E D)

    Example
        >>> pair = Graph.from_edge_index([[0], [1]], num_nodes=2)
        >>> x = torch.tensor([[0.0], [9.0]])
        >>> displacements(pair, x).item(), displacements(pair, x, torch.tensor(10.0)).item()
        (9.0, -1.0)
    """
    x_i, x_j = ends(graph, x)
    x_ij = x_i - x_j
    if cell is None:
        return x_ij
    if cell.shape not in ((), x.shape[-1:]):
        raise ShapeError(f"a cell is one length, or one for each of {x.shape[-1]} axes, not {list(cell.shape)}")
    return x_ij - cell * torch.round(x_ij.detach() / cell)


def squared_lengths(x_ij: Tensor) -> Tensor:
    """|x_ij|² [*, E, 1]: smooth where two nodes meet, unlike the length itself."""
    return x_ij.square().sum(-1, keepdim=True)


def lengths(x_ij: Tensor) -> Tensor:
    """|x_ij| [*, E, 1]; its gradient is 0 where two nodes are on the same spot, not NaN.

    Example
        >>> x_ij = torch.tensor([[3.0, 4.0], [0.0, 0.0]], requires_grad=True)
        >>> lengths(x_ij).sum().backward()
        >>> lengths(x_ij).flatten().tolist(), x_ij.grad.tolist()
        ([5.0, 0.0], [[0.6000000238418579, 0.800000011920929], [0.0, 0.0]])
    """
    squared = squared_lengths(x_ij)
    apart = squared > 0
    return torch.where(apart, torch.where(apart, squared, 1.0).sqrt(), 0.0)


def gaussians(length: Tensor, count: int, reach: float = 1.0) -> Tensor:
    """A length as `count` bells, whose centres are spread evenly from 0 to `reach`: far beyond it, all are 0.

    Equation    exp(-(G - 1)² (d - k L / (G - 1))² / 2 L²) for k = 0, ..., G - 1
    Symbols     length = d, count = G > 1, reach = L
    Shapes      length [*, 1] -> [*, count]

    Example
        >>> gaussians(torch.tensor([0.5]), 3)  # exp(-1/2) = 0.6065
        tensor([0.6065, 1.0000, 0.6065])
    """
    centres = torch.linspace(0, reach, count, dtype=length.dtype, device=length.device)
    return torch.exp(-0.5 * ((count - 1) / reach * (length - centres)).square())
