"""Let atoms move as a trained potential says, and see whether their total energy stays what it was.

python examples/molecular_dynamics.py [RUN [PICOSECONDS]]

RUN is a run folder of `edgewise train copper-schnet`. Without one, a small potential is trained here first, for
seconds. From the first frame of each test trajectory on, atoms move at constant energy (velocity Verlet, steps of
2 fs): once by the potential, once by what it was trained on. The percentages are shares of the mean kinetic energy.
"""

import sys
import tempfile
from pathlib import Path

from edgewise import training
from edgewise.apps import options, recipes
from edgewise.tasks.particles.atoms import CALCULATORS, drift, simulate
from edgewise.training.calculator import calculator

STEP = 2.0  # fs


def small_run(folder: Path) -> Path:
    """A potential of two short trajectories: enough to see it move, not to trust it."""
    little = {"task.training": "2", "task.held_out": "1", "task.frames": "5", "task.temperatures": "[300.0]"}
    little |= {"model.width": "16", "model.depth": "2", "train.steps": "40", "evaluation.every": "40"}
    config = options.configure(recipes.read("copper-schnet"), list(little.items()))
    return training.train(config, folder, progress=False).run


def main(run: Path, picoseconds: float) -> None:
    loaded = training.load_run(run, device="cpu")
    task, potential = loaded.task, calculator(loaded)
    truth = CALCULATORS[loaded.config.task.options.get("calculator", "emt")]()
    length = task.frames.energies.shape[1]
    steps = round(1000 * picoseconds / STEP)
    for first in range(0, len(task.splits["test"]), length):
        for name, forces in (("learned", potential), ("simulated", truth)):
            told = drift(simulate(task.atoms(f"test:{first}"), forces, frames=steps + 1, step=STEP))
            change = f"largest change {told.largest / told.kinetic:.3%} ({told.largest / told.total:.4%} of the total)"
            trend = f"trend {told.trend / told.kinetic:+.3%}, kinetic energy {told.kinetic:.3f} eV"
            print(f"test:{first}, {name} forces, {picoseconds:g} ps: {change}, {trend}", flush=True)


if __name__ == "__main__":
    if len(sys.argv) > 1:
        main(Path(sys.argv[1]), float(sys.argv[2]) if len(sys.argv) > 2 else 10.0)
    else:
        with tempfile.TemporaryDirectory() as folder:
            main(small_run(Path(folder) / "run"), 0.05)
