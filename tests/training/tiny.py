"""The smallest task and model that training can run: points of a plane in three classes, and two linear maps."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Literal

import torch
from safetensors.torch import load_file
from torch import Tensor, nn

from edgewise.graphs import complete
from edgewise.models import MODELS, Features, Penalised, Signature
from edgewise.tasks import TASKS, Batch
from edgewise.tasks.core.classification import Classification
from edgewise.training import (
    CheckpointSettings,
    Choice,
    EvaluationSettings,
    LogSettings,
    MachineSettings,
    RunConfig,
    TrainSettings,
    train,
)
from edgewise.training.checkpoint import checkpoints, read_state, write_state

Poison = Literal["none", "loss", "gradient", "rank", "valid", "stop", "power"]


class Tiny(Classification):
    """Points with noise. From the `at`-th batch on, `poison` makes something go wrong."""

    name, epoch_size = "tiny", 64
    signature = Features(inputs=2, outputs=3)

    def __init__(self, poison: Poison, at: int, double: bool, metric: str) -> None:
        self.poison, self.at, self.metric, self.maximise = poison, at, metric, metric == "accuracy"
        points = torch.randn(160, 2, generator=torch.Generator().manual_seed(1))
        labels = (points + 0.3 * points.roll(1, 0)) @ torch.tensor([[1.0, -1.0, 0.2], [0.5, 0.3, -1.0]])
        self.x, self.labels = points.double() if double else points, labels.argmax(1)
        self.read: list[str] = []
        self.drawn = 0

    def train_batch(self, size: int, generator: torch.Generator, pattern: Any = None) -> Batch:
        self.drawn += 1
        chosen = torch.randint(64, (size,), generator=generator)
        x = self.x[chosen]
        if self.drawn >= self.at:
            if self.poison == "stop":
                raise KeyboardInterrupt
            if self.poison == "rank":
                x = x.index_fill(0, torch.tensor([size - 1]), torch.nan)
        return Batch(complete(1), x, self.labels[chosen])

    def batches(self, split: str, size: int, pattern: Any = None) -> Iterator[Batch]:
        self.read.append(split)
        part = {"train": slice(0, 64), "valid": slice(64, 112), "test": slice(112, 160)}[split]
        for x, target in zip(self.x[part].split(size), self.labels[part].split(size), strict=True):
            yield Batch(complete(1), x, target)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        loss = super().loss(outputs, batch)
        if self.drawn >= self.at:
            if self.poison == "loss":
                loss = loss / 0
            if self.poison == "gradient":  # the root of zero: its value is finite and its slope is not
                loss = loss + (outputs - outputs.detach()).pow(2).sum().sqrt()
            if self.poison == "power":  # a large gradient, of a norm that is still finite
                loss = loss * 1e15
        return loss

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        score = super().score(outputs, batch)
        if self.poison == "valid" and self.drawn >= self.at:
            score["loss"] = score["loss"] * torch.nan
        return score

    def predict(self, *_: Any) -> dict[str, Any]:
        return {}


def tiny(poison: Poison = "none", at: int = 0, double: bool = False, metric: str = "accuracy") -> Tiny:
    return Tiny(poison, at, double, metric)


@dataclass(frozen=True)
class TwoMapsSettings:
    width: int = 8
    dropout: float = 0.25
    double: bool = False


class TwoMaps(nn.Module):
    def __init__(self, settings: TwoMapsSettings, signature: Signature) -> None:
        super().__init__()
        self.first = nn.Linear(signature.inputs, settings.width)
        self.drop = nn.Dropout(settings.dropout)
        self.second = nn.Linear(settings.width, signature.outputs)
        if settings.double:
            self.double()

    def forward(self, graph: None, x: Tensor) -> Tensor:
        return self.second(self.drop(self.first(x).tanh()))


class PenalisedMaps(TwoMaps):
    """In training it answers with a loss of its own, a tenth of its first map's squares."""

    def forward(self, graph: None, x: Tensor) -> Any:
        outputs = super().forward(graph, x)
        return Penalised(outputs, 0.1 * self.first.weight.square().sum()) if self.training else outputs


