"""What a task may do beyond batches, loss and score. Whoever needs an ability asks `isinstance(task, Draws)`."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, NamedTuple, Protocol, cast, runtime_checkable

import torch
from torch import Tensor, nn

from edgewise.data.record import Settled
from edgewise.data.splits import Split
from edgewise.data.table import Table
from edgewise.errors import ConfigError, DataError
from edgewise.graphs import Graph
from edgewise.models.text.sampling import Piece, Sampling
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.drawing import Output, Section
from edgewise.tasks.core.measures import Answers
from edgewise.tasks.core.subject import Subject, captured, only_row
from edgewise.tasks.core.task import EXAMPLE, Device, Pattern, Task


class Predicts(Task):
    """A task that predicts for inputs which a user names; what it predicts can be explained."""

    form: str = ""
    """The object of JSON that `predict` reads as a new example; empty: it reads none."""
    files: tuple[str, ...] = ()
    """The endings of files that a request may name; without any, a request is never taken for a file's place."""

    @abstractmethod
    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """The prediction for an input that a user names; it can be written as JSON."""

    @property
    def typical(self) -> str:
        """An input that `predict` reads: by default the first example that tests."""
        return "test:0" if self.has_test else "valid:0"

    def predictions(
        self, model: nn.Module, pattern: Pattern, requests: Sequence[str], device: Device
    ) -> list[dict[str, Any]]:
        """The prediction for each of several inputs, every one a single example; by default one after the other."""
        with torch.no_grad():
            return [self.predict(model, pattern, request, device) for request in requests]

    def examine(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> Output:
        """What `predict` gives, and drawings of it where the task has some."""
        return Output(self.predict(model, pattern, request, device), {})

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """What is explained of an input that `predict` reads, of a model on the CPU: by default the first row of what
        the model gives for it, which is all of a whole graph's outputs."""
        inputs = captured(model, lambda: self.predict(model, pattern, request, "cpu"))
        return Subject(inputs, only_row(model, inputs), getattr(self, "classes", ()))

    def name_of(self, number: int) -> str:
        """How an example is named where examples have names."""
        return str(number)

    def example(self, request: str, unit: str = "") -> Any:
        """The example that a split and a number in it name, as in "test:7"."""
        named = EXAMPLE.fullmatch(request.strip())
        if named is None:
            raise DataError(f"{request!r} is no example of {self.name}: give a split and a number as in 'test:7'")
        split, number = cast(Split, named[1]), int(named[2])
        examples: Any = self.splits[split]
        if number >= len(examples):
            count = f"{len(examples)} {unit or self.unit}"
            raise DataError(f"{request}: {self.name} has {count} in {split}, counted from 0")
        return examples[number]


def predicting(task: Task) -> Predicts:
    """The task, if it predicts for inputs; a ConfigError for any other."""
    if not isinstance(task, Predicts):
        raise ConfigError(f"{task.name} predicts for no inputs: a task that does so is a Predicts")
    return task


@runtime_checkable
class ReadsOthers(Protocol):
    """Reads other data of its kind, as it read those that trained."""

    changes: tuple[str, ...] | None
    """What those data have that the trained ones had not."""

    def elsewhere(self, place: Path, labelled: bool = False) -> Any:
        """This task on other data, which lie at a place: without splits and, unless they are `labelled`, without
        labels, but with all that was fitted to the data that trained."""


@runtime_checkable
class PredictsAll(ReadsOthers, Protocol):
    """Predicts for all of a graph, table or folder that it was not trained with."""

    def table(self, model: nn.Module, pattern: Pattern, device: Device) -> Iterator[dict[str, Any]]:
        """The prediction for everything there is, as rows of one table."""


@runtime_checkable
class TestedElsewhere(Protocol):
    """Has examples that are pairs or triples of what its data name, and scores others that files list."""

    changes: tuple[str, ...] | None
    """What of those files is left out, in sentences."""

    def tested_on(self, place: Path) -> Task:
        """This task with another test part, which lies at a place; a DataError where nothing can be measured."""


@runtime_checkable
class ReadsTables(Protocol):
    """Reads each row of a table as an input."""

    def columns_in(self, table: Table) -> tuple[str, str, str]:
        """What its inputs are called in `form`, their column, and the one that names them, or nothing."""


@runtime_checkable
class FindsByName(Protocol):
    """Has examples, or nodes of one graph, with names."""

    def number_of(self, request: str) -> int:
        """The one that a request names; a DataError for none, or several."""


@runtime_checkable
class OneGraphForAll(Protocol):
    """Has one graph that all examples share."""

    def graph(self, pattern: Pattern = None) -> Graph:
        """The data's own graph, or a pattern over its nodes."""


@runtime_checkable
class Draws(Protocol):
    """Shows in a report what a model has learned."""

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        """What a report shows of a trained model, in evaluation mode on the CPU; `scores` are those of its test split,
        where it has been measured."""


@runtime_checkable
class Generates(Protocol):
    """Lets a model write something new."""

    generates: str
    """Options of `edgewise generate` for this task, as a user would write them."""

    def generate(self, model: nn.Module, pattern: Pattern, sampling: Sampling, device: Device) -> Output:
        """Let a model write something new."""


def generating(task: Task) -> Generates:
    """The task, if it lets a model write; a ConfigError for any other."""
    if not isinstance(task, Generates):
        raise ConfigError(f"{task.name} generates nothing: only texts, graphs and images are written")
    return task


@runtime_checkable
class Streams(Generates, Protocol):
    """Lets a model write texts, which are there as they grow."""

    def stream(self, model: nn.Module, pattern: Pattern, sampling: Sampling, device: Device) -> Iterator[Piece]:
        """What a model adds to a prompt, piece by piece."""


@runtime_checkable
class Judges(Protocol):
    """Has scores that no single output decides."""

    def judge(self, model: nn.Module, split: Split, pattern: Pattern, device: Device) -> dict[str, float]:
        """These scores of a split, of a model in evaluation mode."""


@runtime_checkable
class Measured(Protocol):
    """Says what its outputs mean, so that every measure of them follows (`edgewise.tasks.core.measures`)."""

    def answers(self, outputs: Any, batch: Batch) -> list[Answers]:
        """What a batch's outputs say beside what is known, of each target; empty where there is nothing to measure."""


@runtime_checkable
class Measures(Protocol):
    """Has numbers to log beside the training loss."""

    def measured(self) -> dict[str, float]:
        """These numbers, such as a cache's hits, since the last call."""


@runtime_checkable
class Keeps(Protocol):
    """Learns something from its data before training, such as tokens: `kept` names its files."""

    def keep(self, run: Path) -> None:
        """Write it into a new run folder."""


@runtime_checkable
class Recalls(Protocol):
    """Reads again what `keep` wrote."""

    def recall(self, run: Path) -> None:
        """Take it from a run folder, where there is any."""


@runtime_checkable
class Preprocesses(Protocol):
    """Does something before and after the model that a file of the model has to name."""

    def preprocessing(self) -> dict[str, Any]:
        """What belongs to the model before and after it, as JSON can hold it.

        Symbols     targets = what the outputs are, in their order: {"name", "kind": "class", "classes"} or {"name",
                    "kind": "number", "mean", "deviation"}; rows = how raw rows become the model's inputs: its "kind" is
                    one of those in `deployment/answering.py`, and "input" says in words what is read
        """


class Alone(NamedTuple):
    """A model without its task: model(*call) is an example, and names are those of the tensors after the graph."""

    model: nn.Module
    call: tuple[Any, ...]
    names: tuple[str, ...] | None = None


@runtime_checkable
class StandsAlone(Protocol):
    """Says what is left of a model where only the model goes."""

    def alone(self, model: nn.Module, pattern: Pattern) -> Alone:
        """A model that reads what a user has, with an example of its call."""


class Rows(NamedTuple):
    """Features of examples, a row for each, as methods read them that are no networks.

    Symbols     name = what they are, in words; x [M, C], dense or sparse, or M texts; by = the methods that suit them
    """

    name: str
    x: Any
    by: tuple[Literal["linear", "trees", "forest", "words"], ...] = ("linear", "trees")


@runtime_checkable
class HasRows(Protocol):
    """Has examples of one's own, each of which makes a row of a table too."""

    own: Settled

    def rows(self, numbers: Tensor) -> Iterator[Rows]:
        """Features of those examples, in one way or several."""


@runtime_checkable
class StandsBeside(Protocol):
    """Has rankings of its own that no network has learned."""

    def simple(self) -> Iterator[tuple[str, Callable[[Split], Mapping[str, float]]]]:
        """By name what gives the scores of a split; it has learned from what trains alone."""
