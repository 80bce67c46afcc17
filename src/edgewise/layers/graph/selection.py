"""Pooling by selection: the best nodes of each graph, with the edges between them."""

from typing import Annotated, NamedTuple

import torch
from torch import Tensor

from edgewise.configuration import Bounds, Count
from edgewise.errors import ShapeError
from edgewise.graphs import Graph
from edgewise.graphs.checks import shown
from edgewise.layers.plain.layer import Example, Layer, checked, small_example
from edgewise.layers.plain.linear import Linear
from edgewise.layers.plain.sides import NodeRows, SparseRows


class ProjectionScore(Layer):
    """How far the features of each node reach along one direction.

    Equation    y = X p / ‖p‖
    Symbols     direction.weight = pᵀ
    Shapes      x [*, N, width] -> [*, N, 1]
    Cost        O(N width)
    Reference   Gao & Ji, "Graph U-Nets", 2019, (2)

    Example
        >>> layer = ProjectionScore(2)
        >>> layer.direction.weight.data = torch.tensor([[3.0, 4.0]])
        >>> layer(Graph.from_edge_index([[0], [1]], num_nodes=2), torch.tensor([[5.0, 0.0], [0.0, 5.0]])).tolist()
        [[3.0], [4.0]]
    """

    def __init__(self, width: Count) -> None:
        super().__init__()
        self.direction = Linear(width, 1, bias=False)

    def forward(self, graph: Graph, x: SparseRows) -> Tensor:
        return self.direction(x) / self.direction.weight.norm()

    @staticmethod
    def example() -> Example:
        return small_example(ProjectionScore(3))


class Selected(NamedTuple):
    """What is left of a graph or a batch: the nodes chosen, in their order.

    Shapes      graph: of M nodes, a batch where it was one; x [*, M, C]; nodes [M], their numbers before
    """

    graph: Graph
    x: Tensor
    nodes: Tensor


@checked
def top_k_pool(
    graph: Graph, x: NodeRows, score: NodeRows, ratio: Annotated[float, Bounds(above=0, at_most=1)] = 0.5
) -> Selected:
    """Keep the nodes of each graph that have the largest scores, and the edges between them.

    Equation    i = the ⌈ratio |V_g|⌉ nodes of V_g with the largest y,  X' = (X ⊙ tanh y)_i,  A' = A_ii
    Symbols     score = y: that of `ProjectionScore` is Graph U-Nets', that of a graph layer of one output, as
                `GCN(width, 1)`, is SAGPool's
    Shapes      x [*, N, C], score [N, 1] -> `Selected`
    Errors      ShapeError for a score of another shape
    Edge cases  of equal scores the first nodes stay; features of edges stay with them (`graph.edge_attr`); scores learn
                by tanh y alone, as the choice has no gradient
    Cost        O(N log N + E)
    Differs     the nodes stay in their order, while PyTorch Geometric sorts them by score
    Reference   Gao & Ji, "Graph U-Nets", 2019; Lee, Lee & Kang, "Self-attention graph pooling", 2019

    Example
        >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], num_nodes=3)
        >>> kept = top_k_pool(path, torch.ones(3, 1), torch.tensor([[-9.0], [9.0], [8.0]]))
        >>> kept.nodes.tolist(), kept.graph.edge_index().tolist(), kept.x.round().tolist()
        ([1, 2], [[1, 0], [0, 1]], [[1.0], [1.0]])
    """
    if score.shape != (graph.num_receivers, 1):
        raise ShapeError(f"score is {shown(score)}, but must be [{graph.num_receivers}, 1], a number for each node")
    member = torch.repeat_interleave(graph.sizes)
    order = score[:, 0].argsort(descending=True, stable=True)
    order = order[member[order].argsort(stable=True)]  # graph by graph, the best nodes first
    place = torch.arange(len(order), device=order.device) - (graph.sizes.cumsum(0) - graph.sizes)[member]
    most = (ratio * graph.sizes.double() - 1e-9).ceil()  # of which 0.55 · 20 is 11, though in floating point it is more
    nodes = order[place < most[member]].sort().values
    return Selected(graph.subgraph(nodes), (x * score.tanh()).index_select(-2, nodes), nodes)
