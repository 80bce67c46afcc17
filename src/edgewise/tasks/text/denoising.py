"""Denoising: read a text that noise has damaged, and write it as it was; before a task with few examples."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, Tensor, nn

from edgewise.data.splits import Split
from edgewise.errors import ConfigError
from edgewise.tasks.core.source import find_folder
from edgewise.tasks.core.task import Device, Pattern
from edgewise.tasks.text.tokenization import HOLE, MASK, NO_TEXT, Level, Tokenizer, with_masks
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
    maximise = False

    def __init__(
        self, name: str, texts: Mapping[Split, list[str]], manner: Manner, noise: Noise, tokenizer: Tokenizer | None
    ) -> None:
        self.noise = noise
        super().__init__(name, {split: (lines, lines) for split, lines in texts.items()}, manner, tokenizer)

    def use(self, tokenizer: Tokenizer) -> None:
        """Read and write by a tokenizer."""
        super().use(tokenizer)
        self.stops = {token for token in range(tokenizer.size) if tokenizer.decode([token]).strip() in STOPS}

    def read_pair(self, pair: Pair, generator: Generator) -> Pair:
        """A text, damaged anew in training, and by the same damage each time to validate and to test."""
        tokens = pair[1][1:-1].tolist()
        return self._source(self.noise(tokens, self.stops, generator, self.tokenizer.mask)), pair[1]

    def judge(self, model: nn.Module, split: Split, pattern: Pattern, device: Device) -> dict[str, float]:
        """Nothing beside the loss."""
        return {}

    def read(self, sources: Sequence[str]) -> list[list[int]]:
        """The tokens of damaged texts, with "<mask>" where something is missing."""
        pieces = [source.split(HOLE) for source in sources]
        read = [self.tokenizer.encode([piece.strip() for piece in some]) for some in pieces]
        return [with_masks(some, self.tokenizer.mask) if len(some) > 1 else some[0] for some in read]


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
