"""Soft discs that fall, splash and settle in a box, simulated once by OpenMM, and cached."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgewise.data.splits import Splits
from edgewise.errors import ConfigError, DataError, installing
from edgewise.tasks.core.cache import Tensors, cached
from edgewise.tasks.core.task import check_range
from edgewise.tasks.particles.simulation import LONGEST, Scene, Simulation

Floats = NDArray[np.float64]

SIDE, RADIUS, REACH, GRAVITY = 1.0, 0.04, 0.12, 9.81  # metres, and metres per second²
STIFFNESS, FRICTION = 1e5, 200.0  # 1/s² and 1/s, because a disc's mass is 1
FRAME, SUBSTEPS = 0.0025, 20  # a contact lasts three frames
LONGEST_HISTORY = 5
FRAMES = LONGEST_HISTORY + 1 + LONGEST
MOST = 120  # discs


def draw(particles: int, random: np.random.Generator) -> tuple[Floats, Floats]:
    """First places and velocities [N, 2]: a block of 6 to 9 columns somewhere in the box, which moves as a whole.

    Equation    v_i = u + w_i, u_x ~ N(0, 1), u_y ~ N(0, 0.5²), w_i ~ N(0, 0.3²)
    """
    columns, gap = int(random.integers(6, 10)), 2.05 * RADIUS
    columns = max(columns, -(-particles // int((SIDE - 2.1 * RADIUS) / gap)))  # not higher than the box
    cells = np.stack([np.arange(particles) % columns, np.arange(particles) // columns], -1) * gap
    corner = random.uniform(size=2) * (SIDE - 2.1 * RADIUS - cells.max(0))
    places = 1.05 * RADIUS + cells + corner + random.uniform(-5e-4, 5e-4, (particles, 2))
    return places, random.normal(size=2) * [1, 0.5] + 0.3 * random.normal(size=(particles, 2))


def simulate(places: Floats, velocities: Floats, frames: int, substeps: int = SUBSTEPS) -> Floats:
    """Let soft discs fall and collide, as the discrete element method has them: centres in each frame [frames, N, 2].

    Equation    r_i'' = Σ_j [k (2R - r_ij)₊ - γ (1 - r_ij/L)₊² v_ij·n_ij] n_ij - g + walls
    Symbols     n_ij from j to i; a disc's mass is 1, k = STIFFNESS, γ = FRICTION, L = REACH; a wall pushes with 2 k
                times the overlap, as the disc's mirror image would
    Errors      `DataError` without OpenMM
    Cost        O(frames substeps N²): a second for 60 discs and 206 frames
    Reference   Cundall & Strack, 1979; the friction is that of dissipative particle dynamics, at temperature 0
    """
    try:
        import openmm
    except ImportError:
        raise DataError(f"this scene is simulated by OpenMM: {installing('physics')}") from None
    overlap = [f"max(0, {RADIUS} - {axis})^2 + max(0, {axis} - {SIDE - RADIUS})^2" for axis in "xy"]
    outside = openmm.CustomExternalForce(f"{GRAVITY} * y + {STIFFNESS} * ({' + '.join(overlap)})")
    pairs = openmm.CustomNonbondedForce(f"{STIFFNESS / 2} * max(0, {2 * RADIUS} - r)^2")
    system = openmm.System()  # its nanometres, picoseconds and daltons are our metres, seconds and masses
    for disc in range(len(places)):
        system.addParticle(1.0)
        pairs.addParticle([])
        outside.addParticle(disc, [])
    system.addForce(pairs)
    system.addForce(outside)
    steps = openmm.DPDIntegrator(0.0, FRICTION, REACH, FRAME / substeps)
    steps.setRandomNumberSeed(1)
    context = openmm.Context(system, steps, openmm.Platform.getPlatformByName("Reference"))  # in float64
    context.setPositions(np.pad(places, ((0, 0), (0, 1))))
    context.setVelocities(np.pad(velocities, ((0, 0), (0, 1))))
    film = np.empty((frames, len(places), 2))
    for frame in range(frames):
        if frame:
            steps.step(substeps)
        film[frame] = context.getState(getPositions=True).getPositions(asNumpy=True)._value[:, :2]
    return film


def granular(
    training: int = 100,
    held_out: int = 10,
    particles: int = 60,
    history: int = 3,
    noise: float = 0.06,
    seed: int = 0,
) -> Simulation:
    """Learn to simulate soft discs that fall, splash and settle in a box, frame by frame.

    A block of discs of 8 cm falls in a box of 1 m: 206 frames of 2.5 ms, simulated by OpenMM. The model reads the
    last moves and says the next; the measure is its squared error on all frames of the test films, over that of
    letting all go straight on. `edgewise predict RUN test:0` lets it go on by itself for 200 frames. The simulation
    takes two minutes, once: its films are cached.

    Reference   Sanchez-Gonzalez et al., "Learning to simulate complex physics with graph networks", 2020

    Args:
        training: Training films.
        held_out: Validation films, and as many test films.
        particles: Discs of a film, at most 120.
        history: Moves that are read, at most 5.
        noise: Noise on the moves that are read in training, in units of their deviation.
        seed: Chooses the films.
    """
    check_range(1, 100_000, training=training, held_out=held_out)
    if not 1 <= particles <= MOST:
        raise ConfigError(f"particles must be from 1 to {MOST}, not {particles}: the box has no room for more")
    check_range(2, LONGEST_HISTORY, history=history)
    check_range(0, 10, noise=noise)
    check_range(0, 2**32 - 1, seed=seed)
    films = _films(training + 2 * held_out, particles, seed)
    test, valid, train = torch.arange(len(films)).split([held_out, held_out, training])  # the first films are tests
    splits: Splits = {"test": test, "valid": valid, "train": train}
    scene = Scene(films, (SIDE, SIDE), RADIUS, REACH, FRAME, GRAVITY)
    return Simulation("granular", scene, splits, history, noise)


def _films(count: int, particles: int, seed: int) -> Tensor:
    """The films [M, frames, N, 2]."""
    scene = SIDE, RADIUS, REACH, GRAVITY, STIFFNESS, FRICTION, FRAME, SUBSTEPS, FRAMES

    def make() -> Tensors:
        starts = (draw(particles, np.random.default_rng((seed, film))) for film in range(count))
        return {"films": torch.from_numpy(np.stack([simulate(*start, FRAMES) for start in starts]))}

    return cached("granular", (count, particles, seed, scene), make, {"films": (count, FRAMES, particles, 2)})["films"]
