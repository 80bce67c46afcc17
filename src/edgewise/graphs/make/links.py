"""Pairs of nodes, linked and not: a cut of a graph's links that leaks nothing, and pairs without a link at random."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs import checks
from edgewise.graphs.checks import whole_number
from edgewise.graphs.derived import cached
from edgewise.graphs.forms import compact_edges
from edgewise.graphs.graph import Graph

FEW_PAIRS = 1 << 16  # so few pairs of nodes are all listed; of more, pairs are drawn


@dataclass(frozen=True, eq=False)
class LinkCut:
    """A graph's links in three parts, and the graph that a model may see.

    Symbols     graph = the training links alone, in both directions; train, valid, test = links to train, to choose the
                weights and to test on; valid_none, test_none = as many pairs without a link; e [E, 1] = how much each
                of the graph's edges counts, or None
    Shapes      pairs {i, j} are columns [2, M] with i < j: each link once, whichever way its edges lead
    """

    graph: Graph
    train: Tensor
    valid: Tensor
    valid_none: Tensor
    test: Tensor
    test_none: Tensor
    e: Tensor | None = None


@cached
def links_of(graph: Graph) -> Tensor:
    """Each pair of different nodes with an edge between them, once: [2, M] with i < j, in ascending order. Cached.

    Example
        >>> links_of(Graph.from_edge_index([[0, 1, 2, 2], [1, 0, 2, 0]], num_nodes=3)).tolist()
        [[0, 0], [1, 2]]
    """
    graph.require_square("a list of links")
    low, high = torch.minimum(graph.senders, graph.receivers), torch.maximum(graph.senders, graph.receivers)
    return _pairs((low * graph.num_receivers + high)[low < high].unique(), graph.num_receivers)


def sample_non_links(graph: Graph, count: int, generator: torch.Generator | None = None) -> Tensor:
    """Distinct pairs of different nodes without a link, each set of that size equally likely: [2, count], i < j.

    Errors      GraphError where there are fewer such pairs
    Edge cases  an edge in one direction is a link; a node is not paired with itself
    Cost        O(E log E + count) while links are few among the pairs; else, or of a few nodes, all pairs are listed

    Example
        >>> path = Graph.from_edge_index([[0, 1, 2], [1, 2, 3]], num_nodes=4)
        >>> sample_non_links(path, 3).tolist()
        [[0, 0, 1], [2, 3, 3]]
    """
    checks.graph_first(graph)
    checks.check_generator(generator)
    nodes, count = graph.num_receivers, whole_number(count, "count")
    linked = links_of(graph)
    linked = linked[0] * nodes + linked[1]
    free = nodes * (nodes - 1) // 2 - len(linked)
    drawn: dict[str, Any] = {"generator": generator, "device": generator.device if generator else "cpu"}
    if count > free:
        raise GraphError(f"{count} pairs without a link were requested, but this graph has {free}")
    if nodes * nodes <= FEW_PAIRS or count + len(linked) > free // 2:
        i, j = torch.triu_indices(nodes, nodes, 1, device=graph.device)
        pairs = _without(i * nodes + j, linked)
    else:
        pairs = linked[:0]
        while len(pairs) < count:
            ends = torch.randint(nodes, (2, 2 * (count - len(pairs)) + 16), **drawn).to(graph.device)
            low, high = ends.min(0).values, ends.max(0).values
            pairs = torch.cat([pairs, _without((low * nodes + high)[low < high], linked)]).unique()
    # Any `count` of those, not the first: they ascend.
    chosen = torch.randperm(len(pairs), **drawn)[:count].to(graph.device)
    return _pairs(pairs[chosen].sort().values, nodes)


def edges_between(graph: Graph, receivers: Tensor, senders: Tensor) -> tuple[Tensor, Tensor]:
    """Where the edges of some pairs lie in a graph's order: the first, and the one after the last; equal without any.

    Shapes      [M], [M] -> [M], [M]
    Errors      GraphError for nodes that the graph lacks; DataError for rows of a store whose offsets are out of range
    Cost        O(M log degree), on a store too: nothing else of it is read

    Example
        >>> twice = Graph.from_edge_index([[1, 2, 2], [0, 0, 0]], num_nodes=3)
        >>> [bound.tolist() for bound in edges_between(twice, torch.tensor([0, 1]), torch.tensor([2, 0]))]
        [[1, 3], [3, 3]]
    """
    checks.graph_first(graph)
    receivers, senders = (
        checks.index_tensor(ends, name, axes=1) for name, ends in (("receivers", receivers), ("senders", senders))
    )
    if receivers.shape != senders.shape:
        raise GraphError(f"pairs have as many receivers as senders, not {len(receivers)} and {len(senders)}")
    checks.in_range(receivers, graph.num_receivers, "pair", "receiver", f"the graph has {graph.num_receivers}")
    checks.in_range(senders, graph.num_senders, "pair", "sender", f"the graph has {graph.num_senders}")
    offsets, sources = compact_edges(graph)
    first, stop = offsets[receivers], offsets[receivers + 1]
    if graph.is_mapped and bool(((first < 0) | (stop < first) | (stop > len(sources))).any()):
        raise checks.damaged(graph)
    return _bound(sources, first, stop, senders), _bound(sources, first, stop, senders + 1)


def _bound(ascending: Tensor, first: Tensor, stop: Tensor, value: Tensor) -> Tensor:
    """The first place from `first` on, and before `stop`, with at least this value; else `stop`."""
    while bool((first < stop).any()):
        middle = (first + stop) // 2
        below = (first < stop) & (ascending[middle.clamp(max=len(ascending) - 1)] < value)
        first, stop = torch.where(below, middle + 1, first), torch.where(below, stop, middle)
    return first


def cut_links(graph: Graph, valid: float, test: float, generator: torch.Generator | None = None) -> LinkCut:
    """Hold out shares of a graph's links at random, with as many pairs without a link for each.

    Errors      GraphError for shares that are negative or leave no training link, or where pairs without a link run out
    Edge cases  self-loops and parallel edges are no links of their own; no pair is in two parts
    Cost        O(E log E)

    Example
        >>> from edgewise.graphs import window
        >>> cut = cut_links(window(101, 1), 0.1, 0.2)
        >>> cut.train.shape[1], cut.valid.shape[1], cut.test_none.shape[1], cut.graph
        (70, 10, 20, Graph(101 receivers, 101 senders, 140 edges))
    """
    checks.graph_first(graph)
    checks.check_generator(generator)
    valid, test = checks.real_number(valid, "valid"), checks.real_number(test, "test")
    links = links_of(graph)
    total = links.shape[1]
    if not 0 <= min(valid, test) <= valid + test < 1:
        raise GraphError(f"shares of {valid} and {test} of {total} links leave none to train on, or are none")
    held_valid, held_test = int(valid * total), int(test * total)
    drawn: dict[str, Any] = {"generator": generator, "device": generator.device if generator else "cpu"}
    order = torch.randperm(total, **drawn).to(graph.device)
    parts = links[:, order].split([held_valid, held_test, total - held_valid - held_test], 1)
    return hold_out(graph, parts[2], parts[0], parts[1], generator)


def hold_out(
    graph: Graph, train: Tensor, valid: Tensor, test: Tensor, generator: torch.Generator | None = None
) -> LinkCut:
    """The cut of a graph whose links are parted already, with as many pairs without a link for each part held out.

    Shapes      links [2, M] of each part, as `links_of` has them
    Errors      GraphError where pairs without a link run out
    """
    drawn: dict[str, Any] = {"generator": generator, "device": generator.device if generator else "cpu"}
    none = sample_non_links(graph, valid.shape[1] + test.shape[1], generator)
    none = none[:, torch.randperm(none.shape[1], **drawn).to(graph.device)]
    seen = Graph.from_edge_index(torch.cat([train, train.flip(0)], 1), graph.num_receivers)
    return LinkCut(seen, train, valid, none[:, : valid.shape[1]], test, none[:, valid.shape[1] :])


def _without(codes: Tensor, linked: Tensor) -> Tensor:
    """The codes that are not among the linked ones, which ascend."""
    if len(linked) == 0:
        return codes
    place = torch.searchsorted(linked, codes).clamp(max=len(linked) - 1)
    return codes[linked[place] != codes]


def _pairs(codes: Tensor, nodes: int) -> Tensor:
    return torch.stack([codes // max(nodes, 1), codes % max(nodes, 1)])
