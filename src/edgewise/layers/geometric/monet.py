"""Mixture model networks: neighbours count by where they lie, seen from the receiver, under learned Gaussians."""

import torch
from torch import Tensor, nn

from edgewise.configuration import Count
from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.kernels import aggregate, ends
from edgewise.kernels.operator.layout import widened
from edgewise.layers.graph.gcn import degrees_of_senders
from edgewise.layers.plain.layer import Example, Layer, small_example
from edgewise.layers.plain.linear import Linear, check_real
from edgewise.layers.plain.sides import Sides, both_sides, check_edges


class DegreeCoordinates(Layer):
    """Pseudo-coordinates of every edge from the degrees of its ends, for graphs whose nodes have no position.

    Equation    u_ij = tanh(A (deg(i)^-½, deg(j)^-½) + b)
    Symbols     linear = A, b; deg = number of senders, of a sender that is no receiver the number of its receivers;
                paired = whether receivers and senders are two kinds of nodes; dimensions = length of u_ij
    Shapes      called coordinates(graph, dtype, paired=False) -> [E, dimensions]
    Edge cases  an in-degree of 0 counts as 1
    Cost        O(E dimensions); the degrees are read once per graph
    Reference   Monti et al., 2017, §5.2

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> coordinates = DegreeCoordinates(1)
        >>> for p in coordinates.parameters(): _ = p.data.fill_(0.25)
        >>> coordinates(pair, torch.float32)  # tanh(1/4 + 1/4 + 1/4), both ways
        tensor([[0.6351],
                [0.6351]], grad_fn=<TanhBackward0>)
    """

    def __init__(self, dimensions: Count) -> None:
        super().__init__()
        self.linear = nn.Linear(2, dimensions)

    def forward(self, graph: Graph, dtype: torch.dtype, paired: bool = False) -> Tensor:
        return torch.tanh(self.linear(_degrees_of_ends(graph, dtype, paired)))


@cached
def _degrees_of_ends(graph: Graph, dtype: torch.dtype, paired: bool) -> Tensor:
    """d^-½ of each edge's receiver and sender, [E, 2]."""
    both = graph.in_degrees(), degrees_of_senders(graph, paired)
    d_i, d_j = (d.clamp(min=1).double().rsqrt().unsqueeze(-1) for d in both)
    return torch.cat(ends(graph, d_i, d_j), -1).to(dtype)


class MoNet(Layer):
    """Mixture model convolution: each of K Gaussians over the edges' pseudo-coordinates has a linear map of its own.

    Equation    w_k(u) = exp(-½ (u - μ_k)ᵀ Σ_k⁻¹ (u - μ_k)),  Σ_k diagonal
                x_i'   = W x_i + b + 1/|N(i)| Σ_{j ∈ N(i)} Σ_k w_k(u_ij) Θ_k x_j
    Symbols     kernels = K; mean [K, D] = μ; deviation [K, D] = √diag Σ; theta = [Θ_1 ‖ ... ‖ Θ_K]; root = W, b;
                coordinates = u_ij where the caller gives none: `DegreeCoordinates(D)`, or None: the caller always does
    Shapes      x [*, N, inputs] (, u [E, D] in the graph's edge order) -> [*, N, outputs]; x may be SparseFeatures,
                or a pair (x_receivers [*, I, inputs], x_senders [*, J, inputs])
    Edge cases  an isolated node: W x_i + b; a deviation of 0 is taken as 3e-8, not as a division by 0
    Cost        time O(N inputs K C + E K (C + D)), memory O(N K C + E K), for C = outputs
    Differs     the paper has neither W nor b and sums over the neighbours; W, b and the mean are PyTorch Geometric's
    Reference   Monti et al., "Geometric deep learning on graphs and manifolds using mixture model CNNs", 2017, (9)-(11)

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer = MoNet(1, 1, kernels=1, dimensions=1)
        >>> for p in layer.parameters(): _ = p.data.fill_(1.0)
        >>> u = torch.tensor([[1.0], [2.0]])  # at the mean: weight 1; one deviation away: weight exp(-1/2)
        >>> layer(pair, torch.tensor([[1.0], [10.0]]), u)  # 1 + 1 + 10, 10 + 1 + 0.6065
        tensor([[12.0000],
                [11.6065]], grad_fn=<AddBackward0>)
    """

    def __init__(
        self,
        inputs: Count,
        outputs: Count,
        kernels: Count = 3,
        dimensions: Count = 2,
        coordinates: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.theta = Linear(inputs, kernels * outputs, bias=False)
        self.mean = nn.Parameter(torch.empty(kernels, dimensions))
        self.deviation = nn.Parameter(torch.empty(kernels, dimensions))
        self.root = Linear(inputs, outputs)
        self.coordinates = coordinates
        for weight in (self.theta.weight, self.mean, self.deviation, self.root.weight):
            nn.init.xavier_uniform_(weight)
        nn.init.zeros_(self.root.bias)

    def forward(self, graph: Graph, x: Sides, u: Tensor | None = None) -> Tensor:
        _, theta_x = both_sides(graph, x, self.theta, (len(self.mean), self.root.out_features))  # [*, J, K, C]
        if u is None:
            if self.coordinates is None:
                raise ShapeError("MoNet without coordinates of its own needs u [E, dimensions]")
            by_degrees = isinstance(self.coordinates, DegreeCoordinates)  # others know the graph and the dtype alone
            paired = {"paired": True} if by_degrees and isinstance(x, tuple) else {}
            u = self.coordinates(graph, theta_x.dtype, **paired)
        check_edges(graph, u, self.mean.shape[1])
        check_real(u)
        u, deviation = widened(u), widened(self.deviation)  # whose squares float16 does not hold
        distance = (u.unsqueeze(-2) - self.mean).square() / (deviation.square() + 1e-15)
        weight = (-0.5 * distance.sum(-1)).exp().to(theta_x.dtype)  # [E, K]
        return both_sides(graph, x, self.root)[0] + aggregate(graph, theta_x, weight, reduce="mean").sum(-2)

    @staticmethod
    def example() -> Example:
        layer = MoNet(3, 4, kernels=2, coordinates=DegreeCoordinates(2))
        with torch.no_grad():
            layer.deviation.fill_(0.8)  # a narrower Gaussian amplifies rounding
        return small_example(layer)
