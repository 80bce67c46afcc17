"""Pattern choices."""

import inspect
from functools import partial

import pytest
import torch

from edgewise import training
from edgewise.apps import recipes
from edgewise.apps.options import configure
from edgewise.configuration import descriptions
from edgewise.errors import ConfigError, GraphError
from edgewise.graphs import PATTERNS, complete, grid, window
from edgewise.tasks import TASKS
from edgewise.tasks.core.task import PatternChoice, lay


@pytest.mark.parametrize(
    ("choice", "layout", "expected"),
    [
        (PatternChoice("complete"), (4,), complete(4)),
        (PatternChoice("complete"), (2, 3), complete(6)),
        (PatternChoice("window", {"radius": 1, "sides": "past"}), (5,), window(5, 1, sides="past")),
        (PatternChoice("grid", {"neighbors": 4, "loops": False}), (2, 3), grid(2, 3, 4, loops=False)),
        (PatternChoice("blocks", {"size": 2}), (2, 2), PATTERNS["blocks"](4, 2)),
    ],
)
def test_build_is_the_named_pattern_over_the_layout(choice: PatternChoice, layout: tuple[int, ...], expected) -> None:
    assert torch.equal(choice.build(*layout).dense_mask(), expected.dense_mask())
    assert torch.equal(choice(*layout).dense_mask(), expected.dense_mask())


@pytest.mark.parametrize(
    ("pattern", "layout", "nodes"),
    [
        (complete, (2, 3), 6),
        (grid, (2, 3), 6),
        (partial(grid, neighbors=4), (2, 3), 6),
        (partial(window, radius=1), (4,), 4),
    ],
)
def test_lay_reads_a_functions_own_names(pattern, layout: tuple[int, ...], nodes: int) -> None:
    assert lay(pattern, *layout).num_receivers == nodes


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
        (lambda: PatternChoice("window", {"radius": -1}).build(3), r"window\(radius=-1\)"),
        (lambda: PatternChoice("window", {"radius": 1, "sides": "left"}).build(3), "sides"),
        (lambda: PatternChoice("grid").build(9), r"grid\(\) does not fit 9 positions"),
        (lambda: PatternChoice("grid", {"neighbors": 5}).build(3, 3), "3 x 3 positions"),
        (lambda: PatternChoice("complete", {"receivers": 3}).build(3), "complete"),
        (lambda: PatternChoice("complete", {"senders": 5}).build(3), "3 receivers and 5 senders"),
        (lambda: PatternChoice("bipartite", {"right": 2}).build(3), "does not fit 3 positions"),
        (lambda: PatternChoice("strided", {"stride": 0}).build(3), "stride"),
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
