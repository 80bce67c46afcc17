"""Kernel regression: attention by nearness, from which the scores of transformers descend."""

import torch
from torch import Tensor, nn

from edgewise.configuration import Positive
from edgewise.graphs import Graph, causal
from edgewise.kernels import Gaussian, attend
from edgewise.layers.plain.layer import Example, Layer
from edgewise.layers.plain.sides import NodeRows


class KernelRegression(Layer):
    """Nadaraya-Watson regression: the value at a query is the mean of the known values, each weighted by its nearness.

    Equation    v̂_i = Σ_{j ∈ N(i)} a(q_i, k_j) v_j,  a(q_i, k_j) ∝ exp(−‖q_i − k_j‖² / 2σ²), adding up to 1    (4.1)
    Symbols     x = q of the receivers and k of the senders; v = v; sigma = σ, positive, learned through `log_sigma`
    Shapes      x [*, N, C], v [*, N, D] -> [*, N, D]; the graph says which values a node may use
    Edge cases  a node without senders gets 0; a small σ leads to the nearest value, a large one to the
                mean. Without self-loops it is the leave-one-out estimate, by which σ can be learned
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
