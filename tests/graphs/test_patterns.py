"""Patterns, drawn: row = receiver, column = sender."""

import copy
import sys
from collections.abc import Callable
from functools import partial
from itertools import product
from typing import Literal

import pytest
import torch

from edgewise.errors import GraphError
from edgewise.graphs import (
    EncoderDecoderGraph,
    Graph,
    bipartite,
    blocks,
    causal,
    complete,
    disc,
    draw,
    fixed,
    grid,
    squares,
    strided,
    window,
)
from edgewise.graphs.patterns import fixed_parts, strided_parts
from edgewise.graphs.rule import Window
from graphs.examples import PATTERNED, assert_drawn


def test_causal() -> None:
    assert_drawn(causal(5), "#....", "##...", "###..", "####.", "#####")
    assert_drawn(causal(2, offset=3), "####.", "#####")
    assert_drawn(causal(3, senders=2), "#.", "##", "##")


def test_window() -> None:
    assert_drawn(window(5, 1), "##...", "###..", ".###.", "..###", "...##")
    assert_drawn(window(5, 1, sides="past"), "#....", "##...", ".##..", "..##.", "...##")
    assert_drawn(window(5, 1, dilation=2), "#.#..", ".#.#.", "#.#.#", ".#.#.", "..#.#")
    assert_drawn(window(5, 0), "#....", ".#...", "..#..", "...#.", "....#")


