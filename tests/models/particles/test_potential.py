import math

import pytest
import torch

from edgewise import ConfigError, Graph, ShapeError, complete, radius_graph
from edgewise.graphs.make.neighbors import radius_graph_of_images
from edgewise.models import Atoms, Potential, PotentialSettings
from edgewise.testing import assert_equivariant
from layers.rigid import rotation, translation

RADIUS = 3.0
LAYERS = ("schnet", "egnn", "painn", "tfn")
SIGNATURE = Atoms(7, 4, space=3, radius=RADIUS)


def potential(dtype=torch.float64, **settings):
    model = Potential(PotentialSettings(**{"width": 8, "depth": 2, "gaussians": 8} | settings), SIGNATURE)
    with torch.no_grad():
        model.energy.linears[1].weight.mul_(50 if model.settings.layer == "schnet" else 50_000)  # forces of about 1
    return model.to(dtype)


def atoms(x, cell=(0.0, 0.0, 0.0)):
    """Features of atoms at x [N, 3], of two elements in turn."""
    Z = torch.tensor([29.0, 28.0]).to(x)[torch.arange(len(x)) % 2]
    return torch.cat([x, torch.tensor(cell).to(x).expand_as(x), Z[:, None]], -1)


def near(x, cell=None):
    return radius_graph(x, RADIUS, cell=cell)


def cloud(count=9, size=4.0, dtype=torch.float64):
    return torch.rand(count, 3, dtype=torch.float64).to(dtype) * size


def energy_and_forces(model, x, cell=None):
    y = model(near(x, cell), atoms(x, cell or (0.0, 0.0, 0.0)))
    return y[:, 0].sum(), y[:, 1:]


@pytest.mark.parametrize("layer", LAYERS)
def test_forces_are_the_slope_of_the_energy(layer):
    """Central differences of the energy, its radius graph rebuilt at every place, in open space and in a cell."""
    model, step = potential(layer=layer), 1e-4
    for cell in (None, [6.5, 7.0, 8.0]):
        x = cloud(size=6.0)
        _, forces = energy_and_forces(model, x, cell)
        assert forces.abs().max() > 0.1
        for i in range(len(x)):
            for axis in range(3):
                sides = []
                for sign in (1, -1):
                    moved = x.clone()
                    moved[i, axis] += sign * step
                    sides.append(energy_and_forces(model, moved, cell)[0].detach())
                assert abs(forces[i, axis] + (sides[0] - sides[1]) / (2 * step)) <= 1e-6


@pytest.mark.parametrize("layer", LAYERS)
@pytest.mark.parametrize("reflect", [False, True])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float64, 1e-10), (torch.float32, 1e-4)])
def test_forces_turn_with_the_atoms_and_energies_stay(dtype, tolerance, reflect, layer):
    model, x = potential(dtype, layer=layer), cloud(dtype=dtype)
    R, t = rotation(0, reflect=reflect).to(dtype), translation(0).to(dtype)
    graph = near(x)
    assert_equivariant(
        lambda x: model(graph, atoms(x)),
        lambda x: (x @ R + t,),
        lambda y: torch.cat([y[:, :1], y[:, 1:] @ R], -1),
        x,
        tolerance=tolerance,
    )


def of_images(x, cell, layer):
    """Energy and forces of atoms in a cell of any shape, whose vectors may be shorter than the radius."""
    torch.manual_seed(0)
    model = Potential(
        PotentialSettings(width=8, gaussians=8, layer=layer), Atoms(4, 4, space=3, radius=RADIUS, edges=3)
    )
    graph, e = radius_graph_of_images(x, RADIUS, cell, torch.tensor([True, True, False]))
    y = model.double()(graph, torch.cat([x, torch.full((len(x), 1), 29.0)], -1), e)
    return y[:, 0].sum(), y[:, 1:], graph


@pytest.mark.parametrize("layer", LAYERS)
def test_two_cells_have_twice_the_energy_of_one(layer):
    cell = torch.tensor([[2.1, 0, 0], [0.7, 2.5, 0], [0, 0.3, 9.0]]).double()
    x = cloud(3, size=2.0)
    energy, forces, graph = of_images(x, cell, layer)
    assert graph.num_edges > 3 * 2  # an atom has several images of another, and of itself
    both, twice, _ = of_images(torch.cat([x, x + cell[0]]), cell * torch.tensor([[2.0], [1.0], [1.0]]), layer)
    assert torch.allclose(both, 2 * energy) and torch.allclose(twice, forces.repeat(2, 1), atol=1e-10)
    step = torch.zeros_like(x)
    step[1, 0] = 1e-4
    slope = (of_images(x + step, cell, layer)[0] - of_images(x - step, cell, layer)[0]) / 2e-4
    assert (forces[1, 0] + slope).item() == pytest.approx(0, abs=1e-6)


def test_images_are_given_where_the_task_has_some_and_only_there():
    x, pair = torch.zeros(2, 4), Graph.from_edge_index([[0], [1]], num_nodes=2)
    model = Potential(PotentialSettings(width=4, depth=1), Atoms(4, 4, space=3, radius=RADIUS, edges=3))
    with pytest.raises(ShapeError, match=r"needs e \[1, 3\]"):
        model(pair, x)
    with pytest.raises(ShapeError, match="has no e"):
        Potential(PotentialSettings(width=4, depth=1), SIGNATURE)(pair, torch.zeros(2, 7), torch.zeros(1, 3))
    with pytest.raises(ConfigError, match="edges=space"):
        Atoms(7, 4, space=3, radius=RADIUS, edges=3)


