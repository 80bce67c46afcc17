"""Attention of graph transformers: over edges with features, over all nodes with what the graph adds to the score."""

from typing import Annotated, ClassVar, Literal, NoReturn

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import Bounds, Count, Natural, Real, Share, chosen, require
from edgewise.errors import ShapeError
from edgewise.graphs import Graph, complete
from edgewise.graphs.derived import cached
from edgewise.graphs.make.spectral import hops, laplacian_kernel, path_edges
from edgewise.kernels import Dot, EdgeBias, Uniform, attend, dropout, ends
from edgewise.layers.attention.attention import Cache, MultiHeadAttention
from edgewise.layers.attention.transformer import NORMS, FeedForward, Normed
from edgewise.layers.plain.layer import Example, Layer, checked, small_example
from edgewise.layers.plain.linear import Linear, check_alike
from edgewise.layers.plain.running import uncompiled
from edgewise.layers.plain.sides import Edges, Rows, check_edges

SMALLEST = 1e-12  # a kernel's entries below it are rounding, and count as 0


@cached
def all_pairs(graph: Graph) -> Graph:
    """The graph in which all nodes of each member attend to one another."""
    return Graph.batch([complete(nodes) for nodes in graph.sizes.tolist()] or [complete(0)]).to(graph.device)


_hops, _path_edges = uncompiled(cached(hops)), uncompiled(cached(path_edges))


@uncompiled
@cached
def kernel_pairs(graph: Graph, beta: float, steps: int) -> tuple[Graph, Tensor]:
    """The graph of the pairs where the `laplacian_kernel` K is not 0, and log K of its edges [E', 1]."""
    k = laplacian_kernel(graph, beta, steps)
    positive = k > SMALLEST
    near = Graph.from_edge_index(all_pairs(graph).edge_index()[:, positive], graph.num_senders)
    return near, k[positive].log().unsqueeze(-1)


@uncompiled
@cached
def counted_pairs(graph: Graph) -> tuple[Graph, Tensor]:
    """All pairs, where i attends to copy a_ij of node j: to sender a_ij N + j; and which copy each sender is, [M, N].

    Symbols     a_ij = the number of edges from j to i; M = the largest and 1, for copy 0
    """
    pairs, nodes = all_pairs(graph), graph.num_senders
    first = (graph.sizes.cumsum(0) - graph.sizes).repeat_interleave(graph.sizes)  # of each node's member
    places = pairs.offsets[graph.receivers] + graph.senders - first[graph.receivers]
    count = torch.bincount(places, minlength=pairs.num_edges)
    copies = torch.arange(int(count.max()) + 1 if len(count) else 1, device=graph.device)
    edges = torch.stack([count * nodes + pairs.senders, pairs.receivers])
    return Graph.from_edge_index(edges, len(copies) * nodes, nodes), copies[:, None].expand(-1, nodes)


class WholeGraphAttention(MultiHeadAttention):
    """Attention that reads a whole graph at once: nothing of it is decoded, and a cache is a ShapeError."""

    def cache(self, graph: Graph) -> NoReturn:
        raise ShapeError(f"{type(self).__name__} reads a whole graph at once: it decodes nothing, and takes no cache")

    def _self_ends(self, graph: Graph, x: Tensor, cache: Cache | None = None) -> tuple[Tensor, Tensor, Tensor]:
        return super()._self_ends(graph, x) if cache is None else self.cache(graph)


