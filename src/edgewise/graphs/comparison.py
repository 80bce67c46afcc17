"""How alike two collections of graphs are: by what their nodes' degrees and triangles say, and graph by graph."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs.graph import Graph
from edgewise.graphs.make.links import links_of, sample_non_links
from edgewise.graphs.refinement import refinement_classes

BINS = 100  # of a histogram of clustering coefficients


def clustering(graph: Graph) -> Tensor:
    """How many of the pairs of a node's neighbours are linked themselves.

    Equation    c_i = (A³)_ii / d_i (d_i - 1)
    Symbols     A = the graph without directions, self-loops and parallel edges; d_i = degree of node i
    Shapes      -> [N], float64, from 0 to 1
    Errors      GraphError for a graph whose receivers are not its senders
    Edge cases  a node of fewer than two neighbours: 0
    Cost        O(N³) time and O(N²) memory: for small graphs
    Reference   Watts & Strogatz, "Collective dynamics of 'small-world' networks", 1998

    >>> kite = Graph.from_edge_index([[0, 0, 1, 2], [1, 2, 2, 3]], num_nodes=4)  # a triangle with a tail
    >>> clustering(kite).tolist()
    [1.0, 1.0, 0.3333333333333333, 0.0]
    """
    a = _adjacency(graph)
    d = a.sum(1)
    return ((a @ a) * a).sum(1) / (d * (d - 1)).clamp(min=1)


def degree_distribution(graph: Graph) -> Tensor:
    """The share of the nodes of each degree 0, ..., N - 1 (no directions, self-loops, parallel edges): [N], float64."""
    degrees = _adjacency(graph).sum(1).long()
    return torch.bincount(degrees, minlength=graph.num_receivers).double() / max(graph.num_receivers, 1)


def clustering_distribution(graph: Graph) -> Tensor:
    """The share of the nodes with a clustering coefficient in each hundredth of [0, 1]: [100], float64."""
    place = (clustering(graph) * BINS).long().clamp(max=BINS - 1)
    return torch.bincount(place, minlength=BINS).double() / max(graph.num_receivers, 1)


def discrepancy(first: Sequence[Tensor], second: Sequence[Tensor], width: float = 1.0, sigma: float = 1.0) -> float:
    """The maximum mean discrepancy (squared) of two collections of histograms, under a Gaussian kernel of how far apart
    their mass lies.

    Equation    MMD² = E k(p, p') + E k(q, q') - 2 E k(p, q),  k(p, q) = exp(-W(p, q)² / 2 σ²),
                W(p, q) = width Σ_b |Σ_{a<=b} (p_a - q_a)|, the first Wasserstein distance
    Symbols     first, second = p, q: histograms [B] of any lengths, each of sum 1; width = of one bin
    Errors      GraphError for an empty collection
    Edge cases  means are over all pairs, a histogram with itself included: two samples of one law differ by about
                1/|first| + 1/|second| at most, and a collection does not differ from itself
    Cost        O((|first| + |second|)² B)
    Reference   Gretton et al., 2012; You et al., "GraphRNN", 2018, §4.3, whose "MMD" is this square

    >>> discrepancy([torch.tensor([1.0, 0.0])], [torch.tensor([0.0, 1.0])])  # 2 - 2 exp(-1/2)
    0.7869...
    """
    if not first or not second:
        raise GraphError("a discrepancy is between two collections of at least one graph each")
    length = max(len(p) for p in (*first, *second))
    p, q = (_cumulative(some, length) for some in (first, second))

    def likeness(one: Tensor, other: Tensor) -> float:
        return float(torch.exp(-(width * torch.cdist(one, other, p=1)).square() / (2 * sigma**2)).mean())

    return likeness(p, p) + likeness(q, q) - 2 * likeness(p, q)


def degree_discrepancy(first: Sequence[Graph], second: Sequence[Graph]) -> float:
    """MMD² of the degree distributions of two collections of graphs; σ = 1, one degree."""
    p, q = ([degree_distribution(graph) for graph in some] for some in (first, second))
    return discrepancy(p, q)


def clustering_discrepancy(first: Sequence[Graph], second: Sequence[Graph]) -> float:
    """MMD² of the distributions of clustering coefficients of two collections of graphs; σ = 0.1."""
    p, q = ([clustering_distribution(graph) for graph in some] for some in (first, second))
    return discrepancy(p, q, width=1 / BINS, sigma=0.1)


def isomorphism_classes(graphs: Sequence[Graph]) -> list[int]:
    """Which graphs are the same up to the numbering of their nodes: [G], numbered from 0 in order of appearance.

    Errors      GraphError for a graph whose receivers are not its senders
    Edge cases  directions, self-loops and parallel edges are left out of account; no graphs: no classes
    Cost        a hash for each graph (1-WL), then a search for an isomorphism (VF2) only between graphs of one hash:
                exponential at worst, a few milliseconds on the small graphs that this is for

    >>> path = Graph.from_edge_index([[0, 1], [1, 2]], num_nodes=3)
    >>> isomorphism_classes([path, path.permute([2, 0, 1]), Graph.from_edge_index([[0], [1]], num_nodes=3)])
    [0, 0, 1]
    """
    import networkx

    if not graphs:
        return []
    simple = [graph.symmetrise().remove_self_loops().coalesce() for graph in graphs]
    classes: list[int] = []
    known: dict[int, list[tuple[Any, int]]] = {}  # of each hash, one graph of each class
    for graph, number in zip(simple, refinement_classes(simple).tolist(), strict=True):
        here, alike = graph.to_networkx().to_undirected(), known.setdefault(number, [])
        name = next((name for other, name in alike if networkx.is_isomorphic(here, other)), None)
        if name is None:
            name = sum(map(len, known.values()))
            alike.append((here, name))
        classes.append(name)
    return classes


def random_alike(graph: Graph, generator: torch.Generator | None = None) -> Graph:
    """An Erdős-Rényi graph G(n, m): as many nodes and as many links, each set of links equally likely.

    Cost        that of `sample_non_links`: O(m) time and memory while links are few among the pairs
    """
    links, n = links_of(graph), graph.num_receivers
    return undirected(sample_non_links(undirected(links[:, :0], n), links.shape[1], generator), n)


def undirected(links: Any, nodes: int) -> Graph:
    """The graph of links [2, M], each in both directions."""
    links = torch.as_tensor(links, dtype=torch.int64).view(2, -1)
    return Graph.from_edge_index(torch.cat([links, links.flip(0)], 1), nodes)


def _adjacency(graph: Graph) -> Tensor:
    links = links_of(graph)
    a = torch.zeros(graph.num_receivers, graph.num_receivers, dtype=torch.float64)
    a[links[0], links[1]] = a[links[1], links[0]] = 1
    return a


def _cumulative(histograms: Sequence[Tensor], length: int) -> Tensor:
    return torch.stack([torch.cat([p, p.new_zeros(length - len(p))]) for p in histograms]).double().cumsum(1)
