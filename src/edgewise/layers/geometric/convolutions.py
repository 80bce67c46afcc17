"""Convolutions on points: MoNet, EdgeConv and SchNet weigh a neighbour by where it lies."""

from typing import Annotated, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Bounds, Count, Positive
from edgewise.errors import ShapeError
from edgewise.graphs import Graph, Partition
from edgewise.graphs.derived import cached
from edgewise.graphs.make.neighbors import k_nearest_in_members
from edgewise.kernels import EdgeInput, EdgeNetwork, Filter, aggregate, collect, ends, maps_of, shifted_softplus
from edgewise.kernels.operator.layout import widened
from edgewise.layers.geometric.geometry import check_cell, displacements, envelope, lengths
from edgewise.layers.graph.gcn import degrees_of_senders
from edgewise.layers.plain.layer import Example, Layer, example_graph, small_example
from edgewise.layers.plain.linear import Linear, check_features, check_real
from edgewise.layers.plain.mlp import MLP
from edgewise.layers.plain.sides import NodeRows, Sides, SparseRows, both_sides, check_edges, dense


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


def edge_message(mlp: MLP, x: Tensor, senders: Tensor | None = None) -> EdgeNetwork:
    """The message MLP([x_i ‖ x_j - x_i]): the first linear map is applied to nodes, not to edges.

    Equation    W [x_i ‖ x_j - x_i] = (W_own - W_offset) x_i + W_offset x_j
    Symbols     x = those of the receivers; senders = those of the senders, the same nodes unless given
    """
    first: nn.Linear = mlp.linears[0]  # type: ignore[assignment]
    if 2 * x.shape[-1] != first.in_features:
        raise ShapeError(f"the MLP reads {first.in_features} channels, twice those of x {list(x.shape)}")
    own, offset = first.weight.chunk(2, -1)
    x_j = x if senders is None else senders
    for side in (x, x_j):
        check_features(side, offset)
    return mlp.message(functional.linear(x, own - offset, first.bias), functional.linear(x_j, offset))


class EdgeConv(Layer):
    """Edge convolution: the largest of a perceptron's results over a node's edges, channel by channel.

    Equation    x_i' = max_{j ∈ N(i)} MLP([x_i ‖ x_j - x_i])
    Symbols     mlp = MLP, from 2 inputs to outputs
    Shapes      x [*, N, inputs], dense or made so, or a pair (x_receivers, x_senders [*, J, inputs]) -> [*, N, outputs]
    Cost        time O(N inputs d + E |MLP without its first map|) for its first hidden width d, memory as `EdgeNetwork`
    Reference   Wang et al., "Dynamic graph CNN for learning on point clouds", 2019, (2), (7)-(8)

    Example
        >>> layer = EdgeConv(MLP([2, 1]))
        >>> for p, value in zip(layer.mlp.parameters(), (1.0, 0.0)): _ = p.data.fill_(value)
        >>> star = Graph.from_edge_index([[1, 2], [0, 0]], num_nodes=3)
        >>> layer(star, torch.tensor([[5.0], [1.0], [3.0]])).tolist()  # x_i + x_j - x_i = x_j: max(1, 3)
        [[3.0], [0.0], [0.0]]
    """

    def __init__(self, mlp: MLP) -> None:
        super().__init__()
        self.mlp = mlp

    def forward(self, graph: Graph, x: Sides) -> Tensor:
        x_i, x_j = both_sides(graph, x, dense)
        return collect(graph, edge_message(self.mlp, x_i, x_j), "max")

    @staticmethod
    def example() -> Example:
        return small_example(EdgeConv(MLP([6, 5, 4], "tanh")))


class DynamicEdgeConv(Layer):
    """Edge convolution on the graph of nearest neighbours in feature space, drawn anew at every layer.

    Equation    N(i) = the k nodes of i's own graph whose x_j are nearest to x_i, i included
                x_i' = max_{j ∈ N(i)} MLP([x_i ‖ x_j - x_i])
    Symbols     mlp = MLP, from 2 inputs to outputs; k = number of neighbours
    Shapes      x [*, N, inputs] -> [*, N, outputs]; SparseFeatures become dense; neighbours by member of *
    Errors      GraphError for a feature that is not finite
    Edge cases  of the graph only its members count, not its edges; one with fewer than k nodes is complete; nodes at
                equal distance go by their number. The choice of neighbours has no gradient
    Cost        that of `k_nearest` in each member, and of `EdgeConv` with E = k N
    Reference   Wang et al., "Dynamic graph CNN for learning on point clouds", 2019, §3.3

    Example
        >>> from edgewise.graphs import complete
        >>> layer = DynamicEdgeConv(MLP([2, 1]), k=2)
        >>> for p, value in zip(layer.mlp.parameters(), (1.0, 0.0)): _ = p.data.fill_(value)
        >>> layer(complete(3), torch.tensor([[0.0], [1.0], [5.0]])).tolist()  # max over {0, 1}, {1, 0} and {5, 1}
        [[1.0], [1.0], [5.0]]
    """

    local: ClassVar[bool] = False

    def __init__(self, mlp: MLP, k: Count) -> None:
        super().__init__()
        self.mlp = mlp
        self.k = k

    def forward(self, graph: Graph, x: SparseRows) -> Tensor:
        x = dense(x)
        rows = x.reshape(-1, x.shape[-1])
        members = x.shape[:-2].numel()
        sizes = graph.sizes.repeat(members) if members else graph.sizes.new_zeros(1)
        near = k_nearest_in_members(rows, sizes, self.k)
        return collect(near, edge_message(self.mlp, rows), "max").unflatten(0, x.shape[:-1])

    @staticmethod
    def example() -> Example:
        x = torch.tensor([[0.0, 0.1, 0.3], [1.0, -0.2, 0.8], [2.5, 0.4, -0.6], [-1.5, 1.0, 0.2], [0.4, -2.0, 1.7]])
        return DynamicEdgeConv(MLP([6, 5, 4], "tanh"), k=3), example_graph(), (x,)


