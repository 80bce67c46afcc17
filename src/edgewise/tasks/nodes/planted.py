"""A generated graph with planted classes, as large as you like, and training on sampled neighbours of a few nodes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self, cast

import torch
from torch import Tensor

from edgewise.errors import ConfigError
from edgewise.graphs import Graph, LayerSample, Sample, importance, sample_layers, sample_neighbors
from edgewise.graphs.derived import cached
from edgewise.layers.graph.gcn import renormalised
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.splits import ascending, cut
from edgewise.tasks.core.task import Pattern, check_range
from edgewise.tasks.nodes.classification import NodeClassification, Nodes

MOST_WORKERS = 64


@dataclass
class SampledBatch(Batch):
    """Some seeds and, for each layer, some of their neighbours: `x` is of all these nodes, the outputs of the seeds."""

    graph: Sample | LayerSample

    def split(self, parts: int) -> list[Self]:
        return [self] * parts


class SampledNodes(NodeClassification):
    """Node classification that trains on a few nodes at a time and some of their neighbours, hop by hop.

    Equation    each step: seeds B drawn from the training nodes, y_B = f(B's sampled neighbourhood)      (Alg. 2)
    Cost        a step reads at most |B| Π (1 + fan-out) nodes, whatever the size of the graph
    Edge cases  inductive: training reads only the graph that the training nodes induce; other nodes, their features
                and their edges are first seen in evaluation, which reads all neighbours of the whole graph
    Reference   Hamilton, Ying & Leskovec, "Inductive representation learning on large graphs", 2017

    Without fan-outs it trains on the whole training graph at once; the options are those of `planted`.
    """

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
        self.workers = workers if fanouts else 0  # without fan-outs there is one batch
        self.fanouts, self.inductive, self.layerwise = fanouts, inductive, layerwise
        if fanouts:
            self.epoch_size = len(nodes.splits["train"])

    @cached
    def seen(self, pattern: Pattern = None) -> tuple[Graph, Tensor, Tensor, Tensor]:
        """What training may see: a graph, its nodes' features and labels, and which of them are training nodes."""
        graph, x, train = self.graph(pattern), cast(Tensor, self.nodes.x), self.nodes.splits["train"]
        if not self.inductive:
            return graph, x, self.nodes.labels, train
        return graph.subgraph(train), x[train], self.nodes.labels[train], torch.arange(len(train))

    @cached
    def _whole(self, pattern: Pattern) -> Batch:
        graph, x, labels, train = self.seen(pattern)
        return Batch(graph, x, labels[train], train)

    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> Batch:
        """`size` different training nodes with some of their neighbours; without fan-outs all of them with all."""
        if not self.fanouts:
            return self._whole(pattern)
        graph, x, labels, train = self.seen(pattern)
        # Drawn with repetitions, of which few are there: a permutation of all nodes would cost more than the step.
        seeds = train[torch.randint(len(train), (size,), generator=generator)].unique()
        sample: Sample | LayerSample
        if self.layerwise:
            loops, entries = renormalised(graph, x.dtype)
            sample = sample_layers(loops, entries, _importance(loops, x.dtype), seeds, self.fanouts, generator)
        else:
            sample = sample_neighbors(graph, seeds, self.fanouts, generator)
        return SampledBatch(sample, x[sample.nodes], labels[seeds])


@cached
def _importance(loops: Graph, dtype: torch.dtype) -> Tensor:
    return importance(*renormalised(loops, dtype))


def planted(
    nodes: int = 100_000,
    degree: int = 10,
    classes: int = 8,
    channels: int = 16,
    same: float = 0.6,
    signal: float = 0.3,
    fanouts: tuple[int, ...] = (5, 5),
    inductive: bool = True,
    layerwise: bool = False,
    workers: int = 0,
    generated: int = 0,
) -> SampledNodes:
    """Guess the planted classes of a generated graph's nodes, on sampled neighbours, for graphs of any size.

    Each node has a class, evenly drawn; it attends to `degree` others, each drawn from its own class with probability
    `same` and from all nodes else. Its features are normal noise of deviation 1 around its class's centre, and the
    centres are normal with deviation `signal`. Half of the nodes train, a quarter chooses the weights, a quarter tests.

    Reference   Holland, Laskey & Leinhardt 1983 (stochastic block models); Hamilton et al. 2017 (sampling)

    Args:
        nodes: How many nodes.
        degree: How many others each node attends to.
        classes: How many classes.
        channels: Width of the features.
        same: How often a neighbour is drawn from the node's own class.
        signal: Deviation of the classes' centres, beside noise of deviation 1.
        fanouts: Neighbours to draw in each hop of training, one number per layer. Empty: all nodes at once.
        inductive: Hide all but the training nodes, and their edges, from training.
        layerwise: Draw `fanouts` senders for each layer by importance among all nodes (FastGCN), not neighbours.
        workers: Threads that draw the batches of the next steps while this one trains; 0: each is drawn when it is
            needed. The batches are the same.
        generated: Seed of the generator.
    """
    if min(nodes, degree, classes, channels) < 1 or nodes < 8 * classes:
        raise ConfigError(
            "the numbers of nodes, neighbours, classes and channels must be at least 1, nodes 8 per class"
        )
    if not 0 <= same <= 1 or signal < 0:
        raise ConfigError(f"task.same must be from 0 to 1 and task.signal at least 0, not {same} and {signal}")
    draw = torch.Generator().manual_seed(generated)
    labels = torch.arange(nodes) % classes  # evenly; which number a node has means nothing
    receivers = torch.arange(nodes).repeat_interleave(degree)
    anyone = torch.randint(nodes, (nodes * degree,), generator=draw)
    own = torch.randint(nodes // classes, (nodes * degree,), generator=draw) * classes + labels[receivers]
    senders = torch.where(torch.rand(nodes * degree, generator=draw) < same, own, anyone)
    centres = signal * torch.randn(classes, channels, generator=draw)
    x = centres[labels] + torch.randn(nodes, channels, generator=draw)
    order = torch.randperm(nodes, generator=draw)
    splits = ascending(cut(order, (nodes // 2, nodes // 2 + nodes // 4)))
    graph = Graph.from_edge_index(torch.stack([senders, receivers]), nodes)
    names = tuple(f"class {c}" for c in range(classes))
    return SampledNodes("planted", Nodes(graph, x, labels, names, splits), fanouts, inductive, layerwise, workers)
