"""Graph convolution: neighbours count by fixed weights that depend on degrees only, or by channels that are mixed."""

from typing import Annotated

import torch
from torch import Tensor, nn

from edgewise.configuration import Count, Portion
from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.kernels import aggregate, collect, ends
from edgewise.kernels.gates import unscaled
from edgewise.layers.plain.layer import Example, Layer, checked, small_example
from edgewise.layers.plain.linear import Linear, SparseFeatures, Wide
from edgewise.layers.plain.sides import (
    EdgeWeights,
    NodeRows,
    Nodes,
    Sides,
    at_receivers,
    both_sides,
    check_sides,
    mean_of_senders,
    weights_like,
    weights_with_loops,
    with_loops,
)

Channels = Annotated[Tensor, Wide("channels")]


def renormalised(
    graph: Graph,
    dtype: torch.dtype,
    paired: bool = False,
    degrees: Tensor | None = None,
    edge_weight: Tensor | None = None,
) -> tuple[Graph, Tensor]:
    """The adjacency with self-loops à = A + I as a graph, and its normalised entries on the edges, [E].

    Equation    Â = D̃^-½ à D̃^-½,  d̃_ii = Σ_j ã_ij    (5.2); where receivers are not the senders D^-½ à S^-½ for
                s̃_jj = Σ_i ã_ij, the receivers that sender j has
    Symbols     paired = whether receivers and senders are two kinds of nodes, without self-loops; degrees [J] = d̃ of
                the senders in the graph of which this one is a hop; edge_weight [E] = the entries of A, 1 unless given
    Edge cases  a self-loop that is already there is not doubled; parallel edges count as often as they occur
    Cost        O(E), once per graph and dtype, with weights each time

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> renormalised(pair, torch.float32)[1].tolist()  # every degree is 2, so 1/√2 · 1/√2 on 4 edges
        [0.5, 0.5, 0.5, 0.5]
    """
    if edge_weight is not None:
        return _weighted(graph, edge_weight.to(dtype), paired)
    loops = graph if paired else with_loops(graph, torch.empty(graph.num_senders, 0), None)[0]
    return loops, _entries(loops, dtype, paired) if degrees is None else _normalised(loops, degrees, dtype)


@cached
def _entries(loops: Graph, dtype: torch.dtype, paired: bool) -> Tensor:
    return _normalised(loops, degrees_of_senders(loops, paired), dtype)


def _weighted(graph: Graph, weight: Tensor, paired: bool) -> tuple[Graph, Tensor]:
    senders = weight.new_empty(graph.num_senders, 0)
    loops, a = (graph, weight) if paired else weights_with_loops(graph, senders, weight)
    assert a is not None
    with unscaled():
        d = d_senders = collect(loops, a.unsqueeze(-1))
    if paired or not graph.is_square:
        d_senders = a.new_zeros(loops.num_senders, 1).index_add(0, loops.senders, a.unsqueeze(-1))
    d_i, d_j = ends(loops, d, d_senders)
    product = (d_i.double() * d_j.double()).squeeze(-1)
    return loops, a * torch.where(product == 0, 1, product).rsqrt().to(a.dtype)  # of a product 0 the entry is 0, too


def degrees_of_senders(graph: Graph, paired: bool) -> Tensor:
    """How many senders each sender has itself, [J]; where senders are no receivers, how many receivers it has.

    Symbols     paired = whether receivers and senders are two kinds of nodes, as many of each or not
    """
    return graph.in_degrees() if graph.is_square and not paired else graph.out_degrees()


def _normalised(loops: Graph, of_senders: Tensor, dtype: torch.dtype) -> Tensor:
    d_i, d_j = ends(loops, loops.in_degrees().unsqueeze(-1), of_senders.unsqueeze(-1))
    return (d_i * d_j).squeeze(-1).double().rsqrt().to(dtype)


@checked
def mixed_orders(graph: Graph, x: NodeRows, steps: int) -> Tensor:
    """What a node reads of all nodes within some steps of a walk: the mean over the numbers of steps.

    Equation    1/(K + 1) Σ_{k=0..K} Â^k X
    Symbols     steps = K; Â: `renormalised`
    Shapes      x [*, N, C] -> [*, N, C]
    Edge cases  no steps: x itself; so does an isolated node
    Cost        O(K E C)
    Reference   Feng et al., "Graph random neural networks for semi-supervised learning on graphs", 2020, (1)

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> mixed_orders(pair, torch.tensor([[2.0], [4.0]]), 1).tolist()  # (2 + 3)/2, (4 + 3)/2
        [[2.5], [3.5]]
    """
    graph, entries = renormalised(graph, x.dtype)
    total = x
    for _ in range(steps):
        x = aggregate(graph, x, entries)
        total = total + x
    return total / (steps + 1)


