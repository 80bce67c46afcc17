"""A run's model on the nodes of another graph, which training never saw."""

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch

from edgewise import deployment, training
from edgewise.apps.command.main import main
from edgewise.errors import ConfigError, DataError
from tasks.own.test_record import NODES, train, write

NEW = "city,id,age,height\nUlm,n1,30,1.7\nRome,n2,,1.8\nBonn,n3,50,1.6\n"


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("own")
    return train(write(place / "mine"), place / "run")


def new(folder: Path, nodes: str = NEW, edges: str = "source,target\nn1,n3\n") -> Path:
    folder.mkdir()
    (folder / "nodes.csv").write_text(nodes, encoding="utf-8")
    (folder / "edges.csv").write_text(edges, encoding="utf-8")
    return folder


def answers(run: Path, place: Path, out: Path, capsys) -> tuple[list[dict], str]:
    capsys.readouterr()
    assert main(["predict", str(run), str(place), "--out", str(out), "--json"]) == 0
    told = capsys.readouterr()
    rows = json.loads(told.out.splitlines()[-1])["rows"]
    if out.suffix == ".parquet":
        table = pytest.importorskip("pyarrow.parquet").read_table(out).to_pylist()
    else:
        with out.open(newline="", encoding="utf-8") as file:
            table = list(csv.DictReader(file))
    assert len(table) == rows
    return table, told.err


def test_new_nodes_are_predicted_by_their_own_names(run, tmp_path, capsys) -> None:
    """The columns may stand in another order; the scales and levels are those of the nodes that trained."""
    rows, said = answers(run, new(tmp_path / "new"), tmp_path / "answers.csv", capsys)
    assert [row["node"] for row in rows] == ["n1", "n2", "n3"]
    assert list(rows[0]) == ["node", "class", "probabilities.u", "probabilities.v"]
    assert "city: Rome did not occur when the model was trained" in said and "not read: the columns height" in said
    loaded = training.load_run(run)
    age = next(one for one in loaded.task.fitted.columns if one.name == "age")
    scaled = [(value - age.shift) / age.deviation for value in (30, age.fill, 50)]
    x = torch.tensor([[scaled[0], 0, 1], [scaled[1], 0, 0], [scaled[2], 1, 0]])  # Bonn, Ulm
    task = loaded.task.elsewhere(tmp_path / "new")
    assert torch.allclose(task.nodes.x, x) and task.graph().edge_index().tolist() == [[2, 0], [0, 2]]
    with torch.no_grad():
        wanted = loaded.model(task.graph(), x).double().softmax(-1)
    got = [[float(row["probabilities.u"]), float(row["probabilities.v"])] for row in rows]
    assert np.allclose(got, wanted, atol=1e-6)


@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_the_run_s_own_graph_has_its_own_predictions(run, tmp_path, capsys, ending: str) -> None:
    place = Path(training.read_config(run).task.options["folder"])
    rows, said = answers(run, place, tmp_path / f"answers.{ending}", capsys)
    assert said == "" and len(rows) == NODES
    known = {node["node"]: node for node in deployment.load(run).predict(["p,0", "p,17"])}
    for row in (rows[0], rows[17]):
        assert row["class"] == known[row["node"]]["class"]
        for name, probability in known[row["node"]]["probabilities"].items():
            assert float(row[f"probabilities.{name}"]) == pytest.approx(probability, rel=1e-5)
    beside, _ = answers(run, place / "nodes.csv", tmp_path / f"beside.{ending}", capsys)
    assert beside == rows


def test_values_are_in_their_own_unit_and_labels_are_not_needed(tmp_path, capsys) -> None:
    run = train(write(tmp_path / "mine", lambda node: 500 + node / 4), tmp_path / "run")
    rows, _ = answers(run, new(tmp_path / "new"), tmp_path / "answers.parquet", capsys)
    assert list(rows[0]) == ["node", "value"] and all(480 < row["value"] < 540 for row in rows)


