"""Documents: learn what they are like by restoring masked or damaged ones, then tell their classes from few labels."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn

from edgewise.data.splits import SPLITS, Split, Splits, ascending, by_class
from edgewise.errors import ConfigError, DataError
from edgewise.models.signature import Tokens
from edgewise.tasks.core.source import find_folder
from edgewise.tasks.core.subject import Subject, in_a_row
from edgewise.tasks.core.task import EXAMPLE, Device, Pattern
from edgewise.tasks.graphs.prediction import GraphClassification, Graphs, Member
from edgewise.tasks.text.denoising import Denoising, MaskedTokens, Noise, text_graph
from edgewise.tasks.text.language import SHAKESPEARE, read_text
from edgewise.tasks.text.tokenization import (
    HOLE,
    KeepsTokenizer,
    Tokenizer,
    for_library,
    learn_tokenizer,
    with_masks,
    words,
)
from edgewise.tasks.text.translation import Manner, multi30k_files, read_language

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


Units = Literal["bpe", "byte"]  # tokens that every text has, also one with characters that never trained


@dataclass(frozen=True)
class Reading:
    """How documents become tokens: options of `documents`."""

    level: Units = "bpe"
    vocabulary: int = 2000
    length: int = 192
    lowercase: bool = True

    def __post_init__(self) -> None:
        if self.level not in ("bpe", "byte"):
            raise ConfigError(f"unknown level {self.level!r} of documents; known are bpe, byte")
        if self.length < 3:
            raise ConfigError(f"task.length must be at least 3 tokens, a document's two ends among them: {self.length}")

    def text(self, text: str) -> str:
        """A document, or what a user asks about, as it is read."""
        return text.lower() if self.lowercase else text

    def tokens(self, tokenizer: Tokenizer, text: str) -> list[int]:
        """The tokens of a document, with a mask for each "<mask>" in it."""
        return with_masks(tokenizer, self.text(text).split(HOLE))

    def framed(self, tokenizer: Tokenizer, tokens: Sequence[int]) -> Tensor:
        """A document's first tokens, as many as are read, between its two ends."""
        return torch.tensor([tokenizer.begin, *tokens[: self.length - 2], tokenizer.end])


class DocumentClassification(KeepsTokenizer, GraphClassification):
    """Each document has a class: a text is a complete graph over its tokens and two ends, read as a whole.

    Equation    loss = −1/D Σ_d log softmax(f(x_d))[t_d]
    Symbols     x_d = BEGIN, the document's first `length` − 2 tokens, END; t_d = its class
    Errors      a split without documents, or a request that is no document, is a `DataError`
    Edge cases  a longer document is cut, as BERT does; the tokenizer is learned from all training documents, with
                those whose labels are not read, or taken from the run that this one starts from
    Cost        a batch costs what its tokens cost: nothing is padded
    Reference   Devlin et al., "BERT", 2019; Lewis et al., "BART", 2020
    """

    unit = "documents"

    def __init__(self, corpus: Corpus, reading: Reading, labels: int = 0, seed: int = 0) -> None:
        self.corpus, self.reading, self.labelled = corpus, reading, corpus.few(labels, seed)
        self.use(learned(corpus, reading))

    def use(self, tokenizer: Tokenizer) -> None:
        self.tokenizer, corpus = tokenizer, self.corpus
        x = [self.reading.framed(tokenizer, self.reading.tokens(tokenizer, text)) for text in corpus.texts]
        members = tuple(text_graph(None, len(text)) for text in x)
        graphs = Graphs(members, torch.cat(x), corpus.labels, self.labelled, corpus.classes, corpus.names)
        super().__init__(corpus.name, graphs)
        self.contents = f"{len(corpus.classes)} classes, {tokenizer.size:,} tokens, documents"
        self.signature = Tokens(tokenizer.size, len(corpus.classes), length=self.reading.length, whole_graph=True)

    def member(self, request: str, pattern: Pattern) -> Member:
        """A document of the data, as "test:7", or one by its text."""
        if EXAMPLE.fullmatch(request.strip()):
            return super().member(request, pattern)
        text = " ".join(request.split())
        if not text:
            raise DataError(f"{self.name}: the document is empty: give a text, or one of the data as in 'test:7'")
        x = self.reading.framed(self.tokenizer, self.reading.tokens(self.tokenizer, text))
        return Member(text_graph(pattern, len(x)), x, None, None, None, {"name": text})

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        subject = replace(super().subject(model, pattern, request), classes=self.classes)
        return in_tokens(subject, self.member(request, pattern).x, self.tokenizer)

    def preprocessing(self) -> dict[str, Any]:
        return super().preprocessing() | for_library(self.tokenizer, lowercase=self.reading.lowercase)


