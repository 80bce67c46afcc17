"""Equivariant networks of scalars: particles move along the lines between them, by what a network says of each."""

from dataclasses import replace
from typing import Annotated

import torch
from torch import Tensor, nn

from edgewise.configuration import Count, Natural, chosen
from edgewise.graphs import Graph
from edgewise.kernels import EdgeInput, EdgeNetwork, collect, maps_of
from edgewise.layers.geometric.geometry import beside, displacements, lengths, log_lengths, squared_lengths
from edgewise.layers.plain.layer import Example, Layer, example_graph, small_example
from edgewise.layers.plain.linear import Linear
from edgewise.layers.plain.mlp import ACTIVATIONS, MLP, begin_small
from edgewise.layers.plain.sides import Edges, NodeRows, Places, check_nodes, in_one_batch


class EdgeMLP(Layer):
    """A message that reads both ends of its edge: an MLP on the concatenation [h_i ‖ h_j ‖ a_ij], which is never built.

    Equation    m_ij = σ(W_2 σ(W_1 [h_i ‖ h_j ‖ a_ij] + b_1) + b_2)
    Symbols     receiver, sender, edge = the blocks of W_1, b_1 in the first of them; second = W_2, b_2
    Shapes      h [*, N, C], a_ij [*, E, A] -> an `EdgeNetwork` of width hidden, for `collect`
    Cost        O(N C hidden + E hidden²), instead of O(E C hidden + E hidden²)
    """

    def __init__(self, channels: Count, hidden: Count, edges: Natural = 0, activation: str = "silu") -> None:
        super().__init__()
        self.receiver = Linear(channels, hidden)
        self.sender = Linear(channels, hidden, bias=False)
        self.edge = Linear(edges, hidden, bias=False) if edges else None
        self.second = Linear(hidden, hidden)
        self.activation = chosen("activation", activation, ACTIVATIONS)
        for block in (self.receiver, self.sender, self.edge):  # as one map of the whole concatenation would be drawn
            bound = (2 * channels + edges) ** -0.5
            for weight in () if block is None else block.parameters():
                nn.init.uniform_(weight, -bound, bound)

    def forward(self, h: Tensor, a_ij: Tensor | None = None) -> EdgeNetwork:
        edges = None if self.edge is None or a_ij is None else EdgeInput((self.edge.weight, None), a_ij)
        ends = {"receivers": self.receiver(h), "senders": self.sender(h)}
        return EdgeNetwork(maps_of([self.second]), self.activation, edges=edges, activated=True, **ends)


class MessageNetwork(Layer):
    """Message passing with networks on edges and nodes: what EGNN is without its geometry.

    Equation    m_ij = φ_e(h_i, h_j, a_ij);  h_i' = h_i + φ_h(h_i, Σ_{j ∈ N(i)} m_ij)    (2)
    Symbols     a_ij = what is known of an edge; phi_e = φ_e (`EdgeMLP`), phi_h = φ_h
    Shapes      h [*, N, channels], a_ij [*, E, edges] -> [*, N, channels]
    Cost        time O(N C hidden + E hidden²), memory O(E hidden)
    Differs     the residual h_i + is the authors' code
    Reference   Gilmer et al., 2017; Satorras, Hoogeboom & Welling, 2021, (2)

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> MessageNetwork(3, hidden=8)(pair, torch.zeros(2, 3)).shape
        torch.Size([2, 3])
    """

    def __init__(self, channels: Count, hidden: Count, edges: Natural = 0, activation: str = "silu") -> None:
        super().__init__()
        self.phi_e = EdgeMLP(channels, hidden, edges, activation)
        self.phi_h = MLP([channels + hidden, hidden, channels], activation)

    def forward(self, graph: Graph, h: NodeRows, a_ij: Annotated[Tensor | None, Edges("phi_e.edge")] = None) -> Tensor:
        m_i = collect(graph, self.phi_e(h, a_ij))
        return h + self.phi_h(torch.cat(in_one_batch(h, m_i), -1))

    @staticmethod
    def example() -> Example:
        return small_example(MessageNetwork(3, 4))


