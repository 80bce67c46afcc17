"""Graphs from positions: who is near whom, by a k-d tree; in open space or in a periodic box."""

import math
from collections.abc import Sequence
from functools import reduce
from operator import add
from typing import Any

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs import forms as lowering
from edgewise.graphs.checks import dense_tensor, whole_number
from edgewise.graphs.graph import Graph
from edgewise.graphs.make.content import by_content
from edgewise.graphs.make.periodic import ROUNDING, images_within
from edgewise.graphs.tracing import plain, untransformed

Floats = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]
Cell = float | Sequence[float] | Tensor

AT_ONCE = 1 << 22  # candidates held in memory at once
FARTHEST = 1e150  # the square of a distance that is much larger is infinite
FINEST = 2.0**-500  # and that of one that is much smaller 0
DENSE = 1024  # points among which comparing all pairs is faster than a tree
TREE = 8  # dimensions up to which a tree is faster than comparing all pairs


def k_nearest(
    points: Tensor, k: int, queries: Tensor | None = None, cell: Cell | None = None, loops: bool = False
) -> Graph:
    """Every receiver listens to the k points nearest to it.

    Equation    N(i) = the k points j with the least (|x_i - x_j|, j): points at equal distance go by index
    Symbols     points = x_j, the senders; queries = x_i, the receivers (None: the points themselves)
    Shapes      points [J, D], queries [I, D] -> a graph with I receivers, J senders and k edges per receiver
    Errors      a shape other than [N, D]; a coordinate that is not finite, or above 1e150: its row is named; a cell
                that is no box
    Edge cases  a point does not listen to itself, however many others lie on the same spot; with loops=True it does,
                and it is the first of its k; where there are fewer than k points, to all of them
    Cost        O((I + J) log J + I k D), however many points lie on one spot; in more than 8 dimensions, where a tree
                visits nearly all points, and without a cell O(I J D) by products of matrices, O(I + J) memory
    Differs     in a periodic cell each point counts once, by its nearest image

    `cell` holds the edges of the periodic box, one per axis or one for all (math.inf: open along that axis), in the
    unit of the points. Points may lie outside. Distances are taken in float64 on the CPU.

    >>> line = torch.tensor([[0.0], [1.0], [3.0]])
    >>> k_nearest(line, k=1).senders.tolist()
    [1, 0, 1]
    >>> k_nearest(line, k=1, cell=3.5).senders.tolist()  # from 3 it is 0.5 to the next image of 0
    [2, 0, 0]
    """
    k = whole_number(k, "k")
    senders, receivers, box = _coordinates(points, queries, cell)
    itself = queries is None
    k = min(k, max(0, len(senders) - (itself and not loops)))
    own = numpy.arange(len(receivers))[:, None][:, : k if itself and loops else 0]
    nearest = numpy.hstack([own, _nearest(senders, receivers, k - own.shape[1], box, itself)])
    offsets = torch.arange(len(receivers) + 1) * k
    return Graph.from_csr(offsets, torch.from_numpy(nearest.ravel()), len(senders)).to(_device(points))


