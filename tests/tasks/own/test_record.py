"""What a run keeps of one's own data: it goes by its own split and scales, whatever becomes of the files."""

import csv
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from edgewise import files, training
from edgewise.apps.command.main import main
from edgewise.data import record
from edgewise.errors import DataError
from edgewise.tasks import node_folder
from edgewise.training.checkpoint import checkpoints

NODES = 60


def write(place: Path, label: Callable[[int], object] = lambda node: "uv"[node % 2], ids: bool = True) -> Path:
    place.mkdir(exist_ok=True)
    numbers = random.Random(0)
    with (place / "nodes.csv").open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file)
        rows.writerow((*(["id"] if ids else []), "age", "city", "label"))
        for node in range(NODES):
            row = numbers.randint(10, 90), ("Ulm", "Bonn")[node % 2], label(node)
            rows.writerow((f"p,{node}", *row) if ids else row)
    ends = [(node, (node + 2) % NODES) for node in range(NODES)]
    name = (lambda node: f'"p,{node}"') if ids else str
    lines = "".join(f"{name(a)},{name(b)}\n" for a, b in ends)
    (place / "edges.csv").write_text("source,target\n" + lines, encoding="utf-8")
    return place


def train(place: Path, run: Path, *more: str) -> Path:
    options = ["--task.folder", str(place), "--train.steps", "4", "--train.checkpoints.every", "2", *more]
    assert main(["train", "cora-gcn", "--task", "node-folder", *options, "--run", str(run)]) == 0
    return run


def evaluated(run: Path, capsys: pytest.CaptureFixture[str], *more: str) -> tuple[dict, str]:
    capsys.readouterr()
    assert main(["evaluate", str(run), "--json", *more]) == 0
    told = capsys.readouterr()
    return json.loads(told.out.splitlines()[-1]), told.err


def append(place: Path, *rows: str) -> None:
    with (place / "nodes.csv").open("a", encoding="utf-8") as file:
        file.writelines(f"{row}\n" for row in rows)


def test_a_row_more_does_not_redraw_the_split(tmp_path, capsys) -> None:
    """It used to: 24 of 40 test nodes of `evaluate` and `resume` had been trained on."""
    place = write(tmp_path / "mine")
    run = train(place, tmp_path / "run")
    before, quiet = evaluated(run, capsys)
    assert quiet == ""
    first = training.load_run(run).task.splits
    append(place, "new,5000,Rome,u", "later,20,Ulm,")
    after, said = evaluated(run, capsys)
    assert {split: before[split] for split in ("valid", "test")} == {split: after[split] for split in ("valid", "test")}
    assert "nodes.csv has changed since the run was trained" in said
    assert "nodes with a label in no part of the run's split, by which nothing is measured: 1" in said
    again = training.load_run(run).task.splits
    assert all(first[split].tolist() == again[split].tolist() for split in first)
    assert len(node_folder(str(place)).splits["train"]) == 37  # a new run has a new split


def test_a_run_that_goes_on_keeps_split_and_scales(tmp_path) -> None:
    place = write(tmp_path / "mine")
    whole, run = train(place, tmp_path / "whole"), train(place, tmp_path / "run")
    newest, older = checkpoints(run / "checkpoints")
    shutil.rmtree(newest)  # as if it had been killed before its last step
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:-1]), encoding="utf-8")
    x = training.load_run(run).task.nodes.x
    append(place, "new,5000,Ulm,u")
    loaded = training.load_run(run)
    assert loaded.task.nodes.x[:NODES].equal(x)  # a new outlier would have moved mean and deviation
    result = training.resume(run, progress=False)
    assert result.steps == 4 and newest.exists() and older.exists()
    assert (result.test, result.valid) == (training.finished(whole).test, training.finished(whole).valid)


