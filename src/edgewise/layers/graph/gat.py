"""Graph attention: the weight of a neighbour is learned from the features of both ends."""

from typing import Annotated

import torch
from torch import Tensor, nn

from edgewise.configuration import Count, Natural, Share
from edgewise.graphs import Graph
from edgewise.kernels import Additive, EdgeInput, EdgeVectors, GatedAdditive, attend
from edgewise.layers.plain.layer import Example, Layer, small_example
from edgewise.layers.plain.linear import Linear
from edgewise.layers.plain.sides import Edges, Sides, both_sides, with_loops

EdgeRows = Annotated[Tensor | None, Edges("edge")]


class AdditiveAttention(Layer):
    """Attention with an additive score (Bahdanau et al., 2015), whose heads are concatenated or averaged."""

    slope: float = 0.2  # of LeakyReLU

    def __init__(
        self,
        inputs: Count,
        outputs: Count,
        heads: Count = 1,
        concatenate: bool = True,
        dropout: Share = 0.0,
        edges: Natural = 0,
    ) -> None:
        super().__init__()
        self.concatenate, self.dropout = concatenate, dropout
        self.draw_weights(inputs, heads, outputs)
        self.edge = Linear(edges, heads * outputs, bias=False) if edges else None
        if self.edge is not None:
            nn.init.xavier_uniform_(self.edge.weight)
        self.bias = nn.Parameter(torch.zeros(heads * outputs if concatenate else outputs))

    def draw_weights(self, inputs: int, heads: int, outputs: int) -> None:
        raise NotImplementedError

    @property
    def dropout_now(self) -> float:
        return self.dropout if self.training else 0.0

    def vectors(self, e: Tensor | None) -> EdgeVectors:
        """What the edges add to the keys: W_edge e_ij, which no kernel has to write down."""
        return EdgeVectors(None if self.edge is None or e is None else EdgeInput((self.edge.weight, None), e))

    def over_heads(self, y: Tensor) -> Tensor:
        """‖_h y_h + b or mean_h y_h + b: y [*, N, H, C] -> [*, N, H C] or [*, N, C]."""
        return self.bias + (y.flatten(-2) if self.concatenate else y.mean(-2))


class GAT(AdditiveAttention):
    """Graph attention network layer: a softmax over the neighbours of an additive score.

    Equation    s_ij = LeakyReLU(aᵀ [W x_i ‖ W x_j])             (5.12), or aᵀ [W x_i ‖ W x_j + W_edge e_ij]
                α_ij = softmax_{j ∈ N(i) ∪ {i}}(s_ij)            (5.11)
                x_i' = ‖_h Σ_j α_ij^h W_h x_j + b                (5.13), or the mean over h with concatenate=False
    Symbols     W.weight = [W_1 ‖ ... ‖ W_H]ᵀ; a_receiver, a_sender = the halves of a; slope = η of LeakyReLU; outputs =
                channels of one head; edge.weight = W_edge; `edges` = width of e_ij, 0: no edge features
    Shapes      x [*, N, inputs] (, e [*, E, edges] in the graph's edge order) -> [*, N, heads * outputs], averaged:
                [*, N, outputs]; x may be SparseFeatures, or a pair (x_receivers [*, I, inputs], x_senders [*, J, ...])
    Edge cases  self-loops are added where missing, with the mean of e over the edges that reach i. A pair has none
    Cost        time O(N inputs H C + E H C); memory O(N H C + E H) or more, by backend: [W x_i ‖ W x_j] is never built
    Differs     (5.11), (5.13) sum over N(v_i) as the graph has it; here i and b are added, as in the paper. LeakyReLU
                of (5.13) is left to the model. `dropout` acts on α. PyTorch Geometric has an a for edges
    Reference   Veličković et al., 2018, (1)-(6); Baggag & Saad, §5.4; Ngadiuba, lecture on graph attention, (1)-(4)

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer = GAT(1, 1)
        >>> for p in (layer.W.weight, layer.a_receiver, layer.a_sender): _ = p.data.fill_(1.0)
        >>> layer(pair, torch.tensor([[0.0], [1.0]]))  # α = softmax(0, 1), then softmax(1, 2)
        tensor([[0.7311],
                [0.7311]], grad_fn=<AddBackward0>)
    """

    def draw_weights(self, inputs: int, heads: int, outputs: int) -> None:
        self.W = Linear(inputs, heads * outputs, bias=False)
        self.a_receiver = nn.Parameter(torch.empty(heads, outputs))
        self.a_sender = nn.Parameter(torch.empty(heads, outputs))
        for weight in (self.W.weight, self.a_receiver, self.a_sender):
            nn.init.xavier_uniform_(weight)

    def forward(self, graph: Graph, x: Sides, e: EdgeRows = None) -> Tensor:
        graph, e = with_loops(graph, x, e)
        Wx_i, Wx_j = both_sides(graph, x, self.W, self.a_sender.shape)  # [*, I or J, H, C]
        score = Additive(self.slope, self.a_receiver, self.a_sender)  # s_ij = LeakyReLU(aᵀ[W x_i ‖ W x_j])
        score = score if e is None and self.edge is None else score + self.vectors(e)
        return self.over_heads(attend(graph, Wx_i, Wx_j, Wx_j, score, dropout=self.dropout_now))

    @staticmethod
    def example() -> Example:
        return small_example(GAT(3, 2, heads=2, dropout=0.5))


