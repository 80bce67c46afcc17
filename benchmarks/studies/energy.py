"""Copper clusters that move at constant energy by a learned potential: how much their total energy changes.

python -m benchmarks.studies.energy

Trains `copper-schnet`. Its forces are compared with central differences of its energy, in float64; then atoms move for
10 ps, in steps of 2 fs, from the first frame of each test trajectory: by the potential, and by what it was trained on.
Shares are of the mean kinetic energy, but for the second, and of the largest change at any step.
"""

import tempfile
from pathlib import Path

from edgewise import training
from edgewise.apps import options, recipes
from edgewise.tasks.particles.atoms import CALCULATORS, EnergiesAndForces, drift, simulate
from edgewise.training.calculator import calculator

STEP, PICOSECONDS = 2.0, 10.0  # fs
Options = tuple[tuple[str, str], ...]


def measure(chosen: Options = (), picoseconds: float = PICOSECONDS) -> list[tuple[float, ...]]:
    """Of each trajectory: how far forces are off, the shares of kinetic and of total energy, the trend, the truth's."""
    from ase.calculators.fd import calculate_numerical_forces

    config = options.configure(recipes.read("copper-schnet"), list(chosen))
    with tempfile.TemporaryDirectory() as folder:
        loaded = training.load_run(training.train(config, Path(folder) / "run", progress=False).run, device="cpu")
    task, potential = loaded.task, calculator(loaded)
    assert isinstance(task, EnergiesAndForces)
    truth, length, found = CALCULATORS["emt"](), task.frames.energies.shape[1], list[tuple[float, ...]]()
    heads = ["first frame", "forces off, eV per Å", "learned: over the mean kinetic energy", "over the total energy"]
    heads += [f"trend over {picoseconds:g} ps", "simulated: over the mean kinetic energy"]
    print(f"| {' | '.join(heads)} |\n|---|---|---|---|---|---|")
    temperatures = loaded.config.task.options["temperatures"]
    for number, first in enumerate(range(0, len(task.splits["test"]), length)):
        atoms = task.atoms(f"test:{first}")
        atoms.calc = potential
        off = abs(atoms.get_forces() - calculate_numerical_forces(atoms, eps=1e-4)).max()
        frames = round(1000 * picoseconds / STEP) + 1
        own, true = (
            drift(simulate(task.atoms(f"test:{first}"), forces, frames=frames, step=STEP))
            for forces in (potential, truth)
        )
        shares = (
            own.largest / own.kinetic,
            own.largest / own.total,
            own.trend / own.kinetic,
            true.largest / true.kinetic,
        )
        found.append((float(off), *shares))
        cells = f"{shares[0]:.3%} | {shares[1]:.4%} | {shares[2]:+.3%} | {shares[3]:.3%}".replace("%", " %")
        at = temperatures[number % len(temperatures)]
        print(f"| test:{first}, {at:g} K | {off:.0e} | {cells} |", flush=True)
    return found


def main() -> None:
    measure()


if __name__ == "__main__":
    main()
