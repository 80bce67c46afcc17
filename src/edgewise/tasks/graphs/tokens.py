"""Graphs as sequences: node after node in the order of a search, each followed by the earlier nodes it is linked to."""

from collections.abc import Sequence

import torch
from torch import Tensor

from edgewise.errors import DataError
from edgewise.graphs import Graph
from edgewise.graphs.comparison import undirected
from edgewise.graphs.derived import cached

END = 0  # before the first node and after the last one


@cached
def _lists(graph: Graph) -> tuple[list[int], list[int]]:
    """Senders and offsets, for loops in Python."""
    return graph.senders.tolist(), graph.offsets.tolist()


def breadth_first(graph: Graph, generator: torch.Generator | None = None) -> list[int]:
    """The nodes in the order in which a breadth-first search from a random node meets them.

    Edge cases  neighbours are met in a random order, the same for all nodes; components follow one another
    Cost        O(N log N + E log E)
    Reference   You et al., "GraphRNN", 2018, §2.3.4

    >>> breadth_first(Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], num_nodes=3)).index(1) < 2  # of a path
    True
    """
    rank = torch.randperm(graph.num_receivers, generator=generator).tolist()
    senders, offsets = _lists(graph)
    order: list[int] = []
    met = [False] * len(rank)
    for start in sorted(range(len(rank)), key=rank.__getitem__):
        queue = [] if met[start] else [start]
        met[start] = True
        for node in queue:
            near = [j for j in set(senders[offsets[node] : offsets[node + 1]]) if not met[j]]
            for j in near:
                met[j] = True
            queue += sorted(near, key=rank.__getitem__)
        order += queue
    return order


def most_linked(graph: Graph, generator: torch.Generator | None = None) -> list[int]:
    """The nodes from a random one on, next always one with the most links to those before it.

    Edge cases  among equals a random one; components follow one another
    Cost        O(N² + E)
    Reference   Tarjan & Yannakakis, "Simple linear-time algorithms to test chordality of graphs", 1984
                (maximum cardinality search)

    >>> kite = undirected([[0, 0, 1, 2], [1, 2, 2, 3]], 4)  # a triangle with a tail, node 3
    >>> order = most_linked(kite)
    >>> order[-1] == 3 or order[0] == 3 or set(order[:2]) == {2, 3}  # the triangle is not left half-way
    True
    """
    tie = torch.rand(graph.num_receivers, generator=generator).tolist()
    senders, offsets = _lists(graph)
    links = dict.fromkeys(range(graph.num_receivers), 0)  # of each node that is left, to the nodes before it
    order: list[int] = []
    while links:
        node = max(links, key=lambda left: (links[left], tie[left]))
        del links[node]
        order.append(node)
        for j in set(senders[offsets[node] : offsets[node + 1]]) & links.keys():
            links[j] += 1
    return order


ORDERS = {"breadth-first": breadth_first, "most-linked": most_linked}


class GraphTokens:
    """The tokens of graphs of at most `most` nodes: END, "node k comes" and "it is linked to the earlier node j".

    Equation    END, N_1, N_2, L_j ..., N_3, L_j ..., ..., END;  each L_j after N_k has j < k, and they ascend
    Symbols     N_k = k and L_j = most + j, counted from 1; node k = the k-th node of the order

    Example
        >>> tokens = GraphTokens(most=3)
        >>> path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], num_nodes=3)
        >>> tokens.encode(path, [1, 0, 2])  # the middle, an end linked to node 1, the other end likewise
        [0, 1, 2, 4, 3, 4, 0]
        >>> tokens.decode([0, 1, 2, 4, 3, 4, 0]).num_edges
        4
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.size = 1 + 2 * most

    def encode(self, graph: Graph, order: Sequence[int]) -> list[int]:
        """The sequence of a graph, its nodes in that order; more than `most` nodes are a DataError."""
        if graph.num_receivers > self.most:
            raise DataError(f"a graph of {graph.num_receivers} nodes has no tokens: there are those of {self.most}")
        senders, offsets = _lists(graph)
        place = {node: k for k, node in enumerate(order, 1)}
        tokens = [END]
        for node, k in place.items():
            earlier = {place[j] for j in senders[offsets[node] : offsets[node + 1]] if place[j] < k}
            tokens += [k, *(self.most + j for j in sorted(earlier))]
        return [*tokens, END]

    def decode(self, tokens: Sequence[int] | Tensor) -> Graph | None:
        """The graph of a sequence, up to its second END; None where it breaks the rules above."""
        first, *rest = tokens.tolist() if isinstance(tokens, Tensor) else tokens
        if first != END or END not in rest:
            return None
        node, last, links = 0, self.most, []
        for token in rest[: rest.index(END)]:
            if token == node + 1 and token <= self.most:
                node, last = token, self.most
            elif last < token < self.most + node:
                last = token
                links.append((node - 1, token - self.most - 1))
            else:
                return None
        return undirected(torch.tensor(links, dtype=torch.int64).view(-1, 2).T, node) if node else None

    def allowed(self, tokens: Tensor) -> Tensor:
        """Which tokens may follow each token of sequences that keep the rules, in a row: [*, n] -> [*, n, size].

        After END comes the first node of a graph; after a node or a link, a later link, the next node or END.

        >>> GraphTokens(most=3).allowed(torch.tensor([0, 1, 2]))[-1].tolist()  # END, node 3, or a link to node 1
        [True, False, False, True, True, False, False]
        """
        token, last = torch.arange(self.size, device=tokens.device), tokens.unsqueeze(-1)
        nodes = ((tokens > END) & (tokens <= self.most)).cumsum(-1)
        node = (nodes - torch.where(tokens == END, nodes, 0).cummax(-1).values).unsqueeze(-1)  # of its own graph
        follows = (token == node + 1) & (token <= self.most)
        link = (token > last.clamp(min=self.most)) & (token < self.most + node)
        return follows | link | ((token == END) & (node > 0))
