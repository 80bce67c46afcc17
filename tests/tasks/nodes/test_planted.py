"""The planted graph, and training on sampled neighbours."""

import pytest
import torch

from edgewise.graphs import LayerSample, Sample
from edgewise.models import GNN, GNNSettings
from edgewise.tasks import planted
from edgewise.tasks.core.task import Parts
from edgewise.training import evaluate

SMALL = {"nodes": 800, "degree": 6, "classes": 4, "channels": 8}


@pytest.mark.parametrize("inductive", [True, False])
def test_training_hears_only_what_it_may(inductive: bool) -> None:
    task = planted(**SMALL, inductive=inductive)
    train = set(task.nodes.splits["train"].tolist())
    row_of = {tuple(row): number for number, row in enumerate(task.nodes.x.tolist())}
    heard: set[int] = set()
    for seed in range(10):
        batch = task.train_batch(32, torch.Generator().manual_seed(seed))
        nodes = [row_of[tuple(row)] for row in batch.x.tolist()]
        count = batch.target.numel()
        assert set(nodes[:count]) <= train
        assert batch.target.tolist() == task.nodes.labels[nodes[:count]].tolist()
        heard |= set(nodes)
    assert (heard <= train) is inductive


def test_a_batch_is_a_small_sample_and_follows_from_the_generator() -> None:
    task = planted(**SMALL, fanouts=(2, 3))
    first, again = (task.train_batch(16, torch.Generator().manual_seed(7)) for _ in range(2))
    assert isinstance(first.graph, Sample)
    assert torch.equal(first.x, again.x) and torch.equal(first.target, again.target)
    assert [graph.in_degrees().max().item() for graph in first.graph.graphs] == [3, 2]  # the seeds draw 2
    assert first.graph.graphs[1].num_receivers == first.size
    assert len(first.x) <= 16 * 3 * 4
    model = GNN(GNNSettings("sage-mean", 8, 2), task.signature)
    assert first.read(model(first.graph, first.x)).shape == (first.size, 4)
    assert first.split(2) == [first, first]


@pytest.mark.parametrize("ranks", [1, 2, 3, 4])
def test_parts_are_together_the_batch_of_one_process(ranks: int) -> None:
    task = planted(**SMALL, fanouts=(2, 3))
    whole = task.train_batch(64, torch.Generator().manual_seed(7))
    model = GNN(GNNSettings("sage-mean", 8, 2, dropout=0.0), task.signature)
    drawn = [
        task.train_parts(64, torch.Generator().manual_seed(7), None, Parts(ranks, range(n, n + 1)))
        for n in range(ranks)
    ]
    parts = [part for _, (part,) in drawn]
    assert [terms for terms, _ in drawn] == [whole.size] * ranks
    assert torch.cat([part.target for part in parts]).equal(whole.target)
    outputs = torch.cat([model(*part.inputs) for part in parts])
    torch.testing.assert_close(outputs, model(*whole.inputs), rtol=0, atol=1e-6)
    assert max(len(part.x) for part in parts) < len(whole.x) or ranks == 1


def test_evaluation_reads_all_neighbours_of_the_whole_graph() -> None:
    task = planted(**SMALL)
    model = GNN(GNNSettings("sage-mean", 8, 2), task.signature).eval()
    whole = model(task.graph(), task.nodes.x).argmax(1)
    rows = task.nodes.splits["test"]
    expected = (whole[rows] == task.nodes.labels[rows]).double().mean().item()
    assert evaluate(model, task, "test", 10)["accuracy"] == pytest.approx(expected)


def test_layerwise_sampling_draws_so_many_senders_for_each_layer() -> None:
    task = planted(**SMALL, fanouts=(60, 40), layerwise=True)
    batch = task.train_batch(16, torch.Generator().manual_seed(0))
    assert isinstance(batch.graph, LayerSample)
    first, last = batch.graph.graphs
    assert last.num_receivers == batch.size
    assert last.num_senders == first.num_receivers <= 60
    assert len(batch.x) == first.num_senders <= 40
    model = GNN(GNNSettings("fast-gcn", 8, 2), task.signature)
    assert batch.read(model(batch.graph, batch.x)).shape == (batch.size, 4)
    assert batch.to("cpu") is batch
