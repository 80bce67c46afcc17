"""Networks beyond message passing, on pairs of nodes and on subgraphs: what they tell apart, 1-WL does not."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Count, Natural, Positive
from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.make.subgraphs import marked_copies, pairs, rooted_copies
from edgewise.kernels import aggregate, collect, ends
from edgewise.layers.graph.gin import GIN
from edgewise.layers.plain.layer import Example, Layer, small_example
from edgewise.layers.plain.linear import Dense, Linear
from edgewise.layers.plain.mlp import MLP
from edgewise.layers.plain.running import uncompiled
from edgewise.layers.plain.sides import NodeRows, SparseRows

GAIN = 1.5  # of 1.3, 1.5 and 1.7 the first at which 5 blocks see a twist around a ladder of 6 rungs, float64


class PairProduct(Layer):
    """Block of a provably powerful graph network: what is known of two pairs (i, w) and (w, j) meets at (i, j).

    Equation    a = m_1(h), b = m_2(h);  ā_i = 1/n Σ_w a_iw, b̄_j = 1/n Σ_w b_wj
                h_ij' = norm(m_3([h_ij ‖ 1/√n Σ_w (a_iw − ā_i) ⊙ (b_wj − b̄_j) ‖ ā_i ⊙ b̄_j]))
    Symbols     left, right, both = m_1, m_2, m_3; n = nodes of i's graph; norm = LayerNorm; gain = of the first
                weights, over He's: above 1 random weights tell close values apart, up to 1 they can be trained
    Shapes      h [*, P, inputs] -> [*, P, outputs] for all P pairs, in the order of `pairs`
    Errors      GraphError for a graph whose receivers are not its senders
    Cost        O(Σ n³ outputs) time in matrix products, one for each channel; O(Σ n² outputs) memory
    Differs     there m_3 reads Σ_w a_iw ⊙ b_wj, here its two parts, each scaled, so that what pairs have in common does
                not hide how they differ. There MLPs have ReLUs and no norm, here sines, which spread close values
    Reference   Maron et al., "Provably powerful graph networks", 2019; sines: Sitzmann et al., 2020

    Example
        >>> two = Graph.from_edge_index([[0], [1]], num_nodes=2)
        >>> PairProduct(3, 5)(two, torch.ones(4, 3)).shape
        torch.Size([4, 5])
    """

    def __init__(self, inputs: Count, outputs: Count, gain: Positive = GAIN) -> None:
        super().__init__()
        self.left, self.right = (spreading([inputs, outputs, outputs], gain) for _ in range(2))
        self.both = spreading([inputs + 2 * outputs, outputs, outputs], gain)
        self.norm = nn.LayerNorm(outputs)

    def forward(self, graph: Graph, h: Dense) -> Tensor:
        pairs = pairs_of(graph).graph.num_edges
        if h.shape[-2:-1] != (pairs,):
            raise ShapeError(f"h is {list(h.shape)}, but must be [*, {pairs}, C], a row for each pair of nodes")
        return self.norm(self.both(torch.cat([h, *products(graph, self.left(h), self.right(h))], -1)))


class PPGN(Layer):
    """Provably powerful graph network, from nodes to nodes: features of all pairs, refined by matrix products.

    Equation    h_ij⁰ = W_1 [A_ij, A_ji, 1(i = j)] + W_2 x_i + W_3 x_j + b;  h^(l+1) = PairProduct_l(h^l)
                y_i = W [h_ii ‖ 1/n Σ_j h_ij] + c
    Symbols     pair = W_1; receiver, sender = W_2, b and W_3; blocks[l] = PairProduct_l; out = W, c
    Shapes      x [*, N, inputs] -> [*, N, outputs]
    Errors      GraphError for a graph whose receivers are not its senders
    Edge cases  parallel edges count as often as they occur; a node alone in its graph is a pair with itself
    Cost        O(depth Σ n³ hidden) time, O(depth Σ n² hidden) memory, n the nodes of each member of a batch
    Differs     there features of nodes stand on the diagonal alone, and the output is one for each graph
    Reference   Maron et al., "Provably powerful graph networks", 2019; as strong as `refined_pairs`

    Example
        >>> from edgewise.graphs.make.regular import circulant
        >>> hexagon = circulant(6, [1])
        >>> two = Graph.from_edge_index(Graph.batch([circulant(3, [1])] * 2).edge_index(), 6)
        >>> layer = PPGN(1, 4)  # all nodes have two neighbours, yet the two graphs differ
        >>> torch.allclose(layer(hexagon, torch.ones(6, 1)), layer(two, torch.ones(6, 1)))
        False
    """

    local: ClassVar[bool] = False

    def __init__(
        self, inputs: Count, outputs: Count, hidden: Count = 16, depth: Natural = 5, gain: Positive = GAIN
    ) -> None:
        super().__init__()
        self.pair = nn.Linear(3, hidden, bias=False)
        self.receiver, self.sender = Linear(inputs, hidden), Linear(inputs, hidden, bias=False)
        self.blocks = nn.ModuleList(PairProduct(hidden, hidden, gain) for _ in range(depth))
        self.out = nn.Linear(2 * hidden, outputs)

    def forward(self, graph: Graph, x: SparseRows) -> Tensor:
        every = pairs_of(graph)
        x_i, x_j = ends(every.graph, self.receiver(x), self.sender(x))
        h = self.pair(every.links.to(x.dtype)) + x_i + x_j
        for block in self.blocks:
            h = block(graph, h)
        alone = h.index_select(-2, every.diagonal)
        return self.out(torch.cat([alone, collect(every.graph, h, "mean")], -1))

    @staticmethod
    def example() -> Example:
        return small_example(PPGN(3, 4, hidden=4, depth=1, gain=0.7))


def spreading(sizes: Sequence[int], gain: float = GAIN) -> MLP:
    """An MLP with sines, drawn so that inputs which are close have results that are less so: by `gain` a map."""
    mlp = MLP(sizes)
    mlp.activation = torch.sin
    for linear in mlp.linears:
        assert isinstance(linear, Linear)
        nn.init.kaiming_normal_(linear.weight)
        with torch.no_grad():
            linear.weight.mul_(gain)
        nn.init.zeros_(linear.bias)
    return mlp


def products(graph: Graph, a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """How a_i and b_j vary together over w, and the product of their means: two tensors [*, P, C] from [*, P, C]."""
    every = pairs_of(graph)
    if len(every.squares) == 1:
        return _products(a, b, every.squares[0][0])
    if not every.squares:
        return a * b, a * b
    met = [_products(a.index_select(-2, rows), b.index_select(-2, rows), n) for n, rows in every.squares]
    together, apart = (torch.cat(parts, -2).index_select(-2, every.back) for parts in zip(*met, strict=True))
    return together, apart


def _products(a: Tensor, b: Tensor, n: int) -> tuple[Tensor, Tensor]:
    a, b = (h.unflatten(-2, (-1, n, n)).movedim(-1, -3) for h in (a, b))
    mean_a, mean_b = a.mean(-1, keepdim=True), b.mean(-2, keepdim=True)
    together = (a - mean_a) @ (b - mean_b) * n**-0.5
    return _flat(together), _flat(mean_a * mean_b)


def _flat(squares: Tensor) -> Tensor:
    return squares.movedim(-3, -1).flatten(-4, -2)


pairs_of = uncompiled(pairs)  # once for each batch, on integers


marked_of = uncompiled(marked_copies)
rooted_of = uncompiled(rooted_copies)


class Marked(Layer):
    """A layer that reads the graph once for each node, with that node marked.

    Equation    y_i = 1/n Σ_v f(G, [X ‖ 1(v = i)])_v
    Symbols     layer = f, whose inputs are one channel wider than x; n = nodes of i's graph
    Shapes      x [*, N, C] -> [*, N, outputs of f]
    Errors      GraphError for a graph whose receivers are not its senders
    Cost        n times that of f
    Differs     there f is message passing, and each copy leaves a node out or is cut out around one
    Reference   Zhang & Li, 2021; Bevilacqua et al., "Equivariant subgraph aggregation networks", 2022; between folklore
                2-WL and 3-WL around PPGN: Cai, Fürer & Immerman, 1992

    Example
        >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], num_nodes=3)
        >>> from edgewise.layers import MLP
        >>> layer = Marked(GIN(MLP([2, 1])))
        >>> y = layer(path, torch.ones(3, 1))
        >>> torch.allclose(y[0], y[2]), y.shape  # the two ends are alike
        (True, torch.Size([3, 1]))
    """

    local: ClassVar[bool] = False

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, graph: Graph, x: NodeRows) -> Tensor:
        copies = marked_of(graph)
        mark = copies.marks.to(x.dtype).expand(*x.shape[:-2], -1, -1)
        y = self.layer(copies.graph, torch.cat([x.index_select(-2, copies.nodes), mark], -1))
        return aggregate(copies.graph.membership(), y, reduce="mean")

    @staticmethod
    def example() -> Example:
        return small_example(Marked(PPGN(4, 4, hidden=4, depth=1, gain=0.7)))


class I2GNN(Layer):
    """I²-GNN: the message along an edge is a network on the neighbourhood of its receiver with both ends marked.

    Equation    m_ij = MLP_m(1/|S_i| Σ_{v ∈ S_i} h_v^L),  S_i the nodes within `hops` of i
                h_v⁰ = W_1 x_v + W_2 [1(d_iv = 0), ..., 1(d_iv = hops), 1(v = j)] + b
                h^(l+1) = norm_l(h^l + GIN_l(h^l))
                y_i = W_3 x_i + Σ_{j ∈ N(i)} m_ij
    Symbols     embed, mark = W_1, b and W_2; layers[l], norms[l] = GIN_l, norm_l; message = MLP_m; own = W_3
    Shapes      x [*, N, inputs] -> [*, N, outputs]
    Errors      GraphError for a graph whose receivers are not its senders
    Edge cases  a node without senders: W_3 x_i
    Cost        that of GIN on Σ_i d_i copies of what is within `hops` of i
    Differs     there the root's neighbours and distances are pooled by MLPs, and labels are distances from both ends;
                here the distance from the root and which node is the neighbour. MLPs have sines, as in `PairProduct`
    Reference   Huang et al., "Boosting the cycle counting power of graph neural networks with I²-GNNs", 2023

    Example
        >>> from edgewise.graphs.make.regular import circulant
        >>> hexagon, triangle = circulant(6, [1]), circulant(3, [1])
        >>> layer = I2GNN(1, 4)
        >>> torch.allclose(layer(hexagon, torch.ones(6, 1))[0], layer(triangle, torch.ones(3, 1))[0])
        False
    """

    def __init__(
        self,
        inputs: Count,
        outputs: Count,
        hidden: Count = 16,
        depth: Natural = 3,
        hops: Natural = 2,
        gain: Positive = GAIN,
    ) -> None:
        super().__init__()
        self.hops = hops
        self.embed, self.mark = Linear(inputs, hidden), nn.Linear(hops + 2, hidden, bias=False)
        self.layers = nn.ModuleList(GIN(spreading([hidden, hidden, hidden], gain)) for _ in range(depth))
        self.norms = nn.ModuleList(nn.LayerNorm(hidden) for _ in range(depth))
        self.message = spreading([hidden, hidden, outputs], gain)
        self.own = Linear(inputs, outputs)

    def forward(self, graph: Graph, x: SparseRows) -> Tensor:
        copies = rooted_of(graph, self.hops)
        distance, neighbor = copies.marks.unbind(-1)
        marks = torch.cat([functional.one_hot(distance, self.hops + 1), neighbor[:, None]], -1)
        h = self.embed(x).index_select(-2, copies.nodes) + self.mark(marks.to(x.dtype))
        for layer, norm in zip(self.layers, self.norms, strict=True):
            h = norm(h + layer(copies.graph, h))
        m_ij = self.message(aggregate(copies.graph.membership(), h, reduce="mean"))
        return self.own(x) + collect(graph, m_ij)

    @staticmethod
    def example() -> Example:
        return small_example(I2GNN(3, 4, hidden=4, depth=1, gain=0.7))
