"""Radial field: particles pull and push one another along the lines between them, and carry nothing else."""

import torch
from torch import Tensor

from edgewise.configuration import Count, Natural
from edgewise.graphs import Graph
from edgewise.kernels import collect
from edgewise.layers.geometric.geometry import beside, displacements, lengths, log_lengths
from edgewise.layers.plain.layer import Example, Layer, example_graph
from edgewise.layers.plain.mlp import MLP, begin_small
from edgewise.layers.plain.sides import Places, check_nodes


class RadialField(Layer):
    """Radial field with velocities: a force along each line, whose strength depends on the distance.

    Equation    x_i' = x_i + φ_v(|v_i|) v_i + C Σ_{j ∈ N(i)} (x_i - x_j) φ_rf(log |x_i - x_j|, a_ij)
    Symbols     C = 1/|N(i)|; phi_rf = φ_rf; phi_v = φ_v; a_ij = what is known of an edge
    Shapes      x and v [*, N, D], a_ij [*, E, edges], cell [D] -> x' [*, N, D]
    Edge cases  a node without senders moves along its velocity only; without velocities (v = 0), φ_v plays no part
    Cost        time O(E hidden), memory O(E hidden)
    Differs     the flow of Köhler et al. has no velocities: φ_v is of the comparison by Satorras et al., who sum over
                the senders without C and put tanh after φ_rf, to keep it stable. Here C is the mean, as in their EGNN,
                and φ_rf reads the distance's logarithm, ½ log(|x_ij|² + 10⁻⁴): a force that falls with a power of the
                distance is then smooth, and needs no bound
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
