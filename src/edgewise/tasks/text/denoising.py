"""Texts restored before a task with few labels: masked tokens are guessed, or a damaged text is written as it was."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Literal, Self

import torch
from torch import Generator, Tensor, nn

from edgewise.data.splits import Split
from edgewise.errors import ConfigError, DataError
from edgewise.graphs import Graph, complete
from edgewise.models.signature import Tokens
from edgewise.tasks.core.abilities import Alone
from edgewise.tasks.core.batch import Batch, DisjointBatch, evenly
from edgewise.tasks.core.classification import Classification
from edgewise.tasks.core.source import find_folder
from edgewise.tasks.core.subject import Subject, captured, in_a_row
from edgewise.tasks.core.task import Device, Pattern, given, lay
from edgewise.tasks.text.tokenization import HOLE, MASK, NO_TEXT, Level, Tokenizer, for_library, with_masks, words
from edgewise.tasks.text.translation import Manner, Pair, Translation, multi30k, multi30k_files, read_language

STOPS = (".", "!", "?")


@dataclass(frozen=True)
class Noise:
    """How a text is damaged, in the order of the arguments: options of `multi30k_denoising`."""

    sentences: bool = True
    delete: float = 0.0
    reach: int = 0
    infill: float = 0.3
    span: float = 3.0

    def __post_init__(self) -> None:
        if not (0 <= self.delete < 1 and 0 <= self.infill < 1):
            raise ConfigError(f"delete={self.delete} and infill={self.infill} must be at least 0 and below 1")
        if self.span <= 0 or self.reach < 0:
            raise ConfigError(f"span={self.span} must be above 0 and reach={self.reach} not negative")

    def __call__(self, tokens: Sequence[int], stops: Collection[int], generator: Generator, mask: int) -> list[int]:
        """Damaged tokens."""
        made = list(tokens)
        if self.sentences:
            made = permute_sentences(made, stops, generator)
        if self.delete:
            made = delete_tokens(made, self.delete, generator)
        if self.reach:
            made = permute_tokens(made, self.reach, generator)
        return infill(made, self.infill, self.span, generator, mask) if self.infill else made


class Denoising(Translation):
    """Write a text as it was before noise: an encoder-decoder learns a language without any translation (BART).

    Equation    loss = −1/T Σ_t log p(x_t | x_<t, noise(x)), with Translation's smoothing
    Symbols     a source is noise(x), drawn anew each time a text is read to train, and once to validate and to test;
                the target is x
    Edge cases  a text that noise has left nothing of is a source that only ends
    Differs     what is validated is the loss: nothing is written
    Reference   Lewis et al., "BART: denoising sequence-to-sequence pre-training for natural language generation,
                translation, and comprehension", 2020
    """

    metric = "loss"

    def __init__(
        self, name: str, texts: Mapping[Split, list[str]], manner: Manner, noise: Noise, tokenizer: Tokenizer | None
    ) -> None:
        self.noise = noise
        super().__init__(name, {split: (lines, lines) for split, lines in texts.items()}, manner, tokenizer)

    def use(self, tokenizer: Tokenizer) -> None:
        super().use(tokenizer)
        self.stops = {token for token in range(tokenizer.size) if tokenizer.decode([token]).strip() in STOPS}

    def read_pair(self, pair: Pair, generator: Generator) -> Pair:
        """A text, damaged anew in training, and by the same damage each time to validate and to test."""
        tokens = pair[1][1:-1].tolist()
        return self._source(self.noise(tokens, self.stops, generator, self.tokenizer.mask)), pair[1]

    def preprocessing(self) -> dict[str, Any]:
        return for_library(self.tokenizer, ("end",), self.manner.lowercase)

    def judge(self, model: nn.Module, split: Split, pattern: Pattern, device: Device) -> dict[str, float]:
        """Nothing beside the loss."""
        return {}

    def read(self, sources: Sequence[str]) -> list[list[int]]:
        """The tokens of damaged texts, with "<mask>" where something is missing."""
        return [with_masks(self.tokenizer, [piece.strip() for piece in source.split(HOLE)]) for source in sources]


def multi30k_denoising(
    language: Literal["en", "de"] = "en",
    sentences: bool = True,
    delete: float = 0.0,
    reach: int = 0,
    infill: float = 0.3,
    span: float = 3.0,
    level: Level = "bpe",
    vocabulary: int = 8000,
    smoothing: float = 0.1,
    pairs: int = 29_000,
    folder: str | None = None,
    download: bool = False,
) -> Denoising:
    """Restore damaged descriptions of pictures, in one language, in small letters: to start a translation from.

    29,000 sentences train, without their translations; 1,014 choose the weights and 1,000 test.

    Reference   Elliott et al., 2016 (data); Lewis et al., 2020 (noise)

    Args:
        language: Of which language.
        sentences: Put a text's sentences in random order.
        delete: Share of the tokens to leave out.
        reach: Places that a token may move by.
        infill: Share of the tokens that spans of them take, each of which becomes one mask.
        span: Mean length of such a span, of a Poisson distribution.
        level: What a token is: "bpe", "byte" or "character".
        vocabulary: Tokens of both languages together, for "bpe".
        smoothing: Probability that the training loss spreads over all tokens.
        pairs: How many pairs of sentences, the first ones, the byte pairs are learned from: those that a translation
            with the same number will train on.
        folder: Where the files train.de.gz, ..., test_2016_flickr.en.gz lie (default: multi30k in $EDGEWISE_DATA, then
            the cache).
        download: Fetch them if they are missing, over TLS and verified by their hashes.

    Errors      a file that is missing, damaged or not UTF-8 is a `DataError` that names it.
    """
    if language not in ("en", "de"):
        raise ConfigError(f"unknown language {language!r}; known are en, de")
    noise = Noise(sentences, delete, reach, infill, span)
    place = find_folder("multi30k", multi30k_files("de", "en"), folder, download)
    both = multi30k("de-en", level, vocabulary, pairs=pairs, folder=str(place))
    manner = Manner(level, vocabulary, smoothing=smoothing)
    return Denoising(f"multi30k {language}", read_language(place, language), manner, noise, both.tokenizer)


def mask_tokens(
    tokens: Tensor,
    size: int,
    share: float,
    generator: Generator,
    mask: int = MASK,
    special: Collection[int] = NO_TEXT,
) -> tuple[Tensor, Tensor]:
    """BERT's noise: choose some tokens; of these 80 % become the mask, 10 % another one and 10 % stay as they are.

    Symbols     share = how likely a token is chosen; size = tokens of the vocabulary; special = those that no text has
    Shapes      tokens [N] int64 -> what is read [N], and which of them were chosen [n], in ascending order
    Edge cases  special tokens are never chosen, nor drawn; of a sequence with other tokens at least one is chosen
    Differs     each token is chosen by itself, where the paper fixes how many are
    Reference   Devlin et al., "BERT", 2019, §3.1

    Example
        >>> draw = torch.Generator().manual_seed(0)
        >>> mask_tokens(torch.tensor([0, 7, 8, 9, 1]), 10, 0.15, draw)  # 9 is to be guessed
        (tensor([0, 7, 8, 2, 1]), tensor([3]))
    """
    ordinary = torch.ones(size, dtype=torch.bool)
    ordinary[list(special)] = False
    words, able = ordinary.nonzero().flatten(), ordinary[tokens].nonzero().flatten()
    lots = torch.rand(len(able), generator=generator)
    rows = able[(lots < share) | ((lots == lots.min()) & (lots.min() >= share))] if len(able) else able
    fate = torch.rand(len(rows), generator=generator)
    other = words[torch.randint(len(words), (len(rows),), generator=generator)]
    read = tokens.clone()
    read[rows] = torch.where(fate < 0.8, mask, torch.where(fate < 0.9, other, tokens[rows]))
    return read, rows


def infill(tokens: Sequence[int], share: float, span: float, generator: Generator, mask: int = MASK) -> list[int]:
    """BART's text infilling: spans of tokens each become a single mask, so that their length has to be guessed too.

    Equation    lengths ~ Poisson(λ), one after the other until they add up to the share of the n tokens; the last one
                is cut to fit. All places where the spans do not overlap are equally likely
    Symbols     span = λ
    Edge cases  a span of no tokens puts in a mask where nothing is missing; share · n is rounded up or down at random,
                so that it is right on average
    Reference   Lewis et al., "BART", 2020, §2.2; Joshi et al., "SpanBERT", 2020

    Example
        >>> infill([11, 12, 13, 14, 15, 16], 0.5, 3.0, torch.Generator().manual_seed(0))
        [11, 12, 2, 2, 2, 16]
    """
    missing = int(share * len(tokens) + float(torch.rand((), generator=generator)))
    lengths: list[int] = []
    while sum(lengths) < missing:
        drawn = int(torch.poisson(torch.tensor(span), generator=generator))
        lengths.append(min(drawn, missing - sum(lengths)))
    left = len(tokens) - missing + len(lengths)  # the tokens that stay, and the masks
    places = set(torch.randperm(left, generator=generator)[: len(lengths)].tolist())
    made, here, spans = [], 0, iter([lengths[i] for i in torch.randperm(len(lengths), generator=generator).tolist()])
    for place in range(left):
        made.append(mask if place in places else tokens[here])
        here += next(spans) if place in places else 1
    return made


def delete_tokens(tokens: Sequence[int], share: float, generator: Generator) -> list[int]:
    """Token deletion: each token is left out with a probability of `share`; where, has to be guessed. BART, §2.2.

    Example
        >>> delete_tokens([11, 12, 13], 0.0, torch.Generator())
        [11, 12, 13]
    """
    stay = torch.rand(len(tokens), generator=generator) >= share
    return [token for token, stays in zip(tokens, stay.tolist(), strict=True) if stays]


def permute_tokens(tokens: Sequence[int], reach: int, generator: Generator) -> list[int]:
    """A slight permutation: no token moves by more than `reach` places; 0 leaves them as they are.

    Equation    sort by i + u_i,  u_i uniform in [0, reach + 1)
    Reference   Lample et al., "Unsupervised machine translation using monolingual corpora only", 2018, §2.3

    Example
        >>> permute_tokens([11, 12, 13, 14], 0, torch.Generator())
        [11, 12, 13, 14]
    """
    order = torch.arange(len(tokens)) + (reach + 1) * torch.rand(len(tokens), generator=generator)
    return [tokens[i] for i in order.argsort(stable=True).tolist()]


def permute_sentences(tokens: Sequence[int], stops: Collection[int], generator: Generator) -> list[int]:
    """Sentence permutation: a text is cut after every stop, and the pieces are put together in random order.

    Symbols     stops = tokens that end a sentence
    Reference   Lewis et al., "BART", 2020, §2.2

    Example
        >>> permute_sentences([11, 5, 12, 13, 5], {5}, torch.Generator().manual_seed(1))
        [12, 13, 5, 11, 5]
    """
    pieces: list[list[int]] = [[]]
    for token in tokens:
        pieces[-1].append(token)
        if token in stops:
            pieces.append([])
    pieces = [piece for piece in pieces if piece]
    return [token for i in torch.randperm(len(pieces), generator=generator).tolist() for token in pieces[i]]


Reword = Callable[[str, Generator], str]


@dataclass
class MaskedBatch(DisjointBatch):
    """Some texts side by side as one graph; `rows` are the tokens to guess, `target` what they were.

    Cost        a model computes scores of all tokens at these places alone, which is most of what a small one computes
    """

    rows: Tensor

    @property
    def inputs(self) -> tuple[Any, ...]:
        return self.graph, self.x, self.rows

    def _of_rows(self, outputs: Tensor, rows: Tensor) -> Tensor:
        return outputs if outputs.shape[-2] == len(rows) else super()._of_rows(outputs, rows)

    def split(self, parts: int) -> list[Self]:
        """Cut between texts; where a part would have nothing to guess, each part is the whole batch."""
        ends = torch.tensor([0] + [member.num_receivers for member in self.members]).cumsum(0)
        made = []
        for first, last in evenly(len(self.members), parts):
            start, stop = int(ends[first]), int(ends[last])
            mine = (self.rows >= start) & (self.rows < stop)
            if not mine.any():
                return [self] * parts
            members, rows = self.members[first:last], self.rows[mine] - start
            graph = Graph.batch(members)
            made.append(type(self)(graph, self.x[start:stop], self.target[mine], rows, members=members))
        return made


class MaskedTokens(Classification):
    """Guess masked tokens from those on both sides: an encoder learns what texts are like without any label (BERT).

    Equation    loss = −1/M Σ_m log p(x_m | the text with some of it masked), over the M tokens that were chosen
    Symbols     share = how likely a token is chosen; `mask_tokens` says what becomes of it
    Shapes      a text of n tokens is BEGIN, n tokens, END: n + 2 nodes that attend to one another
    Errors      DataError for a text longer than `length`, a split without texts, or a tokenizer without a mask
    Edge cases  `reword` draws another wording of the same text each time it is read to train; one that is too long is
                replaced by the text itself. Masks that validate and test are drawn once
    Cost        a batch costs what its tokens cost: nothing is padded
    Differs     no second sentence; masks are drawn anew at every reading, as in RoBERTa
    Reference   Devlin et al., "BERT", 2019; Liu et al., "RoBERTa", 2019

    Example
        >>> from edgewise.tasks.text.tokenization import CharacterTokenizer
        >>> texts = {"train": ["abcd"], "valid": ["abc"], "test": []}
        >>> task = MaskedTokens("letters", texts, CharacterTokenizer("abcd"), length=6)
        >>> batch = next(task.batches("valid", 8))
        >>> batch.x.tolist(), batch.rows.tolist(), batch.target.tolist()  # a, b, ?, of the tokens BEGIN a b c END
        ([0, 3, 4, 2, 1], [3], [5])
    """

    metric = "loss"
    unit = "texts"

    def __init__(
        self,
        name: str,
        texts: Mapping[Split, Sequence[str]],
        tokenizer: Tokenizer,
        length: int,
        share: float = 0.15,
        reword: Reword | None = None,
    ) -> None:
        if not 0 < share <= 1:
            raise ConfigError(f"share must be above 0 and at most 1, not {share}")
        if not any(texts.values()) or bool(texts["train"]) != bool(texts["valid"]):
            raise DataError(f"{name} has no texts to train on, or none to validate")
        self.name, self.texts, self.share, self.reword = name, texts, share, reword
        self.epoch_size, self.has_test, self.splits = len(texts["train"]), bool(texts["test"]), texts
        self.length = length
        self.use(tokenizer)

    def use(self, tokenizer: Tokenizer) -> None:
        """Read the texts by a tokenizer."""
        self.tokenizer, self.mask, self.contents = tokenizer, tokenizer.mask, f"{tokenizer.size:,} tokens, texts"
        self.signature = Tokens(tokenizer.size, tokenizer.size, length=self.length, places=True)
        self.tokens = self.read()

    def read(self) -> Mapping[Split, Sequence[Tensor]]:
        """The tokens of each text, framed, by its part."""
        return {split: [self.frame(x) for x in self.tokenizer.encode(texts)] for split, texts in self.texts.items()}

    def frame(self, tokens: Sequence[int]) -> Tensor:
        """A text's tokens between those that begin and end it."""
        return framed(self.name, tokens, self.length, (self.tokenizer.begin, self.tokenizer.end))

    def train_batch(self, size: int, generator: Generator, pattern: Pattern = None) -> Batch:
        """`size` training texts drawn with replacement, each worded and masked anew."""
        chosen = torch.randint(self.epoch_size, (size,), generator=generator).tolist()
        texts = [self._reworded(number, generator) for number in chosen]
        return self._batch(texts, *self._masked(texts, generator), pattern)

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        """Every text of a split once, in a fixed order, with the same masks every time, whatever the size."""
        texts = self.tokens[split]
        lengths = [len(text) for text in texts]
        read, rows = self._masked(texts, Generator().manual_seed(0))
        chosen = torch.zeros(len(read), dtype=torch.bool).index_fill(0, rows, True).split(lengths)
        x = read.split(lengths)
        for first in range(0, len(texts), size):
            some = slice(first, first + size)
            yield self._batch(texts[some], torch.cat(x[some]), torch.cat(chosen[some]).nonzero()[:, 0], pattern)

    def _reworded(self, number: int, generator: Generator) -> Tensor:
        if self.reword is None:
            return self.tokens["train"][number]
        tokens = self.tokenizer.encode([self.reword(self.texts["train"][number], generator)])[0]
        fits = len(tokens) + 2 <= self.length
        return self.frame(tokens) if fits else self.tokens["train"][number]

    def _masked(self, texts: Sequence[Tensor], generator: Generator) -> tuple[Tensor, Tensor]:
        """What is read of texts in a row, and which of their tokens are to be guessed."""
        whole, tokenizer = torch.cat([*texts, torch.empty(0, dtype=torch.int64)]), self.tokenizer
        return mask_tokens(whole, tokenizer.size, self.share, generator, self.mask, tokenizer.special)

    def _batch(self, texts: Sequence[Tensor], x: Tensor, rows: Tensor, pattern: Pattern) -> Batch:
        members = tuple(text_graph(pattern, len(text)) for text in texts)
        return MaskedBatch(Graph.batch(members), x, torch.cat(list(texts))[rows], rows, members=members)

    def preprocessing(self) -> dict[str, Any]:
        return for_library(self.tokenizer)

    def alone(self, model: nn.Module, pattern: Pattern) -> Alone:
        return Alone(model, next(iter(self.batches("valid", 1, pattern))).inputs[:2])

    @property
    def typical(self) -> str:
        return "<mask>"

    @torch.no_grad()
    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """The five likeliest tokens for each "<mask>" of a text."""
        if HOLE not in request:
            raise DataError(f"nothing to guess: write {HOLE} in place of a token")
        x = self.frame(with_masks(self.tokenizer, request.strip().split(HOLE)))
        graph = text_graph(pattern, len(x)).to(device)
        special = list(self.tokenizer.special)
        logits = model.eval()(graph, x.to(device)).cpu().double()[x == self.mask]
        best = logits.index_fill(-1, torch.tensor(special), -torch.inf).softmax(-1)
        best = best.topk(min(5, best.shape[-1] - len(special)))
        likely = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        name = self.tokenizer.decode
        guesses = [[{"token": name([t]), "probability": p} for t, p in zip(*pair, strict=True)] for pair in likely]
        return {"text": request, "guesses": guesses}

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """The token in place of the first "<mask>" of a text."""
        inputs = captured(model, lambda: self.predict(model, pattern, request, "cpu"))
        tokens = inputs[1].tolist()
        classes = [self.tokenizer.decode([token]) for token in range(self.tokenizer.size)]
        special = {self.tokenizer.begin: "⟨begin⟩", self.tokenizer.end: "⟨end⟩", self.mask: HOLE}
        names = [special.get(token, classes[token]) for token in tokens]
        draw = in_a_row(names, "The tokens of the text.", inputs[0])
        return Subject(inputs, (tokens.index(self.mask),), classes, names=names, draw=draw)


def in_tokens(subject: Subject, x: Tensor, tokenizer: Tokenizer) -> Subject:
    """The same of a text's tokens: they have names, and are drawn in a row."""
    special = {tokenizer.begin: "⟨begin⟩", tokenizer.end: "⟨end⟩"}
    names = [special.get(token) or tokenizer.decode([token]) or HOLE for token in x.tolist()]
    draw = in_a_row(names, "The tokens of the text.", gap=" ")
    return replace(subject, names=names, draw=draw, groups=words(x.tolist(), names, tokenizer))


@lru_cache(maxsize=4096)
def text_graph(pattern: Pattern, length: int) -> Graph:
    """The graph over a text, the same object every time; the data's own is complete."""
    return complete(length) if given(pattern) else lay(pattern, length)


def framed(name: str, tokens: Sequence[int], length: int, ends: tuple[int, int]) -> Tensor:
    """The token that begins, a text's tokens and the one that ends; more than `length` are a DataError."""
    if len(tokens) + 2 > length:
        raise DataError(f"{name}: a text of {len(tokens)} tokens, and its two ends, is longer than length={length}")
    return torch.tensor([ends[0], *tokens, ends[1]])
