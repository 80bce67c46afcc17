"""Where senders are, seen from receivers: displacements, distances and angles, in open space or a periodic box."""

from math import pi

import torch
from torch import Tensor

from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.checks import same_device, shown
from edgewise.graphs.tracing import is_real
from edgewise.kernels import ends
from edgewise.kernels.call import check_graph
from edgewise.layers.plain.linear import check_dense
from edgewise.layers.plain.sides import in_one_batch


def beside(of_distance: Tensor, a_ij: Tensor | None) -> Tensor:
    """What follows from the distance of each edge [*, E, C], and what else is known of it [*, E, A], side by side."""
    if a_ij is None:
        return of_distance
    wanted = f"[*, {of_distance.shape[-2]}, A], a row for each of the graph's edges"
    if not isinstance(a_ij, Tensor) or a_ij.shape[-2:-1] != of_distance.shape[-2:-1]:
        raise ShapeError(f"what is known of edges is {shown(a_ij)}, but must be {wanted}")
    same_device("what is known of edges", a_ij, of_distance.device)
    return torch.cat(in_one_batch(of_distance, a_ij), -1)


def check_places(name: str, x: Tensor) -> None:
    """Raise ShapeError for what cannot be places or velocities; whole numbers can."""
    if x.dtype == torch.bool or x.is_complex():
        raise ShapeError(f"{name} are {str(x.dtype).removeprefix('torch.')}, but must be real numbers, [*, N, D]")


def check_cell(cell: Tensor | None) -> None:
    """Raise ShapeError for a cell that is no tensor, or has a length of 0."""
    if not isinstance(cell, Tensor | None) or (cell is not None and (cell.is_complex() or cell.dtype == torch.bool)):
        given = f"{shown(cell)} of {cell.dtype}" if isinstance(cell, Tensor) else shown(cell)
        raise ShapeError(f"a cell is a tensor of one length, or of one for each axis, not {given}")
    if cell is not None and cell.device.type == "cpu" and is_real(cell) and not bool(cell.all()):
        raise ShapeError("a cell has a length of 0: each must be above 0, or inf along an open axis")


def displacements(graph: Graph, x: Tensor, cell: Tensor | None = None) -> Tensor:
    """The vector from the sender of every edge to its receiver; in a periodic cell, between their nearest images.

    Equation    x_ij = x_i - x_j;  in a cell of edges L: x_ij - L round(x_ij / L)
    Shapes      x [*, N, D], cell [D] or [], or [*, E, D] where edges lie in different cells -> [*, E, D]; unit of x
    Errors      ShapeError where x does not fit the graph, or the cell is not one length per axis; for 0, on the CPU
    Edge cases  an axis of length inf is open; at half an edge, of two nearest images the even one is taken
    Cost        O(E D)

    Example
        >>> pair = Graph.from_edge_index([[0], [1]], num_nodes=2)
        >>> x = torch.tensor([[0.0], [9.0]])
        >>> displacements(pair, x).item(), displacements(pair, x, torch.tensor(10.0)).item()
        (9.0, -1.0)
    """
    check_graph(graph, x)
    check_dense(x)
    same_device("x", x, graph.device)
    check_places("positions", x)
    x_i, x_j = ends(graph, x)
    x_ij = x_i - x_j
    check_cell(cell)
    if cell is None:
        return x_ij
    same_device("the cell", cell, graph.device)
    if cell.shape not in ((), x.shape[-1:]) and cell.shape[-2:] != x_ij.shape[-2:]:
        raise ShapeError(f"a cell is one length, or one for each of {x.shape[-1]} axes, not {list(cell.shape)}")
    images = torch.round(x_ij.detach() / cell)
    return x_ij - torch.where(images == 0, 0.0, images * cell)  # not inf · 0 along an open axis


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


def envelope(r: Tensor, cutoff: float) -> Tensor:
    """½ (cos(π r / cutoff) + 1) of distances below the cutoff, else 0: it ends there with slope 0.

    Reference   Behler & Parrinello, 2007, (3)
    """
    return torch.where(r < cutoff, 0.5 * (torch.cos(r * (pi / cutoff)) + 1), 0.0)


def edge_pairs(graph: Graph) -> tuple[Tensor, Tensor]:
    """Every pair of edges that arrive at one receiver: their numbers, the lower ones and the higher ones.

    Shapes      a graph whose receivers have d_i senders -> two [P], P = Σ_i d_i (d_i - 1)/2, by receiver
    Edge cases  parallel edges are two
    Cost        O(E + P)

    Example
        >>> star = Graph.from_edge_index([[1, 2, 3, 0], [0, 0, 0, 1]], num_nodes=4)
        >>> [part.tolist() for part in edge_pairs(star)]
        [[0, 0, 1], [1, 2, 2]]
    """
    edges = torch.arange(graph.num_edges, device=graph.device)
    later = graph.offsets[1:].index_select(0, graph.receivers) - edges - 1  # how many follow at the same receiver
    lower = edges.repeat_interleave(later)
    before = (later.cumsum(0) - later).repeat_interleave(later)
    return lower, lower + 1 + torch.arange(len(lower), device=graph.device) - before


def angles(graph: Graph, x: Tensor, cell: Tensor | None = None) -> Tensor:
    """The angle at a receiver between the lines to two of its senders, for every pair of `edge_pairs`.

    Equation    θ_jik = 2 atan2(| |x_ik| x_ij - |x_ij| x_ik |, | |x_ik| x_ij + |x_ij| x_ik |)
    Shapes      x [*, N, D], cell as in `displacements` -> [*, P, 1], from 0 to π
    Edge cases  where a sender is on its receiver's spot, the angle is 0 and so is its gradient
    Cost        O(E D + P D)
    Differs     from arccos(x_ij · x_ik / |x_ij| |x_ik|), which loses half of the digits near 0 and π
    Reference   Kahan, "How futile are mindless assessments of roundoff in floating-point computation?", 2006, §12

    Example
        >>> corner = Graph.from_edge_index([[1, 2], [0, 0]], num_nodes=3)
        >>> places = torch.tensor([[0.0, 0.0], [2.0, 0.0], [9.0, 9.0]])
        >>> angles(corner, places).rad2deg().round().item()
        45.0
        >>> angles(corner, places, torch.tensor(10.0)).rad2deg().round().item()  # to the next image of the last
        135.0
    """
    x_ij = displacements(graph, x, cell)
    size = x_ij.detach().abs().sum(-1, keepdim=True)  # by which angles do not change, but products overflow
    x_ij = x_ij / torch.where(size > 0, size, 1)
    r_ij = lengths(x_ij)
    lower, higher = edge_pairs(graph)
    one, other = (x_ij.index_select(-2, end) * r_ij.index_select(-2, end_of_other)
                  for end, end_of_other in ((lower, higher), (higher, lower)))  # fmt: skip
    apart, together = lengths(one - other), lengths(one + other)
    there = apart + together > 0
    return torch.where(there, 2 * torch.atan2(apart, torch.where(there, together, 1.0)), 0.0)


def log_lengths(x_ij: Tensor, nearest: float = 0.01) -> Tensor:
    """½ log(|x_ij|² + nearest²) [*, E, 1]: what a power of the distance is linear in, smooth where two nodes meet."""
    return 0.5 * torch.log(squared_lengths(x_ij) + nearest**2)
