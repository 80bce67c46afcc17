"""Relational graph attention: edges of several kinds compete in one softmax, or each kind has a softmax of its own."""

from typing import Annotated

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Bounds, Count, Share, require
from edgewise.graphs import Graph
from edgewise.kernels import Additive, EdgeVectors, attend
from edgewise.layers.plain.layer import Example, Layer, small_example
from edgewise.layers.plain.linear import check_features
from edgewise.layers.plain.sides import Sides
from edgewise.layers.relational.types import (
    Pairs,
    Relations,
    attend_edges,
    edges_alone,
    of_edges,
    of_pairs,
    pairs,
    reads,
    two_sides,
)


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
    Differs     none; heads are concatenated
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
