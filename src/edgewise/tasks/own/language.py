"""A text of one's own for a language model, or many: from files to a task, and n-grams beside the model."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from math import log, log2
from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor, nn

from edgewise.data import record
from edgewise.data.columns import Column
from edgewise.data.examples import Asked, Examples, few_rows, read_examples
from edgewise.data.options import on_own
from edgewise.data.record import Settled, settle, with_validation
from edgewise.data.splits import SPLITS, Cut, How, Split
from edgewise.data.table import is_table, object_in
from edgewise.errors import ConfigError, DataError, counted
from edgewise.files import folder_name
from edgewise.models.signature import Tokens
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.task import Device, Pattern, check_range
from edgewise.tasks.own.texts import (
    TEXTS,
    TOGETHER,
    OwnTokens,
    input_of,
    texts_in,
    tokenizer_of,
)
from edgewise.tasks.text.language import Text, read_text
from edgewise.tasks.text.tokenization import Level, Tokenizer, learn_tokenizer

PASSAGE = re.compile(r"[\s\S]{250,499}?\n|[\s\S]{1,500}")  # of a text that is cut by place
VOCABULARY, CHARACTERS = (512, 8192), 400  # byte pairs at least and at most, and how many characters make one of them
ORDERS, LEARNS = (1, 3, 5), 1 << 22  # of n-grams, and the tokens that they learn from, at most
LATER = ("_parts", "epoch_size", "_characters", "summary")  # of a text as tokens
DISCOUNT = 0.5  # of n-grams where their counts say nothing


@dataclass
class TextBatch(Batch):
    """Windows of a part.

    Symbols     characters = of a token, in the mean over the part
    """

    characters: float = 1.0


@dataclass(frozen=True)
class Reading:
    """How texts become tokens."""

    level: Level = "bpe"
    vocabulary: int = 0
    context: int = 128

    def tokenizer(self, own: Settled) -> Tokenizer:
        """One that is learned from what trains, or of characters from all."""
        texts, train = own.given.inputs["text"], own.splits["train"].tolist()
        learned_from = [texts[row] for row in train] if self.level == "bpe" else texts
        size = self.vocabulary or sized(sum(map(len, learned_from)))
        return learn_tokenizer(self.level, learned_from, size, spaced=False)


def sized(characters: int) -> int:
    """How many byte pairs suit a text of so many characters.

    >>> sized(900_000), sized(1), sized(10**9)
    (2048, 512, 8192)
    """
    least, most = VOCABULARY
    return min(most, max(least, 2 ** round(log2(max(1, characters / CHARACTERS)))))


class OwnText(OwnTokens, Text):
    """A text of one's own, cut by place into parts, or documents, each of which is in one part.

    Equation    perplexity = e^loss, loss = the mean of -log p(t_n | t_1..t_{n-1}) over the tokens of a part;
                bits per character = the sum of -log2 p over the characters of the part
    Edge cases  a token ends each document, and one stands before the first: it counts as a token, and is no character
    """

    metric = "perplexity"
    has_test = True
    form = '{"text": TEXT}'
    tokenizer: Tokenizer

    def __init__(self, own: Settled, reading: Reading, tokenizer: Tokenizer | None = None) -> None:
        self.name, self.own, self.reading, self.context = name_of(own.given), own, reading, reading.context
        self.changes, self.few, self.ends = own.changes, own.few, "text" in own.fitted.names
        self.use(tokenizer or reading.tokenizer(own))
        if tokenizer is None:  # what is too short is refused at once
            _ = self._parts

    def use(self, tokenizer: Tokenizer) -> None:
        """Read by a tokenizer: the parts become tokens when they are read first, which predictions do not."""
        self.tokenizer, self.signature = tokenizer, Tokens(tokenizer.size, tokenizer.size, length=self.context)
        self.contents = f"{tokenizer.size:,} different tokens ({self.reading.level}), {self.context} at once"
        for name in LATER:
            vars(self).pop(name, None)

    @cached_property
    def _parts(self) -> dict[Split, Tensor]:  # type: ignore[override]  # worked out when it is read
        parts = {split: self._encoded(self._texts(split)) for split in SPLITS}
        if len(self.own.splits["train"]) and not self.few:
            self._check_long(parts)
        return parts

    @cached_property
    def epoch_size(self) -> int:  # type: ignore[override]  # worked out when it is read
        return max(1, (len(self._parts["train"]) - 1) // self.context)

    @cached_property
    def _characters(self) -> dict[Split, float]:
        return {split: self._length(split) / max(1, len(self._parts[split]) - 1) for split in SPLITS}

    @cached_property
    def summary(self) -> tuple[str, ...]:  # type: ignore[override]
        told = [f"{s} {len(self._parts[s]):,} tokens, {self._length(s):,} characters" for s in SPLITS]
        return (self.describe(), "; ".join(told), *self.own.given.notes)

    def _texts(self, split: Split) -> list[str]:
        return [self.own.given.inputs["text"][row] for row in self.own.splits[split].tolist()]

    def _length(self, split: Split) -> int:
        return sum(map(len, self._texts(split)))

    def _encoded(self, texts: Sequence[str]) -> Tensor:
        """The tokens of some texts, one after the other, [N] int32."""
        ends = [self.tokenizer.end] * (self.ends and bool(texts))
        if not self.ends:
            texts = ["".join(texts[first : first + TOGETHER]) for first in range(0, len(texts), TOGETHER)]
        made = [np.array(ends, np.int32)]
        for first in range(0, len(texts), TOGETHER):
            some = self.tokenizer.encode(texts[first : first + TOGETHER])
            made += [np.array([*tokens, *ends], np.int32) for tokens in some]
        return torch.from_numpy(np.concatenate(made))

    def describe(self) -> str:
        return f"{self.name}: {counted(len(self.own.given), self.own.given.unit[:-1])} of {self.contents}"

    def elsewhere(self, place: Path, labelled: bool = False) -> OwnText:
        """The same on other texts, all of which test."""
        chosen = {"text": self.own.fitted.names.get("text", "")}
        given = read(place, Asked("documents", {"text": TEXTS}, chosen, id="row", targets=False, labelled=False))
        none, rows = torch.empty(0, dtype=torch.int64), torch.arange(len(given))
        own = Settled(given, replace(self.own.fitted, names=dict(given.found)), dict.fromkeys(SPLITS, none))
        return OwnText(replace(own, splits=own.splits | {"test": rows}), self.reading, self.tokenizer)

    def _batch(self, windows: Tensor, pattern: Pattern, split: Split = "train") -> Batch:
        made = super()._batch(windows, pattern)
        return TextBatch(made.graph, made.x, made.target, characters=self._characters[split])

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        characters = batch.characters if isinstance(batch, TextBatch) else 1.0
        sums = super().score(outputs, batch)
        return sums | {"characters": characters * sums["count"]}

    def finish(self, means: dict[str, float]) -> dict[str, float]:
        made = super().finish(means)
        return made | {"bits_per_character": means["loss"] / log(2) / (made.pop("characters") or 1.0)}

    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """The five likeliest next tokens after a text, and its own mean loss (None for one token)."""
        if (row := object_in(request)) is not None:
            request = input_of(row, "text", self)
        return super().predict(model, pattern, request, device)

    def preprocessing(self) -> dict[str, Any]:
        rows = {
            "kind": "continued",
            "input": "a .txt file with a text to continue in each line, or a table of them",
            "output": "what the next token is after each of the text's: logits",
            "length": self.context,
        }
        return super().preprocessing() | {"rows": rows}

    def simple(self) -> Iterator[tuple[str, Callable[[Split], dict[str, float]]]]:
        """How often each token is, and then each after those before it."""
        tokens = self._parts["train"].numpy()
        some = f", learned from {LEARNS:,} tokens" if len(tokens) > LEARNS else ""
        for order in ORDERS:
            model = NGrams(tokens[-LEARNS:], self.signature.inputs, order)
            name = "the tokens' frequencies" if order == 1 else f"{order}-grams (Kneser and Ney)"
            yield name + some, partial(self._scored, model)

    def _scored(self, model: NGrams, split: Split) -> dict[str, float]:
        """The scores of n-grams on a part, of which they guess the same tokens as the model."""
        p = model.probabilities(self._parts[split].numpy())[1:]
        return self.finish({"loss": float(-np.log(p).mean()), "characters": self._characters[split]})


class NGrams:
    """How likely a token is after those before it, as interpolated Kneser-Ney smoothing has it.

    Equation    p_k(w | h) = max(c(hw) - d_k, 0) / c(h) + λ(h) p_{k-1}(w | h'),  λ(h) = Σ_w min(c(hw), d_k) / c(h),
                p_0 = 1 / V,  d_k = n_1 / (n_1 + 2 n_2)
    Symbols     c = of the longest n-grams how often they occur, of shorter ones before how many different tokens they
                do; h' = h without its first token; n_i = n-grams with c = i
    Reference   Ney, Essen and Kneser, 1994; Chen and Goodman, 1999
    """

    def __init__(self, tokens: Any, vocabulary: int, order: int) -> None:
        self.vocabulary, self.codes, self.counts = vocabulary, list[Any](), list[Any]()
        gram, sizes, suffixes = np.zeros(len(tokens) + 1, np.int64), [1], list[Any]()
        for place in range(min(order, len(tokens))):
            codes = gram[:-1] * vocabulary + tokens[place:]
            found, first, numbers, counts = np.unique(codes, return_index=True, return_inverse=True, return_counts=True)
            suffixes += [gram[1:][first]] * bool(place)
            self.codes.append(found)
            self.counts.append(counts.astype(float))
            sizes.append(len(found))
            gram = numbers
        for shorter, suffix in enumerate(suffixes):
            self.counts[shorter] = np.bincount(suffix, minlength=sizes[shorter + 1]).astype(float)
        self.left, self.totals, self.discounts = list[Any](), list[Any](), list[float]()
        for counts, codes, size in zip(self.counts, self.codes, sizes, strict=False):
            once, twice = (int((counts == number).sum()) for number in (1, 2))
            discount = once / (once + 2 * twice) if once and twice else DISCOUNT
            history = codes // vocabulary
            total = np.bincount(history, counts, minlength=size)
            self.totals.append(total)
            self.left.append(np.bincount(history, np.minimum(counts, discount), minlength=size) / np.maximum(total, 1))
            self.discounts.append(discount)

    def probabilities(self, tokens: Any) -> Any:
        """That of each token [N] after those before it."""
        p = np.full(len(tokens), 1 / self.vocabulary)
        history = np.zeros(len(tokens), np.int64)
        for codes, counts, left, total, discount in zip(
            self.codes, self.counts, self.left, self.totals, self.discounts, strict=True
        ):
            wanted = np.where(history >= 0, history * self.vocabulary + tokens, -1)
            gram = np.searchsorted(codes, wanted).clip(max=len(codes) - 1)
            gram = np.where(codes[gram] == wanted, gram, -1)
            known = (history >= 0) & (total[history] > 0)
            count = np.where(gram >= 0, counts[gram], 0)
            after = np.maximum(count - discount, 0) / np.maximum(total[history], 1) + left[history] * p
            p = np.where(known, after, p)
            history = np.append(-1, gram[:-1])
        return p


def name_of(given: Examples) -> str:
    """What a text, or a folder of texts, is called."""
    return given.files[0].stem if len(given.files) == 1 else folder_name(given.place)


@on_own("document")
def text_files(
    file: str = "text.txt",
    text: str = "",
    level: Literal["bpe", "byte", "character"] = "bpe",
    vocabulary: int = 0,
    context: int = 128,
    fold: int = 0,
    like: str = "",
    cut: Cut = "auto",
    folds: int = 0,
    group: str = "",
    time: str = "",
    bad_rows: Literal["refuse", "skip"] = "refuse",
) -> OwnText:
    """Guess the next token of your own text, or of many: from a text file, a folder of them, or a table.

    One text is cut by place, between passages of 250 to 500 characters: its first 80 % train, the next 10 % choose the
    weights and the last 10 % test (of fewer than 1,000 passages 60, 20 and 20 %). The files of a folder (`.txt`, at any
    depth; of folders `train`, `test` and perhaps `valid`, each is that part) and the rows of a table (CSV, TSV, Parquet
    or JSON lines) are documents, each of which is in one part, drawn at random in the same shares; equal documents are
    in one part. A run keeps the parts and the tokens.

    Args:
        file: The text, the folder or the table.
        level: What a token is: "bpe" (byte pairs, learned from what trains), "byte" or "character" (of all texts).
        vocabulary: Tokens, for "bpe". 0: one for 400 characters that train, 512 to 8,192.
        context: How many tokens a model reads at once.
        cut: "random", by "group" or "time", or "given", as a column `split` says. "auto": as that or what is named
            below says, else one text by place, documents at random.

    Errors      files that are missing, empty, binary or too short for the context are a `DataError` that names them
    """
    check_range(1, 1 << 20, context=context)
    if vocabulary:
        check_range(259, 1 << 20, vocabulary=vocabulary)
    how, found = How(cut, fold, folds, group, time), dict[str, str]()
    if like:
        found = record.read(Path(like).expanduser()).names
    asked = Asked("documents", {"text": TEXTS}, {"text": text or found.get("text", "")}, targets=False)
    asked = replace(asked, id="id" if "id" in found else "row", skip=bad_rows == "skip")
    if not like:
        asked = replace(asked, group=how.group, time=how.time if how.cut == "time" else None)
    given = read(Path(file).expanduser(), asked)
    for name, column in (("text", text), ("group", group), ("time", time)):
        if column and not given.header:
            raise ConfigError(f"--task.{name} is a column of a table, and {file} is none: leave it out")
    given = replace(given, splits=with_validation(given.splits, fold, given.inputs["text"]))
    if given.unit == "passages" and how.cut in ("auto", "time") and not folds:
        how, given = replace(how, cut="time"), replace(given, times=_places(len(given)))
    elif how.cut == "time" and given.times is None and not like:
        raise ConfigError(f"--task.cut time is by a column of a table, and {file} is none: leave it out")
    same = given.inputs["text"] if given.unit == "documents" else None
    own = settle(given, like, "auto", how, same, lambda fitted, splits: replace(fitted, names=dict(given.found)))
    kept = {} if own.few else {f"{name_of(given)}.csv": few_rows(own.given, own.first)}
    return OwnText(replace(own, files=kept), Reading(level, vocabulary, context), tokenizer_of(like))


def _places(count: int) -> Column:
    return Column("place", "number", np.arange(count, dtype=np.float64), np.ones(count, dtype=bool))


def read(place: Path, asked: Asked) -> Examples:
    """The passages of a text, or the documents of a folder or a table.

    Errors      DataError for a place without texts, for texts that are empty or too long, and for columns
    """
    if is_table(place):
        problems = list[str]()
        rows = read_examples(place, asked, problems)
        if problems:
            raise DataError(*problems)
        return rows
    if place.is_dir():
        rows = texts_in(place, "documents", labelled=False)
        return replace(rows, notes=(f"each of {counted(len(rows), 'file')} is a document", *rows.notes))
    content, note = read_text(place)
    passages, told = PASSAGE.findall(content), f"a text of {len(content):,} characters"
    if len(passages) < len(SPLITS) and asked.labelled:
        raise DataError(f"{place}: {told} is too short to be cut into three parts")
    names = [str(number) for number in range(len(passages))]
    found, notes = {"id": "id"}, (f"{place.name}: {told}{note}",)
    return Examples(
        place.parent, (place,), "passages", len(passages), names, inputs={"text": passages}, found=found, notes=notes
    )
