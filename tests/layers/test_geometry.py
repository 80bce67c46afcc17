import pytest
import torch

from edgewise import ShapeError, radius_graph
from edgewise.graphs import complete
from edgewise.layers import displacements, lengths, squared_lengths
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


def test_a_cell_of_other_dimensions_is_refused():
    with pytest.raises(ShapeError, match="3 axes, not \\[2\\]"):
        displacements(complete(2), torch.zeros(2, 3), torch.ones(2))


def test_lengths_have_gradients_everywhere():
    x_ij = torch.tensor([[0.0, 0.0], [3.0, 4.0]], dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lengths, x_ij[1:])
    (slope,) = torch.autograd.grad(lengths(x_ij).sum(), x_ij)
    assert torch.allclose(slope, torch.tensor([[0.0, 0.0], [0.6, 0.8]], dtype=torch.float64))
    assert squared_lengths(x_ij).flatten().tolist() == [0.0, 25.0]
