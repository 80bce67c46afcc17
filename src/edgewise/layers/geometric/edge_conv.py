"""Edge convolution: a perceptron reads a node and its offset to a neighbour; the graph may follow from the features."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Count
from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.make.neighbors import k_nearest_in_members
from edgewise.kernels import EdgeNetwork, collect
from edgewise.layers.plain.layer import Example, Layer, example_graph, small_example
from edgewise.layers.plain.linear import check_features
from edgewise.layers.plain.mlp import MLP
from edgewise.layers.plain.sides import Sides, SparseRows, both_sides, dense


def edge_message(mlp: MLP, x: Tensor, senders: Tensor | None = None) -> EdgeNetwork:
    """The message MLP([x_i ‖ x_j - x_i]): the first linear map is applied to nodes, not to edges.

    Equation    W [x_i ‖ x_j - x_i] = (W_own - W_offset) x_i + W_offset x_j
    Symbols     x = those of the receivers; senders = those of the senders, the same nodes unless given
    Errors      ShapeError where x is not half as wide as what the MLP reads

    Example
        >>> mlp = MLP([2, 1])
        >>> mlp.linears[0].weight.data, mlp.linears[0].bias.data = torch.tensor([[1.0, 10.0]]), torch.zeros(1)
        >>> arrow = Graph.from_edge_index([[0], [1]], num_nodes=2)
        >>> collect(arrow, edge_message(mlp, torch.tensor([[2.0], [3.0]]))).tolist()  # 3 + 10 (2 - 3)
        [[0.0], [-7.0]]
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
    Shapes      x [*, N, inputs], or a pair (x_receivers [*, I, inputs], x_senders [*, J, inputs]) -> [*, N, outputs];
                SparseFeatures become dense
    Edge cases  an isolated node gives 0
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
    Errors      ShapeError where x does not fit the graph or the MLP; GraphError for a feature that is not finite
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
