"""Texts of one's own without labels, restored before a task with few labels: masked tokens, or whole damaged texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal, TypeVar

import torch
from torch import Tensor, nn

from edgewise.data.examples import Asked, Examples, given_table
from edgewise.data.options import on_own
from edgewise.data.record import Fitted, Settled, with_validation
from edgewise.data.splits import SPLITS, Cut, How, Split
from edgewise.data.table import object_in
from edgewise.errors import ConfigError
from edgewise.tasks.core.subject import Subject
from edgewise.tasks.core.task import Device, Pattern
from edgewise.tasks.own.language import name_of, read
from edgewise.tasks.own.texts import TEXTS, OwnTokens, TextRows, input_of, tokenizer_of
from edgewise.tasks.text.denoising import Denoising, MaskedTokens, Noise
from edgewise.tasks.text.translation import Manner

T = TypeVar("T")
Units = Literal["bpe", "byte"]  # tokens that every text has, also one with characters that never trained


@dataclass(frozen=True)
class TextsAlone(TextRows[Any]):
    """Texts of a table, of a folder of documents, or passages of one text; and how they are damaged."""

    fold: int = 0  # seed of the cut of what trains, where the files name the parts but for validation
    share: float = 0.0  # how likely a token is masked; 0: noise damages them
    noise: Noise = field(default_factory=Noise)
    smoothing: float = 0.0  # of the loss of damaged texts

    def read(self, place: Path, fitted: Fitted | None) -> tuple[Examples, None]:
        rows = read(place, self.asked)
        return replace(rows, splits=with_validation(rows.splits, self.fold, rows.inputs["text"])), None

    def task(self, settled: Settled, inputs: None) -> MaskedTexts | DamagedTexts:
        if not settled.splits:  # of other texts, all test
            none, rows = torch.empty(0, dtype=torch.int64), torch.arange(len(settled.given))
            settled = replace(settled, splits=dict.fromkeys(SPLITS, none) | {"test": rows})
        return MaskedTexts(settled, self) if self.share else DamagedTexts(settled, self)


class _Unlabelled(OwnTokens):
    """Texts whose labels nobody has to know: what a run keeps of them, and how it reads others."""

    changes: tuple[str, ...] | None
    unit = "texts"
    form = '{"text": TEXT}'

    def __init__(self, own: Settled, how: TextsAlone) -> None:
        self.own, self.how, self.changes, self.few = own, how, own.changes, own.few
        self.letters = how.letters(own.given.inputs["text"])
        self.learned = how.learned(self.letters, own.splits["train"])

    def of(self, each: Sequence[T]) -> dict[Split, list[T]]:
        """What each text has, by its part."""
        return {split: [each[row] for row in self.own.splits[split].tolist()] for split in SPLITS}

    def elsewhere(self, place: Path, labelled: bool = False) -> Any:
        return replace(self.how, tokenizer=self.tokenizer).elsewhere(place, self.own.fitted, False)

    def asked(self, request: str) -> str:
        """The text of a request, which may be a row."""
        row = object_in(request)
        return self.how.letters([request if row is None else input_of(row, "text", self)])[0]


class MaskedTexts(_Unlabelled, MaskedTokens):
    """Guess masked tokens of one's own texts: no label is read, and no text that validates or tests trains.

    Differs     from `MaskedTokens`: a longer text may be cut; the tokenizer and the parts are kept in a run
    """

    def __init__(self, own: Settled, how: TextsAlone) -> None:
        _Unlabelled.__init__(self, own, how)
        name = f"masked {name_of(own.given)}"
        MaskedTokens.__init__(self, name, self.of(self.letters), self.learned, how.length, how.share)

    def read(self) -> dict[Split, list[Tensor]]:
        x, cut = self.how.framed(self.own.given, self.letters, self.tokenizer)
        self.summary = (self.describe(), *self.own.given.notes, *cut)
        return self.of(x)

    def frame(self, tokens: Sequence[int]) -> Tensor:
        return self.how.within(self.tokenizer, tokens)[0]

    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        return super().predict(model, pattern, self.asked(request), device)

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        return super().subject(model, pattern, self.asked(request))


class DamagedTexts(_Unlabelled, Denoising):
    """Restore damaged texts of one's own: as `Denoising`, with both ends of a source, as `OwnTexts` has them."""

    def __init__(self, own: Settled, how: TextsAlone) -> None:
        _Unlabelled.__init__(self, own, how)
        manner = Manner(how.level, how.vocabulary, how.lowercase, how.smoothing)
        texts = {split: texts for split, texts in self.of(self.letters).items() if texts}
        Denoising.__init__(self, f"damaged {name_of(own.given)}", texts, manner, how.noise, self.learned)
        self.summary = (self.describe(), *own.given.notes)

    def _source(self, tokens: list[int]) -> Tensor:
        return self.how.within(self.tokenizer, tokens)[0]

    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        return super().predict(model, pattern, self.asked(request), device)