class GATv2(AdditiveAttention):
    """Graph attention whose ranking of the neighbours depends on the query: the LeakyReLU comes before a.

    Equation    s_ij = aᵀ LeakyReLU(W_receiver x_i + W_sender x_j [+ W_edge e_ij])
                x_i' = ‖_h Σ_j softmax_{j ∈ N(i) ∪ {i}}(s_ij^h) W_sender,h x_j + b, or the mean over h
    Symbols     W.weight = [W_receiver ‖ W_sender]ᵀ, with biases; a [H, C] = a; slope, outputs and edge as in GAT
    Shapes      x [*, N, inputs] (, e [*, E, edges] in the graph's edge order) -> [*, N, heads * outputs], averaged:
                [*, N, outputs]; x may be SparseFeatures, or a pair (x_receivers [*, I, inputs], x_senders [*, J, ...])
    Edge cases  as `GAT`
    Cost        time O(N inputs H C + E H C); memory O(N H C + E H C), or less by backend
    Differs     the paper writes W [x_i ‖ x_j]: W_receiver and W_sender are its halves
    Reference   Brody, Alon & Yahav, 2022, (7)

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer = GATv2(1, 1)
        >>> for p in (layer.W.weight, layer.a): _ = p.data.fill_(1.0)
        >>> layer(pair, torch.tensor([[0.0], [1.0]]))  # α = softmax(0, 1), then softmax(1, 2)
        tensor([[0.7311],
                [0.7311]], grad_fn=<AddBackward0>)
    """

    def draw_weights(self, inputs: int, heads: int, outputs: int) -> None:
        self.W = Linear(inputs, 2 * heads * outputs)
        self.a = nn.Parameter(torch.empty(heads, outputs))
        for weight in (*self.W.weight.chunk(2), self.a):
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.W.bias)

    def forward(self, graph: Graph, x: Sides, e: EdgeRows = None) -> Tensor:
        graph, e = with_loops(graph, x, e)
        of_receivers, of_senders = both_sides(graph, x, self.W, (2, *self.a.shape))
        q, k = of_senders.unbind(-3)  # [*, I, H, C], [*, J, H, C]
        q = q if of_receivers is of_senders else of_receivers.select(-3, 0)
        score = GatedAdditive(self.a, self.slope)
        score = score if e is None and self.edge is None else score + self.vectors(e)
        return self.over_heads(attend(graph, q, k, k, score, dropout=self.dropout_now))

    @staticmethod
    def example() -> Example:
        return small_example(GATv2(3, 2, heads=2, dropout=0.5))
