"""Recommendation: what each user chooses next, in generated data whose tastes are known or in a table of one's own."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self

import numpy as np
import scipy
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.data import record
from edgewise.data.columns import Array, dates_of
from edgewise.data.record import Fitted, names_in
from edgewise.data.splits import SPLITS, How, Split, divided, named
from edgewise.data.table import Called, Table, numbers_of, object_in, read_table
from edgewise.errors import ConfigError, DataError, counted
from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.models.signature import Features
from edgewise.tasks.core.abilities import Alone, Predicts
from edgewise.tasks.core.batch import Batch, batch_of, moved
from edgewise.tasks.core.drawing import Section, TextTable
from edgewise.tasks.core.measures import Answers
from edgewise.tasks.core.subject import Subject, captured
from edgewise.tasks.core.task import Device, Pattern, given
from edgewise.tasks.links.attributes import Attributes, more_names, one_hot, read_attributes
from edgewise.tasks.links.queries import Queries

SCORES = 1 << 22  # of users with all items that are ranked at once
SHOWN = 10  # items of a prediction


@dataclass
class ChoiceBatch(Batch):
    """The training choices as a graph, users [M], the item `target` that each chose, and items drawn beside it [M, n].

    Symbols     seen = choices [S, 2] that are left out of the users' lists
    """

    graph: Graph
    users: Tensor = field(default_factory=lambda: torch.zeros(0, dtype=torch.int64))
    drawn: Tensor = field(default_factory=lambda: torch.zeros(0, 1, dtype=torch.int64))
    seen: Tensor = field(default_factory=lambda: torch.zeros(0, 2, dtype=torch.int64))

    divisible = False


@dataclass(frozen=True)
class Choices:
    """Who chose what.

    Symbols     splits = for "train", "valid" and "test" pairs [M, 2]: numbers of user and item, each pair once
    """

    users: tuple[str, ...]
    items: tuple[str, ...]
    splits: Mapping[Split, Tensor]


def latest(user: Tensor, time: Tensor, draw: torch.Generator, share: float = 0.1) -> dict[Split, Tensor]:
    """Each user's latest choices test, those before them choose the weights, and all earlier ones train.

    Symbols     user [M], time [M]; share = of a user's choices for each of the two, at least one
    Edge cases  users of fewer than three choices only train; choices of one time come in a drawn order

    >>> parts = latest(torch.tensor([0, 0, 0, 1]), torch.tensor([3.0, 1.0, 2.0, 0.0]), torch.Generator())
    >>> {split: rows.tolist() for split, rows in parts.items()}
    {'train': [1, 3], 'valid': [2], 'test': [0]}
    """
    order = torch.randperm(len(user), generator=draw)
    order = order[time[order].argsort(stable=True)]
    order = order[user[order].argsort(stable=True)]
    counts = torch.bincount(user)
    held = torch.where(counts < 3, 0, (share * counts).round().long().clamp(min=1))
    mine = user[order]
    left = counts.cumsum(0)[mine] - torch.arange(len(order)) - 1  # later choices of the same user
    test, valid = left < held[mine], (left >= held[mine]) & (left < 2 * held[mine])
    return {"train": order[~test & ~valid].sort().values, "valid": order[valid], "test": order[test]}


def ranking(ranks: Tensor, of: Tensor, users: int, k: int) -> dict[str, Tensor]:
    """How many of what users chose are near the top of their lists: of each user.

    Equation    recall@k = hits / min(k, chosen)
                NDCG@k = Σ_hits 1 / log₂(1 + rank) / Σ_{n = 1..min(k, chosen)} 1 / log₂(1 + n)
                MRR@k = 1 / the first hit's rank, 0 without a hit
    Symbols     ranks [M] from 1, of [M] = the user of each

    >>> found = ranking(torch.tensor([1, 3]), torch.tensor([0, 0]), 1, 2)
    >>> {name: round(value.item(), 3) for name, value in found.items()}
    {'recall@2': 0.5, 'ndcg@2': 0.613, 'mrr@2': 1.0}
    """
    hit = (ranks <= k).double()
    chosen = torch.bincount(of, minlength=users)
    gains = 1 / torch.log2(1 + torch.arange(1, k + 1, device=ranks.device, dtype=torch.float64))
    best = functional.pad(gains.cumsum(0), (1, 0))[chosen.clamp(max=k)]
    zeros = torch.zeros(users, dtype=torch.float64, device=ranks.device)
    hits = zeros.index_add(0, of, hit) / chosen.clamp(min=1, max=k)
    gained = zeros.index_add(0, of, hit / torch.log2(1 + ranks.double())) / best.clamp(min=1e-9)
    first = zeros.scatter_reduce(0, of, hit / ranks.double(), "amax")
    return {f"recall@{k}": hits, f"ndcg@{k}": gained, f"mrr@{k}": first}


class Recommendation(Predicts):
    """The model embeds users and items; a user's list begins with the items of the largest product of embeddings.

    Equation    L = mean over choices (u, i) and drawn items j of -log σ(z_uᵀ z_i - z_uᵀ z_j)
    Symbols     the model's output = z [U + I, C], first the users, then the items; the graph has the training choices
                as edges in both directions; j = drawn among all items, `negatives` for each choice; with attributes
                among those that someone chose, or features alone would be learned to be disliked
    Shapes      x = one-hot [U + I, U + I], sparse, and beside it what `attributes` say of users and items
    Scores      recall@k, ndcg@k, mrr@k: means over the users of a split, whose other known choices are left out of
                their lists: the training ones, and for the test also those that chose the weights; items that score the
                same rank first
    Differs     the paper draws j among items that the user has not chosen, and has a penalty on embeddings:
                see `optimizer.weight_decay`
    Reference   Rendle et al., "BPR: Bayesian personalized ranking from implicit feedback", 2009; He et al., 2020
    """

    unit = "choices"
    form = '{"items": [ITEM, ...]}'

    truth: Tensor | None = None
    """How much each user would like each item, where it is known, [U, I]."""

    def __init__(
        self,
        name: str,
        choices: Choices,
        width: int,
        k: int = 20,
        negatives: int = 1,
        attributes: Attributes | None = None,
    ) -> None:
        if min(width, k, negatives) < 1:
            raise ConfigError(f"task.width, k and negatives must be at least 1, not {width}, {k} and {negatives}")
        for split in SPLITS:
            if not len(choices.splits[split]):
                raise DataError(f"{name} has no choices in {split}")
        self.name, self.choices, self.k, self.negatives = name, choices, k, negatives
        self.metric = f"ndcg@{k}"
        self.curves = f"recall@{k}", self.metric
        self.splits: dict[Split, Tensor] = dict(choices.splits)
        self.users, self.items = len(choices.users), len(choices.items)
        self._numbers = {name: number for number, name in enumerate(choices.users)}
        self.epoch_size = len(self.splits["train"])
        self.attributes, trained = attributes, torch.zeros(self.users + self.items, dtype=torch.bool)
        trained[torch.cat([self.splits["train"][:, 0], self.users + self.splits["train"][:, 1]])] = True
        named = {"users": choices.users, "items": choices.items}
        self.matrix = one_hot(trained, attributes and attributes.matrix(named))
        self._drawn = trained[self.users :].nonzero()[:, 0] if attributes else torch.arange(self.items)
        if attributes and "users" in attributes.tables:
            self.form = '{"user": NAME, COLUMN: CELL, ..., "items": [ITEM, ...]}'
        self.signature = Features(inputs=self.matrix.shape[1], outputs=width, classes=False)
        self.x = SparseFeatures.from_scipy(self.matrix)
        self.contents = f"{self.users:,} users, {self.items:,} items"

    def graph(self, pattern: Pattern = None) -> Graph:
        """The training choices, in both directions; items come after users."""
        return self._read(pattern)

    @cached
    def _read(self, pattern: Pattern) -> Graph:
        if not given(pattern):
            raise ConfigError(f"{self.name}: the choices are the graph: choose graph given")
        user, item = self.splits["train"].T
        ends = torch.stack([user, item + self.users])
        return Graph.from_edge_index(torch.cat([ends, ends.flip(0)], 1), self.users + self.items)

    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> Batch:
        """`size` choices, or all where there are fewer, each with items that are drawn among all."""
        pairs = self.splits["train"]
        if size < len(pairs):
            pairs = pairs[torch.randperm(len(pairs), generator=generator)[:size]]
        drawn = self._drawn[torch.randint(len(self._drawn), (len(pairs), self.negatives), generator=generator)]
        return ChoiceBatch(self._read(pattern), self.x, pairs[:, 1], users=pairs[:, 0], drawn=drawn)

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        """One batch: all choices of a split, each with one item that is drawn, the same every time."""
        user, item = self.splits[split].T
        drawn = torch.randint(self.items, (len(user), 1), generator=torch.Generator().manual_seed(0))
        yield ChoiceBatch(self._read(pattern), self.x, item, users=user, drawn=drawn, seen=self._before(split))

    def _before(self, split: Split) -> Tensor:
        """The choices that a list for a split leaves out, [M, 2]."""
        earlier = SPLITS[: SPLITS.index(split)]
        return torch.cat([self.splits["train"][:0], *(self.splits[one] for one in earlier)])

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        batch, items = batch_of(ChoiceBatch, batch), outputs[self.users :]
        z, chosen, drawn = outputs[batch.users], items[batch.target], items[batch.drawn]
        margin = (z * chosen).sum(-1, keepdim=True) - torch.einsum("mc,mnc->mn", z, drawn)
        return -functional.logsigmoid(margin).mean()

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        batch, outputs = batch_of(ChoiceBatch, batch), outputs.detach().double()
        items = outputs[self.users :]
        lists = self.ranked(lambda some: outputs[some] @ items.T, batch)
        count = torch.tensor(float(len(next(iter(lists.values())))), dtype=torch.float64, device=outputs.device)
        sums = {name: values.sum() for name, values in lists.items()}
        return sums | {"count": count, "loss": self.loss(outputs, batch) * count}

    def answers(self, outputs: Tensor, batch: Batch) -> list[Answers]:
        """How high what each user chose is in the list."""
        outputs = outputs.detach().double()
        items = outputs[self.users :]
        lists = self.ranked(lambda some: outputs[some] @ items.T, batch_of(ChoiceBatch, batch))
        return [Answers(figures={name: values.cpu() for name, values in lists.items()})]

    def ranked(self, scores_of: Callable[[Tensor], Tensor], batch: ChoiceBatch) -> dict[str, Tensor]:
        """How high a split's choices are in its users' lists, of each of the users that it has.

        Symbols     scores_of = how much some users [B] would like each item, [B, items], for float64
        """
        users, of = batch.users.unique(return_inverse=True)
        ranks, place = torch.zeros_like(of), torch.full((self.users,), -1, device=of.device)
        for some in users.split(max(1, SCORES // self.items)):
            place.fill_(-1)[some] = torch.arange(len(some), device=of.device)
            scores, at = scores_of(some).clone(), place[batch.seen[:, 0]]
            scores[at[at >= 0], batch.seen[at >= 0, 1]] = -torch.inf
            rows = (place[batch.users] >= 0).nonzero().flatten()
            for part in rows.split(max(1, SCORES // self.items)):
                lists = scores[place[batch.users[part]]]
                ranks[part] = (lists >= lists.gather(1, batch.target[part, None])).sum(1)
        return ranking(ranks, of, len(users), self.k)

    def popularity(self, split: Split = "test") -> dict[str, float]:
        """What a list of the items that most users chose, the same for everyone, would score."""
        often = torch.bincount(self.splits["train"][:, 1], minlength=self.items).double()
        return self.scored(lambda some: often.expand(len(some), -1), split)

    def simple(self) -> Iterator[tuple[str, Callable[[Split], dict[str, float]]]]:
        """The most popular items; and items that are chosen by the same users as a user's own, by their cosine."""
        yield "the most popular items", self.popularity
        user, item = self.splits["train"].numpy().T
        chosen = scipy.sparse.csr_array((np.ones(len(user)), (user, item)), shape=(self.users, self.items))
        often = 1 / np.sqrt(np.maximum(np.asarray(chosen.sum(0)).ravel(), 1))
        alike = chosen.multiply(often).tocsr()

        def similar(users: Tensor) -> Tensor:
            return torch.from_numpy((alike[users.numpy()] @ chosen.T @ alike).toarray())

        yield "item similarity", partial(self.scored, similar)

    def scored(self, scores_of: Callable[[Tensor], Tensor], split: Split = "test") -> dict[str, float]:
        """Mean scores of any lists."""
        lists = self.ranked(scores_of, batch_of(ChoiceBatch, next(self.batches(split, 1))))
        return {name: values.mean().item() for name, values in lists.items()}

    @torch.no_grad()
    def alone(self, model: nn.Module, pattern: Pattern) -> Alone:
        """The embeddings that the model computes of the training choices, and their products."""
        z = model.eval()(*next(self.batches("valid", 1, pattern)).inputs)

        def scores(z: Tensor, queries: Tensor) -> Tensor:
            return z[queries[:, 0]] @ z[self.users :].T

        return Queries.alone(z, scores, self.splits["valid"][:2, :1])

    def preprocessing(self) -> dict[str, Any]:
        known: list[list[int]] = [[] for _ in self.choices.users]
        for user, item in torch.cat(list(self.splits.values())).tolist():
            known[user].append(item)
        rows = {
            "kind": "choices",
            "input": "a .txt file with a user in each line, or a table of them",
            "queries": "the place of a user in `users`",
            "output": "how much the user would like each item, in their order: scores",
            "users": self.choices.users,
            "items": self.choices.items,
            "known": known,
            "shown": SHOWN,
        }
        return {"rows": rows}

    @property
    def typical(self) -> str:
        return self.choices.users[0]

    @torch.no_grad()
    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """The ten items that a user, by name or by the items chosen before, would choose next."""
        inputs, user, known, name = self._asked(request, pattern)
        graph, x = inputs
        outputs: Tensor = model.eval()(moved(graph, torch.device(device)), x.to(device)).cpu()
        scores = outputs[self.users : self.users + self.items] @ outputs[user]
        count = min(SHOWN, self.items - len(known.unique()))
        best = scores.index_fill(0, known, -torch.inf).topk(count).indices.tolist()
        items = [{"item": self.choices.items[item], "score": scores[item].item()} for item in best]
        return {"user": name, "items": items}

    def _asked(self, request: str, pattern: Pattern) -> tuple[tuple[Graph, SparseFeatures], int, Tensor, str]:
        """What the model reads for a request, the user's number there, the items that it has chosen, and its name. A
        new user is one more node, of which the items are known, or its attributes, or both."""
        row, graph = object_in(request) or {}, self._read(pattern)
        described = self.attributes is not None and self.attributes.asked("users", row)
        name = str(row.get("user", "new" if row else request)).strip()
        if "items" not in row and (name in self._numbers or not described):
            if (user := self._numbers.get(name)) is None:
                raise DataError(
                    f"no user {name[:80]!r} in {self.name}: give one, such as {self.choices.users[0]!r}, or {self.form}"
                )
            known = torch.cat([pairs[pairs[:, 0] == user, 1] for pairs in self.splits.values()])
            return (graph, self.x), user, known, name
        given = [str(item) for item in row["items"]] if isinstance(row.get("items"), list) else []
        numbers = {item: number for number, item in enumerate(self.choices.items)}
        if lacking := [item for item in given if item not in numbers]:
            raise DataError(f"no item {', '.join(repr(item[:40]) for item in lacking[:5])} in {self.name}")
        if not given and not described:
            raise DataError(f"a new user has chosen something: give {self.form}")
        known, new = torch.tensor([numbers[item] for item in given], dtype=torch.int64), self.users + self.items
        ends = torch.stack([torch.full_like(known, new), known + self.users])
        whole = Graph.from_edge_index(torch.cat([graph.edge_index(), ends, ends.flip(0)], 1), new + 1)
        own = scipy.sparse.csr_array((1, self.matrix.shape[1]))
        if described and self.attributes is not None:
            own = scipy.sparse.hstack([scipy.sparse.csr_array((1, new)), self.attributes.row("users", row)])
        return (whole, SparseFeatures.from_scipy(scipy.sparse.vstack([self.matrix, own]))), new, known, name

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """How much a user would like the first item of the list: the score z_uᵀ z_i."""
        found = list[dict[str, Any]]()
        inputs = captured(model, lambda: found.append(self.predict(model, pattern, request, "cpu")))
        user, items = found[0]["user"], found[0]["items"]
        if not items:
            raise DataError(f"{user!r} chose every item of {self.name}: there is none to explain")
        ends = self._asked(request, pattern)[1], self.users + self.choices.items.index(items[0]["item"])

        def score(outputs: Tensor) -> Tensor:
            return outputs[ends[0]] @ outputs[ends[1]]

        what, names = f"the score of {items[0]['item']} for {user}", (*self.choices.users, *self.choices.items)
        names = (*names, user)[: len(names) + (ends[0] == len(names))]
        return Subject(inputs, number=score, what=what, names=names, absent="an embedding of zeros for each")

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        yield Section("Beside lists that are the same for everyone", lambda: [self.beside(scores)])

    def beside(self, scores: Mapping[str, float]) -> TextTable:
        """The test scores of the model, of popularity, and where it is known of the truth."""
        lists = {"this model": dict(scores), "the most popular items": self.popularity()}
        if self.truth is not None:
            truth = self.truth
            lists["the probabilities that the data are drawn from"] = self.scored(lambda some: truth[some])
        names = (f"recall@{self.k}", f"ndcg@{self.k}")
        return TextTable(("", *names), [(who, *(f"{own[name]:.3f}" for name in names)) for who, own in lists.items()])


