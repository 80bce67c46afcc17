"""Pattern choices, and the two usual kinds of examples."""

import inspect

import pytest
import torch
from torch import Tensor

from edgewise import training
from edgewise.apps import recipes
from edgewise.apps.options import configure
from edgewise.configuration import descriptions
from edgewise.errors import ConfigError, GraphError
from edgewise.graphs import PATTERNS, Graph, complete, grid
from edgewise.models.signature import Features
from edgewise.tasks import TASKS
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.task import NumberedExamples, OneGraph, PatternChoice, lay


@pytest.mark.parametrize(
    ("choice", "layout", "expected"),
    [
        (PatternChoice("complete"), (2, 3), complete(6)),
        (PatternChoice("grid", {"neighbors": 4, "loops": False}), (2, 3), grid(2, 3, 4, loops=False)),
        (PatternChoice("blocks", {"size": 2}), (2, 2), PATTERNS["blocks"](4, 2)),
    ],
)
def test_build_is_the_named_pattern_over_the_layout(choice: PatternChoice, layout: tuple[int, ...], expected) -> None:
    assert torch.equal(choice.build(*layout).dense_mask(), expected.dense_mask())
    assert torch.equal(choice(*layout).dense_mask(), expected.dense_mask())


def test_lay_refuses_a_graph_of_another_size() -> None:
    with pytest.raises(GraphError, match="4 receivers and 4 senders for 5 positions"):
        lay(lambda n: complete(4), 5)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: PatternChoice("star"), r"graph 'star' is unknown: choose one of given, .*complete"),
        (lambda: PatternChoice("window", {"width": 3}), r"graph 'window' takes no option 'width'; it takes n, radius"),
        (lambda: PatternChoice("given", {"radius": 3}), "graph 'given' takes no option 'radius'; it takes none"),
        (lambda: PatternChoice("given").build(3), "'given' is the data's own"),
        (lambda: PatternChoice("window").build(3), r"window\(\) does not fit 3 positions: .*radius"),
        (lambda: PatternChoice("window", {"radius": "wide"}).build(3), r"window\(radius='wide'\)"),
        (lambda: PatternChoice("grid").build(9), r"grid\(\) does not fit 9 positions"),
        (lambda: PatternChoice("complete", {"senders": 5}).build(3), "3 receivers and 5 senders"),
        (lambda: PatternChoice("bipartite", {"right": 2}).build(3), "does not fit 3 positions"),
    ],
)
def test_a_choice_that_cannot_be_is_named(make, match: str) -> None:
    with pytest.raises(ConfigError, match=match):
        make()


def test_equal_choices_are_one_key() -> None:
    one, other = (
        PatternChoice("window", {"radius": 1, "dilation": 2}),
        PatternChoice("window", {"dilation": 2, "radius": 1}),
    )
    assert len({one, other}) == 1
    assert PatternChoice("window", {"radius": 1}) != one


@pytest.mark.parametrize("name", TASKS)
def test_every_option_of_a_task_is_documented(name: str) -> None:
    assert list(descriptions(inspect.getdoc(TASKS[name]))) == list(inspect.signature(TASKS[name]).parameters)


RECIPES = (
    "karate", "kernel-regression", "kinship-rgcn", "listops-full", "demo-text", "communities-transformer",
    "tastes-lightgcn", "skip-links-gin", "digits-gru", "nbody-linear",
)  # fmt: skip


@pytest.mark.parametrize("recipe", RECIPES)
def test_the_typical_input_is_one_that_predict_reads(recipe: str) -> None:
    config = configure(recipes.read(recipe))
    task, model = training.assemble(config)
    training.begin(model, config)
    with torch.no_grad():
        assert task.predict(model.eval(), config.graph, task.typical, "cpu")


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