@by_content
def k_nearest_in_members(points: Tensor, sizes: Tensor, k: int, loops: bool = True) -> Graph:
    """`k_nearest` inside each member of a batch: a disjoint graph of points that lie one member after the other.

    Symbols     sizes = number of points of each member, as `Graph.sizes`; points, k and loops as in `k_nearest`
    Shapes      points [N, D], sizes [G] -> a graph on N nodes with G members
    Cost        members of about one size n <= 1,024: all pairs at once, O(N n (D + log n)); else that of `k_nearest` in
                each
    """
    x = _members(points, sizes)
    if x is None:
        return Graph.batch(k_nearest(member, k, loops=loops) for member in points.split(sizes.tolist()))
    sizes, n = sizes.cpu(), x.shape[1]
    there = torch.arange(n) < sizes[:, None]
    degrees = (sizes - int(not loops)).clamp(0, whole_number(k, "k"))
    distance = torch.cdist(x, x, compute_mode="donot_use_mm_for_euclid_dist").masked_fill_(~there[:, None], math.inf)
    own = -1 if loops else math.inf
    distance.diagonal(dim1=1, dim2=2).fill_(own)
    ranked, nearest = distance.sort(stable=True)
    last, beyond = ((degrees + d).clamp(0, n - 1)[:, None, None].expand(-1, n, 1) for d in (-1, 0))
    ties = ranked.gather(2, beyond) <= ranked.gather(2, last) * (1 + ROUNDING)
    ties &= (there & ((degrees > 0) & (degrees < sizes))[:, None])[..., None]
    _settle_ties(nearest, ties[..., 0].nonzero(), x, own, there)
    nearest = nearest.masked_fill_(torch.arange(n) >= degrees[:, None, None], n).sort(-1).values[there]
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)[:, None]
    senders = (nearest + first)[nearest < n]
    return _batch(points, sizes, lowering.offsets_of(degrees.repeat_interleave(sizes)), senders)


def radius_graph(
    points: Tensor, radius: float, queries: Tensor | None = None, cell: Cell | None = None, loops: bool = False
) -> Graph:
    """Every receiver listens to the points within a radius of it.

    Equation    N(i) = {j : |x_i - x_j| <= radius}
    Symbols     points = x_j, the senders; queries = x_i, the receivers (None: the points themselves)
    Shapes      points [J, D], queries [I, D] -> a graph with I receivers and J senders
    Errors      as `k_nearest`; a radius which is negative or not finite; in a periodic cell, a radius of half its
                shortest edge or more, because two images of one point could then be neighbours
    Edge cases  a point does not listen to itself, but to others on the same spot; with loops=True it does
    Cost        O((I + J) log J + E D)

    `cell` is that of `k_nearest`. Distances are taken in float64 on the CPU.

    >>> line = torch.tensor([[0.0], [1.0], [3.0]])
    >>> radius_graph(line, 1.0).edge_index().tolist()
    [[1, 0], [0, 1]]
    >>> radius_graph(line, 1.0, cell=3.5).edge_index().tolist()
    [[1, 2, 0, 0], [0, 0, 1, 2]]
    """
    radius = _radius(radius)
    senders, receivers, box = _coordinates(points, queries, cell)
    if 2 * radius >= box.min():
        raise GraphError(f"radius must be less than half of the cell's shortest edge, {box.min()}, not {radius}")
    j, i = _within(senders, receivers, radius, box)
    if queries is None and not loops:
        j, i = j[i != j], i[i != j]
    edges = torch.from_numpy(numpy.stack([j, i]))
    return Graph.from_edge_index(edges, len(senders), len(receivers)).to(_device(points))


def radius_graph_in_members(points: Tensor, sizes: Tensor, radius: float) -> Graph:
    """`radius_graph` inside each member of a batch: a disjoint graph of points that lie one member after the other.

    Symbols     sizes = number of points of each member, as `Graph.sizes`; points and radius as in `radius_graph`
    Shapes      points [N, D], sizes [G] -> a graph on N nodes with G members
    Cost        members of at most n <= 1,024 points and about one size: all pairs at once, O(N n D); else that of
                `radius_graph` in each
    """
    x = _members(points, sizes)
    if x is None:
        return Graph.batch(radius_graph(member, radius) for member in points.split(sizes.tolist()))
    radius, sizes = _radius(radius), sizes.cpu()
    there = torch.arange(x.shape[1]) < sizes[:, None]
    distance = sum((axis[:, :, None] - axis[:, None]).square() for axis in x.unbind(-1))
    assert isinstance(distance, Tensor)
    distance.diagonal(dim1=1, dim2=2).fill_(math.inf)
    near = ((distance <= radius * radius) & there[:, None])[there]
    receivers, senders = near.nonzero(as_tuple=True)
    first = (sizes.cumsum(0) - sizes).repeat_interleave(sizes)
    return _batch(points, sizes, lowering.offsets_of(near.sum(-1)), senders + first[receivers])


