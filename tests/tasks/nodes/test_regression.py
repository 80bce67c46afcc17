"""A value for each node."""

import pytest
import torch

from data.test_graph import write
from data.test_target import PAIR, nodes_of
from edgewise.models import GNN, GNNSettings
from edgewise.tasks import node_folder


def test_a_model_predicts_a_quantity_in_its_own_unit(tmp_path) -> None:
    task = node_folder(write(tmp_path, nodes_of([10 + row / 2 for row in range(40)]), PAIR))
    assert task.metric == "rmse" and not task.maximise and task.signature.outputs == 1
    train = task.nodes.labels[task.splits["train"], 0].double()
    (batch,) = task.batches("test", 1)
    wanted = batch.target[:, 0].double()
    outputs = torch.zeros(40, 1)
    scores = {name: float(value) for name, value in task.score(outputs, batch).items()}
    means = task.finish({name: value / scores["count"] for name, value in scores.items()})
    assert means["rmse"] == pytest.approx(float((wanted - train.mean()).square().mean().sqrt()), rel=1e-6)
    assert means["mae"] == pytest.approx(float((wanted - train.mean()).abs().mean()), rel=1e-6)
    assert float(task.loss(outputs, batch)) == pytest.approx(means["loss"], rel=1e-5)
    model = GNN(GNNSettings("gcn", width=4, depth=2), task.signature)
    (first, second) = task.predict(model, None, "0,7", "cpu")["nodes"]
    assert first["measured"] == 10 and second["measured"] == 13.5 and set(first) == {"node", "value", "measured"}
    titles = [section.title for section in task.draw(model.eval(), None, {})]
    assert titles == ["Attention", "Predicted and measured"]
    assert len([drawing for section in task.draw(model.eval(), None, {}) for drawing in section.make()]) == 2
    assert task.subject(model, None, "3").what == "label"
