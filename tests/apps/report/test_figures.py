import re
from collections.abc import Iterator
from html import unescape
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.artist import Artist
from matplotlib.axes import Axes
from matplotlib.collections import LineCollection, PathCollection
from matplotlib.figure import Figure, SubFigure
from matplotlib.image import AxesImage
from matplotlib.lines import Line2D
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from edgewise.apps.report import figures, networks
from edgewise.apps.report.pages import DARK, LIGHT
from edgewise.graphs import Graph, complete
from edgewise.tasks.core.drawing import (
    Animation,
    Confusion,
    Curve,
    Curves,
    Films,
    Heat,
    HeatMap,
    HeatMaps,
    Matrix,
    Network,
    Networks,
    Panel,
    Parity,
    Pictures,
    Strip,
)
from recorded import check_recorded, summary


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape)


def curves() -> Figure:
    train = Curve("train", [1, 2, 3], [3.0, 2.0, 1.0], "accent")
    valid = Curve("<valid>", [3], [1.5], "warm")
    return figures.curves(Curves([Panel("loss", [train, valid]), Panel("fit", [train], "x", ([1], [2]))], mark=2))


def confusion() -> Figure:
    return figures.confusion(Confusion(np.array([[3, 1], [0, 4]]), ["<cats>", "dogs"]))


def network() -> Figure:
    graph = Graph.from_edge_index([[1, 0, 3, 2, 3], [0, 1, 2, 3, 3]], num_nodes=4)
    weights = np.array([0.2, 1.0, 0.5, 0.5, 0.5])
    wrong = np.array([False, True, False, False])
    shown = Network(graph, np.array([0, 1, 1, 0]), ["x", "y"], weights, wrong, ["a", "b", "c", "d"], 2)
    return networks.network(shown)


def crowd() -> Figure:
    ring = np.arange(81)
    return networks.network(Network(Graph.from_edge_index(np.stack([ring, (ring + 1) % 81]), 81), ring % 3))


def bare_network() -> Figure:
    return networks.network(Network(Graph.from_edge_index(np.zeros((2, 0), int), 1), np.array([0])))


def small_networks() -> Figure:
    pair = complete(2), np.array([0, 11])
    return networks.networks(Networks([pair, pair], ["<one>", ""], columns=3))


def tokens() -> Figure:
    return figures.matrix(Matrix(np.tril(np.ones((5, 3, 3))), ["<", "b", "␣"]))


def pictures() -> Figure:
    heat = drawn(2, 4, 4)
    rows = [Heat("attention", heat), Heat("of the patch", heat, [(0, 0), (3, 3)])]
    return figures.pictures(Pictures(drawn(2, 8, 8), ["1", "2, not 3"], [False, True], rows))


def examples() -> Figure:
    return figures.pictures(Pictures(drawn(2, 8, 8), ["1", "2, not 3"], [False, True]))


def heat_maps() -> Figure:
    region = np.zeros((4, 4), dtype=bool)
    region[:2] = True
    one = HeatMap("<slide>", drawn(8, 12, 3), drawn(2, 3), region, (2.0, 3.0))
    return figures.heat_maps(HeatMaps([one, one._replace(region=None)]))


def parity() -> Figure:
    return figures.parity(Parity(np.array([-1.0, 0.0, 2.0]), np.array([-1.1, 0.1, 2.0]), "eV/Å"))


DRAWINGS = [curves, parity, confusion, network, crowd, bare_network, small_networks]
DRAWINGS += [tokens, pictures, examples, heat_maps]


@pytest.mark.parametrize("draw", [curves, network, pictures])
def test_a_drawing_is_valid_xml_that_requests_nothing(draw) -> None:
    drawn = figures.svg(draw(), "name")
    ElementTree.fromstring(drawn)  # noqa: S314 (our own drawing)
    for reference in re.findall(r'(?:href|src)="([^"]*)"', drawn):
        assert re.match("#f[0-9a-f]{8}-|data:image/png;base64,", reference)
    assert "<script" not in drawn
    assert "<metadata" not in drawn


