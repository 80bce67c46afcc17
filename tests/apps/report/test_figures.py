import re
from xml.etree import ElementTree

import numpy as np
import pytest
from matplotlib.figure import Figure

from edgewise.apps.report import figures
from edgewise.apps.report.pages import DARK, LIGHT

GENERATOR = np.random.default_rng(0)


def curves() -> Figure:
    lines = [("train", [1, 2, 3], [3.0, 2.0, 1.0], figures.ACCENT), ("valid", [3], [1.5], figures.WARM)]
    return figures.curves([("loss", lines)], best=2)


def confusion() -> Figure:
    return figures.confusion(np.array([[3, 1], [0, 4]]), ["<cats>", "dogs"])


def network() -> Figure:
    places = GENERATOR.normal(size=(4, 2))
    receivers, senders = np.array([0, 1, 2, 3, 3]), np.array([1, 0, 3, 2, 3])
    weights = np.array([0.2, 1.0, 0.5, 0.5, 0.5])
    wrong = np.array([False, True, False, False])
    names = ["a", "b", "c", "d"]
    return figures.network(places, receivers, senders, weights, np.array([0, 1, 1, 0]), wrong, names, 2, ["x", "y"])


def bare_network() -> Figure:
    none = np.zeros(1, dtype=bool)
    return figures.network(np.zeros((1, 2)), np.array([], int), np.array([], int), None, np.array([0]), none)


def tokens() -> Figure:
    return figures.token_matrix(np.tril(np.ones((5, 3, 3))), ["<", "b", "␣"])


def images() -> Figure:
    heat = GENERATOR.random((2, 4, 4))
    return figures.image_attention(GENERATOR.random((2, 8, 8)), heat, heat, [(0, 0), (3, 3)], ["1", "2, not 3"])


def examples() -> Figure:
    return figures.examples(GENERATOR.random((2, 8, 8)), ["1", "2, not 3"], np.array([False, True]))


def fits() -> Figure:
    x = np.linspace(0, 1, 5)
    return figures.fits(x, x**2, [("a < b", [0.0, 1.0], [0.0, 1.0], figures.ACCENT)])


def parity() -> Figure:
    return figures.parity(np.array([-1.0, 0.0, 2.0]), np.array([-1.1, 0.1, 2.0]), "eV/Å")


DRAWINGS = [curves, fits, parity, confusion, network, bare_network, tokens, images, examples]


@pytest.mark.parametrize("draw", DRAWINGS)
def test_a_drawing_is_valid_xml_that_requests_nothing(draw) -> None:
    drawn = figures.svg(draw(), "name")
    ElementTree.fromstring(drawn)  # noqa: S314 (our own drawing)
    for reference in re.findall(r'(?:href|src)="([^"]*)"', drawn):
        assert reference.startswith(("#name-", "data:image/png;base64,"))
    assert "<script" not in drawn
    assert "<metadata" not in drawn


@pytest.mark.parametrize("draw", [curves, confusion, tokens])
def test_a_drawing_is_the_same_every_time(draw) -> None:
    assert figures.svg(draw(), "name") == figures.svg(draw(), "name")


@pytest.mark.parametrize("draw", DRAWINGS)
def test_ids_belong_to_the_drawing_and_each_reference_has_its_id(draw) -> None:
    drawn = figures.svg(draw(), "name")
    ids = re.findall(r' id="([^"]*)"', drawn)
    assert all(one.startswith("name-") for one in ids)
    assert {one[1:] for one in re.findall(r'href="(#[^"]*)"', drawn)} <= set(ids)
    assert set(re.findall(r"url\(#([^)]*)\)", drawn)) <= set(ids)


def test_colours_follow_the_page() -> None:
    drawn = figures.svg(curves(), "name")
    assert "var(--accent)" in drawn
    assert "var(--muted)" in drawn
    assert not re.search("#00000[1-6]", drawn)
    assert LIGHT.keys() == DARK.keys()


def test_labels_are_text_and_escaped() -> None:
    drawn = figures.svg(confusion(), "name")
    assert "&lt;cats&gt;" in drawn
    assert "<text" in drawn


def test_a_file_of_its_own_carries_the_page_colours() -> None:
    alone = figures.standalone(figures.svg(curves(), "name"))
    ElementTree.fromstring(alone.split("\n", 1)[1])  # noqa: S314 (our own drawing)
    assert LIGHT["accent"] in alone
    assert DARK["accent"] in alone


def test_shades_are_one_colour_as_opaque_as_the_weight() -> None:
    made = figures.shades(np.array([[0.0, 0.5]]), "#ff0000", 0.8)
    np.testing.assert_allclose(made, [[[1, 0, 0, 0], [1, 0, 0, 0.4]]])
