"""Both sides of a graph: receivers and senders that are the same nodes, the first of them, or nodes of another kind."""

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Annotated, Any

import torch
from torch import Tensor

from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.checks import same_device, shown
from edgewise.graphs.derived import cached
from edgewise.kernels import aggregate, collect
from edgewise.kernels.call import check_graph
from edgewise.kernels.gates import unscaled
from edgewise.layers.plain.linear import SparseFeatures, check_dense, check_one_kind, check_real
from edgewise.layers.plain.running import uncompiled

Nodes = Tensor | SparseFeatures
Sides = Nodes | tuple[Nodes, Nodes]  # features of all nodes, or those of the receivers and those of the senders


def dense(side: Nodes) -> Tensor:
    """Features as an ordinary tensor, sparse ones or not."""
    return side.to_dense() if isinstance(side, SparseFeatures) else side


def at_receivers(graph: Graph, x: Tensor) -> Tensor:
    """The rows of the receivers among those of all senders: receiver i is the sender at position i + offset.

    Shapes      x [*, J, C] -> [*, I, C]; where receivers and senders are the same nodes, x itself
    Errors      ShapeError where a receiver is not among the senders

    Example
        >>> hop = Graph.from_edge_index([[2, 1], [0, 0]], num_nodes=3, num_receivers=1)  # as `sample_neighbors` has it
        >>> at_receivers(hop, torch.tensor([[1.0], [2.0], [3.0]]))
        tensor([[1.]])
    """
    rows = graph.num_receivers if graph.is_square else graph.num_senders
    among = graph.is_square or graph.offset + graph.num_receivers <= graph.num_senders
    if not among or x.shape[-2:-1] != (rows,):
        what = f"{graph} has receivers that are not among its senders, or another number than x {[*x.shape]}"
        raise ShapeError(f"{what}: features of two kinds of nodes are a pair, (x_receivers, x_senders)")
    return x if graph.is_square else x.narrow(-2, graph.offset, graph.num_receivers)


def check_nodes(
    graph: Graph, x: Nodes, width: int | None = None, name: str = "x", whole: bool = False, sparse: bool = False
) -> None:
    """Raise an error unless x [*, N, C] has a row of real numbers for each receiver, and is of that width; for whole
    numbers unless `whole`, for sparse features unless `sparse`."""
    check_graph(graph, x)
    if sparse:
        check_one_kind(x)
    else:
        check_dense(x)
    rows = graph.num_receivers
    if len(x.shape) < 2 or x.shape[-2] != rows or width not in (None, x.shape[-1]):
        wanted = f"[*, {rows}, {'C' if width is None else width}]"
        raise ShapeError(f"{name} is {[*x.shape]}, but must be {wanted}, a row for each of the graph's receivers")
    if isinstance(x, Tensor):
        same_device(name, x, graph.device)
    if not whole or x.dtype == torch.bool or x.dtype.is_complex:
        check_real(x)


@dataclass(frozen=True)
class Rows:
    """In an annotation: features with a row for each receiver of the graph.

    Symbols     width = the attribute that says how wide they are; whole = may be whole numbers; sparse = may be sparse;
                square = the receivers are the senders, as several steps along the edges need it
    """

    width: str = ""
    whole: bool = False
    sparse: bool = False
    square: bool = False

    def __call__(self, layer: Any, graph: Graph, name: str, x: Any) -> None:
        if self.square:
            graph.require_square(f"{type(layer).__name__}, which takes several steps along the edges,")
        check_nodes(graph, x, getattr(layer, self.width) if self.width else None, name, self.whole, self.sparse)


NodeRows = Annotated[Tensor, Rows()]
SparseRows = Annotated[Nodes, Rows(sparse=True)]
Places = Annotated[Tensor, Rows(whole=True)]


@dataclass(frozen=True)
class Edges:
    """In an annotation: features of edges, None for the graph's own, where the layer's map of that name reads some."""

    reader: str

    def __call__(self, layer: Any, graph: Graph, name: str, e: Any) -> Tensor | None:
        reader = attrgetter(self.reader)(layer)
        own = graph.edge_attr if e is None and reader is not None else None
        e = own if e is None else e
        nothing = e is None or (isinstance(e, Tensor) and e.shape[-1:] == (0,))
        if nothing != (reader is None):
            raise ShapeError(f"this layer reads {'no' if reader is None else 'some'} edge features: see `edges`")
        if reader is not None:
            check_edges(graph, e, reader.in_features)
        return own