NAMES = {
    "user": ("user", "user_id", "userid", "customer", "customer_id", "session", "session_id"),
    "item": ("item", "item_id", "itemid", "movie_id", "movieid", "product", "product_id", "article_id"),
    "rating": ("rating", "stars", "score"),
    "time": ("time", "timestamp", "date", "datetime", "unix_timestamp"),
}


def tastes(
    users: int = 600,
    items: int = 400,
    genres: int = 8,
    choices: int = 20,
    width: int = 32,
    k: int = 20,
    negatives: int = 4,
    generated: int = 0,
) -> Recommendation:
    """Recommend items to generated users whose tastes are known: what each chooses next, among genres and hits.

    An item has a genre and a popularity, 1 over its rank in a drawn order. A user likes few of the genres: shares that
    are drawn from a Dirichlet distribution of parameter 0.3. `choices` different items are drawn one after the other,
    with probabilities in proportion to the share of their genre times their popularity. Of each user's choices the
    latest tenth tests, the tenth before chooses the weights, and all earlier ones train.

    Args:
        users: How many users.
        items: How many items.
        genres: How many genres, which no model is told.
        choices: How many items each user chooses.
        width: Channels of an embedding.
        k: Length of the lists that are scored.
        negatives: Items to draw beside each choice.
        generated: Seed of the generator.

    Example
        >>> tastes(users=50, items=60).contents
        '50 users, 60 items'
    """
    if min(users, genres) < 1 or choices < 3 or items < 2 * max(choices, genres):
        raise ConfigError("a user, a genre, 3 choices of each user and twice as many items as choices are the least")
    draw = torch.Generator().manual_seed(generated)
    genre = torch.arange(items) % genres
    popularity = 1.0 / (1 + torch.randperm(items, generator=draw))
    gamma = np.random.default_rng(generated).gamma(0.3, size=(users, genres))
    shares = torch.from_numpy(gamma / gamma.sum(1, keepdims=True)).float()
    truth = (shares + 1e-3)[:, genre] * popularity
    chosen = torch.multinomial(truth, choices, generator=draw)
    user = torch.arange(users).repeat_interleave(choices)
    pairs = torch.stack([user, chosen.flatten()], 1)
    splits = _cut(pairs, torch.arange(choices).repeat(users).double(), draw)
    names = tuple(tuple(f"{what} {n}" for n in range(count)) for what, count in (("user", users), ("item", items)))
    task = Recommendation("tastes", Choices(names[0], names[1], splits), width, k, negatives)
    task.truth = truth.double()
    return task


