"""A layer of your own that reads like its equation, checked for what must hold for any layer, then trained.

python examples/own_layer.py
"""

import networkx
import torch
from torch import Tensor, nn

from edgewise import Graph, collect, ends
from edgewise.testing import check_layer


class GatedMessages(nn.Module):
    """x_i' = U x_i + Σ_{j ∈ N(i)} σ(A x_i + B x_j) ⊙ V x_j"""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        self.U, self.A, self.B, self.V = (nn.Linear(inputs, outputs) for _ in range(4))

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        Ax_i, Bx_j = ends(graph, self.A(x), self.B(x))
        _, Vx_j = ends(graph, self.V(x))
        return self.U(x) + collect(graph, torch.sigmoid(Ax_i + Bx_j) * Vx_j)


torch.manual_seed(0)
small = Graph.from_edge_index([[0, 1, 2, 3], [1, 2, 1, 2]], num_nodes=5)
check_layer(GatedMessages(3, 2), small, torch.randn(5, 3))
print("GatedMessages passes every check")

club = networkx.karate_club_graph()
graph = Graph.from_networkx(club)
x = torch.eye(graph.num_receivers)
target = torch.tensor([club.nodes[i]["club"] == "Officer" for i in club]).long()
known = [0, 33]  # the instructor and the administrator

layer = GatedMessages(graph.num_receivers, 2)
optimizer = torch.optim.Adam(layer.parameters(), lr=0.05)
for _ in range(100):
    loss = nn.functional.cross_entropy(layer(graph, x)[known], target[known])
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
right = (layer(graph, x).argmax(-1) == target).sum()
print(f"it guesses the club of {right} of {len(target)} members from two")
