"""Members of an ensemble learn as if alone, whatever the task, and their mean is its output."""

import pytest
import torch
from torch import Tensor, nn

from edgewise.configuration import Choice
from edgewise.graphs import Graph
from edgewise.models import Ensemble, EnsembleSettings, Features, OfMembers, Penalised
from edgewise.tasks import TASKS
from edgewise.tasks.core.task import Task
from edgewise.training.loss import mean_loss

GRAPH = Graph.from_edge_index([[0, 1, 1, 2, 3, 0], [1, 0, 2, 1, 0, 3]], num_nodes=5)
BATCH = Graph.batch([GRAPH, GRAPH])
SMALL = {"width": 8, "depth": 1, "dropout": 0.0}


def ensemble(name: str, signature: Features, **options: object) -> Ensemble:
    torch.manual_seed(0)
    return Ensemble(EnsembleSettings(Choice(name, options), members=3), signature)


def gradients(loss: Tensor, model: nn.Module) -> list[Tensor]:
    return list(torch.autograd.grad(loss, list(model.parameters())))


@pytest.mark.parametrize("outputs", [1, 3])
def test_the_output_is_the_mean_of_members_that_differ(outputs: int) -> None:
    model = ensemble("graph-network", Features(4, outputs, whole_graph=True, whole=2), **SMALL).double().eval()
    x, u = torch.randn(10, 4, dtype=torch.float64), torch.randn(2, 2, dtype=torch.float64)
    alone = torch.stack([member(BATCH, x, None, u) for member in model.members])
    assert not any(torch.allclose(alone[0], other) for other in alone[1:])
    assert torch.allclose(model(BATCH, x, None, u), alone.mean(0), atol=1e-12)


def test_of_classes_it_is_the_pool_of_the_members_probabilities() -> None:
    model, x = ensemble("gnn", Features(4, 3)).double().eval(), torch.randn(5, 4, dtype=torch.float64)
    pool = torch.stack([member(GRAPH, x).softmax(-1) for member in model.members]).prod(0) ** (1 / 3)
    assert torch.allclose(model(GRAPH, x).softmax(-1), pool / pool.sum(-1, keepdim=True), atol=1e-12)


@pytest.mark.parametrize("name", ["karate", "clouds"])
def test_each_member_learns_as_if_alone(name: str) -> None:
    """Also of a graph of which some nodes have a label: the others do not keep the members together."""
    task: Task = TASKS[name]()
    options = SMALL | ({"layer": "gin", "readout": "sum"} if task.signature.whole_graph else {"depth": 2})
    model = ensemble("gnn", task.signature, **options)
    batch = task.train_batch(4, torch.Generator().manual_seed(0))
    loss = mean_loss(task, model(*batch.inputs), batch)
    losses = [task.loss(member(*batch.inputs), batch) for member in model.members]
    assert torch.allclose(loss, torch.stack(losses).mean())
    alone = [gradient / 3 for one in zip(losses, model.members, strict=True) for gradient in gradients(*one)]
    assert all(torch.allclose(a, b, atol=1e-6) for a, b in zip(gradients(loss, model), alone, strict=True))


def test_members_with_a_loss_of_their_own_keep_it() -> None:
    task = TASKS["karate"]()
    model = ensemble("consistent", task.signature, network={"name": "gnn", "dropout": 0.5}, passes=2)
    batch = task.train_batch(1, torch.Generator().manual_seed(0))
    result = model(*batch.inputs)
    assert isinstance(result, OfMembers) and all(isinstance(one, Penalised) for one in result.members)
    wanted = [task.loss(one.outputs, batch) + one.penalty for one in result.members]
    assert torch.allclose(mean_loss(task, result, batch), torch.stack(wanted).mean())
