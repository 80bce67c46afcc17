"""Parallel texts of one's own, in any two languages: two files with a sentence a line, or a table with two columns."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Literal

import torch

from edgewise.data.examples import Asked, Examples, few_rows, read_examples
from edgewise.data.options import on_own
from edgewise.data.record import Settled, names_in, settle
from edgewise.data.splits import SPLITS, How
from edgewise.data.table import Problems, encoding_of, is_table, lines_of, object_in
from edgewise.errors import ConfigError, DataError, counted
from edgewise.files import read_bytes
from edgewise.tasks.own.texts import OwnTokens, input_of, tokenizer_of
from edgewise.tasks.text.tokenization import Tokenizer
from edgewise.tasks.text.translation import Manner, Translation

SIDES = {"source": ("source", "src"), "target": ("target", "tgt")}
MAX_BYTES = 1 << 28
MAX_PAIRS = 1 << 20


class OwnTranslation(OwnTokens, Translation):
    """Pairs of sentences of one's own, of at most `length` bytes each."""

    def __init__(self, own: Settled, manner: Manner, length: int, tokenizer: Tokenizer | None) -> None:
        self.own, self.length, rows = own, length, own.given
        self.changes, self.few = own.changes, own.few
        texts = {
            split: ([rows.inputs["source"][n] for n in chosen], [rows.inputs["target"][n] for n in chosen])
            for split, chosen in ((split, own.splits[split].tolist()) for split in SPLITS if split in own.splits)
        }
        super().__init__(rows.files[0].stem, texts, manner, tokenizer)
        self.summary = (self.describe(), *rows.notes)

    def use(self, tokenizer: Tokenizer) -> None:
        super().use(tokenizer)
        # The model's size must not follow the data, which may grow: a token is a byte at least.
        self.longest = self.length
        self.signature = replace(self.signature, length=2 * (self.length + 1) + 10)

    form = '{"source": SENTENCE}'

    def _sentence(self, request: str) -> str:
        row = object_in(request)
        return super()._sentence(request if row is None else input_of(row, "source", self))

    def elsewhere(self, place: Path, labelled: bool = False) -> OwnTranslation:
        """The same on other pairs, all of which test: those of a table, or of two texts, SOURCE,TARGET."""
        source, comma, target = str(place).partition(",")
        if comma and not place.exists():
            rows = read_lines(Path(source), Path(target))
        else:
            names = self.own.fitted.names
            rows = read_table(place, [names[side] for side in SIDES if side in names])
        rows = within(rows, self.length, self.manner.lowercase)
        own = Settled(rows, self.own.fitted, {"test": torch.arange(len(rows))})
        return OwnTranslation(own, self.manner, self.length, self.tokenizer)


@on_own("pair")
def parallel_text(
    source: str = "",
    target: str = "",
    file: str = "",
    columns: str = "",
    level: Literal["bpe", "byte", "character"] = "bpe",
    vocabulary: int = 4000,
    lowercase: bool = False,
    smoothing: float = 0.1,
    beam: int = 4,
    penalty: float = 0.6,
    length: int = 400,
    fold: int = 0,
    like: str = "",
    cut: Literal["auto", "random", "group", "time", "given"] = "auto",
    folds: int = 0,
    group: str = "",
    time: str = "",
) -> Translation:
    """Translate between two languages of your own: pairs of sentences from two files, or from a table.

    Either two texts, in which a line of the one is the translation of the same line of the other, or a CSV, TSV or
    Parquet file with a column for each side, and perhaps one called `split` ("train", "valid", "test" or nothing). A
    file with tabs may be without a line of names: its columns are then chosen by their numbers, from 1. Without parts,
    the pairs are cut into 60 % to train, 20 % to choose the weights by and 20 % to test (80, 10 and 10 % of 1,000 and
    more), equal sources in one part. Pairs of which a side is empty, or longer than `length`, are left out, and that is
    said. A run keeps the parts and the tokens.

    Args:
        source: The file of sentences to translate, a sentence a line.
        target: The file of their translations.
        file: Instead of both, the table.
        columns: Its columns with sources and targets, by name or by number, with a comma between them. Empty: `source`
            and `target`.
        level: What a token is: "bpe" (byte pairs of both languages, learned from the pairs that train), "byte" or
            "character".
        vocabulary: Tokens of both languages together, for "bpe".
        lowercase: Read and write small letters only.
        smoothing: Probability that the training loss spreads over all tokens.
        beam: Unfinished translations that the search keeps for each sentence; 1: greedy.
        penalty: Exponent of the search's length penalty; a higher one writes longer.
        length: Most bytes of a sentence.
        cut: "random", by "group" or "time", or "given", as a column `split` says. "auto": as that or what is named
            below says, else random.
        group: A column of the table: what has the same cell there, such as a document, is in one part.

    Errors      files that are missing, malformed or of different numbers of lines are a `DataError`
    """
    if bool(file) == bool(source or target) or bool(source) != bool(target):
        raise ConfigError("give --task.source and --task.target, two texts; or --task.file, a table with both")
    if length < 1:
        raise ConfigError(f"task.length must be at least 1, not {length}")
    how, pair = How(cut, fold, folds, group, time), names_in(columns)
    if len(pair) not in (0, 2):
        raise ConfigError(f"task.columns must be two names, or two numbers, with a comma between them, not {columns!r}")
    if file:
        rows = read_table(Path(file).expanduser(), pair, None if like else how)
    elif how.cut in ("group", "time"):
        raise ConfigError(f"two texts have no columns to be cut by {how.cut}: give a table, --task.file")
    else:
        rows = read_lines(Path(source).expanduser(), Path(target).expanduser())
    rows = within(rows, length, lowercase)
    names = dict(zip(SIDES, pair, strict=True)) if pair else dict(rows.found)
    own = settle(rows, like, "auto", how, rows.inputs["source"], lambda fitted, splits: replace(fitted, names=names))
    files = {} if own.few else {f"{rows.files[0].stem}.csv": few_rows(replace(rows, found={}), own.first)}
    own = replace(own, files=files)
    return OwnTranslation(
        own, Manner(level, vocabulary, lowercase, smoothing, beam, penalty), length, tokenizer_of(like)
    )