def check_edges(graph: Graph, e: Tensor, width: int | None = None, name: str = "features of edges") -> None:
    """Raise ShapeError unless e [*, E, C] has a row for each edge, of that width."""
    rows = graph.num_edges
    wanted = f"[*, {rows}, {'C' if width is None else width}], a row for each of the graph's edges"
    if not isinstance(e, Tensor):
        raise ShapeError(f"{name} must be a tensor {wanted}, not {shown(e)}")
    if e.is_complex():
        raise ShapeError(f"{name} are complex, but must be real numbers")
    if e.ndim < 2 or e.shape[-2] != rows or width not in (None, e.shape[-1]):
        raise ShapeError(f"{name} are {list(e.shape)}, but must be {wanted}")
    same_device(name, e, graph.device)
    graph.check_sorted(name, e)


def weights_like(x: Tensor | SparseFeatures, weight: Any) -> Any:
    """A user's weights of edges in the features' dtype: those of NumPy are float64. What is no tensor stays."""
    return weight.to(x.dtype) if isinstance(weight, Tensor) and weight.is_floating_point() else weight


@dataclass(frozen=True)
class Weights:
    """In an annotation: a number for each edge of the graph, by which its sender counts, or None."""

    def __call__(self, layer: Any, graph: Graph, name: str, weight: Any) -> None:
        if weight is None:
            return
        if not isinstance(weight, Tensor) or weight.shape != (graph.num_edges,):
            raise ShapeError(f"{name} is {shown(weight)}, but must be [{graph.num_edges}], a number for each edge")
        check_real(weight)
        same_device(name, weight, graph.device)
        graph.check_sorted(name, weight)


EdgeWeights = Annotated[Tensor | None, Weights()]


def mean_of_senders(graph: Graph, x: Tensor, weight: Tensor | None = None) -> Tensor:
    """The mean of every receiver's senders, or their mean by weights w of the edges.

    Equation    y_i = Σ_j w_ij x_j / Σ_j w_ij
    Shapes      x [*, J, C], weight [E] -> [*, I, C]
    Edge cases  weights that add up to 0 give 0

    Example
        >>> star = Graph.from_edge_index([[1, 2], [0, 0]], num_nodes=3)
        >>> mean_of_senders(star, torch.tensor([[0.0], [4.0], [8.0]]), torch.tensor([3.0, 1.0])).tolist()
        [[5.0], [0.0], [0.0]]
    """
    if weight is None:
        return aggregate(graph, x, reduce="mean")
    weight = weights_like(x, weight)
    with unscaled():
        total = collect(graph, weight.unsqueeze(-1))
    return aggregate(graph, x, weight) / torch.where(total == 0, 1, total)


def in_one_batch(*parts: Tensor) -> list[Tensor]:
    """Features of as many rows with the same leading batch, where some have less of it: [*, N, C_k] of each."""
    if all(part.shape[:-1] == parts[0].shape[:-1] for part in parts):
        return list(parts)
    try:
        rows = torch.broadcast_shapes(*(part.shape[:-1] for part in parts))
    except RuntimeError as error:
        shapes = [[*part.shape] for part in parts]
        raise ShapeError(f"features {shapes} have leading batches that do not fit together") from error
    return [part.expand(*rows, -1) for part in parts]


def check_sides(graph: Graph, x: Sides) -> None:
    """Raise an error for something else in the place of a graph, or of features of its nodes: one tensor or a pair."""
    sides = x if isinstance(x, tuple) else (x,)
    check_graph(graph, *sides)
    if isinstance(x, tuple) and len(x) != 2:
        raise ShapeError(f"features of two kinds of nodes are a pair, (x_receivers, x_senders), not {len(x)} tensors")
    for side in sides:
        check_one_kind(side)
    if isinstance(x, tuple):
        for name, side, count in (("receivers", x[0], graph.num_receivers), ("senders", x[1], graph.num_senders)):
            if len(side.shape) < 2 or side.shape[-2] != count:
                what = f"[*, {count}, C], a row for each of them"
                raise ShapeError(f"x of the {name} is {[*side.shape]}, but must be {what}")
    elif len(x.shape) < 2 or x.shape[-2] != graph.num_senders:
        two = "" if graph.is_square else "; features of two kinds of nodes are a pair, (x_receivers, x_senders)"
        what = f"[*, {graph.num_senders}, C], a row for each of the graph's senders"
        raise ShapeError(f"x is {[*x.shape]}, but must be {what}{two}")


