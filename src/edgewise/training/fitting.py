"""`fit`: the loop of training for a task and a model of one's own, which no table has a name for."""

import inspect
from collections.abc import Mapping
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn.parameter import is_lazy

from edgewise.configuration import Choice, OneOf, build, known_options, plain, read_yaml
from edgewise.errors import ConfigError, EdgewiseError, a_kind
from edgewise.files import path_of
from edgewise.graphs import Graph
from edgewise.tasks.core.task import Pattern, PatternChoice, Task
from edgewise.training.checkpoint import load_weights
from edgewise.training.distributed import join
from edgewise.training.integrity import ANEW, CONFIG, check, check_split, hash_of
from edgewise.training.loop import Trainer
from edgewise.training.optimizers.descent import OPTIMIZERS
from edgewise.training.runs import Result, create, finished, newest_of, refuse_used
from edgewise.training.settings import OWN, RunConfig, TrainSettings

SECTIONS = ("optimizer", "schedule", "train", "evaluation", "machine")
DECISIVE = ("task", "model", "graph", "optimizer", "schedule", "train", "evaluation")


@dataclass(frozen=True)
class OwnConfig(RunConfig):
    """What decides such a run, but for its task, its model and its graph: those are named, and not described."""

    task: Choice
    model: Choice
    graph: Any = None

    def to_plain(self) -> dict[str, Any]:
        return super().to_plain() | {"graph": plain(_named(self.graph))}


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


def fit(
    task: Task,
    model: nn.Module,
    run: Path | str | None = None,
    *,
    graph: Graph | PatternChoice | Pattern | str = None,
    resume: bool = False,
    progress: bool = False,
    **settings: Any,
) -> Result:
    """Train a model on a task, both of one's own; afterwards it has the weights of its best evaluation, in eval mode.

    The loop is that of `edgewise train`: the validation split chooses the weights and the test split is read once, with
    them; it stops by name at the first number that is not finite.

    Symbols     task = any `Task`, such as `NodeClassification("mine", Nodes(...))`, or a subclass of one's own; model =
                any module that is called model(graph, x), or model(graph, x, e) with features of edges: whatever
                `Batch.inputs` has; run = a folder for checkpoints and metrics.jsonl, None: nothing is kept; graph = who
                attends to whom in place of the data's own graph: a `Graph`, a pattern or its name; resume = go on with
                what the folder holds, to the same bits; settings = a recipe's sections `optimizer`, `schedule`,
                `train`, `evaluation`, `machine`, or options of `train` and of the optimizer by themselves
    Errors      ConfigError for a setting that there is none of, for a folder that holds a run (without `resume`) or one
                of other settings, another graph or other classes of task and model (with it), for what is no task or no
                module, a model that is called in another way or whose outputs have no gradient, that is lazy, or whose
                state_dict no checkpoint holds (sparse, complex128 or no tensors); CheckpointError for weights of
                another shape or dtype, or other data, than the run was begun with; ShapeError for outputs that the task
                cannot read; NonFiniteError as `train`
    Edge cases  the weights that training starts from are the model's own; one in eval mode is trained in train mode; of
                one in train mode the parts that are frozen in eval mode stay so; checkpoints hold the model's whole
                state_dict, frozen weights too, and no more: tensors in plain attributes are the caller's to restore

    Example
        >>> import torch
        >>> from edgewise.graphs import window
        >>> from edgewise.layers import GCN
        >>> from edgewise.tasks import NodeClassification, Nodes
        >>> labels, part = torch.arange(30) // 10, torch.arange(30) % 5
        >>> fifths = [(part == number).nonzero()[:, 0] for number in range(5)]
        >>> splits = {"train": torch.cat(fifths[:3]), "valid": fifths[3], "test": fifths[4]}
        >>> nodes = Nodes(window(30, 1), torch.eye(30), labels, ("a", "b", "c"), splits)
        >>> task = NodeClassification("three parts", nodes)
        >>> result = fit(task, GCN(30, 3), steps=60, learning_rate=0.1)
        >>> result.measure, round(result.value, 2) > 0.5
        ('test accuracy', True)
    """
    if not isinstance(task, Task) or not isinstance(model, nn.Module):
        made = f"{type(task).__name__} and {type(model).__name__}"
        raise ConfigError(f"fit takes a task and a module, fit(task, model), not {made}")
    check_task(task)
    check_model(model)
    config = configured(task, model, graph, settings)
    if isinstance(run, str) and not run.strip():
        raise ConfigError("run is the name of a folder, and empty: leave it out to keep nothing")
    if run is not None:
        return _fit(task, model, config, path_of(run, "run", ConfigError), resume, progress)
    if resume:
        raise ConfigError("resume=True goes on with a run: give its folder, fit(task, model, run, resume=True)")
    with TemporaryDirectory(prefix="edgewise-fit-") as place:
        world = join(config.machine.device, config.train.partition, config.train.shard)
        return _fit(task, model, config, Path(world.share(place)) / "run", False, progress)


