"""A run folder seen from outside: its configuration, its result and its trained model."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from math import isfinite
from pathlib import Path
from typing import Any, Literal, Self

import torch
from torch import Tensor, nn

from edgewise.configuration import Choice, OneOf, read_yaml
from edgewise.data.record import DATA, known, listed, stand_in
from edgewise.data.splits import SPLITS, Split
from edgewise.errors import CheckpointError, ConfigError, DataError, NonFiniteError, a_kind, nearest
from edgewise.files import claimed, flush, make_folder, path_of, write_file
from edgewise.graphs import Graph
from edgewise.graphs.checks import shown
from edgewise.layers import adapt
from edgewise.models import MODELS
from edgewise.models.signature import evaluating
from edgewise.models.size import build
from edgewise.tasks import TASKS
from edgewise.tasks.core.abilities import HasRows, Judges, Keeps, Measured, ReadsOthers, Recalls, TestedElsewhere
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.measures import MEASURES, MOST, Answers, Row, joined, measures
from edgewise.tasks.core.task import Pattern, PatternChoice, Task, figure, larger_is_better
from edgewise.tasks.own.several import SeveralTargets
from edgewise.training.calibration import calibrate, check_threshold, kept, soften, uncalibrate
from edgewise.training.checkpoint import Checkpoint, load_weights, newest
from edgewise.training.distributed import World, device_for
from edgewise.training.integrity import CONFIG, ENSEMBLE, check, check_frozen, check_split, frozen_of
from edgewise.training.journal import METRICS, say
from edgewise.training.own import OwnConfig, given_again
from edgewise.training.pretrained import take_pretrained
from edgewise.training.ranks import like
from edgewise.training.seeds import mix, seed
from edgewise.training.settings import OWN, RunConfig, StartSettings

Moved = str | Mapping[str, str]  # where a task's data lie now, if not where they were


@dataclass(frozen=True)
class Result:
    """What a run reached: the weights were chosen on the validation split; the test split was read once, with them.

    Symbols     valid, test = the values of `metric` at `best_step`, test None for a task without that split; steps =
                steps trained; seconds = time of training with evaluations and checkpoints, over all resumptions;
                step_seconds = median time of a step without those; run = the run folder
    """

    metric: str
    valid: float
    test: float | None
    best_step: int
    steps: int
    seconds: float
    step_seconds: float
    run: Path

    @classmethod
    def from_record(cls, record: dict[str, Any], run: Path) -> Self:
        """The result that a run's last record holds."""
        metric, names = record["metric"], ("best_step", "seconds", "step_seconds")
        figures = {name: record[name] for name in names}
        test = record["test"][metric] if "test" in record else None
        return cls(metric, record["valid"][metric], test, steps=record["step"], run=run, **figures)

    @property
    def value(self) -> float:
        """The figure to report: on the test split, or on the validation split where there is no other."""
        return self.valid if self.test is None else self.test

    @property
    def measure(self) -> str:
        """What `value` is, for instance "test accuracy"."""
        return f"{'validation' if self.test is None else 'test'} {self.metric}"


@dataclass(frozen=True)
class LoadedRun:
    """A trained run: `model(graph, x)` with its best or last weights, ready to evaluate."""

    config: RunConfig
    task: Task
    pattern: Pattern
    model: nn.Module


def refuse_used(run: Path) -> None:
    """A run is never overwritten."""
    if any((run / name).exists() for name in (CONFIG, METRICS, "checkpoints")):
        raise ConfigError(f"{run} already holds a run: `edgewise resume {run}` continues it; or name a new folder")


def create(run: Path, config: RunConfig, task: Task | None = None) -> None:
    """Make the run folder, with what the task keeps there; its configuration is what makes it a run.

    Errors      ConfigError for a folder that cannot be written, or that another process has made a run of meanwhile
    """
    try:
        make_folder(run)
        with claimed(run, wait=True):
            refuse_used(run)
            if task is not None:
                if isinstance(task, Keeps):
                    task.keep(run)
                for name in task.kept:
                    flush(run / name)
            write_file(run / CONFIG, config.to_yaml().encode())
    except OSError as error:
        raise ConfigError(f"cannot write the run folder {run}: {error.strerror}") from error


