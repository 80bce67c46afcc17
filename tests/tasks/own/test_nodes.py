"""Nodes of one's own graph with several targets, classes and quantities, some of them unknown."""

import csv
import json
from pathlib import Path

import pytest
import torch

import edgewise
from data.test_graph import write
from edgewise.apps.command.main import main
from edgewise.models import GNN, GNNSettings
from edgewise.tasks import node_folder
from edgewise.tasks.core.measures import measures
from edgewise.tasks.core.task import Parts
from edgewise.training import Choice, RunConfig, TrainSettings, examined, train

PEOPLE = 40


def people(folder: Path) -> str:
    """A ring of people with an age, unknown in every fourth, and a party, unknown in every fifth."""
    rows = [
        f"p{n},{n % 3},{'' if n % 4 == 0 else 20.5 + n},{'' if n % 5 == 0 else ('left', 'right')[n % 2]}"
        for n in range(PEOPLE)
    ]
    edges = [f"p{n},p{(n + 2) % PEOPLE}" for n in range(PEOPLE)]
    return write(folder, "who,height,age,party\n" + "\n".join(rows) + "\n", "from,to\n" + "\n".join(edges) + "\n")


def test_each_target_is_classes_or_a_quantity_and_may_be_unknown(tmp_path) -> None:
    task = node_folder(people(tmp_path), label="age,party")
    assert task.signature.outputs == 3 and task.metric == "loss" and not task.maximise
    assert task.contents.startswith("40 nodes with 2 targets")
    assert "age: a quantity (there are fractions; else give --task.target class)" in task.summary
    assert "party: 2 classes (texts that repeat)" in task.summary
    assert [column.name for column in task.given.x] == ["height"]
    known = {name for rows in task.splits.values() for name in rows.tolist()}
    assert known == {n for n in range(PEOPLE) if n % 4 or n % 5}  # those of whom nothing is known are in no part
    assert torch.equal(
        task.nodes.labels[:, :2].isnan(), torch.tensor([[n % 4 == 0, n % 5 == 0] for n in range(PEOPLE)])
    )


def test_parts_of_a_sampled_batch_make_its_loss(tmp_path) -> None:
    """However the seeds are shared out, the parts' losses, weighted by their known targets, are the whole's."""
    task = node_folder(people(tmp_path), label="age,party", fanouts=(2, 2))
    model = GNN(GNNSettings("sage-mean", width=4, depth=2, dropout=0.0), task.signature).double().eval()

    def loss(count: int) -> float:
        terms, parts = task.train_parts(16, torch.Generator().manual_seed(3), None, Parts(count, range(count)))
        assert terms == sum(part.size for part in parts)
        total = 0.0
        for part in parts:
            graph, x = part.inputs
            with torch.no_grad():
                total += float(task.loss(model(graph, x.double()), part)) * part.size / terms
        return total

    assert loss(3) == pytest.approx(loss(1), rel=1e-12)


def test_a_run_predicts_evaluates_and_reads_new_nodes(tmp_path, capsys) -> None:
    folder = people(tmp_path / "mine")
    task = Choice("node-folder", {"folder": folder, "label": "age,party"})
    model = Choice("gnn", {"layer": {"name": "gat", "heads": 2}, "width": 8})
    train(RunConfig(task, model, train=TrainSettings(steps=5)), tmp_path / "run", progress=False)
    trained = edgewise.load(tmp_path / "run")
    first, second = trained.predict(["p0", "p1"])
    assert first["node"] == "p0" and first["age"]["measured"] is None is first["party"]["label"]
    assert second["age"]["measured"] == 21.5 and second["party"]["label"] == "right"
    assert sum(second["party"]["probabilities"].values()) == pytest.approx(1)
    subject = trained.task.subject(trained.model, None, "p1")
    explained, _, what = subject.explained(trained.model)
    assert what == "age" and explained.value == pytest.approx(second["age"]["value"], rel=1e-5)
    assert explained.node == 1 and subject.names[1] == "p1"
    scores, answers = examined(trained.model, trained.task, "test", 9, whole=True)
    found = measures(answers)
    assert found["rmse age"]["value"] == pytest.approx(scores["rmse age"]) and "roc_auc party" in found
    titles = [drawing for section in trained.task.draw(trained.model, None, {}) for drawing in section.make()]
    assert "in fifths of the nodes" in titles[0].caption
    new = tmp_path / "new"
    new.mkdir()
    (new / "nodes.csv").write_text("who,height\nx,1\ny,2\n")
    (new / "edges.csv").write_text("from,to\nx,y\n")
    rows = [*trained.task.elsewhere(new).table(trained.model, None, "cpu")]
    assert [row["node"] for row in rows] == ["x", "y"] and set(rows[0]) == {"node", "age", "party"}
    ages = [row["age"]["value"] for row in rows]
    (new / "nodes.csv").write_text(f"who,height,age,party\nx,1,{ages[0] + 3},\ny,2,{ages[1] + 4},north\n")
    assert main(["evaluate", str(tmp_path / "run"), "--data", str(new), "--json"]) == 0
    out, err = capsys.readouterr()
    found = json.loads(out.splitlines()[-1])
    assert found["test"]["rmse age"] == pytest.approx(12.5**0.5, rel=1e-4) and "valid" not in found
    assert found["quality"]["measures"]["mae age"]["value"] == pytest.approx(3.5, rel=1e-4)
    assert "party: labels other than the run's count as unlabelled: north" in err
    assert not (tmp_path / "run" / "evaluation.json").exists()
    with (tmp_path / "run" / "split.csv").open() as split:
        assert {row["part"] for row in csv.DictReader(split)} == {"train", "valid", "test"}
