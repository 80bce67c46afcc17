import pytest
import torch

from edgewise import Graph, ShapeError, radius_graph
from edgewise.graphs import complete
from edgewise.layers import angles, displacements, edge_pairs, lengths, squared_lengths
from layers.parity import leaf, messy_graph


def test_displacements_are_those_of_every_pair():
    graph, x = messy_graph(), leaf(7, 3)
    dense = x[:, None] - x[None]
    assert torch.equal(displacements(graph, x), dense[graph.receivers, graph.senders])
    assert torch.allclose(lengths(displacements(graph, x))[:, 0], dense.norm(dim=-1)[graph.receivers, graph.senders])


def test_in_a_periodic_cell_the_nearest_image_counts():
    cell = torch.tensor([4.0, 6.0, 5.0], dtype=torch.float64)
    x = torch.rand(20, 3, dtype=torch.float64) * cell
    graph = complete(20).remove_self_loops()
    images = torch.cartesian_prod(*[torch.arange(-1, 2)] * 3) * cell
    every = (x[graph.receivers] - x[graph.senders])[:, None] + images
    nearest = every.norm(dim=-1).amin(1)
    x_ij = displacements(graph, x, cell)
    assert torch.allclose(lengths(x_ij)[:, 0], nearest)
    shifted = x + cell * torch.randint(-3, 4, (20, 3))  # any image stands for its particle
    assert torch.allclose(displacements(graph, shifted, cell), x_ij)
    near = radius_graph(x, 1.9, cell=cell.tolist())
    assert lengths(displacements(near, x, cell)).max() <= 1.9
    assert near.num_edges == int((nearest <= 1.9).sum())


def test_lengths_have_gradients_everywhere():
    x_ij = torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lengths, x_ij[1:])
    (slope,) = torch.autograd.grad(lengths(x_ij).sum(), x_ij)
    assert torch.allclose(slope, torch.tensor([[0.0, 0.0], [0.6, 0.8]], dtype=torch.float64))
    assert squared_lengths(x_ij).flatten().tolist() == [0.0, 25.0]


def test_an_axis_may_be_open_and_each_edge_may_have_a_cell_of_its_own():
    graph, x = complete(6), torch.rand(6, 3, dtype=torch.float64) * 9
    open_along_z = torch.tensor([4.0, 5.0, torch.inf], dtype=torch.float64)
    x_ij = displacements(graph, x, open_along_z)
    assert torch.equal(x_ij[:, 2], displacements(graph, x)[:, 2])
    assert x_ij[:, 0].abs().max() <= 2 < displacements(graph, x)[:, 0].abs().max()
    assert torch.equal(displacements(graph, x, open_along_z.expand(36, 3)), x_ij)
    with pytest.raises(ShapeError, match="3 axes"):
        displacements(graph, x, torch.ones(35, 3))


def test_angles_are_those_of_every_two_edges_of_a_receiver():
    graph, x = messy_graph().remove_self_loops(), leaf(7, 3)
    cell = torch.tensor([1.0, 1.5, torch.inf], dtype=torch.float64)
    for box in (None, cell):
        x_ij, found = displacements(graph, x, box), angles(graph, x, box)[:, 0]
        number = 0
        for e in range(graph.num_edges):
            for f in range(e + 1, graph.num_edges):
                if graph.receivers[e] == graph.receivers[f]:
                    cosine = (x_ij[e] @ x_ij[f]) / (x_ij[e].norm() * x_ij[f].norm())
                    assert torch.allclose(found[number].cos(), cosine, atol=1e-12)
                    assert [int(part[number]) for part in edge_pairs(graph)] == [e, f]
                    number += 1
        assert number == len(found) > 5


def test_angles_are_exact_where_the_cosine_is_not_and_have_gradients():
    corner = Graph.from_edge_index([[1, 2], [0, 0]], num_nodes=3)
    small = torch.tensor([[0.0, 0.0], [1.0, 0.0], [1.0, 1e-9]], dtype=torch.float64)
    assert angles(corner, small).item() == pytest.approx(1e-9, rel=1e-12)
    turned = small * torch.tensor([[1.0], [1.0], [-1.0]])
    assert angles(corner, turned).item() == pytest.approx(torch.pi - 1e-9, rel=1e-15)
    x = leaf(3, 3)
    assert torch.autograd.gradcheck(lambda place: angles(corner, place), x)
    assert torch.autograd.gradgradcheck(lambda place: angles(corner, place), x)
    for ends in ([0.0, 0.0], [0.0, 1.0], [1.0, 2.0]):
        place = torch.tensor([[0.0, 0], [ends[0], 0], [ends[1], 0]]).double().requires_grad_()
        (slope,) = torch.autograd.grad(angles(corner, place).sum(), place)
        assert angles(corner, place).item() == 0 and torch.equal(slope, torch.zeros_like(slope))
    assert angles(Graph.from_edge_index([[0], [1]], num_nodes=2), torch.zeros(2, 3)).shape == (0, 1)


@pytest.mark.parametrize("unit", [1e-15, 1e-11, 1.0, 1e10, 1e15])
def test_angles_do_not_depend_on_the_unit_of_length(unit):
    corner = Graph.from_edge_index([[1, 2], [0, 0]], num_nodes=3)
    x = (torch.tensor([[0.0, 0.0], [2.0, 0.0], [9.0, 9.0]]) * unit).requires_grad_()
    angle = angles(corner, x)
    (slope,) = torch.autograd.grad(angle.sum(), x)
    assert angle.rad2deg().item() == pytest.approx(45, rel=1e-5)
    assert slope[1].tolist() == pytest.approx([0, -0.5 / unit], rel=1e-5, abs=1e-6 / unit)


def test_a_cell_without_length_is_refused():
    pair = Graph.from_edge_index([[0], [1]], num_nodes=2)
    with pytest.raises(ShapeError, match="length of 0"):
        displacements(pair, torch.zeros(2, 2), torch.tensor([0.0, 10.0]))
