from dataclasses import is_dataclass
from typing import Annotated, Any, Literal, Union, get_args, get_origin

import pytest

from edgewise.apps import recipes
from edgewise.apps.options import assignments, configure, show_options
from edgewise.apps.recipes import Recipe, parse
from edgewise.configuration import Choice, options_of
from edgewise.errors import ConfigError
from edgewise.tasks import PatternChoice
from edgewise.training import RunConfig

MINE = parse("mine", "task: karate\nmodel: {name: gnn, width: 8}\ntrain: {steps: 7}\noptimizer: sgd")
GAT = parse("mine", "task: karate\nmodel: {name: gnn, layer: {name: gat, heads: 2}}")


def test_the_command_line_overrides_the_recipe_which_overrides_the_defaults() -> None:
    config = configure(MINE, [("train.steps", "9"), ("model.depth", "3")])
    assert config.train.steps == 9
    assert config.model.options["depth"] == 3
    assert config.model.options["width"] == 8
    assert config.train.batch == RunConfig(config.task, config.model).train.batch
    assert config.optimizer == RunConfig(config.task, config.model, optimizer=Choice("sgd")).optimizer
    assert config.recipe == "mine"


@pytest.mark.parametrize("option", ["model", "model.name"])
def test_another_name_starts_a_choice_from_its_defaults(option: str) -> None:
    config = configure(MINE, [(option, "transformer")])
    assert config.model.name == "transformer"
    assert config.model.options["width"] == 128


def layer(*overrides: tuple[str, str]) -> Choice:
    choice: Choice = configure(GAT, overrides).model.options["layer"]
    return choice


def test_a_choice_within_a_section_has_options_of_its_own() -> None:
    assert layer().options["heads"] == 2
    assert layer(("model.layer.heads", "4")).options["heads"] == 4
    assert layer(("model.layer.attention_dropout", "0.5")).options["heads"] == 2
    assert layer(("model.layer", "gatv2")) == layer(("model.layer.name", "gatv2"))
    assert layer(("model.layer", "gatv2")).options["heads"] == 1
    assert layer(("model.layer", "gcn")) == Choice("gcn")
    assert layer(("model.layer", "{name: monet, kernels: 5}")) == Choice("monet", {"kernels": 5})


