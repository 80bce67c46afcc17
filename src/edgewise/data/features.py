"""Columns of a table: what each holds is read off its cells; all that cannot be read is said at once."""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, Literal, Self

import numpy as np

from edgewise.data.dialect import CODE
from edgewise.data.reading import File
from edgewise.data.table import LARGEST, MISSING, SHOWN, Cells, Table, numbers_of, row_name, wrong
from edgewise.errors import DataError

TRUTHS = (("true", "false"), ("t", "f"), ("yes", "no"), ("y", "n"), ("on", "off"), ("ja", "nein"), ("oui", "non"))
BOOLEAN = {word: value for pair in TRUTHS for word, value in zip(pair, (1.0, 0.0), strict=True)}
LISTED = 100  # columns that have a line of their own
MAX_LEVELS = 100  # of a category, each of which is a feature
ISO = re.compile(r"(\d{4})[-/](\d{1,2})[-/](\d{1,2})([T ].*)?", re.ASCII)
EUROPEAN = re.compile(r"(\d{1,2})\.(\d{1,2})\.(\d{4})", re.ASCII)
SLASHED = re.compile(r"(\d{1,2})/(\d{1,2})/(\d{4})", re.ASCII)
DAY = 86400.0  # seconds

Array = np.ndarray[Any, np.dtype[Any]]
Kind = Literal["number", "boolean", "date", "category"]


@dataclass(frozen=True)
class Column:
    """What a column holds.

    Symbols     at = what a row is called in a message
    Shapes      values [N]: numbers, of dates days since 1970, or of a category the level's place, -1 where there is
                none; present [N]: the cells that hold a value
    """

    name: str
    kind: Kind
    values: Array
    present: np.ndarray[Any, np.dtype[np.bool_]]
    levels: tuple[str, ...] = ()
    at: Callable[[int], str] = field(default="row {}".format, repr=False, compare=False)

    def taken(self, rows: Array) -> Self:
        """Some of its rows, in that order."""
        if len(rows) == len(self.values) and bool((rows[:-1] < rows[1:]).all()):
            return self
        return replace(self, values=self.values[rows], present=self.present[rows], at=partial(_nth, self.at, rows))

    def __str__(self) -> str:
        missing = int((~self.present).sum())
        gaps = f", missing in {missing:,} rows" if missing else ""
        levels = f" of {len(self.levels)}" if self.levels else ""
        return f"{self.name} (a {self.kind}{levels}{gaps})"


def in_lines(columns: Sequence[Column], prefix: str = "") -> list[str]:
    """How columns were read, a line for each; of more than `LISTED` how many there are beside the first ones."""
    more = [f"{prefix}and {len(columns) - LISTED:,} more columns, which are read too"] if len(columns) > LISTED else []
    return [*(f"{prefix}{column}" for column in columns[:LISTED]), *more]


def read_columns(
    file: File, table: Table, names: Sequence[str], known: Mapping[str, Kind] | None = None
) -> tuple[list[Column], list[str]]:
    """What some columns of a file hold: numbers, truth values, dates or categories; and what is wrong with others.

    Symbols     known = the kinds of columns that are not guessed, since they were read before
    Edge cases  `MISSING` lists the cells that hold no value. A column of which at least half of the values are numbers
                is one of numbers, so that other cells of it are wrong, and so with dates; texts are categories where
                they repeat; numbers with zeros before them, as 007, are texts
    """
    kinds = known or {}
    doubtful = {name for name in names if name in table.strange or kinds.get(name) in ("category", "date", "boolean")}
    doubtful = {name for name in doubtful if isinstance(table.columns[name], np.ndarray)}
    texts = file.table((), doubtful).columns if doubtful and file.dialect else {}
    found, problems = list[Column](), list[tuple[str, ...]]()
    for name in names:
        try:
            cells = texts[name] if name in doubtful and texts else table.columns[name]
            comma = bool(file.dialect and name in file.dialect.commas)
            column = _column(table, name, cells, kinds.get(name), comma)
            found.append(replace(column, at=partial(row_name, table.path, table.rows)))  # without the table's columns
        except DataError as error:
            problems.append(error.args)
    more = [f"{table.path}: and {len(problems) - SHOWN} more columns"] if len(problems) > SHOWN else []
    return found, [*(line for lines in problems[:SHOWN] for line in lines), *more]


def _nth(at: Callable[[int], str], rows: Array, number: int) -> str:
    return at(int(rows[number]))


