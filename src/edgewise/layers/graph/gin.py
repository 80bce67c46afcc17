"""What loses nothing of the multiset of neighbours: a sum, with its form that reads edges, or several aggregators."""

from collections.abc import Callable
from typing import Annotated, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Count, Natural, Positive, Real
from edgewise.graphs import Graph
from edgewise.kernels import EdgeInput, EdgeNetwork, aggregate, collect, ends
from edgewise.kernels.messages import has_hooks
from edgewise.layers.plain.layer import Example, Layer, small_example
from edgewise.layers.plain.linear import Linear, SparseFeatures, check_features, root
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


class PNA(Layer):
    """Principal neighbourhood aggregation: four aggregators of the messages, each at three scales of the degree.

    Equation    m_ij = A x_i + B x_j + C e_ij + c    (linear M)
                r_i = mean_j m_ij ‖ max_j m_ij ‖ min_j m_ij ‖ std_j m_ij
                x_i' = U x_i + V (r_i ‖ s_i r_i ‖ r_i / s_i) + u,  s_i = log(d_i + 1) / δ    (5)-(8)
    Symbols     nodes = [A ‖ B ‖ U], with the biases c and u; edge = C, `edges` = width of e_ij; update = V; hidden =
                width of m_ij, default inputs; log_degree = δ, the mean of log(d + 1) over the nodes that train: another
                number than that only changes the scale of V
    Shapes      x [*, N, inputs], SparseFeatures, or a pair (x_receivers, x_senders) (, e [*, E, edges] in the graph's
                edge order) -> [*, I, outputs]
    Edge cases  an isolated node: r_i = 0. The deviation of a single message is 0: below √10⁻⁵ it counts as that
    Cost        time O(N inputs hidden + E hidden + N hidden outputs); memory O(N hidden), with edges O(E hidden)
    Differs     M and U are linear, of one tower, as in PyTorch Geometric's defaults
    Reference   Corso et al., "Principal neighbourhood aggregation for graph nets", 2020

    Example
        >>> star = Graph.from_edge_index([[1, 2], [0, 0]], num_nodes=3)
        >>> layer = PNA(1, 1)
        >>> for p in layer.parameters(): _ = p.data.zero_()
        >>> layer.nodes.weight.data[1] = 1.0  # m_ij = x_j
        >>> layer.update.weight.data[0, :4] = torch.tensor([1000.0, 100.0, 10.0, 1.0])
        >>> layer(star, torch.tensor([[0.0], [2.0], [4.0]])).tolist()  # mean 3, largest 4, smallest 2, deviation 1
        [[3421.0], [0.0], [0.0]]
    """

    def __init__(
        self,
        inputs: Count,
        outputs: Count,
        hidden: Count | None = None,
        edges: Natural = 0,
        log_degree: Positive = 1.0,
    ) -> None:
        super().__init__()
        self.hidden, self.log_degree = hidden or inputs, log_degree
        self.nodes = Linear(inputs, 2 * self.hidden + outputs)
        self.edge = Linear(edges, self.hidden, bias=False) if edges else None
        self.update = nn.Linear(12 * self.hidden, outputs, bias=False)

    def forward(self, graph: Graph, x: Sides, e: Annotated[Tensor | None, Edges("edge")] = None) -> Tensor:
        at_i, at_j = both_sides(graph, x, self.nodes)
        a_i, _, own = at_i.tensor_split((self.hidden, 2 * self.hidden), -1)
        m = at_j.narrow(-1, self.hidden, self.hidden)  # without a_i, which only shifts most of r_i
        combine: Callable[..., Tensor] = aggregate
        if self.edge is not None and e is not None:
            m, combine = ends(graph, a_i, m)[1] + self.edge(e), collect
        mean, of_squares = combine(graph, torch.cat([m, m * m], -1), reduce="mean").chunk(2, -1)
        d = graph.in_degrees().to(m.dtype).unsqueeze(-1)
        shifted = (
            y + torch.where(d > 0, a_i, 0) for y in (mean, *(combine(graph, m, reduce=r) for r in ("max", "min")))
        )
        r = torch.cat([*shifted, root(of_squares - mean * mean, 1e-5)], -1)
        s = torch.where(d > 0, (d + 1).log() / self.log_degree, 1)
        return own + self.update(torch.cat([r, s * r, r / s], -1))

    @staticmethod
    def example() -> Example:
        return small_example(PNA(3, 4, hidden=2))
