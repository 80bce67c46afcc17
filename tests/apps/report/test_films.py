from xml.etree import ElementTree

import numpy as np
import pytest

from edgewise.apps.report import figures, films
from edgewise.tasks.core.drawing import Animation, Films, Strip

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def shown() -> Films:
    """8 discs over 33 frames: they rise in one film, and stay where they are in the other."""
    first = np.random.default_rng(0).random((1, 8, 2))
    rising = first + np.arange(33)[:, None, None] * np.array([0.0, 0.001])
    both = [("truth", rising), ("model", first.repeat(33, 0))]
    return Films(both, np.arange(8) % 4, (1.0, 1.0), 0.05, frame=0.01, slower=12)


def test_the_animation_shows_every_disc_where_it_was(shown) -> None:
    drawn = ElementTree.fromstring(films.animation(Animation(shown)))  # noqa: S314 (ours)
    circles = list(drawn.iter(f"{SVG}circle"))
    assert len(circles) == 16
    assert drawn.get("viewBox") == f"-1 0 {2 * films.PANEL + films.GAP + 2} {films.PANEL + films.TOP + 1}"
    for number, circle in enumerate(circles):
        across, down = circle.findall(f"{SVG}animate")
        assert (across.get("attributeName"), down.get("attributeName")) == ("cx", "cy")
        film = shown.films[number // 8][1][::2, number % 8]
        left = 0 if number < 8 else films.PANEL + films.GAP
        for animate, places in ((across, left + 300 * film[:, 0]), (down, films.TOP + 300 * (1 - film[:, 1]))):
            values = [float(value) for value in animate.get("values").split(";")]
            assert values == pytest.approx(places.tolist(), abs=0.051)
            assert animate.get("dur") == f"{len(film) * 2 * 0.01 * 12:.1f}s"
        assert float(circle.get("r")) == 15
        assert circle.get("fill") == figures.CLASSES[number % 4]
        assert circle.get("cy") == down.get("values").split(";")[0]


def test_the_strip_shows_both_films_at_five_moments(shown) -> None:
    axes = films.strip(Strip(shown)).get_axes()
    assert [one.get_title(loc="left") for one in axes[:5]] == ["step 0", "step 8", "step 16", "step 24", "step 32"]
    for one, (name, film) in zip((axes[4], axes[9]), shown.films, strict=True):
        (discs,) = one.collections
        np.testing.assert_allclose(discs.get_offsets(), film[-1], err_msg=name)
