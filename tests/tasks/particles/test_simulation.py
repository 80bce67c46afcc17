import sys
from importlib.util import find_spec

import numpy as np
import pytest
import torch

from edgewise import radius_graph
from edgewise.graphs import Graph
from edgewise.tasks import Rollout, Scene, Simulation
from edgewise.tasks import granular as task_named
from edgewise.tasks.particles.simulation import (
    FRAME,
    FRICTION,
    GRAVITY,
    RADIUS,
    REACH,
    SIDE,
    STIFFNESS,
    draw,
    random_walk,
    simulate,
)

FALL = torch.tensor([0.0, -0.002], dtype=torch.float64)


def scene(films=5, frames=20, particles=7):
    """Discs that fall through one another, and through the floor: x_t = x_0 + t v_0 + t (t + 1) / 2 a."""
    generator = torch.Generator().manual_seed(0)
    first = torch.rand(films, 1, particles, 2, generator=generator, dtype=torch.float64)
    moves = 0.02 * torch.randn(films, 1, particles, 2, generator=generator, dtype=torch.float64)
    t = torch.arange(frames, dtype=torch.float64)[:, None, None]
    return Scene(first + t * moves + t * (t + 1) / 2 * FALL, (1.0, 1.0), 0.05, 0.2, frame=0.01, gravity=20.0)


SPLITS = {"train": torch.arange(3), "valid": torch.tensor([3]), "test": torch.tensor([4])}


def task(noise=0.0, **options):
    return Simulation("fall", scene(**options), SPLITS, noise=noise)


class Newton(torch.nn.Module):
    """What the discs do: no network could be better."""

    def __init__(self):
        super().__init__()
        self.a = torch.nn.Parameter(FALL / 0.2)  # in units of the reach

    def forward(self, graph, x):
        return (x[:, :2].double() + x[:, 2:4].double() + self.a).float()


def test_an_example_is_a_history_its_graph_and_the_next_frame():
    fall = task()
    assert len(fall.examples["train"]) == fall.epoch_size == 3 * 14 and len(fall.examples["test"]) == 14
    batch = next(fall.batches("test", 3))
    assert batch.x.shape == (21, fall.signature.inputs) and batch.target.shape == (21, 2)
    film = fall.scene.positions[4]
    for member, rows in enumerate(torch.arange(21).split(7)):
        now = 5 + member
        assert torch.allclose(batch.x[rows, :2], (film[now] / 0.2).float())
        assert torch.allclose(batch.x[rows, 2:4], ((film[now] - film[now - 1]) / 0.2).float(), atol=1e-6)
        assert torch.allclose(batch.target[rows], (film[now + 1] / 0.2).float())
        oldest = (film[now - 4] - film[now - 5]) / 0.2 / fall.velocity
        assert torch.allclose(batch.x[rows, 4:6], oldest.float(), atol=1e-5)
    frames = film[5:8]
    assert batch.graph == Graph.batch([radius_graph(frame / 0.2, 1.0) for frame in frames])


def test_scores_compare_with_going_straight_on():
    fall, exact = task(), Newton()
    batch = next(fall.batches("valid", 14))
    straight, right = batch.x[:, :2] + batch.x[:, 2:4], exact(batch.graph, batch.x)
    assert fall.loss(straight, batch).item() == pytest.approx(
        (FALL[1].item() / 0.2 / fall.acceleration) ** 2 / 2, rel=1e-3
    )
    for outputs, ratio in ((straight, 1.0), (right, 0.0)):
        sums = fall.score(outputs, batch)
        means = {name: float(value / sums["count"]) for name, value in sums.items()}
        assert means["loss"] == pytest.approx(fall.loss(outputs, batch).item(), abs=1e-6)
        assert fall.finish(means)["ratio"] == pytest.approx(ratio, abs=1e-5)


def test_noise_is_a_random_walk_of_the_moves():
    walk = random_walk(torch.Size([3000, 6, 2, 2]), 0.3, torch.Generator().manual_seed(0))
    moves = walk.diff(dim=1)
    assert (walk[:, 0] == 0).all()
    for step in range(5):  # independent steps add up
        assert moves[:, step].std().item() == pytest.approx(0.3 * ((step + 1) / 5) ** 0.5, rel=0.03)
    steps = moves.diff(dim=1).flatten(2)
    assert abs((steps[:, 0] * steps[:, 1]).mean() / steps[:, 0].var()) < 0.05


def test_the_target_of_a_disturbed_history_undoes_the_wrong_velocity():
    """The position that is read is wrong too, and the target moves along: a = x' - x - v undoes the noise of v."""
    clean, noisy = (task(noise).train_batch(4, torch.Generator().manual_seed(1)) for noise in (0.0, 0.5))
    place, move = (noisy.x[:, part] - clean.x[:, part] for part in (slice(0, 2), slice(2, 4)))
    assert place.std() > 0 and move.std() > 0
    assert torch.allclose(noisy.target - clean.target, place, atol=1e-6)
    found, wanted = (batch.target - batch.x[:, :2] - batch.x[:, 2:4] for batch in (noisy, clean))
    assert torch.allclose(found - wanted, -move, atol=1e-6)


