"""An altered configuration or a spoilt history is named and refused, by whatever reads runs; accepting goes on."""

import shutil
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from edgewise import fit
from edgewise.errors import CheckpointError
from edgewise.graphs import Graph
from edgewise.layers import GCN
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.tasks import NodeClassification, karate
from edgewise.training import (
    CheckpointSettings,
    Choice,
    RunConfig,
    TrainSettings,
    load_run,
    resume,
    train,
)
from edgewise.training.checkpoint import checkpoints
from edgewise.training.integrity import check
from training.tiny import Tiny, configured, same_run, without_result


@pytest.fixture
def run(tmp_path):
    train(configured(), tmp_path / "run", progress=False)
    return tmp_path / "run"


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


SPOILT = {
    # what happened to the run: how, and a part of the complaint
    "a comment in the configuration": (
        lambda run: (run / "config.yaml").write_text((run / "config.yaml").read_text() + "# mine\n"),
        r"/config\.yaml was altered since step-00000040 was saved",
    ),
    "another seed": (
        lambda run: (run / "config.yaml").write_text((run / "config.yaml").read_text().replace("seed: 0", "seed: 1")),
        r"/config\.yaml was altered",
    ),
    "a digit of the first record": (lambda run: flip(run / "metrics.jsonl", 8), r"/metrics\.jsonl was altered"),
    "a digit of the result": (lambda run: flip(run / "metrics.jsonl", -30), r"/metrics\.jsonl was altered"),
    "a record less": (
        lambda run: (run / "metrics.jsonl").write_bytes((run / "metrics.jsonl").read_bytes()[:100]),
        r"/metrics\.jsonl has lost its end \(100 of [\d,]+ bytes are left\)",
    ),
    "no history": (lambda run: (run / "metrics.jsonl").unlink(), r"/metrics\.jsonl was removed"),
}


@pytest.mark.parametrize(("case", "read"), [*zip(SPOILT, 3 * [load_run, resume], strict=True)])
def test_what_was_altered_is_named_and_refused(run, read, case):
    spoil, complaint = SPOILT[case]
    spoil(run)
    with pytest.raises(CheckpointError, match=complaint + r".*: restore it, or go on with it as it is by --accept$"):
        read(run)


def test_both_are_named_and_accepted_in_one_line(run, capsys):
    for case in ("another seed", "no history"):
        SPOILT[case][0](run)
    with pytest.raises(CheckpointError, match=r"config\.yaml was altered and .*metrics\.jsonl was removed since"):
        check(run)
    assert load_run(run, accept=True).config.train.seed == 1
    assert capsys.readouterr().err.splitlines()[-1].endswith("since step-00000040 was saved; accepted")


def test_what_was_accepted_is_what_later_checkpoints_record(run, tmp_path):
    without_result(run)
    config = run / "config.yaml"
    config.write_text(config.read_text().replace("steps: 40", "steps: 60"))
    with pytest.raises(CheckpointError, match="was altered"):
        resume(run, progress=False)
    assert resume(run, progress=False, accept=True).steps == 60
    check(run)
    assert same_run(run, _whole(tmp_path, steps=60))


def _whole(tmp_path, **options):
    train(configured(**options), tmp_path / "whole", progress=False)
    return tmp_path / "whole"


def test_files_that_a_task_keeps_belong_to_it(tmp_path, monkeypatch):
    monkeypatch.setattr(Tiny, "kept", ("words.json",))
    monkeypatch.setattr(Tiny, "keep", lambda self, run: (run / "words.json").write_text("[1]"), raising=False)
    train(configured(), tmp_path / "run", progress=False)
    check(tmp_path / "run")
    (tmp_path / "run" / "words.json").write_text("[2]")
    with pytest.raises(CheckpointError, match=r"words\.json was altered"):
        load_run(tmp_path / "run")


