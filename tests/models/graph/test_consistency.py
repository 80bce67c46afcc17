"""Passes that agree: the equations of Feng et al. written out densely in float64, forward and gradient."""

import pytest
import torch

from edgewise.errors import ConfigError
from edgewise.graphs import Graph
from edgewise.layers import SparseFeatures, mixed_orders
from edgewise.models import (
    Consistent,
    ConsistentSettings,
    Features,
    MovingParticles,
    RandomPropagation,
    RandomPropagationSettings,
)

GRAPH = Graph.from_edge_index([[0, 1, 1, 2, 3, 0], [1, 0, 2, 1, 0, 3]], num_nodes=5)
SIGNATURE = Features(4, 3)
STILL = {"node_dropout": 0.0, "input_dropout": 0.0, "dropout": 0.0}


def normalised() -> torch.Tensor:
    """Â, densely."""
    a = torch.eye(5, dtype=torch.float64)
    a[GRAPH.receivers, GRAPH.senders] = 1
    d = a.sum(1).rsqrt()
    return d[:, None] * a * d


def test_orders_are_mixed_as_written_out() -> None:
    x = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    powers = [torch.linalg.matrix_power(normalised(), k) for k in range(4)]
    result, wanted = mixed_orders(GRAPH, x, 3), sum(powers) @ x / 4
    assert torch.allclose(result, wanted, atol=1e-12)
    weight = torch.randn_like(result)
    gradients = [torch.autograd.grad((y * weight).sum(), x)[0] for y in (result, wanted)]
    assert torch.allclose(*gradients, atol=1e-12)
    assert torch.equal(mixed_orders(GRAPH, x, 0), x)


@pytest.mark.parametrize("sparse", [False, True])
def test_random_propagation_without_dropout_is_its_equation(sparse: bool) -> None:
    model = RandomPropagation(RandomPropagationSettings(8, 2, **STILL), SIGNATURE).double()
    torch.nn.init.normal_(model.bias)
    x = torch.randn(5, 4, dtype=torch.float64)
    mixed = (torch.eye(5, dtype=torch.float64) + normalised() + normalised() @ normalised()) / 3
    wanted = torch.relu(mixed @ x @ model.hidden.weight.T + model.bias) @ model.output.weight.T + model.output.bias
    read = SparseFeatures.from_scipy(__import__("scipy").sparse.csr_matrix(x), torch.float64) if sparse else x
    assert torch.allclose(model(GRAPH, read), wanted, atol=1e-12)


def test_the_penalty_is_the_distance_from_what_the_passes_agree_on() -> None:
    model = Consistent(ConsistentSettings(passes=3, weight=0.7, temperature=0.5), SIGNATURE).double()
    x = torch.randn(5, 4, dtype=torch.float64)
    torch.manual_seed(1)
    outputs, penalty = model(GRAPH, x)
    torch.manual_seed(1)
    p = [model.network(GRAPH, x).softmax(-1) for _ in range(3)]
    squares = (sum(p) / 3).detach() ** 2
    agreed = squares / squares.sum(-1, keepdim=True)
    wanted = 0.7 * sum((agreed - q).square().sum() for q in p) / (3 * 5)
    assert not torch.allclose(p[0], p[1])
    assert torch.allclose(outputs, sum(q.log() for q in p) / 3, atol=1e-12)
    assert torch.allclose(penalty, wanted, atol=1e-12)
    parameters = list(model.parameters())
    of_penalty, by_hand = (torch.autograd.grad(y, parameters, retain_graph=True) for y in (penalty, wanted))
    assert all(torch.allclose(a, b, atol=1e-10) for a, b in zip(of_penalty, by_hand, strict=True))


@pytest.mark.parametrize("signature", [Features(4, 1), Features(4, 3, classes=False), MovingParticles(7, 3, space=3)])
def test_outputs_that_are_no_classes_are_refused(signature: Features) -> None:
    with pytest.raises(ConfigError, match=r"a single output|outputs that are no classes"):
        Consistent(ConsistentSettings("gnn"), signature)