class OwnChoices(Recommendation):
    """Choices of one's own, all of which a run keeps."""

    kept = record.FILES
    private = kept
    sources: Sequence[Path] = ()
    read: tuple[str, float] = "", 0.0
    """Which columns of a table are read, and the lowest rating of a choice."""

    def tested_on(self, place: Path) -> Self:
        """The choices of another table, by users and of items that the run knows."""
        made, items = copy(self), {name: number for number, name in enumerate(self.choices.items)}
        known, rows = torch.cat([self.splits[split] for split in SPLITS[:2]]), [*read_choices(place, *self.read)[3]]
        chosen, made.changes = record.to_measure(place, self.unit, rows, (self._numbers, items), known)
        made.splits = {**self.splits, "test": chosen}
        return made

    def keep(self, run: Path) -> None:
        names, columns = {"users": self.choices.users, "items": self.choices.items}, {"user": "users", "item": "items"}
        fitted = self.attributes.fitted if self.attributes else Fitted(())
        record.write_pairs(run, self.sources, self.unit, self.splits, columns, names, fitted)
        record.keep_files(run, self.attributes.files if self.attributes else {})

    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """The ten items that a user, by name, would choose next; of one who is unknown those that most users chose."""
        row = object_in(request) or {}
        user = str(row.get("user", request)).strip()
        if user in self._numbers or "items" in row or (self.attributes and self.attributes.asked("users", row)):
            return super().predict(model, pattern, request, device)
        return {"user": user, "known": False, "items": [{"item": self.choices.items[item]} for item in self.popular]}

    @property
    def popular(self) -> list[int]:
        """The items that most users chose, the first ones."""
        often = torch.bincount(self.splits["train"][:, 1], minlength=self.items)
        return often.argsort(descending=True, stable=True)[:SHOWN].tolist()

    def preprocessing(self) -> dict[str, Any]:
        made = super().preprocessing()
        return made | {"rows": made["rows"] | {"popular": self.popular}}