MACHINE = {entry.name for entry in fields(MachineSettings)}
EVALUATION = {entry.name for entry in fields(EvaluationSettings)}


def configured(
    task: dict[str, Any] | None = None,
    model: dict[str, Any] | None = None,
    optimizer: Choice | None = None,
    schedule: Choice | None = None,
    **options: Any,
) -> RunConfig:
    """A run of the tiny task: 40 steps unless told otherwise; `evaluate_every` and the like name nested options."""
    options = {"steps": 40, "batch": 16, "evaluate_every": 8, "checkpoint_every": 10} | options
    options = {"device": "cpu", "threads": 1} | options
    evaluation = {name: options.pop(f"evaluate_{name}") for name in EVALUATION if f"evaluate_{name}" in options}
    evaluation |= {name: options.pop(name) for name in EVALUATION - {"batch"} if name in options}
    machine = {name: options.pop(name) for name in MACHINE if name in options}
    log = {name.removeprefix("log_"): options.pop(name) for name in ("log_every", "tensorboard") if name in options}
    checkpoints = {"every": options.pop("checkpoint_every"), "keep": options.pop("keep", 2)}
    return RunConfig(
        Choice("tiny", task or {}),
        Choice("two maps", model or {}),
        optimizer=optimizer or Choice("adamw", {"learning_rate": 0.05}),
        schedule=schedule or Choice("constant"),
        train=TrainSettings(checkpoints=CheckpointSettings(**checkpoints), log=LogSettings(**log), **options),
        evaluation=EvaluationSettings(**evaluation),
        machine=MachineSettings(**machine),
    )


def register() -> None:
    """Enter the tiny task and model into the tables, in a process that does nothing else."""
    TASKS["tiny"] = tiny
    MODELS["two maps"] = (TwoMapsSettings, TwoMaps)
    MODELS["penalised"] = (TwoMapsSettings, PenalisedMaps)


def trained(folder: Path, config: RunConfig) -> Path:
    """The folder, with a run of the configuration in it."""
    train(config, folder, progress=False)
    return folder


def weights(run: Path, part: str = "model") -> dict[str, Tensor]:
    """The tensors of a run's newest checkpoint."""
    return load_file(sorted((run / "checkpoints").glob("step-*"))[-1] / f"{part}.safetensors")


def records(run: Path) -> list[dict[str, Any]]:
    """The lines of metrics.jsonl without their times."""
    lines = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    return [{name: value for name, value in line.items() if "seconds" not in name} for line in lines]


def without_result(run: Path, torn: int = 0) -> None:
    """Take a finished run back to its last checkpoint, as a kill leaves it before or while the result is written."""
    *lines, result = (run / "metrics.jsonl").read_bytes().splitlines(keepends=True)
    history = b"".join(lines)
    (run / "metrics.jsonl").write_bytes(history + result[:torn])
    newest = checkpoints(run / "checkpoints")[0]
    metrics = {"bytes": len(history), "sha256": hashlib.sha256(history).hexdigest()}
    write_state(newest, read_state(newest)[0] | {"metrics": metrics})


def losses(run: Path) -> list[float]:
    return [line["loss"] for line in records(run) if "loss" in line]


def same_run(one: Path, other: Path) -> bool:
    """Whether two runs wrote the same bits: weights, best weights, the optimiser's memory, and every number told."""
    parts = ("model", "best", "optimizer")
    last = [sorted((run / "checkpoints").glob("step-*"))[-1] for run in (one, other)]
    files = [[(folder / f"{part}.safetensors").read_bytes() for part in parts] for folder in last]
    return last[0].name == last[1].name and files[0] == files[1] and records(one) == records(other)
