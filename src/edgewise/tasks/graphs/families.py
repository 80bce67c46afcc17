"""Families of graphs to learn from, drawn at random: who a member is, and whether a graph could be one."""

from typing import Protocol

import torch

from edgewise.configuration import chosen
from edgewise.data.splits import Split
from edgewise.errors import ConfigError
from edgewise.graphs import Graph, grid, links_of
from edgewise.graphs.comparison import isomorphism_classes, undirected


class Family(Protocol):
    """A law by which graphs are drawn."""

    most: int
    """The largest number of nodes of a member."""
    links: int
    """A number of links that no member exceeds."""

    def draw(self, generator: torch.Generator) -> Graph:
        """A member, whose nodes are numbered in no order that matters."""

    def valid(self, graph: Graph) -> bool:
        """Whether a graph could be a member."""

    def withheld(self, member: Graph) -> bool:
        """Whether a member is held back from training, to see whether a model comes to it by itself."""


class Communities:
    """Two communities: nodes of one are linked with probability 0.7, those of different ones with 0.05.

    Equation    |V_1|, |V_2| ~ uniform on 6..10;  P(i ~ j) = 0.7 within V_1 and within V_2, 0.05 in between
    Edge cases  a graph that does not hang together, or has more than 90 links (never seen), is drawn anew
    Differs     GraphRNN's "community-small" (12 to 20 nodes) has two equal communities
    Reference   You et al., 2018, §4.1
    """

    sizes = range(6, 11)
    inside, between = 0.7, 0.05
    most, links = 20, 90

    def draw(self, generator: torch.Generator) -> Graph:
        while True:
            first, second = torch.randint(6, 11, (2,), generator=generator).tolist()
            member = torch.arange(first + second) < first
            pairs = torch.triu_indices(first + second, first + second, 1)
            chance = torch.where(member[pairs[0]] == member[pairs[1]], self.inside, self.between)
            graph = undirected(pairs[:, torch.rand(len(chance), generator=generator) < chance], first + second)
            if connected(graph) and graph.num_edges <= 2 * self.links:
                return graph

    def valid(self, graph: Graph) -> bool:
        """Connected; cut by the Laplacian's second eigenvector, both parts have 6 to 10 nodes, at least 0.45 of their
        own pairs linked, and at most 0.2 of the pairs in between. So are 98 % of the members, and 8 % of random graphs.
        """
        if not self.sizes[0] * 2 <= graph.num_receivers <= self.most or not connected(graph):
            return False
        a = graph.dense_mask().double()
        vector = torch.linalg.eigh(torch.diag(a.sum(1)) - a).eigenvectors[:, 1]
        parts = vector > 0, vector <= 0
        if not all(int(part.sum()) in self.sizes for part in parts):
            return False
        inside = [a[part][:, part].sum() / (part.sum() * (part.sum() - 1)) for part in parts]
        return bool(min(inside) >= 0.45 and a[parts[0]][:, parts[1]].mean() <= 0.2)

    def withheld(self, member: Graph) -> bool:
        return False


class Grids:
    """Rectangular grids: a × b nodes, each linked to the next one on its left, right, top and bottom.

    Equation    a, b ~ uniform on 3..6
    Edge cases  two shapes are withheld from training
    Differs     GraphRNN's have 10 to 20 nodes a side
    Reference   You et al., 2018, §4.1
    """

    sides = range(3, 7)
    unseen = ((3, 5), (4, 6))
    most, links = 36, 60

    def draw(self, generator: torch.Generator) -> Graph:
        a, b = torch.randint(3, 7, (2,), generator=generator).tolist()
        return self.of(a, b)

    def of(self, a: int, b: int) -> Graph:
        return grid(a, b, neighbors=4, loops=False)

    def valid(self, graph: Graph) -> bool:
        """The very same as a grid whose sides have 3 to 6 nodes, but for the numbering."""
        degrees = graph.in_degrees()
        shapes = [(a, b) for a in self.sides for b in self.sides if a <= b and a * b == graph.num_receivers]
        return any(
            torch.equal(degrees.sort().values, grid.in_degrees().sort().values)
            and len(set(isomorphism_classes([graph, grid]))) == 1
            for grid in (self.of(a, b) for a, b in shapes)
        )

    def withheld(self, member: Graph) -> bool:
        """3 × 5 and 4 × 6, either side first: no other shape has as many nodes."""
        return member.num_receivers in {a * b for a, b in self.unseen}


FAMILIES: dict[str, Family] = {"communities": Communities(), "grids": Grids()}


def family_named(name: str) -> Family:
    """The family of that name; an unknown name is a ConfigError that lists the known ones."""
    return chosen("family", name, FAMILIES)


def draw_splits(family: Family, train: int, test: int, generator: torch.Generator) -> dict[Split, list[Graph]]:
    """`train` members, a tenth as many to choose the weights by, neither with one that is withheld, and `test` others.

    >>> splits = draw_splits(Communities(), 20, 10, torch.Generator().manual_seed(0))
    >>> [len(graphs) for graphs in splits.values()]
    [20, 2, 10]
    """
    if min(train, test) < 10:
        raise ConfigError(f"train={train} and test={test} must be at least 10 graphs each")
    members: list[Graph] = []
    while len(members) < train + train // 10:
        member = family.draw(generator)
        members += [] if family.withheld(member) else [member]
    return {"train": members[:train], "valid": members[train:], "test": [family.draw(generator) for _ in range(test)]}


def connected(graph: Graph) -> bool:
    """Whether a path leads from every node to every other.

    >>> connected(undirected([[0], [1]], 2)), connected(undirected([[0], [1]], 3))
    (True, False)
    """
    i, j = links_of(graph)
    smallest = torch.arange(graph.num_receivers)  # of each node, the smallest number that it is linked to so far
    while True:
        lower = smallest.scatter_reduce(0, torch.cat([i, j]), torch.cat([smallest[j], smallest[i]]), "amin")
        if torch.equal(lower, smallest):
            return bool((lower == 0).all())
        smallest = lower
