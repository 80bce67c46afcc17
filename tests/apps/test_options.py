import inspect
from typing import Literal, Union, get_args, get_origin

import pytest

from edgewise.apps import recipes
from edgewise.apps.options import TABLES, choose, configure, descriptions, flat, parser_of
from edgewise.apps.recipes import Recipe, parse
from edgewise.errors import ConfigError
from edgewise.training import OptimizerSettings, RunConfig

MINE = parse("mine", "task: {name: karate}\nmodel: {name: gnn, width: 8}\ntrain: {steps: 7}\noptimizer: {name: sgd}")


def test_the_command_line_overrides_the_recipe_which_overrides_the_defaults() -> None:
    config = configure(MINE, [("train.steps", "9"), ("model.depth", "3")])
    assert config.train.steps == 9
    assert config.model.options["depth"] == 3
    assert config.model.options["width"] == 8
    assert config.train.batch == RunConfig(config.task, config.model).train.batch
    assert config.optimizer == OptimizerSettings(name="sgd")
    assert config.recipe == "mine"


def test_the_last_of_two_values_counts() -> None:
    assert configure(MINE, [("train.steps", "9"), ("train.steps", "10")]).train.steps == 10


def test_another_name_starts_a_section_from_its_defaults() -> None:
    config = configure(MINE, [("model.name", "transformer")])
    assert config.model.name == "transformer"
    assert config.model.options["width"] == 128


def test_the_same_name_keeps_the_recipe_of_a_section() -> None:
    assert configure(MINE, [("model.name", "gnn")]).model.options["width"] == 8


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("optimizer.betas", "[0.8, 0.9]", (0.8, 0.9)),
        ("optimizer.learning_rate", "1e-3", 0.001),
        ("optimizer.learning_rate", "1", 1.0),
        ("optimizer.decay_prefix", "1", "1"),
        ("train.deterministic", "false", False),
    ],
)
def test_text_becomes_the_type_that_the_option_has(option: str, text: str, value: object) -> None:
    section, name = option.split(".")
    found = getattr(getattr(configure(MINE, [(option, text)]), section), name)
    assert found == value
    assert type(found) is type(value)


def test_pattern_options_are_the_patterns_own() -> None:
    graph = configure(MINE, [("graph.name", "window"), ("graph.radius", "3"), ("graph.sides", "past")]).graph
    assert (graph.name, dict(graph.options)) == ("window", {"radius": 3, "dilation": 1, "sides": "past"})
    assert graph.build(5).num_edges == 14


@pytest.mark.parametrize("name", recipes.names())
def test_each_packaged_recipe_is_valid_and_round_trips(name: str) -> None:
    config = configure(recipes.read(name))
    again = configure(Recipe(name, "", (), flat(config)))
    assert again == config
    assert RunConfig.from_plain(config.to_plain()) == config


def test_a_recipe_must_name_its_task() -> None:
    with pytest.raises(ConfigError, match="names no task"):
        choose(parse("mine", "model: {name: gnn}"), [])


def test_no_option_has_a_type_that_could_import_or_call_anything() -> None:
    """Values of these types are data: jsonargparse turns none of them into an import."""

    def plain(kind: object) -> bool:
        if kind in (bool, int, float, str, type(None), ...) or get_origin(kind) is Literal:
            return True
        return get_origin(kind) in (Union, type(int | str), tuple, list) and all(map(plain, get_args(kind)))

    usual = {"task": "karate", "graph": "given", "model": "gnn"}
    for section, table in TABLES.items():
        for name in table:
            for action in parser_of(usual | {section: name}, "mine")._actions:
                kind = getattr(action, "_typehint", action.type)
                assert plain(kind), (action.option_strings, kind)


def test_descriptions_come_from_the_docstring() -> None:
    documented = "Train.\n\nArgs:\n    steps: How many,\n        at most.\n    batch: How much.\n\nErrors: none."
    assert descriptions(documented) == {"steps": "How many, at most.", "batch": "How much."}


def test_every_option_of_every_table_is_described() -> None:
    for table in (TABLES["task"], TABLES["model"]):
        for name, target in table.items():
            found = descriptions(inspect.getdoc(target) or "")
            assert found.keys() == set(inspect.signature(target).parameters), name
