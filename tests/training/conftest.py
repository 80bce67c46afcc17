"""The tiny task and model, in the tables while a test runs."""

import subprocess
import sys
from pathlib import Path

import pytest

from edgewise.models import MODELS
from edgewise.tasks import TASKS
from training.launched import environment, launch
from training.tiny import PenalisedMaps, TwoMaps, TwoMapsSettings, tiny


@pytest.fixture(autouse=True)
def tiny_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(TASKS, "tiny", tiny)
    monkeypatch.setitem(MODELS, "two maps", (TwoMapsSettings, TwoMaps))
    monkeypatch.setitem(MODELS, "penalised", (TwoMapsSettings, PenalisedMaps))


@pytest.fixture(scope="session")
def worlds(tmp_path_factory):
    """The run folders of worlds of one to four processes, trained at the same time."""
    script = Path(__file__).with_name("several.py")
    folders = [tmp_path_factory.mktemp(f"world-{size}") for size in (1, 2, 3, 4)]
    forked = [str(part) for size, folder in enumerate(folders, 1) if size != 2 for part in (folder, size)]
    command = [sys.executable, str(script), *forked]
    others = subprocess.Popen(command, env=environment(script), stderr=subprocess.PIPE, text=True)
    for process in (launch(2, script, folders[1]), others):
        _, errors = process.communicate(timeout=500)
        assert process.returncode == 0, errors
    return folders