def adjacency(
    graph: Graph, x: Sides, weight: Tensor | None, edge_weight: Tensor | None = None
) -> tuple[Graph, Tensor, Nodes]:
    """Â as a graph and its entries, or the graph as it is with these weights; and the features of the senders."""
    check_sides(graph, x)
    senders = x[1] if isinstance(x, tuple) else x
    if weight is not None:
        return graph, weights_like(senders, weight), senders
    return *renormalised(graph, senders.dtype, isinstance(x, tuple), edge_weight=edge_weight), senders


class GCN(Layer):
    """Graph convolution: a linear map of the degree-weighted mean of the neighbours and of the node itself.

    Equation    X' = Â X W + b,  Â = D̃^-½ (A + I) D̃^-½    (5.2), (5.4)
    Symbols     linear.weight = Wᵀ; bias = b; Â: `renormalised`; edge_weight [E] = the entries of A, at least 0, 1
                unless given; weight [E] = entries in place of Â
    Shapes      x [*, N, inputs] -> [*, N, outputs]; x may be SparseFeatures, or a pair (x_receivers, x_senders
                [*, J, inputs]) -> [*, I, outputs], of which the receivers' is not read
    Edge cases  an isolated node: X W + b; existing self-loops are not doubled. A pair has none; there, and in a sampled
                graph, a sender's degree is the number of its receivers (a `Neighborhood` has the whole graph's)
    Cost        time O(N inputs outputs + E min(inputs, outputs)): Â(XW) or (ÂX)W, whichever carries less over the edges
    Differs     σ of (5.4) is left to the model; b is Kipf & Welling's code, absent from (5.4). On a directed graph both
                factors are degrees of i's and j's own rows (as in PyTorch Geometric)
    Reference   Kipf & Welling, 2017, (2), (8); Baggag & Saad, §5.2

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer = GCN(1, 1)
        >>> layer.linear.weight.data.fill_(1.0)
        tensor([[1.]])
        >>> layer(pair, torch.tensor([[2.0], [4.0]])).tolist()
        [[3.0], [3.0]]
    """

    def __init__(self, inputs: Count, outputs: Count, bias: bool = True) -> None:
        super().__init__()
        self.linear = Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs)) if bias else None
        self.narrows = outputs <= inputs
        nn.init.xavier_uniform_(self.linear.weight)  # Glorot & Bengio, 2010, as in the paper

    def forward(self, graph: Graph, x: Sides, weight: Tensor | None = None, edge_weight: EdgeWeights = None) -> Tensor:
        A, entries, x = adjacency(graph, x, weight, edge_weight)
        if self.narrows or isinstance(x, SparseFeatures):
            y = aggregate(A, self.linear(x), entries)  # Â (X W)
        else:
            y = self.linear(aggregate(A, x, entries))  # (Â X) W
        return y if self.bias is None else y + self.bias

    @staticmethod
    def example() -> Example:
        return small_example(GCN(3, 4))


class FastGCN(GCN):
    """Graph convolution that, given the weights of sampled edges, sums over those alone.

    Equation    x_v' = 1/t Σ_{j=1..t} Â(v, u_j) / q(u_j) (W x_{u_j}) + b,  u_j ~ q    (8); without weights GCN's sum
    Symbols     weight = Â(v, u_j) / (t q(u_j)) on the edges of a `sample_layers` graph; linear.weight = W; bias = b
    Shapes      x [*, J, inputs], weight [E] -> [*, I, outputs]; x may be SparseFeatures
    Edge cases  a receiver none of whose senders were drawn gives b; without weights the layer is GCN itself
    Cost        time O(J inputs outputs + E min(inputs, outputs)) of the sampled graph
    Reference   Chen, Ma & Xiao, 2018; Baggag & Saad, §5.3

    Example
        >>> hop = Graph.from_edge_index([[0, 1], [0, 0]], num_nodes=2, num_receivers=1)
        >>> layer = FastGCN(1, 1)
        >>> _ = layer.linear.weight.data.fill_(1.0)
        >>> layer(hop, torch.tensor([[2.0], [4.0]]), torch.tensor([0.5, 0.25])).tolist()  # 0.5·2 + 0.25·4
        [[2.0]]
    """

    @staticmethod
    def example() -> Example:
        return small_example(FastGCN(3, 4))


