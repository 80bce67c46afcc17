"""A table of named columns: numbers or texts, whose rows are called as their file calls them."""

import re
import sys
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from math import isfinite
from operator import contains
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.errors import DataError

MAX_CELLS = 1 << 25  # 8 bytes each; a Parquet file of a few bytes can claim any number of rows
MAX_ROWS = 1 << 23
MAX_TEXTS = 1 << 29  # bytes in memory of all texts that differ
PART = 1 << 16  # numbers that are Python objects at once
ENTRY = 100  # bytes that a text takes beside itself where it is looked up
EXACT = 1 << 53  # up to it a float64 holds every whole number
LARGEST = float(np.finfo(np.float32).max)
LONGEST = 1000  # characters of a number
SHOWN = 10  # problems of a file in one message
UNKNOWN = frozenset(("", "na", "n/a", "nan", "null", "?"))  # labels, whatever their case, of what has none
MISSING = UNKNOWN | {"none", "-"}  # other cells; a class may be called none
GROUPS = {  # thousands, which commas or points part, and the decimal point or comma after them
    False: re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?", re.ASCII),
    True: re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?", re.ASCII),
}

Floats = np.ndarray[Any, np.dtype[np.float64]]
Cells = list[tuple[int, str]]


@dataclass(frozen=True)
class Table:
    """Named columns of one length, each a numpy array of numbers or a list of texts; None and NaN are cells without a
    value.

    In place of a column of another type stands that type's name. The file calls each row "line" 2, 3, ... or "row" 0,
    1, ... Of a column of numbers, `wrong` has the first cell that is none, and `strange` those, at most `SHOWN`, that
    hold something else, or a code such as 007. `doubtful` says of a column whose cells are not written alike where that
    is, so that none who reads it has one number for another. `notes` say how the file is written, where that is
    unusual; `problems` which rows are left out."""

    path: Path
    columns: dict[str, Any]
    rows: tuple[str, Sequence[int]]
    wrong: Mapping[str, tuple[int, str]] = field(default_factory=dict)
    strange: Mapping[str, Cells] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    doubtful: Mapping[str, str] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows[1])

    def at(self, number: int) -> str:
        """What a row is called, counted from 0 here."""
        return row_name(self.path, self.rows, number)

    def numbers(self, name: str) -> Floats:
        """A column of finite numbers."""
        column = self._column(name)
        if isinstance(column, np.ndarray):
            values = column.astype(np.float64, copy=False)
        else:
            values = np.array([_number(text) for text in column], dtype=np.float64)
        rows = np.flatnonzero(~(np.abs(values) <= LARGEST))
        if len(rows):
            row, shown = self.wrong.get(name, (int(rows[0]), str(column[rows[0]])))
            raise DataError(f"{self.at(row)}: {name} is {shown[:40]!r}, {wrong(values[row])}")
        return values

    def texts(self, name: str) -> list[str]:
        """A column as texts, "" where there is no value; a whole number has no point, whatever its type."""
        column = self._column(name)
        if not isinstance(column, np.ndarray):
            return ["" if text is None else text.strip() for text in column]
        shared = Texts(self.path).shared
        parts = np.array_split(column, 1 + len(column) // PART)
        return [shared(_text(value)) for part in parts for value in part.tolist()]

    def names(self, name: str) -> list[str]:
        """A column as texts that name something.

        Errors      DataError for a floating number that stands for several whole ones, as pandas makes of long numbers
                    beside a gap
        """
        column = self._column(name)
        exact = 2 << np.finfo(column.dtype).nmant if isinstance(column, np.ndarray) and column.dtype.kind == "f" else 0
        if exact and (np.abs(column) >= exact).any():
            row = int((np.abs(column) >= exact).argmax())
            what = "a floating number, which has lost digits: write names as whole numbers or as texts"
            raise DataError(f"{self.at(row)}: {name} is {column[row]:.0f}, {what}")
        return self.texts(name)

    def same(self, row: int, other: int, names: Iterable[str]) -> bool:
        """Whether two rows hold the same in some columns: a cell without a value is as another without one."""
        return all(_same(self.columns[name], row, other) for name in names)

    def check(self, name: str) -> None:
        """Refuse a column whose cells are not written alike."""
        if name in self.doubtful:
            raise DataError(self.doubtful[name])

    def _column(self, name: str) -> Any:
        self.check(name)
        column = self.columns[name]
        if isinstance(column, str):
            raise DataError(f"{self.path}: the column {name!r} holds {column}, not numbers or texts")
        return column


def row_name(path: Path, rows: tuple[str, Sequence[int]], number: int) -> str:
    """What a row of a file is called."""
    return f"{path}: {rows[0]} {rows[1][number]}"


def wrong(value: float, right: str = "a finite number") -> str:
    """What a cell is that is not right: too large a number, or anything else.

    >>> wrong(1e39), wrong(float("nan"))
    ('beyond 3.4e+38, the largest float32', 'not a finite number')
    """
    return f"beyond {LARGEST:.1e}, the largest float32" if isfinite(value) else f"not {right}"


class Called(dict[str, str]):
    """The columns of a table that are not ignored, by their `plain_name`.

    Errors      DataError where a column is looked up, and two have one plain name

    >>> Called(Path("a.csv"), ["ID", "Split"])["split"]
    'Split'
    """

    def __init__(self, path: Path, names: Iterable[str], ignored: Collection[str] = ()) -> None:
        self.path, self.names = path, [name for name in dict.fromkeys(names) if name not in ignored]
        super().__init__({plain_name(name): name for name in self.names})

    def __getitem__(self, name: str) -> str:
        meant = [column for column in self.names if plain_name(column) == name]
        if len(meant) > 1:
            which = f"the columns {' and '.join(meant)}, and which is meant is a guess"
            raise DataError(f"{self.path}: it has {which}: rename or remove one of them")
        return super().__getitem__(name)

    def meant(self, name: str) -> str:
        """The column that a name means, however it is spelt; the name itself where there is none."""
        plain = plain_name(name)
        return self[plain] if plain in self else name  # noqa: SIM401 - `get` would not refuse two


def plain_name(name: str) -> str:
    """A column's name in small letters, without space around it and with _ for space within.

    >>> plain_name(" Node ID")
    'node_id'
    """
    return name.strip().lower().replace(" ", "_")


def check_names(path: Path, names: Sequence[str], needed: Sequence[str]) -> None:
    """Refuse columns of which one is lacking, or two have one name; any number may have none."""
    if not any(names):
        raise DataError(f"{path}: it holds no table: its first line must have the names of the columns")
    if twice := [name for name, count in Counter(names).items() if name and count > 1]:
        raise DataError(f"{path}: more than one column is called {twice[0]!r}: each name once")
    if not set(needed) <= set(names):
        raise DataError(f"{path}: its columns are {', '.join(names)}; expected {', '.join(needed)}")


def _same(column: Any, row: int, other: int) -> bool:
    if isinstance(column, str):
        return True
    one, two = column[row], column[other]
    return bool(one == two) or (one != one and two != two)


def _text(value: float) -> str:
    if value != value:
        return ""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def numbers_of(cells: Sequence[str], comma: bool = False) -> Floats:
    """The numbers of a column of texts, NaN for what is none.

    Symbols     comma = whether they have a decimal comma
    Edge cases  thousands may be parted by the other sign, and a number followed by %; 1_2, a number to Python, is none

    >>> numbers_of(["1", "1,234.5", "12 %", "1_2"]).tolist(), numbers_of(["1,5", "1.234"], comma=True).tolist()
    ([1.0, 1234.5, 12.0, nan], [1.5, 1234.0])
    """
    try:
        grouped = comma and any("." in cell for cell in cells)
        if max(map(len, cells), default=0) <= LONGEST and not grouped and not any(map(contains, cells, repeat("_"))):
            return np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        pass
    return np.fromiter((_number(cell, comma) for cell in cells), np.float64, len(cells))


def _number(text: str | None, comma: bool = False) -> float:
    if not text or len(text) > LONGEST or "_" in text:
        return float("nan")
    if comma and GROUPS[True].fullmatch(text.strip()):  # 1.234, which is another number to Python
        text = text.replace(".", "")
    try:
        return float(text.replace(",", ".") if comma else text)
    except ValueError:
        plain = text.strip().removesuffix("%").rstrip()
        if GROUPS[comma].fullmatch(plain):
            plain = plain.replace("." if comma else ",", "")
        elif plain == text.strip():
            return float("nan")
        return _number(plain, comma)


class Texts:
    """Texts of a file, each of which is in memory once, and together at most `MAX_TEXTS` bytes."""

    def __init__(self, path: Path) -> None:
        self.path, self.size, self.seen = path, 0, dict[str, str]()

    def shared(self, text: str) -> str:
        """The text itself, or the same from before."""
        known = self.seen.get(text)
        if known is not None:
            return known
        self.size += sys.getsizeof(text) + ENTRY
        if self.size > MAX_TEXTS:
            raise DataError(f"{self.path}: its texts take more than {MAX_TEXTS:,} bytes of memory")
        self.seen[text] = text
        return text


def check_size(path: Path, rows: int, columns: int) -> None:
    """Refuse more rows or cells than fit."""
    if rows * columns > MAX_CELLS or rows > MAX_ROWS:
        raise DataError(f"{path}: {rows:,} rows of {columns} columns are more than such a file may have")
