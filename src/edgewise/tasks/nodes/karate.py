"""Zachary's karate club: 34 members, 78 friendships, and the two clubs that they split into. Embedded, real."""

from __future__ import annotations

import torch

from edgewise.data.splits import Splits
from edgewise.graphs import Graph
from edgewise.tasks.nodes.classification import NodeClassification, Nodes


def karate(loops: bool = False, weights: bool = False) -> NodeClassification:
    """Guess each member's club from the friendships, knowing only the instructor's and the administrator's.

    Nodes are the members with one-hot features; edges are friendships, both ways. The two leaders (nodes 0
    and 33) are the training set; of the others the 16 even numbers are the validation set and the 16 odd ones the test
    set.

    Reference   Zachary 1977, as distributed with networkx

    Args:
        loops: Let every member attend to itself as well. Off by default, because layers that want self-loops (GCN,
            GAT) add them and others (GIN, GraphSAGE) treat the node itself apart.
        weights: Give each friendship's weight, in how many places the two met, divided by the mean: A_ij [E, 1], for a
            model that reads features of edges. A member's own loop, where there is one, has the weight 1.

    Example
        >>> task = karate()
        >>> task.graph().num_receivers, task.graph().num_edges, task.nodes.classes
        (34, 156, ('Mr. Hi', 'Officer'))
    """
    import networkx

    club = networkx.karate_club_graph()
    friends = torch.tensor(list(club.edges)).T
    alone = torch.arange(len(club) if loops else 0).expand(2, -1)
    graph = Graph.from_edge_index(torch.cat([friends, friends.flip(0), alone], 1), len(club))
    classes = ("Mr. Hi", "Officer")
    labels = torch.tensor([classes.index(club.nodes[member]["club"]) for member in sorted(club)])
    splits: Splits = {"train": torch.tensor([0, 33]), "valid": torch.arange(2, 33, 2), "test": torch.arange(1, 33, 2)}
    met = torch.tensor([float(weight) for *_, weight in club.edges(data="weight")])
    e = torch.cat([met / met.mean(), met / met.mean(), torch.ones(alone.shape[1])])
    known = graph.sort_edges(e[:, None]) if weights else None
    return NodeClassification("karate", Nodes(graph, torch.eye(len(club)), labels, classes, splits, known))
