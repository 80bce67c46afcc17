"""What a run is made of, as plain dataclasses: everything that a recipe or the command line can choose."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from math import inf
from pathlib import Path
from typing import Any, Literal, get_type_hints

import yaml

from edgewise.errors import ConfigError
from edgewise.tasks.core.task import PatternChoice
from edgewise.training.optimizers.descent import OPTIMIZERS
from edgewise.training.optimizers.schedules import SCHEDULES
from edgewise.training.plain import build, convert, plain, read_yaml

Scalar = bool | int | float | str | None
Options = dict[str, Scalar | list[Scalar]]


@dataclass(frozen=True)
class OptimizerSettings:
    """How the weights follow their gradients.

    Args:
        name: sgd, momentum, adagrad, rmsprop, adam or adamw; or, to sample the posterior, sgld, cyclical-sgld,
            constant-sgd or diagonal-constant-sgd.
        learning_rate: Step size η, before the schedule.
        weight_decay: Decay λ: times the weights it joins the gradient; in adamw it shrinks the weights themselves.
        decay_matrices_only: Leave vectors (biases, norms) without weight decay.
        decay_prefix: Decay only weights whose name starts so, for instance "layers.0." for the first layer alone.
        momentum: Part ν of the last move that momentum keeps.
        betas: Decay rates β₁ of Adam's running mean of gradients, and β₂ of their squares.
        smoothing: Decay rate ρ of RMSprop's running mean of squared gradients.
        epsilon: What keeps a division by a small norm finite, ε.
        examples: Number N of training examples, which the posterior's samplers need: the loss is a mean over them.
        temperature: Scale of the noise of sgld; 0 is plain SGD.
        cycle: Steps of one cycle of cyclical-sgld.
        explore: Part of a cycle that goes without noise.
        burn_in: Steps in which constant-sgd measures the noise of its gradients, at the learning rate.
        average_from: Step from which on the mean of the weights is evaluated and kept instead of the last ones
            (stochastic weight averaging). 0: never.
        average_every: Steps between two weights that enter the mean.
    """

    name: str = "adamw"
    learning_rate: float = 1e-3
    weight_decay: float = 0.0
    decay_matrices_only: bool = False
    decay_prefix: str = ""
    momentum: float = 0.9
    betas: tuple[float, float] = (0.9, 0.999)
    smoothing: float = 0.99
    epsilon: float = 1e-8
    examples: int = 1
    temperature: float = 1.0
    cycle: int = 1000
    explore: float = 0.5
    burn_in: int = 1000
    average_from: int = 0
    average_every: int = 1

    def __post_init__(self) -> None:
        typed(self, "optimizer")
        known("optimizer.name", self.name, OPTIMIZERS)
        above_zero("optimizer", self, "learning_rate", "epsilon")
        at_least("optimizer", self, weight_decay=0.0, temperature=0.0, average_from=0)
        at_least("optimizer", self, examples=1, cycle=1, burn_in=2, average_every=1)
        shares = {"momentum": (self.momentum,), "explore": (self.explore,), "smoothing": (self.smoothing,)}
        for name, rates in (shares | {"betas": self.betas}).items():
            if not all(0 <= rate < 1 for rate in rates):
                raise ConfigError(f"optimizer.{name} must be at least 0 and below 1, not {getattr(self, name)}")


@dataclass(frozen=True)
class ScheduleSettings:
    """How the learning rate changes over the steps.

    Args:
        name: constant, linear, cosine or polynomial: what follows the warm-up.
        warmup: Steps over which the rate rises linearly to the learning rate.
        minimum: Where the decay ends at the last step, as a fraction of the learning rate.
    """

    name: str = "constant"
    warmup: int = 0
    minimum: float = 0.0

    def __post_init__(self) -> None:
        typed(self, "schedule")
        known("schedule.name", self.name, SCHEDULES)
        at_least("schedule", self, warmup=0, minimum=0.0)
        if self.minimum > 1:
            raise ConfigError(f"schedule.minimum is a fraction of the learning rate: at most 1, not {self.minimum}")


@dataclass(frozen=True)
class TrainSettings:
    """How long, on what and how carefully to train.

    Args:
        steps: Updates of the weights, at most.
        batch: Examples of one step, over all ranks and micro-batches.
        accumulate: Micro-batches that a rank cuts its part of a step into, to need less memory: the same gradient.
        clip: Largest total norm of the gradient; a larger one is scaled down to it. 0: never.
        precision: float32, or bfloat16 or float16 for the products of the forward pass (weights stay as they are).
        evaluate_every: Steps between two evaluations on the validation split.
        evaluate_batch: Examples of an evaluation's batch. 0: as many as `batch`.
        patience: Evaluations without an improvement after which training stops. 0: train all steps.
        checkpoint_every: Steps between two checkpoints; the last step always has one.
        keep: Checkpoints to keep, the newest ones.
        log_every: Steps between two records of the training loss.
        seed: Where all random numbers of the run come from.
        deterministic: Use PyTorch's deterministic algorithms, so that a run repeats and resumes to the same bits.
        device: auto, cpu, cuda, cuda:N or mps.
        threads: Threads of the CPU. 0: as PyTorch chooses.
        tensorboard: Also write the curves for TensorBoard.
        choose_by: Which validation score the best weights have: the task's metric, or the loss, which is less often the
            best by luck.
        compile: Train the model under torch.compile: slow to start, then faster, above all on a GPU.
    """

    steps: int = 1000
    batch: int = 32
    accumulate: int = 1
    clip: float = 0.0
    precision: Literal["float32", "bfloat16", "float16"] = "float32"
    evaluate_every: int = 100
    evaluate_batch: int = 0
    patience: int = 0
    checkpoint_every: int = 1000
    keep: int = 2
    log_every: int = 10
    seed: int = 0
    deterministic: bool = True
    device: str = "auto"
    threads: int = 0
    tensorboard: bool = False
    choose_by: Literal["metric", "loss"] = "metric"
    compile: bool = False

    def __post_init__(self) -> None:
        typed(self, "train")
        at_least(
            "train", self, steps=1, batch=1, accumulate=1, keep=1, evaluate_every=1, checkpoint_every=1, log_every=1
        )
        at_least("train", self, clip=0.0, evaluate_batch=0, patience=0, seed=0, threads=0)
        if not re.fullmatch(r"auto|cpu|cuda(:[0-9]+)?|mps", self.device):
            raise ConfigError(f"train.device must be auto, cpu, cuda, cuda:N or mps, not {self.device!r}")


@dataclass(frozen=True)
class StartSettings:
    """Which weights training starts from, and how much of them it may change.

    Args:
        run: A run folder whose best weights are taken over wherever name and shape fit; "": none, all are drawn.
        rank: Freeze them, and train low-rank additions of this rank to the linear maps instead (LoRA). 0: train all.
        alpha: Scale of the low-rank additions. 0: the rank, so that they are added as they are.
        names: Which linear maps get them, a pattern such as "blocks.*.attention.*".
    """

    run: str = ""
    rank: int = 0
    alpha: float = 0.0
    names: str = "*"

    def __post_init__(self) -> None:
        typed(self, "start")
        at_least("start", self, rank=0, alpha=0.0)
        if self.rank and not self.run:
            raise ConfigError("start.rank adds to weights that are there already: name a run with start.run")


@dataclass(frozen=True)
class Choice:
    """A name of a table, and options for what it stands for.

    Args:
        name: A name of TASKS or MODELS.
        options: What that task or model takes, by name.
    """

    name: str
    options: Options = field(default_factory=dict)

    def __post_init__(self) -> None:
        typed(self, "choice")


@dataclass(frozen=True)
class RunConfig:
    """Everything that decides a run: the same configuration gives the same weights.

    Args:
        task: What to learn, a name of TASKS.
        model: What learns it, a name of MODELS.
        graph: Who listens to whom, a name of PATTERNS, or "given" for the data's own graph.
        optimizer: How the weights follow their gradients.
        schedule: How the learning rate changes.
        train: How long, on what and how carefully to train.
        recipe: The recipe's name, for reports.
        start: Which weights training starts from.

    Example
        >>> config = RunConfig(Choice("karate"), Choice("gnn", {"width": 8}), recipe="first")
        >>> RunConfig.from_plain(config.to_plain()) == config
        True
        >>> RunConfig.from_plain({"task": {"name": "karate"}, "model": {"name": "gnn"}, "trian": {}})
        Traceback (most recent call last):
            ...
        edgewise.errors.ConfigError: the configuration has no option 'trian'; did you mean 'train'?
    """

    task: Choice
    model: Choice
    graph: PatternChoice = field(default_factory=PatternChoice)
    optimizer: OptimizerSettings = field(default_factory=OptimizerSettings)
    schedule: ScheduleSettings = field(default_factory=ScheduleSettings)
    train: TrainSettings = field(default_factory=TrainSettings)
    recipe: str = ""
    start: StartSettings = field(default_factory=StartSettings)

    def to_plain(self) -> dict[str, Any]:
        """The configuration as YAML and JSON hold it, every default written out."""
        return {"recipe": self.recipe} | {name: part for name, part in plain(self).items() if name != "recipe"}

    @classmethod
    def from_plain(cls, content: Mapping[str, object]) -> RunConfig:
        """Read plain data; an unknown, missing or mistyped option is a `ConfigError` that names it."""
        return build(cls, content, "")

    def to_yaml(self) -> str:
        return yaml.safe_dump(self.to_plain(), sort_keys=False, allow_unicode=True)

    @classmethod
    def read(cls, path: Path) -> RunConfig:
        """Read a run's `config.yaml`."""
        return cls.from_plain(read_yaml(path))


def typed(settings: Any, where: str) -> None:
    """Bring each field to its annotated type, or say which one cannot be."""
    hints = get_type_hints(type(settings))
    for entry in fields(settings):
        value = convert(getattr(settings, entry.name), hints[entry.name], f"{where}.{entry.name}")
        object.__setattr__(settings, entry.name, value)


def known(where: str, name: str, table: Mapping[str, object]) -> None:
    if name not in table:
        raise ConfigError(f"{where} {name!r} is unknown: choose one of {', '.join(table)}")


def at_least(where: str, settings: object, **bounds: float) -> None:
    for name, bound in bounds.items():
        value = getattr(settings, name)
        if not bound <= value < inf:
            raise ConfigError(f"{where}.{name} must be at least {bound:g} and finite, not {value}")


def above_zero(where: str, settings: object, *names: str) -> None:
    for name in names:
        value = getattr(settings, name)
        if not 0 < value < inf:
            raise ConfigError(f"{where}.{name} must be above 0 and finite, not {value}")
