"""Which rank holds which nodes, where few edges are to cross: by METIS."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs import forms as lowering
from edgewise.graphs.derived import cached
from edgewise.graphs.graph import Graph


@dataclass(frozen=True, eq=False)
class Arranged:
    """A graph whose nodes are numbered part by part.

    Symbols     order = the number that each node had before, [N], so that features follow as x[order]; edges = the same
                of edges, [E]; bounds = where each part begins, and the number of nodes
    """

    graph: Graph
    order: Tensor
    edges: Tensor
    bounds: tuple[int, ...]


@cached
def arranged(graph: Graph, parts: int) -> Arranged:
    """A graph's nodes in parts of about as many nodes each, between which METIS leaves few edges.

    Errors      GraphError without pymetis, or for a graph whose receivers are not its senders
    Edge cases  a part may have no nodes; within a part nodes keep their order
    Cost        O(E) once for a graph, on every rank alike
    Reference   Karypis & Kumar, "A fast and high quality multilevel scheme for partitioning irregular graphs", 1998
    """
    graph.require_square("a partition by METIS")
    try:
        import pymetis
    except ImportError as error:
        advice = "pip install 'edgewise[metis]', or choose train.partition blocks, for nodes numbered along communities"
        raise GraphError(f"train.partition metis needs pymetis, which is not installed: {advice}") from error
    receivers, senders = graph.receivers.cpu(), graph.senders.cpu()
    i, j = torch.cat([receivers, senders]), torch.cat([senders, receivers])
    shape = graph.num_receivers, graph.num_receivers
    offsets, neighbors, _ = lowering.sorted_edges(i[i != j], j[i != j], shape)
    _, membership = pymetis.part_graph(parts, pymetis.CSRAdjacency(offsets.numpy(), neighbors.numpy()))
    part = torch.tensor(membership, dtype=torch.int64)
    order = part.argsort(stable=True)
    place = torch.empty_like(order)
    place[order] = torch.arange(len(order))
    offsets, renumbered, edges = lowering.sorted_edges(place[receivers], place[senders], shape)
    sizes = torch.bincount(part, minlength=parts)
    again = Graph._of(*shape, 0, torch.device("cpu"), offsets=offsets, senders=renumbered).to(graph.device)
    bounds = (0, *sizes.cumsum(0).tolist())
    return Arranged(again, order.to(graph.device), edges.to(graph.device), bounds)
