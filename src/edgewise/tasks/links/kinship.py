"""Knowledge graphs to learn from: families whose every kinship is known, and facts of one's own."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import torch
from torch import Tensor

from edgewise.configuration import OneOf
from edgewise.data.splits import SPLITS, Split, cut
from edgewise.errors import ConfigError, DataError
from edgewise.files import check_folder, decode, folder_name, holds, read_bytes
from edgewise.tasks.links.knowledge import DECODERS, Facts, KnowledgeGraph

Fact = tuple[str, str, str]

MAX_BYTES = 1 << 28  # of a file of facts
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


def knowledge_folder(
    folder: str = "facts", width: int = 64, decoder: Annotated[str, OneOf(DECODERS)] = "complex", fold: int = 0
) -> KnowledgeGraph:
    """Complete facts of your own: texts with a head, a relation and a tail in each line, and a tab between them.

    The folder has `train.txt`, `valid.txt` and `test.txt`, as FB15k-237 and WN18RR come, or one file `facts.txt` (or
    .tsv), of which 80 % of the facts train, 10 % choose the weights and 10 % test. A fact that is there twice counts
    once; one that is in two files belongs to the first of test, valid and train. A first line that names the columns,
    as head, relation and tail or subject, predicate and object, is no fact, which is said; it is one where a fact of
    its file has one of these names.

    Args:
        folder: Where the files lie.
        width: Channels of the embeddings of entities and relations.
        decoder: How the embeddings of two entities and a relation say that a fact is true: "distmult", which takes a
            fact for its inverse, "complex", or "rotate".
        fold: Seed of the random cut, of one file.

    Errors      a line that is no fact, an entity or relation of a held-out fact that no training fact has, a file that
                is missing or longer than 256 MB: `DataError`
    """
    place = Path(folder).expanduser()
    check_folder(place)
    whole = [name for name in ("facts.txt", "facts.tsv") if holds(place, name)]
    parts = [f"{split}.txt" for split in SPLITS]
    lacking = [name for name in parts if not holds(place, name)]
    if len(whole) > 1 or (whole and len(lacking) < 3):
        raise DataError(f"{place} has {', '.join([*whole, *parts])}, or some of them: leave one file, or three")
    if not whole and lacking:
        raise DataError(f"{place} lacks {', '.join(lacking)}: it needs {', '.join(parts)}, or facts.txt")
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
        rows = [
            (
                entities.setdefault(a, len(entities)),
                relations.setdefault(r, len(relations)),
                entities.setdefault(b, len(entities)),
            )
            for a, r, b in fresh
        ]
        numbered[name] = torch.tensor(rows, dtype=torch.int64).reshape(-1, 3)
    splits: dict[Split, Tensor] = (
        _cut(numbered[whole[0]], fold) if whole else {split: numbered[f"{split}.txt"] for split in SPLITS}
    )
    facts = Facts(tuple(entities), tuple(relations), splits)
    if not whole:
        _check_seen(place, facts)
    task = KnowledgeGraph(folder_name(place), facts, width, decoder)
    task.summary = (task.describe(), *notes)
    return task


def _cut(facts: Tensor, fold: int) -> dict[Split, Tensor]:
    order = torch.randperm(len(facts), generator=torch.Generator().manual_seed(fold))
    parts = cut(order, (round(0.8 * len(facts)), round(0.9 * len(facts))))
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
        expected = "a fact is a head, a relation and a tail with tabs between them"
        raise DataError(f"{path}: {expected}, not {'; '.join(wrong[:5])}{more}")
    return facts


def _check_seen(place: Path, facts: Facts) -> None:
    """Refuse held-out facts about what no training fact tells anything of."""
    train = facts.splits["train"]
    for split in ("valid", "test"):
        held = facts.splits[split]
        pairs = (("entity", facts.entities, [0, 2]), ("relation", facts.relations, [1]))
        for what, names, columns in pairs:
            new = held[:, columns].unique()
            new = new[~torch.isin(new, train[:, columns].unique())]
            if len(new):
                some = ", ".join(repr(names[number]) for number in new[:3].tolist())
                raise DataError(
                    f"{place / f'{split}.txt'}: no training fact has the {what} {some}"
                    + (f" and {len(new) - 3:,} more" if len(new) > 3 else "")
                    + ": leave such facts out"
                )
