"""The table of patterns, and what holds of each."""

import copy

import pytest

from edgewise.graphs import Graph, bipartite, blocks, causal, complete, grid, strided, window
from graphs.examples import PATTERNED


@pytest.mark.parametrize("graph", PATTERNED, ids=str)
def test_edges_are_counted_without_being_made(graph: Graph) -> None:
    graph = copy.copy(graph)  # without what other tests derived
    assert graph.num_edges == int(graph.dense_mask().sum())
    assert "senders" not in vars(graph)
    assert graph.in_degrees().tolist() == graph.dense_mask().sum(1).tolist()
    assert "senders" not in vars(graph)
    assert graph.senders.shape == (graph.num_edges,)


def test_patterns_with_many_intervals_have_no_ranges() -> None:
    assert strided(100, 5).ranges() is None
    assert window(100, 5, dilation=2).ranges() is None
    assert strided(20, 5).ranges() is not None
    for graph in (complete(9), causal(9), window(9, 2), blocks(9, 2), grid(3, 3), bipartite(4, 5)):
        ranges = graph.ranges()
        assert ranges is not None
        assert ranges[0].shape[1] <= 4
