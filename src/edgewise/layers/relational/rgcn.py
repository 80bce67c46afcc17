"""Relational graph convolution: edges of several kinds, each with a linear map of its own."""

from typing import Annotated, Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Bounds, Count, require
from edgewise.errors import ShapeError
from edgewise.graphs import Graph, Partition
from edgewise.kernels import aggregate, collect
from edgewise.kernels.gates import unscaled
from edgewise.layers.plain.layer import Example, Layer, small_example
from edgewise.layers.plain.linear import Linear
from edgewise.layers.plain.sides import Nodes, Sides, both_sides, check_edges
from edgewise.layers.relational.types import check_types, edges_alone, of_pairs, pairs, reads, shares


def _kinds(layer: Any, graph: Graph, name: str, e: Any) -> None:
    if e is None and layer.relations > 1:
        raise ShapeError(f"this layer has {layer.relations} relations: hand over that of each edge, e [E]")
    if isinstance(e, Tensor) and e.is_floating_point():
        check_edges(graph, e, layer.relations, "weights of relations")
    elif e is not None:
        check_types("relations of edges", e, graph, graph.num_edges, layer.relations)


class RGCN(Layer):
    """Relational graph convolution: the mean of the senders of each relation, through a matrix of that relation.

    Equation    x_i' = W_0 x_i + b + Σ_r 1/c_ir Σ_{j ∈ N_r(i)} W_r x_j,  c_ir = |N_r(i)|
                with bases: W_r = Σ_b a_rb V_b
                with weights e_ijr of the relations of an edge: Σ_j e_ijr W_r x_j / c_ir,  c_ir = Σ_j e_ijr
    Symbols     own = W_0, b; maps = V, or W where bases = 0; mix = a
    Shapes      x [*, J, inputs], or a pair (x_receivers, x_senders), and in the graph's edge order the relation of each
                edge, e [E] int64, or weights e [*, E, relations], of which one-hot ones are the same function
                -> [*, I, outputs]; of a single relation no e is needed
    Edge cases  without edges of a relation its term is 0; an isolated node: W_0 x_i + b
    Cost        relations as numbers: time O(P inputs outputs + E outputs), P <= E the pairs of a sender and a relation;
                as weights, for B = bases, or relations where bases = 0: O(J inputs B outputs + E B outputs)
    Differs     none; weights of relations are an addition
    Reference   Schlichtkrull et al., "Modeling relational data with graph convolutional networks", 2018, (2), (3)

    Example
        >>> graph = Graph.from_edge_index([[0, 1, 2], [2, 2, 2]], num_nodes=3)
        >>> layer = RGCN(1, 1, relations=2)
        >>> for p in layer.parameters(): _ = p.data.fill_(1.0)
        >>> layer(graph, torch.tensor([[2.0], [4.0], [10.0]]), torch.tensor([0, 0, 1])).tolist()  # 10 + 1 + 3 + 10
        [[3.0], [5.0], [24.0]]
    """

    def __init__(self, inputs: Count, outputs: Count, relations: Count = 1, bases: int = 0) -> None:
        super().__init__()
        require(self, Annotated[int, Bounds(at_least=0, at_most=relations)], bases=bases)
        self.relations, self.outputs = relations, outputs
        self.own = Linear(inputs, outputs)
        self.maps = Linear(inputs, (bases or relations) * outputs, bias=False)
        self.mix = nn.Parameter(torch.empty(relations, bases)) if bases else None
        if self.mix is not None:
            nn.init.xavier_uniform_(self.mix)

    def forward(self, graph: Graph, x: Sides, e: Annotated[Tensor | None, _kinds] = None) -> Tensor:
        own, _ = both_sides(graph, x, self.own)
        return own + self._of_relations(graph, x[1] if isinstance(x, tuple) else x, e)

    def _of_relations(self, graph: Graph, x_j: Nodes, e: Tensor | None) -> Tensor:
        """Σ_r 1/c_ir Σ_{j ∈ N_r(i)} W_r x_j, from the pairs of a sender and a relation, or by weights from all V_b."""
        if e is None or (self.relations == 1 and not e.is_floating_point()):
            Wx = self.maps(x_j)
            return aggregate(graph, Wx if self.mix is None else self.mix.flatten() * Wx, reduce="mean")
        if e.is_floating_point() or edges_alone() or isinstance(graph, Partition):
            Vx = self.maps(x_j).unflatten(-1, (-1, self.outputs))
            return aggregate(graph, Vx, self._weights(graph, e, Vx.dtype)).sum(-2)
        V = self.maps.weight.unflatten(0, (-1, self.outputs))
        sending = pairs(e, graph.senders, graph.num_senders, self.relations)
        Wx = of_pairs(x_j, V if self.mix is None else torch.tensordot(self.mix, V, 1), sending)
        paths = reads(sending.place, graph.receivers, (sending.rows.num_receivers, graph.num_receivers))
        c = shares(e, graph.receivers, self.relations, Wx.dtype)
        return aggregate(paths, Wx, paths.sort_edges(c))

    def _weights(self, graph: Graph, e: Tensor, dtype: torch.dtype) -> Tensor:
        """Σ_r e_ijr a_rb / c_ir, or e_ijr / c_ir without bases."""
        wide = torch.promote_types(dtype, torch.float32)  # c_ir may be beyond half's range
        e = e.to(wide) if e.is_floating_point() else functional.one_hot(e, self.relations).to(wide)
        with unscaled():
            c = collect(graph, e).index_select(-2, graph.receivers)
        share = torch.where(c == 0, torch.zeros_like(e), e / torch.where(c == 0, torch.ones_like(c), c)).to(dtype)
        return share if self.mix is None else share @ self.mix.to(dtype)

    @staticmethod
    def example() -> Example:
        return small_example(RGCN(3, 4))