Several = Annotated[int, Bounds(at_least=2)]


class SchNet(Layer):
    """Interaction block of SchNet: a continuous-filter convolution between two linear maps of every atom.

    Equation    W(r) = φ(e(r)) · ½ (cos(π r / r_c) + 1) for r < r_c, else 0
                y_i = Σ_{j ∈ N(i)} (W_in h_j) ∘ W(|x_i - x_j|)                 (2)
                h_i' = h_i + W_2 ssp(W_1 y_i + b_1) + b_2
                e_k(r) = exp(-γ (r - μ_k)²), μ_k evenly from 0 to r_c, γ = 1/(2 (μ_2 - μ_1)²)    (5)
    Symbols     filters = φ; into = W_in; first, second = W_1 and W_2 with biases; cutoff = r_c; ssp(z) = ln(½ e^z + ½)
    Shapes      h [*, N, channels], x [*, N, D], cell [D] -> [*, N, channels]; cutoff in the unit of x
    Edge cases  a node without senders within the cutoff: h_i and a constant; positions may coincide
    Cost        time O(N C F + E (G F + F²)) for G Gaussians and F filters; where all listen to one another, half of
                that, since a distance has one filter for both directions. Memory as that of `EdgeNetwork`
    Differs     the cosine that lets the filter end smoothly is that of SchNetPack and PyTorch Geometric
    Reference   Schütt et al., "SchNet", 2017

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer, h = SchNet(3, filters=4, cutoff=5.0), torch.randn(2, 3)
        >>> far, turned = torch.tensor([[0.0, 0.0], [3.0, 4.0]]), torch.tensor([[0.0, 0.0], [5.0, 0.0]])
        >>> torch.equal(layer(pair, h, far), layer(pair, h, turned))  # at the cutoff no message arrives
        True
    """

    def __init__(self, channels: Count, filters: Count, gaussians: Several = 50, cutoff: Positive = 10.0) -> None:
        super().__init__()
        self.cutoff, self.gaussians = cutoff, gaussians
        self.into = Linear(channels, filters, bias=False)
        self.filters = nn.ModuleList([Linear(gaussians, filters), Linear(filters, filters)])
        self.first = Linear(filters, channels)
        self.second = Linear(channels, channels)
        for linear in (self.into, *self.filters, self.first, self.second):
            nn.init.xavier_uniform_(linear.weight)

    def forward(self, graph: Graph, h: NodeRows, x: Tensor, cell: Tensor | None = None) -> Tensor:
        check_cell(cell)
        alike = (cell is None or cell.ndim < 2) and not torch.compiler.is_compiling()  # whose edges are data
        pairs = linked_pairs(graph) if alike else None
        edges = graph if pairs is None else pairs  # a distance has one filter for both directions
        return self.along(edges, h, displacements(edges, x, cell), both_ways=pairs is not None)

    def along(self, graph: Graph, h: Tensor, x_ij: Tensor, both_ways: bool = False) -> Tensor:
        """The block, given the vectors x_ij [*, E, D] from senders to receivers."""
        y = collect(graph, Filter(self.filter(lengths(x_ij)), self.into(h), both_ways))  # (2)
        return h + self.second(shifted_softplus(self.first(y)))

    def filter(self, r: Tensor) -> EdgeNetwork:
        """W(r) of distances r [*, E, 1]: filters of that width."""
        first, second = maps_of(self.filters)
        edges, ends_smoothly = EdgeInput(first, r, self.cutoff), envelope(r, self.cutoff)
        return EdgeNetwork((second,), shifted_softplus, edges=edges, scale=ends_smoothly)

    @staticmethod
    def example() -> Example:
        return SchNet(3, 4, gaussians=6, cutoff=4.0), example_graph(), (torch.randn(5, 3), torch.randn(5, 3))


@cached
def linked_pairs(graph: Graph) -> Graph | None:
    """Each pair of nodes with edges in both directions, once; None where an edge has no opposite."""
    if isinstance(graph, Partition) or not graph.is_square or bool((graph.senders == graph.receivers).any()):
        return None  # ranks hold the two directions of a pair; a loop is no pair
    transpose, _ = graph.transpose()
    if not torch.equal(transpose.offsets, graph.offsets) or not torch.equal(transpose.senders, graph.senders):
        return None
    once = graph.senders < graph.receivers
    index = torch.stack([graph.senders[once], graph.receivers[once]])
    return Graph.from_edge_index(index, num_nodes=graph.num_receivers)
