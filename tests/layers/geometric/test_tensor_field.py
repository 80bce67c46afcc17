from contextlib import contextmanager
from functools import partial

import pytest
import torch

from edgewise import complete
from edgewise.layers import TFN, Coupling, SE3Attention, by_type
from edgewise.layers.geometric import spherical
from edgewise.testing import assert_equivariant
from layers.parity import assert_parity, each, leaf, messy_graph
from layers.rigid import rotation, translation, wigner

o3 = spherical._o3()
TOLERANCE = {torch.float64: 1e-10, torch.float32: 1e-4}
COUPLINGS = [Coupling(0), Coupling(1), Coupling(1, chiral=False), Coupling(2, filters=2), Coupling(3, chiral=False)]


def irreps(coupling, channels, most):
    """e3nn's name for types 0, ..., most; without parity where the coupling has none."""
    return o3.Irreps([(channels, (out, 1 if coupling.chiral else (-1) ** out)) for out in range(most + 1)])


def theirs(h):
    """[..., (L + 1)², C] as e3nn lays features out: type by type, channel by channel."""
    return torch.cat([part.transpose(-1, -2).flatten(-2) for part in by_type(h)], -1)


def ours(flat, rows, channels):
    parts = flat.split([channels * (2 * out + 1) for out in range(round(rows**0.5))], -1)
    return torch.cat([p.unflatten(-1, (channels, -1)).transpose(-1, -2) for p in parts], -2)


@contextmanager
def exactly():
    """e3nn keeps its constants in the default dtype of the moment."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


def radial(network, weights, x_ij, a_ij):
    """The radial network written out: [E, P, C]."""
    z = torch.cat([x_ij.norm(dim=-1, keepdim=True), a_ij], -1)
    for number in range(3):
        z = torch.nn.functional.silu(z) if number else z
        z = z @ weights[f"{network}.linears.{number}.weight"].T + weights[f"{network}.linears.{number}.bias"]
    return z


def fully_connected(layer, weights, R, U, h_j, x_ij):
    """Σ_(k,J) U R ∘ Q h_j by e3nn's FullyConnectedTensorProduct with weights for each edge: [E, (L + 1)², C]."""
    coupling, C = layer.coupling, h_j.shape[-1]
    features, sphere = irreps(coupling, C, coupling.types), irreps(coupling, 1, coupling.most)
    with exactly():
        product = o3.FullyConnectedTensorProduct(
            features, sphere, features, internal_weights=False, shared_weights=False, path_normalization="element"
        )
    R = R.unflatten(-1, (-1, C))
    order = [(*pair, out) for pair, outs in coupling.filtered.items() for out in outs]
    found = []
    for into in product.instructions:
        path = coupling.into(into.i_out).index((into.i_in1, into.i_in2))
        mixed = U[into.i_out].unflatten(-1, (-1, C))[:, path].T  # from channel u to channel w
        fan_in = C * coupling.paths[into.i_out]  # which e3nn divides by
        found.append(
            (R[:, order.index((into.i_in1, into.i_in2, into.i_out)), :, None] * mixed * fan_in**0.5).flatten(1)
        )
    Y = o3.spherical_harmonics(list(range(coupling.most + 1)), x_ij, True, "component")
    return ours(product(theirs(h_j), Y, torch.cat(found, -1)), coupling.rows, C)


def alone(layer, weights, h, name="own"):
    """W^l h_i^l, and the bias of type 0."""
    parts = [h_l @ weights[f"{name}.maps.{out}.weight"].T for out, h_l in enumerate(by_type(h))]
    return torch.cat([parts[0] + weights[f"{name}.maps.0.bias"], *parts[1:]], -2)


def apart():
    """A messy graph whose nodes have no self-loops, where x_ij would have no direction for e3nn to normalise."""
    return messy_graph().remove_self_loops()


@pytest.mark.parametrize("coupling", COUPLINGS, ids=str)
def test_a_convolution_is_that_of_e3nn(coupling):
    """Forward, and gradients to features, positions, edges and every weight: to 1e-10 in float64."""
    graph, layer = apart(), TFN(3, 4, edges=2, coupling=coupling).double()
    h, x, a_ij = leaf(7, coupling.rows, 3), leaf(7, 3, seed=1), leaf(graph.num_edges, 2, seed=2)
    weights = dict(layer.named_parameters())
    x_ij = x[graph.receivers] - x[graph.senders]
    R = radial("radial.network", weights, x_ij, a_ij)
    U = [weights[f"mixed.maps.{out}.weight"] for out in range(coupling.types + 1)]
    m_ij = fully_connected(layer, weights, R, U, h[graph.senders], x_ij)
    expected = alone(layer, weights, h) + torch.zeros_like(h).index_add(0, graph.receivers, m_ij)
    leaves = [h, x, a_ij, *weights.values()]
    assert_parity(layer, weights, (graph, h, x, a_ij), expected, leaves, tolerance=1e-10)