def radius_graph_of_images(points: Tensor, radius: float, cell: Tensor, periodic: Tensor) -> tuple[Graph, Tensor]:
    """Every receiver listens to all images of points within a radius, in a periodic cell of any shape and size.

    Equation    an edge for each j and image n with |x_i - (x_j + s)| <= radius, s = Σ_k n_k a_k, but for j = i at s = 0
    Symbols     cell = a, the vectors of the cell in rows; periodic = along which of them there are images
    Shapes      points [N, D], cell [K, D], periodic [K] bools -> a graph on N nodes, with an edge for each image, and s
                [E, D] in float64 in the graph's edge order
    Errors      as `radius_graph`; vectors of the periodic axes that span no volume; too many images to hold
    Edge cases  a point listens to its own images; points may lie outside of the cell
    Cost        O(M log M + E D) for the M images of points that lie within the radius of the cell

    >>> line = torch.tensor([[0.0], [9.0]])
    >>> graph, s = radius_graph_of_images(line, 1.0, torch.tensor([[10.0]]), torch.tensor([True]))
    >>> graph.edge_index().tolist(), s.tolist()
    ([[1, 0], [0, 1]], [[-10.0], [10.0]])
    """
    radius, x = _radius(radius), _rows(points, "points")
    a = cell.detach().cpu().double().numpy()[periodic.cpu().numpy()]
    if a.shape[1:] != x.shape[1:] or not numpy.isfinite(a).all() or (len(a) and numpy.linalg.matrix_rank(a) < len(a)):
        raise GraphError(f"the periodic vectors of a cell must be {x.shape[1]} long and span space, not {a.tolist()}")
    try:
        i, j, s = images_within(x, radius, a)
    except ValueError as error:
        raise GraphError(str(error)) from error
    graph = Graph.from_edge_index(torch.from_numpy(numpy.stack([j, i])), len(x))
    return graph, graph.sort_edges(torch.from_numpy(s))


def _members(points: Tensor, sizes: Tensor) -> Tensor | None:
    """Points [G, n, D] in float64 of members of at most n points, zeros after those of smaller ones; None where members
    are too large for all pairs, or of such sizes that more than half of these would be of no points."""
    if int(sizes.sum()) != len(points):
        raise GraphError(f"the members have {int(sizes.sum())} points by their sizes, but there are {len(points)}")
    sizes = sizes.cpu()
    n = int(sizes.max()) if len(sizes) else 0
    if not n or n > DENSE or len(sizes) * n * n > 2 * int(sizes.square().sum()):
        return None
    x = torch.from_numpy(_rows(points, "points"))
    padded = x.new_zeros(len(sizes), n, x.shape[1])
    padded[torch.arange(n) < sizes[:, None]] = x
    return padded


