"""What was given to `fit` has no name in a table: how a run describes it, and whether what is given later fits."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Self

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from edgewise.configuration import Choice, plain, read_yaml
from edgewise.errors import ConfigError, a_kind
from edgewise.graphs import Graph
from edgewise.models.edge_index import on_graphs
from edgewise.tasks.core.task import GRAPHS, Pattern, PatternChoice, Task
from edgewise.training.integrity import CONFIG, hash_of
from edgewise.training.settings import OWN, RunConfig

DECISIVE = ("task", "model", "graph", "optimizer", "schedule", "train", "evaluation")


@dataclass(frozen=True)
class OwnConfig(RunConfig):
    """What decides such a run, but for its task, its model and its graph: those are named, and not described."""

    task: Choice
    model: Choice
    graph: Any = None

    def to_plain(self) -> dict[str, Any]:
        known = isinstance(self.graph, str | Mapping)  # as a run folder has it
        return super().to_plain() | {"graph": self.graph if known else plain(_named(self.graph))}

    @classmethod
    def from_plain(cls, content: Mapping[str, object]) -> Self:
        return super().from_plain({**content, **{name: _choice(content.get(name)) for name in ("task", "model")}})


def _choice(written: Any) -> Any:
    """A name with options, as a run folder has it."""
    if not isinstance(written, Mapping) or "name" not in written:
        return written
    return Choice(written["name"], {key: value for key, value in written.items() if key != "name"})


@dataclass(frozen=True, eq=False)
class Given:
    """The pattern that has one graph, whatever the layout."""

    graph: Graph

    def __call__(self, *layout: int) -> Graph:
        return self.graph


def _named(pattern: Pattern) -> Choice:
    """What stands for a pattern in the configuration: its own choice, a hash of its graph, or a function's name, with
    the numbers and words that `functools.partial` has fixed. A checkpoint has the hash of the graphs that it makes."""
    if pattern is None or isinstance(pattern, PatternChoice):
        return pattern or Choice("given")
    if isinstance(pattern, Given):
        return Choice(OWN, {"sha256": hash_of(pattern.graph)})
    fixed = pattern if isinstance(pattern, partial) else partial(pattern)
    options = {name: value for name, value in fixed.keywords.items() if isinstance(value, int | float | str)}
    name = getattr(fixed.func, "__qualname__", type(fixed.func).__name__)
    return Choice(OWN, {"function": name, **options})


def pattern_of(graph: Graph | PatternChoice | Pattern | str) -> Pattern:
    """A pattern that stands for what is given: a graph, a pattern, its name, or None for the data's own graph."""
    if isinstance(graph, str):
        return PatternChoice(graph)
    if isinstance(graph, Graph):
        return Given(graph)
    if graph is not None and not callable(graph):
        raise ConfigError(f"graph must be a Graph, a pattern or its name, not {type(graph).__name__}")
    return graph


def given_again(
    run: Path, config: OwnConfig, task: Task, model: nn.Module, graph: Graph | PatternChoice | Pattern | str
) -> tuple[OwnConfig, nn.Module]:
    """The configuration of a run with the task, model and graph that `fit` had, and the model as it is called.

    Errors      ConfigError for others than the run was begun with
    """
    check_task(task)
    made, written = called(task, model), config.graph
    if graph is None and written != "given":
        known = Choice.of(_choice(written))
        graph = PatternChoice(known.name, known.options) if known.name in GRAPHS else None
    own = named(task, model)
    config = replace(config, task=own["task"], model=own["model"], graph=pattern_of(graph))
    same_settings(run, config)
    return config, made


def named(task: Task, model: nn.Module) -> dict[str, Choice]:
    """What stands for a task and a model in the configuration."""
    return {name: Choice(OWN, {"class": type(one).__name__}) for name, one in (("task", task), ("model", model))}


def same_settings(run: Path, config: OwnConfig) -> None:
    """Refuse to go on with another task, model or graph, or with other settings, than those that a run was begun with;
    where it computes may be another."""
    begun, now = _by_path(read_yaml(run / CONFIG)), _by_path(config.to_plain())
    for name in sorted(begun.keys() | now.keys()):
        if name.partition(".")[0] in DECISIVE and begun.get(name) != now.get(name):
            what = f"{run} was begun with {name}={begun.get(name)}, not {now.get(name)}"
            raise ConfigError(f"{what}: give its own settings, or train anew in another folder")


def _by_path(content: Any, path: str = "") -> dict[str, Any]:
    if isinstance(content, Mapping) and content and path != "graph.":  # which is one value, a name or more
        return {name: value for key, one in content.items() for name, value in _by_path(one, f"{path}{key}.").items()}
    return {path.removesuffix("."): list(content) if isinstance(content, tuple) else content}


def check_task(task: Task) -> None:
    """Raise ConfigError for a task that lacks what each subclass has to say of itself."""
    for name in ("name", "signature", "metric", "epoch_size"):
        if not hasattr(task, name):
            raise ConfigError(f"{type(task).__name__} has no {name!r}, which every task has, as an attribute")
    _ = task.maximise  # or the error that says what is to be said


def called(task: Task, model: nn.Module) -> nn.Module:
    """The module as it is trained, called model(graph, x, ...) with what the task's batches have: one that takes
    (x, edge_index) is given those.

    Errors      ConfigError for one that cannot be called so, whose weights hold no numbers, whose state no checkpoint
                holds, or whose gradients are sparse
    """
    name, signature = type(model).__name__, task.signature
    reads = ["graph", "x", *(["e"] if getattr(signature, "edges", 0) or getattr(signature, "whole", 0) else [])]
    reads += ["u"] if getattr(signature, "whole", 0) else []
    made = on_graphs(model, reads, f" on {task.name}")
    if any(weight.is_meta for weight in model.parameters()):
        raise ConfigError(f"weights of {name} are on meta, where no tensor holds numbers: model.to_empty(device='cpu')")
    for key, value in model.state_dict().items():
        if (why := _not_held(value)) is not None:
            raise ConfigError(f"{name} has {key!r} in its state_dict, {why}")
    for part, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
            raise ConfigError(f"{part!r} of {name} has sparse gradients, but training reads dense ones: sparse=False")
    return made


def _not_held(value: Any) -> str | None:
    """Why a checkpoint does not hold an entry of a state_dict, and what would be right; None where it does."""
    if is_lazy(value):
        return "which is lazy and has no shape yet: call the model once, as training does, before fit"
    if not isinstance(value, Tensor):
        return f"which is {a_kind(value)}, but checkpoints hold tensors: let get_extra_state return one"
    if value.is_nested or value.layout is not torch.strided:
        return "which is nested or sparse, but checkpoints hold dense tensors: make it dense, or no part of the state"
    try:
        save({"": torch.empty(0, dtype=value.dtype)})
    except KeyError:
        kind = str(value.dtype).removeprefix("torch.")
        return f"which is {kind}, but checkpoints hold whole numbers, real ones and complex64: choose one of these"
    return None
