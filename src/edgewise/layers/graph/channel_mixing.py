"""Adaptive channel mixing: each node weighs its neighbours' mean, its difference from it, and its own features."""

import torch
from torch import Tensor, nn

from edgewise.configuration import Count
from edgewise.graphs import Graph
from edgewise.kernels import aggregate
from edgewise.layers.plain.layer import Example, Layer, small_example
from edgewise.layers.plain.linear import Linear
from edgewise.layers.plain.sides import Sides, both_sides, with_loops


class ACM(Layer):
    """Adaptive channel mixing: each node weighs the mean of its neighbourhood, its difference from it, and itself.

    Equation    H_L = ReLU(P X W_L),  H_H = ReLU((I - P) X W_H),  H_I = ReLU(X W_I),  P = D̃^-1 (A + I)
                (α_L, α_H, α_I) = softmax_rows([σ(H_L w_L) ‖ σ(H_H w_H) ‖ σ(H_I w_I)] W_mix / 3)
                X' = 3 (α_L H_L + α_H H_H + α_I H_I),  α by node
    Symbols     channels = [W_L ‖ W_H ‖ W_I]; scores = w_L, w_H, w_I; mix = W_mix [3, 3]
    Shapes      x [*, N, inputs] -> [*, N, outputs]; x may be SparseFeatures, or a sampled graph's, or a pair
                (x_receivers, x_senders)
    Edge cases  an isolated node is its own neighbourhood, from which it does not differ: H_H = 0. A pair has no
                self-loops, and a receiver without senders has P X = 0
    Cost        time O(N inputs outputs + E outputs), three times that of `GCN`
    Differs     none from option 1 of the paper (the filter before ReLU) and its code, which has the factor 3
    Reference   Luan et al., "Revisiting heterophily for graph neural networks", 2022, §4.2, (4)-(5)

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer = ACM(1, 1)
        >>> for p in layer.parameters(): _ = p.data.fill_(1.0)
        >>> layer(pair, torch.tensor([[2.0], [4.0]])).tolist()  # 3 + 0 + 2, 3 + 1 + 4
        [[5.0], [8.0]]
    """

    def __init__(self, inputs: Count, outputs: Count) -> None:
        super().__init__()
        self.channels = Linear(inputs, 3 * outputs, bias=False)
        self.scores = nn.Parameter(torch.empty(3, outputs))
        self.mix = nn.Parameter(torch.empty(3, 3))
        for part in self.channels.weight.data.chunk(3):
            nn.init.uniform_(part, -(outputs**-0.5), outputs**-0.5)
        nn.init.uniform_(self.scores, -1, 1)
        nn.init.uniform_(self.mix, -(3**-0.5), 3**-0.5)

    def forward(self, graph: Graph, x: Sides) -> Tensor:
        at_i, at_j = both_sides(graph, x, self.channels)
        _, difference, own = at_i.chunk(3, -1)
        filtered = at_j[..., : 2 * own.shape[-1]]  # what passes along edges: the first two
        low, high = aggregate(with_loops(graph, x, None)[0], filtered, reduce="mean").chunk(2, -1)
        h = torch.stack([low, difference - high, own], -2).relu()  # [*, N, 3, outputs]
        weights = ((h * self.scores).sum(-1).sigmoid() @ self.mix / 3).softmax(-1)
        return 3 * (weights.unsqueeze(-1) * h).sum(-2)

    @staticmethod
    def example() -> Example:
        return small_example(ACM(3, 4))
