"""A generated graph with planted classes, as large as you like, and training on sampled neighbours of a few nodes."""

from __future__ import annotations

import torch

from edgewise.data.splits import ascending, cut
from edgewise.errors import ConfigError
from edgewise.graphs import Graph
from edgewise.tasks.nodes.classification import NodeClassification, Nodes
from edgewise.tasks.nodes.sampled import SampledNodes


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
) -> NodeClassification:
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
