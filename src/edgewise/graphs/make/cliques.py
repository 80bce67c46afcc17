"""Cliques, sets of nodes all linked with one another, counted at each node: what Weisfeiler-Lehman tests cannot do."""

import torch
from torch import Tensor

from edgewise.graphs.checks import whole_number
from edgewise.graphs.graph import Graph


def clique_counts(graph: Graph, largest: int = 5) -> Tensor:
    """How many cliques of 3, 4, ..., `largest` nodes each node is in.

    Shapes      -> [N, largest - 2], float64
    Errors      GraphError for a graph whose receivers are not its senders, or a largest clique of fewer than 3
    Edge cases  directions, self-loops and parallel edges do not count
    Cost        time that of listing the cliques, many where the graph is dense; O(N²) bits
    Reference   Bouritsas et al., "Improving graph neural network expressivity via subgraph isomorphism counting", 2020

    >>> from edgewise.graphs.patterns.blocks import complete
    >>> clique_counts(complete(4), 4)[0].tolist()  # a node of K4 is in 3 triangles and 1 clique of 4
    [3.0, 1.0]
    """
    graph.require_square("a count of cliques")
    counts = torch.zeros(graph.num_receivers, whole_number(largest, "largest", least=3) - 2, dtype=torch.float64)
    neighbors = [0] * graph.num_receivers
    for i, j in graph.symmetrise().remove_self_loops().edge_index().T.tolist():
        neighbors[i] |= 1 << j
    # Each clique, and as bits the later nodes that would make it larger.
    stack = [([i], others >> (i + 1) << (i + 1)) for i, others in enumerate(neighbors)]
    members: list[list[int]] = [[] for _ in range(counts.shape[1])]
    while stack:
        clique, common = stack.pop()
        if len(clique) > 2:
            members[len(clique) - 3] += clique
        while common and len(clique) < largest:
            node = common.bit_length() - 1
            common ^= 1 << node
            stack.append(([*clique, node], common & neighbors[node]))
    for size, nodes in enumerate(members):
        counts[:, size] = torch.bincount(torch.tensor(nodes, dtype=torch.int64), minlength=len(counts))
    return counts.to(graph.device)
