"""What a run is made of, as plain dataclasses: everything that a recipe or the command line can choose."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import yaml
from torch import nn

from edgewise.configuration import (
    Bounds,
    Choice,
    Count,
    Natural,
    NonNegative,
    OneOf,
    Settings,
    Share,
    build,
    plain,
    read_yaml,
)
from edgewise.errors import CheckpointError, ConfigError
from edgewise.models import MODELS
from edgewise.tasks import TASKS
from edgewise.tasks.core.task import GRAPHS, LAYOUT, PatternChoice, Task
from edgewise.training.optimizers.descent import OPTIMIZERS, ConstantRate
from edgewise.training.optimizers.schedules import SCHEDULES
from edgewise.training.ranks import blocks_of

RUN_LAYOUT = 5  # of run folders: raised by every change that an older version could not read


@dataclass(frozen=True)
class AverageSettings(Settings):
    """Stochastic weight averaging: the mean of the weights is evaluated and saved instead of the last ones.

    Args:
        start: Step from which on weights enter the mean. 0: there is no mean.
        every: Steps between two weights that enter it.
        decay: How much of a moving mean stays at each step, near 1: later weights count more. 0: all count alike.
    """

    section = "train.average"
    start: Natural = 0
    every: Count = 1
    decay: Share = 0.0


@dataclass(frozen=True)
class CheckpointSettings(Settings):
    """When a run is saved.

    Args:
        every: Steps between two checkpoints; the last step always has one.
        keep: Checkpoints to keep, the newest ones.
    """

    section = "train.checkpoints"
    every: Count = 1000
    keep: Count = 2


@dataclass(frozen=True)
class LogSettings(Settings):
    """What is written down while a run trains.

    Args:
        every: Steps between two records of the training loss.
        tensorboard: Also write the curves for TensorBoard.
    """

    section = "train.log"
    every: Count = 10
    tensorboard: bool = False


Sharing = Literal["none", "blocks", "metis"]


@dataclass(frozen=True)
class TrainSettings(Settings):
    """How long and on what to train, and what to write down.

    Args:
        steps: Updates of the weights, at most. 0: as many as the number of examples that train asks for.
        batch: Examples of one step, over all ranks and micro-batches.
        accumulate: Micro-batches that a rank cuts its part of a step into, to need less memory: the same gradient.
        clip: Largest total norm of the gradient; a larger one is scaled down to it. 0: never.
        seed: Where all random numbers of the run come from.
        average: The mean of the weights, if there is one.
        checkpoints: When the run is saved.
        log: What is written down.
        partition: How several ranks share each graph, of which one has its own nodes alone, not a batch: "none"; by
            "blocks" of nodes in a row; or by "metis", which leaves few edges between ranks and needs pymetis.
        shard: Whether several ranks share the weights, their gradients and the optimiser's memory (FSDP2).
        epochs: Passes over the examples that train, in place of `steps`; the schedule spans them. 0: steps count.
        time: Seconds after which training ends; the schedule is at its end then. 0: whatever it takes.
        weights: How much an example counts in the loss, by its class, of data of one's own: "equal", or "balanced", so
            that each class counts alike, however rare it is.
    """

    section = "train"
    steps: Natural = 1000
    batch: Count = 32
    accumulate: Count = 1
    clip: NonNegative = 0.0
    seed: Natural = 0
    average: AverageSettings = field(default_factory=AverageSettings)
    checkpoints: CheckpointSettings = field(default_factory=CheckpointSettings)
    log: LogSettings = field(default_factory=LogSettings)
    partition: Sharing = "none"
    shard: bool = False
    epochs: NonNegative = 0.0
    time: NonNegative = 0.0
    weights: Literal["equal", "balanced"] = "equal"


@dataclass(frozen=True)
class EvaluationSettings(Settings):
    """How often the validation split is read, and what its scores decide.

    Args:
        every: Steps between two evaluations on the validation split. 0: a hundredth of all, or a quarter of an epoch.
        batch: Examples of an evaluation's batch. 0: as many as `train.batch`.
        patience: Evaluations without an improvement after which training stops, or goes on from the best weights with a
            lower rate where the schedule is "plateau". 0: train all steps.
        metric: The measure that chooses the weights, ends patience and is reported, such as roc_auc or mae; of several
            targets "roc_auc" is the mean, "roc_auc toxic" that of one. Empty: the task's own.
        choose_by: Which validation score the best weights have: the task's metric, or the loss, which is less often the
            best by luck.
        simple: Seconds after which no further simple method is tried that stands beside the result where the data are
            one's own. 0: none is.
        interval: Which share of the values the intervals of quantities of one's own data are to hold, by the errors on
            the validation data. 0: there are none.
        threshold: The measure by which the validation data choose above which probability the second of two classes is
            answered, of data of one's own. Empty: above one half.
    """

    section = "evaluation"
    every: Natural = 100
    batch: Natural = 0
    patience: Natural = 0
    metric: str = ""
    choose_by: Literal["metric", "loss"] = "metric"
    simple: NonNegative = 30.0
    interval: Share = 0.9
    threshold: Literal["", "accuracy", "balanced_accuracy", "f1", "mcc"] = ""


@dataclass(frozen=True)
class MachineSettings(Settings):
    """Where and with which arithmetic to compute.

    Args:
        device: auto, cpu, cuda, cuda:N or mps.
        threads: Threads of the CPU. 0: as many of those that PyTorch would use as the work of a step is worth.
        precision: float32, or bfloat16 or float16 for the products of the forward pass (weights stay as they are).
        deterministic: Use PyTorch's deterministic algorithms, so that a run repeats and resumes to the same bits.
        compile: Train the model under torch.compile: slow to start, then faster, above all on a GPU.
        recompute: Store the inputs of each block alone and compute the rest once more backward: less memory.
        capture: On a GPU, ask for a whole step at once, by a CUDA graph, where all steps are alike: less waiting.
    """

    section = "machine"
    device: str = "auto"
    threads: Annotated[int, Bounds(at_least=0, at_most=1024)] = 0  # of tens of thousands the process dies
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    deterministic: bool = True
    compile: bool = False
    recompute: bool = False
    capture: bool = True

    def __post_init__(self) -> None:
        super().__post_init__()
        if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?|mps", self.device):
            raise ConfigError(f"machine.device must be auto, cpu, cuda, cuda:N or mps, not {self.device!r}")


@dataclass(frozen=True)
class StartSettings(Settings):
    """Which weights training starts from, and how much of them it may change.

    Args:
        run: A run folder whose best weights are taken over wherever name and shape fit; "": none, all are drawn.
        hub: A folder in the layout of Hugging Face (config.json, safetensors, tokenizer.json) to fine-tune: its model,
            by its tokens, from its weights wherever the task wants no others.
        extend: Where positions beyond those that its model was trained on come from: "interpolated" among them or
            "repeated"; "": there are to be none.
        rank: Freeze them, and train low-rank additions of this rank to the linear maps instead (LoRA). 0: train all.
        alpha: Scale of the low-rank additions. 0: the rank, so that they are added as they are.
        names: Which linear maps get them, a pattern such as "blocks.*.attention.*".
    """

    section = "start"
    run: str = ""
    hub: str = ""
    extend: Literal["", "interpolated", "repeated"] = ""
    rank: Natural = 0
    alpha: NonNegative = 0.0
    names: str = "*"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.rank and not (self.run or self.hub):
            raise ConfigError("start.rank adds to weights that are there already: name a run with start.run")
        if self.run and self.hub:
            raise ConfigError("start.run and start.hub both name weights to start from: leave one out")
        if self.extend and not self.hub:
            raise ConfigError("start.extend makes more positions of a folder's: name it with start.hub")


OWN = "of one's own"  # the name of a task or model that was given to `fit`


@dataclass(frozen=True)
class RunConfig(Settings):
    """Everything that decides a run: the same configuration gives the same weights.

    Args:
        task: What to learn.
        model: What learns it.
        graph: Who listens to whom; "given" is the data's own graph.
        optimizer: How the weights follow their gradients.
        schedule: How the learning rate changes over the steps.
        train: How long and on what to train.
        evaluation: When to evaluate, and by what to choose.
        machine: Where to compute.
        start: Which weights training starts from.
        recipe: The recipe's name, for reports.

    Example
        >>> config = RunConfig(Choice("karate"), Choice("gnn", {"layer": {"name": "gat", "heads": 2}}), recipe="first")
        >>> RunConfig.from_plain(config.to_plain()) == config
        True
        >>> RunConfig.from_plain({"task": "karate", "model": "gnn", "trian": {}})
        Traceback (most recent call last):
            ...
        edgewise.errors.ConfigError: the configuration takes no option 'trian'; did you mean 'train'? ...
    """

    section = ""
    task: Annotated[Choice, OneOf(TASKS)]
    model: Annotated[Choice, OneOf(MODELS)]
    graph: Annotated[PatternChoice, OneOf(GRAPHS, without=LAYOUT)] = field(default_factory=PatternChoice)
    optimizer: Annotated[Choice, OneOf(OPTIMIZERS)] = field(default_factory=lambda: Choice("adamw"))
    schedule: Annotated[Choice, OneOf(SCHEDULES)] = field(default_factory=lambda: Choice("constant"))
    train: TrainSettings = field(default_factory=TrainSettings)
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    machine: MachineSettings = field(default_factory=MachineSettings)
    start: StartSettings = field(default_factory=StartSettings)
    recipe: str = ""

    def idle(self) -> Iterator[str]:
        """The options that were given and have no effect beside the others, each in a sentence.

        >>> train = TrainSettings(steps=10, average=AverageSettings(start=20))
        >>> list(RunConfig(Choice("karate"), Choice("gnn"), train=train).idle())
        ['train.average.start=20 has no effect: training ends after step 10']
        """
        average, start, evaluation, steps = self.train.average, self.start, self.evaluation, self.train.steps or inf
        options = self.optimizer.options
        if average.start > steps:
            yield f"train.average.start={average.start} has no effect: training ends after step {steps}"
        phases = {"schedule.warmup": self.schedule.options.get("warmup", 0)}
        if issubclass(descent := OPTIMIZERS[self.optimizer.name], ConstantRate):
            phases["optimizer.burn_in"] = options.get("burn_in", descent.burn_in)
        yield from (
            f"{name}={phase} is not over when training ends: give it fewer steps than train.steps={steps}"
            for name, phase in phases.items()
            if phase >= steps
        )
        earliest = (1 + evaluation.patience) * evaluation.every
        if evaluation.patience and earliest >= steps and self.schedule.name != "plateau":
            soonest = f"training could stop after step {earliest} at the earliest, and ends after step {steps}"
            yield f"evaluation.patience={evaluation.patience} has no effect: {soonest}"
        needed: list[tuple[str, Any, str]] = [
            ("train.average.every", average.every != 1 and not average.start, "train.average.start"),
            ("train.average.decay", average.decay and not average.start, "train.average.start"),
            ("start.alpha", start.alpha and not start.rank, "start.rank"),
            ("start.names", start.names != "*" and not start.rank, "start.rank"),
        ]
        for name in ("decay_matrices_only", "decay_prefix"):
            idle = options.get(name) and not options.get("weight_decay")
            needed.append((f"optimizer.{name}", idle, "optimizer.weight_decay"))
        yield from (f"{name} has no effect without {other}" for name, idle, other in needed if idle)

    @property
    def evaluation_batch(self) -> int:
        """Examples of an evaluation's batch."""
        return self.evaluation.batch or self.train.batch

    def to_plain(self) -> dict[str, Any]:
        """The configuration as a recipe writes it, every default written out."""
        return {"recipe": self.recipe} | {name: part for name, part in plain(self).items() if name != "recipe"}

    @classmethod
    def from_plain(cls, content: Mapping[str, object]) -> Self:
        """Read plain data; an unknown, missing or mistyped option is a `ConfigError` that names it."""
        return build(cls, content, "")

    def to_yaml(self) -> str:
        """What a run's `config.yaml` holds: the layout of its folder, and every option."""
        return yaml.safe_dump({"layout": RUN_LAYOUT, **self.to_plain()}, sort_keys=False, allow_unicode=True)

    @classmethod
    def read(cls, path: Path) -> Self:
        """Read a run's `config.yaml`.

        Errors      CheckpointError for a run folder of another layout, ConfigError for anything else
        """
        content = read_yaml(path)
        if isinstance(content, dict) and (layout := content.pop("layout", 1)) != RUN_LAYOUT:
            written = f"layout {layout}" if isinstance(layout, int) else "an unknown layout"
            advice = "go on with the version that wrote it, or train it anew"
            raise CheckpointError(f"{path.parent} has {written}, and this version reads layout {RUN_LAYOUT}: {advice}")
        return cls.from_plain(content)


def idle(config: RunConfig, task: Task, model: nn.Module, ranks: int) -> Iterator[str]:
    """The options that have no effect on a run, each in a sentence.

    Symbols     ranks = how many processes train
    """
    yield from (*config.idle(), *task.idle)
    together = {"partition": config.train.partition != "none", "shard": config.train.shard}
    for name, given in together.items() if ranks == 1 else ():
        if given:
            yield f"train.{name} has no effect in one process: start several by torchrun"
    if config.machine.recompute and not blocks_of(model):
        yield f"machine.recompute has no effect: {type(model).__name__} has no blocks, layers in a ModuleList"
