"""Classification of whole graphs that lie in memory: a batch is one disjoint graph, one answer for each member."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from edgewise.errors import DataError
from edgewise.graphs import Graph
from edgewise.models.signature import Signature
from edgewise.tasks.classification import class_probabilities, classification_score, mean_cross_entropy
from edgewise.tasks.task import Batch, Kind, Pattern, Split, given, lay


@dataclass(frozen=True)
class WholeGraphs:
    """The data of a classification of graphs.

    Args:
        graphs: M graphs.
        x: Their nodes' features, [n, C] each.
        labels: Their classes [M].
        classes: The classes' names.
        splits: For "train", "valid" and "test" the graphs that it reads.
    """

    graphs: Sequence[Graph]
    x: Sequence[Tensor]
    labels: Tensor
    classes: tuple[str, ...]
    splits: Mapping[Split, Tensor]


class DisjointBatch(Batch):
    """A batch of graphs as one: its members cannot be told apart by cutting rows, so it is never split."""

    def split(self, parts: int) -> list[Batch]:
        return [self] * parts


class WholeGraphClassification:
    """Every batch is one disjoint graph of its members, without padding."""

    kind: Kind = "graph"
    metric = "accuracy"
    maximise = True
    has_test = True

    def __init__(self, name: str, data: WholeGraphs) -> None:
        self.name = name
        self.data = data
        self.signature = Signature(data.x[0].shape[-1], len(data.classes), whole_graph=True)
        self.epoch_size = len(data.splits["train"])
        self._graphs: dict[tuple[Pattern, int], Graph] = {}
        self._batches: dict[tuple[Pattern, tuple[int, ...]], Batch] = {}

    def graph(self, pattern: Pattern = None) -> Graph:
        """All graphs as one, on their own edges or on a pattern's."""
        return Graph.batch(self._member(number, pattern) for number in range(len(self.data.graphs)))

    def _member(self, number: int, pattern: Pattern) -> Graph:
        graph = self.data.graphs[number]
        if pattern is None or given(pattern):
            return graph
        size = graph.num_receivers
        if (pattern, size) not in self._graphs:
            self._graphs[pattern, size] = lay(pattern, size)
        return self._graphs[pattern, size]

    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> Batch:
        """`size` training graphs drawn with replacement; all of them, each once, where size is their number."""
        if size == self.epoch_size:
            return self._batch(self.data.splits["train"], pattern)
        chosen = torch.randint(self.epoch_size, (size,), generator=generator)
        return self._collate(self.data.splits["train"][chosen], pattern)

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        """Every graph of a split once, in the data's order."""
        for chosen in self.data.splits[split].split(size):
            yield self._batch(chosen, pattern)

    def _batch(self, chosen: Tensor, pattern: Pattern) -> Batch:
        """A batch that comes again is built once, and so is what layers keep with its graph."""
        key = pattern, tuple(chosen.tolist())
        if key not in self._batches:
            self._batches[key] = self._collate(chosen, pattern)
        return self._batches[key]

    def _collate(self, chosen: Tensor, pattern: Pattern) -> Batch:
        numbers = chosen.tolist()
        graph = Graph.batch(self._member(number, pattern) for number in numbers)
        return DisjointBatch(graph, torch.cat([self.data.x[number] for number in numbers]), self.data.labels[chosen])

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return mean_cross_entropy(outputs, batch)

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        return classification_score(outputs, batch)

    @torch.no_grad()
    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: torch.device | str) -> dict[str, Any]:
        """Class probabilities of one graph, asked for by its number."""
        count, number = len(self.data.graphs), request.strip()
        if not (number.isascii() and number.isdigit() and len(number) < 19 and int(number) < count):
            raise DataError(f"no graph {number!r} in {self.name}: give a number from 0 to {count - 1}")
        batch = self._collate(torch.tensor([int(number)]), pattern).to(device)
        logits = model.eval()(batch.graph, batch.x)[0].cpu()
        probabilities = class_probabilities(logits, self.data.classes)
        label = self.data.classes[int(self.data.labels[int(number)])]
        return {
            "graph": int(number),
            "class": next(iter(probabilities)),
            "label": label,
            "probabilities": probabilities,
        }
