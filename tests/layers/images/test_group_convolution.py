"""Group convolution beside its definition, summed over pixels and poses one by one, and the symmetries it promises."""

from itertools import product
from math import cos, pi, sin

import pytest
import torch
from torch.nn import functional

from edgewise import ConfigError, Graph, GraphError, disc
from edgewise.layers import GroupConvolution, GroupPooling, LiftingConvolution, PlaneGroup
from edgewise.layers.images.group_convolution import lattice_points
from edgewise.testing import assert_equivariant
from layers.parity import assert_same, each

P4, P4M = PlaneGroup(4), PlaneGroup(4, reflections=True)
SIDE = 6


def move(x, group, element, side=SIDE):
    """An image of nodes [N, ...], mirrored and turned as an element of p4m does."""
    image = x.unflatten(0, (side, side))
    image = image.flip(1) if element >= group.rotations else image
    return torch.rot90(image, element % group.rotations * 4 // group.rotations, (0, 1)).flatten(0, 1)


def move_poses(y, group, element, side=SIDE):
    """The same with features of poses [N, |G|, C]: (u y)(p, g) = y(u⁻¹ p, u⁻¹ g)."""
    return move(y, group, element, side)[:, group.relative()[element]]


def layers(group, radius=2.3):
    torch.manual_seed(0)
    return LiftingConvolution(group, 2, 3, radius).double(), GroupConvolution(group, 2, 3, radius).double()


def poses(layer, group):
    return () if isinstance(layer, LiftingConvolution) else (group.order,)


# The definition


def seen(group, g, d):
    """g⁻¹ d, written out: unturn, then unmirror."""
    angle = -2 * pi * (g % group.rotations) / group.rotations
    down, across = d[0] * cos(angle) - d[1] * sin(angle), d[0] * sin(angle) + d[1] * cos(angle)
    return down, (-across if g >= group.rotations else across)


def composed(group, g, h):
    """g⁻¹ h, found by what it does to two vectors."""
    for e in range(group.order):
        for d in ((1.0, 0.0), (0.3, 0.7)):
            found, expected = seen(group, e, d), seen(group, h, seen_inverse(group, g, d))
            if abs(found[0] - expected[0]) + abs(found[1] - expected[1]) > 1e-9:
                break
        else:
            return e
    raise AssertionError("a group is closed")


def seen_inverse(group, g, d):
    """g d."""
    down, across = d[0], (-d[1] if g >= group.rotations else d[1])
    angle = 2 * pi * (g % group.rotations) / group.rotations
    return down * cos(angle) - across * sin(angle), down * sin(angle) + across * cos(angle)


def by_definition(layer, group, mask, p, x):
    """y_i(g) = Σ_j Σ_h W(g⁻¹(p_j - p_i), g⁻¹h) x_j(h) + b: x [N, H, inputs] -> [N, |G|, outputs]."""
    points = lattice_points(layer.radius).tolist()
    y = []
    for i, g in product(range(len(p)), range(group.order)):
        total = layer.bias.clone()
        for j in mask[i].nonzero().flatten().tolist():
            down, across = seen(group, g, (p[j] - p[i]).tolist())
            for k, (row, column) in enumerate(points):
                near = max(0.0, 1 - abs(down - row)) * max(0.0, 1 - abs(across - column))
                for h in range(x.shape[1]) if near > 1e-12 else ():
                    part = 0 if isinstance(layer, LiftingConvolution) else composed(group, g, h)
                    total = total + near * (x[j, h] @ layer.weight[k, part])
        y.append(total)
    return torch.stack(y).view(len(p), group.order, -1)


@pytest.mark.parametrize(
    ("given", "group", "which"), each(["lattice", "positions", "whole numbers"], [P4, P4M, PlaneGroup(3, True)], [0, 1])
)
def test_it_is_the_sum_of_the_definition_and_so_is_its_gradient(group, which, given):
    layer, p = layers(group, radius=1.5)[which], torch.cartesian_prod(torch.arange(2), torch.arange(3)).double()
    graph = disc(2, 3, radius=1.5)
    x = torch.randn(6, *poses(layer, group), 2, dtype=torch.float64, requires_grad=True)
    places = {"lattice": (), "positions": (p,), "whole numbers": (p.long(),)}[given]
    found = layer(graph, x, *places)
    expected = by_definition(layer, group, graph.dense_mask(), p, x if which else x[:, None])
    assert_same(found, expected, [x, *layer.parameters()], tolerance=1e-11)


@pytest.mark.parametrize(("group", "radius", "torus"), each([P4M, PlaneGroup(8)], [1.0, 2.3], [False, True]))
def test_convolution_of_the_lattice_is_aggregation_over_its_edges(group, radius, torus):
    """The graph decides who is heard: a filter larger than the disc is cut."""
    graph, cell = disc(6, 7, radius, torus), torch.tensor([6.0, 7.0]).double() if torus else None
    p = torch.cartesian_prod(torch.arange(6), torch.arange(7)).double()
    for layer in layers(group):
        x = torch.randn(2, 42, *poses(layer, group), 2, dtype=torch.float64)
        assert (layer(graph, x) - layer(graph, x, p.expand(2, -1, -1), cell)).abs().max() < 1e-12


def test_a_group_of_one_is_torchs_convolution():
    layer = layers(PlaneGroup(1), radius=1.5)[0]
    x = torch.randn(4, SIDE * SIDE, 2, dtype=torch.float64)
    kernel = layer.weight[:, 0].permute(2, 1, 0).unflatten(-1, (3, 3))
    expected = functional.conv2d(x.transpose(1, 2).unflatten(-1, (SIDE, SIDE)), kernel, layer.bias, padding=1)
    found = layer(disc(SIDE, SIDE, 1.5), x).squeeze(-2).transpose(1, 2).unflatten(-1, (SIDE, SIDE))
    assert (found - expected).abs().max() < 1e-12


# The symmetries


@pytest.mark.parametrize("group", [PlaneGroup(1, True), PlaneGroup(2), P4, P4M], ids=str)
def test_the_table_of_a_group_is_that_of_its_matrices(group):
    g = group.matrices()
    assert torch.equal(g.round(), g)
    assert torch.equal(torch.linalg.inv(g)[:, None] @ g, g[group.relative()])


@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
@pytest.mark.parametrize("torus", [False, True])
@pytest.mark.parametrize("group", [P4, P4M], ids=str)
def test_turns_and_mirrors_of_the_image_are_those_of_the_features(group, torus, dtype, tolerance):
    graph = disc(SIDE, SIDE, 2.3, torus)
    for layer in layers(group):
        x, layer = torch.randn(SIDE * SIDE, *poses(layer, group), 2, dtype=dtype), layer.to(dtype)
        move_in = move_poses if poses(layer, group) else move
        for u in range(group.order):
            assert_equivariant(
                lambda x, layer=layer: layer(graph, x),
                lambda x, u=u, move_in=move_in: (move_in(x, group, u),),
                lambda y, u=u: move_poses(y, group, u),
                x,
                tolerance=tolerance,
            )


@pytest.mark.parametrize("group", [PlaneGroup(3), PlaneGroup(5, True), PlaneGroup(8, True)], ids=str)
def test_where_nodes_lie_anywhere_every_group_is_exact(group):
    """Turned by an element, mirrored and shifted anywhere: a lattice allows quarter turns, positions all of them."""
    torch.manual_seed(1)
    p, u = 3 * torch.rand(12, 2, dtype=torch.float64), group.order - 1
    graph = Graph.from_edge_index(torch.randint(12, (2, 60)), num_nodes=12)
    moved = p @ group.matrices()[u].T + torch.tensor([0.3, -1.7])
    seen = group.relative()[u]
    for layer in layers(group):
        x = torch.randn(12, *poses(layer, group), 2, dtype=torch.float64)
        assert_equivariant(
            lambda x, p, layer=layer: layer(graph, x, p),
            lambda x, p: (x[:, seen] if x.ndim == 3 else x, moved),
            lambda y: y[:, seen],
            x,
            p,
            tolerance=1e-10,
        )


@pytest.mark.parametrize("reduce", ["max", "mean"])
def test_pooling_forgets_the_pose_and_keeps_the_place(reduce):
    layer, pool, graph = layers(P4M)[0], GroupPooling(reduce), disc(SIDE, SIDE, 2.3)
    for u in range(P4M.order):
        assert_equivariant(
            lambda x: pool(graph, layer(graph, x)),
            lambda x, u=u: (move(x, P4M, u),),
            lambda y, u=u: move(y, P4M, u),
            torch.randn(SIDE * SIDE, 2, dtype=torch.float64),
            tolerance=1e-10,
        )


# Mistakes


def test_a_graph_without_places_is_refused():
    layer = LiftingConvolution(P4, 1, 1)
    with pytest.raises(GraphError, match="give positions p, or take the pattern disc"):
        layer(Graph.from_edge_index([[0], [1]], num_nodes=2), torch.zeros(2, 1))


def test_impossible_options_are_refused():
    with pytest.raises(ConfigError, match="rotations must be a whole number, at least 1"):
        PlaneGroup(0)
    with pytest.raises(ConfigError, match="radius must be a finite number, at least 0"):
        LiftingConvolution(P4, 1, 1, radius=-1.0)
    with pytest.raises(ConfigError, match=r"reduce .* choose one of max, mean"):
        GroupPooling("sum")
