"""Precision, recall, calibration and the largest errors."""

import json

import numpy as np
import pytest
import torch
from sklearn.metrics import precision_recall_fscore_support

from edgewise.apps.command.main import main
from edgewise.tasks.core.classification import BINS, Quality


def test_precision_recall_and_f1_are_those_of_scikit_learn() -> None:
    generator = torch.Generator().manual_seed(0)
    probabilities = torch.rand(200, 3, generator=generator).softmax(-1)
    target = torch.randint(3, (200,), generator=generator)
    quality = Quality(("a", "b", "c"))
    for part in (slice(0, 70), slice(70, 200)):  # in two batches
        quality.add(probabilities[part], target[part])
    wanted = precision_recall_fscore_support(target.numpy(), probabilities.argmax(-1).numpy())
    names = ("precision", "recall", "f1", "count")
    for number, one in enumerate(quality.of_classes().values()):
        assert [one[name] for name in names] == pytest.approx([w[number] for w in wanted])


def test_the_calibration_error_is_that_of_its_equation() -> None:
    confidence = np.array([0.55, 0.58, 0.95, 0.91, 1.0])
    correct = np.array([1, 0, 1, 1, 0])
    probabilities = torch.tensor(np.stack([confidence, 1 - confidence], 1))
    quality = Quality(("a", "b"))
    quality.add(probabilities, torch.tensor(1 - correct))
    low, high = abs(1 - 0.55 - 0.58) / 5, abs(2 - 0.95 - 0.91 - 1.0) / 5
    made = quality.calibration()
    assert made["error"] == pytest.approx(low + high)
    assert [one["count"] for one in made["bins"]] == [2, 3] and BINS == 10
    assert made["bins"][0] == pytest.approx({"count": 2, "confidence": 0.565, "accuracy": 0.5})


def test_a_class_without_examples_or_predictions_has_no_figure() -> None:
    quality = Quality(("a", "b", "c"))
    quality.add(torch.tensor([[0.9, 0.1, 0.0]]), torch.tensor([1]))
    classes = quality.of_classes()
    assert classes["a"] == {"count": 0, "precision": 0.0, "recall": None, "f1": 0.0}
    assert classes["b"] == {"count": 1, "precision": None, "recall": 0.0, "f1": 0.0}
    assert classes["c"] == {"count": 0, "precision": None, "recall": None, "f1": None}


def test_evaluate_prints_and_writes_them(tmp_path, capsys) -> None:
    assert main(["train", "karate", "--train.steps", "2", "--run", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--json"]) == 0
    out = capsys.readouterr().out
    quality = json.loads(out.splitlines()[-1])["quality"]
    assert sum(one["count"] for one in quality["classes"].values()) == 16
    assert "precision" in out and "Mr. Hi" in out and "expected calibration error" in out
    written = json.loads((tmp_path / "run" / "evaluation.json").read_text(encoding="utf-8"))
    assert written["quality"] == quality and written["metric"] == "accuracy"
