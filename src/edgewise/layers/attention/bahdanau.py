"""Additive attention from one side to another: the first one, with which recurrent networks learned to translate."""

import torch
from torch import Tensor, nn

from edgewise.configuration import Count
from edgewise.graphs import Graph, complete
from edgewise.kernels import EdgeBias, Uniform, attend, ends
from edgewise.layers.plain.layer import Example, Layer
from edgewise.layers.plain.linear import Dense, Linear
from edgewise.layers.plain.sides import NodeRows

Memory = tuple[Tensor, Tensor]  # U h_j and h_j of the senders, with an axis for heads, [*, J, 1, C] each


class BahdanauAttention(Layer):
    """Additive attention: how well a receiver's state fits a sender's is what a small network says of both.

    Equation    s_ij = vᵀ tanh(W x_i + U h_j);  c_i = Σ_{j ∈ N(i)} softmax_j(s_ij) h_j
    Symbols     query = W; key = U, b; score = v; senders = h, hidden channels of the small network: `hidden`
    Shapes      x [*, I, width], senders [*, J, memory] -> [*, I, memory]
    Edge cases  a receiver without senders gets 0
    Cost        time O((I width + J memory) hidden + E (hidden + memory)), memory O(E hidden): tanh comes after the sum,
                so that the score of an edge is no product of its ends
    Differs     none
    Reference   Bahdanau, Cho & Bengio, "Neural machine translation by jointly learning to align and translate", 2015,
                (5)-(6), appendix A.1.2

    Example
        >>> layer = BahdanauAttention(1, 1, hidden=1)
        >>> for p in layer.parameters(): _ = p.data.zero_()
        >>> layer(complete(1, 2), torch.ones(1, 1), torch.tensor([[2.0], [4.0]])).tolist()  # even scores: the mean
        [[3.0]]
    """

    def __init__(self, width: Count, memory: Count, hidden: Count) -> None:
        super().__init__()
        self.query = Linear(width, hidden, bias=False)
        self.key = Linear(memory, hidden)
        self.score = nn.Linear(hidden, 1, bias=False)

    def forward(self, graph: Graph, x: NodeRows, senders: Dense) -> Tensor:
        return self.read(graph, x, self.keys_and_values(senders))

    def keys_and_values(self, senders: Tensor) -> Memory:
        """U h_j + b and h_j, which serve many calls of `read`."""
        return self.key(senders).unsqueeze(-2), senders.unsqueeze(-2)

    def read(self, graph: Graph, x: Tensor, memory: Memory) -> Tensor:
        """c_i of receivers x, from what `keys_and_values` made of the senders."""
        k, v = memory
        q_i, k_j = ends(graph, self.query(x), k.squeeze(-2))
        s_ij = self.score(torch.tanh(q_i + k_j))  # [*, E, 1]
        return attend(graph, None, None, v, Uniform() + EdgeBias(s_ij)).squeeze(-2)

    @staticmethod
    def example() -> Example:
        return BahdanauAttention(3, 4, hidden=2), complete(5), (torch.randn(5, 3), torch.randn(5, 4))
