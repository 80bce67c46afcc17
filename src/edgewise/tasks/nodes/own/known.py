"""Tasks on the nodes of one's own graph: their class, a value, or several of both."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, Self

import torch
from torch import Tensor, nn

from edgewise.data.splits import SPLITS, Splits
from edgewise.errors import DataError
from edgewise.files import folder_name
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.subject import Subject
from edgewise.tasks.core.task import Pattern
from edgewise.tasks.nodes.own.arrays import read_npz
from edgewise.tasks.nodes.own.data import graph_of, read_folder, strange_levels
from edgewise.tasks.nodes.own.given import Given
from edgewise.tasks.nodes.own.tables import Reading
from edgewise.tasks.nodes.regression import NodeRegression, fifths
from edgewise.tasks.nodes.sampled import SampledBatch, SampledNodes
from edgewise.tasks.own import record
from edgewise.tasks.own.record import Fitted
from edgewise.tasks.own.several import Gapped, Several, SeveralTargets

LISTED = 20  # columns that a report lists
ROWS = 4096  # of a table of predictions that are lists of Python at once


class OwnNodes(SampledNodes):
    """The nodes of one's own graph, known by their own names; a run keeps their parts and what was fitted to them."""

    kept = (record.SPLIT, record.DATA)
    private = kept
    given: Given
    fitted: Fitted
    undirected: bool
    how: Reading

    def keep(self, run: Path) -> None:
        record.write(run, self.given, self.nodes_of_splits, self.fitted)

    @property
    def nodes_of_splits(self) -> Splits:
        """The nodes of each split."""
        return {split: self.nodes.splits[split] for split in SPLITS}

    def preprocessing(self) -> dict[str, Any]:
        made = self.fitted.to_plain()
        return super().preprocessing() | {name: made[name] for name in ("columns", "edge_columns")}

    def shown(self, node: int) -> int | str:
        return node if self.given.names is None else self.given.names[node]

    def elsewhere(self, place: Path) -> OwnNodes:
        how = replace(self.how, labelled=False).like(self.fitted)
        if place.suffix.lower() == ".npz":
            given = read_npz(place, how)
        else:
            given = read_folder(place if place.is_dir() else place.parent, how)
        given = given.described(given.edges)
        none: Splits = {split: torch.empty(0, dtype=torch.int64) for split in SPLITS}
        task = type(self)(folder_name(given.place), graph_of(given, self.fitted, none, self.undirected), (), False)
        task.changes = (*strange_levels(given, self.fitted), *(note for note in given.notes if note.startswith("not")))
        return task.of(given, self.fitted, self.undirected, self.how)

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """What the model says of one node, in a graph whose nodes have their names."""
        return replace(super().subject(model, pattern, request), names=self.given.names or ())

    @torch.no_grad()
    def table(self, model: nn.Module, pattern: Pattern, device: torch.device | str) -> Iterator[dict[str, Any]]:
        """Each node's name, with its class and the probabilities of all, or with its value."""
        batch = self.batch("test", pattern).to(device)
        for start, part in enumerate(model.eval()(*batch.inputs).cpu().double().split(ROWS)):
            for node, made in enumerate(self._table(part), start * ROWS):
                yield {"node": self.shown(node)} | made

    def _table(self, outputs: Tensor) -> Iterator[dict[str, Any]]:
        p = self.objective.probabilities(outputs)
        for likeliest, row in zip(p.argmax(-1).tolist(), p.tolist(), strict=True):
            yield {"class": self.classes[likeliest], "probabilities": dict(zip(self.classes, row, strict=True))}

    def of(self, given: Given, fitted: Fitted, undirected: bool, how: Reading) -> Self:
        """The same task, which knows where its data come from."""
        self.given, self.fitted, self.undirected, self.how = given, fitted, undirected, how
        columns = given.x if isinstance(given.x, list) else []
        if columns:
            more = f" and {len(columns) - LISTED} more" if len(columns) > LISTED else ""
            self.contents += f"; features: {', '.join(map(str, columns[:LISTED]))}{more}"
        self.summary = (self.describe(), *map(str, fitted.targets), *given.notes)
        return self

    def _parse(self, request: str) -> list[int]:
        """Nodes by name, or where they have none by row."""
        if self.given.names is None or request.strip() == "all":
            return super()._parse(request)
        number_of = self.given.number_of
        names = [request.strip()] if request.strip() in number_of else [name.strip() for name in request.split(",")]
        for name in names:
            if name not in number_of:
                first = ", ".join(map(repr, self.given.names[:3]))
                raise DataError(f"no node {name[:80]!r} in {self.name}: its nodes are called {first}, ...")
        return [number_of[name] for name in names]


class OwnValues(NodeRegression, OwnNodes):
    """The same where each node has a value."""

    def of(self, given: Given, fitted: Fitted, undirected: bool, how: Reading) -> Self:
        self.mean, self.deviation = fitted.scale
        return super().of(given, fitted, undirected, how)

    def _table(self, outputs: Tensor) -> Iterator[dict[str, Any]]:
        yield from ({"value": self.value(output)} for output in outputs)


class GappedNodes(Gapped, Batch):
    """The nodes of a graph with several targets."""

    shared = True


class GappedSample(Gapped, SampledBatch):
    """Some of them, with some of their neighbours."""


class OwnSeveral(SeveralTargets, OwnNodes):
    """The same where each node has several targets, classes and values, some of which may be unknown."""

    whole, sampled = GappedNodes, GappedSample

    def of(self, given: Given, fitted: Fitted, undirected: bool, how: Reading) -> Self:
        self.several = Several(fitted.targets, fitted.scales)
        self.metric, self.maximise = self.several.metric, False
        self.signature = replace(self.signature, outputs=self.several.width, classes=False)
        self.contents = f"{len(given):,} nodes with {len(fitted.targets)} targets"
        return super().of(given, fitted, undirected, how)

    def preprocessing(self) -> dict[str, Any]:
        return super().preprocessing() | {"targets": self.fitted.to_plain()["targets"]}

    def _terms(self, labels: Tensor) -> int:
        return int((~labels.isnan()).sum())

    def _targets_of(self, labels: Tensor) -> Tensor:
        return labels

    def _table(self, outputs: Tensor) -> Iterator[dict[str, Any]]:
        yield from map(self.several.named, outputs)

    def _named(self, output: Tensor, label: Any) -> dict[str, Any]:
        return self.several.named(output, torch.tensor(label))

    def _coloured(self, outputs: Tensor) -> tuple[Tensor, Tensor, tuple[str, ...], str]:
        """By the first target: the predicted classes, or fifths of the predicted values."""
        target, (mean, deviation) = self.several.targets[0], self.several.scales[0]
        first, known = outputs[:, : target.width], self.nodes.labels[:, 0]
        if target.kind == "number":
            return fifths(mean + deviation * first[:, 0].double(), f"the predicted {target.name}")
        predicted = first.argmax(-1)
        what = f"the colour is the predicted {target.name}, a cross marks a wrong prediction"
        return predicted, (predicted != known) & ~known.isnan(), target.classes, what