def check_task(task: Task) -> None:
    """Raise ConfigError for a task that lacks what each subclass has to say of itself."""
    for name in ("name", "signature", "metric", "epoch_size"):
        if not hasattr(task, name):
            raise ConfigError(f"{type(task).__name__} has no {name!r}, which every task has, as an attribute")


def check_model(model: nn.Module) -> None:
    """Raise ConfigError for a module that cannot be called model(graph, x), whose weights hold no numbers, whose state
    no checkpoint holds, or whose gradients are sparse."""
    name = type(model).__name__
    try:
        inspect.signature(model.forward).bind(None, None)
    except TypeError as error:
        takes = str(inspect.signature(model.forward))
        raise ConfigError(f"fit calls model(graph, x, ...), and {name}.forward takes {takes}: {error}") from None
    if any(weight.is_meta for weight in model.parameters()):
        raise ConfigError(f"weights of {name} are on meta, where no tensor holds numbers: model.to_empty(device='cpu')")
    for key, value in model.state_dict().items():
        if (why := _not_held(value)) is not None:
            raise ConfigError(f"{name} has {key!r} in its state_dict, {why}")
    for part, module in model.named_modules():
        if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.sparse:
            raise ConfigError(f"{part!r} of {name} has sparse gradients, but training reads dense ones: sparse=False")


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


def _fit(task: Task, model: nn.Module, config: OwnConfig, run: Path, resume: bool, progress: bool) -> Result:
    world = join(config.machine.device, config.train.partition, config.train.shard)
    if resume:
        world.once(lambda: check(run, otherwise=ANEW))
        world.once(lambda: _same_settings(run, config))
        if result := finished(run):
            checkpoint = newest_of(run)
            check_split(run, task, config, checkpoint.state.get("split"))
            weights = checkpoint.tensors("model") | checkpoint.tensors("best")  # of which the frozen are in the first
            load_weights(model, weights, checkpoint.path, whole=True)
            model.eval()
            return result
    else:
        world.once(lambda: refuse_used(run))
    with world.together(run):
        trainer = Trainer(config, run, world, made=(task, model))
        if not resume:
            world.once(lambda: create(run, config, task))
        try:
            result = trainer.fit(progress)
        except RuntimeError as error:
            if not isinstance(error, EdgewiseError):  # PyTorch's, of other shapes or dtypes than the module takes
                called = f"fit called {type(model).__name__} as {task.name} has it"
                error.add_note(f"{called}: {task.signature}, and numbers in float32")
            raise
    model.eval()
    return result


def _same_settings(run: Path, config: OwnConfig) -> None:
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


def configured(
    task: Task, model: nn.Module, graph: Graph | PatternChoice | Pattern | str, settings: Mapping[str, Any]
) -> OwnConfig:
    """The configuration of a run by its settings: whole sections, or options of `train` and of the optimizer."""
    sections = {name: settings[name] for name in SECTIONS if name in settings}
    others = {name: value for name, value in settings.items() if name not in sections}
    optimizer = _plain(sections.get("optimizer", "adamw"), "optimizer")
    optimizer = {"name": optimizer} if isinstance(optimizer, str) else optimizer
    of_train = {field.name for field in fields(TrainSettings)}
    name = str(optimizer.get("name", "adamw"))
    of_optimizer = OneOf(OPTIMIZERS).options(name) if name in OPTIMIZERS else {}
    known_options("fit", others, [*SECTIONS, *of_train, *of_optimizer])
    train = _plain(sections.get("train", {}), "train") | {n: _plain(v, n) for n, v in others.items() if n in of_train}
    optimizer = optimizer | {name: value for name, value in others.items() if name not in of_train}
    content = {name: _plain(value, name) for name, value in sections.items()} | {"optimizer": optimizer, "train": train}
    names = {"task": Choice(OWN, {"class": type(task).__name__}), "model": Choice(OWN, {"class": type(model).__name__})}
    return build(OwnConfig, {**content, **names, "graph": pattern_of(graph)}, "")


def pattern_of(graph: Graph | PatternChoice | Pattern | str) -> Pattern:
    """A pattern that stands for what is given: a graph, a pattern, its name, or None for the data's own graph."""
    if isinstance(graph, str):
        return PatternChoice(graph)
    if isinstance(graph, Graph):
        return Given(graph)
    if graph is not None and not callable(graph):
        raise ConfigError(f"graph must be a Graph, a pattern or its name, not {type(graph).__name__}")
    return graph


def _plain(value: Any, name: str) -> Any:
    """A section as a recipe writes it."""
    made = plain(value) if is_dataclass(value) else value
    if name in SECTIONS and not isinstance(made, Mapping | str):
        raise ConfigError(f"{name} must be a section of a recipe, such as {name}={{...}}, not {value!r}")
    return made