class GraphAttention(WholeGraphAttention):
    """The attention of the graph transformer: softmax over a node's edges, whose features multiply the scores.

    Equation    ŵ_ij,h = (q_i ⊙ k_j / √d) ⊙ E_h e_ij, channel by channel
                y_i    = W_O ‖_h Σ_{j ∈ N(i)} softmax_j(Σ_c ŵ_ij,h,c) v_j        (5.17), (5.18)
                e_ij'  = O_e ‖_h ŵ_ij,h
    Symbols     projection, output = W_Q, W_K, W_V, W_O; edge = [E_1 ‖ ... ‖ E_H]; edge_output = O_e; edges = width of
                e_ij and of e_ij', 0: without edge features, where ŵ_ij = q_i·k_j / √d
    Shapes      x [*, N, width] (, e [*, E, edges] in the graph's edge order) -> [*, N, width]; `update` returns e' too
    Edge cases  a node without edges gets W_O's bias. Self-loops, which (5.18) enforces, are the caller's to add, with
                features of their own: `graph.add_self_loops()`
    Cost        time O(N width² + E width); memory O(N width + E heads), with edge features O(E width)
    Differs     without edge features it is MultiHeadAttention on the graph, and PyTorch Geometric's TransformerConv
                without its own root weight. The authors' code clamps the scores to ±5; here they are not
    Reference   Dwivedi & Bresson, "A generalization of transformer networks to graphs", 2021, (7)-(15)

    Example
        >>> layer = GraphAttention(width=2, heads=1, edges=1)
        >>> pair = Graph.from_edge_index([[0, 1, 0], [0, 0, 1]], num_nodes=2)
        >>> y, e = layer.update(pair, torch.randn(2, 2), torch.ones(3, 1))
        >>> y.shape, e.shape
        (torch.Size([2, 2]), torch.Size([3, 1]))
    """

    def __init__(self, width: int, heads: int, edges: Natural = 0, bias: bool = True, dropout: float = 0.0) -> None:
        super().__init__(width, heads, bias=bias, dropout=dropout)
        self.edge = Linear(edges, width, bias) if edges else None
        self.edge_output = nn.Linear(width, edges, bias) if edges else None

    def forward(self, graph: Graph, x: Tensor, e: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        if cache is not None:
            self.cache(graph)
        return self.update(graph, x, e)[0]

    @checked
    def update(
        self, graph: Graph, x: Tensor, e: Annotated[Tensor | None, Edges("edge")] = None
    ) -> tuple[Tensor, Tensor | None]:
        """y [*, N, width] and e' [*, E, edges], None without edge features."""
        q, k, v = self._self_ends(graph, x)
        if self.edge is None or self.edge_output is None or e is None:
            return self.output(self.mean(graph, q, k, v, Dot()).flatten(-2)), None
        q_i, k_j = ends(graph, q.flatten(-2), k.flatten(-2))
        w = q_i * k_j * self.edge(e) * self.channels**-0.5  # [*, E, width]
        s_ij = w.unflatten(-1, (self.split[0], self.channels)).sum(-1)
        y = self.mean(graph, None, None, v, Uniform() + EdgeBias(s_ij))
        return self.output(y.flatten(-2)), self.edge_output(w)

    @staticmethod
    def example() -> Example:
        return small_example(GraphAttention(4, 2, dropout=0.5), 4)


class EdgeTransformerBlock(Layer):
    """Graph transformer block that carries features of edges beside those of nodes, with a feed-forward for each.

    Equation    post: X̂ = N_1(X + ATT(X, E)),  X' = N_2(X̂ + MLP(X̂))
                      Ê = N_3(E + ATT_e(X, E)),  E' = N_4(Ê + MLP_e(Ê))
                pre:  X̂ = X + ATT(N_1(X), N_3(E)),  X' = X̂ + MLP(N_2(X̂)), and E likewise
    Symbols     attention = ATT, ATT_e: y and e' of `GraphAttention`; feed_forward, edge_feed_forward = MLP, MLP_e;
                norms[k - 1] = N_k, norm its name in NORMS; order = "post" or "pre"
    Shapes      x [*, N, width], e [*, E, width] in the graph's edge order -> x' and e' of the same shapes
    Cost        time O((N + E) width²), memory O((N + E) width)
    Reference   Dwivedi & Bresson, "A generalization of transformer networks to graphs", 2021, (7)-(15) and ablation

    Example
        >>> block = EdgeTransformerBlock(4, heads=2)
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> x, e = block(pair, torch.randn(2, 4), torch.randn(2, 4))
        >>> x.shape, e.shape
        (torch.Size([2, 4]), torch.Size([2, 4]))
    """

    def __init__(
        self,
        width: Count,
        heads: Count,
        norm: str = "layer",
        order: Literal["pre", "post"] = "post",
        dropout: Share = 0.0,
    ) -> None:
        super().__init__()
        self.attention = GraphAttention(width, heads, edges=width, dropout=dropout)
        self.feed_forward, self.edge_feed_forward = (FeedForward(width, 2 * width, "relu") for _ in range(2))
        self.norms = nn.ModuleList(chosen("norm", norm, NORMS)(width) for _ in range(4))
        self.pre, self.dropout = order == "pre", dropout

    def forward(self, graph: Graph, x: Normed, e: Normed) -> tuple[Tensor, Tensor]:
        before_x, after_x, before_e, after_e = self.norms
        y, new = self.attention.update(graph, *((before_x(x), before_e(e)) if self.pre else (x, e)))
        assert new is not None  # the attention reads edge features
        x = self._stage(x + self._drop(y), before_x, after_x, self.feed_forward)
        return x, self._stage(e + self._drop(new), before_e, after_e, self.edge_feed_forward)

    def _stage(self, y: Tensor, before: nn.Module, after: nn.Module, feed_forward: nn.Module) -> Tensor:
        if self.pre:
            return y + self._drop(feed_forward(after(y)))
        y = before(y)
        z: Tensor = after(y + self._drop(feed_forward(y)))
        return z

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.training)