class EGNN(Layer):
    """E(n)-equivariant graph layer: messages read distances only, and move positions along the lines between nodes.

    Equation    m_ij = φ_e(h_i, h_j, |x_i - x_j|², a_ij)                     (3)
                x_i' = x_i + C Σ_{j ∈ N(i)} (x_i - x_j) φ_x(m_ij)            (4)
                h_i' = h_i + φ_h(h_i, Σ_{j ∈ N(i)} m_ij)                     (5), (6)
    Symbols     C = 1/|N(i)|; phi_e, phi_x, phi_h = φ_e, φ_x, φ_h; a_ij = what is known of an edge
    Shapes      h [*, N, channels], x [*, N, D], a_ij [*, E, edges], cell [D] -> h' [*, N, channels], x' [*, N, D]
    Edge cases  a node without senders stays where it is; a self-loop moves nothing; nodes on one spot are fine
    Cost        time O(N C hidden + E hidden²), memory as `EdgeNetwork`: [h_i ‖ h_j ‖ ...] is never built
    Differs     the residual h_i + of (6) is the authors' code, as is the mean for C (the paper has 1/(N - 1), the same
                on a complete graph). With a periodic cell, x_i - x_j is between nearest images
    Reference   Satorras, Hoogeboom & Welling, "E(n) equivariant graph neural networks", 2021

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer = EGNN(1, hidden=4)
        >>> for p in layer.phi_x.parameters(): _ = p.data.zero_()
        >>> for p in layer.phi_x.linears[1].parameters(): _ = p.data.fill_(-0.5)  # silu(0) = 0, so φ_x = -0.5
        >>> layer(pair, torch.zeros(2, 1), torch.tensor([[0.0], [4.0]]))[1].tolist()  # each half way to the other
        [[2.0], [2.0]]
    """

    def __init__(self, channels: Count, hidden: Count, edges: Natural = 0, activation: str = "silu") -> None:
        super().__init__()
        self.phi_e = EdgeMLP(channels, hidden, 1 + edges, activation)
        self.phi_x = begin_small(MLP([hidden, hidden, 1], activation))  # at first nothing moves far
        self.phi_h = MLP([channels + hidden, hidden, channels], activation)

    def forward(
        self, graph: Graph, h: NodeRows, x: Tensor, a_ij: Tensor | None = None, cell: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        x_ij = displacements(graph, x, cell)
        m_ij = self.message(h, x_ij, a_ij)
        m_i, pull_i = collect(graph, m_ij.then(self.phi_x.maps, x_ij), "mean")  # Σ_j m_ij, C Σ_j x_ij φ_x(m_ij)
        return h + self.phi_h(torch.cat(in_one_batch(h, m_i), -1)), x + pull_i

    def message(self, h: Tensor, x_ij: Tensor, a_ij: Tensor | None) -> EdgeNetwork:
        """m_ij (3)."""
        return self.phi_e(h, beside(squared_lengths(x_ij), a_ij))

    @staticmethod
    def example() -> Example:
        return EGNN(3, 4), example_graph(), (torch.randn(5, 3), torch.randn(5, 3))


class VelocityEGNN(EGNN):
    """E(n)-equivariant graph layer for particles that are already moving.

    Equation    m_ij = φ_e(h_i, h_j, |x_i - x_j|², a_ij)                             (3)
                v_i' = φ_v(h_i) v_i + C Σ_{j ∈ N(i)} (x_i - x_j) φ_x(m_ij)           (7)
                x_i' = x_i + v_i'
                h_i' = h_i + φ_h(h_i, Σ_{j ∈ N(i)} m_ij)                             (5), (6)
    Symbols     as in `EGNN`; phi_v = φ_v; v = v_init, the same at every layer
    Shapes      as `EGNN`, and v [*, N, D]
    Reference   Satorras, Hoogeboom & Welling, 2021, §3.2

    Example
        >>> alone = Graph.from_edge_index([[], []], num_nodes=1)
        >>> layer = VelocityEGNN(1, hidden=4)
        >>> for p in layer.phi_v.parameters(): _ = p.data.zero_()
        >>> for p in layer.phi_v.linears[1].parameters(): _ = p.data.fill_(2.0)
        >>> layer(alone, torch.zeros(1, 1), torch.tensor([[5.0]]), torch.tensor([[1.0]]))[1].item()
        7.0
    """

    def __init__(self, channels: int, hidden: int, edges: int = 0, activation: str = "silu") -> None:
        super().__init__(channels, hidden, edges, activation)
        self.phi_v = MLP([channels, hidden, 1], activation)

    def forward(  # type: ignore[override]
        self, graph: Graph, h: NodeRows, x: Places, v: Places, a_ij: Tensor | None = None, cell: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        check_nodes(graph, v, x.shape[-1], "v", whole=True)
        new, moved = super().forward(graph, h, x, a_ij, cell)
        return new, moved + self.phi_v(h) * v

    @staticmethod
    def example() -> Example:
        return VelocityEGNN(3, 4), example_graph(), (torch.randn(5, 3), torch.randn(5, 3), torch.randn(5, 3))


class AttentionEGNN(EGNN):
    """E(n)-equivariant graph layer that infers which edges there are: each message has a gate.

    Equation    m_ij = φ_e(h_i, h_j, |x_i - x_j|², a_ij)                     (3)
                e_ij = sigmoid(wᵀ m_ij + b)                                  §3.3
                x_i' = x_i + C Σ_{j ∈ N(i)} (x_i - x_j) φ_x(e_ij m_ij)       (4)
                h_i' = h_i + φ_h(h_i, Σ_{j ∈ N(i)} e_ij m_ij)                (8), (6)
    Symbols     as in `EGNN`; phi_inf = w, b
    Shapes      as `EGNN`
    Differs     that (4) reads the gated message is the authors' code
    Reference   Satorras, Hoogeboom & Welling, 2021, §3.3

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer = AttentionEGNN(1, hidden=4)
        >>> _ = layer.phi_inf.bias.data.fill_(-1e9)  # no edge is there
        >>> _ = layer.phi_x.linears[0].bias.data.zero_()
        >>> layer(pair, torch.zeros(2, 1), torch.tensor([[0.0], [4.0]]))[1].tolist()
        [[0.0], [4.0]]
    """

    def __init__(self, channels: int, hidden: int, edges: int = 0, activation: str = "silu") -> None:
        super().__init__(channels, hidden, edges, activation)
        self.phi_inf = Linear(hidden, 1)

    def message(self, h: Tensor, x_ij: Tensor, a_ij: Tensor | None) -> EdgeNetwork:
        return replace(super().message(h, x_ij, a_ij), gate=maps_of([self.phi_inf])[0])  # e_ij m_ij

    @staticmethod
    def example() -> Example:
        return AttentionEGNN(3, 4), example_graph(), (torch.randn(5, 3), torch.randn(5, 3))


class RadialField(Layer):
    """Radial field with velocities: a force along each line, whose strength depends on the distance.

    Equation    x_i' = x_i + φ_v(|v_i|) v_i + C Σ_{j ∈ N(i)} (x_i - x_j) φ_rf(log |x_i - x_j|, a_ij)
    Symbols     C = 1/|N(i)|; phi_rf = φ_rf; phi_v = φ_v; a_ij = what is known of an edge
    Shapes      x and v [*, N, D], a_ij [*, E, edges], cell [D] -> x' [*, N, D]
    Cost        time O(E hidden), memory O(E hidden)
    Differs     φ_v is of the comparison by Satorras et al., who sum without C and put tanh after φ_rf, to keep it
                stable. Here C is the mean, and φ_rf reads ½ log(|x_ij|² + 10⁻⁴): smooth, and without a bound
    Reference   Köhler, Klein & Noé, "Equivariant flows", 2019; Satorras, Hoogeboom & Welling, 2021, table 1 and §5.1

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer = RadialField(hidden=4)
        >>> for p in layer.phi_rf.parameters(): _ = p.data.zero_()
        >>> _ = layer.phi_rf.linears[1].bias.data.fill_(1.0)  # each goes off by the distance
        >>> layer(pair, torch.tensor([[0.0], [4.0]]), torch.zeros(2, 1)).tolist()
        [[-4.0], [8.0]]
    """

    def __init__(self, hidden: Count, edges: Natural = 0, activation: str = "silu") -> None:
        super().__init__()
        self.phi_rf = begin_small(MLP([1 + edges, hidden, 1], activation))
        self.phi_v = MLP([1, hidden, 1], activation)

    def forward(
        self, graph: Graph, x: Places, v: Places, a_ij: Tensor | None = None, cell: Tensor | None = None
    ) -> Tensor:
        check_nodes(graph, v, x.shape[-1], "v", whole=True)
        x_ij = displacements(graph, x, cell)
        m_ij = self.phi_rf.message_of_edges(beside(log_lengths(x_ij), a_ij), scale=x_ij)
        return x + self.phi_v(lengths(v)) * v + collect(graph, m_ij, "mean")

    @staticmethod
    def example() -> Example:
        return RadialField(4), example_graph(), (torch.randn(5, 3), torch.randn(5, 3))
