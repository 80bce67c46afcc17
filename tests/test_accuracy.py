"""Every figure of the documentation is within its bound: `pytest -m accuracy`, hours; less after `make figures`."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from benchmarks import figures

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


def test_what_a_learned_simulator_makes_stays_in_the_box_and_gains_no_energy(tmp_path: Path) -> None:
    answer(tmp_path, "train", "granular-gns", "--run", "run")
    for film in range(10):
        told = answer(tmp_path, "predict", "run", f"test:{film}")
        assert told["steps"] == 200
        assert told["forecast"]["outside_the_walls"] < 0.04  # a radius: every centre is inside
        assert told["forecast"]["energy_last"] < told["forecast"]["energy_first"]
