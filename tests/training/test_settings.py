"""Settings: defaults that are valid, a round trip through YAML, and every wrong value refused by its name."""

from dataclasses import fields, replace

import pytest
import yaml

from edgewise.errors import ConfigError
from edgewise.tasks import PatternChoice
from edgewise.training import OPTIMIZERS, Choice, OptimizerSettings, RunConfig, ScheduleSettings, TrainSettings
from training.tiny import configured

FULL = RunConfig(
    Choice("text", {"source": "x", "context": 8}),
    Choice("transformer", {"width": 16, "bias": False, "hidden": None}),
    PatternChoice("window", {"radius": 2, "sides": "past"}),
    OptimizerSettings("adam", 3e-4, 0.1, True, "blocks.", 0.8, (0.8, 0.95), 0.9, 1e-6, 9, 0.5, 7, 0.1, 5, 3, 2),
    ScheduleSettings("cosine", 10, 0.1),
    TrainSettings(7, 6, 5, 1.0, "bfloat16", 4, 3, 2, 1, 9, 8, 11, False, "cuda:1", 2, True, "loss", True),
    "mine",
)


@pytest.mark.parametrize("config", [FULL, configured()], ids=["full", "defaults"])
def test_a_configuration_survives_yaml(config):
    assert RunConfig.from_plain(yaml.safe_load(config.to_yaml())) == config


def test_the_full_configuration_leaves_no_default(tmp_path):
    for part in (FULL.optimizer, FULL.schedule, FULL.train):
        default = type(part)()
        assert all(getattr(part, entry.name) != getattr(default, entry.name) for entry in fields(part))
    path = tmp_path / "config.yaml"
    path.write_text(FULL.to_yaml())
    assert RunConfig.read(path) == FULL


def test_every_option_is_documented():
    for settings in (OptimizerSettings, ScheduleSettings, TrainSettings, Choice, RunConfig):
        for entry in fields(settings):
            assert f"        {entry.name}: " in (settings.__doc__ or ""), (settings, entry.name)


def test_types_are_brought_to_the_annotations_however_settings_are_made():
    made = OptimizerSettings(learning_rate="1e-3", betas=[0, 0.5], weight_decay=1)  # type: ignore[arg-type]
    assert (made.learning_rate, made.betas, made.weight_decay) == (1e-3, (0.0, 0.5), 1.0)
    assert isinstance(made.betas, tuple)


WRONG = [
    ("optimizer", "name", "adamm"),
    ("optimizer", "name", 3),
    ("optimizer", "learning_rate", 0),
    ("optimizer", "learning_rate", -0.1),
    ("optimizer", "learning_rate", "fast"),
    ("optimizer", "learning_rate", float("nan")),
    ("optimizer", "learning_rate", float("inf")),
    ("optimizer", "weight_decay", -1),
    ("optimizer", "weight_decay", "nan"),
    ("optimizer", "momentum", 1.0),
    ("optimizer", "betas", [0.9]),
    ("optimizer", "betas", [0.9, 1.0]),
    ("optimizer", "betas", [-0.1, 0.9]),
    ("optimizer", "betas", 0.9),
    ("optimizer", "smoothing", -0.5),
    ("optimizer", "epsilon", 0.0),
    ("optimizer", "decay_matrices_only", "maybe"),
    ("optimizer", "decay_prefix", 1),
    ("schedule", "name", "cosin"),
    ("schedule", "warmup", -1),
    ("schedule", "warmup", 0.5),
    ("schedule", "minimum", -0.1),
    ("schedule", "minimum", 1.5),
    ("train", "steps", 0),
    ("train", "steps", -5),
    ("train", "steps", 10.0),
    ("train", "steps", "many"),
    ("train", "steps", True),
    ("train", "steps", 2**70),
    ("train", "batch", 0),
    ("train", "accumulate", 0),
    ("train", "clip", -1.0),
    ("train", "clip", float("inf")),
    ("train", "precision", "float8"),
    ("train", "precision", None),
    ("train", "evaluate_every", 0),
    ("train", "evaluate_batch", -1),
    ("train", "patience", -1),
    ("train", "checkpoint_every", 0),
    ("train", "keep", 0),
    ("train", "log_every", 0),
    ("train", "seed", -1),
    ("train", "seed", "zero"),
    ("train", "deterministic", 1),
    ("train", "device", "gpu"),
    ("train", "device", "cuda:"),
    ("train", "threads", -2),
    ("train", "tensorboard", "yes"),
    ("train", "choose_by", "luck"),
]


@pytest.mark.parametrize(("section", "name", "value"), WRONG)
def test_a_wrong_value_is_refused_by_its_name(section, name, value):
    content = FULL.to_plain()
    content[section][name] = value
    with pytest.raises(ConfigError, match=rf"{section}\.{name}"):
        RunConfig.from_plain(content)


def test_an_unknown_name_is_answered_with_the_known_ones():
    with pytest.raises(ConfigError) as caught:
        OptimizerSettings(name="lion")
    assert all(name in str(caught.value) for name in OPTIMIZERS)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"trian": {}}, "the configuration has no option 'trian'; did you mean 'train'"),
        ({"train": {"step": 3}}, "train has no option 'step'; did you mean 'steps'"),
        ({"train": None}, "train must hold options by name, not None"),
        ({"task": {"options": {}}}, "task.name is missing"),
        ({"task": {"name": "text", "options": {"a": {"b": 1}}}}, "task.options.a must be"),
        ({"task": "text"}, "task must hold options by name, not 'text'"),
        ({"graph": {"name": "windwo"}}, "unknown graph 'windwo'"),
        ({"graph": {"name": "window", "options": {"radios": 1}}}, "no option 'radios'"),
        ({"recipe": 5}, "recipe must be text, not 5"),
    ],
)
def test_a_wrong_section_is_refused_by_its_name(change, message):
    with pytest.raises(ConfigError) as caught:
        RunConfig.from_plain(FULL.to_plain() | change)
    assert message in str(caught.value)


@pytest.mark.parametrize("content", [None, [], "text", 3, {1: 2}])
def test_a_configuration_is_a_mapping(content):
    with pytest.raises(ConfigError, match="the configuration must hold options by name"):
        RunConfig.from_plain(content)


def test_a_part_can_be_replaced_and_is_checked_again():
    assert replace(FULL.train, seed=3).seed == 3
    with pytest.raises(ConfigError, match=r"train\.seed"):
        replace(FULL.train, seed=-3)
