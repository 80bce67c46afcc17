"""A run goes by its own parts and scales, whatever becomes of the files; and predicts for files that it never saw."""

import csv
import json
import random
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewise import deployment, files, training
from edgewise.apps.command.main import main
from edgewise.data import record
from edgewise.errors import ConfigError, DataError
from edgewise.tasks import node_folder
from edgewise.training.checkpoint import checkpoints

NODES = 60
NEW = "city,id,age,height\nUlm,n1,30,1.7\nRome,n2,,1.8\nBonn,n3,50,1.6\n"
PARTS = {"train": np.array([0, 1]), "valid": np.array([2]), "test": np.array([3])}


def write(place: Path, label: Callable[[int], object] = lambda node: "uv"[node % 2], ids: bool = True) -> Path:
    numbers = random.Random(0)
    name = (lambda node: f'"p,{node}",') if ids else (lambda node: "")
    rows = [f"{name(n)}{numbers.randint(10, 90)},{('Ulm', 'Bonn')[n % 2]},{label(n)}" for n in range(NODES)]
    ends = [(name(n) or f"{n},") + (name((n + 2) % NODES) or f"{(n + 2) % NODES},") for n in range(NODES)]
    edges = "".join(f"{pair[:-1]}\n" for pair in ends)
    return given(place, f"{'id,' * ids}age,city,label\n" + "\n".join(rows) + "\n", f"source,target\n{edges}")


def given(place: Path, nodes: str, edges: str = "source,target\nn1,n3\n") -> Path:
    place.mkdir(exist_ok=True)
    (place / "nodes.csv").write_text(nodes, encoding="utf-8")
    (place / "edges.csv").write_text(edges, encoding="utf-8")
    return place


def train(place: Path, run: Path, *more: str) -> Path:
    words = ["train", "own-nodes", "--train.steps", "4", "--train.checkpoints.every", "2", "--evaluation.every", "2"]
    assert main([*words, *more, "--task.folder", str(place), "--run", str(run)]) == 0
    return run


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """A run, beside the folder "mine" of its data: no test may change them."""
    place = tmp_path_factory.mktemp("own")
    return train(write(place / "mine"), place / "run")


@pytest.fixture
def run(trained: Path, tmp_path: Path) -> Path:
    """A copy of the run with a copy of its data, for tests that change them."""
    shutil.copytree(trained.parent, tmp_path, dirs_exist_ok=True)
    return tmp_path / "run"


def evaluated(run: Path, capsys: pytest.CaptureFixture[str], folder: Path) -> tuple[dict, str]:
    capsys.readouterr()
    assert main(["evaluate", str(run), "--json", "--task.folder", str(folder)]) == 0
    told = capsys.readouterr()
    return json.loads(told.out.splitlines()[-1]), told.err


def answers(run: Path, place: Path, out: Path, capsys) -> tuple[list[dict], str]:
    capsys.readouterr()
    assert main(["predict", str(run), str(place), "--out", str(out), "--json"]) == 0
    told = capsys.readouterr()
    if out.suffix == ".parquet":
        table = pytest.importorskip("pyarrow.parquet").read_table(out).to_pylist()
    else:
        with out.open(newline="", encoding="utf-8") as file:
            table = list(csv.DictReader(file))
    assert len(table) == json.loads(told.out.splitlines()[-1])["rows"]
    return table, told.err


def test_a_row_more_redraws_no_split_and_moves_no_scale(run, trained, capsys) -> None:
    """It used to: 24 of 40 test nodes of `evaluate` and `resume` had been trained on."""
    place = run.parent / "mine"
    before, quiet = evaluated(run, capsys, place)
    x, first = node_folder(str(place), like=str(run)).nodes.x, training.load_run(trained).task.splits
    with (place / "nodes.csv").open("a", encoding="utf-8") as file:
        file.write("new,5000,Rome,u\nlater,20,Ulm,\n")
    after, said = evaluated(run, capsys, place)
    assert quiet == "" and all(before[split] == after[split] for split in ("valid", "test"))
    assert "nodes.csv has changed since the run was trained" in said
    assert "nodes with a label in no part of the run's split, by which nothing is measured: 1" in said
    again = node_folder(str(place), like=str(run))
    assert again.nodes.x[:NODES].equal(x)  # the outlier would have moved mean and deviation
    assert all(first[split].tolist() == again.splits[split].tolist() for split in first)
    assert len(node_folder(str(place)).splits["train"]) == 37  # a new run has a new split


