"""Min-cut pooling: a graph becomes a few clusters, chosen so that few edges are cut and the clusters are balanced."""

from typing import NamedTuple

import torch
from torch import Tensor

from edgewise.configuration import Count
from edgewise.graphs import Graph, complete
from edgewise.graphs.derived import cached
from edgewise.graphs.tracing import is_real
from edgewise.kernels import aggregate
from edgewise.layers.plain.layer import Example, Layer, checked, small_example
from edgewise.layers.plain.linear import Linear, check_alike
from edgewise.layers.plain.sides import NodeRows, SparseRows, in_one_batch, weights_like


class ClusterAssignment(Layer):
    """To how large a part each node belongs to each of K clusters.

    Equation    S = softmax(X W + b)
    Symbols     linear = W, b; clusters = K
    Shapes      x [*, N, width] -> [*, N, K]; every row sums to 1
    Edge cases  one cluster: all nodes belong to it
    Cost        O(N width K)
    Differs     the paper has an MLP, here it is linear, as in its own experiments
    Reference   Bianchi, Grattarola & Alippi, "Spectral clustering with graph neural networks for graph pooling", 2020,
                (5); Baggag & Saad, §5.6, footnote 8

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer = ClusterAssignment(1, 2)
        >>> layer.linear.weight.data, layer.linear.bias.data = torch.tensor([[9.0], [-9.0]]), torch.zeros(2)
        >>> layer(pair, torch.tensor([[1.0], [-1.0]])).round().tolist()
        [[1.0, 0.0], [0.0, 1.0]]
    """

    def __init__(self, width: Count, clusters: Count) -> None:
        super().__init__()
        self.linear = Linear(width, clusters)

    def forward(self, graph: Graph, x: SparseRows) -> Tensor:
        return self.linear(x).softmax(-1)

    @staticmethod
    def example() -> Example:
        return small_example(ClusterAssignment(3, 2))


class Pooled(NamedTuple):
    """What is left of the G graphs of a batch: K clusters of each.

    Shapes      graph: the complete graph of each graph's clusters, G·K nodes; x [*, G·K, C]; weight [*, G·K²], how
                strongly they are linked; cut and orthogonality [*, G], the losses
    """

    graph: Graph
    x: Tensor
    weight: Tensor
    cut: Tensor
    orthogonality: Tensor


@checked
def min_cut_pool(graph: Graph, x: NodeRows, s: NodeRows, weight: Tensor | None = None) -> Pooled:
    """Pool every graph of a batch to K clusters, and say how good the clusters are.

    Equation    X_pool = Sᵀ X,  Â = Sᵀ A S with 0 on its diagonal,  A_pool = D̂^-½ Â D̂^-½
                L_cut = -Tr(Sᵀ A S) / Tr(Sᵀ D S),  L_orthogonality = ‖ Sᵀ S / ‖Sᵀ S‖_F - I / √K ‖_F
    Symbols     s = S, whose rows sum to 1 (`ClusterAssignment`); weight = the entries of A on its edges, ones where
                none are given; D, D̂ = row sums of A, Â
    Shapes      x [*, N, C], s [*, N, K], weight [E] -> `Pooled`, for each of the G graphs of a batch
    Errors      ShapeError where x, s or the weights do not fit the graph
    Edge cases  a graph without edges: L_cut = 0 and all weights are 0; without nodes: X_pool = 0 too
    Cost        time O(E K + N K (C + K)), memory O(N (C + K) + G K (C + K)): A stays sparse, and Sᵀ A S is Sᵀ (A S)
    Reference   Bianchi, Grattarola & Alippi, 2020, (6)-(9); Baggag & Saad, §5.6, footnote 8

    Example
        >>> edges = [[0, 1, 2, 3, 1, 2], [1, 0, 3, 2, 2, 1]]  # 0 - 1 - 2 - 3, halved in the middle
        >>> path, half = Graph.from_edge_index(edges, num_nodes=4), torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1]])
        >>> pooled = min_cut_pool(path, torch.tensor([[1.0], [2.0], [3.0], [4.0]]), half)
        >>> pooled.x.tolist(), pooled.weight.tolist()
        ([[3.0], [7.0]], [0.0, 1.0, 1.0, 0.0])
        >>> pooled.cut, pooled.orthogonality  # 4 of the 6 ends of edges stay inside; the halves are balanced
        (tensor([-0.6667]), tensor([0.]))
    """
    check_alike(x, s)
    x, s = in_one_batch(x, s)
    clusters, width, weight = s.shape[-1], x.shape[-1], weights_like(s, weight)
    A_s = aggregate(graph, s, weight)
    d = aggregate(graph, s.new_ones(graph.num_senders, 1), weight)
    both = torch.stack(torch.broadcast_tensors((s * A_s).sum(-1), d[..., 0] * (s * s).sum(-1)), -1)
    inside, ends = aggregate(graph.membership(), both).unbind(-1)
    pooled, among, overlap = _products(graph, s, torch.cat([x, A_s, s], -1)).split([width, clusters, clusters], -1)
    eye = torch.eye(clusters, dtype=s.dtype, device=s.device)
    length = torch.linalg.norm(overlap, dim=(-2, -1), keepdim=True)
    orthogonality = torch.linalg.norm(_ratio(overlap, length) - eye / clusters**0.5, dim=(-2, -1))
    links = _normalised(among * (1 - eye))
    cut, x_pool = -_ratio(inside, ends), pooled.flatten(-3, -2)
    return Pooled(_graph_of_clusters(graph, clusters), x_pool, links.flatten(-3), cut, orthogonality)


@cached
def _graph_of_clusters(graph: Graph, clusters: int) -> Graph:
    """For each graph of a batch the complete graph of its clusters."""
    return Graph.batch([complete(clusters)] * len(graph.sizes)).to(graph.device)


def _products(graph: Graph, s: Tensor, y: Tensor) -> Tensor:
    """Sᵀ Y of each graph of a batch: [*, N, K], [*, N, C] -> [*, G, K, C]."""
    if graph.sizes.shape[0] == 1:
        return (s.mT @ y).unsqueeze(-3)
    if not is_real(graph.sizes):  # no loop over members that a traced program would not have
        products = s.unsqueeze(-1) * y.unsqueeze(-2)
        return aggregate(graph.membership(), products.flatten(-2)).unflatten(-1, products.shape[-2:])
    sizes = graph.sizes.tolist()
    pairs = zip(s.split(sizes, -2), y.split(sizes, -2), strict=True)
    return torch.stack([a.mT @ b for a, b in pairs], -3)


def _normalised(A: Tensor) -> Tensor:
    """D^-½ A D^-½; a row of zeros stays one, with a gradient."""
    d = A.sum(-1, keepdim=True)
    scale = torch.where(d > 0, d, 1).rsqrt()
    return A * scale * scale.mT


def _ratio(a: Tensor, b: Tensor) -> Tensor:
    """a / b, and 0 where b is 0, with a gradient."""
    return a / torch.where(b == 0, 1, b)