def test_a_periodic_cell_has_no_edge():
    model, cell = potential(), [6.5, 7.0, 8.0]
    x = cloud(12, size=6.5)
    energy, forces = energy_and_forces(model, x, cell)
    box = torch.tensor(cell, dtype=torch.float64)
    shifted = (x + torch.tensor([3.0, -2.0, 5.0])) % box  # some cross the boundary, others do not
    images = x + box * torch.randint(-2, 3, (12, 3))
    assert int(((x + torch.tensor([3.0, -2.0, 5.0])) % box != x + torch.tensor([3.0, -2.0, 5.0])).any(-1).sum()) > 3
    for place in (shifted, images):
        again = energy_and_forces(model, place, cell)
        assert torch.allclose(again[0], energy, atol=1e-10) and torch.allclose(again[1], forces, atol=1e-10)
    assert not torch.allclose(energy_and_forces(model, x)[0], energy, atol=1e-3)
    assert forces.sum(0).abs().max() < 1e-12


@pytest.mark.parametrize("layer", LAYERS)
def test_energy_and_force_are_continuous_where_an_edge_leaves_the_graph(layer):
    model, offsets = potential(layer=layer), (-1e-6, -1e-9, 1e-9, 1e-6)
    found, edges = [], []
    for offset in offsets:
        x = torch.tensor([[0.0, 0, 0], [1.2, 1.0, 0], [RADIUS + offset, 0, 0]], dtype=torch.float64)
        edges.append(near(x).num_edges)
        found.append(energy_and_forces(model, x))
    assert edges == [6, 6, 4, 4]
    for energy, forces in found:
        assert abs(energy - found[1][0]) < 1e-4 and (forces - found[1][1]).abs().max() < 1e-4
    assert abs(found[2][0] - found[1][0]) < 1e-8 and (found[2][1] - found[1][1]).abs().max() < 1e-8


def test_members_of_a_batch_are_on_their_own_each_in_its_cell():
    model, cells = potential(), ([6.5, 7.0, 8.0], [9.0, 8.0, 0.0], [0.0, 0.0, 0.0])
    clouds = [cloud(count) for count in (5, 7, 4)]
    open_as_infinity = [[length or torch.inf for length in cell] for cell in cells]
    graphs = [near(x, cell) for x, cell in zip(clouds, open_as_infinity, strict=True)]
    features = [atoms(x, tuple(cell)) for x, cell in zip(clouds, cells, strict=True)]
    alone = [model(graph, x) for graph, x in zip(graphs, features, strict=True)]
    assert torch.allclose(model(Graph.batch(graphs), torch.cat(features)), torch.cat(alone), atol=1e-12)


@pytest.mark.parametrize("layer", LAYERS)
def test_training_on_forces_differentiates_the_gradient(layer):
    """The slope of a loss on forces along a random direction of all weights, by central differences."""
    model, x = potential(layer=layer), cloud()
    wanted = torch.randn(9, 3, dtype=torch.float64)

    def loss():
        return (energy_and_forces(model, x)[1] - wanted).square().sum()

    weights = list(model.parameters())
    slopes = torch.autograd.grad(loss(), weights)
    none = {name for (name, _), slope in zip(model.named_parameters(), slopes, strict=True) if not slope.any()}
    assert len(none) <= (6 if layer == "tfn" else 1)  # the last bias; of a TFN what reads or makes vectors that are 0
    directions = [torch.randn_like(weight) for weight in weights]
    along = sum((slope * direction).sum() for slope, direction in zip(slopes, directions, strict=True))
    sides = []
    for step in (1e-5, -2e-5):
        with torch.no_grad():
            for weight, direction in zip(weights, directions, strict=True):
                weight.add_(step * direction)
        sides.append(loss().detach())
    assert float((sides[0] - sides[1]) / 2e-5) == pytest.approx(float(along), rel=1e-6)


@pytest.mark.parametrize("number", [-1, 119])
def test_a_number_of_no_element_is_named(number):
    pair = torch.tensor([[0.0, 0, 0, 0, 0, 0, 29], [2.5, 0, 0, 0, 0, 0, number]])
    model = Potential(PotentialSettings(width=4, depth=1), Atoms(7, 4, space=3, radius=5.0))
    with pytest.raises(ShapeError, match=f"atomic numbers must be from 0 to 118, but number 1 of them is {number}"):
        model(complete(2), pair)
    with pytest.raises(ShapeError, match=r"features is \[2, 7\], but must be \[\*, 3, 7\]"):
        model(complete(3), pair)


@pytest.mark.parametrize("number", [28.5, math.nan])
def test_a_number_between_two_elements_is_named(number):
    pair = torch.tensor([[0.0, 0, 0, 0, 0, 0, 29], [2.5, 0, 0, 0, 0, 0, number]])
    model = Potential(PotentialSettings(width=4, depth=1), Atoms(7, 4, space=3, radius=5.0))
    with pytest.raises(ShapeError, match=f"atomic numbers must be whole numbers, but number 1 of them is {number}"):
        model(complete(2), pair)
