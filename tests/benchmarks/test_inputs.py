import numpy as np
import torch
from scipy.sparse import coo_array
from scipy.sparse.csgraph import connected_components

from benchmarks import inputs


def test_the_same_inputs_every_time() -> None:
    first, second = (inputs.product(inputs.power_law(30, 100), 4) for _ in range(2))
    assert torch.equal(first.graph.senders, second.graph.senders)
    assert torch.equal(first.x, second.x)
    assert torch.equal(first.gradient, second.gradient)


def test_a_power_law_has_hubs_at_both_ends_that_are_not_the_same_nodes() -> None:
    graph = inputs.power_law(2000, 40_000)
    assert graph.num_edges == 40_000
    for degrees in (graph.in_degrees(), graph.out_degrees()):
        assert int(degrees.max()) > 20 * 20
    assert int(graph.in_degrees().argmax()) != int(graph.out_degrees().argmax())


def test_molecules_have_few_bonds_and_hang_together() -> None:
    graph = inputs.molecules(16)
    assert graph.sizes.tolist() == inputs.molecule_sizes(16)
    assert 1 <= int(graph.in_degrees().min()) <= int(graph.in_degrees().max()) <= 4
    assert torch.equal(graph.in_degrees(), graph.out_degrees())
    pairs = graph.senders.numpy(), graph.receivers.numpy()
    bonds = coo_array((np.ones(graph.num_edges), pairs), shape=(graph.num_receivers,) * 2)
    assert connected_components(bonds)[0] == 16
    assert graph.num_edges / 2 >= graph.num_receivers - 16 + 8  # trees, and rings
