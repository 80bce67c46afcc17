import re
from html import unescape
from xml.etree import ElementTree

import numpy as np
import pytest

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


def drawn(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).random(shape)


def curves() -> str:
    train = Curve("train", [1, 2, 3], [3.0, 2.0, 1.0], "accent")
    valid = Curve("<valid>", [3], [1.5], "warm")
    return figures.curves(Curves([Panel("loss", [train, valid]), Panel("fit", [train], "x", ([1], [2]))], mark=2))


def confusion() -> str:
    return figures.confusion(Confusion(np.array([[3, 1], [0, 4]]), ["<cats>", "dogs"]))


def network() -> str:
    graph = Graph.from_edge_index([[1, 0, 3, 2, 3], [0, 1, 2, 3, 3]], num_nodes=4)
    weights = np.array([0.2, 1.0, 0.5, 0.5, 0.5])
    wrong = np.array([False, True, False, False])
    shown = Network(graph, np.array([0, 1, 1, 0]), ["x", "y"], weights, wrong, ["a", "b", "c", "d"], 2)
    return networks.network(shown)


def crowd() -> str:
    ring = np.arange(81)
    return networks.network(Network(Graph.from_edge_index(np.stack([ring, (ring + 1) % 81]), 81), ring % 3))


def bare_network() -> str:
    return networks.network(Network(Graph.from_edge_index(np.zeros((2, 0), int), 1), np.array([0])))


def small_networks() -> str:
    pair = complete(2), np.array([0, 11])
    return networks.networks(Networks([pair, pair], ["<one>", ""], columns=3))


def tokens() -> str:
    return figures.matrix(Matrix(np.tril(np.ones((5, 3, 3))), ["<", "b", "␣"]))


def pictures() -> str:
    heat = drawn(2, 4, 4)
    rows = [Heat("attention", heat), Heat("of the patch", heat, [(0, 0), (3, 3)])]
    return figures.pictures(Pictures(drawn(2, 8, 8), ["1", "2, not 3"], [False, True], rows))


def examples() -> str:
    return figures.pictures(Pictures(drawn(2, 8, 8), ["1", "2, not 3"], [False, True]))


def heat_maps() -> str:
    region = np.zeros((4, 4), dtype=bool)
    region[:2] = True
    one = HeatMap("<slide>", drawn(8, 12, 3), drawn(2, 3), region, (2.0, 3.0))
    return figures.heat_maps(HeatMaps([one, one._replace(region=None)]))


def parity() -> str:
    return figures.parity(Parity(np.array([-1.0, 0.0, 2.0]), np.array([-1.1, 0.1, 2.0]), "eV/Å"))


DRAWINGS = [curves, parity, confusion, network, crowd, bare_network, small_networks]
DRAWINGS += [tokens, pictures, examples, heat_maps]


def parts(svg: str) -> list[ElementTree.Element]:
    """The elements of a drawing, their names without SVG's namespace."""
    found = list(ElementTree.fromstring(svg).iter())  # noqa: S314 (our own drawing)
    for one in found:
        one.tag = one.tag.removeprefix("{http://www.w3.org/2000/svg}")
    return found


def texts(svg: str) -> dict[str, ElementTree.Element]:
    return {one.text or "": one for one in parts(svg) if one.tag == "text"}


@pytest.mark.parametrize("draw", DRAWINGS)
def test_a_drawing_is_valid_xml_that_requests_nothing_and_has_no_ids(draw) -> None:
    names = [(name, value) for one in parts(draw()) for name, value in one.items()]
    assert all(value.startswith("data:image/png;base64,") for name, value in names if name.endswith(("href", "src")))
    assert not [value for name, value in names if name == "id" or "url(" in value]


def count(svg: str, **look: str) -> int:
    """How many parts have this tag and these attributes."""
    return sum(all((one.tag if k == "tag" else one.get(k)) == v for k, v in look.items()) for one in parts(svg))


def test_a_network_has_a_disc_for_each_node_and_a_line_as_wide_as_the_edge_weighs() -> None:
    shown = network()
    discs = [one for one in parts(shown) if one.tag == "circle" and one.get("stroke") == "var(--paper)"]
    assert len(discs) == 4 and len({one.get("fill") for one in discs}) == 2  # classes
    assert {"a", "b", "c", "d", "x", "y"} == texts(shown).keys()
    lines = [one for one in parts(shown) if one.tag == "path" and one.get("stroke") == "var(--ink)"]
    widths = sorted(float(one.get("stroke-width")) for one in lines if one.get("opacity"))
    assert len(widths) == 4 and np.diff(widths).tolist()[1] == 0 and widths[0] < widths[1] < widths[3]
    assert count(crowd(), tag="circle") == 81 and count(bare_network(), tag="circle") == 1


def test_a_confusion_is_counted_and_points_of_a_parity_lie_where_both_say() -> None:
    shown = texts(confusion())
    assert {"<cats>", "dogs", "3", "1", "4", "prediction", "truth"} == shown.keys()  # and no 0
    assert shown["3"].get("y") == shown["1"].get("y") != shown["4"].get("y") and count(confusion(), tag="rect") == 3
    points = [(float(one.get("cx")), float(one.get("cy"))) for one in parts(parity()) if one.tag == "circle"]
    (x, y), (x_, y_) = points[0], points[2]  # (-1, -1.1) and (2, 2)
    assert (y - y_) / (x_ - x) == pytest.approx(3.1 / 3, rel=0.01)
    assert len(points) == 3 and {"truth (eV/Å)", "predicted (eV/Å)"} <= texts(parity()).keys()


