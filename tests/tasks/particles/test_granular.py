import sys

import numpy as np
import pytest
import torch

from edgewise.tasks import granular as task_named
from edgewise.tasks.particles.simulation import FRAME, FRICTION, GRAVITY, RADIUS, REACH, SIDE, STIFFNESS, draw, simulate

module = sys.modules["edgewise.tasks.particles.simulation"]  # its function has the same name
pytest.importorskip("openmm")


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


@pytest.fixture(scope="module")
def film():
    return simulate(*draw(30, np.random.default_rng(3)), frames=150)


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


def test_two_discs_keep_their_momentum_and_lose_energy(monkeypatch):
    monkeypatch.setattr(module, "GRAVITY", 0.0)
    film = simulate(np.array([[0.4, 0.5], [0.55, 0.52]]), np.array([[3.0, 0.0], [0.0, 0.0]]), frames=40)
    moves = np.diff(film, axis=0) / FRAME
    assert np.allclose(moves.sum(1), [3.0, 0.0], atol=1e-9)
    assert moves[-1, 1, 0] > 1.5 and np.square(moves[-1]).sum() < 0.95 * 9


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


def test_it_is_simulated_once_and_a_damaged_cache_is_not_believed(small, cache, monkeypatch):
    films = small().films
    (cached,) = (cache / "granular").iterdir()
    again, calls = simulate, []
    monkeypatch.setattr(module, "simulate", lambda *args: calls.append(1) or again(*args))
    assert torch.equal(small().films, films)
    assert not calls
    cached.write_bytes(cached.read_bytes()[:-100])
    assert torch.equal(small().films, films)
    assert len(calls) == 7


def test_splits_share_no_film_and_more_training_leaves_the_rest_as_it_is(small):
    few, more = small(), small(training=5)
    assert [len(few.splits[split]) for split in ("train", "valid", "test")] == [3, 2, 2]
    assert len({tuple(film.flatten().tolist()) for film in more.films}) == 9
    for split in ("train", "valid", "test"):
        count = len(few.splits[split])
        assert torch.equal(few.films[few.splits[split]], more.films[more.splits[split][:count]])
