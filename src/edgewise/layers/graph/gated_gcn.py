"""Gated graph convolution: every edge carries a feature, and a gate per channel that decides what passes over it."""

from typing import Annotated, ClassVar

import torch
from torch import Tensor

from edgewise.configuration import Count, Natural
from edgewise.graphs import Graph
from edgewise.kernels import EdgeInput, EdgeNetwork, Filter, collect, ends
from edgewise.layers.attention.transformer import BatchNorm
from edgewise.layers.plain.layer import Example, Layer, checked, small_example
from edgewise.layers.plain.linear import Linear
from edgewise.layers.plain.sides import Edges, Sides, at_receivers, check_sides


class GatedGCN(Layer):
    """Gated graph convolution: each channel of a message passes through a gate that both ends and the edge decide.

    Equation    e_ij' = C e_ij + D x_i + E x_j
                η_ij  = σ(e_ij') / (Σ_{j' ∈ N(i)} σ(e_ij'') + ε),  channel by channel
                x_i'  = A x_i + Σ_{j ∈ N(i)} η_ij ⊙ B x_j
    Symbols     nodes = [A ‖ B ‖ D ‖ E], biases included; edges = C; ε = 1e-6; σ = sigmoid; `edges` = width of e_ij
    Shapes      x [*, J, inputs], SparseFeatures, or a pair (x_receivers, x_senders) (, e [*, E, edges] in the graph's
                edge order) -> [*, I, outputs]; `update` returns e' [*, E, outputs] too, for the next layer to read
    Edge cases  without edge features e_ij' = D x_i + E x_j
    Cost        time O(N inputs C + E (edges + 1) C) for C = outputs; memory O(N C + E) on `native`
    Differs     ReLU(BN(x_i')) and the residual are the model's, ReLU(BN(e_ij')) is `EdgeStream`'s
    Reference   Bresson & Laurent, "Residual gated graph ConvNets", 2017, (11); Dwivedi et al., 2020, (47)-(49)

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer = GatedGCN(1, 1, edges=1)
        >>> for p in layer.parameters(): _ = p.data.fill_(0.0)
        >>> layer.nodes.weight.data[:2] = 1.0  # A = B = 1, D = E = C = 0: every gate is 1/2, and the only one
        >>> layer(pair, torch.tensor([[1.0], [10.0]]), torch.zeros(2, 1))  # 1 + 10, 10 + 1
        tensor([[11.0000],
                [11.0000]], grad_fn=<AddBackward0>)
    """

    epsilon: ClassVar[float | None] = 1e-6

    def __init__(self, inputs: Count, outputs: Count, edges: Natural = 0) -> None:
        super().__init__()
        self.nodes = Linear(inputs, 4 * outputs)
        self.edges = Linear(edges, outputs, bias=False) if edges else None

    def forward(self, graph: Graph, x: Sides, e: Annotated[Tensor | None, Edges("edges")] = None) -> Tensor:
        A, B, gates = self._gates(graph, x, e)
        return A + collect(graph, Filter(gates, B, normalised=self.epsilon))

    @checked
    def update(
        self, graph: Graph, x: Sides, e: Annotated[Tensor | None, Edges("edges")] = None
    ) -> tuple[Tensor, Tensor]:
        """x' [*, N, outputs] and e' [*, E, outputs]."""
        A, B, gates = self._gates(graph, x, e)
        assert gates.receivers is not None
        D_i, E_j = ends(graph, gates.receivers, gates.senders)
        e = D_i + E_j if gates.edges is None else gates.edges.term() + D_i + E_j
        return A + collect(graph, Filter(e.sigmoid(), B, normalised=self.epsilon)), e

    def _gates(self, graph: Graph, x: Sides, e: Tensor | None) -> tuple[Tensor, Tensor, EdgeNetwork]:
        """A x_i, B x_j and σ(e_ij')."""
        check_sides(graph, x)
        A, B, D, E = self.nodes.parts(x[1] if isinstance(x, tuple) else x, 4)  # each already multiplied with x
        if isinstance(x, tuple):
            A, _, D, _ = self.nodes.parts(x[0], 4)
        else:
            A, D = at_receivers(graph, A), at_receivers(graph, D)
        edges = None if self.edges is None or e is None else EdgeInput((self.edges.weight, None), e)
        return A, B, EdgeNetwork((), torch.sigmoid, receivers=D, senders=E, edges=edges, activated=True)

    @staticmethod
    def example() -> Example:
        return small_example(GatedGCN(3, 4))


class ResidualGatedGCN(GatedGCN):
    """Residual gated graph convolution: gates that are not divided by their sum.

    Equation    x_i' = A x_i + Σ_{j ∈ N(i)} σ(e_ij') ⊙ B x_j,  e_ij' = C e_ij + D x_i + E x_j    (11)
    Symbols     those of `GatedGCN`, as are edge cases and cost
    Shapes      x [*, J, inputs] (, e [*, E, edges] in the graph's edge order) -> [*, I, outputs]
    Differs     the ReLU of (11) is the model's; PyTorch Geometric's layer also adds a map of e_ij to B x_j
    Reference   Bresson & Laurent, "Residual gated graph ConvNets", 2017, (11)

    Example
        >>> star = Graph.from_edge_index([[1, 2], [0, 0]], num_nodes=3)
        >>> layer = ResidualGatedGCN(1, 1)
        >>> for p in layer.parameters(): _ = p.data.fill_(0.0)
        >>> layer.nodes.weight.data[1] = 1.0  # B = 1, D = E = 0: every gate is 1/2
        >>> layer(star, torch.tensor([[1.0], [10.0], [100.0]])).flatten().tolist()
        [55.0, 0.0, 0.0]
    """

    epsilon = None

    @staticmethod
    def example() -> Example:
        return small_example(ResidualGatedGCN(3, 4))


class EdgeStream(Layer):
    """Gated graph convolution that returns new features of the edges, for the next layer to read.

    Equation    x_i', ê_ij = GatedGCN(x, e);  e_ij' = e_ij + ReLU(BN(ê_ij)), without e_ij where its width is another
    Symbols     convolution = GatedGCN, whose e_ij' is ê_ij here; norm = BN, over all edges
    Shapes      x [*, N, inputs] (, e [*, E, edges] in the graph's edge order) -> [*, N, outputs], [*, E, outputs]
    Edge cases  without edge features (edges=0) the stream begins here: e_ij' = ReLU(BN(D x_i + E x_j))
    Cost        time O(N inputs C + E (edges + 1) C) for C = outputs; memory O((N + E) C)
    Differs     x_i' is as GatedGCN has it: norm, activation and residual of the nodes are the model's
    Reference   Dwivedi et al., "Benchmarking graph neural networks", 2020, (47)-(49)

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> x, e = EdgeStream(3, 4, edges=2)(pair, torch.ones(2, 3), torch.ones(2, 2))
        >>> x.shape, e.shape
        (torch.Size([2, 4]), torch.Size([2, 4]))
    """

    def __init__(self, inputs: Count, outputs: Count, edges: Natural = 0) -> None:
        super().__init__()
        self.convolution = GatedGCN(inputs, outputs, edges)
        self.norm = BatchNorm(outputs)

    def forward(
        self, graph: Graph, x: Sides, e: Annotated[Tensor | None, Edges("convolution.edges")] = None
    ) -> tuple[Tensor, Tensor]:
        y, made = self.convolution.update(graph, x, e)
        made = self.norm(made).relu()
        return y, made if e is None or e.shape[-1] != made.shape[-1] else e + made
