"""Types of nodes and of edges, integers beside a graph: rows of one type lie together and go through one product."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.errors import GraphError, ShapeError
from edgewise.graphs import Graph, Partition
from edgewise.graphs.checks import same_device, shown
from edgewise.graphs.derived import per_tensor
from edgewise.graphs.tracing import PLAIN, is_traced
from edgewise.kernels import EdgeBias, EdgeVectors, Uniform, aggregate, attend
from edgewise.kernels.call import check_graph
from edgewise.kernels.gates import gates
from edgewise.layers.plain.layer import Layer
from edgewise.layers.plain.linear import check_features
from edgewise.layers.plain.sides import Nodes, Sides, at_receivers, check_sides


class Groups(NamedTuple):
    """Rows by their types. Symbols: order = those of type 0 first; place = where each row is in it; None: in order."""

    order: Tensor | None
    place: Tensor | None
    counts: tuple[int, ...]


class Pairs(NamedTuple):
    """The distinct pairs of a relation and a node among the edges, those of relation 0 first.

    Symbols     rows = a graph in which each pair listens to its node; counts = of each relation; place [E] = an edge's
    """

    rows: Graph
    counts: tuple[int, ...]
    place: Tensor


def check_types(name: str, types: Tensor, graph: Graph, rows: int, count: int) -> None:
    """Raise ShapeError unless each row has a type of that many; on a GPU the numbers themselves are not looked at."""
    if not isinstance(types, Tensor):
        raise ShapeError(f"{name} must be a tensor [{rows}] of int64, not {shown(types)}")
    same_device(name, types, graph.device)
    if types.dtype != torch.int64 or types.shape != (rows,):
        what = f"{list(types.shape)} of {str(types.dtype).removeprefix('torch.')}"
        raise ShapeError(f"{name} are {what}; expected [{rows}] of int64")
    if type(types) in PLAIN and not is_traced() and types.device.type == "cpu" and rows:
        least, most = int(types.min()), int(types.max())
        if not 0 <= least <= most < count:
            raise ShapeError(f"{name} are 0 to {count - 1}, not {least} to {most}")


def check_relations(graph: Graph, e: Tensor | None, relations: int) -> None:
    """Raise an error unless each edge has a relation, or there is one alone."""
    if isinstance(graph, Partition):
        raise GraphError("attention over relations reads a whole graph, not a rank's part of it: leave partition out")
    check_graph(graph)
    if e is None and relations > 1:
        raise ShapeError(f"this layer has {relations} relations: hand over that of each edge, e [E]")
    if e is not None:
        check_types("relations of edges", e, graph, graph.num_edges, relations)
        graph.check_sorted("relations of edges", e)


def _relations(layer: Any, graph: Graph, name: str, e: Any) -> None:
    check_relations(graph, e, layer.relations)


Relations = Annotated[Tensor | None, _relations]  # the relation of each edge, [E] int64, in the annotation of a layer


def two_sides(graph: Graph, x: Sides) -> tuple[Nodes, Nodes, int]:
    """Features that hold the receivers, those of the senders, and where in the former the first receiver is."""
    check_sides(graph, x)
    if isinstance(x, tuple):
        return x[0], x[1], 0
    at_receivers(graph, torch.empty(graph.num_senders, 0))  # or its error
    return x, x, graph.offset


@per_tensor
def groups(types: Tensor, count: int) -> Groups:
    """Rows by their types.

    >>> groups(torch.tensor([1, 0, 1]), 2).counts
    (1, 2)
    """
    counts = tuple(torch.bincount(types, minlength=count).tolist())
    if bool((types[1:] >= types[:-1]).all()):
        return Groups(None, None, counts)
    order = types.argsort(stable=True)
    return Groups(order, order.argsort(), counts)


@per_tensor
def pairs(relation: Tensor, nodes: Tensor, count: int, relations: int, offset: int = 0) -> Pairs:
    """The distinct pairs of relation and node.

    Symbols     relation, nodes = those of each edge [E]; count = number of nodes; offset = added to their numbers

    >>> pairs(torch.tensor([0, 1, 1]), torch.tensor([3, 3, 3]), 4, 2).place.tolist()
    [0, 1, 1]
    """
    found, place = (relation * count + nodes + offset).unique(return_inverse=True)
    of = found // max(1, count)
    rows = Graph.from_csr(torch.arange(len(found) + 1, device=found.device), found - of * count, count)
    return Pairs(rows, tuple(torch.bincount(of, minlength=relations).tolist()), place)


@per_tensor
def reads(senders: Tensor, receivers: Tensor, counts: tuple[int, int]) -> Graph:
    """The edges between pairs of a node and a relation; `sort_edges` takes the given graph's order."""
    return Graph.from_edge_index(torch.stack([senders, receivers]), *counts)


