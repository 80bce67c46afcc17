import pytest
import torch
from torch.nn.functional import layer_norm

from edgewise import ConfigError, Graph, radius_graph
from edgewise.models import MovingParticles, Simulator, SimulatorSettings
from edgewise.testing import assert_equivariant
from layers.parity import assert_parity, leaf, messy_graph
from layers.rigid import translation

SIGNATURE = MovingParticles(9, 2, space=2, acceleration=0.1)


def model(dtype=torch.float64, **settings):
    torch.manual_seed(0)
    return Simulator(SimulatorSettings(width=8, depth=2, gaussians=6, **settings), SIGNATURE).to(dtype)


def mlp(z, prefix, weights):
    """The perceptron written out."""
    z = z @ weights[f"{prefix}.linears.0.weight"].T + weights[f"{prefix}.linears.0.bias"]
    return z.clamp(min=0) @ weights[f"{prefix}.linears.1.weight"].T + weights[f"{prefix}.linears.1.bias"]


def norm(z, prefix, weights):
    return layer_norm(z, z.shape[-1:], weights[f"{prefix}.weight"], weights[f"{prefix}.bias"])


def dense(graph, features, w):
    """The equations over all pairs [N, N], with parallel edges counted by their multiplicity."""
    n, A = len(features), graph.multiplicity().to(features)[..., None]
    x, v, c = features.split([2, 2, 5], -1)
    told = []
    for place in (x, x + v):
        r = place[:, None] - place[None]
        d = (r.square().sum(-1, keepdim=True) + torch.eye(n).double()[..., None]).sqrt()
        d = d * (1 - torch.eye(n).double()[..., None])  # with a gradient of 0 on the diagonal
        told += [r, d, torch.exp(-((5 * d - torch.arange(6)) ** 2) / 2)]
    h = norm(mlp(c, "encode_nodes.0", w), "encode_nodes.1", w)
    e = norm(mlp(torch.cat(told, -1), "encode_edges.0", w), "encode_edges.1", w)
    for block in ("blocks.0", "blocks.1"):
        ends = h[:, None].expand(n, n, -1), h[None].expand(n, n, -1)
        m = mlp(torch.cat([e, *ends], -1), f"{block}.block.edge.mlp", w)
        found = mlp(torch.cat([h, (A * m).sum(1)], -1), f"{block}.block.node.mlp", w)
        h, e = h + norm(found, f"{block}.norm_h", w), e + norm(m, f"{block}.norm_e", w)
    return x + v + 0.1 * mlp(h, "decode", w)


def test_the_model_is_its_equations_written_out():
    simulator, graph, x = model(), messy_graph(), leaf(7, 9)
    weights = dict(simulator.named_parameters())
    unread = [weights[f"blocks.1.norm_e.{name}"] for name in ("weight", "bias")]  # the last edges answer nothing
    leaves = [x, *(p for p in weights.values() if not any(p is q for q in unread))]
    assert_parity(simulator, weights, (graph, x), dense(graph, x, weights), leaves)


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_a_step_moves_with_the_world(dtype, tolerance, seed):
    x, t, simulator = torch.rand(9, 9, dtype=dtype), translation(seed, 2).to(dtype), model(dtype)
    graph = radius_graph(x[:, :2], 0.5)
    assert graph.num_edges > 10
    assert_equivariant(
        lambda x: simulator(graph, x),
        lambda x: (torch.cat([x[:, :2] + t, x[:, 2:]], -1),),
        lambda y: y + t,
        x,
        tolerance=tolerance,
    )


def test_a_constant_acceleration_is_integrated_by_semi_implicit_euler():
    """x_n = x_0 + n v_0 + n (n + 1) / 2 a, exactly: velocities first, then positions with the new ones."""
    simulator, alone = model(), Graph.from_edge_index([[], []], num_nodes=1)
    with torch.no_grad():
        simulator.decode.linears[-1].weight.zero_()
        simulator.decode.linears[-1].bias.copy_(torch.tensor([0.0, -2.5]))  # in units of 0.1
        first = torch.tensor([[3.0, 4.0, 0.5, 1.0]]).double()
        x = first
        for _ in range(10):
            after = simulator(alone, torch.cat([x, torch.zeros(1, 5).double()], -1))
            x = torch.cat([after, after - x[:, :2]], -1)
    a = torch.tensor([[0.0, -0.25]]).double()
    assert torch.allclose(x[:, :2], first[:, :2] + 10 * first[:, 2:] + 55 * a, atol=1e-12)
    assert torch.allclose(x[:, 2:], first[:, 2:] + 10 * a, atol=1e-12)


def test_particles_need_features_beside_position_and_velocity():
    with pytest.raises(ConfigError, match="features beside position and velocity"):
        Simulator(SimulatorSettings(), MovingParticles(4, 2, space=2))