def in_tokens(subject: Subject, x: Tensor, tokenizer: Tokenizer) -> Subject:
    """The same of a text's tokens: they have names, and are drawn in a row."""
    special = {tokenizer.begin: "⟨begin⟩", tokenizer.end: "⟨end⟩"}
    names = [special.get(token) or tokenizer.decode([token]) or HOLE for token in x.tolist()]
    draw = in_a_row(names, "The tokens of the text.", gap=" ")
    return replace(subject, names=names, draw=draw, groups=words(x.tolist(), names, tokenizer))


class MaskedDocuments(KeepsTokenizer, MaskedTokens):
    """Guess masked tokens of documents: no label is read, and no document that validates or tests trains.

    Differs     from `MaskedTokens`: a longer document is cut; the tokenizer is saved in a run
    """

    unit = "documents"

    def __init__(self, corpus: Corpus, reading: Reading, share: float) -> None:
        self.reading = reading
        super().__init__(
            f"masked {corpus.name}", parts(corpus, reading), learned(corpus, reading), reading.length, share
        )

    def frame(self, tokens: Sequence[int]) -> Tensor:
        return self.reading.framed(self.tokenizer, tokens)

    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        return super().predict(model, pattern, self.reading.text(request), device)


class DenoisedDocuments(Denoising):
    """Restore damaged documents: as `Denoising`, with both ends of a source, as `DocumentClassification` has them."""

    unit = "documents"

    def __init__(self, corpus: Corpus, reading: Reading, noise: Noise, smoothing: float) -> None:
        self.reading = reading
        manner = Manner(reading.level, reading.vocabulary, reading.lowercase, smoothing)
        super().__init__(f"damaged {corpus.name}", parts(corpus, reading), manner, noise, learned(corpus, reading))

    def _source(self, tokens: list[int]) -> Tensor:
        return self.reading.framed(self.tokenizer, tokens)


def parts(corpus: Corpus, reading: Reading) -> dict[Split, list[str]]:
    """The texts of each split to learn from without labels, as they are read."""
    return {split: [reading.text(text) for text in corpus.plain(split)] for split in SPLITS}


def learned(corpus: Corpus, reading: Reading) -> Tokenizer:
    """The tokenizer of the training documents."""
    return learn_tokenizer(reading.level, parts(corpus, reading)["train"], reading.vocabulary)