def test_a_run_goes_on_to_the_same_result_with_rows_in_another_order_elsewhere(run, trained, capsys) -> None:
    newest = checkpoints(run / "checkpoints")[0]
    shutil.rmtree(newest)  # as if it had been killed before its last step
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines(keepends=True)
    (run / "metrics.jsonl").write_text("".join(lines[:-1]), encoding="utf-8")
    elsewhere = (run.parent / "mine").rename(run.parent / "elsewhere")
    assert main(["resume", str(run), "--task.folder", str(elsewhere)]) == 0 and newest.exists()
    whole, result = training.finished(trained), training.finished(run)
    assert (result.test, result.valid) == (whole.test, whole.valid)
    head, *rows = (elsewhere / "nodes.csv").read_text(encoding="utf-8").splitlines()
    (elsewhere / "nodes.csv").write_text("\n".join([head, *reversed(rows)]) + "\n", encoding="utf-8")
    after, said = evaluated(run, capsys, elsewhere)
    assert "has changed" in said and after["test"]["accuracy"] == pytest.approx(whole.test)
    assert main(["predict", str(run), "p,3", "--task.folder", str(elsewhere), "--json"]) == 0
    told = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert [node["node"] for node in told["nodes"]] == ["p,3"]
    assert main(["predict", str(run), "p99", "--task.folder", str(elsewhere)]) == 2
    assert "its nodes are called 'p,59', 'p,58', 'p,57'" in capsys.readouterr().err


