"""Heterogeneous graph transformer: queries, keys and values by the type of a node, attention by the kind of an edge."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Count, Share
from edgewise.errors import ConfigError, ShapeError
from edgewise.graphs import Graph
from edgewise.kernels import Dot, aggregate, attend
from edgewise.layers.plain.layer import Example, Layer, small_example
from edgewise.layers.plain.sides import Sides
from edgewise.layers.relational.types import (
    GroupedLinear,
    Relations,
    attend_edges,
    check_types,
    edges_alone,
    grouped,
    pairs,
    reads,
    two_sides,
)

Types = Tensor | tuple[Tensor, Tensor]  # of all nodes, or of the receivers and of the senders


class HGT(Layer):
    """Heterogeneous graph transformer: dot-product attention whose maps depend on the types of nodes and of edges.

    Equation    s_ijr = μ_r (A_r k_j)·q_i / √d,  q_i = Q_τ(i) x_i,  k_j = K_τ(j) x_j,  v_j = V_τ(j) x_j       (3)
                h_i = ‖_h Σ_r Σ_{j ∈ N_r(i)} softmax_{j, r}(s_ijr) M_r v_j                                    (4)-(5)
                x_i' = β y_i + (1 - β) x_i,  y_i = O_τ(i) GELU(h_i),  β = σ(skip_τ(i));  y_i for other widths   (6)
    Symbols     τ = types of nodes, r = relation of an edge; projection = [K ‖ Q ‖ V] with biases; attention, message
                [relations, heads, d, d] = A, M; prior [relations, heads] = μ; output = O; d = outputs / heads
    Shapes      x [*, J, inputs], SparseFeatures, or a pair (x_receivers, x_senders); e [E] int64, the relation of each
                edge in the graph's order; types [J] int64, or a pair; each is not needed where there is one alone
                -> [*, I, outputs]
    Edge cases  a receiver without senders: h_i = 0. SparseFeatures never have a skip connection
    Cost        time O(N inputs outputs + P outputs d + E outputs), memory O((N + P) outputs), P <= E the pairs of a
                sender and a relation; compiled, O(E outputs) memory
    Differs     μ belongs to a relation: a relation between other types of nodes is another. As in the authors' program,
                GELU and the gate β, where the paper has σ and a sum. `dropout` acts on the attention's weights
    Reference   Hu et al., "Heterogeneous graph transformer", 2020

    Example
        >>> graph = Graph.from_edge_index([[0, 1], [2, 2]], num_nodes=3)
        >>> layer = HGT(4, 8, relations=2, kinds=2, heads=2)
        >>> layer(graph, torch.randn(3, 4), torch.tensor([0, 1]), torch.tensor([0, 0, 1])).shape
        torch.Size([3, 8])
    """

    unbiased: ClassVar[bool] = False

    def __init__(
        self,
        inputs: Count,
        outputs: Count,
        relations: Count = 1,
        kinds: Count = 1,
        heads: Count = 1,
        dropout: Share = 0.0,
    ) -> None:
        super().__init__()
        if outputs % heads:
            raise ConfigError(f"{heads} heads do not divide {outputs} outputs")
        channels = outputs // heads
        self.projection = GroupedLinear(inputs, 3 * outputs, kinds)
        self.attention = nn.Parameter(torch.empty(relations, heads, channels, channels))
        self.message = nn.Parameter(torch.empty(relations, heads, channels, channels))
        self.prior = nn.Parameter(torch.ones(relations, heads))
        self.output = GroupedLinear(outputs, outputs, kinds)
        self.skip = nn.Parameter(torch.ones(kinds)) if inputs == outputs else None
        self.relations, self.dropout = relations, dropout
        for weight in (*self.attention, *self.message):
            nn.init.xavier_uniform_(weight)

    def forward(self, graph: Graph, x: Sides, e: Relations = None, types: Types | None = None) -> Tensor:
        x_i, x_j, first = two_sides(graph, x)
        of_i, of_j = self._types(graph, types, x)
        heads = (3, self.prior.shape[1], self.message.shape[-1])
        k, q, v = self.projection(x_j, of_j).unflatten(-1, heads).unbind(-3)
        if isinstance(x, tuple):
            q = self.projection(x_i, of_i).unflatten(-1, heads).select(-3, 1)
        q = q.narrow(-3, first, graph.num_receivers)
        e = torch.zeros_like(graph.senders) if e is None else e
        attended = self._of_edges if edges_alone() else self._of_pairs
        y = self.output(functional.gelu(attended(graph, q, k, v, e).flatten(-2)), of_i)
        if self.skip is None or not isinstance(x_i, Tensor):
            return y
        gate = self.skip.sigmoid() if of_i is None else self.skip.sigmoid().index_select(0, of_i).unsqueeze(-1)
        return gate * y + (1 - gate) * x_i.narrow(-2, first, graph.num_receivers)

    def _types(self, graph: Graph, types: Types | None, x: Sides) -> tuple[Tensor | None, Tensor | None]:
        """The types of the receivers and those of the senders."""
        count = len(self.projection.weight)
        if types is None:
            if count > 1:
                raise ShapeError(f"this layer has {count} types of nodes: hand over that of each node, types [N]")
            return None, None
        if isinstance(x, tuple) != isinstance(types, tuple):
            raise ShapeError("types of nodes are a pair, (of_receivers, of_senders), where the features are one")
        of_i, of_j = types if isinstance(types, tuple) else (types, types)
        check_types("types of senders", of_j, graph, graph.num_senders, count)
        if isinstance(types, tuple):
            check_types("types of receivers", of_i, graph, graph.num_receivers, count)
        elif not graph.is_square:
            of_i = of_j.narrow(0, graph.offset, graph.num_receivers)
        return of_i, of_j

    def _of_pairs(self, graph: Graph, q: Tensor, k: Tensor, v: Tensor, e: Tensor) -> Tensor:
        """Keys and values of the pairs of a sender and a relation, and attention to these."""
        sending = pairs(e, graph.senders, graph.num_senders, len(self.prior))
        paths = reads(sending.place, graph.receivers, (sending.rows.num_receivers, graph.num_receivers))
        rows = (aggregate(sending.rows, side.flatten(-2)).unflatten(-1, side.shape[-2:]) for side in (k, v))
        k, v = (grouped(side, W, sending.counts) for side, W in zip(rows, self._maps(), strict=True))
        return attend(paths, q, k, v, Dot(), dropout=self.dropout if self.training else 0.0)

    def _of_edges(self, graph: Graph, q: Tensor, k: Tensor, v: Tensor, e: Tensor) -> Tensor:
        """The same with everything written down for each edge."""
        every = (torch.einsum("...jhc,rhdc->...jrhd", side, W) for side, W in zip((k, v), self._maps(), strict=True))
        at = graph.senders * len(self.prior) + e
        k, v = (side.flatten(-4, -3).index_select(-3, at) for side in every)
        s = (q.index_select(-3, graph.receivers) * k).sum(-1) * k.shape[-1] ** -0.5
        return attend_edges(graph, s, v, self.dropout if self.training else 0.0)

    def _maps(self) -> tuple[Tensor, Tensor]:
        """μ_r A_r and M_r [relations, heads, d, d]."""
        return self.attention * self.prior[..., None, None], self.message

    @staticmethod
    def example() -> Example:
        return small_example(HGT(3, 4, heads=2, dropout=0.5))
