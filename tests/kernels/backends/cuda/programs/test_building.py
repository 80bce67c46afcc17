"""How rows are dealt out: every edge once, long rows cut and merged; graphs built without C++ are the same graphs."""

import pytest
import torch

from edgewise import Graph
from edgewise.graphs import forms as lowering
from edgewise.kernels.backends.cuda.programs.building import CHUNK, schedule, work
from kernels.drawn import disjoint_graphs, random_graph
from triton_device import DEVICE


def edges_of_rows(offsets, plan, chunk):
    """Which edges each row reads, following whole rows, pieces and merges: what a kernel's loop does, in Python."""
    whole, cut, *merge = plan
    found = {row: list(range(start, stop)) for row, start, stop in whole.tolist()}
    assert all(stop - start <= chunk for _, start, stop in [*whole.tolist(), *cut.tolist()])
    if len(cut):
        pieces = [list(range(start, stop)) for _, start, stop in cut.tolist()]
        for row, parts in edges_of_rows(None, merge, chunk).items():
            found[row] = [e for part in parts for e in pieces[part]]
    return found


@pytest.mark.parametrize("chunk", [2, 3, 8, CHUNK])
def test_every_edge_is_read_once_by_its_row_in_order(chunk):
    for graph in (random_graph(40, 30, 600), random_graph(5, 5, 9), disjoint_graphs(20)):
        plan = schedule(graph.offsets.to(DEVICE), chunk)
        assert len(plan) % 2 == 0
        found = edges_of_rows(graph.offsets, plan, chunk)
        bounds = graph.offsets.tolist()
        assert found == {row: list(range(bounds[row], bounds[row + 1])) for row in range(graph.num_receivers)}


def test_rows_stand_by_length_and_neighbours_stay_neighbours():
    degrees = torch.tensor([1, 9, 0, 8, 1, 20, 15, 1])
    whole, cut, *merge = schedule(lowering.offsets_of(degrees), chunk=16)
    assert whole[:, 0].tolist() == [1, 3, 6, 0, 4, 7, 2]
    assert cut.tolist() == [[5, 19, 29], [5, 29, 39]]
    assert [items.tolist() for items in merge] == [[[5, 0, 2]], []]


def test_nothing_is_listed_where_the_rows_own_order_is_as_good():
    assert schedule(torch.arange(0, 101, 10)) == []
    assert schedule(torch.zeros(1, dtype=torch.int64)) == []
    assert len(schedule(torch.tensor([0, 1, 9]))) == 2


@pytest.fixture
def without_the_library(monkeypatch):
    """As on a card: no C++ sorts an edge."""
    monkeypatch.setattr(lowering.native, "library", None)


def forms(index, nodes, receivers):
    """What follows from an edge list by sorting: CSR, order, transpose, coalesced, looped, symmetric."""
    graph = Graph.from_edge_index(index.to(DEVICE), nodes, receivers)
    transpose, order = graph.transpose()
    made = [graph.offsets, graph.senders, graph._order, transpose.offsets, transpose.senders, order]
    square = [graph.coalesce()] if receivers else [graph.coalesce(), graph.add_self_loops(), graph.symmetrise()]
    return [t.cpu() for t in (*made, *(t for g in square for t in (g.offsets, g.senders)))]


@pytest.mark.parametrize(
    ("nodes", "receivers", "edges"), [(9, None, 60), (7, 12, 50), (5, None, 0), (0, None, 0), (300, None, 900)]
)
def test_building_on_the_device_gives_the_same_bits_as_cpp(nodes, receivers, edges, request):
    shape = (1, edges)
    index = torch.cat([torch.randint(max(1, nodes), shape), torch.randint(max(1, receivers or nodes), shape)])
    index[:, edges // 2 :] = index[:, : edges - edges // 2]  # parallel edges, whose order must hold
    expected = forms(index, nodes, receivers)
    request.getfixturevalue("without_the_library")
    assert all(torch.equal(found, value) for found, value in zip(forms(index, nodes, receivers), expected, strict=True))


def test_every_edge_is_in_one_item_and_every_row_has_one():
    degree = torch.cat([torch.randint(6, (50,)), torch.tensor([0, 128, 129, 1000, 513])])[torch.randperm(55)]
    offsets = torch.cat([torch.zeros(1).long(), degree.cumsum(0)]).to(DEVICE)
    items, hubs = (x.cpu() for x in work(offsets, int(offsets[-1])))
    seen = torch.cat([torch.arange(first, last) for _, first, last in items.t().tolist()])
    assert torch.equal(seen.sort().values, torch.arange(int(offsets[-1])))
    for row, first, last in items.t().tolist():
        assert offsets[row] <= first <= last <= offsets[row + 1]
        assert last - first <= 128
    assert items[0].unique().tolist() == list(range(55))
    cut = [(row, list(range(first, last))) for row, first, last in hubs.t().tolist()]
    assert sorted(degree[row].item() for row, _ in cut) == [129, 513, 1000]
    for row, chunks in cut:
        assert (items[0, chunks] == row).all() and items[1, chunks[0]] == offsets[row]
        assert items[2, chunks[-1]] == offsets[row + 1] and len(chunks) == -(-int(degree[row]) // 128)


def test_rows_of_one_program_take_as_many_steps():
    offsets = torch.cat([torch.zeros(1).long(), torch.randint(40, (300,)).cumsum(0)]).to(DEVICE)
    items, _ = work(offsets, int(offsets[-1]))
    steps = (items[2] - items[1] + 3) // 4
    assert (steps.diff() <= 0).all()
    same = steps[1:] == steps[:-1]
    assert (items[0].diff()[same] > 0).all(), "neighbours stay neighbours"


def test_a_graph_without_rows_or_edges():
    for offsets in ([0], [0, 0, 0]):
        items, hubs = work(torch.tensor(offsets, device=DEVICE), 0)
        assert items.shape == (3, len(offsets) - 1) and hubs.shape == (3, 0)
