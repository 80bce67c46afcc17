"""Documents by class: captions whose subject is hidden, plays in passages, or a folder of text files for each class."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

from edgewise.data.splits import SPLITS, Split, Splits, ascending, by_class
from edgewise.errors import ConfigError, DataError
from edgewise.tasks.core.source import find_folder
from edgewise.tasks.text.language import SHAKESPEARE, read_text
from edgewise.tasks.text.tokenization import HOLE
from edgewise.tasks.text.translation import multi30k_files, read_language

Source = Literal["captions", "plays"]
SUBJECTS = ("man", "woman", "men", "women", "boy", "girl", "dog", "people", "child", "children")
SUBJECT = re.compile(rf"\b({'|'.join(SUBJECTS)})\b", re.IGNORECASE)

# How each play begins in tinyshakespeare, which does not say where one ends; only the first act of the last is there.
PLAYS = {
    "Coriolanus": "Before we proceed any further, hear me speak.",
    "Richard III": "Now is the winter of our discontent",
    "Richard II": "Old John of Gaunt, time-honour'd Lancaster,",
    "Romeo and Juliet": "Gregory, o' my word, we'll not carry coals.",
    "Henry VI, Part 3": "I wonder how the king escaped our hands.",
    "The Winter's Tale": "If you shall chance, Camillo, to visit Bohemia, on",
    "Measure for Measure": "Escalus.",
    "The Taming of the Shrew": "I'll pheeze you, in faith.",
    "The Tempest": "Boatswain!",
}
NEIGHBOURS = 5  # passages in a row that are in the same split: a scene is seldom on two sides
ENDS = (0.6, 0.8)  # shares of the documents of each class where training and validation end
MOST, MOST_CHARACTERS = 100_000, 200 << 20  # documents of a folder, and their characters together


@dataclass(frozen=True)
class Corpus:
    """Documents with their classes.

    Args:
        name: What they are.
        texts: The documents.
        labels: The number of each one's class.
        classes: The classes' names.
        splits: Which documents train, choose the weights and test.
        names: What each document is called.
        unlabelled: The texts of each split to learn from without labels; those of the documents, where it is empty.
    """

    name: str
    texts: tuple[str, ...]
    labels: Tensor
    classes: tuple[str, ...]
    splits: Splits
    names: tuple[str, ...]
    unlabelled: Mapping[Split, tuple[str, ...]] = field(default_factory=dict)

    def plain(self, split: Split) -> tuple[str, ...]:
        """The texts of a split, whose classes nobody has to know."""
        return self.unlabelled.get(split) or tuple(self.texts[number] for number in self.splits[split].tolist())

    def few(self, labels: int, seed: int) -> Splits:
        """The splits with at most `labels` training documents of each class, drawn by a seed; 0: all of them.

        >>> splits = {"train": torch.arange(4), "valid": torch.tensor([4]), "test": torch.tensor([5])}
        >>> labels, names = torch.tensor([0, 0, 1, 1, 0, 1]), tuple("abcdef")
        >>> texts = Corpus("six", names, labels, ("x", "y"), splits, names)
        >>> len(texts.few(1, seed=0)["train"]), len(texts.few(0, seed=0)["train"])
        (2, 4)
        """
        if labels < 0:
            raise ConfigError(f"task.labels must be 0 (all) or more, not {labels}")
        train, generator = self.splits["train"], torch.Generator().manual_seed(seed)
        train = train[torch.randperm(len(train), generator=generator)]
        own = [train[self.labels[train] == label][: labels or None] for label in range(len(self.classes))]
        return ascending(self.splits | {"train": torch.cat(own)})


def read_corpus(
    source: Source = "captions",
    path: str | None = None,
    words: int = 80,
    fold: int = 0,
    folder: str | None = None,
    download: bool = False,
) -> Corpus:
    """The documents of `path`, a folder with a folder of text files for each class, or else those of a source."""
    if path is not None:
        return read_documents(Path(path).expanduser(), fold)
    if source == "captions":
        place = find_folder("multi30k", multi30k_files("de", "en"), folder, download)
        return read_captions(read_language(place, "en"))
    if source != "plays":
        raise ConfigError(f"unknown documents {source!r}; known are captions, plays, or give path=")
    place = find_folder("tinyshakespeare", [SHAKESPEARE], folder, download)
    return read_plays(read_text(place / SHAKESPEARE.name), words, fold)


def read_captions(captions: Mapping[Split, list[str]]) -> Corpus:
    """Captions that name exactly one of ten subjects, which is hidden: from the rest of it one has to tell which.

    Edge cases  a subject that is named more than once is hidden each time; captions with none or with several of them
                have no class, and are there to learn from without labels, as all are, with their subjects

    Example
        >>> few = {"train": ["A man runs."], "valid": ["Two dogs and a dog."], "test": ["A girl and her dog."]}
        >>> corpus = read_captions(few)
        >>> corpus.texts, [corpus.classes[label] for label in corpus.labels]
        (('A <mask> runs.', 'Two dogs and a <mask>.'), ['man', 'dog'])
    """
    texts: list[str] = []
    labels: list[int] = []
    names: list[str] = []
    splits: Splits = {}
    for split in SPLITS:
        first = len(texts)
        for number, caption in enumerate(captions[split]):
            subjects = {subject.lower() for subject in SUBJECT.findall(caption)}
            if len(subjects) == 1:
                texts.append(SUBJECT.sub(HOLE, caption))
                labels.append(SUBJECTS.index(subjects.pop()))
                names.append(f"{split} caption {number}")
        splits[split] = torch.arange(first, len(texts))
    whole = {split: tuple(text for text in captions[split] if text.strip()) for split in SPLITS}
    return Corpus("captions", tuple(texts), torch.tensor(labels), SUBJECTS, splits, tuple(names), whole)


def read_plays(text: str, words: int, fold: int = 0) -> Corpus:
    """Passages of so many words of what is spoken in each play, without the speakers' names.

    Edge cases  the last words of a play, fewer than a passage, are left out
    """
    if words < 1:
        raise ConfigError(f"task.words must be at least 1, not {words}")
    spoken = [speech.strip().partition("\n")[2] for speech in text.split("\n\n")]
    starts, at = [], 0
    for play, opening in PLAYS.items():
        while at < len(spoken) and spoken[at].split("\n", 1)[0] != opening:
            at += 1
        if at == len(spoken):
            raise DataError(f"the play {play!r} does not begin with {opening!r}")
        starts.append(at)
    texts, labels, names = [], [], []
    for label, (play, start, end) in enumerate(zip(PLAYS, starts, [*starts[1:], len(spoken)], strict=True)):
        said = " ".join(spoken[start:end]).split()
        for number in range(len(said) // words):
            texts.append(" ".join(said[number * words : (number + 1) * words]))
            labels.append(label)
            names.append(f"{play}, passage {number}")
    classes = torch.tensor(labels)
    return Corpus("plays", tuple(texts), classes, tuple(PLAYS), _in_blocks(classes, fold), tuple(names))


def _in_blocks(labels: Tensor, fold: int) -> Splits:
    """Splits of whole blocks of neighbours."""
    block = torch.arange(len(labels)).div(NEIGHBOURS, rounding_mode="floor")
    first = torch.arange(0, len(labels), NEIGHBOURS)
    chosen = by_class(labels[first], fold, ENDS)
    return {split: torch.isin(block, blocks).nonzero()[:, 0] for split, blocks in chosen.items()}


def read_documents(path: Path, fold: int = 0) -> Corpus:
    """The text files of a folder with a folder for each class.

    The folder may also have the folders train, test and, if you like, valid, each with the folders of the classes;
    without valid, a fifth of what trains chooses the weights.

    Errors      DataError for a folder that is missing, has fewer than two classes or a class without documents; for a
                file that is empty or not UTF-8 text; for more than 100,000 documents
    Edge cases  only files that end in .txt are read, in the order of their names; white space counts as one space
    """
    if not path.is_dir():
        raise DataError(f"{path}: no such folder; expected one with a folder of .txt files for each class")
    parted = [split for split in SPLITS if (path / split).is_dir()]
    if parted and not {"train", "test"} <= set(parted):
        raise DataError(f"{path}: has the folder {parted[0]!r} alone; give train and test, or the classes' folders")
    places = [path / split for split in parted] or [path]
    classes = tuple(sorted({own.name for place in places for own in place.iterdir() if own.is_dir()}))
    if len(classes) < 2:
        raise DataError(f"{path}: {len(classes)} classes; expected a folder of .txt files for each of two or more")
    texts, labels, names, part = [], [], [], []
    size = 0
    for number, place in enumerate(places):
        for label, file in _files(place, classes):
            text = " ".join(read_text(file).split())
            if not text:
                raise DataError(f"{file}: the file holds nothing but white space")
            texts.append(text)
            labels.append(label)
            names.append(str(file.relative_to(path)))
            part.append(number)
            size += len(text)
            if len(texts) > MOST or size > MOST_CHARACTERS:
                raise DataError(f"{path}: more than {MOST:,} documents, or than {MOST_CHARACTERS:,} characters")
    target, parts = torch.tensor(labels), torch.tensor(part)
    splits = by_class(target, fold, ENDS)
    if parted:
        splits = {split: (parts == number).nonzero()[:, 0] for number, split in enumerate(parted)}
        if "valid" not in parted:
            cut = by_class(target[splits["train"]], fold, (0.8, 1.0))
            splits |= {"train": splits["train"][cut["train"]], "valid": splits["train"][cut["valid"]]}
    return Corpus(path.resolve().name, tuple(texts), target, classes, splits, tuple(names))


def _files(place: Path, classes: tuple[str, ...]) -> Iterator[tuple[int, Path]]:
    for label, name in enumerate(classes):
        own = (place / name).iterdir() if (place / name).is_dir() else ()
        files = sorted(file for file in own if file.suffix.lower() == ".txt")
        if not files:
            raise DataError(f"{place / name}: no document; expected files that end in .txt")
        yield from ((label, file) for file in files)
