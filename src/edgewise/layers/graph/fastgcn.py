"""FastGCN: a graph convolution whose sum over the neighbours is estimated from a few senders."""

import torch
from torch import Tensor, nn

from edgewise.graphs import Graph
from edgewise.kernels import aggregate
from edgewise.layers.graph.gcn import GCN
from edgewise.layers.plain.linear import SparseFeatures


class FastGCN(GCN):
    """Graph convolution that, given the weights of sampled edges, sums over those alone.

    Equation    x_v' = 1/t Σ_{j=1..t} Â(v, u_j) / q(u_j) (W x_{u_j}) + b,  u_j ~ q    (8); without weights GCN's sum
    Symbols     weight = Â(v, u_j) / (t q(u_j)) on the edges of a `sample_layers` graph; linear.weight = W; bias = b
    Shapes      x [*, J, inputs], weight [E] -> [*, I, outputs]; x may be SparseFeatures
    Errors      without weights: GraphError for a graph whose receivers are not its senders
    Edge cases  a receiver none of whose senders were drawn gives b; without weights the layer is GCN itself
    Cost        time O(J inputs outputs + E outputs) of the sampled graph
    Differs     none; the mean over many draws is GCN's output
    Reference   Chen, Ma & Xiao, 2018; Baggag & Saad, §5.3

    Example
        >>> hop = Graph.from_edge_index([[0, 1], [0, 0]], num_nodes=2, num_receivers=1)
        >>> layer = FastGCN(1, 1)
        >>> _ = layer.linear.weight.data.fill_(1.0)
        >>> layer(hop, torch.tensor([[2.0], [4.0]]), torch.tensor([0.5, 0.25])).tolist()  # 0.5·2 + 0.25·4
        [[2.0]]
    """

    def forward(self, graph: Graph, x: Tensor | SparseFeatures, weight: Tensor | None = None) -> Tensor:
        if weight is None:
            return super().forward(graph, x)
        y = aggregate(graph, self.linear(x), weight)
        return y if self.bias is None else y + self.bias

    @staticmethod
    def example() -> tuple[nn.Module, Graph, tuple[Tensor, ...]]:
        edges = [[0, 1, 1, 2, 2, 0, 3], [1, 0, 2, 1, 0, 2, 3]]
        return FastGCN(3, 4), Graph.from_edge_index(edges, num_nodes=5), (torch.randn(5, 3),)
