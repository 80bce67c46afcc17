"""Graph convolution over several steps at once: polynomials of the adjacency, with one linear map of the features."""

from typing import Annotated

import torch
from torch import Tensor, nn

from edgewise.configuration import Count, Natural, Portion
from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.kernels import aggregate
from edgewise.layers.graph.gcn import renormalised
from edgewise.layers.plain.layer import Example, Layer, small_example
from edgewise.layers.plain.linear import Linear
from edgewise.layers.plain.sides import EdgeWeights, Nodes, Rows

AllNodes = Annotated[Nodes, Rows(sparse=True, square=True)]


class ChebNet(Layer):
    """Graph convolution with a filter of the Laplacian: a sum of its Chebyshev polynomials.

    Equation    X' = Σ_{k=0..K-1} T_k(L̂) X W_k + b,  T_k = 2 L̂ T_k-1 - T_k-2,  T_0 = I,  T_1 = L̂    (4), (5)
                L̂ = 2 L / λ_max - I = -D^-½ A D^-½,  L = I - D^-½ A D^-½,  λ_max = 2
    Symbols     order = K; linear.weight = [W_0 ‖ ... ‖ W_K-1]ᵀ; bias = b; edge_weight [E] = the entries of A, at least
                0, 1 unless given
    Shapes      x [*, N, inputs] or SparseFeatures -> [*, N, outputs]
    Edge cases  self-loops are left out; of an isolated node L̂ is 0. Order 1 reads no edge
    Cost        time O(K (N inputs outputs + E outputs)): the sum is Clenshaw's, so the linear maps come first
    Differs     λ_max is its largest possible value, as in PyTorch Geometric's default. On a directed graph
                L̂ = -D^-½ A S^-½, S = the numbers of receivers
    Reference   Defferrard, Bresson & Vandergheynst, "Convolutional neural networks on graphs with fast localized
                spectral filtering", 2016

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer = ChebNet(1, 1, order=3)
        >>> layer.linear.weight.data = torch.tensor([[1.0], [10.0], [100.0]])
        >>> layer(pair, torch.tensor([[2.0], [4.0]])).tolist()  # 2 - 10·4 + 100·(2·2 - 2), 4 - 10·2 + 100·(2·4 - 4)
        [[162.0], [384.0]]
    """

    def __init__(self, inputs: Count, outputs: Count, order: Count = 3) -> None:
        super().__init__()
        self.order = order
        self.linear = Linear(inputs, order * outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))
        for W_k in self.linear.weight.data.chunk(order):
            nn.init.xavier_uniform_(W_k)

    def forward(self, graph: Graph, x: AllNodes, edge_weight: EdgeWeights = None) -> Tensor:
        Wx = self.linear(x).chunk(self.order, -1)
        A = _entries(graph, Wx[0].dtype) if edge_weight is None else _between(graph, edge_weight.to(Wx[0].dtype))
        y, later = Wx[-1], torch.zeros_like(Wx[-1])
        for k in reversed(range(self.order - 1)):
            y, later = Wx[k] - (2 if k else 1) * aggregate(graph, y, A) - later, y
        return y + self.bias

    @staticmethod
    def example() -> Example:
        return small_example(ChebNet(3, 4))


@cached
def _entries(graph: Graph, dtype: torch.dtype) -> Tensor:
    return _between(graph, torch.ones(graph.num_edges, dtype=dtype, device=graph.device))


def _between(graph: Graph, weight: Tensor) -> Tensor:
    """D^-½ A D^-½ on the edges, [E], with 0 for self-loops."""
    return renormalised(graph, weight.dtype, True, None, torch.where(graph.receivers == graph.senders, 0, weight))[1]


class SGC(Layer):
    """Simple graph convolution: several steps of a graph convolution without what is between them.

    Equation    X' = Â^K X W + b    (8)
    Symbols     steps = K; linear.weight = Wᵀ; bias = b; Â: `renormalised`; edge_weight [E] = the entries of A, at least
                0, 1 unless given
    Shapes      x [*, N, inputs] or SparseFeatures -> [*, N, outputs]
    Edge cases  one step is `GCN`, no step a linear map; an isolated node: X W + b
    Cost        time O(N inputs outputs + K E outputs): Â^K (X W)
    Differs     the softmax of (8) is left to the model; b is the paper's code
    Reference   Wu et al., "Simplifying graph convolutional networks", 2019

    Example
        >>> pair = Graph.from_edge_index([[0], [1]], num_nodes=2)
        >>> layer = SGC(1, 1, steps=2)
        >>> _ = layer.linear.weight.data.fill_(1.0)
        >>> layer(pair.symmetrise(), torch.tensor([[2.0], [4.0]])).tolist()
        [[3.0], [3.0]]
    """

    def __init__(self, inputs: Count, outputs: Count, steps: Natural = 2) -> None:
        super().__init__()
        self.steps = steps
        self.linear = Linear(inputs, outputs, bias=False)
        self.bias = nn.Parameter(torch.zeros(outputs))

    def forward(self, graph: Graph, x: AllNodes, edge_weight: EdgeWeights = None) -> Tensor:
        y = self.linear(x)
        A, entries = renormalised(graph, y.dtype, edge_weight=edge_weight)
        for _ in range(self.steps):
            y = aggregate(A, y, entries)
        return y + self.bias

    @staticmethod
    def example() -> Example:
        return small_example(SGC(3, 4))


class APPNP(Layer):
    """Personalised propagation: predictions of each node alone, which walk along the edges and return to it.

    Equation    H = X W + b,  Z⁰ = H,  Z^(k+1) = (1 - α) Â Z^(k) + α H,  X' = Z^(K)    (5)
    Symbols     steps = K; alpha = α, the probability of a return; linear = W, b; Â: `renormalised`; edge_weight [E] =
                the entries of A, at least 0, 1 unless given
    Shapes      x [*, N, inputs] or SparseFeatures -> [*, N, outputs]
    Edge cases  no step is a linear map of each node; of an isolated node so are all
    Cost        time O(N inputs outputs + K E outputs), whatever the number of steps without further parameters
    Differs     H is the last linear map of the paper's network: the layers before it are the model's
    Reference   Gasteiger, Bojchevski & Günnemann, "Predict then propagate: graph neural networks meet personalized
                PageRank", 2019

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer = APPNP(1, 1, steps=1, alpha=0.5)
        >>> layer.linear.weight.data, layer.linear.bias.data = torch.ones(1, 1), torch.zeros(1)
        >>> layer(pair, torch.tensor([[2.0], [4.0]])).tolist()  # ½·3 + ½·2, ½·3 + ½·4
        [[2.5], [3.5]]
    """

    def __init__(self, inputs: Count, outputs: Count, steps: Natural = 10, alpha: Portion = 0.1) -> None:
        super().__init__()
        self.steps, self.alpha = steps, alpha
        self.linear = Linear(inputs, outputs)

    def forward(self, graph: Graph, x: AllNodes, edge_weight: EdgeWeights = None) -> Tensor:
        z = h = self.linear(x)
        A, entries = renormalised(graph, h.dtype, edge_weight=edge_weight)
        for _ in range(self.steps):
            z = (1 - self.alpha) * aggregate(A, z, entries) + self.alpha * h
        return z

    @staticmethod
    def example() -> Example:
        return small_example(APPNP(3, 4, steps=3))