def _column(table: Table, name: str, cells: Any, known: Kind | None, comma: bool) -> Column:
    table.check(name)
    if isinstance(cells, str):
        raise DataError(f"{table.path}: the column {name!r} holds {cells}, not numbers or texts")
    if isinstance(cells, np.ndarray) and known in (None, "number", "boolean"):
        values = cells.astype(np.float64)
        return _numbers(table, name, values, ~np.isnan(values), cells, known)
    texts = (
        table.texts(name) if isinstance(cells, np.ndarray) else ["" if cell is None else cell.strip() for cell in cells]
    )
    levels = sorted({*texts})
    here = [level for level in levels if level.lower() not in MISSING]
    place = dict.fromkeys(levels, -1) | {level: number for number, level in enumerate(here)}
    codes = np.fromiter((place[text] for text in texts), np.int32, len(texts))
    present = codes >= 0
    if not here and known is None:
        raise DataError(f"{table.path}: {name} holds no value at all: give --task.ignore {name}")
    kind = known or _guess(here, codes[present], comma)
    if kind == "category":
        count = int(present.sum())
        if known is None and (len(here) > MAX_LEVELS or len(here) > max(2, count // 2)):
            what = f"{len(here):,} different texts in {count:,} rows"
            right = f"numbers, truth values, dates, or texts that repeat, at most {MAX_LEVELS}, are features"
            raise DataError(f"{table.path}: {name} holds {what}: {right}; give --task.ignore {name}")
        return Column(name, kind, codes, present, tuple(here))
    if kind == "number":
        values = np.append(numbers_of(here, comma), np.nan)[codes]
        return _numbers(table, name, values, present, texts, kind)
    if kind == "boolean":
        numbers = zip(here, _truth(numbers_of(here, comma)).tolist(), strict=True)
        of_levels = [BOOLEAN.get(level.lower(), number) for level, number in numbers]
        what = "a truth value such as yes or no"
    else:
        of_levels, what = dates_of(here, f"{table.path}: {name}"), "a date such as 2024-12-31"
    values = np.array([*of_levels, np.nan])[codes]
    _check(table, name, values, present, texts, what)
    return Column(name, kind, np.where(present, values, 0.0), present)


def _guess(levels: Sequence[str], codes: Array, comma: bool) -> Kind:
    """What most of the cells are, by the levels that they hold."""
    often = np.bincount(codes, minlength=len(levels))
    half = int(often.sum()) / 2
    if any(map(CODE.fullmatch, levels)):
        return "category"
    if often[~np.isnan(numbers_of(levels, comma))].sum() >= half:
        return "number"
    words = {level.lower() for level in levels}
    whole = all(words.isdisjoint(pair) or words.issuperset(pair) for pair in TRUTHS)  # N and F are two letters, no pair
    if words <= {*BOOLEAN} and (whole or len(words) == 1):
        return "boolean"
    dated = [bool(ISO.fullmatch(one) or EUROPEAN.fullmatch(one) or SLASHED.fullmatch(one)) for one in levels]
    return "date" if often[np.array(dated)].sum() >= half else "category"


def _numbers(table: Table, name: str, values: Array, present: Any, cells: Any, known: Kind | None) -> Column:
    if known is None and not present.any():
        raise DataError(f"{table.path}: {name} holds no value at all: give --task.ignore {name}")
    _check(table, name, values, present, cells, "a finite number")
    if known == "boolean":
        _check(table, name, _truth(values), present, cells, "a truth value")
    two = (
        known is None
        and bool(((values == 0) | (values == 1) | ~present).all())
        and len(np.unique(values[present])) == 2
    )
    return Column(name, known or ("boolean" if two else "number"), np.where(present, values, 0.0), present)


def _truth(values: Array) -> Array:
    """Numbers as truth values, NaN for all but 0 and 1."""
    return np.where((values == 0) | (values == 1), values, np.nan)


def _check(table: Table, name: str, values: Array, present: Any, cells: Any, what: str) -> None:
    """Name the first cells that are not what they should be, and how many there are."""
    rows = np.flatnonzero(present & ~(np.abs(values) <= LARGEST)).tolist()
    first: Cells = [(row, str(cells[row])) for row in rows[:SHOWN]]
    if first:
        lines = [f"{table.at(row)}: {name} is {cell[:40]!r}, {wrong(values[row], what)}" for row, cell in first]
        more = [f"and {len(rows) - SHOWN:,} more cells of {name}"] if len(rows) > SHOWN else []
        raise DataError(*lines, *more)


def dates_of(texts: Sequence[str], where: str) -> list[float]:
    """Days since 1970 of dates and times, NaN for what is none.

    Errors      DataError where a date may be day or month first: 3/4/2024, unless another one of them decides it
    """
    slashed = [match for match in map(SLASHED.fullmatch, texts) if match]
    day_first = any(int(match[1]) > 12 for match in slashed)
    if slashed and day_first == any(int(match[2]) > 12 for match in slashed):
        shown = slashed[0][0]
        raise DataError(f"{where} is {shown!r}: is the day first, or the month? Write dates as 2024-12-31")
    return [_day(text, day_first) for text in texts]


def _day(text: str, day_first: bool) -> float:
    try:
        if match := ISO.fullmatch(text):
            when = datetime.fromisoformat(
                f"{match[1]}-{match[2]:0>2}-{match[3]:0>2}{match[4] or ''}".replace(" UTC", "+00:00")
            )
        elif match := EUROPEAN.fullmatch(text):
            when = datetime(int(match[3]), int(match[2]), int(match[1]))
        elif match := SLASHED.fullmatch(text):
            month, day = (2, 1) if day_first else (1, 2)
            when = datetime(int(match[3]), int(match[month]), int(match[day]))
        else:
            return float("nan")
    except ValueError:
        return float("nan")
    return (when if when.tzinfo else when.replace(tzinfo=UTC)).timestamp() / DAY
