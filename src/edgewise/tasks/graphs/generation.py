"""Graph generation: a language model writes graphs, token by token, and is judged by what they look like together."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from edgewise.configuration import chosen
from edgewise.data.splits import Split
from edgewise.errors import ConfigError, DataError, counted
from edgewise.graphs import Graph, causal, comparison, links_of
from edgewise.graphs.derived import cached
from edgewise.models.capabilities import language_model
from edgewise.models.signature import Tokens
from edgewise.models.text.generation import generate
from edgewise.tasks.core.abilities import Sampling
from edgewise.tasks.core.batch import Batch, NodeTargets, batch_of
from edgewise.tasks.core.classification import Classification
from edgewise.tasks.core.drawing import Coloured, Content, Drawing, Networks, Output, Section, TextTable
from edgewise.tasks.core.subject import Subject, on_matrix
from edgewise.tasks.core.task import Pattern, without_future
from edgewise.tasks.graphs.families import Family, draw_splits, family_named
from edgewise.tasks.graphs.tokens import END, ORDERS, GraphTokens

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
    maximise = False

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
        """Every graph of a split once, in one order that stays the same."""
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
        device: torch.device | str = "cpu",
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

    def judge(self, model: nn.Module, split: Split, pattern: Pattern, device: torch.device | str) -> dict[str, float]:
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

    def generate(self, model: nn.Module, pattern: Pattern, sampling: Sampling, device: torch.device | str) -> Output:
        """New graphs, at temperature 1 unless another is given, with a drawing of those whose sequences end."""
        temperature = 1.0 if sampling.temperature is None else sampling.temperature
        sampled = self.sample(model, sampling.count, pattern, device, temperature, sampling.seed)
        described = [self.described(graph) for graph in sampled]
        lines = [f"{number}: {_sentence(graph)}" for number, graph in enumerate(described)]
        graphs = [graph for graph in sampled if graph is not None]
        drawing = Drawing(f"generated-{sampling.seed}", self._networks(graphs, [""] * len(graphs)))
        return Output({"graphs": described}, {"drawing": drawing} if graphs else {}, "\n".join(lines))

    @property
    def typical(self) -> str:
        return "0"

    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: torch.device | str) -> dict[str, Any]:
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

        def draw(edges: Tensor | None, nodes: Tensor) -> list[Content]:
            text = Coloured([f"{name} " for name in names], nodes.double().numpy(), "The tokens of the sequence.")
            return [text, *on_matrix(batch_of(NodeTargets, batch).graph, edges, names, names)]

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
    law = family_named(family)
    splits = draw_splits(law, train, test, torch.Generator().manual_seed(seed))
    return GraphGeneration(family, law, splits, draws, order)
