"""Knowledge graphs: facts (head, relation, tail), and the entity that completes a fact which is not known."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import chosen
from edgewise.data.splits import SPLITS, Split
from edgewise.errors import ConfigError, DataError
from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.graphs.forms import edges_of
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.models.signature import Features
from edgewise.tasks.core.abilities import Predicts
from edgewise.tasks.core.batch import Batch, batch_of
from edgewise.tasks.core.drawing import Section, TextTable
from edgewise.tasks.core.subject import Subject, captured
from edgewise.tasks.core.task import Device, Pattern, given

ROWS = 1 << 22  # scores of queries against all entities that are ranked at once
SHOWN = 10  # entities of a prediction


@dataclass
class QueryBatch(Batch):
    """The training facts as a graph, and queries [M, 2]: an entity and a relation. `target` is the entity sought."""

    graph: Graph
    queries: Tensor = field(default_factory=lambda: torch.zeros(0, 2, dtype=torch.int64))

    divisible = False


def distmult(head: Tensor, relation: Tensor, entities: Tensor) -> Tensor:
    """How true a fact is, by three vectors; the same with head and tail exchanged.

    Equation    s = Σ_c h_c r_c t_c
    Shapes      head, relation [M, C], entities [N, C] -> [M, N]
    Reference   Yang et al., "Embedding entities and relations for learning and inference in knowledge bases", 2015

    >>> distmult(torch.tensor([[1.0, 2.0]]), torch.tensor([[1.0, 3.0]]), torch.tensor([[1.0, 1.0]])).item()
    7.0
    """
    return (head * relation) @ entities.T


def complex_product(head: Tensor, relation: Tensor, entities: Tensor) -> Tensor:
    """DistMult of complex vectors, which tells "is the father of" from "is a child of" (ComplEx).

    Equation    s = Re Σ_c h_c r_c t̄_c, the first half of the channels real parts, the second imaginary ones
    Shapes      head, relation [M, 2C], entities [N, 2C] -> [M, N]
    Reference   Trouillon et al., "Complex embeddings for simple link prediction", 2016, (9)

    >>> i, one = torch.tensor([[0.0, 1.0]]), torch.tensor([[1.0, 0.0]])
    >>> complex_product(i, i, one).item(), complex_product(one, i, i).item()  # Re(i · i · 1), Re(1 · i · -i)
    (-1.0, 1.0)
    """
    (a, b), (c, d) = head.chunk(2, -1), relation.chunk(2, -1)
    return torch.cat([a * c - b * d, a * d + b * c], -1) @ entities.T


def rotation(head: Tensor, relation: Tensor, entities: Tensor) -> Tensor:
    """A relation turns the head in the complex plane, channel by channel, to where the tail should be (RotatE).

    Equation    s = -Σ_c |h_c r_c / |r_c| - t_c|², the first half of the channels real parts, the second imaginary ones
    Shapes      head, relation [M, 2C], entities [N, 2C] -> [M, N]
    Edge cases  a relation's channel of 0 makes that of the head 0
    Cost        that of a product of matrices: |a - t|² = |a|² - 2 Re a t̄ + |t|², so that no M x N x C is written down
    Differs     the paper sums distances, here they are squared, as the product needs; no margin, no false facts drawn
    Reference   Sun et al., "RotatE: knowledge graph embedding by relational rotation in complex space", 2019, (2)

    >>> turn, one = torch.tensor([[0.0, 2.0]]), torch.tensor([[3.0, 0.0]])
    >>> rotation(one, turn, torch.tensor([[0.0, 3.0], [0.0, 1.0]])).tolist()  # 3 turned by 90° is 3i
    [[0.0, -4.0]]
    """
    (a, b), (c, d) = head.chunk(2, -1), relation.chunk(2, -1)
    size = (c.square() + d.square()).clamp(min=1e-24).sqrt()
    c, d = c / size, d / size
    turned = torch.cat([a * c - b * d, a * d + b * c], -1)
    lengths = turned.square().sum(-1, keepdim=True) + entities.square().sum(-1)
    return 2 * turned @ entities.T - lengths


DECODERS: dict[str, Callable[[Tensor, Tensor, Tensor], Tensor]] = {
    "distmult": distmult,
    "complex": complex_product,
    "rotate": rotation,
}


@dataclass(frozen=True)
class Facts:
    """What is known, and what is to be found.

    Symbols     splits = for "train", "valid" and "test" facts [M, 3]: numbers of head, relation and tail
    """

    entities: tuple[str, ...]
    relations: tuple[str, ...]
    splits: Mapping[Split, Tensor]


class KnowledgeGraph(Predicts):
    """The model embeds entities and relations, and a decoder says which entity completes a fact.

    Equation    L = mean over queries of -log softmax_t(s(h, r, t))[tail], over all entities t
    Symbols     the model's output = z [N + 2R, C], first the N entities, then the R relations and their inverses, nodes
                without edges; s = a decoder of `DECODERS` on z_h, z_r, z_t. A fact is two queries, (h, r, ?) and
                (t, r⁻¹, ?), and two edges, from each end to the other, of the kinds r and r⁻¹
    Shapes      x = one-hot [N + 2R, N + 2R], sparse; e [E] the kinds of edges
    Scores      mrr, mean of 1 / rank of the entity sought among all that would not complete another known fact, of any
                split ("filtered"); hits@1, hits@10, the shares that rank so; entities that score the same rank first
    Edge cases  a step's own facts are in no edge of its graph, or the answer would be read off; where it has all of
                them, they stay
    Differs     the paper draws some false facts for each true one, and regularises; here each query compares all
                entities
    Reference   Schlichtkrull et al., 2018, §4; Bordes et al., 2013 (filtered ranks)
    """

    metric = "mrr"
    curves = "mrr", "hits@10"
    unit = "facts"
    maximise = True

    def __init__(self, name: str, facts: Facts, width: int, decoder: str = "complex") -> None:
        self.decoder: Callable[[Tensor, Tensor, Tensor], Tensor] = chosen("decoder", decoder, DECODERS)
        if width < 1 or (width % 2 and decoder != "distmult"):
            raise ConfigError(f"task.width must be at least 1, and even for {decoder!r}, not {width}")
        for split in SPLITS:
            if not len(facts.splits[split]):
                raise DataError(f"{name} has no facts in {split}")
        self.name, self.facts = name, facts
        self.splits: dict[Split, Tensor] = dict(facts.splits)
        self.count, self.kinds = len(facts.entities), 2 * len(facts.relations)
        self.epoch_size = len(facts.splits["train"])
        nodes = self.count + self.kinds
        self.signature = Features(inputs=nodes, outputs=width, edges=self.kinds, classes=False)
        self.x = SparseFeatures(Graph.from_csr(torch.arange(nodes + 1), torch.arange(nodes), nodes), torch.ones(nodes))
        self.contents = f"{self.count:,} entities, {len(facts.relations)} relations"

    def graph(self, pattern: Pattern = None) -> Graph:
        """The training facts, in both directions."""
        return self._read(pattern)[0]

    @cached
    def _read(self, pattern: Pattern) -> tuple[Graph, Tensor]:
        if not given(pattern):
            raise ConfigError(f"{self.name}: the facts are the graph: a pattern has no relations; choose graph given")
        return self._graph(self.splits["train"])

    def _graph(self, facts: Tensor) -> tuple[Graph, Tensor]:
        """The graph of some facts, and the kinds of its edges in its order."""
        head, relation, tail = facts.T
        index = torch.stack([torch.cat([head, tail]), torch.cat([tail, head])])
        graph = Graph.from_edge_index(index, self.count + self.kinds)
        return graph, graph.sort_edges(torch.cat([relation, relation + self.kinds // 2]))

    def _queries(self, facts: Tensor) -> tuple[Tensor, Tensor]:
        """Both queries of each fact [2M, 2], and what they seek [2M]."""
        head, relation, tail = facts.T
        heads = torch.stack([head, relation], 1)
        return torch.cat([heads, torch.stack([tail, relation + self.kinds // 2], 1)]), torch.cat([tail, head])

    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> Batch:
        """Both queries of `size` training facts, and the other training facts as a graph."""
        facts, read = self.splits["train"], self._read(pattern)
        if size < len(facts):
            order = torch.randperm(len(facts), generator=generator)
            read, facts = self._graph(facts[order[size:]]), facts[order[:size]]
        queries, target = self._queries(facts)
        return QueryBatch(read[0], self.x, target, e=read[1], queries=queries)

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        """One batch: all queries of a split, on the graph of all training facts."""
        graph, e = self._read(pattern)
        queries, target = self._queries(self.splits[split])
        yield QueryBatch(graph, self.x, target, e=e, queries=queries)

    def scores_of(self, outputs: Tensor, queries: Tensor) -> Tensor:
        """How true each entity makes each query: s [M, N]."""
        entities, relations = outputs[: self.count], outputs[self.count :]
        return self.decoder(entities[queries[:, 0]], relations[queries[:, 1]], entities)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return functional.cross_entropy(self.scores_of(outputs, batch_of(QueryBatch, batch).queries), batch.target)

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        ranks, losses = self._ranks(outputs.detach().double(), batch_of(QueryBatch, batch).queries, batch.target)
        sums = {"loss": losses.sum(), "mrr": (1 / ranks).sum()}
        sums |= {f"hits@{k}": (ranks <= k).double().sum() for k in (1, 10)}
        return sums | {"count": torch.tensor(float(len(ranks)), dtype=torch.float64, device=ranks.device)}

    def _ranks(self, outputs: Tensor, queries: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The filtered rank of what each query seeks, and its cross-entropy, some queries at a time."""
        step, ranks, losses = max(1, ROWS // self.count), [target.double()[:0]], [outputs[:0, 0]]
        for first in range(0, len(queries), step):
            some, sought = queries[first : first + step], target[first : first + step]
            scores = self.scores_of(outputs, some)
            losses.append(functional.cross_entropy(scores, sought, reduction="none"))
            own = scores.gather(1, sought[:, None])
            rows, entities = self._known(some)
            scores[rows, entities] = -torch.inf
            scores.scatter_(1, sought[:, None], own)
            ranks.append((scores >= own).sum(1).double())
        return torch.cat(ranks), torch.cat(losses)

    def _known(self, queries: Tensor) -> tuple[Tensor, Tensor]:
        """Which entities complete a known fact of which query: pairs (row, entity)."""
        answers = self._answers(None)
        reads = answers.to(queries.device)
        of = queries[:, 0] * self.kinds + queries[:, 1]
        rows, edges = edges_of(reads.offsets, of)
        return rows, reads.senders[edges]

    @cached
    def _answers(self, _: None) -> Graph:
        """For each entity and relation, h · 2R + r, the entities that complete a fact of any split."""
        queries, target = self._queries(torch.cat([self.splits[split] for split in SPLITS]))
        of = queries[:, 0] * self.kinds + queries[:, 1]
        return Graph.from_edge_index(torch.stack([target, of]), self.count, self.count * self.kinds)

    @property
    def typical(self) -> str:
        return f"{self.facts.entities[0]}, {self.facts.relations[0]}, ?"

    @torch.no_grad()
    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """The likeliest entities of "HEAD, RELATION, ?" or of "?, RELATION, TAIL"; a tab may stand for the comma."""
        query = self._parse(request)
        scores = self.scores_of(self._outputs(model, pattern, device), query)[0]
        facts: set[int] = set(self._known(query)[1].tolist())
        chances = scores.double().softmax(-1)
        order = scores.argsort(descending=True)[:SHOWN].tolist()
        best = [(self.facts.entities[n], chances[n].item(), n in facts) for n in order]
        rows = [{"entity": name, "probability": chance, "known": told} for name, chance, told in best]
        return {"query": request.strip(), "entities": rows}

    def _outputs(self, model: nn.Module, pattern: Pattern, device: Device) -> Tensor:
        batch = next(self.batches("valid", 1, pattern)).to(device)
        outputs: Tensor = model.eval()(*batch.inputs)
        return outputs.cpu()

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """How true the likeliest entity makes a query: its score."""
        query = self._parse(request)
        inputs = captured(model, lambda: self.predict(model, pattern, request, "cpu"))
        with torch.no_grad():
            best = int(self.scores_of(self._outputs(model, pattern, "cpu"), query).argmax())

        def score(outputs: Tensor) -> Tensor:
            return self.scores_of(outputs, query)[0, best]

        what = f"{self.facts.entities[best]} as the answer to {request.strip()}"
        return Subject(inputs, number=score, shown=score, what=what)

    def _parse(self, request: str) -> Tensor:
        parts = [part.strip() for part in request.split("\t" if "\t" in request else ",")]
        advice = f"give HEAD, RELATION, ? or ?, RELATION, TAIL, such as '{self._name(0)}, {self.facts.relations[0]}, ?'"
        if len(parts) != 3 or (parts[0] == "?") == (parts[2] == "?"):
            raise DataError(f"{request[:80]!r} is no query: {advice}")
        entity, back = (parts[2], self.kinds // 2) if parts[0] == "?" else (parts[0], 0)
        for what, name, names in (("entity", entity, self._number), ("relation", parts[1], self._relation)):
            if name not in names:
                raise DataError(f"no {what} {name[:80]!r} in {self.name}: {advice}")
        return torch.tensor([[self._number[entity], self._relation[parts[1]] + back]])

    def _name(self, number: int) -> str:
        return self.facts.entities[number]

    @property
    def _number(self) -> dict[str, int]:
        return self.memo("number", lambda: {name: n for n, name in enumerate(self.facts.entities)})

    @property
    def _relation(self) -> dict[str, int]:
        return self.memo("relation", lambda: {name: n for n, name in enumerate(self.facts.relations)})

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        yield Section("Test facts by relation", lambda: [self.by_relation(model, pattern)])

    @torch.no_grad()
    def by_relation(self, model: nn.Module, pattern: Pattern) -> TextTable:
        """How well each relation is completed at both ends: filtered mean reciprocal ranks."""
        batch = batch_of(QueryBatch, next(self.batches("test", 1, pattern)))
        ranks, _ = self._ranks(model(*batch.inputs).double(), batch.queries, batch.target)
        rows, half = [], self.kinds // 2
        for number, name in enumerate(self.facts.relations):
            ends = [ranks[batch.queries[:, 1] == number + back] for back in (0, half)]
            if len(ends[0]):
                rows.append((name, f"{len(ends[0]):,}", *(f"{(1 / end).mean():.3f}" for end in ends)))
        return TextTable(("relation", "test facts", "mrr of the tail", "mrr of the head"), rows)
