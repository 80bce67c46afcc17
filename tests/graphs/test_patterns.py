"""Each pattern, drawn: row = receiver, column = sender."""

import copy
import time
from collections.abc import Callable

import pytest
import torch

from edgewise import GraphError
from edgewise.graphs import (
    PATTERNS,
    Graph,
    bipartite,
    blocks,
    causal,
    complete,
    disc,
    draw,
    fixed,
    fixed_parts,
    grid,
    squares,
    strided,
    strided_parts,
    window,
)
from edgewise.graphs.patterns import Window
from graphs.examples import PATTERNED


def assert_drawn(graph: Graph, *rows: str) -> None:
    assert draw(graph).splitlines() == list(rows)
    assert draw(Graph.from_edge_index(graph.edge_index(), graph.num_senders, graph.num_receivers)) == draw(graph)


def test_complete() -> None:
    assert_drawn(complete(5), "#####", "#####", "#####", "#####", "#####")
    assert_drawn(complete(2, 5), "#####", "#####")


def test_causal() -> None:
    assert_drawn(causal(5), "#....", "##...", "###..", "####.", "#####")
    assert_drawn(causal(2, offset=3), "####.", "#####")
    assert_drawn(causal(3, senders=2), "#.", "##", "##")


def test_window() -> None:
    assert_drawn(window(5, 1), "##...", "###..", ".###.", "..###", "...##")
    assert_drawn(window(5, 1, sides="past"), "#....", "##...", ".##..", "..##.", "...##")
    assert_drawn(window(5, 1, dilation=2), "#.#..", ".#.#.", "#.#.#", ".#.#.", "..#.#")
    assert_drawn(window(5, 0), "#....", ".#...", "..#..", "...#.", "....#")


def test_blocks() -> None:
    assert_drawn(blocks(5, 2), "##...", "##...", "..##.", "..##.", "....#")
    assert_drawn(blocks([3, 0, 2]), "###..", "###..", "###..", "...##", "...##")
    assert_drawn(blocks([1, 2], senders=[2, 3]), "##...", "..###", "..###")
    assert blocks(torch.tensor([3, 2])) == blocks([3, 2]) == blocks((3, 2))


def test_strided() -> None:
    assert_drawn(strided(5, 2), "#....", "##...", "###..", ".###.", "#.###")
    assert_drawn(strided(5, 1), *draw(causal(5)).splitlines())
    assert_drawn(strided(5, 9), *draw(causal(5)).splitlines())


def test_strided_parts() -> None:
    near, far = strided_parts(5, 2)
    assert_drawn(near, "#....", "##...", ".##..", "..##.", "...##")
    assert_drawn(far, "#....", ".#...", "#.#..", ".#.#.", "#.#.#")
    assert draw(near.union(far)) == draw(strided(5, 2))


def test_fixed() -> None:
    assert_drawn(fixed(5, 2), "#....", "##...", ".##..", ".###.", ".#.##")
    assert_drawn(fixed(5, 3, 2), "#....", "##...", "###..", ".###.", ".####")
    assert_drawn(fixed(5, 2, 2), *draw(causal(5)).splitlines())
    own, summaries = fixed_parts(5, 2)
    assert_drawn(own, "#....", "##...", "..#..", "..##.", "....#")
    assert_drawn(summaries, ".....", ".#...", ".#...", ".#.#.", ".#.#.")


@pytest.mark.parametrize("stride", [1, 2, 3, 5, 20])
@pytest.mark.parametrize("parts", [strided_parts, fixed_parts])
def test_two_steps_of_a_sparse_transformer_reach_all_the_past(
    parts: Callable[..., tuple[Graph, Graph]], stride: int
) -> None:
    """Child et al., §4.1: from any j to any i >= j there is a path through both factors."""
    near, far = (part.dense_mask() for part in parts(20, stride))
    paths = (far | torch.eye(20, dtype=torch.bool)).long() @ near.long()  # j speaks to its neighbourhood, that one to i
    assert torch.equal(paths > 0, torch.ones(20, 20).tril() > 0)


@pytest.mark.parametrize("pattern", [strided, fixed])
def test_a_stride_of_the_root_of_the_length_makes_few_edges(pattern: Callable[..., Graph]) -> None:
    """n √n, up to a constant: 64 times as many for 16 times the length."""
    short, long = pattern(1024, 32).num_edges, pattern(16384, 128).num_edges
    assert long <= 1.05 * 64 * short < 16384**2 / 32


def test_grid() -> None:
    assert_drawn(grid(1, 5), "##...", "###..", ".###.", "..###", "...##")
    assert_drawn(grid(5, 1, neighbors=4), "##...", "###..", ".###.", "..###", "...##")
    assert_drawn(grid(2, 3, neighbors=4), "##.#..", "###.#.", ".##..#", "#..##.", ".#.###", "..#.##")
    assert_drawn(grid(2, 3, neighbors=8, loops=False), ".#.##.", "#.####", ".#..##", "##..#.", "####.#", ".##.#.")
    # The middle pixel of a 3 x 3 image sees all nine, or the cross.
    assert draw(grid(3, 3)).splitlines()[4] == "#########"
    assert draw(grid(3, 3, neighbors=4, loops=False)).splitlines()[4] == ".#.#.#.#."


