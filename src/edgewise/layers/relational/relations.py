"""Layers of edges of several kinds: relational convolution and attention, and heterogeneous transformers."""

from typing import Annotated, Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Bounds, Count, Share, require
from edgewise.errors import ConfigError, ShapeError
from edgewise.graphs import Graph, Partition
from edgewise.kernels import Additive, Dot, EdgeVectors, aggregate, attend, collect
from edgewise.kernels.gates import unscaled
from edgewise.layers.plain.layer import Example, Layer, small_example
from edgewise.layers.plain.linear import Linear, check_features
from edgewise.layers.plain.sides import Nodes, Sides, both_sides, check_edges
from edgewise.layers.relational.types import (
    GroupedLinear,
    Pairs,
    Relations,
    attend_edges,
    check_types,
    edges_alone,
    grouped,
    of_edges,
    of_pairs,
    pairs,
    reads,
    shares,
    two_sides,
)


def _kinds(layer: Any, graph: Graph, name: str, e: Any) -> None:
    if e is None and layer.relations > 1:
        raise ShapeError(f"this layer has {layer.relations} relations: hand over that of each edge, e [E]")
    if isinstance(e, Tensor) and e.is_floating_point():
        check_edges(graph, e, layer.relations, "weights of relations")
    elif e is not None:
        check_types("relations of edges", e, graph, graph.num_edges, layer.relations)
        graph.check_sorted("relations of edges", e)


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


class RGAT(Layer):
    """Relational graph attention across relations: a node's edges of all kinds share one softmax (ARGAT).

    Equation    g_ir = W_r x_i,  s_ijr = LeakyReLU(q_rᵀ g_ir + k_rᵀ g_jr)               (3), additive
                α_ijr = softmax over j and r of s_ijr                                    (6)
                x_i' = ‖_h Σ_r Σ_{j ∈ N_r(i)} α_ijr^h g_jr^h + b                         (7)
                with bases: W_r = Σ_b a_rb V_b                                           (9)
    Symbols     maps = W [relations, heads * outputs, inputs], or V; mix = a; a_receiver, a_sender = q, k
    Shapes      x [*, J, inputs], SparseFeatures, or a pair (x_receivers, x_senders); e [E] int64, the relation of each
                edge in the graph's order, of a single relation not needed -> [*, I, heads * outputs]
    Edge cases  a receiver without senders gets b; no self-loops are added: give them a relation of their own
    Cost        time O(P inputs H C + E H C), memory O(P H C + E H), P <= E the pairs of a sender and a relation;
                compiled, O(E H C) memory, and the maps of all relations of all nodes
    Reference   Busbridge et al., "Relational graph attention networks", 2019

    Example
        >>> graph = Graph.from_edge_index([[0, 1], [2, 2]], num_nodes=3)
        >>> layer = RGAT(1, 1, relations=2)
        >>> for p in layer.parameters(): _ = p.data.fill_(1.0)
        >>> layer.maps.data[1] = 0  # what comes by relation 1 counts as 0: softmax(2 + 2, 0 + 0) of 2 and 0, and b
        >>> round(layer(graph, torch.tensor([[2.0], [9.0], [2.0]]), torch.tensor([0, 1]))[2].item(), 4)
        2.964
    """

    slope: float = 0.2  # of LeakyReLU

    def __init__(
        self,
        inputs: Count,
        outputs: Count,
        relations: Count = 1,
        heads: Count = 1,
        bases: int = 0,
        dropout: Share = 0.0,
    ) -> None:
        super().__init__()
        require(self, Annotated[int, Bounds(at_least=0, at_most=relations)], bases=bases)
        self.relations, self.dropout = relations, dropout
        self.maps = nn.Parameter(torch.empty(bases or relations, heads * outputs, inputs))
        self.mix = nn.Parameter(torch.empty(relations, bases)) if bases else None
        self.a_receiver = nn.Parameter(torch.empty(relations, heads, outputs))
        self.a_sender = nn.Parameter(torch.empty(relations, heads, outputs))
        self.bias = nn.Parameter(torch.zeros(heads * outputs))
        for weight in (*self.maps, *self.a_receiver, *self.a_sender, *(() if self.mix is None else (self.mix,))):
            nn.init.xavier_uniform_(weight)

    def forward(self, graph: Graph, x: Sides, e: Relations = None) -> Tensor:
        x_i, x_j, offset = two_sides(graph, x)
        for side in (x_i, x_j):
            check_features(side, self.maps)
        e = torch.zeros_like(graph.senders) if e is None else e
        W = self.maps if self.mix is None else torch.tensordot(self.mix, self.maps, 1)  # [R, H C, D]
        W_h = W.unflatten(1, self.a_sender.shape[1:])
        q, k = ((a.unsqueeze(-1) * W_h).sum(2) for a in (self.a_receiver, self.a_sender))  # qᵀW, kᵀW [R, H, D]
        if edges_alone():
            s_i = of_edges(x_i, q, e, graph.receivers + offset)
            s_j, g = of_edges(x_j, k, e, graph.senders), of_edges(x_j, W, e, graph.senders)
            s = functional.leaky_relu(s_i + s_j, self.slope)
            return self.bias + attend_edges(graph, s, g.unflatten(-1, W_h.shape[1:3]), self.dropout_now).flatten(-2)
        sending = pairs(e, graph.senders, graph.num_senders, self.relations)
        receiving = pairs(e, graph.receivers, x_i.shape[-2], self.relations, offset)
        s_i, s_j = of_pairs(x_i, q, receiving), of_pairs(x_j, k, sending)  # [*, P, H]
        g = of_pairs(x_j, W, sending).unflatten(-1, W_h.shape[1:3])
        return self.bias + self._attended(graph, (s_i, s_j, g), receiving, sending).flatten(-2)

    def _attended(
        self, graph: Graph, of_pairs: tuple[Tensor, Tensor, Tensor], receiving: Pairs, sending: Pairs
    ) -> Tensor:
        """The senders of all relations in one softmax; the receiver's part of a score is its edge's."""
        s_i, s_j, g = of_pairs
        paths = reads(sending.place, graph.receivers, (sending.rows.num_receivers, graph.num_receivers))
        of_receivers = s_i.index_select(-2, paths.sort_edges(receiving.place)).unsqueeze(-1)
        nothing = s_i.new_zeros(*s_i.shape[:-2], graph.num_receivers, s_i.shape[-1], 1)
        score = Additive(self.slope) + EdgeVectors(of_receivers)
        return attend(paths, nothing, s_j.unsqueeze(-1), g, score, dropout=self.dropout_now)

    @property
    def dropout_now(self) -> float:
        return self.dropout if self.training else 0.0

    @staticmethod
    def example() -> Example:
        return small_example(RGAT(3, 2, heads=2, dropout=0.5))


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
    Differs     μ belongs to a relation: between other types of nodes it is another. As in the authors' program, GELU
                and the gate β, where the paper has σ and a sum. `dropout` acts on the attention's weights
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