@on_own("text")
def masked_texts(
    file: str = "texts.csv",
    text: str = "",
    share: float = 0.15,
    fold: int = 0,
    level: Units = "bpe",
    vocabulary: int = 4000,
    length: int = 256,
    lowercase: bool = False,
    truncate: bool = False,
    like: str = "",
    cut: Cut = "auto",
    group: str = "",
    time: str = "",
    bad_rows: Literal["refuse", "skip"] = "refuse",
) -> MaskedTexts:
    """Guess masked tokens of your own texts, before a task with few labels; no label is read (BERT, RoBERTa).

    A table (CSV, TSV, Parquet or JSON lines) with a column of texts, a folder of `.txt` files, at any depth, or a text,
    of which passages are read. Give `text-table` what the weights are for, by `--start.run`: it reads by the same
    tokens. A column `split` in both keeps what is tested there out of this.

    Reference   Devlin et al., "BERT", 2019; Liu et al., "RoBERTa", 2019

    Args:
        file: The table, the folder or the text.
        share: How likely a token is to be guessed.
        level: What a token is: "bpe" (byte pairs, learned from the texts that train) or "byte".
        cut: "random", by "group" or "time", or "given", as a column `split` says. "auto": as that or what is named
            below says, else random.

    Errors      files that are missing, empty or malformed are a `DataError` that names them, and so are texts longer
                than `length`, unless they are to be cut
    """
    if not 0 < share <= 1:
        raise ConfigError(f"task.share must be above 0 and at most 1, not {share}")
    asked = Asked("texts", {"text": TEXTS}, {"text": text}, targets=False, skip=bad_rows == "skip")
    files = TextsAlone(asked, level, vocabulary, length, lowercase, truncate, tokenizer_of(like), fold, share)
    made: MaskedTexts = files.settle(str(given_table(file, asked.unit)), like, "auto", How(cut, fold, 0, group, time))
    return made


@on_own("text")
def damaged_texts(
    file: str = "texts.csv",
    text: str = "",
    sentences: bool = True,
    delete: float = 0.0,
    reach: int = 0,
    infill: float = 0.3,
    span: float = 3.0,
    smoothing: float = 0.0,
    fold: int = 0,
    level: Units = "bpe",
    vocabulary: int = 4000,
    length: int = 256,
    lowercase: bool = False,
    truncate: bool = False,
    like: str = "",
    cut: Cut = "auto",
    group: str = "",
    time: str = "",
    bad_rows: Literal["refuse", "skip"] = "refuse",
) -> DamagedTexts:
    """Restore your own texts, which noise has damaged, before a task with few labels; no label is read (BART).

    The files are those of `masked-texts`.

    Reference   Lewis et al., "BART", 2020

    Args:
        file: The table, the folder or the text.
        sentences: Put a text's sentences in random order.
        delete: Share of the tokens to leave out.
        reach: Places that a token may move by.
        infill: Share of the tokens that spans of them take, each of which becomes one mask.
        span: Mean length of such a span, of a Poisson distribution.
        smoothing: Probability that the training loss spreads over all tokens.
        level: What a token is: "bpe" (byte pairs, learned from the texts that train) or "byte".
        length: Most tokens of a text that are read, with its two ends; what is written may be longer.
        cut: As for `masked-texts`.

    Errors      as `masked-texts`
    """
    noise = Noise(sentences, delete, reach, infill, span)
    asked = Asked("texts", {"text": TEXTS}, {"text": text}, targets=False, skip=bad_rows == "skip")
    files = TextsAlone(asked, level, vocabulary, length, lowercase, truncate, tokenizer_of(like), fold, 0.0, noise)
    files = replace(files, smoothing=smoothing)
    made: DamagedTexts = files.settle(str(given_table(file, asked.unit)), like, "auto", How(cut, fold, 0, group, time))
    return made
