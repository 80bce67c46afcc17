"""Convolution over scales beside its definition, and the shift by one scale that halving an image must be."""

from itertools import product

import pytest
import torch

from edgewise import ConfigError, Graph, GraphError, ShapeError, disc
from edgewise.layers import ScaleConvolution, ScaleSpace
from edgewise.layers.images.group_convolution import lattice_points
from edgewise.testing import assert_equivariant
from layers.parity import assert_same

SIDE, LEVELS = 16, 3
TORUS = disc(SIDE, SIDE, radius=6, torus=True)


def half(x):
    """Every second pixel of a square image of nodes: [N, ...] -> [N/4, ...]."""
    side = int(len(x) ** 0.5)
    return x.unflatten(0, (side, side))[::2, ::2].flatten(0, 1)


def layer(inputs=2, outputs=3, **options):
    torch.manual_seed(0)
    return ScaleConvolution(inputs, outputs, **options).double()


def by_definition(layer, mask, p, x):
    """y_i(s) = Σ_j Σ_t W((p_j - p_i)/2^s, t) x_j(s + t) + b: x [N, S, inputs] -> [N, S, outputs]."""
    points, y = lattice_points(layer.radius).tolist(), []
    for i, s in product(range(len(p)), range(x.shape[1])):
        total = layer.bias.clone()
        for j, t in product(mask[i].nonzero().flatten().tolist(), range(layer.weight.shape[1])):
            place = ((p[j] - p[i]) / 2**s).tolist()
            if place in points and s + t < x.shape[1]:
                total = total + x[j, s + t] @ layer.weight[points.index(place), t]
        y.append(total)
    return torch.stack(y).view(*x.shape[:2], -1)


@pytest.mark.parametrize("given", ["lattice", "positions"])
def test_it_is_the_sum_of_the_definition_and_so_is_its_gradient(given):
    convolution, graph = layer(radius=1.5, reach=2), disc(4, 5, radius=6)
    p = torch.cartesian_prod(torch.arange(4), torch.arange(5)).double()
    x = torch.randn(20, LEVELS, 2, dtype=torch.float64, requires_grad=True)
    found = convolution(graph, x, *([p] if given == "positions" else []))
    expected = by_definition(convolution, graph.dense_mask(), p, x)
    assert_same(found, expected, [x, *convolution.parameters()], tolerance=1e-11)


def test_lattice_and_positions_agree_on_a_torus():
    convolution, cell = layer(), torch.tensor(float(SIDE), dtype=torch.float64)
    p = torch.cartesian_prod(*[torch.arange(SIDE)] * 2).double().expand(2, -1, -1)
    x = torch.randn(2, SIDE * SIDE, LEVELS, 2, dtype=torch.float64)
    assert (convolution(TORUS, x) - convolution(TORUS, x, p, cell)).abs().max() < 1e-12
    space = ScaleSpace(LEVELS)
    assert (space(TORUS, x[..., 0, :]) - space(TORUS, x[..., 0, :], p, cell)).abs().max() < 1e-12


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_halving_is_a_shift_by_one_scale(dtype, tolerance):
    """Features z(s) of an image become z(s + 1) at every second pixel, through a stack of layers."""
    first, second, space = layer().to(dtype), layer(3, 2, reach=3).to(dtype), ScaleSpace(LEVELS)

    def features(x):
        graph = disc(int(len(x) ** 0.5), int(len(x) ** 0.5), radius=6 if len(x) > 100 else 3, torus=True)
        z = ScaleSpace(LEVELS if len(x) > 100 else LEVELS - 1)(graph, x)
        return second(graph, first(graph, z).relu())

    assert_equivariant(
        features,
        lambda x: (half(space(TORUS, x)[:, 1]),),  # smoothed once, then every second pixel
        lambda y: half(y[:, 1:]),
        torch.randn(SIDE * SIDE, 2, dtype=dtype),
        tolerance=tolerance,
    )


def test_mistakes_are_refused():
    convolution = ScaleConvolution(1, 1)
    with pytest.raises(GraphError, match=r"reaches 2.83 pixels at scale 2, and the disc only 2"):
        convolution(disc(4, 4, radius=2), torch.zeros(16, 2, 1))
    with pytest.raises(GraphError, match="give positions p"):
        convolution(Graph.from_edge_index([[0], [1]], num_nodes=2), torch.zeros(2, 1, 1))
    with pytest.raises(ShapeError, match="16 nodes at some scales with 1 channels"):
        convolution(disc(4, 4), torch.zeros(16, 2, 3))
    with pytest.raises(ConfigError, match="levels must be a whole number, at least 1"):
        ScaleSpace(0)
    with pytest.raises(ConfigError, match="reach must be a whole number, at least 1, not 0"):
        ScaleConvolution(1, 1, reach=0)
