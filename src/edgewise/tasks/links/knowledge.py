"""Knowledge graphs: facts (head, relation, tail), and what completes one; of generated families, or of one's own."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal, Self

import scipy
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.configuration import OneOf, chosen
from edgewise.data import record
from edgewise.data.record import Fitted, names_in
from edgewise.data.splits import SPLITS, How, Split, divided
from edgewise.data.splits import cut as cut_at
from edgewise.data.table import find_table, object_in
from edgewise.errors import ConfigError, DataError, counted
from edgewise.files import check_folder, decode, folder_name, holds, read_bytes
from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.graphs.forms import edges_of
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.models.signature import Features
from edgewise.tasks.core.abilities import Alone, Predicts
from edgewise.tasks.core.batch import Batch, batch_of
from edgewise.tasks.core.drawing import Section, TextTable
from edgewise.tasks.core.measures import Answers
from edgewise.tasks.core.subject import Subject, captured
from edgewise.tasks.core.task import Device, Pattern, given
from edgewise.tasks.links.attributes import Attributes, more_names, one_hot, read_attributes
from edgewise.tasks.links.queries import Queries

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
    Shapes      x = one-hot [N + 2R, N + 2R], sparse, and beside it what `attributes` say of entities; e [E] the kinds
                of edges
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
    form = '{"head": ENTITY, "relation": RELATION}'

    def __init__(
        self, name: str, facts: Facts, width: int, decoder: str = "complex", attributes: Attributes | None = None
    ) -> None:
        self.decoder: Callable[[Tensor, Tensor, Tensor], Tensor] = chosen("decoder", decoder, DECODERS)
        if width < 1 or (width % 2 and decoder != "distmult"):
            raise ConfigError(f"task.width must be at least 1, and even for {decoder!r}, not {width}")
        for split in SPLITS:
            if not len(facts.splits[split]):
                raise DataError(f"{name} has no facts in {split}")
        self.name, self.facts = name, facts
        self._number, self._relation = (
            {name: n for n, name in enumerate(names)} for names in (facts.entities, facts.relations)
        )
        self.splits: dict[Split, Tensor] = dict(facts.splits)
        self.count, self.kinds = len(facts.entities), 2 * len(facts.relations)
        self.epoch_size = len(facts.splits["train"])
        self.attributes, trained = attributes, torch.ones(self.count + self.kinds, dtype=torch.bool)
        if attributes:
            trained[: self.count] = torch.isin(torch.arange(self.count), facts.splits["train"][:, [0, 2]])
            self.form = '{"head": ENTITY or {COLUMN: CELL, ...}, "relation": RELATION}'
        named = {"entities": facts.entities, "relations": ("",) * self.kinds}
        self.matrix = one_hot(trained, attributes and attributes.matrix(named))
        self.signature = Features(inputs=self.matrix.shape[1], outputs=width, edges=self.kinds, classes=False)
        self.x = SparseFeatures.from_scipy(self.matrix)
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

    @torch.no_grad()
    def alone(self, model: nn.Module, pattern: Pattern) -> Alone:
        """The embeddings that the model computes of the training facts, and the decoder."""
        queries = self._queries(self.splits["valid"][:2])[0]
        return Queries.alone(self._outputs(model, pattern, "cpu"), self.scores_of, queries)

    def preprocessing(self) -> dict[str, Any]:
        rows = {
            "kind": "facts",
            "input": "a .txt file with a query HEAD, RELATION, ? or ?, RELATION, TAIL in each line, or a table of them",
            "queries": "an entity's place in `entities`, and a relation's in `relations`, to which their number is "
            "added where the head of a fact is asked for",
            "output": "how true each entity makes a query, in their order: logits; softmax makes probabilities",
            "entities": self.facts.entities,
            "relations": self.facts.relations,
            "known": torch.cat([self.splits[split] for split in SPLITS]).tolist(),
            "shown": SHOWN,
        }
        return {"rows": rows}

    def scores_of(self, outputs: Tensor, queries: Tensor) -> Tensor:
        """How true each entity makes each query: s [M, N]."""
        entities, relations = outputs[: self.count], outputs[self.count :]
        return self.decoder(outputs[queries[:, 0]], relations[queries[:, 1]], entities)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        return functional.cross_entropy(self.scores_of(outputs, batch_of(QueryBatch, batch).queries), batch.target)

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        scores_of = partial(self.scores_of, outputs.detach().double())
        return self._sums(scores_of, batch_of(QueryBatch, batch).queries, batch.target)

    def simple(self) -> Iterator[tuple[str, Callable[[Split], dict[str, float]]]]:
        """The entities that most often complete a relation, whatever its other end."""
        queries, target = self._queries(self.splits["train"])
        counts = torch.zeros(self.kinds, self.count, dtype=torch.float64)
        counts.index_put_((queries[:, 1], target), torch.ones((), dtype=torch.float64), accumulate=True)

        def commonest(split: Split) -> dict[str, float]:
            sums = self._sums(lambda some: counts[some[:, 1]], *self._queries(self.splits[split]))
            return {name: (value / sums["count"]).item() for name, value in sums.items() if name != "loss"}

        yield "the relation's commonest entities", commonest

    def _sums(self, scores_of: Callable[[Tensor], Tensor], queries: Tensor, target: Tensor) -> dict[str, Tensor]:
        ranks, losses = self._ranks(scores_of, queries, target)
        sums = {"loss": losses.sum(), "mrr": (1 / ranks).sum()}
        sums |= {f"hits@{k}": (ranks <= k).double().sum() for k in (1, 10)}
        return sums | {"count": torch.tensor(float(len(ranks)), dtype=torch.float64, device=ranks.device)}

    def answers(self, outputs: Tensor, batch: Batch) -> list[Answers]:
        """How high each query's answer ranks."""
        scores_of = partial(self.scores_of, outputs.detach().double())
        ranks, _ = self._ranks(scores_of, batch_of(QueryBatch, batch).queries, batch.target)
        return [Answers(figures={"mrr": 1 / ranks.cpu()} | {f"hits@{k}": ranks.cpu() <= k for k in (1, 3, 10)})]

    def _ranks(self, scores_of: Callable[[Tensor], Tensor], queries: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
        """The filtered rank of what each query seeks, and its cross-entropy, some queries at a time."""
        step, ranks, losses = max(1, ROWS // self.count), [target.double()[:0]], [target.double()[:0]]
        for first in range(0, len(queries), step):
            some, sought = queries[first : first + step], target[first : first + step]
            scores = scores_of(some)
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
        told = [*self.splits.values()]
        told += [] if self.splits["test"] is self.facts.splits["test"] else [self.facts.splits["test"]]
        queries, target = self._queries(torch.cat(told))
        of = queries[:, 0] * self.kinds + queries[:, 1]
        return Graph.from_edge_index(torch.stack([target, of]), self.count, self.count * self.kinds)

    @property
    def typical(self) -> str:
        return f"{self.facts.entities[0]}, {self.facts.relations[0]}, ?"

    @torch.no_grad()
    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """The likeliest entities of "HEAD, RELATION, ?" or of "?, RELATION, TAIL"; a tab may stand for the comma."""
        query, new = self._parse(request)
        scores = self.scores_of(self._outputs(model, pattern, device, new), query)[0]
        facts: set[int] = set() if new is not None else set(self._known(query)[1].tolist())
        chances = scores.double().softmax(-1)
        order = scores.argsort(descending=True)[:SHOWN].tolist()
        best = [(self.facts.entities[n], chances[n].item(), n in facts) for n in order]
        rows = [{"entity": name, "probability": chance, "known": told} for name, chance, told in best]
        return {"query": request.strip(), "entities": rows}

    def _outputs(self, model: nn.Module, pattern: Pattern, device: Device, new: Any = None) -> Tensor:
        """What the model says of all nodes, and after them of a new one without facts, of which the features are
        given."""
        batch = next(self.batches("valid", 1, pattern))
        if new is not None:
            graph, nodes = self._read(pattern)[0], self.count + self.kinds
            x = scipy.sparse.vstack([self.matrix, scipy.sparse.hstack([scipy.sparse.csr_array((1, nodes)), new])])
            more = Graph.from_edge_index(graph.edge_index(), nodes + 1)
            assert batch.e is not None
            batch = replace(batch, graph=more, x=SparseFeatures.from_scipy(x), e=more.sort_edges(batch.e))
        outputs: Tensor = model.eval()(*batch.to(device).inputs)
        return outputs.cpu()

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """How true the likeliest entity makes a query: its score."""
        query, new = self._parse(request)
        inputs = captured(model, lambda: self.predict(model, pattern, request, "cpu"))
        with torch.no_grad():
            best = int(self.scores_of(self._outputs(model, pattern, "cpu", new), query).argmax())

        def score(outputs: Tensor) -> Tensor:
            return self.scores_of(outputs, query)[0, best]

        what = f"{self.facts.entities[best]} as the answer to {request.strip()}"
        facts, absent = self.facts, "an embedding of zeros for each entity and relation"
        names = (*facts.entities, *facts.relations, *(f"{name}, backwards" for name in facts.relations))
        return Subject(inputs, number=score, shown=score, what=what, names=names, absent=absent)

    def _parse(self, request: str) -> tuple[Tensor, Any]:
        """A query [1, 2]; and the features of its entity where that is a new one, which a row describes."""
        row, new = object_in(request) or {}, None
        side = next((end for end in ("head", "tail") if isinstance(row.get(end), dict)), "")
        if side and self.attributes is not None:
            new, row = self.attributes.row("entities", row[side]), row | {side: self.facts.entities[0]}
        if row:
            request = "\t".join(str(row.get(end) or "?") for end in ("head", "relation", "tail"))
        parts = [part.strip() for part in request.split("\t" if "\t" in request else ",")]
        advice = f"give HEAD, RELATION, ? or ?, RELATION, TAIL, such as '{self.typical}'"
        if len(parts) != 3 or (parts[0] == "?") == (parts[2] == "?"):
            raise DataError(f"{request[:80]!r} is no query: {advice}")
        entity, back = (parts[2], self.kinds // 2) if parts[0] == "?" else (parts[0], 0)
        for what, name, names in (("entity", entity, self._number), ("relation", parts[1], self._relation)):
            if name not in names:
                raise DataError(f"no {what} {name[:80]!r} in {self.name}: {advice}")
        number = self._number[entity] if new is None else self.count + self.kinds
        return torch.tensor([[number, self._relation[parts[1]] + back]]), new

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        yield Section("Test facts by relation", lambda: [self.by_relation(model, pattern)])

    @torch.no_grad()
    def by_relation(self, model: nn.Module, pattern: Pattern) -> TextTable:
        """How well each relation is completed at both ends: filtered mean reciprocal ranks."""
        batch = batch_of(QueryBatch, next(self.batches("test", 1, pattern)))
        scores_of = partial(self.scores_of, model(*batch.inputs).double())
        ranks, _ = self._ranks(scores_of, batch.queries, batch.target)
        rows, half = [], self.kinds // 2
        for number, name in enumerate(self.facts.relations):
            ends = [ranks[batch.queries[:, 1] == number + back] for back in (0, half)]
            if len(ends[0]):
                rows.append((name, f"{len(ends[0]):,}", *(f"{(1 / end).mean():.3f}" for end in ends)))
        return TextTable(("relation", "test facts", "mrr of the tail", "mrr of the head"), rows)


Fact = tuple[str, str, str]

MAX_BYTES = 1 << 28  # of a file of facts
SINGLE = "facts.txt", "facts.tsv"
HEAD, NAMES = ("head", "relation", "tail"), ("entities", "relations", "entities")  # a fact, and which names it has
HEADINGS = {
    ("head", "relation", "tail"),
    ("source", "relation", "target"),
    ("subject", "predicate", "object"),
    ("subject", "relation", "object"),
}
RELATIONS = (
    *("husband", "wife", "father", "mother", "son", "daughter"),
    *("brother", "sister", "uncle", "aunt", "nephew", "niece"),
)


class _Family:
    """A couple, their children, who may marry, and the children's children; each person is a number."""

    def __init__(self, first: int, draw: random.Random) -> None:
        self.men: list[bool] = []
        self.parents: dict[int, tuple[int, int]] = {}
        self.partner: dict[int, int] = {}
        self.first = first
        for child in self._couple(self._born(True), self._born(False), draw.randint(2, 4), draw):
            if draw.random() < 0.8:
                man = self.men[child - first]
                other = self._born(not man)
                self._couple(*((child, other) if man else (other, child)), draw.randint(1, 3), draw)

    def _born(self, man: bool) -> int:
        self.men.append(man)
        return self.first + len(self.men) - 1

    def _couple(self, man: int, woman: int, children: int, draw: random.Random) -> list[int]:
        self.partner |= {man: woman, woman: man}
        born = [self._born(draw.random() < 0.5) for _ in range(children)]
        self.parents |= dict.fromkeys(born, (man, woman))
        return born

    def facts(self) -> list[tuple[int, str, int]]:
        """All that is true, as (a, relation, b): b is the relation of a."""
        siblings = {
            a: [b for b, parents in self.parents.items() if b != a and parents == own]
            for a, own in self.parents.items()
        }
        told = [(a, ("wife", "husband"), b) for a, b in self.partner.items()]
        for a, parents in self.parents.items():
            told += [(a, ("mother", "father"), b) for b in parents] + [(b, ("daughter", "son"), a) for b in parents]
            told += [(a, ("sister", "brother"), b) for b in siblings[a]]
            for b in (b for parent in parents for b in siblings.get(parent, [])):
                for c in (b, self.partner.get(b)):  # by blood and by marriage
                    told += [] if c is None else [(a, ("aunt", "uncle"), c), (c, ("niece", "nephew"), a)]
        return [(a, names[self.men[b - self.first]], b) for a, names, b in told]


def kinship(
    families: int = 40,
    width: int = 64,
    decoder: Annotated[str, OneOf(DECODERS)] = "complex",
    generated: int = 0,
    fold: int = 0,
) -> KnowledgeGraph:
    """Complete facts about kin: who is whose uncle, of generated families in which every such fact is known.

    Each family is a couple with 2 to 4 children, most of whom marry and have 1 to 3 children; among these people every
    fact of twelve relations is stated: husband, wife, father, mother, son, daughter, brother, sister, uncle, aunt,
    nephew and niece, by blood or marriage. Of the facts 80 % train, 10 % choose the weights and 10 % test; what is
    held out follows from what is not, mostly: the father of one's sister is one's father.

    Reference   Hinton, "Learning distributed representations of concepts", 1986, whose relations these are

    Args:
        families: How many families, of about 17 people each.
        width: Channels of the embeddings of people and relations.
        decoder: How the embeddings of two people and a relation say that a fact is true: "distmult", which takes a
            fact for its inverse, "complex", or "rotate".
        generated: Seed of the families.
        fold: Seed of the random cut.

    Example
        >>> kinship(families=1).facts.relations[:3]
        ('husband', 'wife', 'father')
    """
    if families < 1:
        raise ConfigError(f"task.families must be at least 1, not {families}")
    draw, people, told = random.Random(generated), 0, []
    for _ in range(families):
        family = _Family(people, draw)
        people += len(family.men)
        told += family.facts()
    facts = torch.tensor([(a, RELATIONS.index(relation), b) for a, relation, b in told])
    names = tuple(f"person {number}" for number in range(people))
    return KnowledgeGraph("kinship", Facts(names, RELATIONS, _cut(facts, fold)), width, decoder)


class OwnFacts(KnowledgeGraph):
    """Facts of one's own, all of which a run keeps."""

    kept = record.FILES
    private = kept
    sources: Sequence[Path] = ()

    def keep(self, run: Path) -> None:
        names = {"entities": self.facts.entities, "relations": self.facts.relations}
        columns, fitted = dict(zip(HEAD, NAMES, strict=True)), self.attributes.fitted if self.attributes else Fitted(())
        record.write_pairs(run, self.sources, self.unit, self.splits, columns, names, fitted)
        record.keep_files(run, self.attributes.files if self.attributes else {})

    def tested_on(self, place: Path) -> Self:
        """The facts of a file, or of a folder's `facts.txt` or `test.txt`; the run's own are known, too."""
        files = [place / name for name in (*SINGLE, "test.txt") if place.is_dir() and holds(place, name)] or [place]
        facts = _facts(files[0])
        of = self._number, self._relation, self._number
        known = torch.cat([self.splits[split] for split in SPLITS[:2]])
        rows, told = record.to_measure(files[0], self.unit, facts[_is_headed(facts) :], of, known)
        made = copy(self)
        vars(made).pop("_values", None)
        made.splits, made.changes = {**self.splits, "test": rows}, told
        return made


def knowledge_folder(
    folder: str = "facts",
    width: int = 0,
    decoder: Annotated[str, OneOf(DECODERS)] = "complex",
    fold: int = 0,
    cut: Literal["auto", "random", "given"] = "auto",
    folds: int = 0,
    like: str = "",
    ignore: str = "",
) -> KnowledgeGraph:
    """Complete facts of your own: texts with a head, a relation and a tail in each line, and a tab between them.

    The folder has `train.txt`, `valid.txt` and `test.txt`, as FB15k-237 and WN18RR come, or one file `facts.txt` (or
    .tsv), of which 80 % of the facts train, 10 % choose the weights and 10 % test. A fact that is there twice counts
    once; one that is in two files belongs to the first of test, valid and train. A first line that names the columns,
    as head, relation and tail or subject, predicate and object, is no fact, which is said; it is one where a fact of
    its file has one of these names. A run keeps all facts with their parts, and goes by them whatever has become of the
    files: those that are new are in no part.

    A table `entities.csv` (or .tsv, .parquet) may have a row for each entity: a column `entity`, `id` or `name`, and
    features as `nodes.csv` of `node-folder` has, whose map is added to the embeddings. An entity without a fact is
    known by these alone, and so is a new one in a request. The run keeps the table.

    Args:
        folder: Where the files lie.
        width: Channels of the embeddings of entities and relations. 0: a power of two, as many as there are entities
            or more, from 64 to 128.
        decoder: How the embeddings of two entities and a relation say that a fact is true: "distmult", which takes a
            fact for its inverse, "complex", or "rotate".
        fold: Seed of the random cut, of one file.
        cut: "random", of one file, or "given", by three. "auto": as the files are.
        folds: Parts of a cross-validation (`--folds`): part `fold` tests, a fifth of the others chooses the weights.
        like: A run folder: its facts and their parts are taken.
        ignore: Columns of `entities.csv` that are not read, with commas between them.

    Errors      a line that is no fact, a file that is missing or longer than 256 MB: `DataError`
    """
    place = Path(folder).expanduser()
    parts = [f"{split}.txt" for split in SPLITS]
    if not like:
        check_folder(place)
    described = find_table(place, "entities") if place.is_dir() else None
    tables = read_attributes({"entities": described}, {"entities": ("entity",)}, {*names_in(ignore)}, like)
    if like:
        run, files = Path(like).expanduser(), [place / name for name in (*SINGLE, *parts)]
        files = [file for file in (*files, described) if file and file.is_file()]
        (heads, kinds, _), recorded, changes = record.read_pairs(run, files, "facts", NAMES)
        attributes = Attributes.kept(tables, record.read(run)) if tables else None
        kept = Facts(tuple(heads), tuple(kinds), recorded)
        return _own(place, kept, width, decoder, files, attributes, changes=changes)
    whole = [name for name in SINGLE if holds(place, name)]
    lacking = [name for name in parts if not holds(place, name)]
    if len(whole) > 1 or (whole and len(lacking) < 3):
        raise DataError(f"{place} has {', '.join([*whole, *parts])}, or some of them: leave one file, or three")
    if not whole and lacking:
        raise DataError(f"{place} lacks {', '.join(lacking)}: it needs {', '.join(parts)}, or facts.txt")
    if cut == ("given" if whole else "random") or (folds and not whole):
        what = "one file names no parts" if whole else "three files name the parts, which are not made anew"
        raise DataError(f"{place}: {what}: leave out {'--folds' if folds else f'--task.cut {cut}'}")
    read, notes = dict[str, list[Fact]](), list[str]()
    for name in whole or reversed(parts):
        read[name] = _facts(place / name)
        if _is_headed(read[name]):
            notes.append(f"{name}: its first line names the columns: {', '.join(read[name].pop(0))}")
    entities, relations, seen = dict[str, int](), dict[str, int](), set[tuple[str, str, str]]()
    numbered: dict[str, Tensor] = {}
    for name, lines in read.items():
        fresh = [fact for fact in dict.fromkeys(lines) if fact not in seen]
        seen.update(fresh)
        columns = entities, relations, entities
        rows = [[of.setdefault(one, len(of)) for of, one in zip(columns, fact, strict=True)] for fact in fresh]
        numbered[name] = torch.tensor(rows, dtype=torch.int64).reshape(-1, 3)
    splits: dict[Split, Tensor] = (
        _cut(numbered[whole[0]], fold, folds) if whole else {split: numbered[f"{split}.txt"] for split in SPLITS}
    )
    facts = Facts(more_names([*entities], tables.get("entities")), tuple(relations), splits)
    if not whole:
        notes += _unseen(facts)
    named, train = {"entities": facts.entities}, {"entities": splits["train"][:, [0, 2]]}
    attributes = Attributes.fit(tables, named, train) if tables else None
    sources = [place / name for name in read] + ([described] if described else [])
    return _own(place, facts, width, decoder, sources, attributes, notes)


def _own(
    place: Path,
    facts: Facts,
    width: int,
    decoder: str,
    files: Sequence[Path],
    attributes: Attributes | None = None,
    notes: Sequence[str] = (),
    changes: Sequence[str] = (),
) -> OwnFacts:
    width = width or min(128, max(64, 1 << (len(facts.entities) - 1).bit_length()))
    task = OwnFacts(folder_name(place), facts, width, decoder, attributes)
    notes = [*notes, *(attributes.notes if attributes else ())]
    task.sources, task.summary, task.changes = files, (task.describe(), *notes), tuple(changes)
    return task


def _cut(facts: Tensor, fold: int, folds: int = 0) -> dict[Split, Tensor]:
    if folds:
        return {split: facts[rows] for split, rows in divided(How("random", fold, folds), len(facts)).items()}
    order = torch.randperm(len(facts), generator=torch.Generator().manual_seed(fold))
    parts = cut_at(order, (round(0.8 * len(facts)), round(0.9 * len(facts))))
    return {split: facts[rows.sort().values] for split, rows in parts.items()}


def _is_headed(facts: Sequence[Fact]) -> bool:
    """Whether the first line names the columns: no fact has one of these names."""
    first = [name.lower() for fact in facts[:1] for name in fact]
    return tuple(first) in HEADINGS and {*first}.isdisjoint(name.lower() for fact in facts[1:] for name in fact)


def _facts(path: Path) -> list[Fact]:
    text = decode(path, read_bytes(path, MAX_BYTES))
    # A name may hold what else ends a line to Python.
    lines = text.replace("\r\n", "\n").replace("\r", "\n").split("\n")
    facts, wrong = [], []
    for number, line in enumerate(lines, 1):
        parts = tuple(part.strip() for part in line.split("\t"))
        if len(parts) == 3 and all(parts):
            facts.append(parts)
        elif line.strip():
            wrong.append(f"line {number}: {line[:60]!r}")
    if wrong:
        more = f" and {len(wrong) - 5:,} more" if len(wrong) > 5 else ""
        expected = "a fact is a head, a relation and a tail with tabs between them, and no further column"
        raise DataError(f"{path}: {expected}, not {'; '.join(wrong[:5])}{more}")
    return facts


def _unseen(facts: Facts) -> list[str]:
    """In lines, how many held-out facts are about what no training fact tells anything of."""
    train, told = facts.splits["train"], []
    for split in SPLITS[1:]:
        held = facts.splits[split]
        seen = torch.isin(held[:, [0, 2]], train[:, [0, 2]]).all(1) & torch.isin(held[:, 1], train[:, 1])
        if new := int((~seen).sum()):
            told.append(f"{counted(new, 'fact')} of {split}: an entity or a relation is in no training fact")
    return told
