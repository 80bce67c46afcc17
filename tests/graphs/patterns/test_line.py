"""Patterns on a line, drawn: row = receiver, column = sender."""

import sys
from collections.abc import Callable
from typing import Literal

import pytest
import torch

from edgewise.errors import GraphError
from edgewise.graphs import Graph, causal, complete, draw, fixed, strided, window
from edgewise.graphs.patterns import fixed_parts, strided_parts
from edgewise.graphs.rule import Window
from graphs.examples import assert_drawn


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


@pytest.mark.parametrize("stride", [1, 2, 3, 5, 40])
@pytest.mark.parametrize(("receivers", "offset"), [(0, 0), (1, 3), (12, 0), (30, 4)])
def test_edges_of_a_strided_graph_are_counted_in_closed_form(stride: int, receivers: int, offset: int) -> None:
    graph = Graph(strided(1, stride).rule, receivers, receivers + offset, offset)
    assert graph.num_edges == int(graph.dense_mask().sum())
    assert strided(10**9, 10**3).num_edges == 10**9 * 1000 - 999 * 500 + 1000 * 10**6 * (10**6 - 1) // 2


def test_edges_of_which_a_count_would_take_too_long_are_refused() -> None:
    with pytest.raises(GraphError, match=r"are counted in 357,142,950,000,000 ranges of 50,000,000 receivers"):
        _ = fixed(50_000_000, 7).num_edges