def test_what_a_run_keeps_says_what_the_data_were(trained) -> None:
    kept = json.loads((trained / record.DATA).read_text(encoding="utf-8"))
    assert kept["nodes"] == NODES and kept["edges"] == NODES and kept["named"]
    assert kept["files"]["nodes.csv"] == record.about(trained.parent / "mine" / "nodes.csv")
    assert [one["name"] for one in kept["columns"]] == ["age", "city"]
    assert kept["columns"][1]["levels"] == ["Bonn", "Ulm"] and kept["targets"][0]["kind"] == "class"
    with (trained / record.SPLIT).open(newline="", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == NODES and rows[0]["node"].startswith("p,")
    assert {row["part"] for row in rows} == {"train", "valid", "test"}


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


def test_lost_nodes_lost_labels_and_new_classes_are_said(run) -> None:
    place = run.parent / "mine"
    parts = node_folder(str(place), like=str(run))
    lost, blank, strange = (parts.given.names[parts.splits["train"][number]] for number in (0, 1, 2))
    head, *rows = (place / "nodes.csv").read_text(encoding="utf-8").splitlines()
    labels = {blank: "", strange: "w"}
    named = [(row.split('"')[1], row) for row in rows]
    changed = [row[:-1] + labels.get(name, row[-1]) for name, row in named if name != lost]
    (place / "nodes.csv").write_text("\n".join([head, *changed]) + "\n", encoding="utf-8")
    edges = (place / "edges.csv").read_text(encoding="utf-8").splitlines()
    (place / "edges.csv").write_text("\n".join(line for line in edges if f'"{lost}"' not in line), encoding="utf-8")
    task = node_folder(str(place), like=str(run))
    said = "\n".join(task.changes)
    assert f"no longer there, of the run's split: {lost}" in said
    assert "without a label now, of the train split: " in said and blank in said and strange in said
    assert "nodes with other labels than the run's count as unlabelled: w" in said
    assert len(task.splits["train"]) == len(parts.splits["train"]) - 3


def test_data_of_another_kind_and_altered_records_are_refused(run, capsys) -> None:
    place = run.parent / "mine"
    with pytest.raises(DataError, match="the run's nodes were known by name"):
        node_folder(str(write(run.parent / "rows", ids=False)), like=str(run))
    with pytest.raises(DataError, match="the run was trained with the targets label, not label, city"):
        node_folder(str(place), label="label,city", like=str(run))
    text = (place / "nodes.csv").read_text(encoding="utf-8")
    (place / "nodes.csv").write_text(text.replace("age", "size"), encoding="utf-8")
    with pytest.raises(DataError, match="it lacks the columns age, which the run was trained with"):
        node_folder(str(place), like=str(run))
    with (run / record.SPLIT).open("a", encoding="utf-8") as file:
        file.write("x,test\n")
    assert main(["evaluate", str(run)]) == 2
    assert "split.csv was altered" in capsys.readouterr().err
    (run / record.DATA).write_text("{}", encoding="utf-8")
    with pytest.raises(DataError, match="what a run keeps of its data"):
        node_folder(str(place), like=str(run))


def test_how_columns_were_read_is_printed_before_training_and_rows_may_not_move(tmp_path, capsys) -> None:
    place = write(tmp_path / "mine", ids=False)
    (place / "notes.txt").write_text("mine", encoding="utf-8")
    run = train(place, tmp_path / "run")
    out = capsys.readouterr().out
    for line in ("age (a number)", "city (a category of 2)", "label: 2 classes (texts that", "not read: notes.txt"):
        assert line in out
    assert out.index("age (a number)") < out.index("seed 0")
    with (place / "nodes.csv").open("a", encoding="utf-8") as file:
        file.write("30,Ulm,u\n")
    _, said = evaluated(run, capsys, place)
    assert "nodes are known by their rows, which must not have moved: 61 now, 60 then" in said


def test_new_nodes_are_predicted_by_their_own_names(trained, tmp_path, capsys) -> None:
    """The columns may stand in another order; the scales and levels are those of the nodes that trained."""
    rows, said = answers(trained, given(tmp_path / "new", NEW), tmp_path / "answers.csv", capsys)
    assert [row["node"] for row in rows] == ["n1", "n2", "n3"]
    assert list(rows[0]) == ["node", "class", "probabilities.u", "probabilities.v"]
    assert "city: Rome did not occur when the model was trained" in said and "not read: the columns height" in said
    loaded = training.load_run(trained)
    age = next(one for one in loaded.task.fitted.columns if one.name == "age")
    scaled = [(value - age.shift) / age.deviation for value in (30, age.fill, 50)]
    x = torch.tensor([[scaled[0], 0, 1], [scaled[1], 0, 0], [scaled[2], 1, 0]])  # Bonn, Ulm
    task = loaded.task.elsewhere(tmp_path / "new")
    assert torch.allclose(task.nodes.x, x) and task.graph().edge_index().tolist() == [[2, 0], [0, 2]]
    with torch.no_grad():
        wanted = loaded.model(task.graph(), x).double().softmax(-1)
    got = [[float(row["probabilities.u"]), float(row["probabilities.v"])] for row in rows]
    assert np.allclose(got, wanted, atol=1e-6)
    lacking = given(tmp_path / "lacking", NEW.replace("age", "years"))
    assert main(["predict", str(trained), str(lacking), "--out", str(tmp_path / "none.csv")]) == 2
    assert "it lacks the columns age, which the run was trained with" in capsys.readouterr().err
    assert not (tmp_path / "none.csv").exists()


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_run_s_own_graph_has_its_own_predictions(trained, tmp_path, capsys, ending: str) -> None:
    place = trained.parent / "mine"
    rows, said = answers(trained, place / "nodes.csv", tmp_path / f"answers.{ending}", capsys)
    assert said == "" and len(rows) == NODES
    known = {node["node"]: node for node in deployment.load(trained).predict(["p,0", "p,17"])}
    for row in (rows[0], rows[17]):
        assert row["class"] == known[row["node"]]["class"]
        for name, probability in known[row["node"]]["probabilities"].items():
            assert float(row[f"probabilities.{name}"]) == pytest.approx(probability, rel=1e-5)


def test_values_are_in_their_own_unit_and_labels_are_not_needed(tmp_path, capsys) -> None:
    run = train(write(tmp_path / "mine", lambda node: 500 + node / 4), tmp_path / "run")
    kept, task = json.loads((run / record.DATA).read_text(encoding="utf-8")), training.load_run(run).task
    assert task.several.scales == ((kept["targets"][0]["mean"], kept["targets"][0]["deviation"]),)
    rows, _ = answers(run, given(tmp_path / "new", NEW), tmp_path / "answers.parquet", capsys)
    assert list(rows[0]) == ["node", "value", "low", "high"] and all(480 < row["value"] < 540 for row in rows)


def test_arrays_predict_for_arrays_with_or_without_features(tmp_path, capsys) -> None:
    arrays = {"edge_index": np.array([[0, 1, 2], [3, 3, 3]]), "labels": np.array([0, 1, 1, 0]), **PARTS}
    for name, more in (("with", {"x": np.arange(8.0).reshape(4, 2)}), ("without", {})):
        (tmp_path / name).mkdir()
        np.savez(tmp_path / name / "graph.npz", **arrays, **more)
        train(tmp_path / name, tmp_path / f"run-{name}")
    np.savez(tmp_path / "other.npz", edge_index=arrays["edge_index"], x=np.arange(8.0).reshape(4, 2))
    rows, _ = answers(tmp_path / "run-with", tmp_path / "other.npz", tmp_path / "answers.csv", capsys)
    assert [row["node"] for row in rows] == ["0", "1", "2", "3"]
    task = deployment.load(tmp_path / "run-with").task
    np.savez(tmp_path / "bare.npz", edge_index=arrays["edge_index"])
    np.savez(tmp_path / "wide.npz", edge_index=arrays["edge_index"], x=np.ones((4, 3)))
    for place, told in (
        (tmp_path / "bare.npz", "known of nodes is log.1 . degree., and the run was trained with x 0, x 1"),
        (tmp_path / "wide.npz", "known of nodes is x 0, x 1, x 2, and the run was trained with x 0, x 1"),
        (given(tmp_path / "new", NEW), "it lacks the columns x 0, x 1, which the run was trained with"),
    ):
        with pytest.raises(DataError, match=told):
            task.elsewhere(place)
    np.savez(tmp_path / "larger.npz", edge_index=np.array([[0, 1, 2, 4], [3, 3, 3, 3]]), x=np.ones((6, 2)))
    rows, told = answers(tmp_path / "run-without", tmp_path / "larger.npz", tmp_path / "answers.csv", capsys)
    assert len(rows) == 6 and "not read: the arrays x" in told
    assert rows[0]["probabilities.0"] == rows[4]["probabilities.0"] != rows[3]["probabilities.0"]


def test_a_task_of_one_graph_reads_no_other(tmp_path, capsys) -> None:
    run = str(tmp_path / "run")
    assert main(["train", "karate", "--train.steps", "1", "--run", run]) == 0
    with pytest.raises(ConfigError, match="karate reads no other graph"):
        deployment.predict_file(deployment.load(tmp_path / "run"), tmp_path, tmp_path / "out.csv")
    for words, what in ((["evaluate", run], "folder"), (["predict", run, "3"], "file")):
        assert main([*words, f"--task.{what}", "x"]) == 2
        assert f"the task 'karate' reads no {what}" in capsys.readouterr().err


def test_a_graph_of_names_edges_and_labels_trains_on_degrees_and_predicts_others(tmp_path, capsys) -> None:
    """Each hub has eleven neighbours and each other node one: the degree says which is which."""
    kinds = [("hub" if k % 12 == 0 else "leaf", ("train", "valid", "test")[k // 12]) for k in range(36)]
    nodes = "".join(f"n{k},{kind},{part}\n" for k, (kind, part) in enumerate(kinds))
    edges = "".join(f"n{k},n{k - k % 12}\n" for k in range(36) if k % 12)
    mine = given(tmp_path / "mine", f"id,label,split\n{nodes}", f"source,target\n{edges}")
    words = ["train", "own-nodes", "--task.folder", str(mine), "--train.steps", "60", "--run", str(tmp_path / "run")]
    assert main([*words, "--json"]) == 0
    told = capsys.readouterr().out
    assert "each node has log(1 + degree): nothing else is known of it" in told
    assert json.loads(told.splitlines()[-1])["mean"] == 1.0
    star = "id,size\nx,1\n" + "".join(f"y{k},2\n" for k in range(11))
    new = given(tmp_path / "star", star, "source,target\n" + "".join(f"x,y{k}\n" for k in range(11)))
    rows, said = answers(tmp_path / "run", new, tmp_path / "answers.csv", capsys)
    assert [row["class"] for row in rows] == ["hub", *["leaf"] * 11] and "not read: the columns size" in said
