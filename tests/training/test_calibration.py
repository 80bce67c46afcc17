"""Temperatures, thresholds and intervals by validation data: beside brute force, on generated sets, and in runs."""

import math

import numpy as np
import pytest
import torch
from sklearn import metrics

import edgewise
from edgewise.apps.command.main import main
from edgewise.configuration import Choice
from edgewise.errors import CheckpointError, ConfigError
from edgewise.tasks import TASKS, node_folder
from edgewise.tasks.core.measures import Answers
from edgewise.training import (
    EvaluationSettings,
    RunConfig,
    TrainSettings,
    join_runs,
    load_any,
    load_run,
    read_metrics,
    train,
)
from edgewise.training.calibration import fitted, kept

USUAL = EvaluationSettings()


def drawn(count, heat, seed=0):
    """Answers of a model that is too sure by a factor `heat`, of three classes."""
    draw = torch.Generator().manual_seed(seed)
    logits = 2 * torch.randn(count, 3, generator=draw, dtype=torch.float64)
    y = torch.multinomial(logits.softmax(1), 1, generator=draw)[:, 0]
    return Answers((heat * logits).softmax(1), y.double(), ("a", "b", "c"))


@pytest.mark.parametrize("heat", [0.5, 1.0, 3.0])
def test_the_temperature_is_by_how_much_a_model_is_too_sure(heat):
    (sure,) = fitted([drawn(4000, heat)], USUAL)
    assert sure.temperature == pytest.approx(heat, rel=0.08) and sure.threshold == 0.5
    assert fitted([drawn(9, heat)], USUAL)[0].temperature == 1  # too few to say


def test_examples_that_are_all_right_make_no_model_certain():
    y = torch.arange(40) % 2
    said = torch.where(torch.eye(2, dtype=torch.bool)[y], 0.9, 0.1)
    (sure,) = fitted([Answers(said, y.double(), ("a", "b"))], USUAL)
    p = (said.double().log() / sure.temperature).softmax(1).max().item()
    assert p == pytest.approx(41 / 42, abs=1e-4)


@pytest.mark.parametrize("measure", ["accuracy", "balanced_accuracy", "f1", "mcc"])
def test_the_threshold_is_that_with_the_best_measure(measure):
    draw = np.random.default_rng(0)
    y = (draw.random(90) < 0.2).astype(int)
    p = 1 / (1 + np.exp(-(draw.normal(size=90) + 1.5 * y - 2)))
    scores = {
        "accuracy": metrics.accuracy_score,
        "balanced_accuracy": metrics.balanced_accuracy_score,
        "f1": lambda y, said: metrics.f1_score(y, said, average="macro"),
        "mcc": metrics.matthews_corrcoef,
    }
    answers = Answers(torch.from_numpy(np.stack([1 - p, p], 1)), torch.from_numpy(y).double(), ("usual", "rare"))
    (sure,) = fitted([answers], EvaluationSettings(threshold=measure))
    raw = 1 / (1 + np.exp(-sure.temperature * np.log(sure.threshold / (1 - sure.threshold))))
    best = max(scores[measure](y, p > one) for one in [0, *p])
    assert scores[measure](y, p > raw) == pytest.approx(best)


def test_an_interval_is_the_quantile_of_so_many_errors():
    """As many errors as the level asks for: of 9 the largest, of 8 none."""
    errors = torch.arange(9.0)
    values = [Answers(errors[:count], torch.zeros(count, dtype=torch.float64)) for count in (9, 8)]
    assert [fitted([one], USUAL)[0].half for one in values] == [8.0, None]
    assert fitted(values[:1], EvaluationSettings(interval=0.5))[0].half == 4.0
    assert fitted(values[:1], EvaluationSettings(interval=0.0))[0].half is None


