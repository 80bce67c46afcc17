"""Graphs as outputs: written token by token, and judged together; or decoded from the places of their nodes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal, Protocol

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import chosen
from edgewise.data.splits import Split
from edgewise.errors import ConfigError, DataError, counted
from edgewise.graphs import Graph, causal, comparison, grid, links_of
from edgewise.graphs.comparison import isomorphism_classes, undirected
from edgewise.graphs.derived import cached
from edgewise.models.signature import Features, Tokens, language_model
from edgewise.models.text.generation import generate
from edgewise.models.text.sampling import COUNT, Sampling
from edgewise.tasks.core.abilities import Predicts
from edgewise.tasks.core.batch import Batch, NodeTargets, batch_of
from edgewise.tasks.core.classification import Classification
from edgewise.tasks.core.drawing import Drawing, Networks, Output, Section, TextTable
from edgewise.tasks.core.subject import Subject, captured, in_a_row
from edgewise.tasks.core.task import Device, Pattern, given, without_future
from edgewise.tasks.links.prediction import PairBatch

Sequences = list[list[int]]
AT_ONCE = 32  # tokens that are drawn before it is looked whether all graphs have ended
COLUMNS, TRIES = 5, 40  # graphs in a row of a drawing; sequences that a report writes to find graphs to draw


class GraphGeneration(Classification):
    """Write a graph as the sequence of `GraphTokens`, its nodes in an order drawn anew every time.

    Equation    p(G, π) = Π_t p(s_t | s_<t), s = the tokens of G in the order π; loss = -mean_t log p(s_t | s_<t), the
                probabilities being those of the tokens that the rules allow after s_<t
    Symbols     order = how π is drawn: `breadth_first` or `most_linked`
    Scores      of the test split, beside the loss: of `draws` graphs that the model writes, the shares that are valid
                (the family calls them so), novel (the same as no training graph, whatever the numbering) and unique
                (different ones); their degree and clustering MMD² from the test graphs; and those of random graphs of
                the same numbers of nodes and links
    Edge cases  a sequence that does not end within the family's largest numbers of nodes and links is no graph: neither
                valid, novel nor unique, and left out of the MMD
    Errors      DataError for a family without graphs to train on
    Cost        a batch costs what its tokens cost: sequences lie side by side, nothing is padded
    Reference   You et al., "GraphRNN: generating realistic graphs with deep auto-regressive models", 2018
    """

    metric = "loss"
    unit = "graphs"
    generates = "--count 10"

    def __init__(
        self, name: str, family: Family, splits: dict[Split, list[Graph]], draws: int, order: str = "breadth-first"
    ) -> None:
        self.name, self.family, self.draws = name, family, draws
        self.splits: dict[Split, list[Graph]] = splits
        self.order = chosen("order", order, ORDERS)
        self.tokens = GraphTokens(family.most)
        self.length = family.most + family.links + 1  # without the END that is only written
        self.signature = Tokens(self.tokens.size, self.tokens.size, length=self.length)
        self.epoch_size = len(splits["train"])

    def sequence_graph(self, pattern: Pattern = None, length: int | None = None) -> Graph:
        """The graph among the tokens of a sequence: causal, or a pattern in which none attends to a later one."""
        return without_future(self.laid(pattern, causal, self.length if length is None else length))

    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> Batch:
        """`size` training graphs drawn with replacement, each in an order of its own."""
        numbers = torch.randint(self.epoch_size, (size,), generator=generator).tolist()
        return self._batch([self._write(self.splits["train"][number], generator) for number in numbers], pattern)

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        written = self._written(split)
        for first in range(0, len(written), size):
            yield self._batch(written[first : first + size], pattern)

    @cached
    def _written(self, split: Split) -> Sequences:
        generator = torch.Generator().manual_seed(0)
        return [self._write(graph, generator) for graph in self.splits[split]]

    def _write(self, graph: Graph, generator: torch.Generator) -> list[int]:
        return self.tokens.encode(graph, self.order(graph, generator))

    def _batch(self, sequences: Sequences, pattern: Pattern) -> Batch:
        members = tuple(self.sequence_graph(pattern, len(sequence) - 1) for sequence in sequences)
        x = torch.tensor([token for sequence in sequences for token in sequence[:-1]])
        target = torch.tensor([token for sequence in sequences for token in sequence[1:]])
        return NodeTargets.of(members, x, target)

    def ruled(self, outputs: Tensor, batch: Batch) -> Tensor:
        """The outputs [N, C], -∞ for tokens that break the rules."""
        return outputs.masked_fill(~self.tokens.allowed(batch_of(NodeTargets, batch).x), -torch.inf)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return super().loss(self.ruled(outputs, batch), batch)

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        return super().score(self.ruled(outputs, batch), batch)

    @torch.no_grad()
    def sample(
        self,
        model: nn.Module,
        count: int,
        pattern: Pattern = None,
        device: Device = "cpu",
        temperature: float = 1.0,
        seed: int = 0,
    ) -> list[Graph | None]:
        """`count` graphs that a model writes, token by token among those that the rules allow; None where none ends."""
        generator = torch.Generator(device).manual_seed(seed)
        written = torch.full((count, 1), END, device=device)
        writer = language_model(model)
        while count and written.shape[1] <= self.length and not (written[:, 1:] == END).any(1).all():
            steps = min(AT_ONCE, self.length + 1 - written.shape[1])
            ruled: dict[str, Any] = {"generator": generator, "allowed": lambda t: self.tokens.allowed(t)[..., -1, :]}
            written = generate(writer, written, steps, partial(self.sequence_graph, pattern), temperature, **ruled)
        return [self.tokens.decode(sequence) for sequence in written.cpu()]

    def judge(self, model: nn.Module, split: Split, pattern: Pattern, device: Device) -> dict[str, float]:
        """What the model's own graphs look like beside the test graphs: measured once, on the test split."""
        if split != "test":
            return {}
        return self.compare(self.sample(model, self.draws, pattern, device))

    def compare(self, drawn: Sequence[Graph | None]) -> dict[str, float]:
        """The scores of drawn graphs; the MMD are 2, their largest value, where there is none to compare."""
        graphs = [graph for graph in drawn if graph is not None]
        train, test, count = self.splits["train"], self.splits["test"], max(len(drawn), 1)
        classes = comparison.isomorphism_classes([*train, *graphs])
        known, drawn_classes = set(classes[: len(train)]), classes[len(train) :]
        valid = [self.family.valid(graph) for graph in graphs]
        new = [name not in known for name in drawn_classes]
        generator = torch.Generator().manual_seed(0)
        chance = [comparison.random_alike(graph, generator) for graph in test]
        return {
            "valid": sum(valid) / count,
            "novel": sum(new) / count,
            "valid and novel": sum(a and b for a, b in zip(valid, new, strict=True)) / count,
            "unique": len(set(drawn_classes)) / count,
            "degree": comparison.degree_discrepancy(graphs, test) if graphs else 2.0,
            "clustering": comparison.clustering_discrepancy(graphs, test) if graphs else 2.0,
            "degree of random graphs": comparison.degree_discrepancy(chance, test),
            "clustering of random graphs": comparison.clustering_discrepancy(chance, test),
        }

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        yield Section(
            "Generated graphs", lambda: [self.beside(self.sample(model, TRIES, pattern)), *self.compared(scores)]
        )

    def beside(self, sampled: Sequence[Graph | None]) -> Drawing:
        """Test graphs, and the first of some graphs that a model writes."""
        graphs = [graph for graph in sampled if graph is not None]
        shown = [*self.splits["test"][:COLUMNS], *graphs[: 2 * COLUMNS]]
        titles = ["test graphs", *[""] * (COLUMNS - 1), "written by the model", *[""] * len(graphs)]
        failed = len(sampled) - len(graphs)
        caption = f"{failed} of {len(sampled)} sequences did not end: no graph. Graphs of another colour are not valid."
        return Drawing("generated", self._networks(shown, titles), caption)

    def _networks(self, graphs: Sequence[Graph], titles: Sequence[str]) -> Networks:
        """Graphs in rows, valid ones in one colour and the others in another."""
        invalid = [0 if self.family.valid(graph) else 1 for graph in graphs]
        members = [(g, np.full(g.num_receivers, colour)) for g, colour in zip(graphs, invalid, strict=True)]
        return Networks(members, titles, COLUMNS)

    def compared(self, scores: Mapping[str, float]) -> list[TextTable]:
        """The scores of the test split, where they were measured; the discrepancies beside those of random graphs."""
        if not scores:
            return []
        shares = [[name, f"{100 * scores[name]:.1f} %", ""] for name in ("valid", "novel", "valid and novel", "unique")]
        apart = [
            [f"{name} MMD²", f"{scores[name]:.5f}", f"{scores[f'{name} of random graphs']:.5f}"]
            for name in ("degree", "clustering")
        ]
        return [TextTable(["", "the model's graphs", "random graphs, as many nodes and links"], shares + apart)]

    def generate(self, model: nn.Module, pattern: Pattern, sampling: Sampling, device: Device) -> Output:
        """New graphs, at temperature 1 unless another is given, with a drawing of those whose sequences end."""
        sampling.only("graphs", "count", "temperature", "seed")
        temperature = 1.0 if sampling.temperature is None else sampling.temperature
        sampled = self.sample(model, sampling.count or COUNT, pattern, device, temperature, sampling.seed)
        described = [self.described(graph) for graph in sampled]
        lines = [f"{number}: {_sentence(graph)}" for number, graph in enumerate(described)]
        graphs = [graph for graph in sampled if graph is not None]
        drawing = Drawing(f"generated-{sampling.seed}", self._networks(graphs, [""] * len(graphs)))
        return Output({"graphs": described}, {"drawing": drawing} if graphs else {}, "\n".join(lines))

    @property
    def typical(self) -> str:
        return "0"

    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """The graph that the model writes with a seed, given as a number: its links, and whether it is valid."""
        if not (request.strip().isascii() and request.strip().isdigit() and len(request.strip()) < 10):
            raise DataError(f"{request!r} is no seed: give a whole number, by which the graph is drawn")
        (graph,) = self.sample(model, 1, pattern, device, seed=int(request))
        return self.described(graph)

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """The last token of a test graph's sequence, by its number: what the model reads in those before it."""
        graph = self.example(request)
        sequence = self._write(graph, torch.Generator().manual_seed(0))
        batch = self._batch([sequence[:-1]], pattern)
        names = [str(token) for token in sequence[:-2]]
        classes = [str(token) for token in range(self.signature.outputs)]
        draw = in_a_row(names, "The tokens of the sequence.", batch_of(NodeTargets, batch).graph, gap=" ")
        return Subject(batch.inputs, (len(names) - 1,), classes, names=names, draw=draw)

    def described(self, graph: Graph | None) -> dict[str, Any]:
        """A drawn graph as JSON can hold it."""
        if graph is None:
            return {"valid": False}
        links = links_of(graph).T.tolist()
        return {"nodes": graph.num_receivers, "links": links, "valid": self.family.valid(graph)}