def test_a_name_comes_before_its_options_in_whatever_order_they_are_given() -> None:
    overrides = [("model.layer.kernels", "5"), ("model.layer", "monet"), ("model", "gnn")]
    assert layer(*overrides) == layer(*reversed(overrides)) == Choice("monet", {"kernels": 5})


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (
            [("model.layer", "gcn"), ("model.layer.heads", "4")],
            "model.layer 'gcn' takes no option 'heads'; it takes none",
        ),
        ([("model.layer.haeds", "4")], "takes no option 'haeds'; did you mean 'heads'? it takes heads, output_heads"),
        ([("model.layer.heads", "0")], "model.layer.heads must be at least 1, not 0"),
    ],
)
def test_what_no_choice_reads_is_refused(overrides: list[tuple[str, str]], message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        configure(GAT, overrides)
    assert message in str(caught.value)


def test_an_option_below_a_value_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unknown option --train\.steps\.more: steps is one value, 7"):
        configure(MINE, [("train.steps.more", "4")])


@pytest.mark.parametrize(
    ("option", "text", "value"),
    [
        ("train.checkpoints.every", "8", 8),
        ("machine.deterministic", "false", False),
        ("start.names", "1", "1"),
        ("train.clip", "1e-3", 0.001),
        ("train.clip", "1", 1.0),
    ],
)
def test_text_becomes_the_type_that_the_option_has(option: str, text: str, value: object) -> None:
    found: Any = configure(MINE, [(option, text)])
    for name in option.split("."):
        found = getattr(found, name)
    assert found == value
    assert type(found) is type(value)


def test_pattern_options_are_the_patterns_own() -> None:
    graph = configure(MINE, [("graph", "window"), ("graph.radius", "3"), ("graph.sides", "past")]).graph
    assert (graph.name, dict(graph.options)) == ("window", {"radius": 3, "dilation": 1, "sides": "past"})
    assert graph.build(5).num_edges == 14


def test_each_packaged_recipe_is_valid_says_nothing_in_vain_and_round_trips() -> None:
    for name in recipes.names():
        config = configure(recipes.read(name))
        assert list(config.idle()) == [], name
        written = config.to_plain()
        assert RunConfig.from_plain(written) == config
        del written["recipe"]
        assert configure(Recipe(name, "", (), written)) == config


@pytest.mark.parametrize("task", ["", "task: mine", "task: [karate]"])
def test_a_recipe_without_a_task_that_there_is_takes_that_of_the_command_line(task: str) -> None:
    recipe = parse("mine", f"{task}\nmodel: gnn")
    assert configure(recipe, [("task", "karate")]).task.name == "karate"
    with pytest.raises(ConfigError):
        configure(recipe)


def every_option() -> list[tuple[str, Any]]:
    """Every option that any recipe could have, with its annotation, down through all tables."""
    found: dict[str, Any] = {}

    def visit(path: str, options: Any) -> None:
        for name, option in options.items():
            found[f"{path}.{name}"] = option
            if option.table is not None and isinstance(option.table.table, dict):
                for one in option.table.table:
                    if get_args(option.hint)[0] is not str:
                        visit(f"{path}.{name}={one}", option.table.options(one))
            elif is_dataclass(option.hint):
                visit(f"{path}.{name}", options_of(option.hint))

    visit("", options_of(RunConfig))
    return list(found.items())


def test_no_option_has_a_type_that_could_import_or_call_anything() -> None:
    """Values of these types are data: none of them becomes an import."""

    def plain(kind: Any) -> bool:
        if get_origin(kind) is Annotated:
            return plain(kind.__origin__)
        if kind in (bool, int, float, str, type(None), ..., Choice, PatternChoice) or get_origin(kind) is Literal:
            return True
        if is_dataclass(kind):
            return all(plain(option.hint) for option in options_of(kind).values())
        return get_origin(kind) in (Union, type(int | str), tuple, list) and all(map(plain, get_args(kind)))

    assert [(path, option.hint) for path, option in every_option() if not plain(option.hint)] == []


def test_every_option_of_every_choice_is_described() -> None:
    """Patterns say theirs in an equation, in which the names are the source's."""
    silent = [path for path, option in every_option() if not option.description and not path.startswith(".graph=")]
    assert silent == []


def test_assignments_are_pairs() -> None:
    assert assignments(["n=4", "layer.heads=2", "text=a=b"], {}) == [("n", "4"), ("layer.heads", "2"), ("text", "a=b")]
    with pytest.raises(ConfigError, match="write 'n' as OPTION=VALUE; the options are n, radius"):
        assignments(["n"], {"n": 1, "radius": 2})
    with pytest.raises(ConfigError, match="'n' is given twice"):
        assignments(["n=1", "n=2"], {})


def test_help_lists_every_option_with_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    show_options(GAT, [("schedule", "cosine"), ("schedule.warmup", "5")])
    told = capsys.readouterr().out
    lines = told.splitlines()
    for flag, value in [
        ("task", "karate"), ("task.loops", "false"), ("graph", "given"), ("model", "gnn"), ("model.layer", "gat"),
        ("model.layer.heads", "2"), ("model.layer.output_heads", "1"), ("schedule", "cosine"), ("schedule.warmup", "5"),
        ("optimizer.betas", "0.9, 0.999"), ("train.checkpoints.every", "1000"), ("machine.threads", "0"),
    ]:  # fmt: skip
        first = next(number for number, line in enumerate(lines) if line.startswith(f"  --{flag} VALUE"))
        entry = lines[first : first + 12]
        assert any(line.endswith(f"[{value}]") for line in entry), (flag, entry)
    assert "One of relu, sigmoid, tanh" in " ".join(told.split())
    assert "gat (heads, output_heads, attention_dropout), gatv2" in " ".join(told.split())
    assert max(map(len, lines)) <= 120


def test_a_task_of_another_kind_is_refused() -> None:
    links = recipes.read("cora-vgae")
    with pytest.raises(ConfigError, match=r"'cora-vgae' is for .*\(link prediction\), and 'node-folder' is of another"):
        configure(links, [("task.name", "node-folder")])
    assert configure(recipes.read("cora-gcn"), [("task.name", "node-folder")]).task.name == "node-folder"
    with pytest.raises(ConfigError, match=r"\(graph classification\).*\(graph regression\).*such as esol"):
        configure(recipes.read("enzymes-gin"), [("task", "molecules")])
