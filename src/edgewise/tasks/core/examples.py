"""The two usual kinds of examples: many that are drawn by their numbers, and the nodes of one graph."""

from abc import abstractmethod
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from edgewise.data.splits import Split
from edgewise.errors import ConfigError
from edgewise.graphs import Graph, complete
from edgewise.graphs.derived import cached
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.task import Pattern, Task, given


class NumberedExamples(Task):
    """A task whose `splits` hold numbers of examples: a batch is some of them, and an epoch all that train."""

    splits: Mapping[Split, Tensor]
    replacement: bool = True
    """Whether training draws with replacement; without, `size` different examples, or all where there are fewer."""
    stored: bool = False
    """Whether the batches of an evaluation are made once, for all evaluations."""

    @abstractmethod
    def batch(self, numbers: Tensor, pattern: Pattern, generator: torch.Generator | None = None) -> Batch:
        """The examples of those numbers; in training, where they may vary, with a generator of the variation."""

    def numbers(self, split: Split) -> Tensor:
        """The examples of a split."""
        return self.splits[split]

    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> Batch:
        return self.batch(self._drawn(size, generator), pattern, generator)

    def _drawn(self, size: int, generator: torch.Generator) -> Tensor:
        numbers, count = self.numbers("train"), self.epoch_size
        if self.replacement:
            return numbers[torch.randint(count, (size,), generator=generator)]
        return numbers[torch.randperm(count, generator=generator)[:size]]

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        if self.stored:
            yield from self._stored(split, size, pattern)
        else:
            yield from (self.batch(numbers, pattern) for numbers in self.numbers(split).split(size))

    @cached
    def _stored(self, split: Split, size: int, pattern: Pattern) -> list[Batch]:
        return [self.batch(numbers, pattern) for numbers in self.numbers(split).split(size)]


class OneGraph(Task):
    """Every batch is the whole graph; a split only says which outputs the loss reads, so each batch is made once.

    The N nodes have features x [N, C], dense or sparse, and targets [N] or [N, T]; a split holds numbers of nodes. The
    edges may have features e [E, D], in the graph's own order: they are of no use to a pattern: a ConfigError."""

    epoch_size = 1
    splits: Mapping[Split, Tensor]
    whole: type[Batch] = Batch
    """What a batch is."""

    def __init__(
        self,
        graph: Graph,
        x: Tensor | SparseFeatures,
        targets: Tensor,
        splits: Mapping[Split, Tensor],
        e: Tensor | None = None,
    ) -> None:
        self._graph, self._x, self._targets, self.splits, self._e = graph, x, targets, splits, e

    def graph(self, pattern: Pattern = None) -> Graph:
        """The data's own graph, or a pattern over the nodes in their order."""
        if self._e is not None and not given(pattern):
            own = "belong to its own graph: the recipe's graph must be 'given'"
            raise ConfigError(f"the features of {self.name}'s edges {own}")
        return self._graph if given(pattern) else self.laid(pattern, complete, self._graph.num_receivers)

    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> Batch:
        """The whole graph, read at the training nodes; `size` and `generator` have nothing to choose."""
        return self.batch("train", pattern)

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        yield self.batch(split, pattern)

    @cached
    def batch(self, split: Split, pattern: Pattern) -> Batch:
        """The whole graph, read at the split's nodes."""
        rows = self.splits[split]
        return self.whole(self.graph(pattern), self._x, self._targets[rows], rows, self._e)