NOISES = {
    "normal": lambda draw, x: draw.normal(size=len(x)),
    "heavy tails": lambda draw, x: draw.standard_t(3, size=len(x)),
    "skewed": lambda draw, x: draw.exponential(size=len(x)),
    "larger where x is": lambda draw, x: draw.normal(size=len(x)) * np.abs(x),
    "two clumps": lambda draw, x: draw.choice([-2.0, 2.0], size=len(x)) + 0.1 * draw.normal(size=len(x)),
}


@pytest.mark.parametrize("noise", NOISES)
def test_intervals_hold_nine_tenths_of_the_test_part(noise, tmp_path):
    draw, count = np.random.default_rng(0), 4000
    x = draw.normal(size=(count, 3))
    y = x @ [1.0, -2.0, 0.5] + NOISES[noise](draw, x[:, 0])
    ends = draw.integers(0, count, (2, count))
    np.savez(tmp_path / "graph.npz", x=x.astype(np.float32), labels=y, edge_index=ends)
    model, short = Choice("gnn", {"layer": "sage-mean", "width": 16}), TrainSettings(steps=40)
    config = RunConfig(Choice("node-folder", {"folder": str(tmp_path)}), model, train=short)
    run = tmp_path / "run"
    train(config, run, progress=False)
    last = read_metrics(run)[-1]
    assert 0.86 <= last["measures"]["coverage"]["value"] <= 0.94
    (answer,) = edgewise.load(run).predict([7])
    half = last["calibration"]["targets"][0]["half"]
    assert answer["high"] - answer["value"] == pytest.approx(half) == answer["value"] - answer["low"]


def words(place, count=120):
    """Texts of which a third are rare, by a word that is wrong in some."""
    rows = [
        f"{'good' if (n % 3 == 0) != (n % 7 == 0) else 'bad'} {n},{'rare' if n % 3 == 0 else 'usual'}"
        for n in range(count)
    ]
    (place / "texts.csv").write_text("\n".join(["text,label", *rows]))
    return place / "texts.csv"


SMALL = ("--model.width", "8", "--model.depth", "1", "--train.steps", "20", "--evaluation.every", "10")
SMALL += ("--schedule.warmup", "0", "--evaluation.simple", "5", "--evaluation.patience", "0")


@pytest.fixture(scope="module")
def several(tmp_path_factory):
    """The runs of two seeds, and the folder in which they are one."""
    place = tmp_path_factory.mktemp("several")
    file = words(place)
    command = ["train", "own-texts", "--task.file", str(file), "--task.level", "character", *SMALL]
    assert main([*command, "--evaluation.threshold", "f1", "--seeds", "2", "--run", str(place / "runs")]) == 0
    return place / "runs"


def test_a_run_goes_by_its_temperature_and_threshold(several, capsys):
    run = several / "seed-0"
    last = read_metrics(run)[-1]
    (sure,) = kept(last)
    assert sure.temperature != 1 and {*last["calibration"]["changes"]} == {"log_loss", "brier", "calibration_error"}
    trained, bare = edgewise.load(run), load_run(run, weights="last")
    p = torch.tensor([[*one["probabilities"].values()] for one in trained.predict(["good 1", "bad 2"])])
    assert main(["evaluate", str(run)]) == 0
    said = capsys.readouterr().out
    assert f"temperature {sure.temperature:.3g} by 24 validation texts: test log_loss" in said
    loaded = load_run(run)
    with torch.no_grad():
        batch = next(loaded.task.batches("test", 24, loaded.pattern))
        calibrated = loaded.model(*batch.inputs)
        loaded.model._forward_hooks.clear()
        assert torch.allclose(calibrated, loaded.model(*batch.inputs) / sure.temperature)
    chosen = [one["class"] for one in trained.predict(["good 1", "bad 2"])]
    assert chosen == [trained.task.classes[int(row[1] > sure.threshold)] for row in p]
    assert bare.task.several.sure[0].temperature == 1  # the last weights are others


