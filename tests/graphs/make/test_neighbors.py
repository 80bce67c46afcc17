"""Neighbours by the k-d tree, against every distance computed in float64."""

import math
from collections.abc import Callable

import pytest
import torch

from edgewise.errors import GraphError
from edgewise.graphs import Graph, k_nearest, radius_graph
from edgewise.graphs.make import neighbors
from edgewise.graphs.make.neighbors import k_nearest_in_members, radius_graph_in_members, radius_graph_of_images


def distances(receivers: torch.Tensor, senders: torch.Tensor, cell: list[float] | None = None) -> torch.Tensor:
    """|x_i - x_j|^2 [I, J] to the nearest of all images, tried one by one."""
    x_ij = receivers.double()[:, None] - senders.double()[None]
    if cell is None:
        return (x_ij**2).sum(-1)
    axes = [torch.arange(-7, 8) * edge if math.isfinite(edge) else torch.zeros(1) for edge in cell]
    images = torch.cartesian_prod(*(axis.double() for axis in axes)).view(-1, len(cell))
    return ((x_ij[:, :, None] + images) ** 2).sum(-1).min(2).values


def brute_k_nearest(table: torch.Tensor, k: int, itself: bool, loops: bool) -> torch.Tensor:
    """bool [I, J]: the k least of each row, equal ones by index."""
    if itself:
        table = table.clone()
        table.fill_diagonal_(-1 if loops else math.inf)
    chosen = torch.zeros_like(table, dtype=torch.bool)
    nearest = torch.sort(table, dim=1, stable=True).indices[:, : min(k, table.shape[1] - (itself and not loops))]
    return chosen.scatter(1, nearest, True)


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("k", [1, 3, 50])
def test_k_nearest_is_the_brute_force_choice(k: int, loops: bool) -> None:
    for seed, (n, dimensions) in enumerate([(1, 2), (2, 1), (10, 3), (30, 2), (30, 5)]):
        points = torch.randn(n, dimensions, generator=torch.Generator().manual_seed(seed))
        queries = torch.randn(7, dimensions, generator=torch.Generator().manual_seed(seed + 99))
        graph = k_nearest(points, k, loops=loops)
        assert torch.equal(graph.dense_mask(), brute_k_nearest(distances(points, points), k, True, loops))
        assert not graph.has_duplicates
        across = k_nearest(points, k, queries)
        assert (across.num_receivers, across.num_senders) == (7, n)
        assert torch.equal(across.dense_mask(), brute_k_nearest(distances(queries, points), k, False, False))


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("k", [1, 4, 9])
def test_ties_go_by_index(k: int, loops: bool) -> None:
    lattice = torch.cartesian_prod(torch.arange(5.0), torch.arange(5.0))
    shuffled = lattice[torch.randperm(25)]
    coincident = torch.zeros(20, 2)
    for points in (lattice, shuffled, coincident, torch.cat([coincident, lattice, lattice])):
        expected = brute_k_nearest(distances(points, points), k, True, loops)
        assert torch.equal(k_nearest(points, k, loops=loops).dense_mask(), expected)
        assert torch.equal(
            k_nearest(points, k, points + 0.5).dense_mask(),
            brute_k_nearest(distances(points + 0.5, points), k, False, False),
        )


@pytest.mark.parametrize("loops", [False, True])
def test_points_on_one_spot_or_all_but_there_are_not_compared_with_all(loops: bool, monkeypatch) -> None:
    compared, squared_distance = [], neighbors._squared_distance

    def counted(x_i, x_j, box):
        compared.append(x_j[..., 0].size)
        return squared_distance(x_i, x_j, box)

    monkeypatch.setattr(neighbors, "_squared_distance", counted)
    line, n = torch.arange(2000.0).double()[:, None], 2000
    for points in (0 * line, line % 2, 1e-170 * line, 1e-160 + 1e-176 * line):
        compared.clear()
        graph = k_nearest(points, 4, loops=loops)
        assert sum(compared) <= 10 * n
        if points[2] == 0:  # these lie on one spot each, and their distances are exact
            expected = brute_k_nearest(distances(points, points), 4, True, loops)
            assert torch.equal(graph.dense_mask(), expected)
    assert k_nearest(1e-170 * line, 1).senders[0] == 1