def _sentence(described: Mapping[str, Any]) -> str:
    if "nodes" not in described:
        return "the sequence does not end, not valid"
    size = f"{counted(described['nodes'], 'node')}, {counted(len(described['links']), 'link')}"
    return f"{size}, {'valid' if described['valid'] else 'not valid'}"


def graph_generation(
    family: Literal["communities", "grids"] = "communities",
    train: int = 1000,
    test: int = 1000,
    draws: int = 1000,
    seed: int = 0,
    order: Literal["breadth-first", "most-linked"] = "breadth-first",
) -> GraphGeneration:
    """Write graphs of two communities, or rectangular grids, like those that were drawn for training.

    Communities have 6 to 10 nodes each, drawn evenly; 0.7 of the pairs in one are linked and 0.05 of the pairs in
    between. Grids have 3 to 6 nodes a side, drawn evenly; two of their ten shapes are only in the test split. A tenth
    as many graphs as train choose the weights.

    Args:
        family: "communities" or "grids".
        train: Number of training graphs.
        test: Number of test graphs.
        draws: Graphs that the model writes to be judged.
        seed: Chooses all that is random in the data.
        order: The order of a graph's nodes: as a breadth-first search meets them, or next always one with the most
            links to those before it, which goes through one community before it comes to the other.

    Example
        >>> task = graph_generation(train=20, test=10)
        >>> task.epoch_size, len(task.splits["valid"]), task.signature.inputs
        (20, 2, 41)
    """
    if draws < 1:
        raise ConfigError(f"task.draws must be at least 1, not {draws}")
    law = chosen("family", family, FAMILIES)
    splits = draw_splits(law, train, test, torch.Generator().manual_seed(seed))
    return GraphGeneration(family, law, splits, draws, order)


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
    from scipy.sparse.csgraph import connected_components

    return bool(connected_components(graph.to_scipy(), directed=False)[0] == 1)


