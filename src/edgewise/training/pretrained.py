"""Fine-tuning: a run's model is that of a folder in the layout of Hugging Face, with its weights."""

from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from edgewise.configuration import Choice, OneOf
from edgewise.errors import CheckpointError, ConfigError
from edgewise.models import MODELS
from edgewise.models.hub.pretrained import EMBEDDING, Pretrained
from edgewise.tasks import TASKS
from edgewise.tasks.core.task import PatternChoice
from edgewise.training.settings import RunConfig, StartSettings


def settled(config: RunConfig) -> RunConfig:
    """The configuration with the model of the folder that `start.hub` names, so that a run can do without the folder.

    Errors      ConfigError for rotary positions that are fewer than the task's, unless `start.extend` divides them, and
                for a model that reads by the last token on a graph that shows it what follows
    Edge cases  the recipe's own rates of dropout stay, and its `readout` where the folder's model has none; where the
                model attends to a window of the past, the graph is that window unless the recipe's is not causal
    """
    if not config.start.hub:
        return config
    given = _long_enough(Pretrained.open(config.start.hub), config)
    settings = given.outline.settings
    name = next(name for name, (_, model) in MODELS.items() if type(given.outline) is model)
    options: dict[str, Any] = dict(vars(settings))
    rates = ("dropout", "attention_dropout", "head_dropout")
    kept = (*rates, *(["readout"] if options.get("readout", "none") == "none" else []))
    options |= {
        option: config.model.options[option] for option in kept if option in config.model.options.keys() & options
    }
    rate = Choice.of(config.model.options.get("attention", "")).options.get("dropout")
    if rate is not None and isinstance(attention := options.get("attention"), Choice | str):
        attention = Choice.of(attention)
        options["attention"] = Choice(attention.name, attention.options | {"dropout": rate})
    past = config.graph.name in ("given", "causal")
    graph = given.kind.graph(given.config) if past else None
    window = PatternChoice("window", dict(graph.keywords)) if isinstance(graph, partial) else config.graph
    if getattr(settings, "readout", "none") == "last" and window.name in ("given", "complete"):
        raise ConfigError(f"{given.folder} reads a text by its last token, which attends to the past: --graph causal")
    return replace(config, model=Choice(name, options), graph=window)


def _long_enough(given: Pretrained, config: RunConfig) -> Pretrained:
    """The same for the task's number of positions where these are rotary; those of a table are `take_pretrained`'s."""
    defaults = {name: option.default for name, option in OneOf(TASKS).options(config.task.name).items()}
    options = defaults | config.task.options
    length = options.get("context") or options.get("length") or 0
    positions = given.outline.signature.length or length
    if length <= positions or "rope_parameters" not in given.kind.longer(given.config, length):
        return given
    if not config.start.extend:
        what = f"has {positions} positions, and {length} are needed"
        raise ConfigError(f"{given.folder} {what}: --start.extend interpolated divides them")
    return given.of_length(length, config.start.extend)


def take_pretrained(model: nn.Module, start: StartSettings) -> set[str]:
    """Give a model a folder's weights wherever a name and its shape fit, and name them; the others stay.

    Errors      CheckpointError where the folder's model reads other inputs than the task has
    """
    given = Pretrained.open(start.hub)
    weights = given.weights(model, start.extend or None, exact=False)
    if EMBEDDING not in weights:
        theirs, ours = (list(of.get_parameter(EMBEDDING).shape) for of in (given.outline, model))
        lacks = "" if (given.folder / "tokenizer.json").is_file() else ", and the folder holds no tokenizer.json"
        what = f"its embedding is {theirs}, and this task needs {ours}"
        raise CheckpointError(f"{start.hub} does not fit this task: {what}{lacks}")
    model.load_state_dict(model.state_dict() | {name: make() for name, make in weights.items()})
    return set(weights)