class GCNII(Layer):
    """Graph convolution with an initial residual and an identity map: it stays trainable over many layers.

    Equation    X' = ((1 - α) Â X + α X⁰) ((1 - β) I + β W)    (5)
    Symbols     linear.weight = Wᵀ; alpha = α; beta = β, λ / l or log(λ / l + 1) in layer l; Â: `renormalised`;
                edge_weight [E] = the entries of A, at least 0, 1 unless given
    Shapes      x [*, N, channels], x_0 [*, N, channels] -> [*, N, channels]
    Edge cases  in a sampled graph X⁰ may have a row for each sender or for each receiver
    Cost        time O(N channels² + E channels)
    Differs     σ of (5) is left to the model
    Reference   Chen et al., "Simple and deep graph convolutional networks", 2020

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer = GCNII(1, alpha=0.5, beta=0.0)
        >>> layer(pair, torch.tensor([[2.0], [4.0]]), torch.tensor([[0.0], [8.0]])).tolist()  # ½·3 + ½·0, ½·3 + ½·8
        [[1.5], [5.5]]
    """

    def __init__(self, channels: Count, alpha: Portion = 0.1, beta: Portion = 0.4) -> None:
        super().__init__()
        self.channels, self.alpha, self.beta = channels, alpha, beta
        self.linear = Linear(channels, channels, bias=False)
        nn.init.xavier_uniform_(self.linear.weight)

    def forward(self, graph: Graph, x: Channels, x_0: Channels, edge_weight: EdgeWeights = None) -> Tensor:
        A, entries = renormalised(graph, x.dtype, edge_weight=edge_weight)
        x_0 = x_0 if x_0.shape[-2] == graph.num_receivers else at_receivers(graph, x_0)
        y = (1 - self.alpha) * aggregate(A, x, entries) + self.alpha * x_0
        return (1 - self.beta) * y + self.beta * self.linear(y)

    @staticmethod
    def example() -> Example:
        layer, graph, (x,) = small_example(GCNII(3))
        return layer, graph, (x, torch.randn(5, 3))


class ACM(Layer):
    """Adaptive channel mixing: each node weighs the mean of its neighbourhood, its difference from it, and itself.

    Equation    H_L = ReLU(P X W_L),  H_H = ReLU((I - P) X W_H),  H_I = ReLU(X W_I),  P = D̃^-1 (A + I)
                (α_L, α_H, α_I) = softmax_rows([σ(H_L w_L) ‖ σ(H_H w_H) ‖ σ(H_I w_I)] W_mix / 3)
                X' = 3 (α_L H_L + α_H H_H + α_I H_I),  α by node
    Symbols     channels = [W_L ‖ W_H ‖ W_I]; scores = w_L, w_H, w_I; mix = W_mix [3, 3]; edge_weight [E] = the entries
                of A, at least 0, 1 unless given
    Shapes      x [*, N, inputs], SparseFeatures, or a pair (x_receivers, x_senders) -> [*, N, outputs]
    Edge cases  an isolated node is its own neighbourhood: H_H = 0. A pair has no self-loops
    Cost        time O(N inputs outputs + E outputs), three times that of `GCN`
    Reference   Luan et al., "Revisiting heterophily for graph neural networks", 2022, §4.2, (4)-(5)

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer = ACM(1, 1)
        >>> for p in layer.parameters(): _ = p.data.fill_(1.0)
        >>> layer(pair, torch.tensor([[2.0], [4.0]])).tolist()  # 3 + 0 + 2, 3 + 1 + 4
        [[5.0], [8.0]]
    """

    def __init__(self, inputs: Count, outputs: Count) -> None:
        super().__init__()
        self.channels = Linear(inputs, 3 * outputs, bias=False)
        self.scores = nn.Parameter(torch.empty(3, outputs))
        self.mix = nn.Parameter(torch.empty(3, 3))
        for part in self.channels.weight.data.chunk(3):
            nn.init.uniform_(part, -(outputs**-0.5), outputs**-0.5)
        nn.init.uniform_(self.scores, -1, 1)
        nn.init.uniform_(self.mix, -(3**-0.5), 3**-0.5)

    def forward(self, graph: Graph, x: Sides, edge_weight: EdgeWeights = None) -> Tensor:
        at_i, at_j = both_sides(graph, x, self.channels)
        _, difference, own = at_i.chunk(3, -1)
        filtered = at_j[..., : 2 * own.shape[-1]]  # what passes along edges: the first two
        loops, weight = weights_with_loops(graph, x, edge_weight)
        low, high = mean_of_senders(loops, filtered, weight).chunk(2, -1)
        h = torch.stack([low, difference - high, own], -2).relu()  # [*, N, 3, outputs]
        weights = ((h * self.scores).sum(-1).sigmoid() @ self.mix / 3).softmax(-1)
        return 3 * (weights.unsqueeze(-1) * h).sum(-2)

    @staticmethod
    def example() -> Example:
        return small_example(ACM(3, 4))
