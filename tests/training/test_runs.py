"""Runs seen from outside: loading, evaluating, and what is not a run."""

import shutil
from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.utils.class_weight import compute_class_weight
from torch import nn

from edgewise.errors import CheckpointError, ConfigError, DataError, NonFiniteError
from edgewise.tasks import TASKS, Task
from edgewise.training import (
    Choice,
    RunConfig,
    StartSettings,
    TrainSettings,
    assemble,
    evaluate,
    finished,
    fit,
    load_run,
    read_config,
    read_metrics,
    resume,
    runs,
    train,
)
from edgewise.training.checkpoint import newest
from edgewise.training.runs import begin, create, take_over
from training.tiny import Tiny, TwoMaps, TwoMapsSettings, configured, records, tiny, trained, weights, without_result


@pytest.fixture
def run(tmp_path):
    train(configured(), tmp_path / "run", progress=False)
    return tmp_path / "run"


def test_best_and_last_weights_are_those_of_their_evaluations(run):
    result = finished(run)
    valid = {line["step"]: line["valid"] for line in records(run) if "valid" in line and "test" not in line}
    assert result is not None
    assert result.best_step < 40, "the test needs a best step that is not the last"
    for choice, step in (("best", result.best_step), ("last", 40)):
        loaded = load_run(run, choice, device="cpu")
        assert not loaded.model.training
        scores = evaluate(loaded.model, loaded.task, "valid", 16, loaded.pattern)
        assert scores == pytest.approx(valid[step], rel=1e-12)
    assert evaluate(load_run(run).model, tiny(), "test", 7)["accuracy"] == pytest.approx(result.test, rel=1e-12)