@per_tensor
def shares(relation: Tensor, receivers: Tensor, relations: int, dtype: torch.dtype) -> Tensor:
    """For each edge one over the number of edges of its relation that its receiver has, 1 / c_ir [E]."""
    pair = receivers * relations + relation
    return torch.bincount(pair, minlength=1).double().reciprocal().to(dtype)[pair]  # a count may be beyond half's range


def edges_alone() -> bool:
    """Whether a call is on edges, not on pairs: these follow from values, which a program for other edges lacks, and
    have no gates."""
    return torch.compiler.is_compiling() or gates() is not None


def grouped(x: Tensor, W: Tensor, counts: tuple[int, ...]) -> Tensor:
    """Rows of several types, each through the map of its type.

    Equation    y_p = W_t x_p for the rows p of type t, those of type 0 first; in heads: y_ph = W_th x_ph
    Shapes      x [*, P, C], W [T, D, C] -> [*, P, D];  x [*, P, H, C], W [T, H, D, C] -> [*, P, H, D]
    Cost        O(P C D) time, one product for each type; no row has a copy of its matrix

    >>> grouped(torch.tensor([[1.0], [2.0], [3.0]]), torch.tensor([[[1.0]], [[10.0]]]), (1, 2)).flatten().tolist()
    [1.0, 20.0, 30.0]
    """
    if W.ndim == 4:
        parts = zip(x.split(counts, -3), W.unbind(), strict=True)
        return torch.cat([torch.einsum("...phc,hdc->...phd", part, W_t) for part, W_t in parts], -3)
    parts = zip(x.split(counts, -2), W.unbind(), strict=True)
    return torch.cat([functional.linear(part, W_t) for part, W_t in parts], -2)


def of_pairs(x: Nodes, W: Tensor, chosen: Pairs) -> Tensor:
    """Each pair's node through the map of its relation: x [*, N, C] or sparse, W [R, D, C] -> [*, P, D]."""
    if isinstance(x, Tensor):
        return grouped(aggregate(chosen.rows, x), W, chosen.counts)
    Wx = aggregate(x.graph, W.flatten(0, 1).T, x.weight).unflatten(-1, (-1, W.shape[1]))
    counts = torch.tensor(chosen.counts, device=Wx.device)
    return Wx[chosen.rows.senders, torch.arange(len(W), device=Wx.device).repeat_interleave(counts)]


def of_edges(x: Nodes, W: Tensor, relation: Tensor, nodes: Tensor) -> Tensor:
    """The same for each edge, of shapes that no value decides, as a program for other edges needs: [*, E, D].

    Cost        all relations' maps of all nodes are written down
    """
    if isinstance(x, Tensor):
        Wx = functional.linear(x, W.flatten(0, 1))
    else:
        Wx = aggregate(x.graph, W.flatten(0, 1).T, x.weight)
    rows = Wx.unflatten(-1, (-1, W.shape[1])).flatten(-3, -2)  # [*, N R, D]
    return rows.index_select(-2, nodes * len(W) + relation)


def attend_edges(graph: Graph, s: Tensor, v: Tensor, dropout: float) -> Tensor:
    """Attention with scores and values of edges: s [*, E, H], v [*, E, H, C] -> [*, I, H, C]."""
    nothing = v.new_zeros(*v.shape[:-3], graph.num_senders, *v.shape[-2:])
    return attend(graph, None, None, nothing, Uniform() + EdgeBias(s) + EdgeVectors(values=v), dropout=dropout)


class GroupedLinear(Layer):
    """A linear map for each type of row.

    Equation    y_n = W_τ(n) x_n + b_τ(n)
    Shapes      x [*, N, inputs] or SparseFeatures, types [N] int64, or None where there is one type -> [*, N, outputs]
    Cost        O(N inputs outputs), one product for each type; sparse or compiled: for all types
    """

    def __init__(self, inputs: int, outputs: int, types: int = 1) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(types, outputs, inputs))
        self.bias = nn.Parameter(torch.zeros(types, outputs))
        for W in self.weight:
            nn.init.xavier_uniform_(W)

    def forward(self, x: Nodes, types: Tensor | None) -> Tensor:
        W, b = self.weight, self.bias
        check_features(x, W)
        if types is None:
            y = functional.linear(x, W[0]) if isinstance(x, Tensor) else aggregate(x.graph, W[0].T, x.weight)
            return y + b[0]
        if not isinstance(x, Tensor) or is_traced():
            everyone = torch.arange(x.shape[-2], device=types.device)
            return of_edges(x, W, types, everyone) + b.index_select(0, types)
        order, place, counts = groups(types, len(W))
        y = grouped(x if order is None else x.index_select(-2, order), W, counts)
        return (y if place is None else y.index_select(-2, place)) + b.index_select(0, types)
