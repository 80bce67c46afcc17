"""The traced forms of what is computed of a graph give what it would be, on plain tensors as in a program."""

from importlib import import_module

import pytest
import torch

from deployment.families import random_graph, several
from edgewise import use_backend
from edgewise.deployment.graph import BY_CONTENT, FORMS, TracedGraph
from edgewise.graphs import Graph
from edgewise.graphs.make.neighbors import k_nearest_in_members
from edgewise.graphs.make.spectral import hops
from edgewise.kernels import aggregate
from edgewise.kernels.backends.torch import portable
from edgewise.layers.attention.positions import positions
from edgewise.layers.graph.encodings import random_walk_returns
from edgewise.layers.graph.graph_attention import all_pairs
from edgewise.models.graph.transformer import looped


def traced(graph: Graph) -> TracedGraph:
    nodes = graph.num_receivers, graph.num_senders
    sizes = graph.sizes if len(graph.sizes) > 1 else None
    return TracedGraph.of_edges(graph.senders, graph.receivers, nodes, sizes)


GRAPHS = [random_graph(number) for number in range(6)] + [several(number) for number in range(6)]


@pytest.mark.parametrize("name", [*FORMS, *BY_CONTENT])
def test_each_stands_for_a_function_that_there_is(name: str) -> None:
    module, function = name.rsplit(".", 1)
    assert callable(getattr(import_module(module), function))


@pytest.mark.parametrize("graph", GRAPHS, ids=str)
def test_what_is_computed_of_a_graph_is_the_same(graph: Graph) -> None:
    same = traced(graph)
    assert torch.equal(positions(same), positions(graph))
    torch.testing.assert_close(
        FORMS["edgewise.layers.graph.encodings.random_walk_returns"](same, 4), random_walk_returns(graph, 4)
    )
    pairs, apart = hops(graph, 3)
    among, found = FORMS["edgewise.graphs.make.spectral.hops"](same, 3)
    assert torch.equal(found, apart.long()) and torch.equal(
        torch.stack([among.senders, among.receivers]), pairs.edge_index()
    )
    assert all_pairs(same).num_edges == all_pairs(graph).num_edges
    assert torch.equal(same.in_degrees(), graph.in_degrees()) and torch.equal(same.out_degrees(), graph.out_degrees())
    assert torch.equal(same.dense_mask(), graph.dense_mask())
    with_loops, missing = looped(same)
    assert missing == looped(graph)[1]
    for one, other in ((with_loops, looped(graph)[0]), (same.add_self_loops(), graph.add_self_loops())):
        assert torch.equal(one.multiplicity(), other.multiplicity())
    x = torch.randn(graph.num_receivers, 3)
    for reduce in ("sum", "mean", "max"):
        with use_backend(portable.BACKEND):
            found = aggregate(same.membership(), x, reduce=reduce)
        torch.testing.assert_close(found, aggregate(graph.membership(), x, reduce=reduce))


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("sizes", [[9], [4, 5], [1, 8], [3, 0, 6], [2, 2, 5]])
def test_the_nearest_nodes_are_the_same(sizes: list[int], loops: bool) -> None:
    points = torch.randn(9, 3)
    graph = k_nearest_in_members(points, torch.tensor(sizes), 3, loops)
    found = BY_CONTENT["edgewise.graphs.make.neighbors.k_nearest_in_members"](points, torch.tensor(sizes), 3, loops)
    assert torch.equal(found.multiplicity(), graph.multiplicity())


@pytest.mark.parametrize("sizes", [[25], [11, 14], [12, 13]])
def test_of_points_on_a_grid_equally_near_ones_go_by_their_number(sizes: list[int]) -> None:
    points = torch.randint(5, (25, 2), generator=torch.Generator().manual_seed(0)).float()
    graph = k_nearest_in_members(points, torch.tensor(sizes), 4)
    found = BY_CONTENT["edgewise.graphs.make.neighbors.k_nearest_in_members"](points, torch.tensor(sizes), 4)
    assert torch.equal(found.multiplicity(), graph.multiplicity())
