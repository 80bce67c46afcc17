import networkx
import pytest
import torch

from edgewise import Graph
from edgewise.graphs.comparison import isomorphism_classes, random_alike
from edgewise.tasks.graphs.generation import FAMILIES, Grids, draw_splits


def members(name: str, count: int, seed: int = 0) -> list[Graph]:
    generator = torch.Generator().manual_seed(seed)
    return [FAMILIES[name].draw(generator) for _ in range(count)]


@pytest.mark.parametrize(("name", "count"), [("communities", 150), ("grids", 20)])
def test_members_are_valid_and_random_graphs_of_their_density_are_not(name, count):
    family, drawn = FAMILIES[name], members(name, count)
    assert sum(map(family.valid, drawn)) >= 0.95 * count  # a chance cut of two communities may be unclear
    generator = torch.Generator().manual_seed(1)
    assert sum(family.valid(random_alike(graph, generator)) for graph in drawn) <= 0.15 * count
    assert max(graph.num_receivers for graph in drawn) <= family.most
    assert max(graph.num_edges for graph in drawn) <= 2 * family.links
    turned = [graph.permute(torch.randperm(graph.num_receivers)) for graph in drawn[:10]]
    assert [family.valid(graph) for graph in turned] == [family.valid(graph) for graph in drawn[:10]]
    assert drawn == members(name, count)


def test_a_grid_is_known_by_its_shape_only():
    grids = Grids()
    for a, b in ((3, 3), (4, 5), (6, 6)):
        other = Graph.from_networkx(networkx.grid_2d_graph(a, b))
        assert grids.valid(other)
        assert isomorphism_classes([other, grids.of(a, b), grids.of(b, a)]) == [0, 0, 0]
    ring = networkx.grid_2d_graph(4, 4, periodic=True)
    assert not grids.valid(Graph.from_networkx(ring))
    assert not grids.valid(grids.of(2, 8))
    links = grids.of(4, 4).edge_index().T.tolist()
    less = [pair for pair in links if sorted(pair) != [0, 1]]
    assert not grids.valid(Graph.from_edge_index(torch.tensor(less).T, 16))


def test_withheld_shapes_are_only_tested_on():
    grids = Grids()
    shapes = {(a, b): grids.withheld(grids.of(a, b)) for a in grids.sides for b in grids.sides}
    assert {tuple(sorted(shape)) for shape, kept in shapes.items() if kept} == set(grids.unseen)
    splits = draw_splits(grids, 40, 60, torch.Generator().manual_seed(0))
    assert [len(graphs) for graphs in splits.values()] == [40, 4, 60]
    assert not any(map(grids.withheld, splits["train"] + splits["valid"]))
    assert any(map(grids.withheld, splits["test"]))