def both_sides(
    graph: Graph, x: Sides, of: Callable[[Nodes], Tensor], shape: tuple[int, ...] = ()
) -> tuple[Tensor, Tensor]:
    """A map of the receivers' features and of the senders': computed once, one tensor, where these are the same nodes.

    Symbols     shape = that of the map's channels, C unless given
    Shapes      x [*, J, D], or a pair of x_receivers [*, I, D] and x_senders [*, J, D] -> [*, I, C], [*, J, C]

    Example
        >>> reads = Graph.from_edge_index([[2, 1], [0, 0]], num_nodes=3, num_receivers=1)
        >>> user, books = torch.tensor([[7.0]]), torch.tensor([[1.0], [2.0], [3.0]])
        >>> [side.flatten().tolist() for side in both_sides(reads, (user, books), lambda x: 10 * x)]
        [[70.0], [10.0, 20.0, 30.0]]
    """
    check_sides(graph, x)
    if not isinstance(x, tuple):
        senders = of(x)
        receivers = at_receivers(graph, senders)
        if not shape:
            return receivers, senders
        split = senders.unflatten(-1, shape)
        return split if receivers is senders else receivers.unflatten(-1, shape), split
    receivers, senders = (of(side) for side in x)
    return (receivers.unflatten(-1, shape), senders.unflatten(-1, shape)) if shape else (receivers, senders)


def _with_own(graph: Graph) -> Graph:
    """`graph.add_self_loops()`. What is compiled is cut here, once, where they are not known yet."""
    known = "has_self_loops" in vars(graph) and (graph.has_self_loops or "_looped" in vars(graph))
    return graph.add_self_loops() if known or not torch.compiler.is_dynamo_compiling() else _found(graph)


@uncompiled  # how many edges there are then depends on the numbers
def _found(graph: Graph) -> Graph:
    return graph.add_self_loops()


@cached
def _loops(graph: Graph) -> tuple[Graph, Tensor | None, Tensor]:
    """The graph with self-loops; the receivers that lacked one, if any; and each edge's number among both."""
    first, last = graph.offset, graph.offset + graph.num_receivers
    missing = graph.unlooped
    loops = missing + first
    edges = torch.stack([torch.cat([graph.senders, loops]), torch.cat([graph.receivers + first, loops])])
    looped = Graph.from_edge_index(edges, graph.num_senders, last)
    order = looped.sort_edges(torch.arange(edges.shape[1], device=graph.device))
    return looped.rows(first, last), missing if len(missing) else None, order


def with_loops(graph: Graph, x: Sides, e: Tensor | None, fill: float | None = None) -> tuple[Graph, Tensor | None]:
    """The graph in which every receiver attends to itself too, with the features of its edges.

    Symbols     fill = the features of a self-loop that was missing, in place of the mean
    Edge cases  for a pair of sides the graph as it is: there is no node on both. A self-loop that was missing has the
                mean of the features of the edges that reach its node, as in PyTorch Geometric; 0 without any

    Example
        >>> arrows = Graph.from_edge_index([[0, 0], [1, 1]], num_nodes=2)
        >>> looped, e = with_loops(arrows, torch.zeros(2, 1), torch.tensor([[1.0], [3.0]]))
        >>> looped.edge_index().tolist(), e.flatten().tolist()
        ([[0, 0, 0, 1], [0, 1, 1, 1]], [0.0, 1.0, 3.0, 2.0])
    """
    check_sides(graph, x)
    if isinstance(x, tuple):
        return graph, e
    if not graph.is_square:
        at_receivers(graph, torch.empty(graph.num_senders, 0))  # or its error
    elif e is None:
        return _with_own(graph), None
    looped, missing, order = _loops(graph)
    if e is None or missing is None:
        return looped, e
    own = collect(graph, e, "mean").index_select(-2, missing) if fill is None else e.new_full((len(missing), 1), fill)
    return looped, torch.cat([e, own], -2).index_select(-2, order)


def weights_with_loops(graph: Graph, x: Sides, weight: Tensor | None) -> tuple[Graph, Tensor | None]:
    """The graph in which every receiver attends to itself too, with weights [E] of its edges: of a new one 1."""
    looped, weights = with_loops(graph, x, None if weight is None else weight.unsqueeze(-1), fill=1.0)
    return looped, None if weights is None else weights.squeeze(-1)