def test_a_perfect_model_rolls_out_the_truth():
    fall = task()
    rollout = fall.roll_out(Newton(), torch.tensor([4, 3]), steps=10)
    assert rollout.forecast.shape == (2, 16, 7, 2) and rollout.given == 6
    assert torch.allclose(rollout.forecast[:, :6], rollout.truth[:, :6], atol=1e-15)
    assert torch.equal(rollout.truth, fall.scene.positions[[4, 3], :16])
    assert (rollout.error() < 1e-5).all() and rollout.error()[15] > 0
    assert fall.roll_out(Newton(), torch.tensor([4])).forecast.shape[1] == 20  # the film ends


def test_a_roll_out_is_measured():
    rollout = task().roll_out(Newton(), torch.tensor([4]), 10)
    kinetic, potential = rollout.energy(rollout.truth)
    # 20 m/s² is what falls by 0.002 m a frame of 0.01 s gains: no energy is lost
    assert torch.allclose((kinetic + potential), (kinetic + potential)[:, :1], rtol=1e-9)
    assert kinetic.std() > 0
    momentum = rollout.momentum(rollout.truth)
    assert torch.allclose(momentum.diff(dim=1), (FALL / 0.01).expand(1, 14, 2), atol=1e-9)
    for height, outside in ((0.97, 0.02), (0.9, -0.05)):
        centres = torch.tensor([[[[0.5, height], [0.5, 0.5]]]]).double()
        assert rollout.outside(centres) == pytest.approx(outside, abs=1e-7)
    shifted = rollout.forecast + torch.tensor([0.03, 0.04]).double()
    assert torch.allclose(Rollout(rollout.scene, shifted, rollout.forecast, 6).error(), torch.tensor(0.05).double())


def test_a_prediction_comes_with_its_animation():
    values, drawings, _ = task().examine(Newton(), None, "test:0", "cpu")
    assert values == task().predict(Newton(), None, "test:0", "cpu")
    assert drawings["animation"].name == "rollout-test-0"


module = sys.modules["edgewise.tasks.particles.simulation"]  # its function has the same name
physics = pytest.mark.skipif(find_spec("openmm") is None, reason="needs OpenMM")


def pairs(x):
    """Distances [N, N], infinite from a disc to itself, and directions from j to i."""
    r_ij = x[:, None] - x[None]
    r = np.linalg.norm(r_ij, axis=-1) + np.diag(np.full(len(x), np.inf))
    return r, np.nan_to_num(r_ij / r[..., None])


def force(x, v):
    """The equation, written out over all pairs."""
    r, n = pairs(x)
    closing = ((v[:, None] - v[None]) * n).sum(-1)
    push = STIFFNESS * (2 * RADIUS - r).clip(0) - FRICTION * (1 - r / REACH).clip(0) ** 2 * closing
    walls = 2 * STIFFNESS * ((RADIUS - x).clip(0) - (x - SIDE + RADIUS).clip(0))
    return (push[..., None] * n).sum(1) + walls - [0, GRAVITY]


@physics
def test_the_simulation_is_its_equation_written_out():
    """Against steps of 10 microseconds in numpy: three discs that meet in a corner."""
    x, v = np.array([[0.05, 0.06], [0.15, 0.07], [0.1, 0.16]]), np.array([[-1.0, 0.0], [-3.0, -1.0], [0.0, -2.0]])
    found = simulate(x, v, frames=9)
    met = touched = False
    for _ in range(2_000):
        v = v + FRAME / 250 * force(x, v)
        x = x + FRAME / 250 * v
        met, touched = met or pairs(x)[0].min() < 2 * RADIUS, touched or x.min() < RADIUS
    assert np.abs(found[-1] - x).max() < 2e-5
    assert met and touched


@pytest.mark.parametrize("particles", [1, 7, 60, 120])
def test_first_places_are_in_the_box_and_apart(particles):
    for seed in range(20):
        places, velocities = draw(particles, np.random.default_rng(seed))
        assert places.shape == velocities.shape == (particles, 2)
        assert places.min() > RADIUS and places.max() < SIDE - RADIUS
        assert particles == 1 or pairs(places)[0].min() > 2 * RADIUS


@pytest.fixture
def small(cache, monkeypatch):
    monkeypatch.setattr(module, "FRAMES", 9)
    return lambda **options: task_named(**{"training": 3, "held_out": 2, "particles": 5} | options)


@physics
def test_splits_share_no_film_and_more_training_leaves_the_rest_as_it_is(small):
    few, more = small(), small(training=5)
    assert [len(few.splits[split]) for split in ("train", "valid", "test")] == [3, 2, 2]
    assert len({tuple(film.flatten().tolist()) for film in more.films}) == 9
    for split in ("train", "valid", "test"):
        count = len(few.splits[split])
        assert torch.equal(few.films[few.splits[split]], more.films[more.splits[split][:count]])


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
