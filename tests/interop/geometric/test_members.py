"""A batch of stored graphs is the graph of its edge_index, made without a sort."""

from typing import Any
from unittest import mock

import pytest
import torch
from torch import Tensor

import edgewise
from edgewise import Graph
from edgewise.graphs import derived
from edgewise.interop.geometric import edges, members
from edgewise.interop.geometric.members import Members, Run
from edgewise.native import library

pytestmark = pytest.mark.skipif(library is None, reason="the C++ kernels are not built")

SIZES = (3, 0, 5, 1, 4)


def stored(draw: torch.Generator) -> tuple[Tensor, Tensor, Tensor]:
    """Columns of all graphs in any order, with loops and parallel edges; bounds of nodes and of edges."""
    counts = [3 * n for n in SIZES]
    nodes, ends = (torch.tensor([0, *parts]).cumsum(0) for parts in (SIZES, counts))
    parts = [torch.randint(max(n, 1), (2, count), generator=draw) for n, count in zip(SIZES, counts, strict=True)]
    return torch.cat(parts, 1), nodes, ends


def batch(chosen: list[int]) -> tuple[Members, Tensor]:
    """Some graphs, and their edge_index as one."""
    index, nodes, ends = stored(torch.Generator().manual_seed(0))
    run, columns = (Run.of(torch.tensor(chosen), bounds) for bounds in (nodes, ends))
    return Members(index, run, columns), columns.renumbered(index, run.starts, dim=1)


@pytest.mark.parametrize("chosen", [[2, 0, 4], [4, 4, 1, 2], [1, 3], [1, 1]])
@pytest.mark.parametrize("learning", [True, False])
def test_it_is_the_graph_of_the_edge_index(chosen: list[int], learning: bool) -> None:
    given, edge_index = batch(chosen)
    count = sum(SIZES[g] for g in chosen)
    with torch.set_grad_enabled(learning):
        found = given.graph()
    right = Graph.from_edge_index(edge_index, count)
    assert found is not None
    assert found == right
    assert "_transposed" in vars(found) if learning else "_transposed" not in vars(found)
    e = torch.arange(edge_index.shape[1])
    assert torch.equal(found.sort_edges(e), right.sort_edges(e))
    (back, perm), (right_back, right_perm) = found.transpose(), right.transpose()
    assert back == right_back
    assert torch.equal(perm, right_perm)
    assert torch.equal(back.sort_edges(e), right_back.sort_edges(e))


def test_the_rows_of_some_columns_are_read_where_they_lie() -> None:
    draw = torch.Generator().manual_seed(1)
    run = Run.of(torch.tensor([2, 0]), torch.tensor([0, 2, 3, 6]))
    wide = torch.rand(6, 5, generator=draw)
    places = torch.tensor([3, 4, 5, 0, 1])
    cases = (
        wide,
        wide[:, 2:],
        wide[:, ::2],
        wide[:, 0],
        torch.rand(5, 6, generator=draw).T,
        wide.expand(6, 5),
        wide > 0.5,
    )
    for values in cases:
        assert torch.equal(run.copied(values, 0), values[places])
    for dim, values in ((1, torch.rand(2, 6, 3)), (1, torch.rand(2, 6)), (-1, torch.rand(2, 3, 6)), (1, wide.T)):
        assert torch.equal(run.copied(values, dim), values.index_select(dim, places))
        assert run.copied(values, dim).is_contiguous()
    assert run.numbers().tolist() == [0, 0, 0, 1, 1]


def test_numbers_of_both_kinds_are_shifted() -> None:
    run = Run.of(torch.tensor([1, 0]), torch.tensor([0, 2, 5]))
    for dtype in (torch.int32, torch.int64):
        numbers = torch.tensor([10, 11, 20, 21, 22], dtype=dtype)
        found = run.renumbered(numbers, torch.tensor([100, 200]), torch.tensor([10, 20]))
        assert found.dtype == dtype
        assert found.tolist() == [100, 101, 102, 200, 201]
        assert run.renumbered(numbers, torch.tensor([1, 2])).tolist() == [21, 22, 23, 12, 13]


def test_an_edge_to_a_node_of_another_graph_leaves_the_batch_to_a_sort() -> None:
    given, edge_index = batch([2, 0])
    wrong = given.edge_index.clone()
    wrong[0, 0] = SIZES[0]
    assert Members(wrong, given.nodes, given.edges).graph() is None
    members.members_of.put(Members(wrong, given.nodes, given.edges), edge_index)
    count = given.nodes.total
    assert edges.graph_of(edge_index, count, count) == Graph.from_edge_index(edge_index, count)


def test_batches_of_a_converted_loader_are_not_sorted(monkeypatch: pytest.MonkeyPatch) -> None:
    data = pytest.importorskip("torch_geometric.data")
    loading = pytest.importorskip("torch_geometric.loader")
    nn = pytest.importorskip("torch_geometric.nn")
    index, _, ends = stored(torch.Generator().manual_seed(0))
    graphs = [
        data.Data(x=torch.rand(n, 2), edge_index=index[:, ends[g] : ends[g + 1]]) for g, n in enumerate(SIZES)
    ]  # fmt: skip

    class Graphs(data.InMemoryDataset):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self._data, self.slices = self.collate(graphs)

    dataset = Graphs()
    layer, sorts = nn.GINConv(nn.MLP([2, 3, 3])), mock.Mock(side_effect=Graph.from_edge_index)
    loader = loading.DataLoader(dataset, 2)
    expected = [layer(batch.x, batch.edge_index) for batch in loader]
    edgewise.convert(layer, loader)
    monkeypatch.setattr(Graph, "from_edge_index", sorts)
    for _ in range(2):
        found: list[Any] = [layer(batch.x, batch.edge_index) for batch in loader]
    torch.testing.assert_close(found[0], expected[0], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(found[1], expected[1], rtol=1e-5, atol=1e-6)
    assert sorts.call_count == 1 + 2  # of all graphs, and of the last batch, which has one graph, in both epochs
    dataset._data.edge_index.zero_()  # written: all are sorted again
    for batch in list(loader)[:2]:
        assert not layer(batch.x, batch.edge_index).isnan().any()
    assert sorts.call_count == 1 + 2 + 1
    assert derived.PerTensor is type(edges.graph_of)
