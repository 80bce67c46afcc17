"""Documents: learn what they are like by restoring masked or damaged ones, then tell their classes from few labels."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import torch
from torch import Tensor, nn

from edgewise.data.splits import SPLITS, Split
from edgewise.errors import ConfigError, DataError
from edgewise.models.signature import Tokens
from edgewise.tasks.core.drawing import Coloured, Content
from edgewise.tasks.core.subject import Subject
from edgewise.tasks.core.task import EXAMPLE, Device, Pattern
from edgewise.tasks.graphs.prediction import GraphClassification, Graphs, Member
from edgewise.tasks.text.corpus import Corpus, Source, read_corpus
from edgewise.tasks.text.denoising import Denoising, Noise
from edgewise.tasks.text.masked import MaskedTokens, text_graph
from edgewise.tasks.text.pretrained import KeepsTokenizer
from edgewise.tasks.text.tokenization import HOLE, Tokenizer, learn_tokenizer, with_masks
from edgewise.tasks.text.translation import Manner

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
        pieces = tokenizer.encode(self.text(text).split(HOLE))
        return with_masks(pieces, tokenizer.mask) if len(pieces) > 1 else pieces[0]

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
        """Read the documents by a tokenizer."""
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
        """The class of a document."""
        subject = replace(super().subject(model, pattern, request), classes=self.classes)
        return in_tokens(subject, self.member(request, pattern).x, self.tokenizer)

    def preprocessing(self) -> dict[str, Any]:
        ends = {"begin": self.tokenizer.begin, "end": self.tokenizer.end, "lowercase": self.reading.lowercase}
        return super().preprocessing() | {"tokenizer": json.loads(self.tokenizer.to_json()) | ends}


def in_tokens(subject: Subject, x: Tensor, tokenizer: Tokenizer) -> Subject:
    """The same of a text's tokens: they have names, and are drawn in a row."""
    special = {tokenizer.begin: "⟨begin⟩", tokenizer.end: "⟨end⟩"}
    names = [special.get(token) or tokenizer.decode([token]) or HOLE for token in x.tolist()]

    def draw(edges: Tensor | None, nodes: Tensor) -> list[Content]:
        return [Coloured([f"{name} " for name in names], nodes.double().numpy(), "The tokens of the text.")]

    return replace(subject, names=names, draw=draw)


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
