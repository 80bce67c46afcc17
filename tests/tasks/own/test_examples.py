"""Examples of one's own from the command line: train, evaluate, predict, resume, export; new files; damaged runs."""

import csv
import json
from pathlib import Path

import pytest

from edgewise import deployment, training
from edgewise.apps.command.main import main
from tasks.own.test_graphs import write
from tasks.own.test_texts import write as write_texts

STEPS = ("--train.steps", "4", "--train.checkpoints.every", "2", "--evaluation.every", "2")


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("own")
    folder = write(place / "mine")
    options = ("--task.folder", str(folder), "--task.label", "shape,mass", *STEPS)
    assert main(["train", "own-graphs", "--model.layer", "gat", *options, "--run", str(place / "run")]) == 0
    return place / "run"


def told(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[dict, str]:
    capsys.readouterr()
    assert main([*words, "--json"]) == 0
    said = capsys.readouterr()
    return json.loads(said.out.splitlines()[-1]), said.out


def test_each_target_is_measured_and_evaluation_repeats_the_result(run, capsys) -> None:
    made, said = told(capsys, "evaluate", str(run))
    assert {"loss", "accuracy shape", "rmse mass", "mae mass"} == set(made["test"])
    assert set(made["quality"]["targets"]) == {"shape", "mass"} and "largest errors" in said and "precision" in said
    assert made["test"]["loss"] == pytest.approx(training.finished(run).test, rel=1e-6)


def test_a_prediction_is_by_name_or_by_split(run, capsys) -> None:
    made, _ = told(capsys, "predict", str(run), "g3")
    assert made["graph"] == "g3" and set(made["shape"]["probabilities"]) == {"ring", "star"}
    assert made["mass"]["measured"] == 3.5
    first, _ = told(capsys, "predict", str(run), "test:0")
    task = training.load_run(run).task
    assert first["graph"] == task.name_of(int(task.splits["test"][0]))
    assert main(["predict", str(run), "g999"]) == 2
    assert "no graph 'g999' in mine: its graphs are called 'g0', 'g1', 'g2'" in capsys.readouterr().err


def test_new_graphs_are_a_table_of_predictions(run, tmp_path, capsys) -> None:
    new = write(tmp_path / "new", count=5, labelled=False, first=100)
    out = tmp_path / "answers.csv"
    made, _ = told(capsys, "predict", str(run), str(new), "--out", str(out))
    assert made["rows"] == 5
    with out.open(newline="", encoding="utf-8") as file:
        table = list(csv.DictReader(file))
    assert [row["graph"] for row in table] == [f"g{n}" for n in range(100, 105)]
    assert all(
        float(r["shape.probabilities.ring"]) + float(r["shape.probabilities.star"]) == pytest.approx(1) for r in table
    )
    known = deployment.load(run).task.elsewhere(new)
    assert known.graphs.x.shape[1] == training.load_run(run).task.graphs.x.shape[1]


def test_a_file_that_lies_elsewhere_is_given_anew(tmp_path, capsys) -> None:
    table = write_texts(tmp_path / "texts.csv")
    run = tmp_path / "run"
    assert main(["train", "own-texts", "--task.file", str(table), *STEPS, "--run", str(run)]) == 0
    moved = table.rename(tmp_path / "moved.csv")
    assert main(["evaluate", str(run)]) == 2
    made, _ = told(capsys, "evaluate", str(run), "--task.file", str(moved))
    assert made["test"]["accuracy"] == pytest.approx(training.finished(run).test)


@pytest.mark.compiled
def test_it_is_exported(tmp_path) -> None:
    folder = write(tmp_path / "mine", weights=False)
    options = ("--task.folder", str(folder), "--task.label", "shape,mass", *STEPS, "--run", str(tmp_path / "run"))
    assert main(["train", "own-graphs", *options]) == 0
    exported = deployment.export_run(tmp_path / "run", "pt2", tmp_path / "model.pt2")
    assert exported.inputs["x"][1] == 4 and exported.outputs == ("y",)
    assert [one["name"] for one in exported.about["preprocessing"]["targets"]] == ["shape", "mass"]
