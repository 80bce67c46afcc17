import re
from xml.etree import ElementTree

import pytest
import torch

from edgewise.apps.report import figures, rollouts
from edgewise.tasks import Rollout, Scene

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture
def rollout() -> Rollout:
    """Two films of 38 frames: 8 discs rise in truth, and stay where they are in the model."""
    generator = torch.Generator().manual_seed(0)
    first = torch.rand(2, 1, 8, 2, generator=generator, dtype=torch.float64)
    truth = first + 0.001 * torch.arange(38, dtype=torch.float64)[:, None, None] * torch.tensor(
        [0.0, 1.0], dtype=torch.float64
    )
    forecast = torch.cat([truth[:, :6], truth[:, 5:6].expand(-1, 32, -1, -1)], 1)
    return Rollout(Scene(truth, (1.0, 1.0), 0.05, 0.15, frame=0.01, gravity=9.81), forecast, truth, 6)


def test_the_animation_shows_every_disc_where_it_was(rollout) -> None:
    drawn = ElementTree.fromstring(rollouts.animation(rollout))  # noqa: S314 (ours)
    circles = list(drawn.iter(f"{SVG}circle"))
    assert len(circles) == 16
    for number, circle in enumerate(circles):
        across, down = circle.findall(f"{SVG}animate")
        assert (across.get("attributeName"), down.get("attributeName")) == ("cx", "cy")
        film = (rollout.truth if number < 8 else rollout.forecast)[0, 5::2, number % 8]
        left = 0 if number < 8 else rollouts.PANEL + rollouts.GAP
        for animate, places in (
            (across, left + 300 * film[:, 0]),
            (down, rollouts.TOP + 300 * (1 - film[:, 1])),
        ):
            told = torch.tensor([float(value) for value in animate.get("values").split(";")])
            assert torch.allclose(told.double(), places, atol=0.051)
            assert animate.get("dur") == f"{len(film) * 2 * 0.01 * rollouts.SLOWER:.1f}s"
        assert float(circle.get("r")) == 15
        assert circle.get("cy") == down.get("values").split(";")[0]


def test_the_animation_asks_for_nothing_and_runs_no_script(rollout) -> None:
    alone = figures.standalone(rollouts.animation(rollout))
    root = ElementTree.fromstring(alone.encode())  # noqa: S314 (ours)
    allowed = {"svg", "style", "g", "text", "rect", "circle", "animate"}
    assert {element.tag.removeprefix(SVG) for element in root.iter()} <= allowed
    assert not re.search(r"href|url\(|@import|\son\w+=", alone)
    assert alone.count("http") == 1  # the namespace


def test_colours_are_layers_of_the_beginning(rollout) -> None:
    bands = torch.tensor(rollouts.bands(rollout))
    heights = rollout.truth[0, 0, :, 1]
    assert bands.bincount().tolist() == [2, 2, 2, 2]
    assert all(heights[bands == low].max() < heights[bands == low + 1].min() for low in range(3))


def test_the_strip_shows_both_films_at_five_moments(rollout) -> None:
    axes = rollouts.film_strip(rollout).get_axes()
    assert [one.get_title(loc="left") for one in axes[:5]] == ["step 0", "step 8", "step 16", "step 24", "step 32"]
    for one, positions in ((axes[4], rollout.truth), (axes[9], rollout.forecast)):
        (discs,) = one.collections
        assert torch.allclose(torch.tensor(discs.get_offsets()), positions[0, -1])


def test_the_curves_are_energy_momentum_and_distance(rollout) -> None:
    (_, energy), (_, momentum), (_, (distance,)) = rollouts.laws(rollout)
    for _, steps, values, _ in (*energy, *momentum, distance):
        assert len(steps) == len(values) == 32
    truth, model = (curve[2] for curve in momentum)
    assert truth == pytest.approx([0.1] * 32) and model == pytest.approx([0.0] * 32)
    assert energy[0][2][-1] - energy[0][2][0] == pytest.approx(9.81 * 0.031)  # rising at one speed
    assert energy[1][2][-1] - energy[1][2][0] == pytest.approx(0)
    assert distance[2] == pytest.approx([0.1 * step for step in range(1, 33)])


def test_the_report_has_a_caption_with_the_walls(rollout) -> None:
    strip, laws = rollouts.drawings(rollout)
    assert (strip.name, laws.name) == ("rollout", "laws")
    outside = [1000 * rollout.outside(positions) for positions in (rollout.truth, rollout.forecast)]
    assert f"{outside[0]:.1f} mm in truth and {outside[1]:.1f} mm in the model" in strip.caption
