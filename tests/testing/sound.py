"""A layer that has every property, and a graph for it."""

from torch import nn

from edgewise import Graph, aggregate

GRAPH = Graph.from_edge_index([[0, 1, 1, 2, 2, 0, 3], [1, 0, 2, 1, 0, 2, 3]], num_nodes=5)


class Sound(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(3, 2)

    def forward(self, graph, x):
        return self.linear(aggregate(graph, x) + x)
