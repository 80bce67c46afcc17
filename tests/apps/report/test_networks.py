import re

import numpy as np
import pytest

from edgewise import Graph
from edgewise.apps.report import networks
from edgewise.apps.report.networks import alignment, coloured, graph_scores
from edgewise.tasks.core.drawing import Alignment, Coloured, Scores


@pytest.mark.parametrize("edges", [[(0, 1), (1, 2)], [(0, 1)], []])
def test_a_layout_gives_every_node_a_finite_place_of_its_own(edges: list[tuple[int, int]]) -> None:
    receivers = np.array([i for i, _ in edges], dtype=np.int64)
    senders = np.array([j for _, j in edges], dtype=np.int64)
    places = networks.lay_out(4, receivers, senders)
    assert places.shape == (4, 2)
    assert np.isfinite(places).all()
    assert len({tuple(place) for place in places.round(6)}) == 4
    np.testing.assert_array_equal(places, networks.lay_out(4, receivers, senders))


PAIR = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)


def test_a_graph_has_both_colours_and_its_names() -> None:
    drawn = graph_scores(Scores(PAIR, np.array([1.0, -1.0]), np.array([0.5, -0.5]), ["first", "second"]))
    assert "first" in drawn and "second" in drawn
    assert "var(--accent)" in drawn and "var(--warm)" in drawn


def test_double_bonds_are_two_lines_and_places_are_kept() -> None:
    places = np.array([[0.0, 0.0], [1.0, 0.0]])
    one, two = (graph_scores(Scores(PAIR, None, np.zeros(2), ["C", "O"], places, np.array([n, n]))) for n in (1, 2))
    heights = [{float(y) for y in re.findall(r"[ML][-\d.]+ ([-\d.]+)", drawn)} for drawn in (one, two)]
    (middle,), (above, below) = heights[0], sorted(heights[1])
    width = np.ptp([float(x) for x in re.findall(r'<circle cx="([-\d.]+)"', one)])
    assert (middle - above, below - middle) == pytest.approx([0.006 * width] * 2, abs=0.02)


def test_a_matrix_has_its_labels_and_both_colours() -> None:
    drawn = alignment(Alignment(np.array([[1.0, -0.5, 0.0]]), ["row"], ["p", "q", "r"]))
    assert "row" in drawn and "var(--accent)" in drawn and "var(--warm)" in drawn


def test_a_text_is_coloured_by_sign_and_strength() -> None:
    text = coloured(Coloured(["good ", "<b>bad</b>"], np.array([2.0, -1.0]), "words"))
    assert "var(--accent) 60%" in text and "var(--warm) 30%" in text
    assert "&lt;b&gt;bad&lt;/b&gt;" in text and "<b>" not in text


def test_nothing_is_drawn_of_scores_that_are_all_0() -> None:
    assert "nan" not in graph_scores(Scores(PAIR, np.zeros(2), np.zeros(2), ["a", "b"])).lower()
