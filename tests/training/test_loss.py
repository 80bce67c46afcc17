"""What a step's loss is made of."""

import pytest
import torch
from torch import nan, tensor

from edgewise.graphs import complete
from edgewise.models import OfMembers, Penalised
from edgewise.tasks import TASKS, Batch
from edgewise.training.loss import Weights, mean_loss, weighed

NONE = Batch(complete(1), torch.zeros(0, 2), torch.zeros(0, dtype=torch.int64))


def test_both_losses_have_their_own_weights() -> None:
    task = TASKS["tiny"]()
    batch = next(task.batches("valid", 8))
    outputs = torch.randn(8, 3, generator=torch.Generator().manual_seed(0), requires_grad=True)
    plain, own = task.loss(outputs, batch), Penalised(outputs, tensor(2.0))
    weights = Weights(0.25, 0.5)
    torch.testing.assert_close(mean_loss(task, own, batch), plain + 2)
    torch.testing.assert_close(mean_loss(task, own, batch, weights), plain / 4 + 1)
    torch.testing.assert_close(mean_loss(task, OfMembers((outputs, own)), batch, weights), plain / 4 + 0.5)


def test_a_part_without_targets_or_without_nodes_adds_nothing() -> None:
    task, outputs = TASKS["tiny"](), torch.ones(4, 3, requires_grad=True)
    penalty = outputs.square().mean()
    mean_loss(task, Penalised(outputs, penalty), NONE, Weights(0.0, 0.5)).backward()
    assert outputs.grad is not None and outputs.grad.unique().tolist() == pytest.approx([1 / 12])
    empty = torch.ones(0, 3, requires_grad=True)
    loss = mean_loss(task, Penalised(empty, empty.mean()), NONE, Weights(0.0, 0.0))
    assert loss.item() == 0 and loss.requires_grad
    assert mean_loss(task, Penalised(outputs, tensor(nan)), NONE, Weights(0.0, 0.5)).isnan()


def test_what_is_not_shared_weighs_as_its_targets() -> None:
    assert weighed(NONE, NONE, 3, per_graph=False) == (0, 0)
    batch = Batch(complete(2), torch.zeros(2, 2), torch.zeros(2, dtype=torch.int64))
    assert weighed(batch, batch, 8, per_graph=False) == (0.25, 0.25)
