import pytest
import torch
from torch.nn.functional import silu

from edgewise.layers import EGNN, AttentionEGNN, MessageNetwork, RadialField, VelocityEGNN
from edgewise.testing import assert_equivariant
from layers.parity import assert_parity, each, leaf, messy_graph
from layers.rigid import rotation, translation

TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}


def mlp(layer, z):
    """The MLP written out."""
    for number, linear in enumerate(layer.linears):
        z = (silu(z) if number else z) @ linear.weight.T + linear.bias
    return z


def dense(layer, graph, h, x, a, v=None):
    """(3) to (8) over all pairs [N, N], with parallel edges counted by their multiplicity."""
    n, phi_e = len(h), layer.phi_e
    W = torch.cat([phi_e.receiver.weight, phi_e.sender.weight, phi_e.edge.weight], 1)
    pairs = [h[:, None].expand(n, n, -1), h[None].expand(n, n, -1)]
    if x is not None:
        pairs.append(((x[:, None] - x[None]) ** 2).sum(-1, keepdim=True))
    z = silu(torch.cat([*pairs, a], -1) @ W.T + phi_e.receiver.bias)
    m = silu(z @ phi_e.second.weight.T + phi_e.second.bias)
    if isinstance(layer, AttentionEGNN):
        m = m / (1 + torch.exp(-(m @ layer.phi_inf.weight.T + layer.phi_inf.bias)))
    A = graph.multiplicity().to(h)[..., None]
    new = h + mlp(layer.phi_h, torch.cat([h, (A * m).sum(1)], -1))
    if x is None:
        return new
    x_new = x + (A * (x[:, None] - x[None]) * mlp(layer.phi_x, m)).sum(1) / A.sum(1).clamp(min=1)
    return torch.cat([new, x_new if v is None else x_new + mlp(layer.phi_v, h) * v], -1)


class Joined(torch.nn.Module):
    """A layer whose results stand side by side, as `assert_parity` compares them."""

    def __init__(self, layer):
        super().__init__()
        self.layer = layer

    def forward(self, *arguments):
        y = self.layer(*arguments)
        return torch.cat(y, -1) if isinstance(y, tuple) else y


@pytest.mark.parametrize("kind", [MessageNetwork, EGNN, VelocityEGNN, AttentionEGNN])
def test_a_layer_is_its_equations_written_out(kind):
    graph, a = messy_graph(), leaf(7, 7, 2, seed=3)
    a_ij = a[graph.receivers, graph.senders]
    places = [leaf(7, 3, seed=seed) for seed in {MessageNetwork: (), VelocityEGNN: (1, 2)}.get(kind, (1,))]
    layer, h = kind(4, hidden=5, edges=2).double(), leaf(7, 4)
    with torch.no_grad():
        for parameter in layer.parameters():  # φ_x begins near 0, which would hide it
            parameter.copy_(torch.randn_like(parameter) / 2)
    x, v = (*places, None, None)[:2]
    weights = {f"layer.{name}": parameter for name, parameter in layer.named_parameters()}
    expected = dense(layer, graph, h, x, a, v)
    assert_parity(Joined(layer), weights, (graph, h, *places, a_ij), expected, [h, *places, a, *layer.parameters()])


@pytest.mark.parametrize(
    ("kind", "dtype", "reflect", "seed"),
    each([EGNN, VelocityEGNN, AttentionEGNN, RadialField] * 2, TOLERANCE, [True, False, True], range(4)),
)
def test_positions_turn_with_the_input_and_features_stay(kind, reflect, dtype, seed):
    of_features = kind is not RadialField
    graph, layer = messy_graph(), (kind(4, hidden=8) if of_features else kind(8)).to(dtype)
    R, t = rotation(seed, reflect=reflect).to(dtype), translation(seed).to(dtype)
    width, h = 4 * of_features, [torch.randn(7, 4, dtype=dtype)] * of_features
    places = [torch.randn(7, 3, dtype=dtype) for _ in range(1 + (kind in (VelocityEGNN, RadialField)))]

    def moved(*parts):
        h, (x, *v) = parts[:of_features], parts[of_features:]
        return *h, x @ R + t, *(part @ R for part in v)

    assert_equivariant(
        lambda *parts: Joined(layer)(graph, *parts),
        moved,
        lambda y: torch.cat([y[:, :width], y[:, width:] @ R + t], -1),
        *h,
        *places,
        tolerance=TOLERANCE[dtype],
    )


@pytest.mark.parametrize("layer", [EGNN(2, 4), AttentionEGNN(2, 4), VelocityEGNN(2, 4), RadialField(4)])
def test_a_periodic_cell_knows_no_edge_of_the_box(layer):
    layer, cell = layer.double(), torch.full((3,), 3.0).double()
    graph, x = messy_graph(), torch.rand(7, 3).double() * 3
    image = x + cell * torch.randint(-2, 3, (7, 3))
    h = () if isinstance(layer, RadialField) else (torch.randn(7, 2).double(),)
    v = (torch.randn(7, 3).double(),) if isinstance(layer, RadialField | VelocityEGNN) else ()
    one, other = (layer(graph, *h, place, *v, cell=cell) for place in (x, image))
    moved, moved_image = (y[-1] if isinstance(y, tuple) else y for y in (one, other))
    assert torch.allclose(moved - x, moved_image - image, atol=1e-12)
    assert not torch.allclose(moved, (layer(graph, *h, x, *v)[-1] if h else layer(graph, *h, x, *v)), atol=1e-6)


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
