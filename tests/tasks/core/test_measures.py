"""Measures beside scikit-learn's on 1,000 random cases, weighted and with gaps; intervals; what is undefined."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from sklearn import config_context, metrics

from edgewise.apps.command.main import main
from edgewise.tasks.core.measures import Answers, joined, measures, quality, table_of
from edgewise.training import read_metrics

NAN = float("nan")


def one_hot(p, y):
    """The classes one-hot, and their probabilities: of two the second, else those that some are of and others not."""
    truth = np.eye(p.shape[1])[y]
    some = truth.any(0) & ~truth.all(0)
    return (y, p[:, 1]) if p.shape[1] == 2 else (truth[:, some], p[:, some])


OF_CLASSES = {
    "accuracy": lambda p, y, w: metrics.accuracy_score(y, p.argmax(1), sample_weight=w),
    "balanced_accuracy": lambda p, y, w: metrics.recall_score(
        y, p.argmax(1), labels=np.unique(y), average="macro", sample_weight=w
    ),
    "f1": lambda p, y, w: metrics.f1_score(y, p.argmax(1), average="macro", sample_weight=w),
    "roc_auc": lambda p, y, w: metrics.roc_auc_score(*one_hot(p, y), sample_weight=w),
    "average_precision": lambda p, y, w: metrics.average_precision_score(*one_hot(p, y), sample_weight=w),
    "mcc": lambda p, y, w: metrics.matthews_corrcoef(y, p.argmax(1), sample_weight=w),
    "log_loss": lambda p, y, w: metrics.log_loss(y, p, labels=range(p.shape[1]), sample_weight=w),
    "brier": lambda p, y, w: (
        metrics.mean_squared_error(np.eye(p.shape[1])[y], p, sample_weight=w) * max(1, p.shape[1] * (p.shape[1] > 2))
    ),
}
OF_VALUES = {
    "rmse": lambda f, y, w: metrics.mean_squared_error(y, f, sample_weight=w) ** 0.5,
    "mae": lambda f, y, w: metrics.mean_absolute_error(y, f, sample_weight=w),
    "r2": lambda f, y, w: metrics.r2_score(y, f, sample_weight=w),
    "spearman": lambda f, y, w: spearmanr(np.repeat(f, w.astype(int)), np.repeat(y, w.astype(int))).statistic,
    "relative_error": lambda f, y, w: metrics.mean_absolute_percentage_error(y, f, sample_weight=w),
}


@pytest.mark.parametrize("cases", [100, pytest.param(1000, marks=pytest.mark.endurance)])
def test_they_are_those_of_scikit_learn(cases: int) -> None:
    draw = np.random.default_rng(0)
    with config_context(skip_parameter_validation=True, assume_finite=True):
        for case in range(cases):  # each has one measure's turn
            count, classes = int(draw.integers(8, 40)), (0, 2, 3, 5)[draw.integers(4)]
            digits = draw.choice([1, 9])  # with ties and without
            w = draw.integers(1, 4, count).astype(float) if draw.random() < 0.7 else np.ones(count)
            if classes:
                y = np.append([0, 1], draw.integers(0, classes, count - 2)).astype(float)
                said = draw.dirichlet(np.ones(classes), count).round(digits) + 1e-3
                said /= said.sum(1, keepdims=True)
            else:
                said, y = draw.normal(size=(2, count)).round(digits)
                y += (y == 0) * 0.5
            gaps = draw.random(count) < 0.2
            gaps[:2] = False
            known = np.where(gaps, NAN, y)
            one = Answers(torch.tensor(said), torch.tensor(known), tuple("abcde"[:classes]), "", torch.tensor(w))
            found = measures([one], intervals=False)
            table = OF_CLASSES if classes else OF_VALUES
            name = [*table][case % len(table)]
            said, y, w = said[~gaps], y[~gaps], w[~gaps]
            wanted = table[name](said, y.astype(int) if classes else y, w)
            assert found[name]["value"] == pytest.approx(wanted, rel=1e-9, abs=1e-12), (name, case)


def test_the_calibration_error_is_that_of_its_equation() -> None:
    confidence, right = np.array([0.55, 0.58, 0.95, 0.91, 1.0]), np.array([1, 0, 1, 1, 0])
    one = Answers(torch.tensor(np.stack([confidence, 1 - confidence], 1)), torch.tensor(1 - right), ("a", "b"))
    low, high = abs(1 - 0.55 - 0.58) / 5, abs(2 - 0.95 - 0.91 - 1.0) / 5
    made = quality([one], str)
    assert made["calibration"]["error"] == pytest.approx(low + high)
    assert made["measures"]["calibration_error"]["value"] == pytest.approx(low + high)
    assert [one["count"] for one in made["calibration"]["bins"]] == [2, 3]
    assert made["calibration"]["bins"][0] == pytest.approx({"count": 2, "confidence": 0.565, "accuracy": 0.5})


def test_precision_recall_and_f1_are_those_of_scikit_learn() -> None:
    draw = np.random.default_rng(0)
    p, y = draw.dirichlet(np.ones(3), 200), draw.integers(0, 3, 200)
    wanted = metrics.precision_recall_fscore_support(y, p.argmax(-1))
    for number, one in enumerate(table_of(("a", "b", "c"), p, y).values()):
        assert [one[name] for name in ("precision", "recall", "f1", "count")] == pytest.approx(
            [w[number] for w in wanted]
        )


def test_a_class_without_examples_or_predictions_has_no_figure() -> None:
    classes = table_of(("a", "b", "c"), np.array([[0.9, 0.1, 0.0]]), np.array([1]))
    assert classes["a"] == {"count": 0, "precision": 0.0, "recall": None, "f1": 0.0}
    assert classes["b"] == {"count": 1, "precision": None, "recall": 0.0, "f1": 0.0}
    assert classes["c"] == {"count": 0, "precision": None, "recall": None, "f1": None}


def test_intervals_repeat_and_hold_the_truth_about_as_often_as_they_say() -> None:
    draw, held = np.random.default_rng(1), 0
    for _ in range(40):
        right = draw.random(200) < 0.8
        one = Answers(torch.tensor(np.where(right[:, None], [0.1, 0.9], [0.9, 0.1])), torch.ones(200), ("a", "b"))
        row = measures([one])["accuracy"]
        assert row["low"] < row["value"] < row["high"]
        held += row["low"] <= 0.8 <= row["high"]
    assert 34 <= held <= 40 and row == measures([one])["accuracy"]


def test_what_is_undefined_is_none_and_the_mean_is_over_targets_that_have_both_classes() -> None:
    p = torch.tensor([[0.9, 0.1], [0.2, 0.8], [0.6, 0.4], [0.3, 0.7]])
    both = Answers(p, torch.tensor([0.0, 1.0, NAN, 0.0]), ("n", "y"), "toxic")
    only = Answers(p, torch.tensor([1.0, NAN, 1.0, 1.0]), ("n", "y"), "safe")
    none = Answers(p[:, 0], torch.full((4,), NAN), (), "mass")
    found = measures([both, only, none])
    assert found["roc_auc toxic"]["value"] == 1 == found["roc_auc"]["value"] and found["roc_auc safe"]["value"] is None
    assert found["accuracy"]["value"] == pytest.approx((2 / 3 + 1 / 3) / 2)
    assert found["rmse mass"] == {"value": None, "low": None, "high": None} and "rmse" not in found


def test_batches_are_joined_and_means_are_over_what_is_listed() -> None:
    parts = [[Answers(figures={"mrr": torch.tensor(part)})] for part in ([1.0, 0.5], [0.25])]
    assert measures(joined(parts))["mrr"]["value"] == pytest.approx(1.75 / 3)
    assert list(quality(joined(parts), str)) == ["measures"]


def test_a_run_is_chosen_and_reported_by_a_measure(tmp_path, capsys) -> None:
    run = str(tmp_path / "run")
    options = ["--train.steps", "6", "--evaluation.every", "2", "--metric", "roc-auc"]
    assert main(["train", "karate", *options, "--run", run, "--json"]) == 0
    result = json.loads(capsys.readouterr().out.splitlines()[-1])
    *earlier, last = read_metrics(run)
    valid = [one["valid"]["roc_auc"] for one in earlier if "valid" in one]
    assert result["metric"] == "roc_auc" and last["valid"]["roc_auc"] == max(valid)
    assert last["test"]["roc_auc"] == last["measures"]["roc_auc"]["value"]
    assert ">roc_auc<" in (tmp_path / "run" / "report.html").read_text()
    assert main(["train", "karate", "--metric", "mae", "--run", f"{run}-2"]) == 2
    assert "'mae', but the scores of the task 'karate' are" in capsys.readouterr().err
    assert main(["train", "karate", "--metric", "rocauc", "--run", f"{run}-2"]) == 2
    assert "no measure is called 'rocauc'; did you mean 'roc_auc'" in capsys.readouterr().err
    assert not Path(f"{run}-2").exists()