def test_a_window_may_reach_as_far_as_a_number_goes() -> None:
    assert torch.equal(window(4, sys.maxsize).dense_mask(), complete(4).dense_mask())
    assert window(4, sys.maxsize).ranges() is not None and window(4, sys.maxsize).num_edges == 16
    for dilation in (sys.maxsize, sys.maxsize // 2):
        alone = window(4, 3, dilation=dilation)
        assert alone.senders.tolist() == [0, 1, 2, 3] and alone.num_edges == 4
        assert torch.equal(alone.dense_mask(), torch.eye(4, dtype=torch.bool))


@pytest.mark.parametrize("sides", ["both", "past"])
def test_a_dilated_window_is_its_equation_at_any_offset(sides: Literal["both", "past"]) -> None:
    for receivers, senders, offset in ((4, 9, 0), (9, 5, 3), (3, 9, 12), (4, 0, 0), (0, 4, 2)):
        for radius, dilation in ((1, 2), (3, 2), (20, 3), (2, 5), (5, 11)):
            graph = Graph(Window(radius, dilation, sides), receivers, senders, offset)
            i, j = torch.arange(offset, offset + receivers)[:, None], torch.arange(senders)
            near = graph.rule.listens(i, j) if receivers and senders else torch.zeros(receivers, senders, dtype=bool)
            assert torch.equal(graph.multiplicity() > 0, near) and graph.num_edges == int(near.sum())


def test_a_stride_may_be_as_large_as_a_number_goes() -> None:
    for pattern in (strided, fixed):
        assert draw(pattern(5, sys.maxsize)) == draw(causal(5))
    assert fixed_parts(5, sys.maxsize)[1].num_edges == 0
    assert draw(fixed_parts(5, sys.maxsize, sys.maxsize)[1]) == draw(causal(5))
    assert draw(fixed_parts(5, sys.maxsize, sys.maxsize - 3)[1]) == draw(fixed_parts(5, 10, 7)[1])


def test_positions_beyond_64_bits_are_refused() -> None:
    with pytest.raises(GraphError, match=r"offset \+ receivers must be at most 2⁶³ - 1, not 9223372036854775810"):
        causal(3, senders=2, offset=sys.maxsize)


def test_strided() -> None:
    assert_drawn(strided(5, 2), "#....", "##...", "###..", ".###.", "#.###")
    assert_drawn(strided(5, 1), *draw(causal(5)).splitlines())
    assert_drawn(strided(5, 9), *draw(causal(5)).splitlines())


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


def test_edges_of_which_a_count_would_take_too_long_are_refused() -> None:
    with pytest.raises(GraphError, match=r"are counted in 357,142,950,000,000 ranges of 50,000,000 receivers"):
        _ = fixed(50_000_000, 7).num_edges


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
    for size, shift in ((10**9, 0), (sys.maxsize, 2), (sys.maxsize, sys.maxsize - 1)):
        large, as_large = squares(2, 3, size, shift), squares(2, 3, 4, min(shift, 3))
        assert large == as_large and large.ranges()[0].shape[1] == 4
    with pytest.raises(GraphError, match="shift=2 must be below size=2"):
        squares(4, 4, 2, shift=2)


@pytest.mark.parametrize(
    "shape", [(14, 14, 7, 0), (14, 14, 7, 3), (5, 4, 3, 1), (2, 9, 4, 3), (3, 3, 7, 0), (0, 3, 2, 1)]
)
def test_in_another_order_squares_are_blocks(shape: tuple[int, int, int, int]) -> None:
    graph = squares(*shape)
    assert graph.rule is not None
    blocks, listed = graph.rule.by_block()
    order = listed()
    assert blocks is not None
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


@pytest.mark.parametrize("torus", [False, True])
@pytest.mark.parametrize("radius", [1, 2, 3, 5, 5**0.5, 8**0.5, 13**0.5])
def test_a_disc_lists_the_edges_of_its_mask_beside_a_whole_radius_too(radius: float, torus: bool) -> None:
    for less in (0.0, 4e-16, 1e-12, 1e-9, 4e-9, 3e-8, 1e-6):
        for graph in (disc(11, 12, radius - less, torus), disc(11, 12, radius + less, torus)):
            edges = Graph.from_edge_index(graph.edge_index(), 132)
            assert torch.equal(edges.dense_mask(), graph.dense_mask())
    assert disc(11, 12, radius - 4e-16, torus) == disc(11, 12, radius, torus)


@pytest.mark.parametrize(("height", "width"), list(product(range(5), repeat=2)))
def test_edges_are_counted_without_a_list(height: int, width: int) -> None:
    graphs = [grid(height, width, neighbors, loops) for neighbors in (4, 8) for loops in (False, True)]
    graphs += [squares(height, width, size, shift) for size, shift in ((1, 0), (2, 0), (2, 1), (9, 4))]
    graphs += [disc(height, width, radius) for radius in (0, 1.5, 2.3, 1e300)]
    graphs += [disc(height, width, 1.5, torus=True)] if min(height, width) >= 3 else []
    for graph in graphs:
        assert graph.num_edges == int(graph.in_degrees().sum()) == len(graph.senders)


def test_the_edges_of_a_rule_are_a_number_to_the_compiler() -> None:
    assert torch.compile(lambda: torch.ones(squares(4, 5, 2).num_edges), backend="eager", fullgraph=True)().sum() == 72


def test_pairs_side_by_side_are_drawn():
    pairs = EncoderDecoderGraph.of([2, 3], [3, 1], partial(window, radius=1))
    assert draw(pairs.encoder).split() == ["##...", "##...", "..##.", "..###", "...##"]
    assert draw(pairs.decoder).split() == ["#...", "##..", "###.", "...#"]
    assert draw(pairs.cross).split() == ["##...", "##...", "##...", "..###"]


def test_nothing_is_written_out():
    """A batch of complete graphs stays a rule, and one of causal graphs a range per receiver."""
    pairs = EncoderDecoderGraph.of([5, 4], [3, 6])
    assert pairs.encoder.rule is not None and pairs.cross.rule is not None
    assert pairs.decoder.ranges() is not None and "senders" not in vars(pairs.decoder)


@pytest.mark.parametrize("lengths", [([], []), ([1], [1, 2])])
def test_pairs_have_two_sides(lengths):
    with pytest.raises(GraphError, match="as many of each"):
        EncoderDecoderGraph.of(*lengths)


@pytest.mark.parametrize("cross", [complete(3, 4), complete(2, 3), causal(4).rows(1, 4)])
def test_the_three_graphs_must_be_over_the_same_nodes(cross):
    with pytest.raises(GraphError, match="cross must have 3 receivers and 2 senders"):
        EncoderDecoderGraph(complete(2), causal(3), cross)
    with pytest.raises(GraphError, match="as many senders as receivers"):
        EncoderDecoderGraph(complete(2), causal(4).rows(1, 4), complete(3, 2))


def test_lengths_may_be_tensors_and_are_whole_numbers():
    pairs = EncoderDecoderGraph.of(torch.tensor([2, 3]), torch.tensor([3, 1]))
    assert pairs == EncoderDecoderGraph.of([2, 3], [3, 1])
    with pytest.raises(GraphError, match="a length of targets must be a whole number"):
        EncoderDecoderGraph.of([1], [0.5])
    with pytest.raises(GraphError, match="sources must be lengths, not an int"):
        EncoderDecoderGraph.of(1, [1])


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
