"""Denoising: read a text that noise has damaged, and write it as it was; before a task with few examples."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Generator, nn

from edgewise.data.splits import Split
from edgewise.errors import ConfigError
from edgewise.tasks.core.source import find_folder
from edgewise.tasks.core.task import Pattern
from edgewise.tasks.text.noise import delete_tokens, infill, permute_sentences, permute_tokens
from edgewise.tasks.text.tokenization import HOLE, Level, Tokenizer, with_masks
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

    def judge(self, model: nn.Module, split: Split, pattern: Pattern, device: torch.device | str) -> dict[str, float]:
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
