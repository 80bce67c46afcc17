import pytest
import torch

from edgewise.tasks import Rollout, Scene


@pytest.fixture
def rollout() -> Rollout:
    """Two films of 38 frames: 8 discs rise in truth, and stay where they are in the model."""
    generator = torch.Generator().manual_seed(0)
    first = torch.rand(2, 1, 8, 2, generator=generator, dtype=torch.float64)
    rise = torch.tensor([0.0, 0.001], dtype=torch.float64)
    truth = first + torch.arange(38, dtype=torch.float64)[:, None, None] * rise
    forecast = torch.cat([truth[:, :6], truth[:, 5:6].expand(-1, 32, -1, -1)], 1)
    return Rollout(Scene(truth, (1.0, 1.0), 0.05, 0.15, frame=0.01, gravity=9.81), forecast, truth, 6)


def test_the_curves_are_energy_momentum_and_distance(rollout) -> None:
    energy, momentum, distance = (panel.curves for panel in rollout.laws())
    for curve in (*energy, *momentum, *distance):
        assert len(curve.x) == len(curve.y) == 32
    truth, model = (curve.y for curve in momentum)
    assert truth == pytest.approx([0.1] * 32) and model == pytest.approx([0.0] * 32)
    assert energy[0].y[-1] - energy[0].y[0] == pytest.approx(9.81 * 0.031)  # rising at one speed
    assert energy[1].y[-1] - energy[1].y[0] == pytest.approx(0)
    assert distance[0].y == pytest.approx([0.1 * step for step in range(1, 33)])


def test_the_numbers_are_those_of_the_last_step_and_of_the_last_given_frame(rollout) -> None:
    numbers = rollout.numbers()
    assert (numbers["steps"], numbers["seconds"]) == (32, pytest.approx(0.32))
    assert numbers["distance_after_steps"] == pytest.approx({1: 0.001, 10: 0.01, 32: 0.032})
    truth, model = numbers["truth"], numbers["forecast"]
    assert truth["momentum_last"] == pytest.approx([0, 0.1]) and model["momentum_last"] == pytest.approx([0, 0])
    assert truth["energy_last"] - truth["energy_first"] == pytest.approx(9.81 * 0.031)
    assert truth["energy_first"] - model["energy_last"] == pytest.approx(0.5 * 0.1**2 + 9.81 * 0.0005)
