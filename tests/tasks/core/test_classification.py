"""Classes and values as targets, against the formulas written out; what `evaluate` prints of them."""

import json
from contextlib import nullcontext

import pytest
import torch

from edgewise.apps.command.main import main
from edgewise.data.splits import Splits
from edgewise.errors import ConfigError, DataError
from edgewise.graphs import complete
from edgewise.tasks import Batch, GraphRegression, Graphs, NodeRegression, Nodes, digits
from edgewise.tasks.core.classification import Objective, Regression, classification_score

TARGET = torch.tensor([2, 0, 1, 1])


def outputs() -> torch.Tensor:
    return torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()


def one_hot() -> torch.Tensor:
    y = torch.zeros(4, 3, dtype=torch.float64)
    y[torch.arange(4), TARGET] = 1
    return y


@pytest.mark.parametrize(
    ("objective", "written"),
    [
        (Objective("squared"), lambda o: (one_hot() - o).square().sum() / 4),  # (3.7)
        (
            Objective(temperature=2.5),  # (3.9)-(3.11) with footnote 2
            lambda o: -(one_hot() * ((o / 2.5).exp() / (o / 2.5).exp().sum(1, keepdim=True)).log()).sum() / 4,
        ),
        (Objective(), lambda o: -(one_hot() * (o.exp() / o.exp().sum(1, keepdim=True)).log()).sum() / 4),
    ],
    ids=["squared", "temperature", "plain"],
)
def test_the_loss_is_its_formula(objective: Objective, written) -> None:
    o = outputs()
    found, expected = objective.loss(o, TARGET), written(o)
    assert torch.allclose(found, expected, atol=1e-12)
    assert torch.allclose(*(torch.autograd.grad(loss, o)[0] for loss in (found, expected)), atol=1e-12)
    assert torch.allclose(objective.loss(o, TARGET, "sum"), 4 * expected)
    batch = Batch(complete(1), torch.zeros(4, 1), TARGET)
    assert classification_score(o, batch, objective)["loss"].item() == pytest.approx(4 * expected.item())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"error": "hinge"}, "unknown error 'hinge'; known are cross-entropy, squared"),
        ({"temperature": 0.0}, "temperature must be above 0"),
        ({"error": "squared", "temperature": 2.0}, "no temperature"),
    ],
)
def test_impossible_objectives_are_refused(options, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        digits(**options)


@pytest.mark.parametrize("error", ["cross-entropy", "squared"])
def test_classes_that_are_no_whole_numbers_are_refused(error) -> None:
    with pytest.raises(DataError, match="whole numbers, int64, not float32"):
        Objective(error).loss(outputs(), TARGET.float())


def test_evaluate_prints_and_writes_them(tmp_path, capsys) -> None:
    assert main(["train", "karate", "--train.steps", "2", "--run", str(tmp_path / "run")]) == 0
    capsys.readouterr()
    assert main(["evaluate", str(tmp_path / "run"), "--json"]) == 0
    out = capsys.readouterr().out
    quality = json.loads(out.splitlines()[-1])["quality"]
    assert sum(one["count"] for one in quality["classes"].values()) == 16
    assert "precision" in out and "Mr. Hi" in out and "calibration_error" in out and "roc_auc" in out
    written = json.loads((tmp_path / "run" / "evaluation.json").read_text(encoding="utf-8"))
    assert written["quality"] == quality and written["metric"] == "accuracy"


class Values(Regression):
    """Numbers to predict, without data."""

    def __init__(self, values: torch.Tensor) -> None:
        self.fit(values)

    train_batch = batches = predict = lambda self, *_: None


def test_loss_and_scores_are_those_of_the_equation() -> None:
    train, target = torch.tensor([1.0, 5.0]), torch.tensor([2.0, 8.0])
    task = Values(train)  # mean 3, deviation 2
    batch = Batch(complete(2), torch.zeros(2, 1), target, torch.arange(2))
    outputs = torch.tensor([[0.5], [1.0]])  # 4 and 5
    assert task.value(outputs[0]) == 4
    assert float(task.loss(outputs, batch)) == pytest.approx((2**2 + 3**2) / 2 / 2**2)
    sums = {name: float(value) for name, value in task.score(outputs, batch).items()}
    assert sums == {"loss": 13 / 4, "rmse": 13, "mae": 5, "count": 2}
    assert task.finish({"rmse": 6.25})["rmse"] == 2.5
    assert task.preprocessing()["targets"] == [{"name": "value", "kind": "number", "mean": 3.0, "deviation": 2.0}]


def test_values_in_a_column_are_those_of_nodes_and_of_graphs() -> None:
    splits: Splits = {"train": torch.tensor([0]), "valid": torch.tensor([1]), "test": torch.tensor([2])}
    for values, told in ((torch.rand(3, 1), None), (torch.rand(3, 2), r"one value for each example, .*not \[3, 2\]")):
        with pytest.raises(DataError, match=told) if told else nullcontext():
            nodes = NodeRegression("n", Nodes(complete(3), torch.eye(3), values, (), splits))
            assert torch.equal(nodes.nodes.labels, values[:, 0]) and nodes.mean == float(values[0])
        with pytest.raises(DataError, match=told) if told else nullcontext():
            graphs = GraphRegression("g", Graphs((complete(1),) * 3, torch.eye(3), values, splits))
            assert torch.equal(graphs.graphs.targets, values[:, 0])


@pytest.mark.parametrize("days", [torch.int64, torch.float64])
def test_values_keep_digits_that_float32_has_no_room_for(days: torch.dtype) -> None:
    """A day apart, 2²⁵ days from 0: in float32 they are the same, or four days apart."""
    splits: Splits = {"train": torch.tensor([0, 1]), "valid": torch.tensor([2]), "test": torch.tensor([3])}
    values = 2**25 + torch.tensor([0, 1, 3, 3], dtype=days)
    nodes = NodeRegression("n", Nodes(complete(4), torch.eye(4), values, (), splits))
    graphs = GraphRegression("g", Graphs((complete(1),) * 4, torch.eye(4), values, splits))
    for task in (nodes, graphs):
        batch = next(iter(task.batches("valid", 3)))
        one = torch.ones(len(batch.x), 1)
        assert task.deviation == 0.5 and float(task.loss(one, batch)) == 16  # (3 - 0.5) / 0.5 is 5
