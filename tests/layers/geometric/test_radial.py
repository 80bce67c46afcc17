import pytest
import torch
from torch.nn.functional import silu

from edgewise.layers import RadialField
from edgewise.testing import assert_equivariant
from layers.parity import assert_parity, leaf, messy_graph
from layers.rigid import rotation, translation


def mlp(layer, z):
    for number, linear in enumerate(layer.linears):
        z = (silu(z) if number else z) @ linear.weight.T + linear.bias
    return z


def test_the_layer_is_its_equation_written_out():
    graph, x, v, a = messy_graph(), leaf(7, 3), leaf(7, 3, seed=1), leaf(7, 7, 2, seed=2)
    layer = RadialField(5, edges=2).double()
    with torch.no_grad():
        for parameter in layer.parameters():
            parameter.copy_(torch.randn_like(parameter) / 2)
    x_ij = x[:, None] - x[None]
    log_r = torch.log((x_ij**2).sum(-1, keepdim=True) + 1e-4) / 2
    A = graph.multiplicity().double()[..., None]
    pull = (A * x_ij * mlp(layer.phi_rf, torch.cat([log_r, a], -1))).sum(1) / A.sum(1).clamp(min=1)
    expected = x + mlp(layer.phi_v, v.norm(dim=-1, keepdim=True)) * v + pull
    weights = dict(layer.named_parameters())
    arguments = graph, x, v, a[graph.receivers, graph.senders]
    assert_parity(layer, weights, arguments, expected, [x, v, a, *layer.parameters()])


@pytest.mark.parametrize(("reflect", "seed"), [(False, 0), (True, 1)])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_positions_turn_with_the_input(reflect, dtype, tolerance, seed):
    graph, layer = messy_graph(), RadialField(8).to(dtype)
    R, t = rotation(seed, reflect=reflect).to(dtype), translation(seed).to(dtype)
    assert_equivariant(
        lambda x, v: layer(graph, x, v),
        lambda x, v: (x @ R + t, v @ R),
        lambda y: y @ R + t,
        torch.randn(7, 3, dtype=dtype),
        torch.randn(7, 3, dtype=dtype),
        tolerance=tolerance,
    )