def own_choices(
    file: str = "choices.csv",
    width: int = 64,
    k: int = 20,
    negatives: int = 4,
    least: float = 0.0,
    columns: str = "",
    fold: int = 0,
    cut: Literal["auto", "random", "time"] = "auto",
    folds: int = 0,
    like: str = "",
    users: str = "",
    items: str = "",
    ignore: str = "",
) -> Recommendation:
    """Recommend items to your own users, from a table of ratings, clicks or purchases, and tables about both.

    Each line is a choice: a user and an item, and where there are such columns a rating and a time. Of each user's
    choices the latest tenth tests, the tenth before chooses the weights, and all earlier ones train; without times
    the order is drawn; a column `split` names the part of each line instead. An item that a user chose twice counts
    once, at the first time. Users of fewer than three choices only train. A run keeps all choices with their parts,
    and goes by them whatever has become of the table: those that are new are in no part, and a user who is new has
    the items that most users chose.

    Tables about users and items have a row for each, a column that names them, and features as `nodes.csv` of
    `node-folder` has: their map is added to the embeddings. Who chose nothing, or was not chosen, is known by these
    alone, and so is a new user in a request. The run keeps these tables.

    Args:
        file: The table, .csv, .tsv or .parquet, with columns named user and item, and maybe rating and time, or much
            like that (user_id, movieId, timestamp).
        width: Channels of an embedding.
        k: Length of the lists that are scored.
        negatives: Items to draw beside each choice.
        least: A line with a lower rating is no choice.
        columns: The columns of user, item, rating and time, with commas between them, where they have other names;
            an empty one is not read, as in "who,what,,when".
        fold: Seed of the drawn order.
        cut: "random": a drawn order; "time": the latest choices of all users test. "auto": the latest of each user, or
            the parts that a column `split` names.
        folds: Parts of a cross-validation (`--folds`) of each user's choices: part `fold` tests, a fifth of the others
            chooses the weights.
        like: A run folder: its choices and their parts are taken.
        users: A table about users: their names (`user`, `user_id`, ...) and what is known of them.
        items: A table about items.
        ignore: Columns of both that are not read, with commas between them.

    Errors      a file that is missing, malformed or longer than 256 MB, columns that are not found, a line of another
                length or without a user or an item, one that is 3 in a line and 3.0 in another, a rating that is no
                number or a time that is none: `DataError`
    """
    path = Path(file).expanduser()
    places = {
        "users": Path(users).expanduser() if users else None,
        "items": Path(items).expanduser() if items else None,
    }
    tables = read_attributes(places, {"users": NAMES["user"], "items": NAMES["item"]}, {*names_in(ignore)}, like)
    if lacking := [what for what, place in places.items() if place and what not in tables]:
        raise DataError(f"{like}: the run knows nothing of {lacking[0]}: leave out --task.{lacking[0]}")
    sources = [path, *(place for place in places.values() if place)]
    if like:
        run = Path(like).expanduser()
        (whose, chosen), kept, changes = record.read_pairs(run, sources, "choices", ("users", "items"))
        attributes = Attributes.kept(tables, record.read(run)) if tables else None
        own = OwnChoices(path.stem, Choices(tuple(whose), tuple(chosen), kept), width, k, negatives, attributes)
        own.sources = [place for place in sources if place.is_file()]
        own.summary, own.changes = (own.describe(),), tuple(changes)
        own.read = columns, least
        return own
    table, found, time, once = read_choices(path, columns, least)
    numbers: tuple[dict[str, int], dict[str, int]] = {}, {}
    for pair in once:
        for known, name in zip(numbers, pair, strict=True):
            known.setdefault(name, len(known))
    pairs = torch.tensor([(numbers[0][user], numbers[1][item]) for user, item in once])
    when = torch.from_numpy(time[list(once.values())])
    if cut == "time" and "time" not in found:
        raise DataError(f"{path}: --task.cut time needs a column of times, and none was found: name it in columns")
    split = next((name for name in table.header if name.lower() == "split" and name not in found.values()), "")
    if split and cut == "auto" and not folds:
        found["split"] = split
        splits = _given(table, split, pairs, [*once.values()], torch.Generator().manual_seed(fold))
    elif folds or cut == "time":
        how = How("time" if cut == "time" else "stratified", fold, folds)
        times, users_of = (when, None) if cut == "time" else (None, pairs[:, 0])
        splits = {split: pairs[rows] for split, rows in divided(how, len(pairs), None, users_of, times).items()}
    else:
        splits = _cut(pairs, 0 * when if cut == "random" else when, torch.Generator().manual_seed(fold))
    named = {what: more_names([*own], tables.get(what)) for what, own in zip(places, numbers, strict=True)}
    train = {what: splits["train"][:, side] for side, what in enumerate(places)}
    attributes = Attributes.fit(tables, named, train) if tables else None
    given = Choices(named["users"], named["items"], splits)
    task = OwnChoices(path.stem, given, width, k, negatives, attributes)
    task.sources, task.changes, task.read = sources, (), (columns, least)
    left = len(table) - len(once)
    low = f", or rated below {least:g}" if "rating" in found else ""
    said = (f"{counted(left, 'line')} left out: choices that are there already{low}",) if left else ()
    others = [name for name in table.header if name and name not in found.values()]
    unread = (f"not read: the columns {', '.join(others)}",) if others else ()
    task.summary = (task.describe(), *said, *unread, *table.notes, *(attributes.notes if attributes else ()))
    return task


