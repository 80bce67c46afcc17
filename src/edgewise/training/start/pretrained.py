"""Fine-tuning: a run's model is that of a folder in the layout of Hugging Face, with its weights."""

from dataclasses import replace
from functools import partial
from typing import Any

from torch import nn

from edgewise.configuration import Choice
from edgewise.errors import CheckpointError
from edgewise.models import MODELS
from edgewise.models.hub.pretrained import EMBEDDING, Pretrained
from edgewise.tasks.core.task import PatternChoice
from edgewise.training.settings import RunConfig, StartSettings


def settled(config: RunConfig) -> RunConfig:
    """The configuration with the model of the folder that `start.hub` names, so that a run can do without the folder.

    Edge cases  the recipe's own `dropout` stays, and its `readout` where the folder's model has none; where the model
                attends to a window of the past, the graph is that window unless the recipe has another than causal
    """
    if not config.start.hub:
        return config
    given = Pretrained.open(config.start.hub)
    settings = given.outline.settings
    name = next(name for name, (_, model) in MODELS.items() if type(given.outline) is model)
    options: dict[str, Any] = dict(vars(settings))
    kept = ("dropout",) if options.get("readout", "none") != "none" else ("dropout", "readout")
    options |= {option: config.model.options[option] for option in kept if option in config.model.options}
    past = config.graph.name in ("given", "causal")
    return replace(config, model=Choice(name, options), graph=(_window(given) if past else None) or config.graph)


def _window(given: Pretrained) -> PatternChoice | None:
    graph = given.kind.graph(given.config)
    return PatternChoice("window", dict(graph.keywords)) if isinstance(graph, partial) else None


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