def load_run(
    run: Path | str,
    weights: Literal["best", "last"] = "best",
    device: str = "auto",
    accept: bool = False,
    folder: Moved | None = None,
    *,
    task: Task | None = None,
    model: nn.Module | None = None,
    graph: Graph | PatternChoice | Pattern | str = None,
    shared: Task | None = None,
) -> LoadedRun:
    """A run's task and model, with the weights of its best evaluation or of its last step; on data of one's own the
    best are calibrated, as the validation data said when training had ended.

    Symbols     folder = where the task's data lie now, if not where they were, as in `read_config`; task, model, graph
                = what `fit` was given, of a run of its; shared = the task of a run on the same data, which is not read
                again and reads answers as it does
    Errors      CheckpointError: a folder without a run, without a checkpoint or with none that is intact; one whose
                configuration was altered or whose history is spoilt, unless one accepts them so
    Edge cases  before the first evaluation there are no best weights: the last ones stand in, which a line says
    """
    if weights not in ("best", "last"):
        raise ConfigError(f"weights={weights!r} are neither 'best' nor 'last'")
    run = path_of(run, "run", CheckpointError)
    own = task is not None and model is not None
    config = read_config(run, folder, own)
    check(run, accept)
    if isinstance(config, OwnConfig) and task is not None and model is not None:
        config, model = given_again(run, config, task, model, graph)
    elif (task, model, graph) == (None, None, None):
        task, model = assemble(config, run, shared)
    else:
        raise ConfigError(f"{run} is a run of the task {config.task.name}: its own task and model are loaded with it")
    checkpoint = newest_of(run)
    check_split(run, task, config, checkpoint.state.get("split"), accept)
    check_frozen(run, config.start, frozen_of(model, config.start), checkpoint.state.get("frozen"), accept)
    chosen = best_of(checkpoint) if weights == "best" else checkpoint.tensors("model")
    chosen = checkpoint.tensors("model") | chosen if own else chosen  # of which the frozen are in the first
    load_weights(model, chosen, checkpoint.path, whole=own)
    if own:
        uncalibrate(model, task)
    if weights == "best" and isinstance(task, SeveralTargets) and (sure := kept(next(reversed(read_metrics(run)), {}))):
        soften(model, task.several, sure) if shared else calibrate(model, task, sure)
    return LoadedRun(config, task, config.graph, model.to(device_for(device)).eval())


