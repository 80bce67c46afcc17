import math

import pytest
import torch
from torch.nn.functional import silu

from edgewise import Graph, ShapeError
from edgewise.layers import PaiNN
from edgewise.testing import assert_equivariant
from layers.parity import assert_same, leaf, messy_graph
from layers.rigid import rotation, translation


def mlp(layer, z):
    first, second = layer.linears
    return silu(z @ first.weight.T + first.bias) @ second.weight.T + second.bias


def written_out(layer, graph, h, x):
    """(7) to (10), edge by edge."""
    s, v, C = h[:, 0], h[:, 1:], h.shape[-1]
    new_s, new_v = s.clone(), v.clone()
    for i, j in zip(graph.receivers.tolist(), graph.senders.tolist(), strict=True):
        line = x[i] - x[j]
        r = line.norm() if i != j else line.sum() * 0
        e = torch.stack([torch.exp(-0.5 * ((r - k * layer.cutoff / 5) * 5 / layer.cutoff) ** 2) for k in range(6)])
        W = (e @ layer.filters.weight.T) * 0.5 * (1 + torch.cos(math.pi * r / layer.cutoff))
        a, b, c = (mlp(layer.phi, s[j]) * W * (r < layer.cutoff)).split(C)
        new_s = new_s.index_add(0, torch.tensor([i]), a[None])
        new_v = new_v.index_add(0, torch.tensor([i]), (b * v[j] + c * (line / r if i != j else line)[:, None])[None])
    U, V = layer.mixed.weight.split(C)
    Uv, Vv = new_v @ U.T, new_v @ V.T
    a, b, c = mlp(layer.psi, torch.cat([new_s, (Vv.square().sum(1) + 1e-4).sqrt()], -1)).split(C, -1)
    return torch.cat([(new_s + a + b * (Uv * Vv).sum(1))[:, None], new_v + c[:, None] * Uv], 1)


def test_the_block_is_its_equations_written_out():
    graph, layer = messy_graph(), PaiNN(3, gaussians=6, cutoff=2.5).double()
    h, x = leaf(7, 4, 3), leaf(7, 3, seed=1)
    weights = [*layer.parameters()]
    assert_same(layer(graph, h, x), written_out(layer, graph, h, x), [h, x, *weights], 1e-10)
    still = torch.cat([h[:, :1], torch.zeros(7, 3, 3)], 1)
    assert torch.allclose(layer(graph, h[:, :1], x), layer(graph, still, x))


@pytest.mark.parametrize("reflect", [False, True])
def test_vectors_turn_with_the_atoms_and_numbers_stay(reflect):
    graph, layer = messy_graph(), PaiNN(3, gaussians=6, cutoff=3.0).double()
    R, t = rotation(0, reflect=reflect).double(), translation(0).double()

    def turned(h):
        return torch.cat([h[:, :1], torch.einsum("nkc,kl->nlc", h[:, 1:], R)], 1)

    h, x = torch.randn(7, 4, 3).double(), torch.randn(7, 3).double()
    assert_equivariant(
        lambda h, x: layer(graph, h, x), lambda h, x: (turned(h), x @ R + t), turned, h, x, tolerance=1e-10
    )


def test_features_of_other_types_are_refused():
    pair = Graph.from_edge_index([[0], [1]], num_nodes=2)
    with pytest.raises(ShapeError, match=r"must be \[\*, 2, 4, C\], a number and a vector"):
        PaiNN(3)(pair, torch.zeros(2, 9, 3), torch.zeros(2, 3))
