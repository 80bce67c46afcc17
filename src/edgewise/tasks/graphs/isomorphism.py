"""Which graph of a family is it? Renumbered copies of graphs that are hard to tell apart. Generated."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor

from edgewise.configuration import OneOf, chosen
from edgewise.data.splits import cut
from edgewise.errors import ConfigError, DataError
from edgewise.files import decode, read_bytes
from edgewise.graphs import Graph
from edgewise.graphs.make.regular import cai_furer_immerman, catalogue, circulant, random_lift
from edgewise.graphs.refinement import refinement_classes
from edgewise.tasks.graphs.prediction import GraphClassification, Graphs


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


NODES = 41
SKIPS = (2, 3, 4, 5, 6, 9, 11, 12, 13, 16)
DRAWN = 10  # graphs of a random family
MAX_BYTES, MAX_NODES, MAX_PAIRS = 1 << 22, 256, 1000  # of a file of pairs: 2-WL takes O(N³) time a round


@dataclass(frozen=True)
class Family:
    """Graphs of which no two that are compared are isomorphic.

    Args:
        name: What they are.
        graphs: The graphs.
        colors: Of each graph the colours of its nodes, int64 [N]; none where all nodes are alike.
        compared: The pairs that are compared; None: all.
    """

    name: str
    graphs: tuple[Graph, ...]
    colors: tuple[Tensor, ...] = ()
    compared: tuple[tuple[int, int], ...] | None = None

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The pairs that are compared, as numbers of graphs."""
        return list(combinations(range(len(self.graphs)), 2) if self.compared is None else self.compared)

    def features(self, number: int) -> Tensor:
        """The features of a graph's nodes: 1 + their colour, float64 [N, 1]."""
        ones = torch.ones(self.graphs[number].num_receivers, 1, dtype=torch.float64)
        return ones + self.colors[number][:, None] if self.colors else ones


def multisets() -> Family:
    """What two centres listen to, four nodes of either of two colours in all, shared out between them in all ways.

    What a sum, a mean and a maximum over neighbours tell apart differs most here; what a readout of all nodes sees, the
    number of nodes of each colour, is the same in all.

    Reference   Xu et al., "How powerful are graph neural networks?", 2019, §5

    Example
        >>> len(multisets().graphs)
        12
    """
    shares = [(i, j) for i, j in product(range(5), repeat=2) if (0, 0) < (i, j) <= (4 - i, 4 - j)]
    colors = torch.tensor([0] * 2 + [1] * 4 + [2] * 4)
    graphs = []
    for share in shares:
        centres = torch.tensor([int(number >= first) for first in share for number in range(4)])
        graphs.append(Graph.from_edge_index(torch.stack([torch.arange(2, 10), centres]), 10))
    return Family("multisets of Xu et al.", tuple(graphs), (colors,) * len(graphs))


def trees() -> Family:
    """Random trees of 12 nodes, uniformly drawn by their Prüfer sequences."""
    return Family("random trees", _distinct(map(_tree, _generators()), 1))


def random_graphs() -> Family:
    """Random graphs of 12 nodes and 20 edges."""
    return Family("random graphs", _distinct((_random(12, 20, generator) for generator in _generators()), 1))


def hexagon() -> Family:
    """A ring of six nodes, and two of three."""
    return Family("hexagon, two triangles", (circulant(6, [1]), _union(circulant(3, [1]), circulant(3, [1]))))


def decalin() -> Family:
    """Two molecules of ten carbon atoms: two rings of six with a common bond, two rings of five with one between."""
    ring, five = circulant(10, [1]), circulant(5, [1])
    return Family("decalin, bicyclopentyl", (_linked(ring, 0, 5), _linked(_union(five, five), 0, 5)))


def chorded_rings() -> Family:
    """Circular skip links: rings of 41 nodes with chords, ten kinds."""
    return Family("circular skip links", tuple(circulant(NODES, (1, skip)) for skip in SKIPS))


def regular() -> Family:
    """Random graphs of 12 nodes with 3 neighbours each."""
    return Family("random cubic", _distinct((_cubic(12, generator) for generator in _generators()), 2))


def lifts() -> Family:
    """Random double covers of one random graph of 8 nodes and 12 edges: an extension of it that 1-WL cannot see."""
    base = _random(8, 12, torch.Generator().manual_seed(0))
    return Family("lifts of one graph", _distinct((random_lift(base, generator) for generator in _generators()), 2))


def cfi_2() -> Family:
    """Cai-Fürer-Immerman pairs over bases of treewidth 2: 1-WL cannot tell them apart, 2-WL can."""
    import networkx as nx

    cactus = [(0, 1), (1, 2), (2, 0), (2, 3), (3, 4), (4, 2), (4, 5), (5, 6), (6, 4)]
    fan = [*nx.path_graph(4).edges, *((4, i) for i in range(4))]
    bases = [fan, cactus, nx.complete_bipartite_graph(2, 3).edges, nx.cycle_graph(5).edges]
    return _twisted("CFI, treewidth 2", [*bases, *(nx.ladder_graph(rungs).edges for rungs in (2, 3, 4, 5, 6))])


