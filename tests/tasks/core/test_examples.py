"""Examples by number and on one graph: what training draws, what evaluations share, and what `describe` says."""

import pytest
import torch
from torch import Tensor

from edgewise.graphs import PATTERNS, Graph, complete
from edgewise.models.signature import Features
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.task import NumberedExamples, OneGraph


class Squares(NumberedExamples):
    name, unit, metric, epoch_size = "squares", "numbers", "loss", 6
    signature = Features(1, 1)
    loss = score = predict = None

    def __init__(self, replacement: bool, stored: bool) -> None:
        self.replacement, self.stored = replacement, stored
        self.splits = {"train": torch.arange(10, 16), "valid": torch.arange(5), "test": torch.arange(0)}

    def batch(self, numbers: Tensor, pattern=None, generator=None) -> Batch:
        return Batch(complete(1), numbers.float()[:, None, None], (numbers**2).float() + (generator is not None))


@pytest.mark.parametrize("replacement", [True, False])
def test_training_draws_from_the_training_split_by_its_generator(replacement: bool) -> None:
    task = Squares(replacement, stored=False)
    first, same = (task.train_batch(40, torch.Generator().manual_seed(0)) for _ in range(2))
    assert torch.equal(first.x, same.x)
    drawn = first.x.flatten().tolist()
    assert set(drawn) == set(range(10, 16)) and len(drawn) == (40 if replacement else 6)
    assert torch.equal(first.target, first.x.flatten() ** 2 + 1)  # with the generator that varies an example


@pytest.mark.parametrize("stored", [True, False])
def test_an_evaluation_reads_each_example_once_in_order(stored: bool) -> None:
    task = Squares(True, stored)
    once, twice = (list(task.batches("valid", 2)) for _ in range(2))
    assert torch.cat([batch.target for batch in once]).tolist() == [0, 1, 4, 9, 16]
    assert [a is b for a, b in zip(once, twice, strict=True)] == [stored] * 3
    assert task.describe() == "squares: numbers (6 train, 5 valid, 0 test)"


class Nodes(OneGraph):
    name, metric, contents = "nodes", "loss", "a path"
    signature = Features(1, 1)
    loss = score = predict = None


def test_every_batch_of_one_graph_is_the_whole_graph() -> None:
    path = Graph.from_edge_index([[0, 1], [1, 2]], num_nodes=3)
    splits = {"train": torch.tensor([2]), "valid": torch.tensor([0]), "test": torch.tensor([1])}
    task = Nodes(path, torch.ones(3, 1), torch.tensor([4, 5, 6]), splits)
    train, (valid,) = task.train_batch(1, torch.Generator()), task.batches("valid", 1)
    assert (train.graph, train.target.tolist(), train.rows.tolist()) == (path, [6], [2])
    assert valid.target.tolist() == [4] and next(task.batches("valid", 9)) is valid
    assert task.graph(PATTERNS["complete"]).num_edges == 9
    assert task.graph(PATTERNS["complete"]) is task.graph(PATTERNS["complete"])
