"""Batches: cut, moved, and compared with a model's outputs."""

from dataclasses import dataclass

import pytest
import torch
from scipy.sparse import eye

from edgewise.errors import ConfigError
from edgewise.graphs import EncoderDecoderGraph, Graph, LayerSample, Sample, complete
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.tasks import planted
from edgewise.tasks.core.batch import Batch, DisjointBatch
from edgewise.tasks.links.prediction import PairBatch
from edgewise.tasks.text.translation import PairBatch as SentencePairs


def examples(count: int) -> Batch:
    return Batch(complete(3), torch.randn(count, 3, 4), torch.arange(count) % 2)


@pytest.mark.parametrize(("count", "parts"), [(6, 2), (7, 3), (4, 4), (5, 1)])
def test_split_gives_every_example_once(count: int, parts: int) -> None:
    batch = examples(count)
    pieces = batch.split(parts)
    assert len(pieces) == parts
    assert torch.equal(torch.cat([piece.x for piece in pieces]), batch.x)
    assert torch.equal(torch.cat([piece.target for piece in pieces]), batch.target)
    assert max(piece.size for piece in pieces) - min(piece.size for piece in pieces) <= 1
    assert all(piece.graph is batch.graph for piece in pieces)


@dataclass
class Weighted(Batch):
    weights: torch.Tensor | None = None
    share: float = 1.0


@dataclass
class WeightedGraphs(DisjointBatch):
    of_graphs: torch.Tensor | None = None
    of_nodes: torch.Tensor | None = None
    levels: torch.Tensor | None = None


def test_split_keeps_what_a_subclass_adds() -> None:
    batch = Weighted(complete(3), torch.randn(5, 3, 4), torch.arange(5), weights=torch.arange(5.0), share=0.5)
    assert batch.split(1) == [batch]
    parts = batch.split(2)
    assert [part.weights.tolist() for part in parts] == [[0, 1, 2], [3, 4]] and [part.share for part in parts] == [
        0.5
    ] * 2
    members, rows = (complete(2), complete(1), complete(2)), torch.arange(5.0)
    fields = {"members": members, "of_graphs": rows[:3], "of_nodes": rows, "levels": rows[:4]}
    graphs = WeightedGraphs(Graph.batch(members), rows[:, None], rows[:3], **fields)
    first, second = graphs.split(2)
    assert first.of_graphs.tolist() == [0] and second.of_graphs.tolist() == [1, 2]
    assert first.of_nodes.tolist() == [0, 1] and second.of_nodes.tolist() == [2, 3, 4]
    assert first.levels is graphs.levels is second.levels


def test_what_cannot_be_split_comes_whole_every_time() -> None:
    rows = torch.tensor([0, 2])
    node_batch = Batch(complete(3), torch.randn(3, 4), torch.zeros(2), rows)
    sparse_batch = Batch(complete(3), SparseFeatures.from_scipy(eye(3)), torch.zeros(3))
    for batch in (node_batch, sparse_batch, examples(2)):
        pieces = batch.split(3)
        assert len(pieces) == 3
        assert all(piece is batch for piece in pieces)


def test_read_takes_the_rows_or_everything() -> None:
    outputs = torch.randn(3, 5)
    batch = Batch(complete(3), torch.randn(3, 4), torch.tensor([1, 4]), rows=torch.tensor([2, 0]))
    assert torch.equal(batch.read(outputs), outputs[[2, 0]])
    assert batch.size == 2
    windows = Batch(complete(3), torch.zeros(2, 3), torch.zeros(2, 3))
    assert windows.read(torch.randn(2, 3, 5)).shape == (6, 5)
    assert examples(4).read(torch.randn(4, 1, 2)).shape == (4, 2)


def test_a_whole_graph_is_moved_once() -> None:
    batch = Batch(complete(3), torch.randn(3, 4), torch.zeros(2), rows=torch.tensor([0, 1]))
    there = batch.to("meta")
    assert there.x.device.type == there.target.device.type == there.rows.device.type == "meta"
    assert there.graph.device.type == "meta"
    assert batch.to("meta") is there


def test_a_batch_stays_of_its_kind_on_another_device() -> None:
    pairs = PairBatch(complete(3), torch.randn(3, 4), torch.zeros(1), pairs=torch.tensor([[0], [1]])).to("meta")
    assert type(pairs) is PairBatch and pairs.pairs.device.type == "meta"
    side_by_side = DisjointBatch.of((complete(2), complete(1)), torch.randn(3, 4), torch.zeros(2)).to("meta")
    assert type(side_by_side) is DisjointBatch and len(side_by_side.members) == 2
    sentences = SentencePairs.of([(torch.tensor([1, 2]), torch.tensor([0, 3, 4]))], complete).to("meta")
    assert isinstance(sentences.graph, EncoderDecoderGraph) and sentences.graph.cross.device.type == "meta"


@pytest.mark.parametrize(("layerwise", "kind"), [(False, Sample), (True, LayerSample)])
def test_a_sample_moves_with_its_batch(layerwise: bool, kind: type) -> None:
    task = planted(nodes=400, degree=4, classes=2, fanouts=(3, 3), layerwise=layerwise)
    batch = task.train_batch(8, torch.Generator().manual_seed(0))
    there = batch.to("meta")
    assert type(there) is type(batch) and isinstance(there.graph, kind)
    parts = [there.graph.nodes, *(there.graph.weights if layerwise else there.graph.edges), there.x, there.target]
    assert {part.device.type for part in [*there.graph.graphs, *parts]} == {"meta"}
    for before, after in zip(batch.graph.graphs, there.graph.graphs, strict=True):
        assert (before.num_receivers, before.num_edges) == (after.num_receivers, after.num_edges)


def test_a_batch_that_may_hold_more_is_not_shared_among_ranks() -> None:
    class More(DisjointBatch):
        """It does not say that `part` knows all of it."""

    batch = More.of((complete(2),), torch.zeros(2, 1), torch.zeros(1))
    with pytest.raises(ConfigError, match=r"among ranks, not this \(More of Graph\): leave it out"):
        batch.part()
    assert batch.arranged(2) == (batch, ())