def test_what_is_too_far_for_squares_of_distances_is_refused() -> None:
    for make in (lambda x: k_nearest(x, 1), lambda x: radius_graph(x, 1.0)):
        with pytest.raises(GraphError, match=r"finite, and at most 1e\+150: row 1 is \[1e\+200\]"):
            make(torch.tensor([[0.0], [1e200]], dtype=torch.float64))


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("radius", [0.0, 0.4, 1.0, 10.0])
def test_radius_graph_is_the_brute_force_choice(radius: float, loops: bool) -> None:
    for seed, n in enumerate([1, 2, 20, 40]):
        points = torch.randn(n, 3, generator=torch.Generator().manual_seed(seed))
        points[n // 2 :] = points[: n - n // 2]  # pairs of points in one spot
        near = distances(points, points) <= radius**2
        if not loops:
            near.fill_diagonal_(False)
        assert torch.equal(radius_graph(points, radius, loops=loops).multiplicity(), near.long())
        queries = torch.randn(5, 3)
        near = distances(queries, points) <= radius**2
        assert torch.equal(radius_graph(points, radius, queries).multiplicity(), near.long())


@pytest.mark.parametrize("loops", [False, True])
@pytest.mark.parametrize("where", [0.0, 1e6])
def test_many_dimensions_are_compared_by_products_to_the_same_choice(where: float, loops: bool, monkeypatch) -> None:
    """Also far from the origin, where products round; and of points of zeros and ones, with ties and on one spot."""
    monkeypatch.setattr(neighbors, "AT_ONCE", 2000)
    monkeypatch.setattr(neighbors, "_tree", None)  # there is none
    draw = torch.Generator().manual_seed(0)
    for points in (torch.randn(60, 20, generator=draw), torch.randint(2, (60, 9), generator=draw) / 10):
        points, queries = points.double() + where, points[:7].double() + where + 0.25
        points[40:] = points[:20]
        found = k_nearest(points, 5, loops=loops).dense_mask()
        assert torch.equal(found, brute_k_nearest(distances(points, points), 5, True, loops))
        across = k_nearest(points, 5, queries).dense_mask()
        assert torch.equal(across, brute_k_nearest(distances(queries, points), 5, False, False))


def test_radius_is_inclusive() -> None:
    line = torch.arange(5.0)[:, None]
    assert radius_graph(line, 2).in_degrees().tolist() == [2, 3, 4, 3, 2]
    assert radius_graph(line, 1.9999999).in_degrees().tolist() == [1, 2, 2, 2, 1]
    tenths = torch.arange(4, dtype=torch.float64)[:, None] * 0.1
    assert torch.equal(radius_graph(tenths, 0.1).dense_mask(), (distances(tenths, tenths) <= 0.1**2).fill_diagonal_(0))


@pytest.mark.parametrize("cell", [[1.0, 1.0], [2.0, 0.7], [1.5, math.inf], [math.inf, math.inf]])
def test_periodic_cells_find_the_nearest_image(cell: list[float]) -> None:
    for seed in range(5):
        draw = torch.Generator().manual_seed(seed)
        points = torch.rand(15, 2, dtype=torch.float64, generator=draw) * 4 - 2  # some lie outside the cell
        queries = torch.rand(6, 2, dtype=torch.float64, generator=draw) * 4 - 2
        table, across = distances(points, points, cell), distances(queries, points, cell)
        radius = 0.3
        near = table <= radius**2
        assert torch.equal(radius_graph(points, radius, cell=cell, loops=True).dense_mask(), near)
        assert torch.equal(radius_graph(points, radius, queries, cell).dense_mask(), across <= radius**2)
        for loops in (False, True):
            graph = k_nearest(points, 4, cell=cell, loops=loops)
            assert torch.equal(graph.dense_mask(), brute_k_nearest(table, 4, True, loops))
        assert torch.equal(k_nearest(points, 4, queries, cell).dense_mask(), brute_k_nearest(across, 4, False, False))


@pytest.mark.parametrize("pattern", [lambda points: k_nearest(points, 1), lambda points: radius_graph(points, 1.0)])
@pytest.mark.parametrize(
    ("points", "what"),
    [
        (torch.eye(3).to_sparse(), "points must be a dense tensor, not torch.sparse_coo"),
        (torch.empty(3, 2, device="meta"), "points must be on a real device, not on meta"),
    ],
)
def test_points_without_rows_of_numbers_are_refused(
    pattern: Callable[[torch.Tensor], Graph], points: torch.Tensor, what: str
) -> None:
    with pytest.raises(GraphError, match=what):
        pattern(points)


def test_the_radius_must_fit_the_cell() -> None:
    points = torch.rand(4, 2)
    assert radius_graph(points, 0.49, cell=[1.0, 3.0]).num_receivers == 4
    for radius in (0.5, 0.6, 4.0):
        with pytest.raises(GraphError, match=r"less than half of the cell's shortest edge, 1\.0"):
            radius_graph(points, radius, cell=[1.0, 3.0])


def test_no_points() -> None:
    nothing, some = torch.zeros(0, 2), torch.rand(3, 2)
    assert k_nearest(nothing, 3) == radius_graph(nothing, 1.0) == Graph.from_edge_index([[], []], 0)
    assert k_nearest(nothing, 3, some).num_edges == radius_graph(nothing, 1.0, some).num_edges == 0
    assert k_nearest(some, 3, nothing).num_receivers == radius_graph(some, 1.0, nothing).num_receivers == 0
    assert k_nearest(some, 0).num_edges == 0


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("sizes", [[6, 6, 6], [6, 4, 5], [1, 3, 4, 4], [4, 0, 9], [1, 1], [0, 0], []])
@pytest.mark.parametrize("k", [0, 3, 20])
def test_each_member_has_neighbours_of_its_own(sizes, k, loops) -> None:
    """Integer points, so that many are at equal distance."""
    points = torch.randint(3, (sum(sizes), 2)).float()
    if not sizes:
        with pytest.raises(GraphError, match="at least one graph"):
            k_nearest_in_members(points, torch.tensor(sizes), k, loops)
        return
    found = k_nearest_in_members(points, torch.tensor(sizes), k, loops)
    expected = Graph.batch([k_nearest(member, k, loops=loops) for member in points.split(sizes)])
    assert found == expected
    assert found.sizes.tolist() == sizes


@pytest.mark.parametrize("loops", [True, False])
@pytest.mark.parametrize("dimensions", [2, 3, 16])
def test_ties_are_those_of_a_graph_alone_where_distances_round(dimensions, loops, monkeypatch) -> None:
    """Tenths, whose distances differ in the last bit by how they are computed."""
    monkeypatch.setattr(neighbors, "AT_ONCE", 50)  # the ties of four points at a time
    for seed in range(5):
        draw = torch.Generator().manual_seed(seed)
        points = torch.randint(4 if dimensions < 4 else 2, (24, dimensions), generator=draw).double() / 10 + 0.1
        found = k_nearest_in_members(points, torch.tensor([12, 12]), 3, loops)
        assert found == Graph.batch([k_nearest(member, 3, loops=loops) for member in points.split(12)])
        assert radius_graph_in_members(points, torch.tensor([12, 12]), 0.2) == Graph.batch(
            [radius_graph(member, 0.2) for member in points.split(12)]
        )


@pytest.mark.parametrize("sizes", [[6, 6, 6], [6, 4, 5], [4, 0, 9], [1, 1], [0, 0], [1100, 1100], []])
@pytest.mark.parametrize("radius", [0.0, 1.0, 1.5])
def test_each_member_has_a_radius_graph_of_its_own(sizes, radius) -> None:
    """Integer points, so that many are exactly on the radius."""
    points = torch.randint(3 if sum(sizes) < 100 else 60, (sum(sizes), 2)).float()
    if not sizes:
        with pytest.raises(GraphError, match="at least one graph"):
            radius_graph_in_members(points, torch.tensor(sizes), radius)
        return
    found = radius_graph_in_members(points, torch.tensor(sizes), radius)
    expected = Graph.batch([radius_graph(member, radius) for member in points.split(sizes)])
    assert found == expected
    assert found.sizes.tolist() == sizes


def test_the_radius_in_members_is_checked() -> None:
    points, sizes = torch.rand(4, 2), torch.tensor([2, 2])
    for radius in (-1.0, float("inf"), "wide"):
        with pytest.raises(GraphError, match="radius"):
            radius_graph_in_members(points, sizes, radius)
    for sizes_of_others in ([2, 2, 2], [1, 2]):
        with pytest.raises(GraphError, match=r"the members have \d points by their sizes, but there are 4"):
            k_nearest_in_members(points, torch.tensor(sizes_of_others), 1)
    with pytest.raises(GraphError, match="finite: row 3"):
        radius_graph_in_members(torch.tensor([[0.0], [0.0], [0.0], [float("nan")]]), sizes, 1.0)


@pytest.mark.parametrize("periodic", [(True, True, True), (True, False, True), (False, False, True), (False,) * 3])
@pytest.mark.parametrize("size", [0.7, 2.0, 6.0])
def test_images_are_those_of_ase(size: float, periodic: tuple[bool, ...]) -> None:
    """In skewed cells, smaller than the radius too, with points outside of them."""
    theirs = pytest.importorskip("ase.neighborlist").primitive_neighbor_list
    draw = torch.Generator().manual_seed(int(10 * size))
    for count in (1, 2, 7):
        cell = size * (torch.eye(3) + 0.6 * torch.rand(3, 3, generator=draw).tril(-1)).double()
        x = 3 * size * torch.randn(count, 3, generator=draw, dtype=torch.float64)
        graph, s = radius_graph_of_images(x, 2.3, cell, torch.tensor(periodic))
        i, j, n = theirs("ijS", periodic, cell.numpy(), x.numpy(), 2.3)
        found = torch.cat([graph.edge_index().T.double(), s], 1)
        wanted = torch.cat(
            [torch.tensor([*zip(j, i, strict=True)]).reshape(-1, 2).double(), torch.tensor(n).double() @ cell], 1
        )
        assert found.shape == wanted.shape
        ours, others = ({tuple(row) for row in rows.mul(1e6).round().tolist()} for rows in (found + 0.0, wanted + 0.0))
        assert ours == others


def test_a_cell_that_spans_nothing_and_one_with_too_many_images_are_refused() -> None:
    x, along = torch.zeros(1, 3), torch.tensor([True, True, False])
    with pytest.raises(GraphError, match="must be 3 long and span space"):
        radius_graph_of_images(x, 1.0, torch.tensor([[1.0, 0, 0], [2.0, 0, 0], [0, 0, 1.0]]), along)
    with pytest.raises(GraphError, match=r"too many images .* same unit"):
        radius_graph_of_images(x, 5.0, 1e-4 * torch.eye(3), along)
