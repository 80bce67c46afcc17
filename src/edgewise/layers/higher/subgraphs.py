"""Networks on subgraphs: the same network reads many copies of a graph, in each of which other nodes are marked."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Count, Natural, Positive
from edgewise.graphs import Graph
from edgewise.graphs.make.subgraphs import marked_copies, rooted_copies
from edgewise.kernels import aggregate, collect
from edgewise.layers.graph.gin import GIN
from edgewise.layers.higher.pairs import GAIN, PPGN, spreading
from edgewise.layers.plain.layer import Example, Layer, small_example
from edgewise.layers.plain.linear import Linear
from edgewise.layers.plain.sides import NodeRows, SparseRows
from edgewise.layers.plain.uncompiled import uncompiled

marked_of = uncompiled(marked_copies)
rooted_of = uncompiled(rooted_copies)


class Marked(Layer):
    """A layer that reads the graph once for each node, with that node marked.

    Equation    y_i = 1/n Σ_v f(G, [X ‖ 1(v = i)])_v
    Symbols     layer = f, whose inputs are one channel wider than x; n = nodes of i's graph
    Shapes      x [*, N, C] -> [*, N, outputs of f]
    Errors      GraphError for a graph whose receivers are not its senders
    Edge cases  f reads the copies as one batch
    Cost        n times that of f
    Differs     there f is message passing, and each copy leaves a node out or is cut out around one
    Reference   Zhang & Li, "Nested graph neural networks", 2021; Bevilacqua et al., "Equivariant subgraph aggregation
                networks", 2022; around PPGN between folklore 2-WL and 3-WL: Cai, Fürer & Immerman, 1992

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
    Symbols     embed, mark = W_1, b and W_2; layers[l], norms[l] = GIN_l, norm_l; message = MLP_m; own = W_3; gain
                as in `PairProduct`
    Shapes      x [*, N, inputs] -> [*, N, outputs]
    Errors      GraphError for a graph whose receivers are not its senders
    Edge cases  a node without senders: W_3 x_i
    Cost        that of GIN on Σ_i d_i copies of what is within `hops` of i
    Differs     there the root's neighbours and their distances are pooled by MLPs that see one another; the copies'
                labels are distances from both ends. Here the distance from the root and which node is the neighbour;
                MLPs have sines, as in `PairProduct`
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
