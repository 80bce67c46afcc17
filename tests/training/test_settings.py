"""Settings: defaults that are valid, a round trip through YAML, and every wrong value refused by its name."""

import pytest
import yaml
from torch import nn

from edgewise.apps.recipes import SECTIONS
from edgewise.configuration import options_of
from edgewise.errors import CheckpointError, ConfigError
from edgewise.tasks import PatternChoice, planted
from edgewise.training import (
    AverageSettings,
    CheckpointSettings,
    Choice,
    EvaluationSettings,
    LogSettings,
    MachineSettings,
    RunConfig,
    StartSettings,
    TrainSettings,
)
from edgewise.training.settings import idle
from training.tiny import configured

ADAM = {"learning_rate": 3e-4, "weight_decay": 0.1, "decay_matrices_only": True, "decay_prefix": "blocks."}
FULL = RunConfig(
    Choice("text", {"source": "shakespeare", "context": 8}),
    Choice("transformer", {"width": 16, "attention": {"name": "lsh", "chunk": 4}, "block": {"bias": False}}),
    PatternChoice("window", {"radius": 2, "sides": "past"}),
    Choice("adam", ADAM | {"betas": (0.8, 0.95), "epsilon": 1e-6}),
    Choice("cosine", {"warmup": 10, "minimum": 0.1}),
    TrainSettings(
        7, 6, 5, 1.0, 9, AverageSettings(3, 2), CheckpointSettings(4, 3), LogSettings(8, True), "blocks", True
    ),
    EvaluationSettings(4, 3, 2, "loss"),
    MachineSettings("cuda:1", 2, "bfloat16", False, True, True, False),
    StartSettings("runs/x", rank=2, alpha=4.0, names="blocks.*"),
    "mine",
)


@pytest.mark.parametrize("make", [lambda: FULL, configured], ids=["full", "defaults"])
def test_a_configuration_survives_yaml(make):
    config = make()
    assert RunConfig.from_plain(config.to_plain()) == config
    assert yaml.safe_load(config.to_yaml()) == {"layout": 5, **config.to_plain()}


def test_the_sections_of_a_recipe_are_those_of_a_configuration():
    assert set(SECTIONS) == options_of(RunConfig).keys() - {"recipe"}


@pytest.mark.parametrize(
    ("layout", "said"),
    [(None, "layout 1"), (1, "layout 1"), (3, "layout 3"), ("2", "an unknown layout"), ([], "an unknown layout")],
)
def test_a_run_folder_of_another_layout_is_refused_in_one_line_that_says_what_to_do(tmp_path, layout, said):
    content = ({} if layout is None else {"layout": layout}) | FULL.to_plain()
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(CheckpointError) as caught:
        RunConfig.read(tmp_path / "config.yaml")
    advice = "go on with the version that wrote it, or train it anew"
    assert str(caught.value) == f"{tmp_path} has {said}, and this version reads layout 5: {advice}"


WRONG = [
    ("optimizer.learning_rate", 0),
    ("optimizer.learning_rate", float("nan")),
    ("optimizer.betas", [0.9, 1.0]),
    ("optimizer.decay_matrices_only", "maybe"),
    ("schedule.warmup", -1),
    ("schedule.minimum", 1.5),
    ("train.steps", -1),
    ("train.clip", float("inf")),
    ("train.checkpoints.every", 0),
    ("train.log.tensorboard", "yes"),
    ("evaluation.choose_by", "luck"),
    ("machine.device", "cuda:"),
    ("machine.threads", -2),
    ("model.width", None),
]


@pytest.mark.parametrize(("option", "value"), WRONG)
def test_a_wrong_value_is_refused_by_its_name(option, value):
    content = inside = FULL.to_plain()
    *path, name = option.split(".")
    for part in path:
        inside = inside[part]
    inside[name] = value
    with pytest.raises(ConfigError, match=rf"^{option.replace('.', '[.]')} must"):
        RunConfig.from_plain(content)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"train": {"steps": 9, "average": {"start": 10}}}, "train.average.start=10 has no effect: training ends"),
        ({"train": {"average": {"every": 3}}}, "train.average.every has no effect without train.average.start"),
        ({"start": {"alpha": 2.0}}, "start.alpha has no effect without start.rank"),
        ({"start": {"names": "first.*"}}, "start.names has no effect without start.rank"),
        (
            {"optimizer": {"name": "sgd", "decay_matrices_only": True}},
            "decay_matrices_only has no effect without optimizer.",
        ),
        ({"optimizer": {"name": "sgd", "decay_prefix": "a"}}, "decay_prefix has no effect without optimizer."),
        ({"train": {"steps": 9}, "schedule": {"name": "cosine", "warmup": 9}}, "schedule.warmup=9 is not over when"),
        ({"optimizer": "constant-sgd"}, "optimizer.burn_in=1000 is not over when training ends"),
        ({"train": {"steps": 300}, "evaluation": {"patience": 2}}, "evaluation.patience=2 has no effect: training"),
    ],
)
def test_an_option_without_effect_is_said(change, sentence):
    (line,) = RunConfig.from_plain({"task": "tiny", "model": "two maps"} | change).idle()
    assert sentence in line


def test_options_that_have_an_effect_are_not_said():
    assert list(configured(steps=10, average=AverageSettings(10, every=3)).idle()) == []
    last = configured(steps=25, evaluate_every=8, patience=2, schedule=Choice("linear", {"warmup": 24}))
    assert list(last.idle()) == []


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        (
            {"partition": "blocks", "shard": True, "recompute": True},
            [
                "train.partition has no effect in one process: start several by torchrun",
                "train.shard has no effect in one process: start several by torchrun",
                "machine.recompute has no effect: Linear has no blocks, layers in a ModuleList",
            ],
        ),
        ({}, []),
    ],
)
def test_options_without_effect_on_these_processes_and_this_model_are_said(options, lines):
    task, config = planted(nodes=50, classes=2), configured(**options)
    assert list(idle(config, task, nn.Linear(1, 1), 1)) == lines
    stacked = nn.Module()
    stacked.blocks = nn.ModuleList([nn.Linear(1, 1)])
    assert list(idle(config, task, stacked, 2)) == []
