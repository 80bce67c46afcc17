"""Patterns on a line, drawn: row = receiver, column = sender."""

import sys
import time
from collections.abc import Callable

import pytest
import torch

from edgewise.graphs import Graph, causal, complete, draw, fixed, strided, window
from edgewise.graphs.patterns.line import fixed_parts, strided_parts
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
