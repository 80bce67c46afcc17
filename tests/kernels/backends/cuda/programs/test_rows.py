"""Work items hold every edge once, whole rows or chunks of hubs."""

import torch

from edgewise.kernels.backends.cuda.programs.rows import work
from triton_device import DEVICE


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