def test_before_the_first_evaluation_the_last_weights_are_the_best(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(TASKS, "tiny", lambda **_: Tiny("stop", 7, double=False, metric="accuracy"))
    with pytest.raises(KeyboardInterrupt):
        train(configured(checkpoint_every=5), tmp_path / "run", progress=False)
    last = weights(tmp_path / "run", "model")
    assert all(torch.equal(w, last[name]) for name, w in load_run(tmp_path / "run").model.state_dict().items())
    assert "step-00000005 was saved before the first evaluation" in capsys.readouterr().err
    model = TwoMaps(TwoMapsSettings(), tiny().signature)
    assert take_over(model, StartSettings(run=str(tmp_path / "run"))) == last.keys()


@pytest.mark.parametrize(
    ("task", "options", "moved", "now"),
    [
        ("text", {"file": "a.txt"}, "b.txt", "file"),
        ("text", {"file": "a.txt"}, {"folder": "b"}, "reads no folder: give --task.file"),
        ("text", {"source": "shakespeare"}, "b", "folder"),
        ("molecules", {"file": "a.csv", "folder": "a"}, {"file": "b.csv", "folder": "b"}, "file folder"),
        ("text-table", {"file": "a.csv"}, "b.csv", "file"),
        ("citation", {}, {"file": "b.csv"}, "reads no file: give --task.folder"),
        ("karate", {}, {"file": "b"}, "reads no file: leave out --task.file"),
    ],
)
def test_data_that_lie_elsewhere_are_named_by_the_option_that_is_read(tmp_path, task, options, moved, now):
    config = RunConfig(Choice(task, options), configured().model)
    create(tmp_path / "run", config)
    if "reads" in now:
        with pytest.raises(ConfigError, match=now):
            read_config(tmp_path / "run", moved)
        return
    before, after = (read_config(tmp_path / "run", one).task.options for one in (None, moved))
    changed = moved if isinstance(moved, dict) else {now: moved}
    assert set(now.split()) == set(changed) and after == before | changed


def test_evaluation_is_the_mean_over_the_split_whatever_the_batch():
    task, model = assemble(configured())
    x, labels = task.x[112:160], task.labels[112:160]
    model.eval()
    loss = nn.functional.cross_entropy(model(None, x), labels).item()
    accuracy = (model(None, x).argmax(1) == labels).double().mean().item()
    for size in (1, 7, 48, 1000):
        scores = evaluate(model, task, "test", size)
        assert scores == pytest.approx({"loss": loss, "accuracy": accuracy}, rel=1e-6)


def test_evaluation_disturbs_neither_the_model_nor_the_random_numbers():
    task, model = assemble(configured())
    model.train()
    model.drop.eval()
    torch.manual_seed(1)
    expected = torch.rand(3)
    torch.manual_seed(1)
    evaluate(model, task, "valid", 16)
    assert torch.equal(torch.rand(3), expected)
    assert model.training and not model.drop.training
    assert all(parameter.grad is None for parameter in model.parameters())
    with pytest.raises(ZeroDivisionError):
        evaluate(model, Unreadable("stop", 0, double=False, metric="accuracy"), "valid", 16)
    assert model.training and not model.drop.training


class Unreadable(Tiny):
    def score(self, *of):
        return 1 / 0


def test_predictions_that_are_no_numbers_have_no_scores(run):
    """Of NaN, the likeliest class was the first: an accuracy of a third beside a loss of NaN."""
    task, model = tiny(), load_run(run).model
    task.x[70] = torch.inf
    with pytest.raises(NonFiniteError, match=r"^the valid loss is nan$"):
        evaluate(model, task, "valid", 16)
    assert evaluate(model, task, "test", 16)["accuracy"] == pytest.approx(finished(run).test)


def test_a_cut_last_line_is_left_out_and_a_damaged_one_is_an_error(run):
    metrics = run / "metrics.jsonl"
    complete = read_metrics(run)
    with metrics.open("a") as file:
        file.write('{"step": 40, "los')
    assert read_metrics(run) == complete
    metrics.write_text("{damaged\n" + metrics.read_text())
    with pytest.raises(DataError, match="cannot read"):
        read_metrics(run)


def test_a_task_without_a_test_split_reports_its_validation_score(tmp_path, monkeypatch):
    monkeypatch.setattr(Tiny, "has_test", False)
    result = train(configured(), tmp_path / "run", progress=False)
    assert result.test is None and result.value == result.valid
    assert result.measure == "validation accuracy"
    assert finished(tmp_path / "run") == result


def test_weights_that_a_run_lacks_are_named_where_training_begins(run, tmp_path, capsys):
    model = load_run(run).model
    config = replace(read_config(run), start=StartSettings(str(run)))
    begin(model, config, shown=True)
    assert capsys.readouterr().err == ""
    model.second = nn.Linear(model.second.in_features, 7)
    begin(model, config, shown=True)
    assert capsys.readouterr().err == f"{run} lacks 2 of the model's 4 weights: second.weight, second.bias\n"
    for shown in (True, False):
        wider = replace(config, model=replace(config.model, options={"width": 3}))
        train(wider, tmp_path / f"wider {shown}", progress=shown)
        assert capsys.readouterr().err.count(f"{run} lacks 3 of the model's 4 weights") == shown


def test_weights_that_do_not_fit_are_drawn_anew(run):
    class Wider(TwoMaps):
        def __init__(self):
            super().__init__(TwoMapsSettings(), tiny().signature)
            self.second = nn.Linear(self.second.in_features, 7)

    model, trained = Wider(), load_run(run).model
    drawn = model.second.weight.clone()
    take_over(model, StartSettings(str(run)))
    assert torch.equal(model.first.weight, trained.first.weight)
    assert torch.equal(model.second.weight, drawn)
    with pytest.raises(CheckpointError, match="fits this model"):
        take_over(nn.Conv1d(1, 1, 1), StartSettings(str(run)))
    with pytest.raises(CheckpointError, match="not a run folder"):
        take_over(model, StartSettings(str(run / "nothing")))


def test_an_adapted_run_trains_what_the_other_lacks(tmp_path):
    """An output layer of another shape is drawn, trained whole and saved."""
    narrow = replace(configured(), model=Choice("two maps", {"width": 5}))
    train(narrow, tmp_path / "narrow", progress=False)
    config = replace(configured(), start=StartSettings(str(tmp_path / "narrow"), rank=1, names="second"))
    model = assemble(config)[1]
    trained = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    assert trained == {
        "first.weight",
        "first.bias",
        "second.parametrizations.weight.original",
        "second.parametrizations.weight.0.A",
        "second.parametrizations.weight.0.B",
    }
    train(config, tmp_path / "wide", progress=False)
    assert load_run(tmp_path / "wide").model.second.weight.shape == (3, 8)


def test_an_adapted_run_saves_its_additions_alone(run, tmp_path):
    """It is loaded with the frozen weights of the run that it starts from."""
    config = replace(configured(), start=StartSettings(str(run), rank=2))
    result = train(config, tmp_path / "adapted", progress=False)
    saved = newest(tmp_path / "adapted" / "checkpoints", print).tensors("best")
    assert saved and all(name.endswith((".A", ".B")) for name in saved)
    loaded = load_run(tmp_path / "adapted")
    frozen = load_run(run).model.first.weight
    assert torch.equal(loaded.model.first.parametrizations.weight.original, frozen)
    assert not torch.equal(loaded.model.first.weight, frozen)
    assert evaluate(loaded.model, loaded.task, "test", 16)["accuracy"] == pytest.approx(result.test)
    with pytest.raises(CheckpointError, match="low-rank additions only"):
        take_over(load_run(run).model, StartSettings(str(tmp_path / "adapted")))
    with pytest.raises(ConfigError, match=r"name a run with start\.run"):
        StartSettings(rank=2)


def test_what_a_task_keeps_is_in_the_run_folder_and_on_the_disk(tmp_path, monkeypatch):
    flushed, task = [], tiny()
    task.kept = ("tokens.json",)
    task.keep = lambda folder: (folder / "tokens.json").write_text("{}", encoding="utf-8")
    monkeypatch.setattr(runs, "flush", flushed.append)
    create(tmp_path / "run", configured(), task)
    assert (tmp_path / "run" / "tokens.json").is_file() and flushed == [tmp_path / "run" / "tokens.json"]


def test_of_two_processes_that_make_one_run_folder_the_second_is_refused(tmp_path):
    """Both had found it free: the second one's configuration took the place of that by which the first one trains."""
    create(tmp_path / "run", configured())
    with pytest.raises(ConfigError, match="already holds a run"):
        create(tmp_path / "run", configured(seed=1))
    assert read_config(tmp_path / "run") == configured()


def test_what_is_kept_in_a_folder_that_is_no_run_yet_is_not_read(tmp_path, monkeypatch):
    """A process that ends while it makes the folder leaves tokens, perhaps in halves, and no configuration."""
    read = []
    monkeypatch.setattr(Tiny, "recall", lambda self, folder: read.append(folder), raising=False)
    (tmp_path / "run").mkdir()
    train(configured(steps=1), tmp_path / "run", progress=False)
    assert read == []
    load_run(tmp_path / "run")
    assert read == [tmp_path / "run"]


def test_a_run_that_adds_to_another_is_refused_where_that_has_changed(tmp_path, capsys):
    """It was computed with the weights that the other one has by now."""
    base = tmp_path / "base"
    train(configured(steps=8), base, progress=False)

    config = replace(configured(steps=8, checkpoint_every=4), start=StartSettings(str(base), rank=2))
    adapted = trained(tmp_path / "adapted", config)
    without_result(adapted)
    scores = evaluate(load_run(adapted).model, tiny(), "test", 16)
    base.rename(tmp_path / "before")
    train(configured(steps=16, seed=1), base, progress=False)
    for read in (load_run, resume):
        with pytest.raises(CheckpointError, match=r"the weights of .*base, to which it adds, have changed .* --accept"):
            read(adapted)
    assert evaluate(load_run(adapted, accept=True).model, tiny(), "test", 16) != scores
    assert "have changed since it was trained; accepted" in capsys.readouterr().err
    shutil.rmtree(adapted / "checkpoints" / "step-00000008")
    resume(adapted, progress=False, accept=True)
    load_run(adapted)  # what was accepted is what later checkpoints record


SCORES = {
    "no count": (lambda s: {"loss": s["loss"]}, r"Tiny\.score must return sums over a batch by name, and their number"),
    "a tensor": (lambda s: s["loss"], "their number as 'count', not a Tensor"),
    "several numbers": (lambda s: s | {"loss": torch.ones(3)}, r"'loss' is no single number, but \[3\]"),
    "no metric": (
        lambda s: {"loss": s["loss"], "count": s["count"]},
        "'accuracy', but the scores of the .* are 'loss'",
    ),
}


@pytest.mark.parametrize("name", SCORES)
def test_scores_of_ones_own_that_cannot_be_compared_are_named(name, monkeypatch):
    task, score, (change, why) = tiny(), Tiny.score, SCORES[name]
    monkeypatch.setattr(Tiny, "score", lambda self, outputs, batch: change(score(self, outputs, batch)))
    with pytest.raises(ConfigError, match=why):
        evaluate(TwoMaps(TwoMapsSettings(), task.signature), task, "valid", 16)


@pytest.mark.parametrize("method", ["finish", "judge"])
@pytest.mark.parametrize(("returned", "what"), [(None, "not a NoneType"), ({"b": "x"}, "'b' is a str")])
def test_final_scores_of_ones_own_that_are_no_numbers_by_name_are_named(method, returned, what, monkeypatch):
    task = tiny()
    monkeypatch.setattr(Tiny, method, lambda self, *_: returned, raising=False)
    with pytest.raises(ConfigError, match=rf"Tiny\.{method} must return scores by name, each a number.*{what}"):
        evaluate(TwoMaps(TwoMapsSettings(), task.signature), task, "valid", 16)


@pytest.mark.parametrize("name", ["name", "signature", "metric", "epoch_size"])
def test_what_every_task_has_is_asked_for_by_its_name(name):
    lacking = type("Lacking", (Task,), {"name": "", "signature": None, "metric": "", "epoch_size": 1})
    delattr(lacking, name)
    lacking.__abstractmethods__ = frozenset()
    with pytest.raises(ConfigError, match=f"Lacking has no {name!r}, which every task has, as an attribute"):
        fit(lacking(), nn.Identity())


def test_all_classes_may_count_alike(tmp_path):
    """Rare ones more, by what trains alone; where there are no classes it is refused."""
    rows = "".join(f"word{n} {'rare' if n % 5 == 0 else 'usual'},{int(n % 5 == 0)},{n}.5\n" for n in range(50))
    (tmp_path / "t.csv").write_text(f"text,label,length\n{rows}")

    def made(label: str, weights: str):
        task = Choice("text-table", {"file": str(tmp_path / "t.csv"), "label": label, "level": "character"})
        model = Choice("bert", {"readout": "mean"})
        return assemble(RunConfig(task, model, train=TrainSettings(weights=weights)))[0]

    usual, task = made("label", "equal"), made("label", "balanced")
    labels = task.graphs.targets[task.splits["train"], 0].numpy()
    expected = compute_class_weight("balanced", classes=np.array([0, 1]), y=labels)
    assert task.several.weights[0] == pytest.approx(expected.tolist()) and usual.several.weights == ()
    outputs, y = torch.tensor([[0.0, 2.0]]), torch.tensor([[1.0]])
    assert task.several.loss(outputs, y) == pytest.approx(usual.several.loss(outputs, y) * expected[1])
    assert [len(weights) for weights in made("label,length", "balanced").several.weights] == [2, 0]
    with pytest.raises(ConfigError, match="weights=balanced goes with classes of your own data"):
        made("length", "balanced")
