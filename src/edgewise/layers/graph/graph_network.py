"""The full graph network block: edges, nodes and the graph as a whole hold features and are updated in turn."""

from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.checks import same_device, shown
from edgewise.kernels import EdgeInput, aggregate, collect
from edgewise.layers.plain.layer import Example, Layer, small_example
from edgewise.layers.plain.linear import check_features
from edgewise.layers.plain.mlp import MLP
from edgewise.layers.plain.sides import NodeRows, check_edges, in_one_batch

OfEdges = Annotated[Tensor | None, lambda layer, graph, name, e: None if e is None else check_edges(graph, e)]
OfWhole = Annotated[Tensor | None, lambda layer, graph, name, u: None if u is None else check_whole(graph, u)]


class EdgeUpdate(Layer):
    """New edge features from the old ones, both ends and the whole; called `update(graph, x, e, u)`.

    Equation    e_ij' = MLP([e_ij ‖ x_i ‖ x_j ‖ u])
    Shapes      x [*, N, C], e [*, E, D] or None, u [*, G, U] or None -> [*, E, outputs]
    Cost        the MLP's first linear map runs on edges, nodes and graphs apart: O((E D + N C + G U) d) for its width d

    Example
        >>> arrow = Graph.from_edge_index([[0], [1]], num_nodes=2)
        >>> update = EdgeUpdate(MLP([2, 1]))
        >>> for p, value in zip(update.mlp.parameters(), (torch.tensor([[1.0, 10.0]]), torch.zeros(1))): p.data = value
        >>> update(arrow, torch.tensor([[2.0], [3.0]]), None, None).tolist()  # the receiver 1, then the sender 0
        [[23.0]]
    """

    def __init__(self, mlp: MLP) -> None:
        super().__init__()
        self.mlp = mlp

    def forward(self, graph: Graph, x: NodeRows, e: OfEdges, u: OfWhole) -> Tensor:
        first: nn.Linear = self.mlp.linears[0]  # type: ignore[assignment]
        widths = (_width(e), x.shape[-1], x.shape[-1], _width(u))
        if sum(widths) != first.in_features:
            named = f"{widths[0]} of the edge, 2 · {widths[1]} of its ends and {widths[3]} of the whole"
            raise ShapeError(f"the edges' MLP reads {first.in_features} channels, but there are {named}")
        W_e, W_i, W_j, W_u = first.weight.split(widths, -1)
        check_features(x, W_i)
        own = functional.linear(x, W_i, first.bias)
        if u is not None:
            check_features(u, W_u)
            own = own + spread(graph, functional.linear(u, W_u))
        edges = None if e is None else EdgeInput((W_e, None), e)
        return collect(graph, self.mlp.message(own, functional.linear(x, W_j), edges), None)


class NodeUpdate(Layer):
    """New node features from the old ones, the edges that arrive and the whole; called `update(graph, x, e, u)`.

    Equation    x_i' = MLP([x_i ‖ ⊕_{j ∈ N(i)} e_ij ‖ u])
    Symbols     reduce = ⊕: "sum", "mean", "max" or "min"
    Shapes      x [*, N, C], e [*, E, D] or None, u [*, G, U] or None -> [*, N, outputs]
    """

    def __init__(self, mlp: MLP, reduce: str = "sum") -> None:
        super().__init__()
        self.mlp = mlp
        self.reduce = reduce

    def forward(self, graph: Graph, x: NodeRows, e: OfEdges, u: OfWhole) -> Tensor:
        arriving = None if e is None else collect(graph, e, self.reduce)
        whole = None if u is None else spread(graph, u)
        return self.mlp(torch.cat(in_one_batch(*(t for t in (x, arriving, whole) if t is not None)), -1))


