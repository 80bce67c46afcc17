"""Pooling: of a graph few clusters, by min-cut or DiffPool, its best nodes, or one vector."""

from collections.abc import Callable
from typing import Annotated, ClassVar, NamedTuple

import torch
from torch import Tensor, nn

from edgewise.configuration import Count
from edgewise.graphs import Graph, complete
from edgewise.graphs.derived import cached
from edgewise.graphs.tracing import is_real
from edgewise.kernels import Dot, SenderBias, Uniform, aggregate, attend
from edgewise.layers.attention.hopfield import HopfieldPooling
from edgewise.layers.attention.positions import positions
from edgewise.layers.plain.layer import Example, Layer, checked, small_example
from edgewise.layers.plain.linear import Linear, check_alike, root
from edgewise.layers.plain.sides import NodeRows, Rows, SparseRows, in_one_batch, weights_like


class _Readout(Layer):
    """A reduction of the nodes of each graph."""

    reduce: ClassVar[str]

    def forward(self, graph: Graph, x: NodeRows) -> Tensor:
        return aggregate(graph.membership(), x, reduce=self.reduce)


class MeanReadout(_Readout):
    """Mean of the nodes of each graph.

    Equation    z_g = 1/|V_g| Σ_{i ∈ V_g} x_i    (5.7)
    Shapes      x [*, N, C] -> [*, G, C] for a batch of G graphs; one graph is a batch of one
    Edge cases  a graph without nodes gives 0
    Cost        O(N C)
    Reference   Baggag & Saad, §5.2

    Example
        >>> two = Graph.batch([complete(1), complete(2)])
        >>> MeanReadout()(two, torch.tensor([[5.0], [1.0], [3.0]])).tolist()
        [[5.0], [2.0]]
    """

    reduce = "mean"

    @staticmethod
    def example() -> Example:
        return MeanReadout(), _two_graphs(), (torch.randn(5, 3),)


class SumReadout(_Readout):
    """Sum of the nodes of each graph: unlike the mean, it depends on how many there are (Xu et al., 2019).

    Equation    z_g = Σ_{i ∈ V_g} x_i
    Shapes      x [*, N, C] -> [*, G, C]

    Example
        >>> SumReadout()(complete(2), torch.tensor([[1.0], [3.0]])).tolist()
        [[4.0]]
    """

    reduce = "sum"

    @staticmethod
    def example() -> Example:
        return SumReadout(), _two_graphs(), (torch.randn(5, 3),)


class MaxReadout(_Readout):
    """Largest value of each channel over the nodes of each graph.

    Equation    z_g = max_{i ∈ V_g} x_i, channel by channel
    Shapes      x [*, N, C] -> [*, G, C]

    Example
        >>> MaxReadout()(complete(2), torch.tensor([[1.0, 7.0], [3.0, 2.0]])).tolist()
        [[3.0, 7.0]]
    """

    reduce = "max"

    @staticmethod
    def example() -> Example:
        return MaxReadout(), _two_graphs(), (torch.randn(5, 3),)


class AttentionReadout(Layer):
    """Weighted mean of the nodes of each graph, with weights learned from their features.

    Equation    z_g = Σ_{i ∈ V_g} softmax_{i ∈ V_g}(wᵀ x_i) x_i
    Symbols     gate = wᵀ
    Shapes      x [*, N, C] -> [*, G, C]
    Edge cases  with w = 0 it is MeanReadout
    Cost        O(N C)
    Differs     there gate and value are networks, and the gate a sigmoid; here the gate is a softmax of a linear map
    Reference   Li et al., "Gated graph sequence neural networks", 2016, (7)

    Example
        >>> readout = AttentionReadout(1)
        >>> readout.gate.weight.data.fill_(100.0)
        tensor([[100.]])
        >>> readout(complete(2), torch.tensor([[1.0], [3.0]])).tolist()  # nearly the largest
        [[3.0]]
    """

    def __init__(self, width: Count) -> None:
        super().__init__()
        self.gate = Linear(width, 1, bias=False)  # a bias would cancel in the softmax

    def forward(self, graph: Graph, x: NodeRows) -> Tensor:
        score = Uniform() + SenderBias(self.gate(x))
        return attend(graph.membership(), None, None, x.unsqueeze(-2), score).squeeze(-2)

    @staticmethod
    def example() -> Example:
        return AttentionReadout(3), _two_graphs(), (torch.randn(5, 3),)


