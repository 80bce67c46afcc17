"""Every figure of the documentation is within its bound: `pytest -m accuracy`, hours; less after `make figures`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import figures
from edgewise.training.runs import load_run

ROOT = Path(__file__).parent.parent
pytestmark = [pytest.mark.accuracy, pytest.mark.timeout(7200)]


def answer(folder: Path, *words: str) -> dict[str, Any]:
    """What a command of `edgewise` prints at its end."""
    command = [sys.executable, "-m", "edgewise", *words, "--json"]
    printed = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True).stdout
    return json.loads(printed.splitlines()[-1])


@pytest.mark.parametrize(
    "figure",
    [figure for figure in figures.figures() if figure.bound],
    ids=lambda figure: f"{figure.command} {figure.value}".rstrip(),
)
def test_a_figure_is_within_its_bound(figure: figures.Figure, data) -> None:
    data(".")
    known = {command: figures.measured(command) for command in (figure.command, figure.other) if command}
    assert [*figures.wrong(figure, known)] == []


def test_a_learned_potential_moves_atoms_and_keeps_their_energy(tmp_path: Path) -> None:
    """Forces are those of its energy; 10 ps at each temperature keep it within 1 %."""
    pytest.importorskip("ase")
    from ase.calculators.fd import calculate_numerical_forces

    from edgewise.tasks.particles.atoms import EnergiesAndForces, drift, simulate
    from edgewise.training.calculator import calculator

    answer(tmp_path, "train", "copper-schnet", "--run", "run")
    loaded = load_run(tmp_path / "run", device="cpu")
    assert isinstance(loaded.task, EnergiesAndForces)
    forces = calculator(loaded)
    for number in (0, 100, 200, 300):
        atoms = loaded.task.atoms(f"test:{number}")
        atoms.calc = forces
        assert abs(atoms.get_forces() - calculate_numerical_forces(atoms, eps=1e-4)).max() <= 1e-6
        told = drift(simulate(loaded.task.atoms(f"test:{number}"), forces, frames=5_001, step=2.0))
        assert told.largest <= 0.01 * min(told.kinetic, told.total), f"test:{number}: {told}"


def test_what_a_learned_simulator_makes_stays_in_the_box_and_gains_no_energy(tmp_path: Path) -> None:
    answer(tmp_path, "train", "granular-gns", "--run", "run")
    for film in range(10):
        told = answer(tmp_path, "predict", "run", f"test:{film}")
        assert told["steps"] == 200
        assert told["forecast"]["outside_the_walls"] < 0.04  # a radius: every centre is inside
        assert told["forecast"]["energy_last"] < told["forecast"]["energy_first"]
