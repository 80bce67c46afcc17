"""`fit`: the loop of training for a task and a model of one's own, which no table has a name for."""

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from torch import nn

from edgewise.configuration import OneOf, build, known_options, plain
from edgewise.errors import ConfigError, EdgewiseError
from edgewise.files import path_of
from edgewise.graphs import Graph
from edgewise.tasks.core.task import Pattern, PatternChoice, Task
from edgewise.training.calibration import check_threshold, uncalibrate
from edgewise.training.checkpoint import load_weights
from edgewise.training.distributed import join
from edgewise.training.integrity import ANEW, check, check_split
from edgewise.training.loop import Trainer
from edgewise.training.optimizers.descent import OPTIMIZERS
from edgewise.training.own import OwnConfig, called, check_task, named, pattern_of, same_settings
from edgewise.training.runs import Result, create, finished, newest_of, refuse_used
from edgewise.training.settings import TrainSettings

SECTIONS = ("optimizer", "schedule", "train", "evaluation", "machine")


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

    Symbols     task = any `Task`, such as `NodeClassification("mine", Nodes(...))`, or a subclass of one's own, whose
                `maximise` is read where its metric's name does not say which is better; model = any module that is
                called model(graph, x), or model(graph, x, e) with features of edges: whatever `Batch.inputs` has; or
                one of PyTorch Geometric's form, whose forward takes (x, edge_index), and edge_attr, edge_weight or
                batch where it reads them; run = a folder for checkpoints and metrics.jsonl, None: nothing is kept;
                graph = who attends to whom in place of the data's own graph: a `Graph`, a pattern or its name; resume =
                go on with what the folder holds, to the same bits; settings = a recipe's sections `optimizer`,
                `schedule`, `train`, `evaluation`, `machine`, or options of `train` and of the optimizer by themselves
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
    trained = called(task, model)
    config = configured(task, model, graph, settings)
    check_threshold(task, config.evaluation.threshold)
    uncalibrate(trained, task)
    if isinstance(run, str) and not run.strip():
        raise ConfigError("run is the name of a folder, and empty: leave it out to keep nothing")
    if run is not None:
        return _fit(task, trained, config, path_of(run, "run", ConfigError), resume, progress)
    if resume:
        raise ConfigError("resume=True goes on with a run: give its folder, fit(task, model, run, resume=True)")
    with TemporaryDirectory(prefix="edgewise-fit-") as place:
        world = join(config.machine.device, config.train.partition, config.train.shard)
        return _fit(task, trained, config, Path(world.share(place)) / "run", False, progress)


def _fit(task: Task, model: nn.Module, config: OwnConfig, run: Path, resume: bool, progress: bool) -> Result:
    world = join(config.machine.device, config.train.partition, config.train.shard)
    if resume:
        world.once(lambda: check(run, otherwise=ANEW))
        world.once(lambda: same_settings(run, config))
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
                called = f"fit called {config.model.options['class']} as {task.name} has it"
                error.add_note(f"{called}: {task.signature}, and numbers in float32")
            raise
    model.eval()
    return result


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
    return build(OwnConfig, {**content, **named(task, model), "graph": pattern_of(graph)}, "")


def _plain(value: Any, name: str) -> Any:
    """A section as a recipe writes it."""
    made = plain(value) if is_dataclass(value) else value
    if name in SECTIONS and not isinstance(made, Mapping | str):
        raise ConfigError(f"{name} must be a section of a recipe, such as {name}={{...}}, not {value!r}")
    return made
