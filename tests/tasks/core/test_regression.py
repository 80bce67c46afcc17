"""Values as targets."""

from contextlib import nullcontext

import pytest
import torch

from edgewise.data.splits import Splits
from edgewise.errors import DataError
from edgewise.graphs import complete
from edgewise.tasks import GraphRegression, Graphs, NodeRegression, Nodes
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.classification import Regression


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
    assert task.preprocessing() == {"value": "mean + deviation * y", "mean": 3.0, "deviation": 2.0}


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
