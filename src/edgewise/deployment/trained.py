"""A trained model with its preprocessing, as a plain module: it predicts for whatever its task reads."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from os import PathLike
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from edgewise.configuration import build
from edgewise.data.rows import as_text
from edgewise.data.table import Problems
from edgewise.deployment.inputs import attempts, in_order, is_file_of_inputs, is_whole, read_inputs
from edgewise.errors import ConfigError, DataError, EdgewiseError, a_kind
from edgewise.explanations import Explanation
from edgewise.graphs import Graph
from edgewise.markup import element, folded, note
from edgewise.models.text.sampling import Piece, Sampling
from edgewise.tasks.core.abilities import PredictsAll, Streams, generating, predicting
from edgewise.tasks.core.task import Pattern, Task
from edgewise.training.ensemble import load_any
from edgewise.training.runs import Moved

BATCH = 512  # rows of a file that a model reads at once
Rows = Any  # an iterable of inputs, the place of a file of them, or a table of pandas or polars
Skipped = tuple[str, str]  # where an input stands that cannot be read, and why


class Trained(nn.Module):
    """A model with what its task does before and after it: splitting texts, scaling numbers, naming classes.

    Symbols     model = the model alone; task = its task, whose data it was trained with; pattern = the run's graph
    Shapes      called with the model's inputs, `trained(graph, x)`, it is the model
    Errors      those of the task, for a row that it cannot read, or one of all such rows of a batch; ConfigError for
                rows that are one text
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

    def predict(self, rows: Rows, batch: int = 256) -> list[dict[str, Any]]:
        """The prediction for each row: a text, a node's number, an image's path, "test:7", an object as a new example
        (a dict), ... as the task reads it.

        Symbols     rows = a list of them, a table of pandas or polars, or the place of a file or folder of inputs, as
                    `edgewise predict --out` reads it; batch = how many rows the model reads at once
        """
        return list(self.predictions(rows, batch))

    def predictions(self, rows: Rows, batch: int = 256) -> Iterator[dict[str, Any]]:
        """`predict` for any number of rows, of which a batch is in memory at a time."""
        if batch < 1:
            raise ConfigError(f"batch={batch} must be at least 1")
        if isinstance(rows, str | PathLike) and is_file_of_inputs(rows):
            yield from (row for part in self.of_file(Path(rows), batch=batch) for row in part)
            return
        if isinstance(rows, str | float | int | PathLike | Mapping):
            raise ConfigError(f"rows are a list of inputs, not one of them: [{rows!r}]")
        if hasattr(rows, "columns"):
            rows = rows.to_dicts() if hasattr(rows, "to_dicts") else rows.to_dict("records")
        if not isinstance(rows, Iterable):
            raise ConfigError(f"rows are a list of inputs, not {a_kind(rows)}")
        requests = iter(rows.tolist() if isinstance(rows, Tensor) else rows)
        while part := [self._request(row) for row in islice(requests, batch)]:
            made = attempts(self._predicted, part)
            wrong = [one for one in made if isinstance(one, EdgewiseError)]
            if wrong:
                told = dict.fromkeys(map(str, wrong))
                raise wrong[0] if len(told) == 1 else DataError(*Problems(told).sentences())
            yield from (one for one in made if not isinstance(one, EdgewiseError))

    def explain(
        self,
        row: object,
        target: str | None = None,
        method: str = "integrated-gradients",
        layer: int | None = None,
        head: int | None = None,
    ) -> Explanation:
        """Why an input's prediction is what it is, by the names of columns, words, atoms, ...: a notebook shows it.

        Symbols     row = one input, as `predict` reads it; target = as `edgewise explain --target` names it; method,
                    layer, head = as of `edgewise.explain`
        """
        alone = copy.deepcopy(self.model).cpu() if self.device.type != "cpu" else self.model
        subject = predicting(self.task).subject(alone.eval(), self.pattern, self._request(row))
        return subject.explanation(alone, target, method, layer, head)[0]

    def _repr_html_(self) -> str:
        said = getattr(self.task, "summary", ()) or (self.task.describe(),)
        numbers = f"{type(self.model).__name__}, {sum(p.numel() for p in self.model.parameters()):,} parameters"
        reads = getattr(self.task, "form", "")
        return note(said[0], element("p", numbers), *([element("pre", reads)] if reads else []), folded(said[1:]))

    def of_file(
        self,
        file: Path,
        column: str | None = None,
        batch: int = BATCH,
        say: Callable[[str], object] = lambda line: None,
        skipped: list[Skipped] | None = None,
    ) -> Iterator[list[dict[str, Any]]]:
        """The predictions for the inputs of a file, or for all of a folder, a batch at a time: see `predict_file`. A
        blank line of a text keeps its place, without a prediction.

        Symbols     skipped = takes the inputs that cannot be read; None: they are a DataError, which names them all
        """
        task = predicting(self.task)
        if is_whole(file, column, task):
            if not isinstance(task, PredictsAll):
                raise ConfigError(f"{task.name} reads no other graph: {file} is a folder or holds arrays")
            other = task.elsewhere(file)
            for change in other.changes or ():
                say(change)
            rows = other.table(self.model, self.pattern, self.device)
            while part := list(islice(rows, batch)):
                yield part
            return
        inputs, problems, classes = read_inputs(file, column, task), Problems(), getattr(task, "classes", ())
        waiting = list[dict[str, Any]]()
        while some := list(islice(inputs, batch)):
            good = [one.request for one in some if one.request and not one.wrong]
            made = iter(attempts(self._predicted, good) if good else ())
            for one in some:
                result = DataError(one.wrong) if one.wrong else next(made) if one.request else {}
                if not isinstance(result, EdgewiseError):
                    waiting.append(one.known | in_order(result, classes))
                elif skipped is None:
                    problems.add(f"{one.at}: {result}" if one.at else str(result))
                else:
                    skipped.append((one.at, str(result)))
            if good and not problems.count:  # the first rows that are written have all columns
                yield waiting
            waiting = [] if good else waiting
        problems.check()
        if waiting:
            yield waiting

    def generate(self, prompt: str = "\n", **options: Any) -> dict[str, Any]:
        """What the model writes: a prompt continued ("text", or "texts" for count=3, each with why it "ended"), or new
        graphs or images.

        Symbols     options = those of `edgewise generate`: steps, count, temperature, top_k, top_p, min_p,
                    repetition_penalty, stop, seed
        Errors      ConfigError for a task that writes nothing, and for an option outside its range
        """
        task, sampling = generating(self.task), build(Sampling, {"prompt": prompt, **options}, "generate")
        return task.generate(self.model, self.pattern, sampling, self.device).values

    def stream(self, prompt: str = "\n", **options: Any) -> Iterator[Piece]:
        """What the model adds to a prompt, as it is written; options are those of `generate`.

        Errors      also ConfigError for a task that writes no texts
        """
        task, sampling = generating(self.task), build(Sampling, {"prompt": prompt, **options}, "generate")
        if not isinstance(task, Streams):
            raise ConfigError(f"{self.task.name} writes no texts: call generate")
        return task.stream(self.model, self.pattern, sampling, self.device)

    def _request(self, row: object) -> str:
        """A row as the task reads it: of an object, where it reads none, the input or the only one that it has."""
        if isinstance(row, Mapping) and not predicting(self.task).form and (len(row) == 1 or "input" in row):
            return as_text(row["input"] if "input" in row else next(iter(row.values())))
        return as_text(row)

    def _predicted(self, requests: Sequence[str]) -> list[dict[str, Any]]:
        return predicting(self.task).predictions(self.model, self.pattern, requests, self.device)


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
    """The model of a run folder with its preprocessing, ready to predict: a plain `nn.Module`, in evaluation mode; of
    the folder of an ensemble all its runs as one.

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
    loaded = load_any(run, weights, device, accept, folder, task=task, model=model, graph=graph)
    return Trained(loaded.model, loaded.task, loaded.pattern).eval()
