"""SchNet: convolution with filters that are functions of the distance, so that atoms may be anywhere."""

from math import pi
from typing import Annotated

import torch
from torch import Tensor, nn

from edgewise.configuration import Bounds, Count, Positive
from edgewise.graphs import Graph, Partition
from edgewise.graphs.derived import cached
from edgewise.kernels import EdgeInput, EdgeNetwork, Filter, collect, maps_of, shifted_softplus
from edgewise.layers.geometric.geometry import check_cell, displacements, lengths
from edgewise.layers.plain.layer import Example, Layer, example_graph
from edgewise.layers.plain.linear import Linear
from edgewise.layers.plain.sides import NodeRows

Several = Annotated[int, Bounds(at_least=2)]


class SchNet(Layer):
    """Interaction block of SchNet: a continuous-filter convolution between two linear maps of every atom.

    Equation    W(r) = φ(e(r)) · ½ (cos(π r / r_c) + 1) for r < r_c, else 0
                y_i = Σ_{j ∈ N(i)} (W_in h_j) ∘ W(|x_i - x_j|)                 (2)
                h_i' = h_i + W_2 ssp(W_1 y_i + b_1) + b_2
                e_k(r) = exp(-γ (r - μ_k)²), μ_k evenly from 0 to r_c, γ = 1/(2 (μ_2 - μ_1)²)    (5)
    Symbols     filters = φ; into = W_in; first, second = W_1 and W_2 with biases; cutoff = r_c; ssp(z) = ln(½ e^z + ½)
    Shapes      h [*, N, channels], x [*, N, D], cell [D] -> [*, N, channels]; cutoff in the unit of x
    Edge cases  a node without senders within the cutoff: h_i and a constant; positions may coincide
    Cost        time O(N C F + E (G F + F²)) for G Gaussians and F filters; where all listen to one another, half of
                that, since a distance has one filter for both directions. Memory as that of `EdgeNetwork`
    Differs     the cosine that lets the filter end smoothly is that of SchNetPack and PyTorch Geometric
    Reference   Schütt et al., "SchNet", 2017

    Example
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> layer, h = SchNet(3, filters=4, cutoff=5.0), torch.randn(2, 3)
        >>> far, turned = torch.tensor([[0.0, 0.0], [3.0, 4.0]]), torch.tensor([[0.0, 0.0], [5.0, 0.0]])
        >>> torch.equal(layer(pair, h, far), layer(pair, h, turned))  # at the cutoff no message arrives
        True
    """

    def __init__(self, channels: Count, filters: Count, gaussians: Several = 50, cutoff: Positive = 10.0) -> None:
        super().__init__()
        self.cutoff, self.gaussians = cutoff, gaussians
        self.into = Linear(channels, filters, bias=False)
        self.filters = nn.ModuleList([Linear(gaussians, filters), Linear(filters, filters)])
        self.first = Linear(filters, channels)
        self.second = Linear(channels, channels)
        for linear in (self.into, *self.filters, self.first, self.second):
            nn.init.xavier_uniform_(linear.weight)

    def forward(self, graph: Graph, h: NodeRows, x: Tensor, cell: Tensor | None = None) -> Tensor:
        check_cell(cell)
        alike = (cell is None or cell.ndim < 2) and not torch.compiler.is_compiling()  # whose edges are data
        pairs = linked_pairs(graph) if alike else None
        edges = graph if pairs is None else pairs  # a distance has one filter for both directions
        W_ij = self.filter(lengths(displacements(edges, x, cell)))
        y = collect(edges, Filter(W_ij, self.into(h), both_ways=pairs is not None))  # (2)
        return h + self.second(shifted_softplus(self.first(y)))

    def filter(self, r: Tensor) -> EdgeNetwork:
        """W(r) of distances r [*, E, 1]: filters of that width."""
        ends_smoothly = torch.where(r < self.cutoff, 0.5 * (torch.cos(r * (pi / self.cutoff)) + 1), 0.0)
        first, second = maps_of(self.filters)
        return EdgeNetwork((second,), shifted_softplus, edges=EdgeInput(first, r, self.cutoff), scale=ends_smoothly)

    @staticmethod
    def example() -> Example:
        return SchNet(3, 4, gaussians=6, cutoff=4.0), example_graph(), (torch.randn(5, 3), torch.randn(5, 3))


@cached
def linked_pairs(graph: Graph) -> Graph | None:
    """Each pair of nodes with edges in both directions, once; None where an edge has no opposite."""
    if isinstance(graph, Partition) or not graph.is_square or bool((graph.senders == graph.receivers).any()):
        return None  # ranks hold the two directions of a pair; a loop is no pair
    transpose, _ = graph.transpose()
    if not torch.equal(transpose.offsets, graph.offsets) or not torch.equal(transpose.senders, graph.senders):
        return None
    once = graph.senders < graph.receivers
    index = torch.stack([graph.senders[once], graph.receivers[once]])
    return Graph.from_edge_index(index, num_nodes=graph.num_receivers)
