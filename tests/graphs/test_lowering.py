"""From form to form, against the dense count."""

import pytest
import torch

from edgewise.graphs import Graph, lowering, strided, window
from graphs.examples import PATTERNED, random_graphs


def tiles(multiplicity: torch.Tensor, block: int) -> torch.Tensor:
    """Sums over tiles of block x block, from the dense count."""
    rows, columns = (-(-size // block) for size in multiplicity.shape)
    padded = torch.zeros(rows * block, columns * block, dtype=torch.int64)
    padded[: multiplicity.shape[0], : multiplicity.shape[1]] = multiplicity
    return padded.view(rows, block, columns, block).sum((1, 3))


@pytest.mark.parametrize("block", [1, 2, 3, 5, 16])
def test_block_counts_are_the_dense_tile_sums(block: int) -> None:
    for graph in [*PATTERNED, *random_graphs(), *random_graphs(square=False)]:
        expected = tiles(graph.multiplicity(), block)
        counted = graph.block_counts(block)
        assert torch.equal(counted, expected), graph
        edges = Graph.from_csr(graph.offsets, graph.senders, graph.num_senders)
        assert torch.equal(edges.block_counts(block), expected), graph


def test_block_counts_of_a_long_window_take_no_edges() -> None:
    graph = window(20_000, 100)
    counts = graph.block_counts(1000)
    assert int(counts.sum()) == graph.num_edges
    assert counts.shape == (20, 20)
    assert int((counts > 0).sum()) == 20 + 2 * 19
    assert "senders" not in vars(graph)


@pytest.mark.parametrize("chunk", [1, 7, 64])
def test_lowering_in_chunks_changes_nothing(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    whole = strided(60, 3)
    assert whole.ranges() is None
    whole.senders, whole.block_counts(8)
    monkeypatch.setattr(lowering, "CHUNK", chunk)
    pieces = strided(60, 3)
    assert pieces.num_edges == whole.num_edges == int(whole.dense_mask().sum())
    assert torch.equal(pieces.senders, whole.senders)
    assert torch.equal(pieces.offsets, whole.offsets)
    assert torch.equal(pieces.block_counts(8), whole.block_counts(8))


def test_sorted_edges_keep_parallel_edges_in_the_callers_order() -> None:
    receivers, senders = torch.tensor([1, 0, 1, 1, 0]), torch.tensor([2, 1, 0, 2, 1])
    offsets, senders, order = lowering.sorted_edges(receivers, senders, (2, 3))
    assert (offsets.tolist(), senders.tolist(), order.tolist()) == ([0, 2, 5], [1, 1, 0, 2, 2], [1, 4, 2, 0, 3])


def test_edges_in_order_already_are_copied_not_shared() -> None:
    offsets, senders = torch.tensor([0, 1, 2]), torch.tensor([0, 1])
    graph = Graph.from_csr(offsets, senders, 2)
    senders[0], offsets[1] = 1, 0
    assert (graph.senders.tolist(), graph.offsets.tolist()) == ([0, 1], [0, 1, 2])


def test_senders_of_intervals() -> None:
    starts, stops = torch.tensor([[0, 5], [2, 2], [3, 4]]), torch.tensor([[2, 6], [2, 2], [4, 6]])
    assert lowering.senders_of(starts, stops).tolist() == [0, 1, 5, 3, 4, 5]
    assert lowering.senders_of(starts[:0], stops[:0]).tolist() == []