def _settle_ties(nearest: Tensor, rows: Tensor, x: Tensor, own: float, there: Tensor) -> None:
    """Write the nearest [G, n, n] of the rows (member, i) [R, 2] anew, by the distances that `k_nearest` compares."""
    n, open_space = x.shape[1], numpy.full(x.shape[2], math.inf)
    for part in rows.split(max(1, AT_ONCE // n)):
        member, i = part.unbind(1)
        distance = torch.from_numpy(_squared_distance(x[member, i, None].numpy(), x[member].numpy(), open_space))
        distance[~there[member]] = math.inf
        distance[torch.arange(len(part)), i] = own
        nearest[member, i] = distance.sort(stable=True).indices


def _batch(points: Tensor, sizes: Tensor, offsets: Tensor, senders: Tensor) -> Graph:
    forms: dict[str, Any] = {"offsets": offsets, "senders": senders, "sizes": sizes}
    return Graph._of(len(points), len(points), **forms).to(_device(points))


def _radius(radius: float) -> float:
    try:
        radius = float(radius)
    except (TypeError, ValueError):
        raise GraphError(f"radius must be a number, not {radius!r}") from None
    if not (math.isfinite(radius) and radius >= 0):
        raise GraphError(f"radius must be finite and at least 0, not {radius}")
    return radius


def _nearest(x_j: Floats, x_i: Floats, k: int, box: Floats, itself: bool) -> Indices:
    """Senders [I, k], nearest first and without oneself. The tree breaks ties arbitrarily: query more until the k-th is
    no tie."""
    nearest = numpy.zeros((len(x_i), k), dtype=numpy.int64)
    if nearest.size == 0:
        return nearest
    first = _first_of_spots(x_j, k + itself)
    all_pairs = x_j.shape[1] > TREE and bool(numpy.isinf(box).all())
    search = _AllPairs(x_j[first]) if all_pairs else _Tree(x_j[first], box)
    count, open_rows = min(len(first), k + 1 + itself), numpy.arange(len(x_i))
    while len(open_rows):
        ties = []
        for rows in numpy.array_split(
            open_rows, 1 + len(open_rows) * max(search.held, count * x_j.shape[1]) // AT_ONCE
        ):
            near, bound = search(x_i[rows], count)
            candidates = first[near]
            distance = _squared_distance(x_i[rows, None], x_j[candidates], box)
            farthest = distance.max(axis=1) if bound is None else bound
            if itself:
                distance[candidates == rows[:, None]] = math.inf
            order = numpy.lexsort((candidates, distance), axis=1)[:, :k]
            nearest[rows] = numpy.take_along_axis(candidates, order, axis=1)
            last = numpy.take_along_axis(distance, order[:, -1:], axis=1)[:, 0]
            ties.append(rows[(farthest <= last * (1 + ROUNDING)) & (count < len(first))])
        open_rows, count = numpy.concatenate(ties), min(len(first), 2 * count)
    return nearest


class _Tree:
    """The nearest points by a k-d tree, whose distances are those of `_squared_distance` but for rounding."""

    def __init__(self, x: Floats, box: Floats) -> None:
        self.tree, self.held = _tree(x, box), 0

    def __call__(self, x: Floats, count: int) -> tuple[Indices, None]:
        return self.tree.query(x, k=numpy.arange(1, count + 1))[1], None


class _AllPairs:
    """The nearest points by a product of matrices, in many dimensions, where a tree would visit nearly all of them.

    Equation    |x_i - x_j|² = |x_i|² + |x_j|² - 2 x_i·x_j, of points around their mean; no other point is nearer than
                the farthest of those that are returned, less what rounding may have added
    """

    def __init__(self, x: Floats) -> None:
        self.middle = x.mean(0) if len(x) else x.sum(0)
        self.x = torch.from_numpy(x - self.middle)
        self.squares, self.held = self.x.square().sum(1), len(x)  # numbers in memory for each row

    def __call__(self, x: Floats, count: int) -> tuple[Indices, Floats]:
        rows = torch.from_numpy(x - self.middle)
        own = rows.square().sum(1, keepdim=True)
        found = torch.addmm(self.squares, rows, self.x.T, alpha=-2).add_(own).topk(count, largest=False)
        least = (len(self.middle) + 8) * torch.finfo(torch.float64).eps * 4 * (own[:, 0] + self.squares.max())
        return found.indices.numpy(), (found.values[:, -1] - least).numpy()


def _first_of_spots(x: Floats, most: int) -> Indices:
    """The points, but of those on one spot only so many of the least index: no other can be among the nearest."""
    if len(x) and len(numpy.unique(x[:, 0])) == len(x):
        return numpy.arange(len(x))
    order = numpy.lexsort(x.T)
    new = numpy.ones(len(x), dtype=bool)
    new[1:] = (x[order[1:]] != x[order[:-1]]).any(axis=1)
    place = numpy.arange(len(x))
    return order[place - numpy.maximum.accumulate(numpy.where(new, place, 0)) < most]


def _within(x_j: Floats, x_i: Floats, radius: float, box: Floats) -> tuple[Indices, Indices]:
    """Senders and receivers [E] of all pairs within the radius."""
    if len(x_j) == 0 or len(x_i) == 0:
        return numpy.zeros(0, dtype=numpy.int64), numpy.zeros(0, dtype=numpy.int64)
    reach = radius * (1 + ROUNDING)
    pairs = _tree(x_i, box).sparse_distance_matrix(_tree(x_j, box), reach, output_type="ndarray")
    i, j = pairs["i"], pairs["j"]
    near = _squared_distance(x_i[i], x_j[j], box) <= radius * radius
    return j[near], i[near]


def _tree(x: Floats, box: Floats) -> Any:
    from scipy.spatial import cKDTree

    return cKDTree(x, boxsize=numpy.where(numpy.isinf(box), 0.0, box))  # to scipy, 0 is an open axis


def _squared_distance(x_i: Floats, x_j: Floats, box: Floats) -> Floats:
    """|x_i - x_j|^2 to the nearest image, added axis by axis: in another order, equal distances would round apart."""
    x_ij = x_i - x_j
    periodic = numpy.isfinite(box)
    x_ij[..., periodic] -= box[periodic] * numpy.rint(x_ij[..., periodic] / box[periodic])
    return numpy.asarray(reduce(add, numpy.moveaxis(x_ij**2, -1, 0)))


def _coordinates(points: Any, queries: Any, cell: Cell | None) -> tuple[Floats, Floats, Floats]:
    """Senders x_j, receivers x_i and the box, in float64; coordinates wrapped into the box."""
    x_j = _rows(points, "points")
    x_i = x_j if queries is None else _rows(queries, "queries")
    dimensions = x_j.shape[1]
    if x_i.shape[1] != dimensions:
        raise GraphError(f"points have {dimensions} coordinates, but queries have {x_i.shape[1]}")
    try:
        lengths = cell.detach().cpu().double().numpy() if isinstance(cell, Tensor) else cell
        box = numpy.array(math.inf if lengths is None else lengths, dtype=numpy.float64)
    except (TypeError, ValueError):
        raise GraphError(f"cell must be a length, or one for each of {dimensions} axes, not {cell!r}") from None
    if box.shape not in ((), (1,), (dimensions,)):
        raise GraphError(f"cell must be a length, or one for each of {dimensions} axes, not shape {list(box.shape)}")
    if not (box > 0).all():
        raise GraphError(f"cell must hold lengths above 0, not {box.tolist()}")
    box = numpy.broadcast_to(box, (dimensions,))
    return _wrapped(x_j, box), _wrapped(x_i, box), box


def _rows(value: Any, name: str) -> Floats:
    """[N, D] of finite numbers."""
    if isinstance(value, Tensor):
        value = plain(dense_tensor(value, name, "[N, D]"))
        if value.device.type == "meta":
            raise GraphError(f"{name} must be on a real device, not on meta, where no tensor holds numbers")
        with untransformed(value):
            value = value.detach().cpu().double().numpy()
    try:
        x = numpy.array(value, dtype=numpy.float64)
    except (TypeError, ValueError):
        raise GraphError(f"{name} must be a tensor [N, D] of numbers, not {type(value).__name__}") from None
    if x.ndim != 2 or x.shape[1] == 0:
        raise GraphError(f"{name} must have shape [N, D] with D of at least 1, not {list(x.shape)}")
    wrong = ~(numpy.abs(x) <= FARTHEST).all(axis=1)
    if wrong.any():
        row = int(wrong.argmax())
        limit = f", and at most {FARTHEST:g}" if numpy.isfinite(x[row]).all() else ""
        raise GraphError(f"{name} must be finite{limit}: row {row} is {x[row].tolist()}")
    return numpy.asarray(numpy.rint(x / FINEST) * FINEST)


def _wrapped(x: Floats, box: Floats) -> Floats:
    periodic = numpy.isfinite(box)
    inside = x.copy()
    inside[:, periodic] %= box[periodic]
    inside[inside >= box] = 0  # -1e-20 % 1 rounds to 1, which is outside
    return inside


def _device(points: Any) -> torch.device:
    return points.device if isinstance(points, Tensor) else torch.device("cpu")