def test_examples_that_were_drawn_anew_are_refused(tmp_path, capsys):
    """A molecule more used to redraw the split, and moved the mean and the deviation of what is predicted."""
    pytest.importorskip("rdkit")
    place = tmp_path / "mine"
    place.mkdir()
    (place / "a.csv").write_text("smiles,value\n" + "".join(f"{'C' * n},{n}\n" for n in range(1, 31)), encoding="utf-8")
    options = {"file": "a.csv", "value": "value", "folder": str(place)}
    config = RunConfig(
        Choice("molecules", options),
        Choice("gnn", {"layer": "gin", "width": 4, "depth": 1, "readout": "mean"}),
        train=TrainSettings(steps=2, batch=4, checkpoints=CheckpointSettings(every=1)),
    )
    folder = tmp_path / "run"
    train(config, folder, progress=False)
    before = load_run(folder).task
    with (place / "a.csv").open("a", encoding="utf-8") as file:
        file.write("CCO,-5000\n")
    with pytest.raises(
        CheckpointError, match=r"data have changed .* 24 train, 3 valid, 3 test then, 25 train, 3 valid, 3 test now"
    ):
        load_run(folder)
    assert load_run(folder, accept=True).task.mean != before.mean
    assert "drawn anew" not in capsys.readouterr().err
    newest = checkpoints(folder / "checkpoints")[0]
    shutil.rmtree(newest)
    without_result(folder)
    with pytest.raises(CheckpointError, match="its data have changed since it was trained"):
        resume(folder, progress=False)
    assert resume(folder, progress=False, accept=True).steps == 2
    assert load_run(folder).task.mean != before.mean  # what was accepted is what later checkpoints record


def test_other_data_are_refused_where_a_run_is_finished(tmp_path: Path) -> None:
    task = karate()
    fit(task, GCN(34, 2), tmp_path / "run", steps=1)
    splits = {split: rows.flip(0)[1:] for split, rows in task.nodes.splits.items()}
    other = NodeClassification("karate", replace(task.nodes, splits=splits))
    with pytest.raises(CheckpointError, match=r"then, 1.* now, drawn anew: bring them back, or train anew in another"):
        fit(other, GCN(34, 2), tmp_path / "run", resume=True, steps=1)


@pytest.mark.parametrize(("changed", "sparse"), [("x", True), ("labels", False), ("graph", False)])
def test_other_features_labels_and_edges_are_refused_by_fit(tmp_path: Path, changed: str, sparse: bool) -> None:
    """Their splits are the same; what `edgewise resume` has to accept it, `fit` does not have."""
    nodes, run = karate().nodes, tmp_path / "run"
    if sparse:
        nodes = replace(nodes, x=SparseFeatures(Graph.from_csr(torch.arange(35), torch.arange(34), 34), torch.ones(34)))
    value = {"x": nodes.x, "labels": nodes.labels.clone(), "graph": nodes.graph.add_self_loops()}[changed]
    if changed == "labels":
        value[nodes.splits["train"][0]] ^= 1
    if changed == "x":
        value = SparseFeatures(nodes.x.graph, 2 * nodes.x.weight) if sparse else 2 * nodes.x
    other = replace(nodes, **{changed: value})
    fit(NodeClassification("karate", nodes), GCN(34, 2), run, steps=1)
    assert fit(NodeClassification("karate", nodes), GCN(34, 2), run, resume=True, steps=1).steps == 1
    for _ in range(2):
        with pytest.raises(CheckpointError, match=r"graph, features or targets\. Bring these back, or train anew"):
            fit(NodeClassification("karate", other), GCN(34, 2), run, resume=True, steps=1)
        without_result(run)


def test_a_model_of_another_dtype_and_an_altered_run_are_refused_by_fit(tmp_path: Path) -> None:
    """Its weights became those of the run in its own dtype, without a word."""
    run = tmp_path / "run"
    fit(karate(), GCN(34, 2), run, steps=1)
    with pytest.raises(CheckpointError, match=r"is float32 in the checkpoint and float64 in the model"):
        fit(karate(), GCN(34, 2).double(), run, resume=True, steps=1)
    (run / "metrics.jsonl").unlink()
    with pytest.raises(CheckpointError, match=r"was removed since .*: restore it, or train anew in another folder"):
        fit(karate(), GCN(34, 2), run, resume=True, steps=1)
