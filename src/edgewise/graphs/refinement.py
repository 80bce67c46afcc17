"""Colour refinement: the Weisfeiler-Lehman tests, which bound what message passing can distinguish."""

from collections.abc import Sequence

import torch
from torch import Tensor

from edgewise.errors import GraphError, ShapeError, a_kind
from edgewise.graphs.checks import whole_number
from edgewise.graphs.graph import Graph


def refine(graph: Graph, colors: Tensor | None = None, rounds: int | None = None) -> Tensor:
    """Colour refinement (1-WL): nodes keep one colour as long as their neighbours' colours agree.

    Equation    c_i ← hash(c_i, {{c_j : j ∈ N(i)}}) until no class is split, or `rounds` times
    Symbols     colors = c at the beginning (all alike); {{...}} = multiset: parallel edges count as often as they occur
    Shapes      colors [N] integers -> [N] int64, numbered from 0: nodes have one number exactly where they have one
                colour, in all members of a batch alike
    Errors      GraphError for a graph whose receivers are not its senders; ShapeError for colours that do not fit
    Edge cases  on a directed graph a node sees those that it listens to; no nodes: no colours
    Cost        O(rounds (E + N log N)); at most N rounds, a few on most graphs
    Differs     colours are 64-bit hashes, a neighbourhood's is the sum of its colours' hashes: two different ones agree
                with a probability of about N² / 2⁶⁴
    Reference   Weisfeiler & Leman, 1968; Morris et al., "Weisfeiler and Leman go neural", 2019

    >>> path = Graph.from_edge_index([[0, 1, 1, 2, 2, 3], [1, 0, 2, 1, 3, 2]], num_nodes=4)
    >>> a, b, c, d = refine(path).tolist()
    >>> a == d, b == c, a == b
    (True, True, False)
    """
    c, count = _start(graph, colors), -1
    for _ in range(graph.num_receivers if rounds is None else whole_number(rounds, "rounds")):
        sums = torch.zeros(graph.num_edges + 1, dtype=torch.int64, device=graph.device)
        torch.cumsum(_mixed(c)[graph.senders], 0, out=sums[1:])  # sums wrap, and their differences wrap back
        c = _mixed(_mixed(c) * 3 + sums[graph.offsets].diff())
        classes = len(c.unique())
        if classes == count:
            break
        count = classes
    return c.unique(return_inverse=True)[1]


def refinement_classes(graphs: Sequence[Graph], order: int = 1, colors: Sequence[Tensor] | None = None) -> Tensor:
    """Which graphs a Weisfeiler-Lehman test distinguishes: graphs of one class may be isomorphic, others are not.

    Symbols     order = 1 for colour refinement, 2 for folklore 2-WL (`refined_pairs`); colors = one tensor of colours
                for each graph
    Shapes      G graphs -> [G] int64, numbered from 0
    Errors      GraphError for no graphs, another order, or a graph whose receivers are not its senders

    >>> hexagon = Graph.from_edge_index([[0, 1, 2, 3, 4, 5, 1, 2, 3, 4, 5, 0], [1, 2, 3, 4, 5, 0, 0, 1, 2, 3, 4, 5]], 6)
    >>> triangle = Graph.from_edge_index([[0, 1, 2, 1, 2, 0], [1, 2, 0, 0, 1, 2]], num_nodes=3)
    >>> pair = [hexagon, Graph.batch([triangle, triangle])]
    >>> refinement_classes(pair).unique().tolist(), refinement_classes(pair, order=2).unique().tolist()
    ([0], [0, 1])
    """
    if len(graphs) == 0 or order not in (1, 2):
        raise GraphError(f"refinement_classes takes graphs and order 1 or 2, not {len(graphs)} graphs, order {order}")
    if colors is not None and len(colors) != len(graphs):
        raise ShapeError(f"colors must be a tensor for each of {len(graphs)} graphs, not {len(colors)} tensors")
    if order == 2:
        histograms = [_mixed(c).sum() for c in refined_pairs(graphs, colors)]
    else:
        together = refine(Graph.batch(graphs), None if colors is None else torch.cat(list(map(_start, graphs, colors))))
        parts = together.split([graph.num_receivers for graph in graphs])
        histograms = [_mixed(part + 1).sum() for part in parts]
    return torch.stack(histograms).unique(return_inverse=True)[1]


def refined_pairs(graphs: Sequence[Graph], colors: Sequence[Tensor] | None = None) -> list[Tensor]:
    """Refinement of pairs (folklore 2-WL): as strong as 3-WL, and as any network of third-order tensors.

    Equation    c_ij ← hash(c_ij, {{(c_iw, c_wj) : w}}) until no class is split
                at first c_ij = (i = j, number of edges from j to i and back, colours of i and j)
    Shapes      colors [N] integers -> hashes [N, N] int64 for each graph, all refined as often
    Errors      as `refine`
    Cost        O(N³) a round, O(N²) memory
    Reference   Cai, Fürer & Immerman, 1992; Maron et al., "Provably powerful graph networks", 2019

    >>> from edgewise.graphs.patterns import complete
    >>> len(refined_pairs([complete(3)])[0].unique())  # a node and itself, a node and another
    2
    """
    pairs = []
    for number, graph in enumerate(graphs):
        c, edges = _start(graph, None if colors is None else colors[number]), graph.multiplicity()
        both = _mixed(_mixed(edges) * 3 + edges.t())
        alike = torch.eye(graph.num_receivers, dtype=torch.int64, device=graph.device)
        pairs.append(_mixed(_mixed(_mixed(both + alike) + _mixed(c)[:, None]) * 3 + _mixed(c)))
    count = -1
    while (classes := len(torch.cat([c.flatten() for c in pairs]).unique())) != count:
        count, pairs = classes, [_mixed(_mixed(c) * 3 + _through(c)) for c in pairs]
    return pairs


def _through(c: Tensor) -> Tensor:
    """Σ_w hash(c_iw, c_wj), [N, N]: one w after the other, so that memory stays N²."""
    total, first = torch.zeros_like(c), _mixed(c)
    for w in range(len(c)):
        total += _mixed(first[:, w, None] * 3 + c[w])
    return total


def _start(graph: Graph, colors: Tensor | None) -> Tensor:
    graph.require_square("colour refinement")
    if colors is None:
        return torch.ones(graph.num_receivers, dtype=torch.int64, device=graph.device)
    if not isinstance(colors, Tensor):
        raise ShapeError(f"colours must be a tensor of {graph.num_receivers} integers [N], not {a_kind(colors)}")
    if colors.shape != (graph.num_receivers,) or colors.is_floating_point():
        raise ShapeError(f"colours must be {graph.num_receivers} integers [N], not {colors.dtype} {list(colors.shape)}")
    return colors.to(graph.device, torch.int64)


def _mixed(x: Tensor) -> Tensor:
    """A bijection of 64-bit numbers, so that sums of different multisets differ: splitmix64 (Steele et al., 2014)."""
    x = x + _signed(0x9E3779B97F4A7C15)
    x = (x ^ _shifted(x, 30)) * _signed(0xBF58476D1CE4E5B9)
    x = (x ^ _shifted(x, 27)) * _signed(0x94D049BB133111EB)
    return x ^ _shifted(x, 31)


def _shifted(x: Tensor, bits: int) -> Tensor:
    return (x >> bits) & ((1 << (64 - bits)) - 1)  # without the copies of the sign


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
