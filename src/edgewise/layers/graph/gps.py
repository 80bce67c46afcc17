"""GPS: message passing along the edges and attention among all nodes, side by side in one block."""

from typing import ClassVar

from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Count, Share, chosen
from edgewise.graphs import Graph
from edgewise.layers.attention.attention import MultiHeadAttention
from edgewise.layers.attention.transformer import NORMS, FeedForward
from edgewise.layers.graph.gin import GIN
from edgewise.layers.graph.graph_attention import all_pairs
from edgewise.layers.plain.layer import Example, Layer, small_example
from edgewise.layers.plain.mlp import MLP
from edgewise.layers.plain.sides import NodeRows


class GPS(Layer):
    """General, powerful, scalable graph transformer: local messages plus global attention, then a perceptron.

    Equation    L = norm_1(X + MPNN(X)),  G = norm_2(X + ATT(X)),  X' = norm_3(L + G + MLP(L + G))
    Symbols     local = MPNN, any module called local(graph, x), or local(graph, x, e) where there are edge features;
                attention = ATT, called on the complete graph of each member; feed_forward = MLP; norm = a name of NORMS
    Shapes      x [*, N, width] (, e as `local` reads it) -> [*, N, width]
    Edge cases  members of a batch do not attend to each other; an isolated node attends to its graph through ATT
    Cost        that of its parts: with MultiHeadAttention O(n² width) time for each graph of n nodes, O(N width) memory
    Reference   Rampášek et al., "Recipe for a general, powerful, scalable graph transformer", 2022, (1)-(4)

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> import torch
        >>> block = GPS(4, GIN(MLP([4, 8, 4])), MultiHeadAttention(4, 2), FeedForward(4, 8))
        >>> block(pair, torch.randn(2, 4)).shape
        torch.Size([2, 4])
    """

    local: ClassVar[bool] = False
    unbiased: ClassVar[bool] = False

    def __init__(
        self,
        width: Count,
        local: nn.Module,
        attention: nn.Module,
        feed_forward: nn.Module,
        norm: str = "batch",
        dropout: Share = 0.0,
    ) -> None:
        super().__init__()
        self.messages = local
        self.attention = attention
        self.feed_forward = feed_forward
        self.norm_1, self.norm_2, self.norm_3 = (chosen("norm", norm, NORMS)(width) for _ in range(3))
        self.dropout = dropout

    def forward(self, graph: Graph, x: NodeRows, e: Tensor | None = None) -> Tensor:
        messages = self.messages(graph, x) if e is None else self.messages(graph, x, e)
        near = self.norm_1(x + self._drop(messages))
        far = self.norm_2(x + self._drop(self.attention(all_pairs(graph), x)))
        y = near + far
        return self.norm_3(y + self._drop(self.feed_forward(y)))

    def _drop(self, x: Tensor) -> Tensor:
        return functional.dropout(x, self.dropout, self.training)

    @staticmethod
    def example() -> Example:
        block = GPS(4, GIN(MLP([4, 4], "tanh")), MultiHeadAttention(4, 2), FeedForward(4, 4), norm="layer", dropout=0.5)
        return small_example(block, 4)