def read_table(path: Path, pair: Sequence[str], how: How | None = None) -> Examples:
    """The pairs of a table, with the columns by which they are to be cut."""
    if pair and all(name.isdigit() for name in pair):
        return without_names(path, [int(name) for name in pair])
    chosen = dict(zip(SIDES, pair, strict=True)) if pair else {}
    asked, problems = Asked("pairs", SIDES, chosen, id="row", targets=False, blank=True), list[str]()
    if how is not None:
        asked = replace(asked, group=how.group, time=how.time if how.cut == "time" else None)
    try:
        rows = read_examples(path, asked, problems)
    except DataError as error:
        if pair or not is_table(path):
            raise
        advice = "give --task.columns NAME,NAME or, where no line has names, their numbers, as in 1,2"
        raise DataError(f"{str(error).split(' Give --task')[0]} ({advice})") from error
    if problems:
        raise DataError(*problems)
    return rows


def without_names(path: Path, pair: Sequence[int]) -> Examples:
    """The pairs of a file without a line of names, by the numbers of its columns, from 1: cells between tabs."""
    lines = texts_of(path)
    cells, problems = [line.split("\t") for line in lines], Problems()
    for number, row in enumerate(cells, start=1):
        if len(row) < max(pair) and any(row):
            problems.add(f"{path}: line {number} has {len(row)} columns between tabs, not {max(pair)}")
    if min(pair) < 1:
        problems.add(f"{path}: columns are numbered from 1")
    problems.check()
    sides = {
        side: [row[number - 1] if len(row) >= number else "" for row in cells]
        for side, number in zip(SIDES, pair, strict=True)
    }
    return rows_of([path], sides)


def read_lines(source: Path, target: Path) -> Examples:
    """The pairs of two texts."""
    sides = {"source": texts_of(source), "target": texts_of(target)}
    counts = [len(side) for side in sides.values()]
    if counts[0] != counts[1]:
        what = f"{source} has {counts[0]:,} lines, and {target} {counts[1]:,}"
        raise DataError(f"{what}: a line of the one must be the translation of the same line of the other")
    return rows_of([source, target], sides)


def texts_of(path: Path) -> list[str]:
    """The lines of a text, as it is encoded; a \\r within one ends it where no \\n does."""
    content = read_bytes(path, MAX_BYTES)
    end = "\n" if b"\n" in content else ""
    return [line.rstrip("\r\n") for line in lines_of(path, content, encoding_of(content), end)]


def rows_of(files: Sequence[Path], sides: dict[str, list[str]]) -> Examples:
    """Pairs by their lines."""
    count = len(sides["source"])
    if count > MAX_PAIRS:
        raise DataError(f"{files[0]}: {count:,} pairs, of at most {MAX_PAIRS:,}")
    names = [str(number) for number in range(count)]
    return Examples(files[0].parent, tuple(files), "pairs", count, names, inputs=sides)


def within(rows: Examples, length: int, lowercase: bool) -> Examples:
    """The pairs of which neither side is empty or too long, known by their lines."""
    sides = [[text.strip() for text in rows.inputs[side]] for side in SIDES]
    sides = [[text.lower() for text in side] for side in sides] if lowercase else sides
    sizes = [[len(text.encode("utf-8", "surrogatepass")) for text in side] for side in sides]
    empty = sum(not x or not y for x, y in zip(*sides, strict=True))
    good = [n for n, pair in enumerate(zip(*sizes, strict=True)) if min(pair) and max(pair) <= length]
    long = len(rows) - empty - len(good)
    notes = [f"{counted(empty, 'pair')} left out: a side is empty"] if empty else []
    notes += [f"{counted(long, 'pair')} left out: a side is over {length:,} bytes (--task.length)"] if long else []
    if not good:
        raise DataError(f"{rows.files[0]}: it has no pair of sentences of 1 to {length:,} bytes")
    left = replace(rows, inputs=dict(zip(SIDES, sides, strict=True))).only(good)
    return replace(left, files=rows.files, notes=(*rows.notes, *notes))