def test_arrays_are_another_graph_too(tmp_path, capsys) -> None:
    arrays = {"edge_index": np.array([[0, 1, 2], [1, 2, 0]]), "x": np.arange(8.0).reshape(4, 2)}
    (tmp_path / "mine").mkdir()
    parts = {"train": np.array([0, 1]), "valid": np.array([2]), "test": np.array([3])}
    np.savez(tmp_path / "mine" / "graph.npz", **arrays, **parts, labels=np.array([0, 1, 1, 0]))
    run = train(tmp_path / "mine", tmp_path / "run")
    np.savez(tmp_path / "other.npz", **arrays)
    rows, _ = answers(run, tmp_path / "other.npz", tmp_path / "answers.csv", capsys)
    assert [row["node"] for row in rows] == ["0", "1", "2", "3"]
    known = deployment.load(run).predict([3])[0]["probabilities"]
    assert float(rows[3]["probabilities.class 0"]) == pytest.approx(known["class 0"], rel=1e-5)
    np.savez(tmp_path / "bare.npz", edge_index=arrays["edge_index"])
    with pytest.raises(DataError, match="it has no x, and the run was trained with 2 features"):
        deployment.load(run).task.elsewhere(tmp_path / "bare.npz")
    np.savez(tmp_path / "wide.npz", edge_index=arrays["edge_index"], x=np.ones((4, 3)))
    with pytest.raises(DataError, match="x has 3 features, and the run was trained with 2"):
        deployment.load(run).task.elsewhere(tmp_path / "wide.npz")
    with pytest.raises(DataError, match="the run was trained with arrays"):
        deployment.load(run).task.elsewhere(new(tmp_path / "new"))


def test_a_column_that_is_missing_is_named_and_nothing_is_written(run, tmp_path, capsys) -> None:
    place = new(tmp_path / "new", NEW.replace("age", "years"))
    assert main(["predict", str(run), str(place), "--out", str(tmp_path / "answers.csv")]) == 2
    assert "it lacks the columns age, which the run was trained with" in capsys.readouterr().err
    assert not (tmp_path / "answers.csv").exists()


def test_arrays_without_features_predict_others_by_their_degrees(tmp_path, capsys) -> None:
    edges, labels = np.array([[0, 1, 2], [3, 3, 3]]), np.array([0, 1, 1, 0])
    parts = {"train": np.array([0, 1]), "valid": np.array([2]), "test": np.array([3])}
    (tmp_path / "mine").mkdir()
    np.savez(tmp_path / "mine" / "graph.npz", edge_index=edges, labels=labels, **parts)
    run = train(tmp_path / "mine", tmp_path / "run")
    np.savez(tmp_path / "larger.npz", edge_index=np.array([[0, 1, 2, 4], [3, 3, 3, 3]]), x=np.ones((6, 2)))
    rows, told = answers(run, tmp_path / "larger.npz", tmp_path / "answers.csv", capsys)
    assert len(rows) == 6 and "not read: the arrays x" in told
    assert rows[0]["probabilities.class 0"] == rows[4]["probabilities.class 0"] != rows[3]["probabilities.class 0"]


def test_a_task_of_one_graph_reads_no_other(tmp_path) -> None:
    assert main(["train", "karate", "--train.steps", "1", "--run", str(tmp_path / "run")]) == 0
    with pytest.raises(ConfigError, match="karate reads no other graph"):
        deployment.predict_file(deployment.load(tmp_path / "run"), tmp_path, tmp_path / "out.csv")


def test_a_graph_of_names_edges_and_labels_trains_on_degrees_and_predicts_others(tmp_path, capsys) -> None:
    """Each hub has eleven neighbours and each other node one: the degree says which is which."""
    nodes = "".join(
        f"n{k},{'hub' if k % 12 == 0 else 'leaf'},{('train', 'valid', 'test')[k // 12]}\n" for k in range(36)
    )
    edges = "".join(f"n{k},n{k - k % 12}\n" for k in range(36) if k % 12)
    mine = new(tmp_path / "mine", f"id,label,split\n{nodes}", f"source,target\n{edges}")
    run, task = str(tmp_path / "run"), ["--task", "node-folder", "--task.folder", str(mine)]
    assert main(["train", "cora-sage", *task, "--train.steps", "60", "--run", run, "--json"]) == 0
    told = capsys.readouterr().out
    assert "mine: 36 nodes of 2 classes; features: log(1 + degree) (a number)" in told
    assert "each node has log(1 + degree): nothing else is known of it" in told
    assert json.loads(told.splitlines()[-1])["mean"] == 1.0
    star = new(
        tmp_path / "star",
        "id,size\nx,1\n" + "".join(f"y{k},2\n" for k in range(11)),
        "source,target\n" + "".join(f"x,y{k}\n" for k in range(11)),
    )
    rows, said = answers(Path(run), star, tmp_path / "answers.csv", capsys)
    assert [row["class"] for row in rows] == ["hub", *["leaf"] * 11]
    assert "not read: the columns size" in said
