"""Circular skip links: rings with chords, all alike to message passing, ten classes up to isomorphism. Generated."""

import torch

from edgewise.errors import ConfigError
from edgewise.graphs import Graph
from edgewise.tasks.core.splits import cut
from edgewise.tasks.graphs.prediction import GraphClassification, Graphs

NODES = 41
SKIPS = (2, 3, 4, 5, 6, 9, 11, 12, 13, 16)


def skip_links(copies: int = 15, seed: int = 0) -> GraphClassification:
    """Classify how far the chords of a ring of 41 nodes reach: 2, 3, 4, 5, 6, 9, 11, 12, 13 or 16 nodes.

    Every node has four neighbours and the feature 1, so that message passing, however deep, gives all graphs the same
    output: one in ten right. A graph's nodes are numbered at random. Of the copies of each class, three fifths train,
    one fifth validates and one fifth tests.

    Reference   Murphy et al., "Relational pooling for graph representations", 2019; the split of Dwivedi et al., 2020

    Args:
        copies: Graphs of each class.
        seed: Chooses the numbering of the nodes.

    Example
        >>> task = skip_links()
        >>> len(task.graphs.members), task.graphs.members[0], task.epoch_size
        (150, Graph(41 receivers, 41 senders, 164 edges), 90)
    """
    if copies < 5:
        raise ConfigError(f"copies={copies} must be at least 5: three train, one validates, one tests")
    generator = torch.Generator().manual_seed(seed)
    graphs = tuple(
        ring_with_chords(NODES, skip).permute(torch.randperm(NODES, generator=generator))
        for skip in SKIPS
        for _ in range(copies)
    )
    number = torch.arange(len(graphs)).view(len(SKIPS), copies)
    splits = cut(number, (copies * 3 // 5, copies * 4 // 5), dim=1)
    labels = torch.arange(len(SKIPS)).repeat_interleave(copies)
    x = torch.ones(NODES * len(graphs), 1)
    classes = tuple(str(skip) for skip in SKIPS)
    return GraphClassification("skip-links", Graphs(graphs, x, labels, splits, classes))


def ring_with_chords(nodes: int, skip: int) -> Graph:
    """The circulant graph in which i and j are neighbours where they are 1 or `skip` apart on a ring.

    Example
        >>> ring_with_chords(6, 2).senders[:4].tolist()  # those of node 0
        [1, 2, 4, 5]
    """
    i = torch.arange(nodes)
    ends = torch.cat([torch.stack([i, (i + step) % nodes]) for step in (1, skip)], 1)
    return Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), nodes).coalesce()