def test_rows_may_be_sorted_differently_and_lie_elsewhere(tmp_path, capsys) -> None:
    place = write(tmp_path / "mine")
    run = train(place, tmp_path / "run")
    before, _ = evaluated(run, capsys)
    head, *rows = (place / "nodes.csv").read_text(encoding="utf-8").splitlines()
    elsewhere = tmp_path / "elsewhere"
    place.rename(elsewhere)
    (elsewhere / "nodes.csv").write_text("\n".join([head, *reversed(rows)]) + "\n", encoding="utf-8")
    assert main(["evaluate", str(run)]) == 2
    assert f"{place}: no such folder: give --task.folder" in capsys.readouterr().err
    after, said = evaluated(run, capsys, "--task.folder", str(elsewhere))
    assert "has changed" in said
    assert after["test"] == pytest.approx(before["test"]) and after["valid"] == pytest.approx(before["valid"])
    assert main(["predict", str(run), "p,3", "--task.folder", str(elsewhere), "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [node["node"] for node in told["nodes"]] == ["p,3"]
    assert main(["resume", str(run), "--task.folder", str(elsewhere)]) == 0
    assert main(["predict", str(run), "p99", "--task.folder", str(elsewhere)]) == 2
    assert "its nodes are called 'p,59', 'p,58', 'p,57'" in capsys.readouterr().err


def test_what_a_run_keeps_says_what_the_data_were(tmp_path) -> None:
    place = write(tmp_path / "mine", lambda node: node / 4)
    run = train(place, tmp_path / "run")
    kept = json.loads((run / record.DATA).read_text(encoding="utf-8"))
    assert kept["nodes"] == NODES and kept["edges"] == NODES and kept["named"]
    assert kept["files"]["nodes.csv"] == record.about(place / "nodes.csv")
    assert kept["targets"][0]["kind"] == "number" and kept["targets"][0]["deviation"] > 0
    assert [one["name"] for one in kept["columns"]] == ["age", "city"]
    assert kept["columns"][1]["levels"] == ["Bonn", "Ulm"]
    with (run / record.SPLIT).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == NODES and rows[0]["node"].startswith("p,")
    assert {row["part"] for row in rows} == {"train", "valid", "test"}
    task = training.load_run(run).task
    assert (task.mean, task.deviation) == (kept["targets"][0]["mean"], kept["targets"][0]["deviation"])


def test_what_could_not_be_read_again_is_not_written(tmp_path, monkeypatch) -> None:
    task, run = node_folder(str(write(tmp_path / "mine"))), tmp_path / "run"
    run.mkdir()
    for most, what in (("MAX_DATA", "files and columns"), ("MAX_BYTES", "parts")):
        with monkeypatch.context() as patch:
            patch.setattr(record, most, 99)
            with pytest.raises(DataError, match=f"keeps of its {what} takes .* of at most 99"):
                task.keep(run)
        assert not list(run.iterdir())
    fitted = replace(task.fitted, names={"text": "x" * files.MAX_JSON})  # as long as 70,000 images' sizes and hashes
    replace(task.own, fitted=fitted).keep(run)
    assert record.read(run) == fitted and record.changes_of(run, task.given) == []


def test_another_run_may_have_the_same_split(tmp_path) -> None:
    place = write(tmp_path / "mine")
    run = train(place, tmp_path / "run", "--task.fold", "3")
    alike, other = node_folder(str(place), like=str(run)), node_folder(str(place))
    assert alike.splits["test"].tolist() == training.load_run(run).task.splits["test"].tolist()
    assert alike.splits["test"].tolist() != other.splits["test"].tolist()


def test_lost_nodes_lost_labels_and_new_classes_are_said(tmp_path) -> None:
    place = write(tmp_path / "mine")
    run = train(place, tmp_path / "run")
    parts = training.load_run(run).task
    lost, blank, strange = (parts.given.names[parts.splits["train"][number]] for number in (0, 1, 2))
    head, *rows = (place / "nodes.csv").read_text(encoding="utf-8").splitlines()
    changed = []
    for row in rows:
        name = row.split('"')[1]
        if name == lost:
            continue
        label = "" if name == blank else "w" if name == strange else row[-1]
        changed.append(row[:-1] + label)
    (place / "nodes.csv").write_text("\n".join([head, *changed]) + "\n", encoding="utf-8")
    edges = (place / "edges.csv").read_text(encoding="utf-8").splitlines()
    kept = [line for line in edges if f'"{lost}"' not in line]
    (place / "edges.csv").write_text("\n".join(kept) + "\n", encoding="utf-8")
    task = node_folder(str(place), like=str(run))
    said = "\n".join(task.changes)
    assert f"no longer there, of the run's split: {lost}" in said
    assert "without a label now, of the train split: " in said and blank in said and strange in said
    assert "nodes with other labels than the run's count as unlabelled: w" in said
    assert len(task.splits["train"]) == len(parts.splits["train"]) - 3


def test_data_of_another_kind_are_refused(tmp_path) -> None:
    place = write(tmp_path / "mine")
    run = train(place, tmp_path / "run")
    rows = write(tmp_path / "rows", ids=False)
    with pytest.raises(DataError, match="the run's nodes were known by name"):
        node_folder(str(rows), like=str(run))
    with pytest.raises(DataError, match="the run was trained with the targets label, not label, city"):
        node_folder(str(place), label="label,city", like=str(run))
    text = (place / "nodes.csv").read_text(encoding="utf-8")
    (place / "nodes.csv").write_text(text.replace("age", "size"), encoding="utf-8")
    with pytest.raises(DataError, match="it lacks the columns age, which the run was trained with"):
        node_folder(str(place), like=str(run))
    (run / record.DATA).write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="what a run keeps of its data"):
        node_folder(str(place), like=str(run))


def test_a_split_that_was_altered_is_refused(tmp_path, capsys) -> None:
    run = train(write(tmp_path / "mine"), tmp_path / "run")
    with (run / record.SPLIT).open("a", encoding="utf-8") as file:
        file.write("x,test\n")
    assert main(["evaluate", str(run)]) == 2
    assert "split.csv was altered" in capsys.readouterr().err


def test_nodes_without_names_are_their_rows(tmp_path, capsys) -> None:
    place = write(tmp_path / "mine", ids=False)
    run = train(place, tmp_path / "run")
    append(place, "30,Ulm,u")
    _, said = evaluated(run, capsys)
    assert "nodes are known by their rows, which must not have moved: 61 now, 60 then" in said


def test_how_columns_were_read_is_printed_before_training(tmp_path, capsys) -> None:
    place = write(tmp_path / "mine")
    (place / "notes.txt").write_text("mine", encoding="utf-8")
    train(place, tmp_path / "run")
    out = capsys.readouterr().out
    for line in (
        "age (a number)",
        "city (a category of 2)",
        "label: 2 classes (texts that repeat)",
        "not read: notes.txt",
    ):
        assert line in out
    assert out.index("age (a number)") < out.index("seed 0")


def test_tables_beside_arrays_are_not_passed_over(tmp_path) -> None:
    place = write(tmp_path / "mine")
    (place / "graph.npz").write_bytes(b"")
    with pytest.raises(DataError, match=r"it has graph\.npz and nodes\.csv, edges\.csv: which is meant"):
        node_folder(str(place))


def test_a_task_without_a_folder_takes_none(tmp_path, capsys) -> None:
    assert main(["train", "karate", "--train.steps", "1", "--run", str(tmp_path / "run")]) == 0
    assert main(["evaluate", str(tmp_path / "run"), "--task.folder", "x"]) == 2
    assert "the task 'karate' reads no folder" in capsys.readouterr().err
    assert main(["predict", str(tmp_path / "run"), "3", "--task.file", "x"]) == 2
    assert "the task 'karate' reads no file: leave out --task.file" in capsys.readouterr().err