def documents(
    source: Source = "captions",
    path: str | None = None,
    labels: int = 0,
    fold: int = 0,
    words: int = 80,
    level: Units = "bpe",
    vocabulary: int = 2000,
    length: int = 192,
    lowercase: bool = True,
    folder: str | None = None,
    download: bool = False,
) -> DocumentClassification:
    """Tell documents' classes: of whom a caption with a hidden subject speaks, which play a passage is from, or yours.

    Reference   Elliott et al., 2016, and tinyshakespeare (data); Devlin et al., "BERT", 2019

    Args:
        source: "captions" are Multi30k's English descriptions of pictures that name exactly one of ten subjects, such
            as man, girl or dog, which is hidden by "<mask>"; "plays" cuts nine of Shakespeare (tinyshakespeare) into
            passages of what is spoken, without the speakers' names.
        path: A folder to read instead of `source`: in it a folder of .txt files for each class, or the folders train,
            test and perhaps valid, each with those.
        labels: How many training documents of each class to read, chosen at random by the fold; 0: all.
        fold: Seed of the choice of labels, and of the random cut of what has no parts of its own: of plays, where five
            passages in a row stay on one side, and of your own folder without train and test.
        words: Words of a passage, of plays.
        level: What a token is: "bpe" (byte pairs of the training documents) or "byte".
        vocabulary: Tokens, for "bpe".
        length: Most tokens of a document, with its two ends; a longer one is cut.
        lowercase: Read small letters only.
        folder: Where the source's files lie (default: multi30k or tinyshakespeare in $EDGEWISE_DATA, then the cache).
        download: Fetch them if they are missing, over TLS and verified by their hashes.

    Errors      a file or folder that is missing, empty or not UTF-8 text is a `DataError` that names it.
    """
    reading = Reading(level, vocabulary, length, lowercase)
    return DocumentClassification(read_corpus(source, path, words, fold, folder, download), reading, labels, fold)


def masked_documents(
    source: Source = "captions",
    path: str | None = None,
    share: float = 0.15,
    fold: int = 0,
    words: int = 80,
    level: Units = "bpe",
    vocabulary: int = 2000,
    length: int = 192,
    lowercase: bool = True,
    folder: str | None = None,
    download: bool = False,
) -> MaskedDocuments:
    """Guess masked tokens of the documents of `documents`, before their classes; no label is read (BERT, RoBERTa).

    Reference   Devlin et al., "BERT", 2019; Liu et al., "RoBERTa", 2019

    Args:
        source: As for `documents`.
        path: As for `documents`.
        share: How likely a token is to be guessed.
        fold: As for `documents`: with the same one, this never reads what is tested there.
        words: Words of a passage, of plays.
        level: What a token is: "bpe" (byte pairs of the training documents) or "byte".
        vocabulary: Tokens, for "bpe".
        length: Most tokens of a document, with its two ends; a longer one is cut.
        lowercase: Read small letters only.
        folder: Where the source's files lie (default: multi30k or tinyshakespeare in $EDGEWISE_DATA, then the cache).
        download: Fetch them if they are missing, over TLS and verified by their hashes.

    Errors      as `documents`
    """
    reading = Reading(level, vocabulary, length, lowercase)
    return MaskedDocuments(read_corpus(source, path, words, fold, folder, download), reading, share)


def denoised_documents(
    source: Source = "captions",
    path: str | None = None,
    sentences: bool = True,
    infill: float = 0.3,
    span: float = 3.0,
    smoothing: float = 0.0,
    fold: int = 0,
    words: int = 80,
    level: Units = "bpe",
    vocabulary: int = 2000,
    length: int = 192,
    lowercase: bool = True,
    folder: str | None = None,
    download: bool = False,
) -> DenoisedDocuments:
    """Restore damaged documents of `documents`, before their classes; no label is read (BART).

    Reference   Lewis et al., "BART", 2020

    Args:
        source: As for `documents`.
        path: As for `documents`.
        sentences: Put a document's sentences in random order.
        infill: Share of the tokens that spans of them take, each of which becomes one mask.
        span: Mean length of such a span, of a Poisson distribution.
        smoothing: Probability that the training loss spreads over all tokens.
        fold: As for `documents`: with the same one, this never reads what is tested there.
        words: Words of a passage, of plays.
        level: What a token is: "bpe" (byte pairs of the training documents) or "byte".
        vocabulary: Tokens, for "bpe".
        length: Most tokens of a document that are read; what is written may be longer.
        lowercase: Read small letters only.
        folder: Where the source's files lie (default: multi30k or tinyshakespeare in $EDGEWISE_DATA, then the cache).
        download: Fetch them if they are missing, over TLS and verified by their hashes.

    Errors      as `documents`
    """
    reading, noise = Reading(level, vocabulary, length, lowercase), Noise(sentences, 0.0, 0, infill, span)
    return DenoisedDocuments(read_corpus(source, path, words, fold, folder, download), reading, noise, smoothing)
