import numpy as np
import pytest

from edgewise.apps.report import figures, networks
from edgewise.graphs import complete
from edgewise.tasks.core.drawing import Network, Networks


@pytest.mark.parametrize("edges", [[(0, 1), (1, 2)], [(0, 1)], []])
def test_a_layout_gives_every_node_a_finite_place_of_its_own(edges: list[tuple[int, int]]) -> None:
    receivers = np.array([i for i, _ in edges], dtype=np.int64)
    senders = np.array([j for _, j in edges], dtype=np.int64)
    places = networks.lay_out(4, receivers, senders)
    assert places.shape == (4, 2)
    assert np.isfinite(places).all()
    assert len({tuple(place) for place in places.round(6)}) == 4
    np.testing.assert_array_equal(places, networks.lay_out(4, receivers, senders))


def test_every_node_of_small_graphs_has_the_colour_of_its_class() -> None:
    shown = Networks([(complete(4), np.full(4, 1))] * 3, ["a", "", "b"], columns=2)
    figure = networks.networks(shown)
    drawn = figures.svg(figure, "small")
    assert drawn.count(f"fill: {figures.CLASSES[1]}") + drawn.count(f'fill="{figures.CLASSES[1]}"') >= 12
    assert figures.CLASSES[0] not in drawn and figures.CLASSES[2] not in drawn
    assert [axes.get_title(loc="left") for axes in figure.axes] == ["a", "", "b", ""]


def test_wrong_nodes_are_crossed_and_the_centre_is_circled() -> None:
    wrong = np.array([False, True, True])
    plain = networks.network(Network(complete(3), np.zeros(3, int))).axes[0]
    drawn = networks.network(Network(complete(3), np.zeros(3, int), wrong=wrong, centre=0)).axes[0]
    ring, nodes, crosses = drawn.collections[-3:]
    assert [len(marks.get_offsets()) for marks in (ring, nodes, crosses)] == [1, 3, 2]
    assert len(plain.collections) == len(drawn.collections) - 2