def best_of(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The weights of the best evaluation; before the first one the last, which a line says."""
    if checkpoint.state["best"]:
        return checkpoint.tensors("best")
    say(f"{checkpoint.path} was saved before the first evaluation: its weights are the last, not the best")
    return checkpoint.tensors("model")


def newest_of(run: Path) -> Checkpoint:
    """The newest intact checkpoint of a run; a run without one is a `CheckpointError`."""
    checkpoint = newest(run / "checkpoints", say)
    if checkpoint is None:
        if finished(run):
            raise CheckpointError(f"{run} is finished, and its checkpoints are gone: bring them back, or train it anew")
        raise CheckpointError(f"{run} has no checkpoint yet: `edgewise resume {run}` trains on")
    return checkpoint


def read_config(run: Path | str, folder: Moved | None = None, own: bool = False) -> RunConfig:
    """The configuration of a run folder; with another `folder`, or file, of the task's data, where one is given.

    Symbols     folder = a place, or places by the task's options, as {"file": "new.csv"}; own = that of `fit` too,
                which does not describe its task and its model
    Errors      ConfigError for a place that the task does not read: its message has the option that it reads
    """
    run = path_of(run, "run", CheckpointError)
    if (run / ENSEMBLE).is_file():
        what = f"{run} is an ensemble, which evaluate, predict, explain, serve and edgewise.load take"
        raise CheckpointError(f"{what}: name one of the runs that its {ENSEMBLE} lists")
    if not (run / CONFIG).is_file():
        raise CheckpointError(f"{run} is not a run folder: it holds no config.yaml")
    content = read_yaml(run / CONFIG)
    task = content.get("task") if isinstance(content, Mapping) else None
    if isinstance(task, Mapping) and task.get("name") == OWN:
        if own and folder is None:
            return OwnConfig.read(run / CONFIG)
        what = f"{run} was trained by edgewise.fit, with a task and a model of one's own"
        raise ConfigError(f"{what}: give them in Python, edgewise.load({str(run)!r}, task=..., model=...)")
    config = RunConfig.read(run / CONFIG)
    return config if folder is None else replace(config, task=_moved(config.task, folder))


def _moved(task: Choice, place: Moved) -> Choice:
    """A task whose data lie elsewhere; it reads no folder where a `file` stands in for its own data."""
    known = OneOf(TASKS).options(task.name)
    options = {**task.options, **(place if isinstance(place, Mapping) else {})}
    alone = "file" in known and known["file"].default is None and options.get("file")
    reads: str | None = next(
        (name for name in ("file" if alone else "folder", "folder", "file") if name in known), None
    )
    given: Mapping[str, Any] = place if isinstance(place, Mapping) else {reads or "folder": place}
    for name in given:
        if name not in known or (name == "folder" and name != reads):
            right = f"give --task.{reads}" if reads else f"leave out --task.{name}"
            raise ConfigError(f"the task {task.name!r} reads no {name}: {right}")
    return replace(task, options={**task.options, **given})


def read_metrics(run: Path | str) -> list[dict[str, Any]]:
    """All records of a run's `metrics.jsonl`; a last line that a crash cut short is left out."""
    path = path_of(run, "run", CheckpointError) / METRICS
    try:
        return [json.loads(line) for line in path.read_bytes().split(b"\n")[:-1]]
    except FileNotFoundError:
        return []
    except (OSError, ValueError) as error:
        raise DataError(f"cannot read {path}: {error}") from error


def finished(run: Path) -> Result | None:
    """The result of a run that has one."""
    try:
        return Result.from_record(read_metrics(run)[-1], run)
    except (DataError, IndexError, KeyError, TypeError):
        return None


def assemble(config: RunConfig, run: Path | None = None, shared: Task | None = None) -> tuple[Task, nn.Module]:
    """The task, unless it is `shared`, and the model of a configuration, with the initial weights that its seed gives.

    The task reads what it saved in the folder `run`, where that is a run (until its configuration is there, another
    process may be writing it), or else in that of the run that it starts from. Where its data cannot be read, and have
    not been said to lie elsewhere, what the run keeps of them stands in, which a line says. A model that is only
    adapted has the frozen weights of the run that it starts from: no checkpoint of its own does. Weights that this run
    lacks, such as the output layer of another task, are trained whole.
    """
    task = shared or _prepared(config, run)
    settings, model = MODELS[config.model.name]
    seed(mix(config.train.seed, 0), torch.device("cpu"))
    chosen = settings(**config.model.options)
    built = build(lambda: model(chosen, task.signature), f"the model {config.model.name!r}")
    if config.start.rank:
        taken = take_over(built, config.start)
        adapt(built, config.start.rank, config.start.alpha or None, config.start.names)
        for name, parameter in built.named_parameters():
            if name.replace(".parametrizations.weight.original", ".weight") not in taken:
                parameter.requires_grad_(True)
    return task, built


def _prepared(config: RunConfig, run: Path | None) -> Task:
    kept = run if run and (run / CONFIG).is_file() else None
    task = _task(config.task, kept)
    for change in (task.changes or ()) if run else ():
        say(f"{run}: {change}")
    for folder in (config.start.run, config.start.hub, kept):  # weights fit the tokens that they were trained with
        if folder and isinstance(task, Recalls):
            task.recall(Path(folder))
    measure_by(task, config.evaluation.metric)
    if config.train.weights == "balanced":
        balance(task)
    check_threshold(task, config.evaluation.threshold)
    return task


def _task(chosen: Choice, kept: Path | None) -> Task:
    """The task, by what a run has kept of it, if there is one."""
    make, options, known = TASKS[chosen.name], chosen.options, OneOf(TASKS).options(chosen.name)
    recorded = bool(kept and (kept / DATA).is_file() and "like" in known)
    moved = kept is not None and recorded and RunConfig.read(kept / CONFIG).task != chosen
    for name in ("folder", "file") if moved else ():
        if options.get(name) and not Path(str(options[name])).expanduser().exists():
            raise DataError(f"{options[name]}: no such file or folder: --task.{name} says where the data lie now")
    if recorded:
        options = options | {"like": str(kept)}  # the split and the scales that it was trained with
    try:
        task = make(**options)
    except DataError as error:
        place = stand_in(kept) if recorded and kept else None
        if place is None or moved:
            raise
        others = {name: "" for name in ("source", "target", "columns") if "source" in known}
        task = make(**options | others | {"folder" if "folder" in known else "file": str(place)})
        say(f"{kept}: {place} stands in for its data: {error.args[0]}")
    if kept and not recorded and task.changes == ():
        task.changes = None  # it is from before such a task kept its data: its checkpoints know them
    return task


def placed(config: RunConfig) -> RunConfig:
    """The configuration with the places of one's own data in full, so that it can be read from any working folder."""
    known, options = OneOf(TASKS).options(config.task.name), config.task.options
    tables = ("source", "target") if "source" in known else ("users", "items")
    names = ("folder", "file", *tables) if "like" in known else ("folder",)
    given = {name: options.get(name, known[name].default) for name in names if name in known}
    full = {name: str(Path(place).expanduser().absolute()) for name, place in given.items() if place}
    return replace(config, task=replace(config.task, options={**options, **full})) if full else config


def measure_by(task: Task, metric: str) -> None:
    """Let a measure choose a task's weights and be reported; empty: what the task says.

    Errors      ConfigError for a name of no measure
    """
    if metric:
        name, space, target = metric.strip().partition(" ")
        metric = name.lower().replace("-", "_") + space + target
        task.by_measure = metric != task.metric
        try:
            task.metric, task.maximise = metric, larger_is_better(name, type(task).__name__)
        except ConfigError as error:
            raise ConfigError(f"no measure is called {metric!r}{nearest(name, MEASURES) or f': {error}'}") from error


def on_data(loaded: LoadedRun, place: Path) -> LoadedRun:
    """A run whose test split is all that has a label in other data, which lie at a place.

    Errors      DataError for data without a label; ConfigError for a task that reads no others
    """
    if isinstance(loaded.task, ReadsOthers):
        task: Any = loaded.task.elsewhere(place, labelled=True)
    elif isinstance(loaded.task, TestedElsewhere):
        task = loaded.task.tested_on(place)
    else:
        raise ConfigError(f"{loaded.task.name} is measured on its own parts alone: leave out --data")
    for line in task.changes or ():
        say(line)
    measure_by(task, loaded.config.evaluation.metric)
    if isinstance(loaded.task, TestedElsewhere):
        return replace(loaded, task=task)
    given, targets = task.own.given, task.own.fitted.targets
    for target, labels in zip(targets, given.targets, strict=True):
        if strange := target.strangers(labels):
            say(f"{target.name}: labels other than the run's count as unlabelled: {listed(strange)}")
    rows = known(targets, given).nonzero()[:, 0]
    if not len(rows):
        names = ", ".join(target.name for target in targets)
        raise DataError(f"{place}: no {given.unit[:-1]} has a label of the run's in {names}: nothing can be measured")
    task.splits, task.has_test = dict.fromkeys(SPLITS, rows[:0]) | {"test": rows}, True
    return replace(loaded, task=task)


def check_metric(task: Task, outputs: Any, batch: Batch) -> None:
    """Refuse a metric that a batch's outputs have no figure for, as a ConfigError that lists those that there are."""
    if task.by_measure and not isinstance(task, Judges):
        sums = dict(_sums(task, outputs, batch))
        count = float(sums.pop("count")) or 1.0
        own = task.finish({name: float(value) / count for name, value in sums.items()})
        answers = task.answers(outputs, batch) if isinstance(task, Measured) else []
        figure(own | dict.fromkeys(measures(answers, intervals=False), 0.0), task.metric, task)


def balance(task: Task) -> None:
    """Let each class count alike in the loss of a task on data of one's own: see `Target.balanced`.

    Errors      ConfigError for a task without classes of one's own
    """
    own = task.own if isinstance(task, HasRows) else None
    if own is None or all(target.kind == "number" for target in own.fitted.targets):
        raise ConfigError(f"train.weights=balanced goes with classes of your own data, and {task.name} has none")
    train: Any = own.splits.get("train", [])
    pairs = zip(own.fitted.targets, own.given.targets, strict=False)  # data to be predicted have no labels
    weights = tuple(target.balanced(target.values(labels)[train]) for target, labels in pairs)
    if weights and isinstance(task, SeveralTargets):
        task.several = replace(task.several, weights=weights)


def begin(model: nn.Module, config: RunConfig, shown: bool = False) -> None:
    """Give an assembled model the weights that training starts from, where its configuration names some; which of its
    own these lack is said if it is `shown`.
    """
    start, names = config.start, [name for name, _ in model.named_parameters()]
    if (start.run or start.hub) and not start.rank:
        taken = take_over(model, start)
        drawn = [name for name in names if name not in taken]
        if drawn and shown:
            say(f"{start.run or start.hub} lacks {len(drawn)} of the model's {len(names)} weights: {listed(drawn)}")


def take_over(model: nn.Module, start: StartSettings) -> set[str]:
    """Give a model the best weights of a run, or another library's, wherever a name and its shape fit, and name them;
    the others stay.

    Errors      CheckpointError for a folder without a run or an intact checkpoint, for a run that trained low-rank
                additions only, or where nothing fits
    """
    if start.hub:
        return take_pretrained(model, start)
    run = Path(start.run)
    if read_config(run).start.rank:
        raise CheckpointError(f"{run} holds low-rank additions only: start from the run that they are added to")
    checkpoint = newest_of(run)
    own, saved = model.state_dict(), best_of(checkpoint)
    fits = (name for name, value in saved.items() if name in own and own[name].shape == value.shape)
    fitting = {name: like(saved[name], own[name]) for name in fits}
    if not fitting:
        raise CheckpointError(f"no weight of {run} fits this model: its names or shapes all differ")
    model.load_state_dict(own | fitting)
    return set(fitting)


def evaluate(
    model: nn.Module,
    task: Task,
    split: Split,
    size: int,
    pattern: Pattern = None,
    on: torch.device | str | World = "cpu",
) -> dict[str, float]:
    """The task's scores over a whole split, as `examined` has them."""
    return examined(model, task, split, size, pattern, on)[0]


def examined(
    model: nn.Module,
    task: Task,
    split: Split,
    size: int,
    pattern: Pattern = None,
    on: torch.device | str | World = "cpu",
    whole: bool = False,
) -> tuple[dict[str, float], list[Answers]]:
    """The task's scores over a whole split, `size` examples at a time, in the weights' own precision; and what the
    model said, if `whole` or if the metric is a measure of it.

    Of several ranks, which all call it, each reads its share, and all have the scores. Afterwards the
    mode of each part of the model and PyTorch's random numbers are what they were before, an error or not.

    Errors      ConfigError for a task of one's own whose scores are no sums with a count or at last no numbers by
                name, or without its metric; NonFiniteError for a score that is no finite number
    """
    refuse_few(task, f"the {split} part")
    world = on if isinstance(on, World) else World(torch.device(on))
    device = world.device
    sums: dict[str, Any] = {}
    said: list[list[Answers]] = []
    room = MOST if isinstance(task, Measured) and (whole or task.by_measure) else 0
    with torch.no_grad(), torch.random.fork_rng([device] if device.type == "cuda" else []), evaluating(model):
        seed(0, device)
        for batch, counts in world.own(task.batches(split, size, pattern)):
            here = batch.to(device)
            with world.reading(here):
                outputs = model(*here.inputs)
            for name, value in _sums(task, outputs, here).items() if counts else ():
                sums[name] = sums.get(name, 0) + value
            if room > 0 and counts and isinstance(task, Measured):
                said.append(task.answers(outputs, here))
                room -= sum(one.cells for one in said[-1])
        sums = world.total(sums)
        answers = joined([part for some in world.gathered(said if room > 0 else []) for part in some])
        judge = partial(task.judge, model, split, pattern, device) if isinstance(task, Judges) else dict
        judged = world.judged(model, judge)
    count = float(sums.pop("count", 0))
    if count == 0:
        raise DataError(f"the task {task.name!r} has no examples in its {split} split")
    means = {name: float(value) / count for name, value in sums.items()}
    scores = _named(task, "finish", task.finish(means)) | _named(task, "judge", judged)
    if task.by_measure:
        found = {name: row["value"] for name, row in measures(answers, intervals=False).items()}
        if found.get(task.metric, 0.0) is None:
            raise DataError(
                f"{task.metric} of {task.name}'s {split} split is undefined: it needs examples of both kinds"
            )
        scores |= {name: value for name, value in found.items() if value is not None and name not in scores}
    figure(scores, task.metric, task)
    for name, value in scores.items():
        if not isfinite(value):
            raise NonFiniteError(f"the {split} {name} is {value}")
    return scores, answers


def refuse_few(task: Task, what: str) -> None:
    """Refuse what takes all data where a few examples stand in for them."""
    if task.few:
        right = "give --task.folder or --task.file, where they lie now"
        raise DataError(f"{task.name}: {what} is gone, but for the few examples that the run keeps: {right}")


def pooled(runs: Sequence[Path | str]) -> tuple[int, dict[str, Row], list[dict[str, Row]]]:
    """What the best weights of several runs, one for each fold, say of their test parts: how many examples these are,
    every measure of all of them together, as of one model's answers, and those of each run alone."""
    said, count = list[list[Answers]](), 0
    for run in runs:
        one = load_run(run)
        size, device = one.config.evaluation_batch, next(one.model.parameters()).device
        said.append(examined(one.model, one.task, "test", size, one.pattern, device, whole=True)[1])
        count += len(one.task.splits.get("test", ()))
    alone = [measures(answers, intervals=False) for answers in said]
    return count, measures(joined(said)) if all(said) else {}, alone


def _named(task: Task, method: str, scores: Any) -> dict[str, float]:
    """Scores that a task of one's own may have returned."""
    by = f"{type(task).__name__}.{method} must return scores by name, each a number"
    if not isinstance(scores, dict):
        raise ConfigError(f"{by}, not {a_kind(scores)}")
    for name, value in scores.items():
        if not isinstance(value, int | float):
            raise ConfigError(f"{by}: {name!r} is {a_kind(value)}")
    return scores


def _sums(task: Task, outputs: Any, batch: Batch) -> Mapping[str, Any]:
    """What a task's `score` returned, which may be one's own."""
    sums = task.score(outputs, batch)
    by = f"{type(task).__name__}.score must return sums over a batch by name, and their number as 'count'"
    if not isinstance(sums, Mapping):
        raise ConfigError(f"{by}, not {a_kind(sums)}")
    if "count" not in sums:
        raise ConfigError(f"{by}, which is not among {', '.join(map(repr, sums)) or 'none'}")
    for name, value in sums.items():
        if not (isinstance(value, int | float) or (isinstance(value, Tensor) and value.numel() == 1)):
            raise ConfigError(f"{by}: {name!r} is no single number, but {shown(value)}")
    return sums
