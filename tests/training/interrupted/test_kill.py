"""`kill -9` at random moments, then resume: the same bits as if nothing had happened."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from edgewise.training import finished
from training.interrupted.killed import STEPS
from training.tiny import records, same_run


def killed(folder: Path, kills: int, kind: str) -> list[Path]:
    """The runs that ended, the undisturbed one first."""
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    environment = os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, str(Path(__file__).with_name("killed.py")), str(folder), str(kills), kind]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr
    hits, runs = map(int, done.stdout.split())
    assert hits == kills
    return [folder / "whole", *(folder / f"killed-{number}" for number in range(runs))]


def check(runs: list[Path]) -> None:
    assert len(records(runs[0])) == 160 + 54 + 1
    for run in runs:
        assert same_run(run, runs[0])
        assert finished(run).steps == STEPS
        assert {path.name for path in run.iterdir()} <= {"checkpoints", "config.yaml", "metrics.jsonl"}
        assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-00000156", "step-00000160"]


@pytest.mark.processes
def test_four_kills_change_nothing(tmp_path):
    check(killed(tmp_path, 4, "forked"))


@pytest.mark.endurance
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("kills", "kind"), [(100, "forked"), (20, "fresh")])
def test_many_kills_change_nothing(tmp_path, kills, kind):
    check(killed(tmp_path, kills, kind))
