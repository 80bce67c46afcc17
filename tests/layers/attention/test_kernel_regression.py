"""Kernel regression against its equation, and against the cubic of the same points."""

import pytest
import torch

from edgewise import complete
from edgewise.layers import KernelRegression
from layers.parity import assert_parity, leaf, messy_graph


@pytest.mark.parametrize("graph", [complete(7), messy_graph().coalesce()], ids=["complete", "edges"])
def test_it_is_equation_4_1(graph):
    x, v, layer = leaf(7, 2), leaf(7, 3, seed=1), KernelRegression(0.7).double()
    sigma, rows = layer.log_sigma.exp(), []
    for i in range(7):
        hears = graph.dense_mask()[i].nonzero().flatten().tolist()
        a = [torch.exp(-((x[i] - x[j]) ** 2).sum() / (2 * sigma**2)) for j in hears]
        rows.append(torch.stack(a) @ v[hears] / sum(a) if hears else torch.zeros(3, dtype=torch.float64))
    parameters = dict(layer.named_parameters())
    assert_parity(layer, parameters, (graph, x, v), torch.stack(rows), [x, v, *parameters.values()])


def test_sigma_goes_from_the_nearest_value_to_the_mean():
    x, v = torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([[1.0], [2.0], [6.0]])
    assert torch.allclose(KernelRegression(1e-2)(complete(3), x, v), v)
    assert torch.allclose(KernelRegression(1e4)(complete(3), x, v), torch.full((3, 1), 3.0), atol=1e-4)