class WeightedAttention(WholeGraphAttention):
    """Attention over weighted edges: an edge's entry of the adjacency matrix multiplies its score.

    Equation    y_i = W_O ‖_h Σ_{j ∈ N(i)} softmax_j(A_ij q_i·k_j / √d) v_j    (5.17), (5.18)
    Symbols     e = A_ij; projection, output = W_Q, W_K, W_V, W_O
    Shapes      x [*, N, width] (, e [*, E, 1] in the graph's edge order) -> [*, N, width]
    Edge cases  without e all A_ij are 1: MultiHeadAttention. A_ij = 0 is a score of 0, not a missing edge, and A_ij < 0
                turns the order around. A node without edges gets W_O's bias. Self-loops, A_ii = 1, are the caller's
    Cost        time O(N width² + E width), memory O(N width + E width)
    Reference   Dwivedi & Bresson, "A generalization of transformer networks to graphs", 2021; Baggag & Saad, (5.18)

    Example
        >>> layer = WeightedAttention(width=1, heads=1, bias=False)
        >>> layer.projection.weight.data, layer.output.weight.data = torch.ones(3, 1), torch.ones(1, 1)
        >>> star = Graph.from_edge_index([[0, 1], [0, 0]], num_nodes=2)
        >>> layer(star, torch.tensor([[1.0], [3.0]]), torch.tensor([[3.0], [1.0]]))[0].item()  # scores 3·1·1 and 1·1·3
        2.0
    """

    def forward(self, graph: Graph, x: Tensor, e: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        q, k, v = self._self_ends(graph, x, cache)
        if e is None:
            return self.output(self.mean(graph, q, k, v, Dot()).flatten(-2))
        check_edges(graph, e, 1, "weights of edges")
        q_i, k_j = ends(graph, q.flatten(-2), k.flatten(-2))  # [*, E, width]
        dots = (q_i * k_j).unflatten(-1, (self.split[0], self.channels)).sum(-1)
        s_ij = e * dots * self.channels**-0.5
        return self.output(self.mean(graph, None, None, v, Uniform() + EdgeBias(s_ij)).flatten(-2))

    @staticmethod
    def example() -> Example:
        return small_example(WeightedAttention(4, 2, dropout=0.5), 4)


class GraphormerAttention(WholeGraphAttention):
    """Attention among all nodes, to whose scores the length of the shortest path adds a learned number, and its edges.

    Equation    s_ij = q_i·k_j / √d + b_φ(i,j) + c_ij
                c_ij = 1/D Σ_{n=1..D} w_n · e_n,  e_1, ..., e_D the edges of a shortest path from j to i
    Symbols     distance [most + 2, H] = b; φ(i, j) = number of edges from j to i, the last row where it is more than
                `most` or there is no path; path [most, edges, H] = w; edges = width of e, 0: without c
    Shapes      x [*, N, width] (, e [E, edges] in the graph's edge order) -> [*, N, width]
    Edge cases  members of a batch do not attend to each other; c_ij is 0 for i = j and where φ is the last row; where
                several paths are shortest, e_n are those of one of them, which may depend on the order of the nodes
    Cost        time O(n² width), memory O(n² H) for each graph of n nodes; paths are computed once for each batch
    Reference   Ying et al., "Do transformers really perform bad for graph representation?", 2021, (6)-(7)

    Example
        >>> layer = GraphormerAttention(width=2, heads=1, most=1, bias=False)
        >>> for p in layer.parameters(): _ = p.data.zero_()
        >>> layer.projection.weight.data[4:] = layer.output.weight.data[:] = torch.eye(2)
        >>> layer.distance.data[:, 0] = torch.tensor([0.0, 0.0, -torch.inf])  # itself and neighbours only
        >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], num_nodes=3)
        >>> layer(path, torch.tensor([[0.0, 0.0], [2.0, 0.0], [4.0, 0.0]]))[:, 0].tolist()
        [1.0, 2.0, 3.0]
    """

    local: ClassVar[bool] = False

    def __init__(
        self, width: int, heads: int, most: Natural = 8, edges: Natural = 0, bias: bool = True, dropout: float = 0.0
    ) -> None:
        super().__init__(width, heads, bias=bias, dropout=dropout)
        self.distance = nn.Parameter(torch.zeros(most + 2, heads))
        self.path = nn.Parameter(torch.randn(most, edges, heads) * 0.02) if edges else None
        self.most = most

    def forward(self, graph: Graph, x: Tensor, e: Tensor | None = None, cache: Cache | None = None) -> Tensor:
        q, k, v = self._self_ends(graph, x, cache)
        pairs, apart = _hops(graph, self.most)
        bias = self.distance[apart.long()]
        if self.path is not None:
            bias = bias + self.along(graph, e)
        return self.output(self.mean(pairs, q, k, v, Dot() + EdgeBias(bias.to(q.dtype))).flatten(-2))

    def along(self, graph: Graph, e: Tensor | None) -> Tensor:
        """c_ij of all pairs, [E', H]."""
        if e is None or self.path is None:
            raise ShapeError("a layer with a path bias needs e [E, edges], in the graph's edge order")
        check_edges(graph, e, self.path.shape[1])
        if e.ndim != 2:
            raise ShapeError(f"features of edges are {list(e.shape)}, but must be [E, edges], one for all of a batch")
        check_alike(e, self.path)
        edges = _path_edges(graph, self.most)  # [E', most], -1 beyond
        e = functional.pad(e, (0, 0, 0, 1))  # where there is no edge, there is one to read
        of_edge = torch.einsum("ed,ndh->neh", e, self.path)  # every edge at every place of a path
        steps = of_edge[torch.arange(self.most, device=e.device), edges.clamp(min=0)]  # [E', most, H]
        inside = (edges >= 0).unsqueeze(-1)
        return (steps * inside).sum(1) / inside.sum(1).clamp(min=1)

    @staticmethod
    def example() -> Example:
        layer = GraphormerAttention(4, 2, most=2, dropout=0.5)
        nn.init.normal_(layer.distance)
        return small_example(layer, 4)


class CentralityEncoding(Layer):
    """Graphormer's centrality: adds a learned vector for a node's in-degree and one for its out-degree.

    Equation    x_i + z⁻_{deg⁻(i)} + z⁺_{deg⁺(i)}
    Symbols     in_degree, out_degree [largest + 1, width] = z⁻, z⁺; deg⁻, deg⁺ = number of senders, receivers
    Shapes      x [*, N, width] -> [*, N, width]
    Errors      GraphError for a graph whose receivers are not its senders
    Edge cases  degrees above `largest` share the last row
    Cost        O(N width)
    Reference   Ying et al., "Do transformers really perform bad for graph representation?", 2021, (5)

    Example
        >>> layer = CentralityEncoding(1, largest=2)
        >>> for p, tenfold in zip(layer.parameters(), (1.0, 10.0)): p.data[:, 0] = torch.arange(3) * tenfold
        >>> layer(Graph.from_edge_index([[0, 1], [2, 2]], num_nodes=3), torch.zeros(3, 1)).flatten().tolist()
        [10.0, 10.0, 2.0]
    """

    def __init__(self, width: Count, largest: Natural = 64) -> None:
        super().__init__()
        self.width = width
        self.in_degree = nn.Parameter(torch.randn(largest + 1, width) * 0.02)
        self.out_degree = nn.Parameter(torch.randn(largest + 1, width) * 0.02)

    def forward(self, graph: Graph, x: Annotated[Tensor, Rows("width")]) -> Tensor:
        graph.require_square("a centrality encoding")
        largest = len(self.in_degree) - 1
        incoming, outgoing = graph.in_degrees().clamp(max=largest), graph.out_degrees().clamp(max=largest)
        return x + self.in_degree[incoming] + self.out_degree[outgoing]

    @staticmethod
    def example() -> Example:
        return small_example(CentralityEncoding(4, largest=2), 4)


class KernelAttention(WholeGraphAttention):
    """Kernel graph attention (GraphiT): attention among all nodes, each weighted by a kernel on the graph.

    Equation    y_i = W_O ‖_h Σ_j K_ij exp(s_ij) v_j / Σ_j K_ij exp(s_ij),  s_ij = q_i·k_j / √d
                K = exp(-β L) ("diffusion"), or (I - β L)^p ("random-walk"), L = I - D^-½ A D^-½
    Symbols     kernel = the name of K; beta = β; steps = p
    Shapes      x [*, N, width] -> [*, N, width]
    Edge cases  members of a batch do not attend to each other, nor i to j where K_ij is 0 (further than p steps, or
                another component); self-loops and directions do not count; an isolated node attends to itself
    Cost        time O(n² width), memory O(n² H) for each graph of n nodes; K is computed once for each batch, O(n³)
    Differs     there queries and keys share weights, so that the score is a kernel too, and y_i is divided by √d_i
    Reference   Mialon et al., "GraphiT: encoding graph structure in transformers", 2021, (4)-(5); Baggag & Saad, (5.18)

    Example
        >>> layer = KernelAttention(width=2, heads=1, kernel="random-walk", beta=0.5, steps=1)
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)  # K = I - L/2 = (I + A)/2: every entry 1/2
        >>> layer(pair, torch.ones(2, 2)).shape
        torch.Size([2, 2])
    """

    def __init__(
        self,
        width: int,
        heads: int,
        kernel: Literal["diffusion", "random-walk"] = "diffusion",
        beta: Real = 1.0,
        steps: Natural = 3,
        dropout: float = 0.0,
    ) -> None:
        super().__init__(width, heads, dropout=dropout)
        if kernel == "random-walk":
            require(self, Annotated[float, Bounds(above=0, at_most=1)], beta=beta)
            require(self, Count, steps=steps)
        self.kernel = (kernel, float(beta), 0 if kernel == "diffusion" else steps)

    def forward(  # type: ignore[override]
        self, graph: Graph, x: Tensor, cache: Cache | None = None
    ) -> Tensor:
        q, k, v = self._self_ends(graph, x, cache)
        near, log_k = kernel_pairs(graph, *self.kernel[1:])
        return self.output(self.mean(near, q, k, v, Dot() + EdgeBias(log_k.to(q.dtype))).flatten(-2))

    @staticmethod
    def example() -> Example:
        edges = [[0, 1, 1, 2, 2, 0, 3, 0], [1, 0, 2, 1, 0, 2, 0, 3]]
        return KernelAttention(4, 2, dropout=0.5), Graph.from_edge_index(edges, num_nodes=5), (torch.randn(5, 4),)


class HadamardAttention(WholeGraphAttention):
    """Hadamard graph attention: softmax over all nodes, of which only the neighbours' values are then summed.

    Equation    y_i = W_O ‖_h Σ_j a_ij p_ij v_j = W_O ‖_h c_i Σ_j a_ij exp(s_ij) v_j / Σ_j a_ij exp(s_ij)    (5.19)
                p_ij = softmax_j(s_ij),  s_ij = q_i·k_j / √d,  c_i = Σ_j a_ij p_ij
    Symbols     A = a_ij, the number of edges from j to i; c_i = what the neighbours get of the softmax over all nodes
    Shapes      x [*, N, width] -> [*, N, width]
    Edge cases  unlike (5.18) the weights of a node sum to less than 1: how much goes to neighbours is learned; a node
                without edges gets W_O's bias; members of a batch do not enter each other's softmax
    Cost        time O(n² width) for each graph of n nodes; memory O(N width + E H), and for its pairs O(n²)
    Reference   Baggag & Saad, (5.19) [93]

    Example
        >>> layer = HadamardAttention(width=2, heads=1, bias=False)
        >>> for p in layer.parameters(): _ = p.data.zero_()
        >>> layer.projection.weight.data[4:] = layer.output.weight.data[:] = torch.eye(2)
        >>> arrow = Graph.from_edge_index([[0], [1]], num_nodes=2)  # of 1's two equal weights, that of 0 counts
        >>> layer(arrow, torch.tensor([[2.0, 4.0], [6.0, 8.0]])).tolist()
        [[0.0, 0.0], [1.0, 2.0]]
    """

    local: ClassVar[bool] = False

    def forward(  # type: ignore[override]
        self, graph: Graph, x: Tensor, cache: Cache | None = None
    ) -> Tensor:
        q, k, v = self._self_ends(graph, x, cache)
        pairs, a = counted_pairs(graph)
        k_a = torch.cat([k] * len(a), -3)
        c = attend(pairs, q, k_a, a.flatten().to(k)[:, None, None].expand(*k_a.shape[:-1], 1))
        return self.output((c * self.average(graph, q, k, v)).flatten(-2))

    @staticmethod
    def example() -> Example:
        return small_example(HadamardAttention(4, 2, dropout=0.5), 4)