SURE = 10.0  # the logit of two nodes at one place


def distance_logit(z: Tensor, pairs: Tensor) -> Tensor:
    """The decoder: two nodes are the likelier linked the nearer they are.

    Equation    p(A_ij = 1 | z_i, z_j) = σ(b - ‖z_i - z_j‖²),  b = 10
    Shapes      z [N, D], pairs [2, M] -> [M]
    Differs     the paper learns b, and a factor for the distance; here the encoder learns how far is far
    Reference   Satorras, Hoogeboom & Welling, 2021, §5.2

    Example
        >>> distance_logit(torch.tensor([[0.0], [3.0]]), torch.tensor([[0], [1]]))
        tensor([1.])
    """
    return SURE - (z[pairs[0]] - z[pairs[1]]).square().sum(-1)


class GraphReconstruction(Predicts):
    """The model gives each node of a graph a place, from which alone all links of the graph are to be predicted.

    Equation    loss = mean over all pairs i < j of a graph of -log p(A_ij | z_i, z_j);  f1 = 2 TP / (2 TP + FP + FN), a
                pair being called linked where p > 1/2, over all pairs of a split together
    Symbols     the model's input = noise [N, D], drawn anew for every training batch; its output = z [N, D]
    Cost        a batch costs what its members' pairs cost: nothing is padded
    Reference   Satorras, Hoogeboom & Welling, "E(n) equivariant graph neural networks", 2021, §5.2
    """

    metric = "f1"
    unit = "graphs"

    def __init__(self, name: str, splits: dict[Split, list[Graph]], width: int) -> None:
        if width < 1:
            raise ConfigError(f"task.width must be at least 1, not {width}")
        self.name, self.width = name, width
        self.splits: dict[Split, list[Graph]] = splits
        self.epoch_size = len(splits["train"])
        self.signature = Features(width, width, classes=False)

    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> Batch:
        """`size` different training graphs, or all of them where there are fewer."""
        chosen = torch.randperm(self.epoch_size, generator=generator)[:size].tolist()
        graphs = [self.splits["train"][number] for number in chosen]
        return self._batch(graphs, self._noise(graphs, generator), pattern)

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        yield from self._noisy(split, size, pattern)

    @cached
    def _noisy(self, split: Split, size: int, pattern: Pattern) -> list[Batch]:
        graphs = self.splits[split]
        noise = self._noise(graphs, torch.Generator().manual_seed(0)).split([g.num_receivers for g in graphs])
        parts = (slice(first, first + size) for first in range(0, len(graphs), size))
        return [self._batch(graphs[part], torch.cat(noise[part]), pattern) for part in parts]

    def _noise(self, graphs: Sequence[Graph], generator: torch.Generator) -> Tensor:
        return torch.randn(sum(graph.num_receivers for graph in graphs), self.width, generator=generator)

    def _batch(self, graphs: Sequence[Graph], x: Tensor, pattern: Pattern) -> Batch:
        if not given(pattern):
            raise ConfigError(
                f"{self.name} has graphs of its own, which are to be reconstructed: choose the graph 'given'"
            )
        together = Graph.batch(graphs)
        first = (together.sizes.cumsum(0) - together.sizes).tolist()
        corners = [torch.triu_indices(graph.num_receivers, graph.num_receivers, 1) for graph in graphs]
        pairs = torch.cat([corner + start for corner, start in zip(corners, first, strict=True)], 1)
        n, links = together.num_receivers, links_of(together)
        target = torch.isin(pairs[0] * n + pairs[1], links[0] * n + links[1]).float()
        return PairBatch(together, x, target, pairs=pairs)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        logits = distance_logit(outputs, batch_of(PairBatch, batch).pairs)
        return functional.binary_cross_entropy_with_logits(logits, batch.target.to(logits.dtype))

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        logits, linked = distance_logit(outputs.detach().double(), batch_of(PairBatch, batch).pairs), batch.target > 0
        called = logits > 0
        return {
            "loss": functional.binary_cross_entropy_with_logits(logits, batch.target.double(), reduction="sum"),
            "right": (called & linked).sum().double(),
            "wrong": (called & ~linked).sum().double(),
            "missed": (~called & linked).sum().double(),
            "count": torch.tensor(float(batch.size), dtype=torch.float64, device=logits.device),
        }

    def finish(self, means: dict[str, float]) -> dict[str, float]:
        """F1 is no mean over pairs, but follows from three of them; accuracy, from two."""
        right, wrong, missed = (means.pop(name) for name in ("right", "wrong", "missed"))
        f1 = 2 * right / (2 * right + wrong + missed) if right else 0.0
        return means | {"f1": f1, "accuracy": 1 - wrong - missed}

    @torch.no_grad()
    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """A graph of the data, by a split and a number in it ("test:7"): its links, and the predicted ones."""
        graph = self.example(request)
        noise = self._noise([graph], torch.Generator().manual_seed(0))
        batch = self._batch([graph], noise, pattern).to(device)
        z, pairs = model.eval()(batch.graph, batch.x), batch_of(PairBatch, batch).pairs
        predicted = pairs[:, distance_logit(z, pairs) > 0]
        return {"graph": request, "links": links_of(graph).T.tolist(), "predicted": predicted.T.tolist()}

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        inputs = captured(model, lambda: self.predict(model, pattern, request, "cpu"))
        links = links_of(self.example(request))
        if not links.shape[1]:
            raise DataError(f"{request}: the graph has no link whose reconstruction could be explained")
        pair = links[:, :1]

        def logit(outputs: Tensor) -> Tensor:
            return distance_logit(outputs, pair)

        what = f"the link of {int(pair[0])} and {int(pair[1])}"
        return Subject(inputs, number=logit, shown=lambda outputs: logit(outputs).sigmoid(), what=what)


def graph_reconstruction(
    family: Literal["communities", "grids"] = "communities",
    width: int = 8,
    train: int = 3000,
    test: int = 1000,
    seed: int = 0,
) -> GraphReconstruction:
    """Keep small graphs in the places of their nodes: two communities, or grids, as in `graph-generation`.

    All graphs are drawn at random, so that those of the test split are unseen. A tenth as many as train choose the
    weights.

    Args:
        family: "communities" or "grids".
        width: Numbers for each node, D; a community graph has 12 to 20 nodes.
        train: Number of training graphs.
        test: Number of test graphs.
        seed: Chooses all that is random in the data.

    Example
        >>> task = graph_reconstruction(train=20, test=10)
        >>> task.epoch_size, task.signature.inputs
        (20, 8)
    """
    splits = draw_splits(chosen("family", family, FAMILIES), train, test, torch.Generator().manual_seed(seed))
    return GraphReconstruction(f"{family}, reconstructed", splits, width)
