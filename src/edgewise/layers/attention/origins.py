"""Attention before transformers: regression by nearness, and the additive attention of recurrent networks."""

import torch
from torch import Tensor, nn

from edgewise.configuration import Count, Positive
from edgewise.graphs import Graph, causal, complete
from edgewise.kernels import EdgeBias, Gaussian, Uniform, attend, ends
from edgewise.layers.plain.layer import Example, Layer
from edgewise.layers.plain.linear import Dense, Linear
from edgewise.layers.plain.sides import NodeRows


class KernelRegression(Layer):
    """Nadaraya-Watson regression: the value at a query is the mean of the known values, each weighted by its nearness.

    Equation    v̂_i = Σ_{j ∈ N(i)} a(q_i, k_j) v_j,  a(q_i, k_j) ∝ exp(−‖q_i − k_j‖² / 2σ²), adding up to 1    (4.1)
    Symbols     x = q of the receivers and k of the senders; v = v; sigma = σ, positive, learned through `log_sigma`
    Shapes      x [*, N, C], v [*, N, D] -> [*, N, D]; the graph says which values a node may use
    Edge cases  small σ: the nearest value; large σ: the mean. Without self-loops: leave-one-out, by which σ is learned
    Cost        O(E (C + D))
    Reference   Nadaraya, 1964; Watson, 1964; Baggag & Saad, §4.1

    Example
        >>> layer = KernelRegression(sigma=1.0)
        >>> graph = Graph.from_edge_index([[0, 1], [2, 2]], num_nodes=3)  # node 2 attends to 0 and 1
        >>> layer(graph, torch.tensor([[0.0], [3.0], [1.0]]), torch.tensor([[10.0], [20.0], [0.0]]))[2]
        tensor([11.8243], grad_fn=<SelectBackward0>)
    """

    def __init__(self, sigma: Positive = 1.0) -> None:
        super().__init__()
        self.log_sigma = nn.Parameter(torch.tensor(float(sigma)).log())

    def forward(self, graph: Graph, x: NodeRows, v: NodeRows) -> Tensor:
        x = x.unsqueeze(-2)
        return attend(graph, x, x, v.unsqueeze(-2), Gaussian(self.log_sigma.exp())).squeeze(-2)

    @staticmethod
    def example() -> Example:
        return KernelRegression(), causal(5), (torch.randn(5, 2), torch.randn(5, 3))


Memory = tuple[Tensor, Tensor]  # U h_j and h_j of the senders, with an axis for heads, [*, J, 1, C] each


class BahdanauAttention(Layer):
    """Additive attention: how well a receiver's state fits a sender's is what a small network says of both.

    Equation    s_ij = vᵀ tanh(W x_i + U h_j);  c_i = Σ_{j ∈ N(i)} softmax_j(s_ij) h_j
    Symbols     query = W; key = U, b; score = v; senders = h, hidden channels of the small network: `hidden`
    Shapes      x [*, I, width], senders [*, J, memory] -> [*, I, memory]
    Cost        time O((I width + J memory) hidden + E (hidden + memory)), memory O(E hidden): tanh comes after the sum,
                so that the score of an edge is no product of its ends
    Reference   Bahdanau, Cho & Bengio, 2015, (5)-(6), appendix A.1.2

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
