"""A run as a plain module that predicts."""

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

import edgewise
from edgewise.apps import recipes
from edgewise.apps.options import configure
from edgewise.deployment import Trained, load
from edgewise.errors import CheckpointError, ConfigError, DataError
from edgewise.tasks.core.abilities import Predicts
from edgewise.training import load_run, train

RUNS = {
    "karate": ([("train.steps", "4"), ("model.width", "8")], ["0", "33", "5"]),
    "digits-vit": ([("train.steps", "1"), ("model.width", "8"), ("model.depth", "1")], ["test:3", "test:0", "valid:7"]),
    "listops-full": (
        [("train.steps", "1"), ("model.width", "8"), ("task.longest", "40"), ("task.examples", "20")],
        ["[MAX 2 9 ]", "[MIN 4 7 ]"],
    ),
}


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    place = tmp_path_factory.mktemp("runs")
    for name, (options, _) in RUNS.items():
        train(configure(recipes.read(name), options), place / name, progress=False)
    return place


@pytest.mark.parametrize("name", RUNS)
def test_predictions_of_many_rows_are_those_of_single_rows(name: str, runs: Path) -> None:
    trained, rows = load(runs / name), RUNS[name][1]
    assert isinstance(trained, nn.Module) and not trained.training
    together = trained.predict(rows)
    alone = [trained.predict([row])[0] for row in rows]
    two = trained.predict(iter(rows), batch=2)
    loaded = load_run(runs / name)
    singly = Predicts.predictions(loaded.task, loaded.model, loaded.pattern, rows, "cpu")
    singly = [one["nodes"][0] if "nodes" in one else one for one in singly]
    for other in (alone, two, singly):
        for a, b in zip(together, other, strict=True):
            assert a.keys() == b.keys()
            assert a["probabilities"] == pytest.approx(b["probabilities"], rel=1e-5)
            assert {k: v for k, v in a.items() if k != "probabilities"} == {
                k: v for k, v in b.items() if k != "probabilities"
            }


def test_it_is_the_model_and_reads_numbers_and_paths(runs: Path, tmp_path: Path) -> None:
    trained = edgewise.load(runs / "karate")
    graph, x = trained.task.graph(), trained.task._x
    assert torch.equal(trained(graph, x), trained.model(graph, x))
    assert trained.predict([33]) == trained.predict(["33"])
    images = load(runs / "digits-vit")
    np.save(tmp_path / "three.npy", images.task.read("test:3")[0].numpy())
    mine, known = images.predict([tmp_path / "three.npy", "test:3"])
    assert mine["probabilities"] == known["probabilities"] and mine["label"] is None
    assert trained.predict([]) == []


def test_what_it_cannot_read_is_refused(runs: Path, tmp_path: Path) -> None:
    trained = load(runs / "karate")
    with pytest.raises(ConfigError, match=r"a list of inputs, not one of them: \['0,33'\]"):
        trained.predict("0,33")
    with pytest.raises(ConfigError, match="batch=0 must be at least 1"):
        trained.predict([0], batch=0)
    with pytest.raises(DataError, match="names 2 nodes: give one at a time"):
        trained.predict(["0,33"])
    with pytest.raises(DataError, match="no node '34' in karate"):
        trained.predict([0, 34])
    with pytest.raises(DataError, match=r"(?s)no node '34' in karate.*no node '-1' in karate"):
        load(runs / "karate").predict(["34", "3", "-1"])
    with pytest.raises(CheckpointError, match="is not a run folder"):
        load(tmp_path)


def test_what_no_run_has_is_refused(runs: Path) -> None:
    with pytest.raises(ConfigError, match="weights='worst' are neither 'best' nor 'last'"):
        load(runs / "karate", weights="worst")  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="must be auto, cpu, cuda, cuda:N or mps, not 'x'"):
        load(runs / "karate", device="x")
    trained = load(runs / "karate")
    with pytest.raises(ConfigError, match="rows are a list of inputs, not a NoneType"):
        trained.predict(None)  # type: ignore[arg-type]
    assert trained.predict(torch.tensor([3, 0])) == trained.predict([3, 0])


def test_rows_are_read_a_batch_at_a_time(runs: Path) -> None:
    taken = []

    def rows():
        for node in range(10):
            taken.append(node)
            yield node

    predictions = load(runs / "karate").predictions(rows(), batch=4)
    next(predictions)
    assert taken == [0, 1, 2, 3]
    assert [next(predictions)["node"] for _ in range(9)] == list(range(1, 10))


def test_nothing_is_unpickled(runs: Path) -> None:
    code = f"""
import _pickle, pickle
def refuse(*arguments, **options):
    raise AssertionError("unpickled")
import edgewise, torch
pickle.load = pickle.loads = _pickle.load = _pickle.loads = torch.load = refuse
print(len(edgewise.load({str(runs / "karate")!r}).predict([0, 1])))
"""
    assert subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout == "2\n"


def test_a_task_without_many_predictions_predicts_one_after_the_other(tmp_path: Path) -> None:
    options = [("train.steps", "1"), ("task.points", "20")]
    train(configure(recipes.read("kernel-regression"), options), tmp_path / "run", progress=False)
    trained = load(tmp_path / "run", weights="last", device="cpu")
    assert isinstance(trained, Trained)
    alone = [trained.task.predict(trained.model, trained.pattern, row, "cpu") for row in ("0.5", "1.5")]
    assert trained.predict(["0.5", 1.5]) == alone
