import pytest
import torch

from edgewise import DataError, Graph, complete
from edgewise.layers import GIN, MLP
from edgewise.tasks import PatternChoice, WholeGraphClassification, WholeGraphs

GRAPHS = [complete(n) for n in (2, 3, 4, 5, 3)]
DATA = WholeGraphs(
    GRAPHS,
    [torch.full((graph.num_receivers, 1), float(number)) for number, graph in enumerate(GRAPHS)],
    torch.tensor([0, 1, 0, 1, 1]),
    ("even", "odd"),
    {"train": torch.tensor([0, 1, 2]), "valid": torch.tensor([3]), "test": torch.tensor([4, 1])},
)


def test_a_batch_is_one_disjoint_graph():
    task = WholeGraphClassification("five", DATA)
    (batch,) = task.batches("test", 8)
    assert batch.graph == Graph.batch([GRAPHS[4], GRAPHS[1]])
    assert batch.graph.sizes.tolist() == [3, 3]
    assert batch.x.flatten().tolist() == [4, 4, 4, 1, 1, 1]
    assert batch.target.tolist() == [1, 1]
    assert [b.target.tolist() for b in task.batches("train", 2)] == [[0, 1], [0]]
    assert task.signature.whole_graph
    assert task.epoch_size == 3


def test_batches_that_come_again_are_built_once_and_draws_follow_the_generator():
    task = WholeGraphClassification("five", DATA)
    assert next(task.batches("valid", 8)) is next(task.batches("valid", 8))
    assert task.train_batch(3, torch.Generator()) is task.train_batch(3, torch.Generator())
    draws = [task.train_batch(7, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    assert torch.equal(draws[0].x, draws[1].x)
    assert draws[0].x.shape != draws[2].x.shape or not torch.equal(draws[0].x, draws[2].x)
    assert set(draws[0].x.flatten().tolist()) <= {0.0, 1.0, 2.0}


def test_micro_batches_never_cut_a_graph_in_two():
    task = WholeGraphClassification("five", DATA)
    batch = task.train_batch(3, torch.Generator())
    assert batch.split(2) == [batch, batch]


def test_a_pattern_lies_over_each_graph():
    task = WholeGraphClassification("five", DATA)
    (batch,) = task.batches("test", 8, PatternChoice("window", {"radius": 1}))
    assert batch.graph.num_edges == 2 * 7
    assert batch.graph.sizes.tolist() == [3, 3]
    assert task.graph().sizes.tolist() == [2, 3, 4, 5, 3]


def test_prediction_is_by_number():
    class Model(torch.nn.Module):
        def forward(self, graph, x):
            return torch.cat([graph.sizes[:, None].float(), torch.zeros(len(graph.sizes), 1)], 1)

    task = WholeGraphClassification("five", DATA)
    answer = task.predict(Model(), None, "3", "cpu")
    assert (answer["graph"], answer["class"], answer["label"]) == (3, "even", "odd")
    assert sum(answer["probabilities"].values()) == pytest.approx(1)
    for wrong in ("5", "-1", "x", "²"):
        with pytest.raises(DataError, match="a number from 0 to 4"):
            task.predict(Model(), None, wrong, "cpu")


def test_scores_are_sums():
    task = WholeGraphClassification("five", DATA)
    (batch,) = task.batches("train", 8)
    outputs = torch.tensor([[9.0, 0.0], [9.0, 0.0], [9.0, 0.0]])
    score = task.score(outputs, batch)
    assert (score["accuracy"].item(), score["count"].item()) == (2, 3)
    assert task.loss(outputs, batch).item() == pytest.approx(3, abs=0.01)
    assert GIN(MLP([1, 2]))(batch.graph, batch.x).shape == (9, 2)
