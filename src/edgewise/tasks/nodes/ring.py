"""A ring of nodes whose two halves are two classes: a small task without a file."""

from __future__ import annotations

import torch

from edgewise.data.splits import Splits
from edgewise.errors import ConfigError
from edgewise.graphs import Graph
from edgewise.tasks.nodes.classification import NodeClassification, Nodes


def ring(nodes: int = 60) -> NodeClassification:
    """Say on which half of a ring a node lies, from a noisy feature and its neighbours on both sides.

    Reference   made here

    Args:
        nodes: How many nodes the ring has, at least 6.

    Example
        >>> ring(12).graph().num_edges
        24
    """
    if nodes < 6:
        raise ConfigError(f"a ring needs at least 6 nodes, not {nodes}")
    node = torch.arange(nodes)
    edges = torch.cat([torch.stack([node, (node + 1) % nodes]), torch.stack([(node + 1) % nodes, node])], 1)
    labels = (node >= nodes // 2).long()
    noise = torch.randn(nodes, 1, generator=torch.Generator().manual_seed(0))
    splits: Splits = {"train": node[::3], "valid": node[1::3], "test": node[2::3]}
    x = labels.unsqueeze(-1) + 0.5 * noise
    return NodeClassification("ring", Nodes(Graph.from_edge_index(edges, nodes), x, labels, ("left", "right"), splits))
