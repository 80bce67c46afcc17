import re
import sys

import numpy as np
import pytest
import torch

from edgewise.errors import ConfigError, DataError, installing
from edgewise.tasks import granular as task_named
from edgewise.tasks.particles.granular import FRAME, FRICTION, GRAVITY, RADIUS, REACH, SIDE, STIFFNESS, draw, simulate

module = sys.modules["edgewise.tasks.particles.granular"]  # its function has the same name
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


def energy(film):
    """Kinetic, in the ground's field and in the overlaps, of each frame but the first and the last."""
    moves = (film[2:] - film[:-2]) / (2 * FRAME)
    total = 0.5 * (moves**2).sum((1, 2)) + GRAVITY * film[1:-1, :, 1].sum(-1)
    for frame, x in enumerate(film[1:-1]):
        outside = (RADIUS - x).clip(0) ** 2 + (x - SIDE + RADIUS).clip(0) ** 2
        total[frame] += STIFFNESS * ((2 * RADIUS - pairs(x)[0]).clip(0) ** 2).sum() / 4 + STIFFNESS * outside.sum()
    return total


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


def test_a_disc_in_the_air_falls_as_newton_says():
    found = simulate(np.array([[0.5, 0.8]]), np.array([[1.0, 0.5]]), frames=40)[:, 0]
    t = FRAME * np.arange(40)
    assert np.allclose(found[:, 0], 0.5 + t, atol=1e-12)
    assert np.allclose(found[:, 1], 0.8 + 0.5 * t - GRAVITY / 2 * t**2, atol=GRAVITY * FRAME * t[-1] / 20)


def test_two_discs_keep_their_momentum_and_lose_energy(monkeypatch):
    monkeypatch.setattr(module, "GRAVITY", 0.0)
    film = simulate(np.array([[0.4, 0.5], [0.55, 0.52]]), np.array([[3.0, 0.0], [0.0, 0.0]]), frames=40)
    moves = np.diff(film, axis=0) / FRAME
    assert np.allclose(moves.sum(1), [3.0, 0.0], atol=1e-9)
    assert moves[-1, 1, 0] > 1.5 and np.square(moves[-1]).sum() < 0.95 * 9


def test_discs_stay_in_the_box(film):
    assert film.min() > 0.6 * RADIUS and film.max() < SIDE - 0.6 * RADIUS  # soft ones give way
    assert min(pairs(x)[0].min() for x in film) > 1.5 * RADIUS


def test_energy_is_lost_and_never_made(film):
    total = energy(film)
    assert np.diff(total).max() < 0.01 * total[0]  # of velocities that are differences over two frames
    assert total[-1] < 0.8 * total[0]


def test_finer_steps_hardly_change_a_film():
    """Until chaos has its way: the 50th frame of 40 discs that have met."""
    places, velocities = draw(40, np.random.default_rng(0))
    coarse, fine = (simulate(places, velocities, 51, substeps)[-1] for substeps in (20, 60))
    assert np.abs(coarse - fine).max() < 0.01 * RADIUS
    assert np.abs(fine - places).max() > RADIUS


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


@pytest.mark.parametrize(
    "options",
    [
        {"training": 0},
        {"held_out": 0},
        {"particles": 0},
        {"particles": 121},
        {"history": 1},
        {"history": 6},
        {"noise": -1.0},
        {"seed": -1},
    ],
)
def test_impossible_options_are_refused(options):
    with pytest.raises(ConfigError, match=next(iter(options))):
        task_named(**options)


def test_without_openmm_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "openmm", None)
    with pytest.raises(DataError, match=re.escape(installing("physics"))):
        simulate(*draw(1, np.random.default_rng(0)), frames=1)
