"""Node classification on a few nodes at a time and some of their neighbours, for graphs of any size."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from edgewise.configuration import convert
from edgewise.errors import ConfigError
from edgewise.graphs import Graph, LayerSample, Neighborhood, Sample, importance, sample_layers, sample_neighbors
from edgewise.graphs.derived import cached
from edgewise.layers.graph.gcn import renormalised
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.task import Parts, Pattern, check_range
from edgewise.tasks.nodes.classification import NodeClassification, Nodes

Rows = Tensor | SparseFeatures
MOST_WORKERS = 64


@dataclass
class SampledBatch(Batch):
    """Some seeds and, for each layer, some of their neighbours: `x` is of all these nodes, the outputs of the seeds."""

    graph: Sample | LayerSample | Neighborhood

    divisible = False

    @property
    def inputs(self) -> tuple[Any, ...]:
        """Features of a store wait in its own type, half as large, and become float32 when they are read first."""
        if isinstance(self.x, Tensor) and self.x.dtype.itemsize < 4:
            self.x = self.x.float()
        return super().inputs


class SampledNodes(NodeClassification):
    """Node classification that trains on a few nodes at a time and some of their neighbours, hop by hop.

    Equation    each step: seeds B drawn from the training nodes, y_B = f(B's sampled neighbourhood)      (Alg. 2)
    Cost        a step reads at most |B| Π (1 + fan-out) nodes, whatever the size of the graph
    Edge cases  inductive: training reads only the graph that the training nodes induce; other nodes, their features
                and their edges are first seen in evaluation, which reads all neighbours of the whole graph
    Reference   Hamilton, Ying & Leskovec, "Inductive representation learning on large graphs", 2017

    Without fan-outs it trains on the whole training graph at once; the options are those of `planted`. Which neighbours
    are drawn depends on the generator, the hop and the node alone, so that a part of the seeds draws what all would.
    """

    sampled: type[SampledBatch] = SampledBatch
    """What a batch of sampled neighbours is."""

    def __init__(
        self,
        name: str,
        nodes: Nodes,
        fanouts: tuple[int, ...],
        inductive: bool = True,
        layerwise: bool = False,
        workers: int = 0,
    ) -> None:
        super().__init__(name, nodes)
        check_range(0, MOST_WORKERS, workers=workers)
        fanouts = fanouts_of(fanouts)
        if nodes.e is not None and (fanouts or inductive):
            whole = "are read with the whole graph: leave out task.fanouts, or the features"
            raise ConfigError(f"the features of {name}'s edges {whole}")
        self.workers = workers if fanouts else 0  # without fan-outs there is one batch
        self.fanouts, self.inductive, self.layerwise = fanouts, inductive, layerwise
        idle = {"workers": workers, "layerwise": layerwise} if not fanouts else {}
        self.idle = tuple(f"task.{name} has no effect without task.fanouts" for name, given in idle.items() if given)
        if fanouts:
            self.epoch_size = len(nodes.splits["train"])

    @cached
    def seen(self, pattern: Pattern = None) -> tuple[Graph, Rows, Tensor, Tensor]:
        """What training may see: a graph, its nodes' features and labels, and which of them are training nodes."""
        graph, x, train = self.graph(pattern), self.nodes.x, self.nodes.splits["train"]
        if not self.inductive:
            return graph, x, self.nodes.labels, train
        return graph.subgraph(train), x[train], self.nodes.labels[train], torch.arange(len(train))

    @cached
    def _whole(self, pattern: Pattern) -> Batch:
        graph, x, labels, train = self.seen(pattern)
        return self.whole(graph, x, labels[train], train, None if self.inductive else self.nodes.e)

    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> Batch:
        """`size` different training nodes with some of their neighbours; without fan-outs all of them with all."""
        return self.train_parts(size, generator, pattern, Parts(1, range(1)))[1][0]

    def train_parts(
        self, size: int, generator: torch.Generator, pattern: Pattern, parts: Parts
    ) -> tuple[int, list[Batch]]:
        if not self.fanouts:
            return parts.of_one(self._whole(pattern))
        graph, x, labels, train = self.seen(pattern)
        # Drawn with repetitions, of which few are there: a permutation of all nodes would cost more than the step.
        seeds = train[torch.randint(len(train), (size,), generator=generator)].unique()
        if self.layerwise or len(seeds) < parts.count:  # what is drawn for a layer depends on all seeds
            return parts.of_one(self._sampled(graph, x, labels, seeds, generator))
        state, pieces = generator.get_state(), seeds.tensor_split(parts.count)
        alike = [torch.Generator().set_state(state) for _ in parts.mine]
        mine = [self._sampled(graph, x, labels, pieces[n], own) for n, own in zip(parts.mine, alike, strict=True)]
        return self._terms(labels[seeds]), mine

    def _sampled(self, graph: Graph, x: Rows, labels: Tensor, seeds: Tensor, generator: torch.Generator) -> Batch:
        sample: Sample | LayerSample
        if self.layerwise:
            assert isinstance(x, Tensor)
            loops, entries = renormalised(graph, x.dtype)
            sample = sample_layers(loops, entries, _importance(loops, x.dtype), seeds, self.fanouts, generator)
        else:
            sample = sample_neighbors(graph, seeds, self.fanouts, generator)
        return self.sampled(sample, self._features(x, sample.nodes), self._targets_of(labels[seeds]))

    def _features(self, x: Rows, nodes: Tensor) -> Rows:
        # A quarter of the time of x[nodes].
        return x.index_select(0, nodes) if isinstance(x, Tensor) else x[nodes]

    def _terms(self, labels: Tensor) -> int:
        """The terms of the mean loss of nodes with these labels."""
        return len(labels)

    def _targets_of(self, labels: Tensor) -> Tensor:
        """Labels as the loss compares them: classes may be stored in fewer bytes."""
        return labels.long()


def fanouts_of(given: Any) -> tuple[int, ...]:
    """Numbers of neighbours, from any sequence of whole numbers, an array or a tensor.

    Errors      ConfigError for what are no such numbers

    >>> fanouts_of(torch.tensor([10, -1]))
    (10, -1)
    >>> fanouts_of((10, -2))
    Traceback (most recent call last):
    edgewise.errors.ConfigError: task.fanouts are numbers of neighbours, or -1 for all of them, not [10, -2]
    """
    fanouts: tuple[int, ...] = convert(given, tuple[int, ...], "task.fanouts")
    if any(fanout < -1 for fanout in fanouts):
        raise ConfigError(f"task.fanouts are numbers of neighbours, or -1 for all of them, not {list(fanouts)}")
    return fanouts


@cached
def _importance(loops: Graph, dtype: torch.dtype) -> Tensor:
    return importance(*renormalised(loops, dtype))