def test_a_run_of_fit_is_calibrated_when_it_is_loaded_and_the_module_stays_as_it_is(tmp_path):
    draw = np.random.default_rng(0)
    labels, x = draw.integers(0, 2, 90), draw.normal(size=(90, 3)).astype(np.float32)
    np.savez(tmp_path / "graph.npz", x=x, labels=labels, edge_index=draw.integers(0, 90, (2, 90)))
    task, model, run = node_folder(str(tmp_path)), edgewise.LAYERS["GCN"](3, 2), tmp_path / "run"
    edgewise.fit(task, model, run, steps=20, learning_rate=0.3)
    assert not model._forward_hooks and task.several.sure[0].temperature == 1
    ((sure,), outputs) = kept(read_metrics(run)[-1]), model(task.graph(), task.nodes.x)[7]
    for _ in range(2):
        (said,) = edgewise.load(run, task=task, model=model).predict([7])
        p = torch.tensor([said["probabilities"][name] for name in task.classes])
        assert sure.temperature != 1 and torch.allclose(p, (outputs / sure.temperature).softmax(-1).float(), atol=1e-6)
    threshold = {"threshold": "f1"}
    with pytest.raises(ConfigError, match="goes with two classes of your own data"):
        edgewise.fit(TASKS["karate"](), model, evaluation=threshold)


def test_several_seeds_are_one_model(several, tmp_path, capsys):
    one, each = edgewise.load(several), [edgewise.load(several / f"seed-{n}") for n in (0, 1)]
    inner = load_any(several)
    batch = next(inner.task.batches("test", 24, inner.pattern))
    with torch.no_grad():
        outputs = inner.model(*batch.inputs)
        p = torch.stack([member.model(*batch.inputs).softmax(-1) for member in each])
    (sure,) = inner.task.several.sure
    assert torch.allclose(outputs[:, :2].softmax(-1), (p.mean(0).log() / sure.temperature).softmax(-1), atol=1e-6)
    assert torch.allclose(outputs[:, 2:], p.std(0), atol=1e-6)
    (answer,) = one.predict(["good 1"])
    assert {*answer} == {"input", "class", "probabilities", "deviation"} and answer["deviation"] >= 0
    (tmp_path / "new.txt").write_text("good 1\nbad 2\n")
    assert main(["predict", str(several), str(tmp_path / "new.txt"), "--out", str(tmp_path / "out.csv")]) == 0
    assert (tmp_path / "out.csv").read_text().startswith("input,class,")
    assert main(["evaluate", str(several)]) == 0 and "test: loss" in capsys.readouterr().out
    assert main(["explain", str(several), "good 1"]) == 0
    p = answer["probabilities"][answer["class"]]
    assert one.explain("good 1").value == pytest.approx(math.log(p / (1 - p)), abs=1e-4)
    assert main(["export", str(several)]) == 2
    taken = "is an ensemble, which evaluate, predict, explain, serve and edgewise.load take: name one"
    assert taken in capsys.readouterr().err


def test_what_cannot_be_one_model_is_refused(several, tmp_path):
    with pytest.raises(ConfigError, match="already holds an ensemble"):
        join_runs([several / "seed-0", several / "seed-1"], several)
    other = RunConfig(
        Choice("text-table", {"file": str(words(tmp_path, 60)), "level": "character"}),
        Choice("bert", {"width": 8, "readout": "mean", "depth": 1}),
        train=TrainSettings(steps=2),
    )
    train(other, tmp_path / "other", progress=False)
    with pytest.raises(CheckpointError, match=r"other: its split.csv is not that of .*trained on the same data, cut"):
        join_runs([several / "seed-0", tmp_path / "other"], tmp_path / "both")
    threshold = EvaluationSettings(threshold="f1")
    with pytest.raises(ConfigError, match=r"evaluation.threshold=f1 goes with two classes of your own data"):
        train(RunConfig(Choice("karate"), Choice("gnn"), evaluation=threshold), tmp_path / "none", progress=False)
