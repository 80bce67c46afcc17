"""Patterns of blocks, drawn: row = receiver, column = sender."""

import pytest
import torch

from edgewise.errors import GraphError
from edgewise.graphs import Graph, bipartite, blocks, causal, complete
from graphs.examples import assert_drawn


def test_complete() -> None:
    assert_drawn(complete(5), "#####", "#####", "#####", "#####", "#####")
    assert_drawn(complete(2, 5), "#####", "#####")


def test_blocks() -> None:
    assert_drawn(blocks(5, 2), "##...", "##...", "..##.", "..##.", "....#")
    assert_drawn(blocks([3, 0, 2]), "###..", "###..", "###..", "...##", "...##")
    assert_drawn(blocks([1, 2], senders=[2, 3]), "##...", "..###", "..###")
    assert blocks(torch.tensor([3, 2])) == blocks([3, 2]) == blocks((3, 2))


def test_bipartite() -> None:
    assert_drawn(bipartite(2, 3), "..###", "..###", "##...", "##...", "##...")
    assert bipartite(3 * 10**9, 2 * 10**9).num_edges == 12 * 10**18  # at once: it is not summed
    graph = bipartite(5, 4)
    for first, last in [(0, 9), (0, 3), (2, 7), (5, 9), (4, 4)]:
        assert graph.rows(first, last).num_edges == int(graph.in_degrees()[first:last].sum())


def test_a_large_complete_graph_costs_nothing() -> None:
    graph = complete(10**9)
    assert (graph.num_edges, graph.density, graph.has_duplicates) == (10**18, 1.0, False)
    assert graph.rows(5, 10**8).num_edges == (10**8 - 5) * 10**9
    assert graph.union(causal(10**9)) == graph
    assert graph.intersection(causal(10**9)) == causal(10**9)
    assert Graph.batch([graph, complete(10**9, 7)]).num_senders == 10**9 + 7


@pytest.mark.parametrize("senders", [1, {2, 3}])
def test_sizes_are_a_list(senders: object) -> None:
    with pytest.raises(GraphError, match="senders must be a list of whole numbers"):
        blocks(5, 3, senders=senders)  # type: ignore[arg-type]
