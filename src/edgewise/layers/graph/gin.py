"""Graph isomorphism network: a sum that loses nothing of the multiset of neighbours; and its form that reads edges."""

from collections.abc import Callable
from typing import Annotated, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Natural, Real
from edgewise.graphs import Graph
from edgewise.kernels import EdgeInput, EdgeNetwork, aggregate, collect
from edgewise.kernels.messages import has_hooks
from edgewise.layers.plain.layer import Example, Layer, small_example
from edgewise.layers.plain.linear import Linear, SparseFeatures, check_features
from edgewise.layers.plain.mlp import MLP
from edgewise.layers.plain.sides import Edges, EdgeWeights, Nodes, Sides, both_sides, dense, weights_like


def dense_sides(graph: Graph, x: Sides, mlp: MLP) -> tuple[Tensor, Tensor]:
    """The features of receivers and senders as ordinary tensors, each as the network reads them."""
    W = mlp.maps[0][0]

    def of(side: Nodes) -> Tensor:
        check_features(side, W)
        return dense(side)

    return both_sides(graph, x, of)


def of_sum(mlp: MLP, graph: Graph, x: Sides, combine: Callable[[Tensor, Tensor], Tensor]) -> Tensor:
    """MLP(combine(x_i, x_j)) for a linear combination, so that the network's first linear map W may come before it:
    sparse features stay sparse, and only W x_i and W x_j are combined."""
    if not isinstance(x, SparseFeatures) or has_hooks(mlp):  # which run where the network is called
        return mlp(combine(*dense_sides(graph, x, mlp)))
    b = cast(Tensor, mlp.linears[0].bias)
    return mlp.after_first(combine(*both_sides(graph, x, lambda side: mlp.linears[0](side) - b)) + b)


class GIN(Layer):
    """Graph isomorphism layer: as powerful as the 1-WL test, because sum and MLP are injective on multisets.

    Equation    x_i' = MLP( (1 + ε) x_i + Σ_{j ∈ N(i)} x_j )    (4.1)
    Symbols     mlp = MLP; epsilon = ε, trained; edge_weight [E] = w_ij: Σ_j w_ij x_j
    Shapes      x [*, N, mlp inputs] -> [*, N, mlp outputs]; x may be SparseFeatures, or a pair (x_receivers
                [*, I, mlp inputs], x_senders [*, J, mlp inputs])
    Edge cases  an isolated node: MLP((1 + ε) x_i); a self-loop counts x_i once more
    Cost        time O(N |MLP| + E inputs); sparse features: O(E d_1) for the MLP's first hidden width d_1
    Reference   Xu et al., "How powerful are graph neural networks?", 2019

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer = GIN(MLP([1, 1]), epsilon=1.0)
        >>> for p in layer.mlp.parameters(): _ = p.data.fill_(1.0)
        >>> layer(pair, torch.tensor([[1.0], [10.0]])).tolist()  # 2·1 + 10 + 1, 2·10 + 1 + 1
        [[13.0], [22.0]]
    """

    def __init__(self, mlp: MLP, epsilon: Real = 0.0) -> None:
        super().__init__()
        self.mlp = mlp
        self.epsilon = nn.Parameter(torch.tensor(float(epsilon)))

    def forward(self, graph: Graph, x: Sides, edge_weight: EdgeWeights = None) -> Tensor:
        def combine(x_i: Tensor, x_j: Tensor) -> Tensor:
            return (1 + self.epsilon) * x_i + aggregate(graph, x_j, weights_like(x_j, edge_weight))

        return of_sum(self.mlp, graph, x, combine)

    @staticmethod
    def example() -> Example:
        return small_example(GIN(MLP([3, 6, 4], "tanh")))


class GINE(Layer):
    """Graph isomorphism layer whose messages read the edges too.

    Equation    x_i' = MLP( (1 + ε) x_i + Σ_{j ∈ N(i)} ReLU(x_j + W e_ij + b) )
    Symbols     mlp = MLP; epsilon = ε, trained; edge = W, b; `edges` = width of e_ij, 0: no W e_ij + b
    Shapes      x [*, J, mlp inputs], or a pair (x_receivers, x_senders) (, e [*, E, edges] in the graph's edge order)
                -> [*, I, mlp outputs]; the receivers are the senders or, in a sampled graph, the first of them
    Edge cases  an isolated node: MLP((1 + ε) x_i)
    Cost        time O(N |MLP| + E edges inputs); memory O(N inputs + E) on `native`
    Differs     there the types of bonds are embedded; a linear map of one-hot types is the same function
    Reference   Hu et al., "Strategies for pre-training graph neural networks", 2020, A

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer = GINE(MLP([1, 1]), edges=1)
        >>> for p in layer.parameters(): _ = p.data.fill_(1.0)
        >>> layer(pair, torch.tensor([[1.0], [10.0]]), torch.tensor([[5.0], [-9.0]])).tolist()  # ε = 1
        [[19.0], [21.0]]
    """

    def __init__(self, mlp: MLP, edges: Natural = 0, epsilon: Real = 0.0) -> None:
        super().__init__()
        self.mlp = mlp
        self.epsilon = nn.Parameter(torch.tensor(float(epsilon)))
        first: nn.Linear = mlp.linears[0]  # type: ignore[assignment]
        self.edge = Linear(edges, first.in_features) if edges else None

    def forward(self, graph: Graph, x: Sides, e: Annotated[Tensor | None, Edges("edge")] = None) -> Tensor:
        x_i, x_j = dense_sides(graph, x, self.mlp)
        edges = None if self.edge is None or e is None else EdgeInput((self.edge.weight, self.edge.bias), e)
        m_ij = EdgeNetwork((), functional.relu, senders=x_j, edges=edges, activated=True)
        return self.mlp((1 + self.epsilon) * x_i + collect(graph, m_ij))

    @staticmethod
    def example() -> Example:
        return small_example(GINE(MLP([3, 6, 4], "tanh")))
