"""Does a simulator that is told what each ball is made of foresee two materials in space better than one that is not?

python -m benchmarks.studies.claims.materials [seeds]

Forty balls, half of stone and half of foam, fall into a box of three dimensions, bounce and settle: 86 frames of 5 ms,
simulated by OpenMM. Stone weighs eight times as much and is sixteen times as stiff, so that in the same contact foam
flies off and stone goes on. `own-trajectories` learns from 40 films, 8 choose its weights, 8 test; then from the same
films without the balls' kinds. Root mean squares of distances: of the next frame, and of the 80 frames that a roll-out
adds to the first 6, beside going straight on.
"""

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from statistics import mean, stdev
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import torch

import edgewise

BALLS, FRAMES, FRAME, SUBSTEPS = 40, 86, 0.005, 40  # 5 ms between frames
SIDE, RADIUS, GRAVITY, FRICTION = 0.6, 0.05, 9.81, 100.0  # metres, metres per second², and 1/s
MASS, STIFFNESS = {"stone": 8.0, "foam": 1.0}, {"stone": 160_000.0, "foam": 10_000.0}
PARTS = {"train": 40, "valid": 8, "test": 8}
ERRORS = ("rmse", "rollout_rmse")
STEPS = 4000


def film(seed: int) -> dict[str, Any]:
    """Balls on a lattice in the upper part of the box, thrown together to one side, of drawn materials.

    Equation    m_i r_i'' = Σ_j k_ij (2R - r_ij)₊ n_ij - friction - m_i g + walls, with √k_ij = the mean of √k_i, √k_j
    """
    import openmm

    random = np.random.default_rng(seed)
    kinds = random.permutation(["stone", "foam"] * (BALLS // 2))
    lattice = np.stack(np.meshgrid(*[np.arange(4)] * 3, indexing="ij"), -1).reshape(-1, 3)[:, ::-1][:BALLS]
    places = 0.08 + lattice * 2.3 * RADIUS + random.uniform(0, 0.012, (BALLS, 3))
    system, pairs = openmm.System(), openmm.CustomNonbondedForce(f"0.125*(a1+a2)^2*max(0, {2 * RADIUS}-r)^2")
    overlap = "+".join(f"max(0, {RADIUS}-{axis})^2 + max(0, {axis}-{SIDE - RADIUS})^2" for axis in "xyz")
    outside = openmm.CustomExternalForce(f"m*{GRAVITY}*z + a^2*({overlap})")
    pairs.addPerParticleParameter("a")
    for name in "ma":
        outside.addPerParticleParameter(name)
    for ball, kind in enumerate(kinds):
        mass, a = MASS[kind], STIFFNESS[kind] ** 0.5
        system.addParticle(mass)
        pairs.addParticle([a])
        outside.addParticle(ball, [mass, a])
    system.addForce(pairs)
    system.addForce(outside)
    steps = openmm.DPDIntegrator(0.0, FRICTION, 2.5 * RADIUS, FRAME / SUBSTEPS)
    steps.setRandomNumberSeed(1)
    context = openmm.Context(system, steps, openmm.Platform.getPlatformByName("Reference"))
    context.setPositions(places)
    context.setVelocities(random.normal(size=3) + 0.3 * random.normal(size=(BALLS, 3)))
    frames = []
    for _ in range(FRAMES):
        frames.append(context.getState(getPositions=True).getPositions(asNumpy=True)._value.copy())
        steps.step(SUBSTEPS)
    return {"positions": np.stack(frames), "kinds": kinds, "box": np.full(3, SIDE)}


def write(folder: Path, parts: Mapping[str, int]) -> None:
    """The films with the kinds of their balls, and without."""
    seed = 0
    for name in ("told", "untold"):
        (folder / name).mkdir()
    for part, count in parts.items():
        for number in range(count):
            one = film(seed)
            np.savez(folder / f"told/{part}-{number}.npz", **one)
            np.savez(folder / f"untold/{part}-{number}.npz", positions=one["positions"], box=one["box"])
            seed += 1


def measure(
    seeds: int, steps: int = STEPS, parts: Mapping[str, int] = PARTS
) -> Iterator[tuple[str, list[list[float]]]]:
    """Of each method the errors, for each seed."""
    with TemporaryDirectory() as place:
        write(Path(place), parts)
        straight: list[list[float]] = []
        for name in ("told", "untold"):
            found = []
            for seed in range(seeds):
                task = {"folder": f"{place}/{name}", "radius": 2.5 * RADIUS}
                run = Path(place) / f"{name}-{seed}"
                edgewise.train("own-trajectories", run, task=task, train={"seed": seed, "steps": steps})
                scores = edgewise.evaluate(run)["test"]
                found.append([scores[error] for error in ERRORS])
                straight = [[scores["constant_velocity_rmse"], scores["rollout_constant_velocity_rmse"]]]
            yield {"told": "told which", "untold": "not told which"}[name], found
        yield "straight on", straight


def main(seeds: int = 3) -> None:
    torch.set_num_threads(1)
    print("| simulator | next frame, mm | roll-out, cm | seeds |\n|---|---|---|---|")
    for name, found in measure(seeds):
        cells = []
        for unit, errors in zip((1000, 100), zip(*found, strict=True), strict=True):
            spread = f" ± {unit * stdev(errors):.3f}" if len(errors) > 1 else ""
            cells.append(f"{unit * mean(errors):.3f}{spread}")
        print(f"| {name} | {' | '.join(cells)} | {len(found)} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
