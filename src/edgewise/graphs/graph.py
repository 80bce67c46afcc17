"""Graph: for every receiver i, the senders N(i) that it listens to. It holds no features."""

from edgewise.graphs.algebra import Algebra
from edgewise.graphs.exchange import Exchange


class Graph(Algebra, Exchange):
    """Who listens to whom; immutable, and checked once, when it is built.

    Three exact forms, each lowered to the next on demand and cached: a rule (a predicate on positions), ranges (a few
    sender intervals per receiver) and edges (CSR: receiver by receiver, senders ascending, parallel edges in the
    caller's order).

    Symbols     I = num_receivers, J = num_senders, E = num_edges; receiver i sits at position i + offset
    Errors      GraphError names the edge and the bound
    Edge cases  isolated nodes, no nodes, no edges, self-loops and parallel edges are all legal
    Cost        a rule costs nothing until it is lowered; ranges O(I * R), edges O(E)

    >>> graph = Graph.from_edge_index([[0, 2, 1], [1, 1, 0]], num_nodes=3)  # 1 listens to 0 and 2; 0 listens to 1
    >>> graph
    Graph(3 receivers, 3 senders, 3 edges)
    >>> graph.offsets.tolist(), graph.senders.tolist()
    ([0, 1, 3, 3], [1, 0, 2])
    """


def draw(graph: Graph) -> str:
    """The graph as text: row = receiver, column = sender, '#' where i listens to j.

    >>> print(draw(Graph.from_edge_index([[0, 2, 1], [0, 1, 2]], num_nodes=3)))
    #..
    ..#
    .#.
    """
    return "\n".join("".join("#" if listens else "." for listens in row) for row in graph.dense_mask().tolist())