class FirstReadout(Layer):
    """The first node of each graph, through a linear map and tanh: where texts begin with a token that stands for all.

    Equation    z_g = tanh(x_0 W + b),  0 the first node of V_g
    Symbols     dense = (W, b)
    Shapes      x [*, N, C] -> [*, G, C]
    Cost        O(N C + G C²)
    Reference   Devlin et al., 2019 (the "pooler")

    Example
        >>> readout = FirstReadout(1)
        >>> readout.dense.weight.data, readout.dense.bias.data = torch.ones(1, 1), torch.zeros(1)
        >>> readout(Graph.batch([complete(1), complete(2)]), torch.tensor([[0.0], [99.0], [3.0]])).tolist()
        [[0.0], [1.0]]
    """

    equivariant: ClassVar[bool] = False

    def __init__(self, width: Count) -> None:
        super().__init__()
        self.dense = Linear(width, width)

    def forward(self, graph: Graph, x: NodeRows) -> Tensor:
        members = graph.membership()
        x_0 = aggregate(members, torch.where((positions(graph) == 0).unsqueeze(-1), x, 0))
        return torch.where(members.in_degrees().unsqueeze(-1) > 0, self.dense(x_0).tanh(), 0.0)

    @staticmethod
    def example() -> Example:
        return FirstReadout(3), _two_graphs(), (torch.randn(5, 3),)


class LastReadout(Layer):
    """The last node of each graph: where texts are read from the left, it has seen all others.

    Equation    z_g = x_n,  n the last node of V_g
    Shapes      x [*, N, C] -> [*, G, C]
    Edge cases  a graph without nodes gives 0
    Cost        O(N C)
    Reference   Radford et al., "Improving language understanding by generative pre-training", 2018, (3)

    Example
        >>> texts = Graph.batch([complete(1), complete(2)])
        >>> LastReadout()(texts, torch.tensor([[1.0], [3.0], [7.0]])).tolist()
        [[1.0], [7.0]]
    """

    equivariant: ClassVar[bool] = False

    def forward(self, graph: Graph, x: NodeRows) -> Tensor:
        members = graph.membership()
        last = positions(graph) == members.in_degrees()[members.receivers] - 1
        return aggregate(members, torch.where(last.unsqueeze(-1), x, 0))

    @staticmethod
    def example() -> Example:
        return LastReadout(), _two_graphs(), (torch.randn(5, 3),)


class Set2Set(Layer):
    """A query that reads the nodes of each graph several times, and asks differently after each of them.

    Equation    q_t = LSTM(q*_t-1),  a_i = softmax_{i ∈ V_g}(q_t · x_i),  r_t = Σ_i a_i x_i,  q*_t = q_t ‖ r_t  (3)-(7)
                z_g = q*_T, or W q*_T + b where it has `outputs`;  q*_0 = 0
    Symbols     steps = T; recurrent, state = the LSTM's maps of q*_t-1 and of q_t-1; linear = W, b
    Shapes      x [*, N, width] -> [*, G, 2 width] or [*, G, outputs]
    Edge cases  a graph without nodes gives 0
    Cost        O(T (N width + G width²))
    Reference   Vinyals, Bengio & Kudlur, "Order matters: sequence to sequence for sets", 2016, §4.2

    Example
        >>> two = Graph.batch([complete(1), complete(2)])
        >>> Set2Set(1, steps=3)(two, torch.tensor([[5.0], [3.0], [3.0]]))[:, 1].tolist()  # of equal nodes the mean
        [5.0, 3.0]
    """

    def __init__(self, width: Count, steps: Count = 4, outputs: Count | None = None) -> None:
        super().__init__()
        self.width, self.steps = width, steps
        self.recurrent, self.state = Linear(2 * width, 4 * width), Linear(width, 4 * width)
        self.linear = nn.Linear(2 * width, outputs) if outputs else None

    def forward(self, graph: Graph, x: Annotated[Tensor, Rows("width")]) -> Tensor:
        nodes, v = graph.membership(), x.unsqueeze(-2)
        q = c = x.new_zeros(*x.shape[:-2], nodes.num_receivers, self.width)
        r = q
        for _ in range(self.steps):
            i, f, g, o = (self.recurrent(torch.cat([q, r], -1)) + self.state(q)).chunk(4, -1)
            c = f.sigmoid() * c + i.sigmoid() * g.tanh()
            q = o.sigmoid() * c.tanh()
            r = attend(nodes, q.unsqueeze(-2), v, v, Dot(scale=1.0)).squeeze(-2)
        z = torch.cat([q, r], -1)
        z = z if self.linear is None else self.linear(z)
        return torch.where(nodes.in_degrees().unsqueeze(-1) > 0, z, 0.0)

    @staticmethod
    def example() -> Example:
        return Set2Set(3, steps=2), _two_graphs(), (torch.randn(5, 3),)


READOUTS: dict[str, Callable[[int], nn.Module]] = {
    "mean": lambda width: MeanReadout(),
    "sum": lambda width: SumReadout(),
    "max": lambda width: MaxReadout(),
    "attention": AttentionReadout,
    "first": FirstReadout,
    "last": lambda width: LastReadout(),
    "hopfield": lambda width: HopfieldPooling(width, beta=1.0),  # 1 / √width would hardly choose among a few nodes
    "set2set": lambda width: Set2Set(width, outputs=width),
}