LOOKS: dict[type[Artist], str] = {
    Rectangle: "xy width height facecolor edgecolor linewidth alpha",
    Line2D: "data color linewidth linestyle markersize alpha",
    Text: "text color fontsize ha va rotation",
    AxesImage: "array extent alpha",
    PathCollection: "offsets sizes facecolor edgecolor linewidth",
    LineCollection: "segments color linewidth alpha",
    Axes: "aspect xlim ylim facecolor",
}


def described(artist: Artist) -> Iterator[str]:
    """What is visible of a drawing but for its ticks, a line for each part: where it is in the data, and its looks."""
    for part in artist.get_children():
        kind = next((kind for kind in LOOKS if isinstance(part, kind)), None)
        if kind and part.get_visible() and not (isinstance(part, Text) and not part.get_text()):
            looks = [f"{name} {summary(getattr(part, f'get_{name}')())}" for name in LOOKS[kind].split()]
            yield " ".join([kind.__name__, *looks])
        if isinstance(part, Axes):
            frame = [side for side, spine in part.spines.items() if spine.get_visible()]
            ticks = [
                [(tick.get_text(), tick.get_rotation()) for tick in axis.get_ticklabels()]
                for axis in (part.xaxis, part.yaxis)
            ]
            names = [axis.label.get_text() for axis in (part.xaxis, part.yaxis)]
            yield f"frame {summary(frame)} axes {summary(names)} ticks {summary(ticks)}"
        if isinstance(part, Axes | SubFigure):
            yield from described(part)


@pytest.mark.parametrize("draw", DRAWINGS)
def test_a_drawing_looks_as_on_record(draw) -> None:
    figure = draw()
    figures.svg(figure, "name")  # lays it out
    check_recorded(f"figures/{draw.__name__}", [summary(figure.get_size_inches()), *described(figure)])


@pytest.mark.parametrize("draw", [tokens])
def test_a_drawing_is_the_same_every_time(draw) -> None:
    assert figures.svg(draw(), "name") == figures.svg(draw(), "name")


@pytest.mark.parametrize("draw", [curves, pictures])
def test_ids_belong_to_the_drawing_and_each_reference_has_its_id(draw) -> None:
    drawn, other = (figures.svg(draw(), name) for name in ("name", "another"))
    ids = re.findall(r' id="([^"]*)"', drawn)
    assert all(re.match("f[0-9a-f]{8}-", one) for one in ids)
    assert not set(ids) & set(re.findall(r' id="([^"]*)"', other))
    assert {one[1:] for one in re.findall(r'href="(#[^"]*)"', drawn)} <= set(ids)
    assert set(re.findall(r"url\(#([^)]*)\)", drawn)) <= set(ids)


def test_colours_follow_the_page() -> None:
    drawn = figures.svg(curves(), "name")
    assert "var(--accent)" in drawn
    assert "var(--muted)" in drawn
    assert not re.search("#00000[1-6]", drawn)
    assert "DejaVu Sans', 'Bitstream" not in drawn, "the page chooses the typeface"
    assert LIGHT.keys() == DARK.keys()


def test_a_file_of_its_own_carries_the_page_colours() -> None:
    alone = figures.standalone(figures.svg(curves(), "name"))
    ElementTree.fromstring(alone.split("\n", 1)[1])  # noqa: S314 (our own drawing)
    assert LIGHT["accent"] in alone
    assert DARK["accent"] in alone


def test_a_picture_is_drawn_with_its_heat_and_the_outline_of_its_region() -> None:
    figure = heat_maps()
    assert [len(axes.images) for axes in figure.axes] == [1, 1, 2, 2]
    below = figure.axes[2]
    assert below.images[1].get_extent() == [0, 3, 2, 0]  # in cells of the heat
    assert len(below.collections) == 1 and not figure.axes[3].collections
    lines = np.concatenate([path.vertices for path in below.collections[0].get_paths()])
    np.testing.assert_allclose(lines[:, 1], 1)  # the region is the upper half of two cells


