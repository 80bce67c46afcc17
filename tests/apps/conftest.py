"""Runs that the tests of the command line look at: trained once, copied for each test that writes."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from edgewise.apps.command.main import main

TINY = {
    "karate": "demo-karate --train.steps 4 --evaluation.every 2 --train.checkpoints.every 2 --model.width 8",
    "digits": "demo-digits --train.steps 2 --evaluation.every 1 --model.width 8 --train.batch 8",
    "text": "demo-text --train.steps 2 --evaluation.every 2 --model.width 8 --train.batch 2 --task.context 8",
    "gnn": "karate --model.name gnn --model.layer gcn --train.steps 2",
    "granular": "granular-gns --task.training 1 --task.held_out 1 --task.particles 3 --train.steps 2 --model.width 8",
    "graphs": "communities-transformer --task.train 20 --task.test 10 --task.draws 4 --train.steps 2 --train.batch 4 "
    "--model.width 8 --model.depth 1 --model.heads 2",
    "mlp": "digits-vit --model.name mlp --model.hidden [8] --task.patch 0 --train.steps 2",
}


@pytest.fixture(scope="session")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Path]:
    """`trained("karate")` is the folder of a tiny finished run: look, do not touch."""
    place = tmp_path_factory.mktemp("runs")

    def run(name: str) -> Path:
        if not (place / name).exists():
            with torch.random.fork_rng():
                assert main(["train", *TINY[name].split(), "--run", str(place / name)]) == 0
        return place / name

    return run


@pytest.fixture
def own(trained: Callable[[str], Path], tmp_path: Path) -> Callable[[str], Path]:
    """`own("karate")` is a copy of that run which a test may change."""

    def copy(name: str) -> Path:
        return Path(shutil.copytree(trained(name), tmp_path / name))

    return copy


@pytest.fixture(autouse=True)
def somewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test runs in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path
