"""Examples of one's own, each a graph: one way from files to a task, and what such a task can."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Generic, TypeVar

import torch
from torch import Generator, Tensor, nn

from edgewise.data import record
from edgewise.data.examples import Asked, Examples
from edgewise.data.record import Fitted, Settled, settle
from edgewise.data.splits import Splits
from edgewise.data.target import Wanted
from edgewise.errors import DataError
from edgewise.models.signature import Features
from edgewise.tasks.core.batch import Batch, DisjointBatch
from edgewise.tasks.core.task import EXAMPLE, Parts, Pattern
from edgewise.tasks.graphs.prediction import GraphClassification, Graphs, Member
from edgewise.tasks.own.several import GappedBatch, Several, SeveralTargets

ROWS = 512  # examples that a model reads at once for a table of predictions
T = TypeVar("T")
Made = TypeVar("Made")


@dataclass(frozen=True)
class Files(ABC, Generic[T, Made]):
    """A kind of files that examples are read from, and how.

    Args:
        asked: What of their tables is wanted.
    """

    asked: Asked

    @abstractmethod
    def read(self, place: Path, fitted: Fitted | None) -> tuple[Examples, T]:
        """The examples at a place, and their inputs; all that is wrong is one DataError.

        Symbols     fitted = what a run has kept: its columns are read, as it read them; None: all that are left
        """

    def same(self, examples: Examples, inputs: T) -> Sequence[object] | None:
        """Of each example what must not be in two parts; None: nothing."""
        return None

    def fit(self, inputs: T, fitted: Fitted, splits: Splits) -> Fitted:
        """What was fitted to the targets, and what else is fitted to the inputs that train."""
        return fitted

    @abstractmethod
    def task(self, settled: Settled, inputs: T) -> Made:
        """The task of examples whose inputs are read by what was fitted."""

    def settle(self, place: str, like: str, wanted: Wanted, fold: int) -> Made:
        """The task of files to train on: see `record.settle`."""
        examples, inputs = self.read(Path(place).expanduser(), record.read(Path(like).expanduser()) if like else None)

        def fit(fitted: Fitted, splits: Splits) -> Fitted:
            return self.fit(inputs, fitted, splits)

        return self.task(settle(examples, like, wanted, fold, self.same(examples, inputs), fit=fit), inputs)

    def elsewhere(self, place: Path, fitted: Fitted) -> Made:
        """The task of other files, whose examples have neither parts nor labels."""
        unlabelled = replace(self, asked=replace(self.asked, labelled=False))
        examples, inputs = unlabelled.read(place, fitted)
        return self.task(Settled(examples, fitted, {}), inputs)


def targets_of(settled: Settled) -> Tensor:
    """The targets of examples [G, T], NaN where unknown: of all, where the files have no labels."""
    given, fitted = settled.given, settled.fitted
    if given.targets:
        return Several(fitted.targets, fitted.scales).values(given.targets)
    return torch.full((len(given), len(fitted.targets)), torch.nan)


class OwnExamples(SeveralTargets, GraphClassification):
    """Graphs, molecules, texts or clouds of one's own, with one target or several, some of which may be unknown.

    Errors      DataError for an example that is not there
    """

    kept: tuple[str, ...] = record.FILES
    private = record.FILES
    kind: type[DisjointBatch] = GappedBatch
    tables = True

    def __init__(self, name: str, graphs: Graphs, own: Settled, files: Files[Any, Any]) -> None:
        super().__init__(name, graphs)
        self.own, self.how, fitted = own, files, own.fitted
        self.several = Several(fitted.targets, fitted.scales)
        self.unit, self.metric, self.maximise = own.given.unit, self.several.metric, self.several.metric == "accuracy"
        self.classes = fitted.target.classes if len(fitted.targets) == 1 else ()
        self.contents = f"{len(graphs.members):,} {self.unit} of {len(graphs.x):,} nodes"
        edges, whole = (0 if known is None else known.shape[-1] for known in (graphs.e, graphs.u))
        width, classes = self.several.width, bool(self.classes)
        self.signature = Features(
            graphs.x.shape[-1], width, whole_graph=True, edges=edges, whole=whole, classes=classes
        )
        self.changes = own.changes
        self.summary = (self.describe(), *map(str, fitted.targets), *own.given.notes)

    def keep(self, run: Path) -> None:
        self.own.keep(run)

    def preprocessing(self) -> dict[str, Any]:
        made = self.own.fitted.to_plain()
        return super().preprocessing() | {name: made[name] for name in ("targets", "columns", "edge_columns")}

    def elsewhere(self, place: Path) -> OwnExamples:
        made: OwnExamples = self.how.elsewhere(place, self.own.fitted)
        return made

    @torch.no_grad()
    def table(self, model: nn.Module, pattern: Pattern, device: torch.device | str) -> Iterator[dict[str, Any]]:
        """Each example's name and input, with what the model says of it."""
        for numbers in torch.arange(len(self.graphs.members)).split(ROWS):
            batch = self.batch(numbers, pattern).to(device)
            outputs = batch.read(model.eval()(*batch.inputs)).cpu()
            for number, output in zip(numbers.tolist(), outputs, strict=True):
                yield self.known(number) | self.several.named(output)

    def known(self, number: int) -> dict[str, Any]:
        """How an example is called, and what of its input a table of predictions has."""
        return {self.unit[:-1]: self.name_of(number)}

    def name_of(self, number: int) -> str:
        return self.own.given.name(number)

    def member(self, request: str, pattern: Pattern) -> Member:
        """An example by its name, or as "test:7"; or else what `read` makes of it."""
        rows = self.own.given.number_of
        text = request.strip()
        if text in rows and (self.own.given.names is not None or not self.reads(text)):
            return self.numbered(rows[text], pattern)
        if EXAMPLE.fullmatch(text):
            return self.numbered(int(self.example(text)), pattern)
        return self.read(text, pattern)

    def reads(self, request: str) -> bool:
        """Whether a request is itself an input, as a molecule in SMILES is."""
        return False

    def read(self, request: str, pattern: Pattern) -> Member:
        """What a request is that names no example; by default a DataError."""
        first = ", ".join(repr(self.name_of(number)) for number in range(min(3, len(self.graphs.members))))
        unit = self.unit[:-1]
        raise DataError(f"no {unit} {request[:80]!r} in {self.name}: its {self.unit} are called {first}, ...")

    def numbered(self, number: int, pattern: Pattern) -> Member:
        return super().numbered(number, pattern)._replace(known=self.known(number))

    def train_parts(self, size: int, generator: Generator, pattern: Pattern, parts: Parts) -> tuple[int, list[Batch]]:
        """As cut by graphs; each part has as many terms as targets that are known."""
        _, made = super().train_parts(size, Generator().set_state(generator.get_state()), pattern, parts)
        drawn = self._drawn(size, generator)
        terms = int((~self.graphs.targets[drawn].isnan()).sum())
        return (terms if len(drawn) >= parts.count else parts.count * terms), made

    def _named(self, output: Tensor, target: Tensor | None) -> dict[str, Any]:
        return self.several.named(output, target)
