"""Patterns in the plane, drawn: row = receiver, column = sender."""

import sys
from itertools import product

import pytest
import torch

from edgewise import GraphError
from edgewise.graphs import Graph, disc, draw, grid, squares
from graphs.examples import assert_drawn


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
def test_edges_are_counted_in_closed_form(height: int, width: int) -> None:
    graphs = [grid(height, width, neighbors, loops) for neighbors in (4, 8) for loops in (False, True)]
    graphs += [squares(height, width, size, shift) for size, shift in ((1, 0), (2, 0), (2, 1), (9, 4))]
    graphs += [disc(height, width, radius) for radius in (0, 1.5, 2.3, 1e300)]
    graphs += [disc(height, width, 1.5, torus=True)] if min(height, width) >= 3 else []
    for graph in graphs:
        assert graph.num_edges == int(graph.in_degrees().sum()) == len(graph.senders)


def test_a_huge_image_is_counted_at_once() -> None:
    assert grid(100_000, 60_000).num_edges == 299_998 * 179_998
    assert torch.compile(lambda: torch.ones(squares(4, 5, 2).num_edges), backend="eager", fullgraph=True)().sum() == 72