def read_choices(
    path: Path, columns: str, least: float
) -> tuple[Table, dict[str, str], Array, dict[tuple[str, str], int]]:
    """A table of choices: its columns by their meaning, the time of each line, and the line of each choice.

    Errors      as those of `own_choices`
    """
    table = read_table(path)
    found = _columns(path, table.header, columns)
    users, items = (table.names(found[what]) for what in ("user", "item"))
    for what, cells in (("user", users), ("item", items)):
        if "" in cells:
            raise DataError(f"{table.at(cells.index(''))}: there is no {what} in {found[what]!r}")
    time = np.zeros(len(users))
    if "time" in found:
        time = np.array(_times(table.texts(found["time"]), f"{path}: {found['time']}"))
        if bool(np.isnan(time).any()):
            first = int(np.isnan(time).argmax())
            shown = table.texts(found["time"])[first][:40]
            raise DataError(f"{table.at(first)}: {found['time']} is {shown!r}, no number and no date as 2024-12-31")
    rated = table.numbers(found["rating"]) >= least if "rating" in found else np.ones(len(users), dtype=bool)
    if "rating" not in found and least > 0:
        raise DataError(
            f"{path}: task.least={least:g} needs a column of ratings, and none was found: name it in columns"
        )
    order = [row for row in np.argsort(time, kind="stable").tolist() if rated[row]]
    once = {(users[row], items[row]): row for row in reversed(order)}
    if not once:
        raise DataError(
            f"{path}: no line has a rating of at least {least:g}" if len(users) else f"{path}: it has no lines"
        )
    for what, cells in (("user", users), ("item", items)):
        known = {*cells}
        for name in dict.fromkeys(cells):
            if name.endswith(".0") and (plain := name.removesuffix(".0")).isdecimal() and plain in known:
                both = f"{found[what]} is {name[:40]!r}, and {plain[:40]!r} elsewhere"
                raise DataError(f"{table.at(cells.index(name))}: {both}: write the same {what} in the same way")
    return table, found, time, once