def _two_graphs() -> Graph:
    return Graph.batch([complete(3), complete(2)])


class ClusterAssignment(Layer):
    """To how large a part each node belongs to each of K clusters.

    Equation    S = softmax(X W + b)
    Symbols     linear = W, b; clusters = K
    Shapes      x [*, N, width] -> [*, N, K]; every row sums to 1
    Cost        O(N width K)
    Differs     the paper has an MLP, here it is linear, as in its own experiments
    Reference   Bianchi, Grattarola & Alippi, "Spectral clustering with graph neural networks for graph pooling", 2020

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
    Symbols     s = S, whose rows sum to 1; weight = the entries of A on its edges, or 1; D, D̂ = row sums of A, Â
    Shapes      x [*, N, C], s [*, N, K], weight [E] -> `Pooled`, for each of the G graphs of a batch
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


class DiffPooled(NamedTuple):
    """What is left of the G graphs of a batch: K clusters of each.

    Shapes      graph, x, weight as in `Pooled`; link and entropy [*, G], the losses
    """

    graph: Graph
    x: Tensor
    weight: Tensor
    link: Tensor
    entropy: Tensor


@checked
def diff_pool(graph: Graph, x: NodeRows, s: NodeRows, weight: Tensor | None = None) -> DiffPooled:
    """Pool every graph of a batch to K clusters, with losses that keep neighbours together and assignments sharp.

    Equation    X_pool = Sᵀ X,  A_pool = Sᵀ A S    (3), (4)
                L_link = ‖ A - S Sᵀ ‖_F,  L_entropy = 1/N Σ_i -Σ_k s_ik log s_ik
    Symbols     s = S, whose rows sum to 1: a softmax of what a graph layer makes; x = X, of another one; weight = the
                entries of A on its edges, or 1
    Shapes      x [*, N, C], s [*, N, K], weight [E] -> `DiffPooled`, for each of the G graphs of a batch
    Edge cases  parallel edges add up in A; a graph without nodes: both losses are 0
    Cost        time O(E K + N K (C + K)), memory O(E + N (C + K) + G K (C + K)): no N × N matrix, for
                ‖ A - S Sᵀ ‖² = ‖ A ‖² - 2 Tr(Sᵀ A S) + ‖ Sᵀ S ‖²
    Reference   Ying et al., "Hierarchical graph representation learning with differentiable pooling", 2018

    Example
        >>> edges = [[0, 1, 2, 3, 1, 2], [1, 0, 3, 2, 2, 1]]  # 0 - 1 - 2 - 3, halved in the middle
        >>> path, half = Graph.from_edge_index(edges, num_nodes=4), torch.tensor([[1.0, 0], [1, 0], [0, 1], [0, 1]])
        >>> pooled = diff_pool(path, torch.tensor([[1.0], [2.0], [3.0], [4.0]]), half)
        >>> pooled.x.tolist(), pooled.weight.tolist()
        ([[3.0], [7.0]], [2.0, 1.0, 1.0, 2.0])
        >>> pooled.link.square().round().tolist(), pooled.entropy.tolist()  # 4 entries on the diagonal, 1 - 2 twice
        ([6.0], [0.0])
    """
    check_alike(x, s)
    x, s = in_one_batch(x, s)
    clusters, width, weight = s.shape[-1], x.shape[-1], weights_like(s, weight)
    products = _products(graph, s, torch.cat([x, aggregate(graph, s, weight), s], -1))
    pooled, among, overlap = products.split([width, clusters, clusters], -1)
    entries = s.new_ones(graph.num_edges, 1) if weight is None else weight.unsqueeze(-1)
    pairs, first = _pairs(graph)
    squares = entries.new_zeros(len(first), 1).index_add(0, pairs, entries).square()
    of_rows = squares.new_zeros(graph.num_receivers, 1).index_add(0, graph.receivers[first], squares)
    members = graph.membership()
    total = (
        aggregate(members, of_rows)[:, 0]
        - 2 * among.diagonal(dim1=-2, dim2=-1).sum(-1)
        + overlap.square().sum((-2, -1))
    )
    entropy = aggregate(members, -torch.special.xlogy(s, s.clamp(min=1e-15)), reduce="mean").sum(-1)
    links, x_pool = among.flatten(-3), pooled.flatten(-3, -2)
    return DiffPooled(_graph_of_clusters(graph, clusters), x_pool, links, root(total, 1e-12), entropy)


@cached
def _pairs(graph: Graph) -> tuple[Tensor, Tensor]:
    """Of each edge the number of its pair of nodes, which parallel edges share; and one edge of each pair."""
    ends = torch.stack([graph.receivers, graph.senders])
    new = torch.ones(graph.num_edges, dtype=torch.bool, device=graph.device)
    new[1:] = (ends.diff() != 0).any(0)
    return new.cumsum(0) - 1, new.nonzero().flatten()


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