class WholeUpdate(Layer):
    """New features of the graph as a whole from its edges, its nodes and the old ones.

    Equation    u' = MLP([⊕_{edges} e_ij ‖ ⊕_{nodes} x_i ‖ u])
    Symbols     reduce = ⊕: "sum" or "mean"
    Shapes      x [*, N, C], e [*, E, D] or None, u [*, G, U] or None -> [*, G, outputs]
    """

    def __init__(self, mlp: MLP, reduce: str = "sum") -> None:
        super().__init__()
        if reduce not in ("sum", "mean"):
            raise ShapeError(f"a whole graph's edges and nodes are combined by sum or mean, not {reduce!r}")
        self.mlp = mlp
        self.reduce = reduce

    def forward(self, graph: Graph, x: NodeRows, e: OfEdges, u: OfWhole) -> Tensor:
        members = graph.membership()
        edges = None if e is None else aggregate(members, collect(graph, e))
        if edges is not None and self.reduce == "mean":
            edges = edges / aggregate(members, graph.in_degrees().to(edges.dtype).unsqueeze(-1)).clamp(min=1)
        parts = (edges, aggregate(members, x, reduce=self.reduce), u)
        return self.mlp(torch.cat(in_one_batch(*(part for part in parts if part is not None)), -1))


class GraphNetwork(Layer):
    """The full graph network block: edges are updated, then nodes, then the whole; each update may be left out.

    Equation    e_ij' = φ_e(e_ij, x_i, x_j, u)                      (Alg. 1)
                x_i'  = φ_v(⊕_{j ∈ N(i)} e_ij', x_i, u)
                u'    = φ_u(⊕_{edges} e_ij', ⊕_{nodes} x_i', u)
    Symbols     edge, node, whole = φ_e, φ_v, φ_u with their ⊕: `EdgeUpdate`, `NodeUpdate`, `WholeUpdate` or any module
                called update(graph, x, e, u); None leaves those features as they are. u = one row for each graph
    Shapes      x [*, N, C] (, e [*, E, D] in the graph's edge order, u [*, G, U]) -> x' [*, N, C'];
                `update` returns x', e' and u', each None where there is none
    Edge cases  without edges ⊕ is 0; the members of a batch never exchange messages
    Cost        that of its updates: O(E + N + G) rows
    Reference   Battaglia et al., "Relational inductive biases, deep learning, and graph networks", 2018, §3.2

    Example
        >>> class Total(nn.Module):  # DeepSets with identities: no edges, u' = Σ_i x_i
        ...     def forward(self, graph, x, e, u): return aggregate(graph.membership(), x)
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> x, e, u = GraphNetwork(None, None, Total()).update(pair, torch.tensor([[1.0], [2.0]]))
        >>> u.tolist()
        [[3.0]]
    """

    def __init__(self, edge: nn.Module | None, node: nn.Module | None, whole: nn.Module | None) -> None:
        super().__init__()
        self.edge = edge
        self.node = node
        self.whole = whole

    def forward(self, graph: Graph, x: NodeRows, e: Tensor | None = None, u: Tensor | None = None) -> Tensor:
        return self.update(graph, x, e, u)[0]

    def update(
        self, graph: Graph, x: Tensor, e: Tensor | None = None, u: Tensor | None = None
    ) -> tuple[Tensor, Tensor | None, Tensor | None]:
        """x', e' and u'."""
        e = e if self.edge is None else self.edge(graph, x, e, u)
        x = x if self.node is None else self.node(graph, x, e, u)
        u = u if self.whole is None else self.whole(graph, x, e, u)
        return x, e, u

    @staticmethod
    def example() -> Example:
        block = GraphNetwork(EdgeUpdate(MLP([6, 5, 4], "tanh")), NodeUpdate(MLP([7, 6, 2], "tanh")), None)
        return small_example(block)


def check_whole(graph: Graph, u: Tensor) -> None:
    """Raise ShapeError unless u [*, G, U] has a row for each graph of a batch."""
    graphs = graph.sizes.shape[0]
    if not isinstance(u, Tensor) or u.ndim < 2 or u.shape[-2] != graphs:
        raise ShapeError(f"u is {shown(u)}, but must be [*, G, U], one row for each of {graphs} graphs")
    same_device("u", u, graph.device)


def spread(graph: Graph, u: Tensor) -> Tensor:
    """The row of each graph of a batch at every one of its nodes: [*, G, U] -> [*, N, U]."""
    check_whole(graph, u)
    return aggregate(graph.membership().transpose()[0], u)


def _width(features: Tensor | None) -> int:
    return 0 if features is None else features.shape[-1]
