"""The curve: who hears whom, what is known, and what the cubic makes of it."""

import math

import numpy as np
import pytest
import torch

from edgewise.errors import ConfigError, DataError
from edgewise.graphs import complete
from edgewise.layers import KernelRegression
from edgewise.models import KernelRegressionModel, KernelRegressionSettings
from edgewise.tasks import curve


def test_everybody_hears_the_training_points_but_itself() -> None:
    task = curve(points=20)
    mask = task.graph().dense_mask()
    assert mask.shape == (270, 270)
    assert mask[:, 20:].sum() == 0
    assert not mask.diagonal().any()
    assert mask[:20].sum(1).tolist() == [19] * 20 and mask[20:].sum(1).tolist() == [20] * 250


def test_only_training_values_are_known() -> None:
    task = curve(points=20)
    (batch,) = task.batches("valid", 1)
    assert torch.equal(batch.x[:, 0], task.place)
    assert torch.equal(batch.x[:20, 1], task.value[:20])
    assert not batch.x[20:, 1].any()
    assert torch.equal(batch.target, task.value[20:70])


def test_the_test_points_lie_on_the_function_and_the_others_beside_it() -> None:
    task = curve(points=5000, noise=0.5)
    error = task.value - torch.sin(2 * math.pi * task.place)
    assert error[task.splits["train"]].std().item() == pytest.approx(0.5, abs=0.02)
    assert not error[task.splits["test"]].any()
    assert task.place.min() >= 0 and task.place.max() == 3


def test_loss_is_the_mean_squared_error() -> None:
    task = curve()
    (batch,) = task.batches("test", 1)
    outputs = task.value[:, None] + 0.1
    assert task.loss(outputs, batch).item() == pytest.approx(0.01, rel=1e-4)
    score = task.score(outputs, batch)
    assert (score["loss"] / score["count"]).item() == pytest.approx(0.01, rel=1e-4)


def test_the_cubic_is_numpys() -> None:
    task = curve()
    train = task.splits["train"]
    expected = np.polyval(np.polyfit(task.place[train].double(), task.value[train].double(), 3), [0.1, 1.7, 3.0])
    assert task.cubic(torch.tensor([0.1, 1.7, 3.0])).numpy() == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("seed", range(3))
def test_attention_beats_the_cubic_by_far(seed: int) -> None:
    """§4.1: the cubic is a poor approximation of a periodic function."""
    task = curve(seed=seed)
    (batch,) = task.batches("test", 1)
    assert batch.graph is not None
    fit = KernelRegression(0.1)(batch.graph, batch.x[:, :1], batch.x[:, 1:])
    cubic = (task.cubic(task.place[task.splits["test"]]) - batch.target).square().mean()
    assert task.loss(fit, batch) < cubic / 5


def test_places_are_predicted() -> None:
    task = curve(noise=0.0)
    model = KernelRegressionModel(KernelRegressionSettings(0.03), task.signature)
    first, second = task.predict(model, None, "0.25, 1.75", "cpu")["places"]
    assert first["fit"] == pytest.approx(1, abs=0.2) and second["fit"] == pytest.approx(-1, abs=0.2)
    assert first["truth"] == pytest.approx(1, abs=0.01)
    for request in ("4", "nan", "x", ""):
        with pytest.raises(DataError, match="no place"):
            task.predict(model, None, request, "cpu")


def test_a_pattern_replaces_the_graph() -> None:
    (batch,) = curve(points=10).batches("test", 1, complete)
    assert batch.graph is not None and batch.graph.is_complete


@pytest.mark.parametrize("options", [{"points": 1}, {"noise": -1.0}, {"noise": math.inf}])
def test_impossible_curves_are_refused(options: dict[str, float]) -> None:
    with pytest.raises(ConfigError, match="at least 2 points and a finite noise"):
        curve(**options)