def test_names_of_any_length_and_script_are_cut_and_cost_no_warning() -> None:
    """matplotlib's typeface lacks these letters, which the page's typefaces have; warnings are errors here."""
    names = ["a name " * 40, "שלום " * 50, "🧪" * 200, "<b>日本語</b>" * 30]
    ring = Graph.from_edge_index([[0, 1, 2, 3], [1, 2, 3, 0]], num_nodes=4)
    shown = figures.svg(networks.network(Network(ring, np.arange(4), names, names=names)), "a")
    shown += figures.svg(figures.confusion(Confusion(np.eye(4, dtype=np.int64), names)), "b")
    texts = re.findall(r"<text[^>]*>([^<]*)</text>", shown)
    assert sum(text.endswith("…") for text in texts) == 16
    assert max(len(unescape(text)) for text in texts) == 24


def test_steps_are_whole_and_names_at_the_ends_stay_beside_their_panel() -> None:
    lines = [Curve(name, [1, 2, 3], [0.0, 1.0, 1.0], "accent") for name in "abc"]
    figure = figures.curves(Curves([Panel("loss", lines)]))
    (axes,) = figure.axes
    figure.draw_without_rendering()
    assert all(float(tick).is_integer() for tick in axes.get_xticks())
    low, high = axes.get_ylim()
    places = [text.xy[1] for text in axes.texts]
    assert max(places) == pytest.approx(high) and min(np.diff(places)) == pytest.approx(0.09 * (high - low))


SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def shown() -> Films:
    """8 discs over 33 frames: they rise in one film, and stay where they are in the other."""
    first = np.random.default_rng(0).random((1, 8, 2))
    rising = first + np.arange(33)[:, None, None] * np.array([0.0, 0.001])
    both = [("truth", rising), ("model", first.repeat(33, 0))]
    return Films(both, np.arange(8) % 4, (1.0, 1.0), 0.05, frame=0.01, slower=12)


def test_the_animation_shows_every_disc_where_it_was(shown) -> None:
    drawn = ElementTree.fromstring(figures.animation(Animation(shown)))  # noqa: S314 (ours)
    circles = list(drawn.iter(f"{SVG}circle"))
    assert len(circles) == 16
    assert drawn.get("viewBox") == f"-1 0 {2 * figures.PANEL + figures.GAP + 2} {figures.PANEL + figures.TOP + 1}"
    for number, circle in enumerate(circles):
        across, down = circle.findall(f"{SVG}animate")
        assert (across.get("attributeName"), down.get("attributeName")) == ("cx", "cy")
        film = shown.films[number // 8][1][::2, number % 8]
        left = 0 if number < 8 else figures.PANEL + figures.GAP
        for animate, places in ((across, left + 300 * film[:, 0]), (down, figures.TOP + 300 * (1 - film[:, 1]))):
            values = [float(value) for value in animate.get("values").split(";")]
            assert values == pytest.approx(places.tolist(), abs=0.051)
            assert animate.get("dur") == f"{len(film) * 2 * 0.01 * 12:.1f}s"
        assert float(circle.get("r")) == 15
        assert circle.get("fill") == figures.CLASSES[number % 4]
        assert circle.get("cy") == down.get("values").split(";")[0]


def test_the_strip_shows_both_films_at_five_moments(shown) -> None:
    axes = figures.strip(Strip(shown)).get_axes()
    assert [one.get_title(loc="left") for one in axes[:5]] == ["step 0", "step 8", "step 16", "step 24", "step 32"]
    for one, (name, film) in zip((axes[4], axes[9]), shown.films, strict=True):
        (discs,) = one.collections
        np.testing.assert_allclose(discs.get_offsets(), film[-1], err_msg=name)
