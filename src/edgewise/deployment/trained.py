"""A trained model with its preprocessing, as a plain module: it predicts for whatever its task reads."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from edgewise.errors import ConfigError, a_kind
from edgewise.graphs import Graph
from edgewise.tasks.core.abilities import predicting
from edgewise.tasks.core.task import Pattern, Task
from edgewise.training.runs import Moved, load_run


class Trained(nn.Module):
    """A model with what its task does before and after it: splitting texts, scaling numbers, naming classes.

    Symbols     model = the model alone; task = its task, whose data it was trained with; pattern = the run's graph
    Shapes      called with the model's inputs, `trained(graph, x)`, it is the model
    Errors      those of the task, for a row that it cannot read; ConfigError for rows that are one text
    Cost        that of the model, a batch of rows at a time
    """

    def __init__(self, model: nn.Module, task: Task, pattern: Pattern = None) -> None:
        super().__init__()
        self.model, self.task, self.pattern = model, task, pattern

    def forward(self, *inputs: Any) -> Tensor:
        return self.model(*inputs)

    @property
    def device(self) -> torch.device:
        """Where the weights are."""
        return next((p.device for p in self.model.parameters()), torch.device("cpu"))

    def predict(self, rows: Iterable[str | float | PathLike[str]], batch: int = 256) -> list[dict[str, Any]]:
        """The prediction for each row: a text, a node's number, an image's path, "test:7", ... as the task reads it.

        Symbols     batch = how many rows the model reads at once
        """
        return list(self.predictions(rows, batch))

    def predictions(self, rows: Iterable[str | float | PathLike[str]], batch: int = 256) -> Iterator[dict[str, Any]]:
        """`predict` for any number of rows, of which a batch is in memory at a time."""
        if isinstance(rows, str | float | int | PathLike):
            raise ConfigError(f"rows are a list of inputs, not one of them: [{rows!r}]")
        if not isinstance(rows, Iterable):
            raise ConfigError(f"rows are a list of inputs, not {a_kind(rows)}")
        if batch < 1:
            raise ConfigError(f"batch={batch} must be at least 1")
        requests = iter(rows.tolist() if isinstance(rows, Tensor) else rows)
        while part := [str(request) for request in islice(requests, batch)]:
            yield from predicting(self.task).predictions(self.model, self.pattern, part, self.device)


def load(
    run: Path | str,
    weights: Literal["best", "last"] = "best",
    device: str = "auto",
    accept: bool = False,
    folder: Moved | None = None,
    *,
    task: Task | None = None,
    model: nn.Module | None = None,
    graph: Graph | Pattern | str = None,
) -> Trained:
    """The model of a run folder with its preprocessing, ready to predict: a plain `nn.Module`, in evaluation mode.

    Symbols     weights = those of the best evaluation, or of the last step; accept = take an altered configuration or
                history as it is; folder = where the task's data lie now, if not where they were, or {option: place};
                task, model, graph = those that a run of `edgewise.fit` was given, which no run folder holds
    Errors      CheckpointError for a folder without a run, without an intact checkpoint or with altered files
    Edge cases  it reads tensors, JSON and YAML: nothing is unpickled. The task's data are read, where it has some

    Example
        >>> import tempfile
        >>> from edgewise.training import Choice, RunConfig, TrainSettings, train
        >>> run = Path(tempfile.mkdtemp()) / "run"
        >>> _ = train(RunConfig(Choice("karate"), Choice("gnn"), train=TrainSettings(steps=2)), run, progress=False)
        >>> [prediction["node"] for prediction in load(run).predict([0, 33])]
        [0, 33]
    """
    loaded = load_run(run, weights, device, accept, folder, task=task, model=model, graph=graph)
    return Trained(loaded.model, loaded.task, loaded.pattern).eval()
