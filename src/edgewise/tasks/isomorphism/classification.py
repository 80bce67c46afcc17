"""Which graph of a family is it? Renumbered copies of graphs that are hard to tell apart. Generated."""

from typing import Annotated

import torch

from edgewise.configuration import OneOf, chosen
from edgewise.data.splits import cut
from edgewise.errors import ConfigError
from edgewise.tasks.graphs.prediction import GraphClassification, Graphs
from edgewise.tasks.isomorphism.families import FAMILIES, SKIPS, Family


def isomorphism(
    family: Annotated[str, OneOf(FAMILIES)] = "sr251256", copies: int = 10, seed: int = 0
) -> GraphClassification:
    """Tell the graphs of a family apart, each given in copies whose nodes are numbered at random: a class is a graph.

    A model that cannot tell two graphs apart gets at most one of them right. Of the copies of each class, three fifths
    train, one fifth validates and one fifth tests.

    Args:
        family: Which graphs, from those that 1-WL tells apart to those that 2-WL does not.
        copies: Graphs of each class.
        seed: Chooses the numbering of the nodes.

    Example
        >>> task = isomorphism("shrikhande", copies=5)
        >>> len(task.graphs.members), task.graphs.members[0], task.epoch_size
        (10, Graph(16 receivers, 16 senders, 96 edges), 6)
    """
    made = chosen("family", family, FAMILIES)()
    return _copied("isomorphism", made, tuple(map(str, range(len(made.graphs)))), copies, seed)


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
    return _copied("skip-links", FAMILIES["skip-links"](), tuple(map(str, SKIPS)), copies, seed)


def _copied(name: str, family: Family, classes: tuple[str, ...], copies: int, seed: int) -> GraphClassification:
    if copies < 5:
        raise ConfigError(f"copies={copies} must be at least 5: three train, one validates, one tests")
    generator = torch.Generator().manual_seed(seed)
    graphs, x = [], []
    for number, graph in enumerate(family.graphs):
        for _ in range(copies):
            order = torch.randperm(graph.num_receivers, generator=generator)
            graphs.append(graph.permute(order))
            x.append(family.features(number)[order].float())
    number_of = torch.arange(len(graphs)).view(len(classes), copies)
    splits = cut(number_of, (copies * 3 // 5, copies * 4 // 5), dim=1)
    labels = torch.arange(len(classes)).repeat_interleave(copies)
    return GraphClassification(name, Graphs(tuple(graphs), torch.cat(x), labels, splits, classes))
