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
    return nearest_image(x_i - x_j, cell)


def nearest_image(x_ij: Tensor, cell: Tensor | None) -> Tensor:
    """The shortest of the vectors that are the same displacement in a periodic cell; x_ij itself without one."""
    if cell is None:
        return x_ij
    if cell.shape not in ((), x_ij.shape[-1:]):
        raise ShapeError(f"a cell is one length, or one for each of {x_ij.shape[-1]} axes, not {list(cell.shape)}")
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


def log_lengths(x_ij: Tensor, nearest: float = 0.01) -> Tensor:
    """½ log(|x_ij|² + nearest²) [*, E, 1]: what a power of the distance is linear in, smooth where two nodes meet."""
    return 0.5 * torch.log(squared_lengths(x_ij) + nearest**2)