def _given(table: Table, split: str, pairs: Tensor, rows: list[int], draw: torch.Generator) -> dict[Split, Tensor]:
    """The choices by the part that their line names; without any that choose, a tenth of each user's that train do."""
    cells = table.texts(split)
    parts = named([cells[row] for row in rows], lambda number: table.at(rows[number]))
    splits = {part: pairs[numbers] for part, numbers in parts.items()}
    if not len(splits["valid"]):
        held = _cut(splits["train"], torch.zeros(len(splits["train"])), draw)
        splits |= {"train": torch.cat([held["train"], held["test"]]), "valid": held["valid"]}
    return splits


def _cut(pairs: Tensor, time: Tensor, draw: torch.Generator) -> dict[Split, Tensor]:
    return {split: pairs[rows] for split, rows in latest(pairs[:, 0], time, draw).items()}


def _columns(path: Path, names: Sequence[str], given: str) -> dict[str, str]:
    """Which column is what: those that are named, or found by their names."""
    if given.strip():
        parts = [part.strip() for part in given.split(",")]
        chosen = {what: name for what, name in zip(NAMES, parts, strict=False) if name}
        if len(parts) > len(NAMES) or any(name not in names for name in chosen.values()):
            right = f"should name user, item, rating and time of {', '.join(names)}"
            raise DataError(f"{path}: --task.columns {given!r} {right}")
    else:
        called = Called(path, names)
        known_as = {what: next(filter(called.__contains__, known), "") for what, known in NAMES.items()}
        chosen = {what: called[name] for what, name in known_as.items() if name}
    for what in ("user", "item"):
        if what not in chosen:
            own = f"its columns are {', '.join(names)}: name them, as --task.columns who,what,stars,when"
            raise DataError(f"{path}: no column of {what}s was found; {own}")
    return chosen


def _times(cells: list[str], where: str) -> list[float]:
    """Numbers, or days since 1970 of dates: what most of them are; NaN for what is none."""
    numbers = numbers_of(cells).tolist()
    return numbers if 2 * sum(number == number for number in numbers) > len(numbers) else dates_of(cells, where)
