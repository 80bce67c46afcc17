"""A lazy random walk: every node stays where it is or goes to one of its neighbours."""

from torch import Tensor

from edgewise.configuration import Count
from edgewise.graphs import Graph
from edgewise.kernels import aggregate
from edgewise.layers.plain.layer import Example, Layer, small_example
from edgewise.layers.plain.linear import Linear
from edgewise.layers.plain.sides import NodeRows


class LazyWalk(Layer):
    """One step of a lazy random walk, then a linear map.

    Equation    y_i = ½ (x_i + 1/|N(i)| Σ_{j ∈ N(i)} x_j) W + b
    Symbols     linear = W, b
    Shapes      x [*, N, inputs] -> [*, N, outputs]
    Edge cases  an isolated node: ½ x_i W + b
    Cost        time O(E inputs + N inputs outputs); memory O(N (inputs + outputs))

    Example
        >>> import torch
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer = LazyWalk(1, 1)
        >>> for p in layer.parameters(): _ = p.data.fill_(1.0)
        >>> layer(pair, torch.tensor([[2.0], [4.0]])).tolist()
        [[4.0], [4.0]]
    """

    def __init__(self, inputs: Count, outputs: Count) -> None:
        super().__init__()
        self.linear = Linear(inputs, outputs)

    def forward(self, graph: Graph, x: NodeRows) -> Tensor:
        return self.linear(0.5 * (x + aggregate(graph, x, reduce="mean")))

    @staticmethod
    def example() -> Example:
        return small_example(LazyWalk(3, 2))
