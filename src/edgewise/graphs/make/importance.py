"""Senders drawn for a whole layer at once, the important ones more often: an unbiased estimate of a convolution."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import torch
from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs import checks
from edgewise.graphs import forms as lowering
from edgewise.graphs.graph import Graph


@dataclass(frozen=True, eq=False)
class LayerSample:
    """For each layer of a network some senders for some receivers, and what each edge counts.

    Symbols     M = nodes whose features the first layer reads; graphs[l], weights[l] = what layer l runs on
    Shapes      nodes [M]; graphs: L of them, in the order of the layers; weights: L tensors [E_l]

    The receivers of graphs[l] are the senders of graphs[l + 1]; those of the last are the seeds. Unlike in a `Sample`,
    a receiver is not among its senders unless it was drawn itself.
    """

    nodes: Tensor
    graphs: tuple[Graph, ...]
    weights: tuple[Tensor, ...]

    def to(self, device: torch.device | str) -> Self:
        """The same sample on a device."""
        graphs = tuple(graph.to(device) for graph in self.graphs)
        return type(self)(self.nodes.to(device), graphs, tuple(part.to(device) for part in self.weights))


def importance(graph: Graph, weight: Tensor, power: float = 2.0) -> Tensor:
    """How likely to draw each sender: the more, the more it counts for all receivers together.

    Equation    q(u) = c_u^p / Σ_u' c_u'^p,  c_u = (Σ_v Â(v, u)²)^½, the norm of column u
    Symbols     weight = Â on the edges; power = p: 2 is the paper's; 1 gives the least variance for features of one
                length; 0 draws evenly among the nodes that anyone listens to
    Shapes      weight [E] -> [J], in float64
    Errors      a weight that is not one finite number per edge; a graph in which no edge counts
    Cost        O(E)
    Reference   Chen, Ma & Xiao, "FastGCN", 2018, (10) and Algorithm 2

    Example
        >>> star = Graph.from_edge_index([[0, 0, 1], [0, 1, 2]], num_nodes=3)
        >>> importance(star, torch.ones(3)).tolist()  # two listen to 0, one to 1, none to 2
        [0.6666666666666666, 0.3333333333333333, 0.0]
    """
    checks.graph_first(graph, weight)
    power, squares = checks.real_number(power, "power"), checks.numbers_of(weight, "weight", graph).double().square()
    column = squares.new_zeros(graph.num_senders).index_add(0, graph.senders, squares)
    chance = torch.where(column > 0, column ** (power / 2), 0)
    total = float(chance.sum())
    if not (0 < total < torch.inf and bool(squares.isfinite().all())):
        raise GraphError("no sender can be drawn: the weights are all 0, or not finite")
    return chance / total


def sample_layers(
    graph: Graph,
    weight: Tensor,
    chance: Tensor,
    seeds: Any,
    sizes: Sequence[int],
    generator: torch.Generator | None = None,
) -> LayerSample:
    """Senders for each layer, drawn from all nodes at once and shared by all receivers of that layer.

    Equation    Σ_u Â(v, u) x_u  ≈  1/t Σ_{j=1..t} Â(v, u_j) / q(u_j) x_{u_j},  u_j ~ q independently    (8)
    Symbols     weight = Â on the edges; chance = q [J], as from `importance`; sizes = t of each layer, from the seeds
                inwards; a sender that is drawn k times counts k times, as one edge
    Shapes      seeds [S] integers -> `LayerSample` with len(sizes) graphs; the last has the seeds as receivers
    Errors      a graph whose receivers are not its senders; a seed out of range; a size below 1; a wrong `chance`
    Edge cases  unbiased wherever q(u) > 0 for every u with a weight; a receiver none of whose senders were drawn gets 0
                weights that are whole numbers give fractions, in PyTorch's default dtype
    Cost        O(J + edges of the receivers) for each layer
    Differs     the estimate of each layer is unbiased; what follows a nonlinearity is consistent only, as in the paper
    Reference   Chen, Ma & Xiao, "FastGCN", 2018

    Example
        >>> ring = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], num_nodes=3)
        >>> sample = sample_layers(ring, torch.ones(3), torch.ones(3) / 3, [1], sizes=[64])
        >>> x, hop = torch.tensor([5.0, 0.0, 0.0]), sample.graphs[0]
        >>> bool((hop.to_scipy(sample.weights[0]) @ x[sample.nodes].numpy()) > 2)  # 5 on average
        True
    """
    checks.graph_first(graph, weight)
    checks.check_generator(generator)
    graph.require_square("sample_layers")
    checks.numbers_of(weight, "weight", graph)
    checks.numbers_of(chance, "chance", graph, "sender")
    listed = checks.several(sizes, "sizes must list how many senders to draw for each layer, as [64, 64]")
    counts = [checks.whole_number(size, f"sizes[{layer}]", least=1) for layer, size in enumerate(listed)]
    nodes = checks.index_tensor(seeds, "seeds", axes=1).to(graph.device)
    checks.in_range(nodes, graph.num_receivers, "seed", "node", f"the graph has {graph.num_receivers} nodes")
    cumulative = chance.double().cumsum(0)
    if not bool((chance >= 0).all()) or not 0 < float(chance.double().sum()) < torch.inf:
        raise GraphError("chance must hold numbers of at least 0, one of them above it")
    graphs, weights = [], []
    dtype = weight.dtype if weight.is_floating_point() else torch.get_default_dtype()
    device = "cpu" if generator is None else generator.device
    for count in counts:
        even = torch.rand(count, dtype=torch.float64, device=device, generator=generator).to(graph.device)
        drawn, times = torch.searchsorted(cumulative, even * cumulative[-1], right=True).unique(return_counts=True)
        hop, edges = _between(graph, nodes, drawn)
        factor = times / (count * chance.double()[drawn] / cumulative[-1])
        graphs.append(hop)
        weights.append((weight[edges] * factor[hop.senders]).to(dtype))
        nodes = drawn
    return LayerSample(nodes, tuple(reversed(graphs)), tuple(reversed(weights)))


def _between(graph: Graph, receivers: Tensor, senders: Tensor) -> tuple[Graph, Tensor]:
    """The graph of the edges from some senders, which ascend, to some receivers; and which edges those are."""
    rows, edges = lowering.edges_of(graph.offsets, receivers)
    place = torch.full((graph.num_senders,), -1, device=graph.device)
    place[senders] = torch.arange(len(senders), device=graph.device)
    inside = place[graph.senders[edges]] >= 0
    edges, rows = edges[inside], rows[inside]
    offsets = lowering.offsets_of(lowering.counts(rows, len(receivers)))
    return Graph.from_csr(offsets, place[graph.senders[edges]], len(senders)), edges