def test_squares() -> None:
    assert_drawn(squares(2, 3, 2), "##.##.", "##.##.", "..#..#", "##.##.", "##.##.", "..#..#")
    assert_drawn(squares(2, 3, 2, shift=1), "#.....", ".##...", ".##...", "...#..", "....##", "....##")
    assert squares(4, 6, 9).num_edges == 24 * 24
    with pytest.raises(GraphError, match="shift=2 must be below size=2"):
        squares(4, 4, 2, shift=2)


@pytest.mark.parametrize(
    "shape", [(14, 14, 7, 0), (14, 14, 7, 3), (5, 4, 3, 1), (2, 9, 4, 3), (3, 3, 7, 0), (0, 3, 2, 1)]
)
def test_in_another_order_squares_are_blocks(shape: tuple[int, int, int, int]) -> None:
    graph = squares(*shape)
    assert graph.rule is not None
    found = graph.rule.by_block()
    assert found is not None
    order, blocks = found
    assert sorted(order) == list(range(graph.num_receivers))
    assert torch.equal(graph.dense_mask()[order][:, order], Graph(blocks).dense_mask())


def test_disc() -> None:
    assert_drawn(disc(2, 3, radius=1), "##.#..", "###.#.", ".##..#", "#..##.", ".#.###", "..#.##")
    assert_drawn(disc(1, 5, radius=1, torus=False), "##...", "###..", ".###.", "..###", "...##")
    assert disc(4, 5) == grid(4, 5)
    middle = disc(5, 5, radius=2.3).dense_mask()[12].view(5, 5)
    assert middle.int().tolist() == [[0, 1, 1, 1, 0], [1] * 5, [1] * 5, [1] * 5, [0, 1, 1, 1, 0]]
    corner = disc(5, 5, radius=2, torus=True).dense_mask()[0].view(5, 5)
    assert corner.int().tolist() == [[1] * 5, [1, 1, 0, 0, 1], [1, 0, 0, 0, 0], [1, 0, 0, 0, 0], [1, 1, 0, 0, 1]]
    everywhere = disc(6, 7, radius=2.3, torus=True)
    assert everywhere.in_degrees().tolist() == [21] * 42
    assert everywhere.rule is not None
    assert everywhere.transpose()[0] == everywhere


def test_bipartite() -> None:
    assert_drawn(bipartite(2, 3), "..###", "..###", "##...", "##...", "##...")


def test_the_table_holds_the_functions() -> None:
    names = ["complete", "causal", "window", "blocks", "strided", "fixed", "grid", "squares", "disc", "bipartite"]
    assert list(PATTERNS) == names
    assert all(function.__name__ == name for name, function in PATTERNS.items())


@pytest.mark.parametrize("graph", PATTERNED, ids=str)
def test_edges_are_counted_without_being_made(graph: Graph) -> None:
    graph = copy.copy(graph)  # without what other tests derived
    assert graph.num_edges == int(graph.dense_mask().sum())
    assert "senders" not in vars(graph)
    assert graph.in_degrees().tolist() == graph.dense_mask().sum(1).tolist()
    assert "senders" not in vars(graph)
    assert graph.senders.shape == (graph.num_edges,)


def test_no_pattern_is_lowered_through_its_dense_predicate(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise AssertionError("the predicate was evaluated")

    monkeypatch.setattr(Window, "listens", refuse)
    graph = window(65536, 128)
    started = time.perf_counter()
    ranges = graph.ranges()
    assert graph.num_edges == 65536 * 257 - 128 * 129
    assert time.perf_counter() - started < 1  # a few milliseconds on a quiet machine
    assert ranges is not None
    assert ranges[0].shape == (65536, 1)


def test_a_large_complete_graph_costs_nothing() -> None:
    graph = complete(10**9)
    assert (graph.num_edges, graph.density, graph.has_duplicates) == (10**18, 1.0, False)
    assert graph.rows(5, 10**8).num_edges == (10**8 - 5) * 10**9
    assert graph.union(causal(10**9)) == graph
    assert graph.intersection(causal(10**9)) == causal(10**9)
    assert Graph.batch([graph, complete(10**9, 7)]).num_senders == 10**9 + 7


def test_patterns_with_many_intervals_have_no_ranges() -> None:
    assert strided(100, 5).ranges() is None
    assert window(100, 5, dilation=2).ranges() is None
    assert strided(20, 5).ranges() is not None
    for graph in (complete(9), causal(9), window(9, 2), blocks(9, 2), grid(3, 3), bipartite(4, 5)):
        ranges = graph.ranges()
        assert ranges is not None
        assert ranges[0].shape[1] <= 4