def cfi_3() -> Family:
    """Cai-Fürer-Immerman pairs over bases of treewidth 3, K4 and K33 among them: 2-WL cannot tell them apart."""
    import networkx as nx

    bases = nx.complete_graph(4), nx.wheel_graph(5), nx.circular_ladder_graph(3), nx.complete_bipartite_graph(3, 3)
    return _twisted("CFI, treewidth 3", [base.edges for base in bases])


def cfi_4() -> Family:
    """Cai-Fürer-Immerman pairs over bases of treewidth 4: a Möbius ladder of 8 nodes, K5 and Petersen's graph."""
    import networkx as nx

    bases = nx.circulant_graph(8, [1, 4]), nx.complete_graph(5), nx.petersen_graph()
    return _twisted("CFI, treewidth 4", [base.edges for base in bases])


FAMILIES: dict[str, Callable[[], Family]] = {
    "multisets": multisets,
    "trees": trees,
    "random": random_graphs,
    "hexagon": hexagon,
    "decalin": decalin,
    "skip-links": chorded_rings,
    "regular": regular,
    "lifts": lifts,
    "cfi-2": cfi_2,
    "shrikhande": lambda: Family("rook's 4 × 4, Shrikhande", catalogue(16)),
    "sr251256": lambda: Family("sr251256", catalogue(25)),
    "chang": lambda: Family("triangular, Chang", catalogue(28)),
    "biplanes": lambda: Family("distance-regular", catalogue(32)),
    "quadrangles": lambda: Family("4-vertex condition", catalogue(40)),
    "cfi-3": cfi_3,
    "cfi-4": cfi_4,
}
"""From families that 1-WL splits, over those that only 2-WL does, to those that neither does."""


def read_pairs(path: Path) -> Family:
    """The pairs of a file in graph6, two lines a pair: lines 1 and 2, lines 3 and 4, and so on.

    Errors      DataError that names the file and the line: not graph6, an odd number of graphs, a graph of more than
                MAX_NODES nodes, more than MAX_PAIRS pairs, a file of more than MAX_BYTES
    Edge cases  blank lines do not count
    """
    graphs = []
    for number, line in enumerate(decode(path, read_bytes(path, MAX_BYTES)).splitlines(), 1):
        if not line.strip():
            continue
        try:
            graphs.append(Graph.from_graph6(line))
        except DataError as error:
            raise DataError(f"{path}, line {number}: {error}") from error
        if graphs[-1].num_receivers > MAX_NODES:
            nodes = graphs[-1].num_receivers
            raise DataError(f"{path}, line {number}: a graph of {nodes} nodes; at most {MAX_NODES} can be compared")
        if len(graphs) > 2 * MAX_PAIRS:
            raise DataError(f"{path}, line {number}: more than {MAX_PAIRS} pairs")
    if not graphs or len(graphs) % 2:
        raise DataError(f"{path}: {len(graphs)} graphs, where each pair needs two lines of graph6")
    numbers = range(0, len(graphs), 2)
    return Family(path.name, tuple(graphs), compared=tuple((number, number + 1) for number in numbers))


def _twisted(name: str, bases: Sequence[Iterable[Sequence[int]]]) -> Family:
    graphs = tuple(cai_furer_immerman(_given([*base]), twisted) for base in bases for twisted in (False, True))
    return Family(name, graphs, compared=tuple((2 * number, 2 * number + 1) for number in range(len(bases))))


def _generators() -> Iterator[torch.Generator]:
    return (torch.Generator().manual_seed(seed) for seed in range(3 * DRAWN))


def _distinct(drawn: Iterator[Graph], order: int) -> tuple[Graph, ...]:
    """The first of each class of the Weisfeiler-Lehman test of that order, DRAWN of them."""
    graphs = list(drawn)
    classes = refinement_classes(graphs, order).tolist()
    firsts = [graph for number, graph in enumerate(graphs) if classes.index(classes[number]) == number]
    return tuple(firsts[:DRAWN])


def _tree(generator: torch.Generator) -> Graph:
    from networkx import from_prufer_sequence

    return _given([*from_prufer_sequence(torch.randint(12, (10,), generator=generator).tolist()).edges])


def _random(nodes: int, edges: int, generator: torch.Generator) -> Graph:
    pairs = torch.combinations(torch.arange(nodes))
    return _given(pairs[torch.randperm(len(pairs), generator=generator)[:edges]].tolist(), nodes)


def _cubic(nodes: int, generator: torch.Generator) -> Graph:
    """Ends of edges matched at random until no edge is a loop or parallel to another."""
    while True:
        ends = torch.arange(nodes).repeat(3)[torch.randperm(3 * nodes, generator=generator)].view(2, -1)
        graph = Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), nodes)
        if not graph.has_duplicates and not graph.has_self_loops:
            return graph


def _given(edges: Sequence[Sequence[int]], nodes: int | None = None) -> Graph:
    ends = torch.tensor(edges).T
    return Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), int(ends.max()) + 1 if nodes is None else nodes)


def _union(first: Graph, second: Graph) -> Graph:
    """Both side by side, as one graph."""
    both = Graph.batch([first, second])
    return Graph.from_edge_index(both.edge_index(), both.num_receivers)


def _linked(graph: Graph, a: int, b: int) -> Graph:
    return Graph.from_edge_index(
        torch.cat([graph.edge_index(), torch.tensor([[a, b], [b, a]])], 1), graph.num_receivers
    )