def test_each_head_of_a_matrix_each_picture_and_each_curve_is_named() -> None:
    assert {"mean of the heads", "head 1", "head 5", "<", "b", "␣"} <= texts(tokens()).keys()
    assert count(tokens(), tag="image") == 6
    assert texts(pictures())["2, not 3"].get("fill") == "var(--warm)" != texts(pictures())["1"].get("fill")
    assert count(pictures(), tag="image") == 10 and count(examples(), tag="image") == 2
    assert {"loss", "fit", "train", "<valid>", "step", "x"} <= texts(curves()).keys()
    assert count(curves(), tag="path", stroke="var(--accent)") == 2


def test_colours_follow_the_page_and_a_file_of_its_own_carries_them() -> None:
    drawn = curves()
    assert "var(--accent)" in drawn and "var(--muted)" in drawn
    alone = figures.standalone(drawn)
    ElementTree.fromstring(alone.split("\n", 1)[1])  # noqa: S314 (our own drawing)
    assert LIGHT["accent"] in alone and DARK["accent"] in alone


def test_a_picture_is_drawn_with_its_heat_and_the_outline_of_its_region() -> None:
    images = [one for one in parts(heat_maps()) if one.tag == "image"]
    assert len(images) == 6  # of each picture itself, and in grey under its heat
    (outline,) = (one for one in parts(heat_maps()) if one.tag == "path")
    numbers = [float(n) for n in re.findall(r"[\d.]+", outline.get("d"))]
    grey = images[1]
    middle = float(grey.get("y")) + float(grey.get("height")) / 2
    assert numbers[1::2] == pytest.approx([middle] * len(numbers[1::2]), abs=0.02)
    assert (min(numbers[::2]), max(numbers[::2])) == (0, pytest.approx(float(grey.get("width")), abs=0.02))


def test_names_of_any_length_and_script_are_cut() -> None:
    names = ["a name " * 40, "שלום " * 50, "🧪" * 200, "<b>日本語</b>" * 30]
    ring = Graph.from_edge_index([[0, 1, 2, 3], [1, 2, 3, 0]], num_nodes=4)
    shown = networks.network(Network(ring, np.arange(4), names, names=names))
    shown += figures.confusion(Confusion(np.eye(4, dtype=np.int64), names))
    cut = re.findall(r"<text[^>]*>([^<]*)</text>", shown)
    assert sum(text.endswith("…") for text in cut) == 16
    assert max(len(unescape(text)) for text in cut) == 24


def test_steps_are_whole_and_names_at_the_ends_stay_beside_their_panel() -> None:
    lines = [Curve(name, [1, 2, 3], [0.0, 0.5, 0.5], "accent") for name in "abc"]
    drawn = texts(figures.curves(Curves([Panel("loss", lines)])))
    assert {"1", "2", "3"} < set(drawn) and "1.5" not in drawn
    places = sorted(float(drawn[name].get("y")) for name in "abc")
    assert min(np.diff(places)) == pytest.approx(11) and places[0] > 20


@pytest.mark.parametrize(
    "values", [[np.nan, 1.0, np.inf], [np.nan], [], [3.0], [1e-9, 2e-9], [1e300, -1e300], [0.0, 0.0]]
)
def test_any_values_have_a_curve_or_none(values) -> None:
    drawn = figures.curves(Curves([Panel("loss", [Curve("train", range(len(values)), values, "accent")])]))
    assert not re.search(r"\b(nan|inf)\b", drawn)


@pytest.fixture
def shown() -> Films:
    """8 discs over 33 frames: they rise in one film, and stay where they are in the other."""
    first = np.random.default_rng(0).random((1, 8, 2))
    rising = first + np.arange(33)[:, None, None] * np.array([0.0, 0.001])
    both = [("truth", rising), ("model", first.repeat(33, 0))]
    return Films(both, np.arange(8) % 4, (1.0, 1.0), 0.05, frame=0.01, slower=12)


def test_the_animation_shows_every_disc_where_it_was(shown) -> None:
    drawn = parts(figures.animation(Animation(shown)))
    circles = [one for one in drawn if one.tag == "circle"]
    frames = [{name: float(one.get(name)) for name in ("x", "y", "width")} for one in drawn if one.tag == "rect"]
    assert len(circles) == 16 and len(frames) == 2
    for number, circle in enumerate(circles):
        across, down = circle
        assert (across.get("attributeName"), down.get("attributeName")) == ("cx", "cy")
        film, frame = shown.films[number // 8][1][::2, number % 8], frames[number // 8]
        left, top, side = frame.values()
        for animate, places in ((across, left + side * film[:, 0]), (down, top + side * (1 - film[:, 1]))):
            values = [float(value) for value in animate.get("values").split(";")]
            assert values == pytest.approx(places.tolist(), abs=0.051)
            assert animate.get("dur") == f"{len(film) * 2 * 0.01 * 12:.1f}s"
        assert float(circle.get("r")) == pytest.approx(0.05 * side, abs=0.01)
        assert circle.get("fill") == figures.CLASSES[number % 4]


def test_the_strip_shows_both_films_at_five_moments(shown) -> None:
    drawn = figures.strip(Strip(shown))
    assert [text for text in texts(drawn) if text.startswith("step")] == [f"step {n}" for n in (0, 8, 16, 24, 32)]
    circles = [one for one in parts(drawn) if one.tag == "circle"]
    last = [one for one in parts(drawn) if one.tag == "rect"][-1]
    left, top, side = (float(last.get(name)) for name in ("x", "y", "width"))
    for circle, (x, y) in zip(circles[-8:], shown.films[1][1][-1], strict=True):
        place = float(circle.get("cx")), float(circle.get("cy"))
        assert place == pytest.approx((left + side * x, top + side * (1 - y)), abs=0.02)