def paths_of(coupling, R, h_j, x_ij):
    """R ∘ Q h_j by e3nn's weighted TensorProduct, path by path: [E, 2l + 1, P_l, C] of every type."""
    C = h_j.shape[-1]
    features, sphere = irreps(coupling, C, coupling.types), irreps(coupling, 1, coupling.most)
    Y = o3.spherical_harmonics(list(range(coupling.most + 1)), x_ij, True, "component")
    paths = [(out, k, J) for out in range(coupling.types + 1) for k, J in coupling.into(out)]
    slots = o3.Irreps([features[out] for out, _, _ in paths])
    with exactly():
        instructions = [(k, J, slot, "uvu", True) for slot, (_, k, J) in enumerate(paths)]
        product = o3.TensorProduct(features, sphere, slots, instructions, shared_weights=False)
    parts = product(theirs(h_j), Y, R).split([C * (2 * out + 1) for out, _, _ in paths], -1)
    parts = [part.unflatten(-1, (C, -1)).transpose(-1, -2) for part in parts]
    return [
        torch.stack([p for p, path in zip(parts, paths, strict=True) if path[0] == out], -2)
        for out in range(coupling.types + 1)
    ]


@pytest.mark.parametrize("coupling", [Coupling(1), Coupling(2, filters=2, chiral=False)], ids=str)
def test_an_attention_is_its_equations_on_e3nns_products(coupling):
    graph, heads, C = apart(), 2, 4
    layer = SE3Attention(C, heads, 4, edges=2, coupling=coupling).double()
    h, x, a_ij = leaf(7, coupling.rows, C), leaf(7, 3, seed=1), leaf(graph.num_edges, 2, seed=2)
    weights = dict(layer.named_parameters())
    x_ij, h_j = x[graph.receivers] - x[graph.senders], h[graph.senders]
    k, v = (
        paths_of(coupling, radial(f"{name}.network", weights, x_ij, a_ij), h_j, x_ij)
        for name in ("key_weights", "value_weights")
    )
    y = [torch.zeros(7, *part.shape[1:]).double() for part in v]
    for i in range(7):
        own = (graph.receivers == i).nonzero().flatten()
        for head in torch.arange(C).chunk(heads):
            s, D = 0, 0
            for out, h_l in enumerate(by_type(h)):
                q_i = (h_l[i] @ weights[f"query.maps.{out}.weight"].T).unflatten(-1, (-1, C))[..., head]
                s, D = s + (q_i * k[out][own][..., head]).sum((-3, -2, -1)), D + q_i.numel()
            p = torch.softmax(s / D**0.5, 0)
            for out, part in enumerate(v):
                y[out][i][..., head] = (p[:, None, None, None] * part[own][..., head]).sum(0)
    mixed = [part.flatten(-2) @ weights[f"output.maps.{out}.weight"].T for out, part in enumerate(y)]
    expected = alone(layer, weights, h) + torch.cat(mixed, -2)
    assert_parity(layer, weights, (graph, h, x, a_ij), expected, [h, x, a_ij, *weights.values()], tolerance=1e-10)


def kinds(coupling):
    return TFN(4, 8, coupling=coupling), SE3Attention(4, 2, 8, coupling=coupling)


@pytest.mark.parametrize(("types", "reflect", "dtype"), each([0, 1, 2, 3], [False, True, True], TOLERANCE))
def test_features_turn_with_the_world(types, reflect, dtype):
    """Rotations and translations with every path, reflections with those that a mirror keeps."""
    graph, coupling = messy_graph(), Coupling(types, chiral=not reflect)
    for layer in kinds(coupling):
        for seed in range(3):
            R, t = rotation(seed, reflect=reflect), translation(seed).to(dtype)
            D, turn = wigner(R, types).to(dtype), R.T.to(dtype)
            assert_equivariant(
                partial(layer.to(dtype), graph),
                lambda h, x, D=D, turn=turn, t=t: (D @ h, x @ turn + t),
                lambda y, D=D: D @ y,
                torch.randn(7, coupling.rows, 4, dtype=dtype),
                torch.randn(7, 3, dtype=dtype),
                tolerance=TOLERANCE[dtype],
            )


def test_only_a_chiral_layer_tells_a_molecule_from_its_mirror_image():
    graph, x, h = complete(7), leaf(7, 3).detach(), torch.zeros(7, 9, 4).double()
    h[:, 0] = 1
    mirror = torch.tensor([1.0, 1.0, -1.0]).double()
    for chiral in (False, True):
        torch.manual_seed(0)
        for kind in kinds(Coupling(2, chiral=chiral)):
            first, second = kind.double(), kinds(Coupling(2, chiral=chiral))[0].double()
            # One layer makes vectors out of numbers, two more multiply them: x_ij · (x_ik × x_il) needs three.
            hands = [second(graph, second(graph, first(graph, h, y), y), y)[:, 0].sum(0) for y in (x, x * mirror)]
            assert torch.allclose(*hands, rtol=1e-9, atol=1e-9) != chiral


def test_a_periodic_cell_knows_no_edge_of_the_box():
    graph, x, h, cell = messy_graph(), torch.rand(7, 3).double() * 3, torch.randn(7, 4, 4).double(), torch.tensor(3.0)
    image = x + 3 * torch.randint(-2, 3, (7, 3))
    for layer in kinds(Coupling(1)):
        layer = layer.double()
        assert torch.allclose(layer(graph, h, x, cell=cell), layer(graph, h, image, cell=cell), atol=1e-10)
        assert not torch.allclose(layer(graph, h, x), layer(graph, h, image), atol=1e-6)
