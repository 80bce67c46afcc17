"""Tables: CSV files, cut into cells by Python's reader and held by polars, Parquet files, and JSON in lines."""

import codecs
import csv
import io
import json
import re
from array import array
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice, pairwise, repeat
from math import isfinite
from operator import contains
from pathlib import Path
from typing import IO, Any, Literal

import numpy as np

from edgewise.data.parquet import names_of_parquet, pieces_of_parquet, read_parquet
from edgewise.data.words import MISSING
from edgewise.errors import DataError
from edgewise.files import read_bytes, reading

LARGEST = float(np.finfo(np.float32).max)
LONGEST = 1000  # characters of a number
GROUPS = {  # thousands, which commas or points part, and the decimal point or comma after them
    False: re.compile(r"[+-]?[1-9]\d{0,2}(,\d{3})+(\.\d+)?", re.ASCII),
    True: re.compile(r"[+-]?[1-9]\d{0,2}(\.\d{3})+(,\d+)?", re.ASCII),
}
SEPARATORS = (",", ";", "\t", "|")
BEGINNING = 1 << 23  # bytes of a file of any length: some lines, however long they may be
SAMPLE, LINES = 1 << 17, 8  # characters, and lines, that are looked at; of the encoding all that there are
ROWS = 1000
WESTERN = 0.3  # of the letters outside ASCII: beyond this share a text is hardly in Windows-1252
BOMS = ((b"\xff\xfe", "utf-16"), (b"\xfe\xff", "utf-16"), (b"\xef\xbb\xbf", "utf-8-sig"))
LED = r"[1-9]\d{0,2}"  # digits before thousands
EITHER = re.compile(rf"[+-]?{LED}[.,]\d{{3}}", re.ASCII)  # a decimal sign, or one that parts thousands
DECIMAL = {  # cells that show which is the decimal sign: 1,5 and 0,125 and 1.234,5 and 1.234.567 that it is the comma
    sign[-1]: re.compile(
        rf"[+-]?((?!{LED}{sign}\d{{3}}\Z)(\d*|{LED}({other}\d{{3}})+){sign}\d+|{LED}({other}\d{{3}}){{2,}})", re.ASCII
    )
    for sign, other in ((",", r"\."), (r"\.", ","))
}
OPENED = re.compile(rb'"(?<![^\t\n\r\x00\xbf\xfe\xff]")')  # a quotation mark that may begin a cell
CODE = re.compile(r"0\d+", re.ASCII)  # 007 is a name: a number has no zeros before it

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Dialect:
    """How a CSV file is written.

    Symbols     skipped = lines before the names of the columns; commas = columns of numbers with a decimal comma;
                points = those that show a decimal point; texts = columns that hold texts; doubtful = how a cell was
                read that may be either of two numbers; late = the signs of such cells, "," or ".", that are decimal
                commas in columns that show nothing: a cell after the first rows would be another number; quotes =
                whether quotation marks stand around cells, or are characters like others
    """

    encoding: str = "utf-8-sig"
    separator: str = ","
    skipped: int = 0
    names: tuple[str, ...] = ()
    commas: frozenset[str] = frozenset()
    texts: frozenset[str] = frozenset()
    doubtful: tuple[str, ...] = ()
    points: frozenset[str] = frozenset()
    late: str = ""
    quotes: bool = True

    @property
    def quoting(self) -> Literal[0, 3]:
        """The same for Python's reader."""
        return csv.QUOTE_MINIMAL if self.quotes else csv.QUOTE_NONE

    def __str__(self) -> str:
        """What is not as usual, or nothing."""
        words = [] if self.encoding == "utf-8-sig" else [f"encoded in {self.encoding}"]
        words += [] if self.separator == "," else [f"separated by {self.separator!r}"]
        words += [] if self.quotes else ["quotation marks as characters of cells"]
        words += [f"decimal commas in {', '.join(sorted(self.commas))}"] if self.commas else []
        return ", ".join([*words, *self.doubtful])

    def signs_against(self, name: str) -> tuple[str, re.Pattern[str]] | None:
        """The signs, and the cells with them, that make a number of a column another than its first rows would."""
        if name in self.texts or not (name in self.commas or (self.late and name not in self.points)):
            return None
        return (".", DECIMAL["."]) if name in self.commas else (self.late, EITHER)


def dialect_of(content: bytes, whole: bool = True, ending: str = ".csv") -> Dialect:
    """The dialect of a file, by what its rows have in common.

    Symbols     content = the file, or (not `whole`) its first `BEGINNING` bytes; ending = that of its name
    Edge cases  where rows differ in length whatever separates their cells, it is what the first line has most of, and
                in a .tsv file a tab. Quotation marks in a file with tabs are characters where tabs alone cut all rows
                into the same number of cells, and marks around cells would not, or would make whole rows one cell
    """
    encoding = encoding_of(content, whole)
    lines = _first_lines(content[:BEGINNING], encoding)
    skipped, named = 0, ""
    while lines[skipped:] and (lines[skipped].startswith("#") or re.match(r"sep=.\s*$", lines[skipped])):
        named = lines[skipped][4] if lines[skipped].startswith("sep=") else named
        skipped += 1
    lines = lines[skipped:]
    separator = named or _separator(lines, ending.lower() == ".tsv")
    quotes = separator != "\t" or not OPENED.search(content) or _are_marks(content, whole, encoding, skipped)
    rows = _rows(lines, separator, quotes)
    names = tuple(name.strip() for name in rows[0]) if rows else ()
    body = [row for row in rows[1:] if len(row) == len(names)]
    columns = {name: [row[number].strip() for row in body] for number, name in enumerate(names)}
    commas, doubtful, points, late = _commas(columns, separator)
    texts = frozenset(name for name, cells in columns.items() if _holds_texts(cells, name in commas))
    return Dialect(encoding, separator, skipped, names, commas, texts, doubtful, points, late, quotes)


def _are_marks(content: bytes, whole: bool, encoding: str, skipped: int) -> bool:
    """Whether quotation marks in a file with tabs stand around cells."""

    def alike(quotes: bool) -> bool:
        lines: Iterable[str] = io.TextIOWrapper(io.BytesIO(content), encoding, "ignore", newline="")
        lines = lines if whole else (line for line, _ in pairwise(lines))  # the last one may be a part
        return _cuts_alike(islice(lines, skipped, None), quotes)

    return alike(True) or not alike(False)


def _cuts_alike(lines: Iterable[str], quotes: bool) -> bool:
    lengths = set[int]()
    with suppress(DataError), reading("a table", "a CSV file"):  # which is then not cut alike
        for row in csv.reader(lines, strict=True, delimiter="\t", quoting=Dialect(quotes=quotes).quoting):
            lengths |= {len(row)} if row else set()
            if len(lengths) > 1 or swallowing(row):
                return False
        return max(lengths, default=0) > 1
    return False


def swallowing(row: Sequence[str]) -> bool:
    """Whether a cell between tabs is what lines of so many cells leave between two places of one column: the quotation
    marks are then characters of both places.

    >>> swallowing(["a", "one\\nb\\ttwo"]), swallowing(["a", "one\\ntwo"])
    (True, False)
    """
    tabs = len(row) - 1
    return tabs > 0 and any("\n" in cell and cell.count("\t") == tabs * cell.count("\n") for cell in row)


def _first_lines(content: bytes, encoding: str) -> list[str]:
    """Whole lines, a sample of them: that of the names may be longer than many rows."""
    lines, size = list[str](), 0
    for line in io.TextIOWrapper(io.BytesIO(content), encoding, "ignore", newline=""):
        if size >= SAMPLE and len(lines) >= LINES:
            break
        lines.append(line)
        size += len(line)
    return lines


def encoding_of(content: bytes, whole: bool = True) -> str:
    """The encoding of a text: UTF-8, or as its byte order mark says; else Windows-1252, where that may be.

    >>> [encoding_of(text.encode(name)) for text, name in (("Zürich", "cp1252"), ("Москва", "cp1251"), ("a", "utf-16"))]
    ['cp1252', 'utf-8-sig', 'utf-16']
    """
    for mark, encoding in BOMS:
        if content.startswith(mark):
            return encoding
    if not _is_utf8(content, whole):
        letters = sum(byte > 127 or 65 <= byte <= 122 for byte in content[:SAMPLE])
        outside = sum(byte > 127 for byte in content[:SAMPLE])
        odd = bool(re.search(rb"[\x00-\x08\x0e-\x1f\x81\x8d\x8f\x90\x9d]", content))
        if not odd and outside <= WESTERN * letters:
            return "cp1252"
    return "utf-8-sig"


def _is_utf8(content: bytes, whole: bool) -> bool:
    """A part at a time: a text with one emoji takes four times its bytes."""
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for start in range(0, len(content), SAMPLE):
            decoder.decode(content[start : start + SAMPLE])
        decoder.decode(b"", final=whole)
    except UnicodeDecodeError:
        return False
    return True


def _separator(lines: Sequence[str], tabs: bool) -> str:
    """What cuts all rows into the same number of cells, the most if there are several; where tabs do, and are expected,
    a tab."""

    def consistent(separator: str, quotes: bool = True) -> int:
        lengths = {len(row) for row in _rows(lines, separator, quotes)}
        return lengths.pop() if len(lengths) == 1 else 0

    tabs_do = tabs and any(consistent("\t", quotes) > 1 for quotes in (True, False))
    best = "\t" if tabs_do else max(SEPARATORS, key=consistent)
    if consistent(best) > 1:
        return best
    return "\t" if tabs else max(SEPARATORS, key=(lines[0] if lines else "").count)


def _rows(lines: Sequence[str], separator: str, quotes: bool) -> list[list[str]]:
    rows, quoting = list[list[str]](), Dialect(quotes=quotes).quoting
    with suppress(DataError), reading("the first lines", "a CSV file"):  # whoever reads the whole file says so
        rows.extend(row for row in islice(csv.reader(lines, delimiter=separator, quoting=quoting), ROWS) if row)
    return rows


def _commas(
    columns: dict[str, list[str]], separator: str
) -> tuple[frozenset[str], tuple[str, ...], frozenset[str], str]:
    """The columns of which numbers have a decimal comma, and how those were read that do not show it; the columns that
    show a decimal point, and the signs that are decimal commas in columns that show nothing.

    Edge cases  1,234 and 1.234 may be either: they are read as in the columns that show which; where none does, or some
                show the one sign and some the other, 1.234 has a decimal point, and 1,234 a decimal comma where a
                semicolon separates cells
    """
    numbers = {
        name: [cell.removesuffix("%").rstrip() for cell in cells]
        for name, cells in columns.items()
        if not all(_holds_texts(cells, comma) for comma in (True, False))
    }
    shown = {
        name: {sign for sign, shows in DECIMAL.items() if any(map(shows.fullmatch, cells))}
        for name, cells in numbers.items()
    }
    doubtful = {name: next(filter(EITHER.fullmatch, cells), "") for name, cells in numbers.items() if not shown[name]}
    doubtful = {name: cell for name, cell in doubtful.items() if cell}
    signs = {sign for found in shown.values() if len(found) == 1 for sign in found}
    either = signs != {"."} and separator == ";"
    commas = {name for name, found in shown.items() if found == {","}}
    commas |= {name for name, cell in doubtful.items() if signs == {","} or (either and "," in cell)}
    points = frozenset(name for name, found in shown.items() if "." in found)
    late = ",." if signs == {","} else "," if either else ""
    if signs == {"."} or (not signs and separator == ","):
        return frozenset(commas), (), points, late
    read = {name: numbers_of([cell], name in commas)[0] for name, cell in doubtful.items()}
    said = tuple(f"{cell} in {name} as {read[name]:.15g}" for name, cell in doubtful.items())
    return frozenset(commas), said, points, late


def _holds_texts(cells: list[str], comma: bool) -> bool:
    present = [cell for cell in cells if cell.lower() not in MISSING]
    values = numbers_of(present, comma)
    numbers = sum(abs(value) <= LARGEST for value in values.tolist())
    return bool(present) and (2 * numbers < len(present) or any(map(CODE.fullmatch, present)))


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


MAX_BYTES = 1 << 28  # of a file that is read whole
MAX_CELLS = 1 << 25  # a Parquet file of a few bytes can claim any number of rows
MAX_ROWS = 1 << 23
MAX_LINE = 1 << 20  # characters
PIECE = 1 << 16  # rows
WIDE = 1 << 24  # characters, with which a piece ends before it has so many rows: 4 bytes each at most
SHOWN = 10  # problems of a file in one message
MOST = 1 << 16  # of them that are kept
ENDINGS = (".csv", ".tsv", ".parquet", ".jsonl")


@dataclass(frozen=True)
class Table:
    """Named columns of one length: texts as they stand in a CSV file, texts or numbers of a Parquet file.

    Symbols     header = the names of all columns, "" for one without; columns = those with a name, as polars' series;
                others = what the columns hold that are neither texts nor numbers; rows = what the file calls its rows,
                "line" 2, 3, ... or "row" 0, 1, ...; problems = which rows are left out; percents = of each column
                whether its numbers have a %, as the rows before these show
    """

    path: Path
    header: Sequence[str]
    columns: Mapping[str, Any]
    rows: tuple[str, Sequence[int]]
    dialect: Dialect | None = None
    problems: tuple[str, ...] = ()
    others: Mapping[str, str] = field(default_factory=dict)
    percents: dict[str, bool] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows[1])

    @property
    def notes(self) -> tuple[str, ...]:
        """How the file is written, where that is unusual."""
        return (f"{self.path.name}: {self.dialect}",) if self.dialect and str(self.dialect) else ()

    @property
    def commas(self) -> frozenset[str]:
        """The columns of numbers with a decimal comma."""
        return self.dialect.commas if self.dialect else frozenset()

    def at(self, number: int) -> str:
        """What a row is called, counted from 0 here."""
        return f"{self.path}: {self.rows[0]} {self.rows[1][number]}"

    def need(self, names: Iterable[str]) -> None:
        """Refuse a table that lacks a column."""
        if not {*names} <= {*self.header}:
            raise DataError(f"{self.path}: its columns are {', '.join(self.header)}; expected {', '.join(names)}")

    def chosen(self, name: str, what: str) -> str:
        """A column that is chosen by its name; a DataError where there is none.

        Symbols     what = what it holds, in words
        """
        if name and name not in self.header:
            raise DataError(f"{self.path}: it has no column {name!r} {what}, only {', '.join(self.header)}")
        return name

    def column(self, name: str) -> Any:
        """A column as polars' series.

        Errors      DataError for a column that is none of texts or numbers, or whose numbers are not all written alike
        """
        if name in self.others:
            raise DataError(f"{self.path}: the column {name!r} holds {self.others[name]}, not numbers or texts")
        if self.dialect is not None and name not in self.dialect.texts:
            self._check_signs(name, self.dialect)
        return self.columns[name]

    def values(self, name: str) -> Floats:
        """A column as numbers, NaN for cells that are none."""
        column, comma = self.column(name), name in self.commas
        if column.dtype.is_numeric():
            values: Floats = column.to_numpy().astype(np.float64, copy=False)
            return values
        parts = (column.slice(first, PIECE).fill_null("").to_list() for first in range(0, len(column), PIECE))
        return np.concatenate([np.empty(0), *(numbers_of(part, comma) for part in parts)])

    def numbers(self, name: str) -> Floats:
        """A column of finite numbers."""
        values = self.values(name)
        if len(rows := np.flatnonzero(~(np.abs(values) <= LARGEST))):
            cell = self.columns[name][int(rows[0])]
            shown = "" if cell is None else str(cell)[:40]
            raise DataError(f"{self.at(int(rows[0]))}: {name} is {shown!r}, {wrong(values[rows[0]])}")
        return values

    def cells(self, name: str) -> list[str]:
        """A column as texts as they stand in the file, "" where there is no value."""
        import polars

        column = self.column(name)
        if column.dtype != polars.String:
            return self.texts(name)
        texts: list[str] = column.fill_null("").to_list()
        return texts

    def texts(self, name: str) -> list[str]:
        """A column as texts, "" where there is no value; a whole number has no point, whatever its type."""
        column = self.column(name)
        if column.dtype.is_float():
            return [_text(value) for value in column.to_list()]
        texts: list[str] = column.cast(str).str.strip_chars().fill_null("").to_list()
        return texts

    def names(self, name: str) -> list[str]:
        """A column as texts that name something.

        Errors      DataError for a floating number that stands for several whole ones, as pandas makes of long numbers
                    beside a gap
        """
        column = self.column(name)
        if column.dtype.is_float():
            values = column.to_numpy()
            if len(rows := np.flatnonzero(np.abs(values) >= 2 << np.finfo(values.dtype).nmant)):
                what = "a floating number, which has lost digits: write names as whole numbers or as texts"
                raise DataError(f"{self.at(int(rows[0]))}: {name} is {values[rows[0]]:.0f}, {what}")
        return self.texts(name)

    def levels(self, name: str) -> tuple[list[str], Any]:
        """The different texts of a column, in order, and the place of each cell's among them [N]."""
        import polars

        column = self.column(name)
        texts = polars.Series(self.texts(name)) if column.dtype.is_float() else column.cast(str).str.strip_chars()
        texts = texts.cast(str).fill_null("")
        levels = sorted(texts.unique().to_list())
        return levels, texts.cast(polars.Enum(levels)).to_physical().to_numpy().astype(np.int64)

    def same(self, row: int, other: int, names: Iterable[str]) -> bool:
        """Whether two rows hold the same in some columns: a cell without a value is as another without one."""
        return all(self._plain(name, row) == self._plain(name, other) for name in names if name not in self.others)

    def _plain(self, name: str, row: int) -> Any:
        cell = self.columns[name][row]
        if cell is None or cell != cell:
            return ""
        if not isinstance(cell, str):
            return cell
        number = float(numbers_of([cell], name in self.commas)[0])
        return "" if cell.strip().lower() in MISSING else cell.strip() if np.isnan(number) else number

    def _check_signs(self, name: str, dialect: Dialect) -> None:
        """Refuse a cell whose decimal sign is not the one that the first rows show, or that has a % where the numbers
        before it have none, or none where they have one."""
        column = self.columns[name]
        if against := dialect.signs_against(name):
            for row in column.str.contains(f"[{against[0]}]").arg_true().to_list():
                if against[1].fullmatch(column[row].strip().removesuffix("%").rstrip()):
                    right = "comma, as in the" if name in dialect.commas else "point, or none, as in the"
                    self._refuse(name, row, f"which is one number or another: give it a decimal {right} first rows")
        if not self.percents.get(name) and not column.str.contains("%", literal=True).any():
            if name not in self.percents and not column.str.strip_chars().str.to_lowercase().is_in([*MISSING]).all():
                self.percents[name] = False
            return
        for row in np.flatnonzero(~np.isnan(numbers_of(column.to_list(), name in dialect.commas))).tolist():
            if self.percents.setdefault(name, percent := column[row].rstrip().endswith("%")) != percent:
                has = "a" if self.percents[name] else "no"
                self._refuse(name, row, f"and numbers before it have {has} %: give all of them one, or none")

    def _refuse(self, name: str, row: int, why: str) -> None:
        raise DataError(f"{self.at(row)}: {name} is {self.columns[name][row][:40]!r}, {why}")


@dataclass(frozen=True)
class Stacked(Table):
    """The rows of several tables as one, each called as its own file calls it."""

    parts: Sequence[Table] = ()

    def at(self, number: int) -> str:
        for part in self.parts:
            if number < len(part):
                return part.at(number)
            number -= len(part)
        raise IndexError(f"no part of {len(self.parts)} has the row")


def stacked(tables: Sequence[Table], names: Iterable[str]) -> Table:
    """Some columns of several tables as one table, without a value where a table lacks one.

    Edge cases  numbers lose their decimal commas, which another file may not have
    """
    import polars

    def plain(table: Table, name: str) -> Any:
        if name not in table.header:
            return polars.repeat(None, len(table), dtype=polars.Null, eager=True)
        if name not in table.commas:
            return table.column(name)
        cells, values = table.texts(name), table.values(name).tolist()
        return polars.Series(
            [cell if value != value else repr(value) for cell, value in zip(cells, values, strict=True)]
        )

    if len(tables) == 1:
        return tables[0]
    names, columns = [*names], dict[str, Any]()
    for name in names:
        parts = [plain(table, name) for table in tables]
        kinds = {part.dtype for part in parts} - {polars.Null()}
        kind = kinds.pop() if len(kinds) == 1 else polars.String
        columns[name] = polars.concat([part.cast(kind) for part in parts])
    rows = range(sum(map(len, tables)))
    return Stacked(tables[0].path.parent, names, columns, ("row", rows), parts=tables)


class Problems:
    """What is wrong with a file, and how many there are; a message has the first ones in full."""

    def __init__(self, known: Iterable[str] = ()) -> None:
        self.first, self.count, self._told = list[str](), 0, 0
        self.extend(known)

    def add(self, problem: str) -> None:
        """Count a problem."""
        self.count += 1
        if self.count <= MOST:
            self.first.append(problem)

    def extend(self, problems: Iterable[str]) -> None:
        """Count several."""
        for problem in problems:
            self.add(problem)

    def sentences(self) -> tuple[str, ...]:
        """All of them, in at most `SHOWN` + 1 lines."""
        more = self.count - SHOWN
        return (*self.first[:SHOWN], *([f"and {more:,} more such rows"] if more > 0 else []))

    def check(self) -> None:
        """Raise all of them as one DataError, if there are any."""
        if self.count:
            raise DataError(*self.sentences())

    def taken(self) -> list[str]:
        """Those that have come since the last call."""
        before, self._told = self._told, len(self.first)
        return self.first[before:]


class Called(dict[str, str]):
    """The columns of a table that are not ignored, by their `plain_name`.

    Errors      DataError where a column is looked up, and two have one plain name

    >>> Called(Path("a.csv"), ["ID", "Split"])["split"]
    'Split'
    """

    def __init__(self, path: Path, names: Iterable[str], ignored: Collection[str] = ()) -> None:
        self.path, self.known = path, [name for name in dict.fromkeys(names) if name not in ignored]
        super().__init__({plain_name(name): name for name in self.known})

    def __getitem__(self, name: str) -> str:
        meant = [column for column in self.known if plain_name(column) == name]
        if len(meant) > 1:
            which = f"the columns {' and '.join(meant)}, and which is meant is a guess"
            raise DataError(f"{self.path}: it has {which}: rename or remove one of them")
        return super().__getitem__(name)

    def meant(self, name: str) -> str:
        """The column that a name means, however it is spelt; the name itself where there is none."""
        plain = plain_name(name)
        return self[plain] if plain in self else name  # noqa: SIM401 - `get` would not refuse two

    def first(self, names: Iterable[str]) -> str:
        """The column of the first of some names that there is, or nothing."""
        return next((self[name] for name in names if name in self), "")


def plain_name(name: str) -> str:
    """A column's name in small letters, without space around it and with _ for space within.

    >>> plain_name(" Node ID")
    'node_id'
    """
    return name.strip().lower().replace(" ", "_")


def wrong(value: float, right: str = "a finite number") -> str:
    """What a cell is that is not right: too large a number, or anything else.

    >>> wrong(1e39), wrong(float("nan"))
    ('beyond 3.4e+38, the largest float32', 'not a finite number')
    """
    return f"beyond {LARGEST:.1e}, the largest float32" if isfinite(value) else f"not {right}"


def is_table(path: Path) -> bool:
    """Whether a file is a table, by how its name ends, in small letters or capitals."""
    return path.suffix.lower() in ENDINGS


def find_table(place: Path, name: str) -> Path | None:
    """name.csv, name.tsv or name.parquet of a folder, or None; of two, it would be a guess which is meant."""
    files = [path for path in _tables_in(place) if path.stem.lower() == name]
    if len(files) > 1:
        raise DataError(f"{place}: it has {files[0].name} and {files[1].name}: leave one of them")
    return files[0] if files else None


def find_tables(place: Path, name: str) -> list[Path]:
    """name.csv or the like, and all others whose name begins so, as edges-friends.csv and edges_work.parquet."""
    one = find_table(place, name)
    more = (path for path in _tables_in(place) if re.match(f"{name}[-_.]", path.stem, re.IGNORECASE))
    return [*([one] if one else []), *more]


def _tables_in(place: Path) -> list[Path]:
    return sorted(path for path in place.iterdir() if is_table(path) and path.is_file()) if place.is_dir() else []


def unread(place: Path, files: Sequence[Path]) -> tuple[str, ...]:
    """A line that names the other files of a folder, where there are any."""
    known = {file.name for file in files}
    others = sorted(file.name for file in place.iterdir() if file.is_file() and file.name not in known)
    more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
    return (f"not read: {', '.join(others[:SHOWN])}{more}",) if others else ()


def read_table(path: Path, needed: Sequence[str] = (), whole: bool = True) -> Table:
    """A file's columns.

    Symbols     whole: a row of another length than the names is an error; else it is left out, and in `problems`
    Errors      DataError: a file that is missing, malformed or too long, a column of `needed` that it lacks, or two of
                one name
    """
    content = read_bytes(path, MAX_BYTES)
    if path.suffix.lower() == ".parquet":
        table = Table(path, *read_parquet(path, content, _check))
    elif path.suffix.lower() == ".jsonl":
        (table,) = pieces_of_json(path, content, MAX_ROWS)
    else:
        table = _read_csv(path, content)
    table.need(needed)
    if whole and table.problems:
        raise DataError(*Problems(table.problems).sentences())
    return table


def pieces(
    path: Path, needed: Sequence[str] = (), rows: int = PIECE, problems: Problems | None = None
) -> Iterator[Table]:
    """The rows of a file of any length, at most so many at a time; errors are those of `read_table`.

    Symbols     problems = takes the rows of another length than the names; None: such a row is a DataError
    Errors      DataError, too, for a group of rows of a Parquet file that unpacks to more than `check_pages` allows
    Cost        memory of a few pieces and, of a Parquet file, of some groups of rows
    """
    try:
        with path.open("rb") as file:
            if path.suffix.lower() == ".parquet":
                parts: Iterator[Table] = (Table(path, *part) for part in pieces_of_parquet(path, file, rows, _check))
            elif path.suffix.lower() == ".jsonl":
                parts = pieces_of_json(path, file, rows)
            else:
                dialect = dialect_of(file.read(BEGINNING), whole=False, ending=path.suffix)
                file.seek(0)
                parts = pieces_of_csv(path, file, rows, dialect, problems)
            for part in parts:
                part.need(needed)
                yield part
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def names_in(path: Path) -> list[str]:
    """The names of the columns of a file of any length."""
    try:
        with path.open("rb") as file:
            if path.suffix.lower() == ".parquet":
                return names_of_parquet(path, file)
            if path.suffix.lower() == ".jsonl":
                return list(next(pieces_of_json(path, file, ROWS)).header)
            return list(dialect_of(file.read(BEGINNING), whole=False, ending=path.suffix).names)
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def lines_of(path: Path, content: bytes | IO[bytes], encoding: str = "utf-8-sig", end: str = "") -> Iterator[str]:
    """The lines of a text, each with its end.

    Symbols     end = what ends a line; empty: \\n, \\r or both
    Errors      DataError for bytes that are none, and for a line that has no end for `MAX_LINE` characters
    """
    file = io.TextIOWrapper(io.BytesIO(content) if isinstance(content, bytes) else content, encoding, newline=end)
    try:
        while line := file.readline(MAX_LINE + 1):
            if len(line) > MAX_LINE:
                raise DataError(f"{path}: a line is longer than {MAX_LINE:,} characters")
            yield line
    except UnicodeDecodeError as error:
        found = f"byte {error.object[error.start]:#04x} is not {encoding.removesuffix('-sig')}"
        raise DataError(f"{path}: not a text in a known encoding ({found})") from error
    finally:
        with suppress(ValueError):  # it is closed already
            file.detach()  # whoever opened the file closes it


def _read_csv(path: Path, content: bytes) -> Table:
    import polars

    dialect, problems = dialect_of(content, ending=path.suffix), Problems()
    parts, count, lines = list[Table](), 0, array("q")
    for part in pieces_of_csv(path, content, PIECE, dialect, problems):
        parts.append(part)
        count += len(part)
        lines.extend(part.rows[1])
        _check(path, part.header, count)
    columns = {name: polars.concat([part.columns[name] for part in parts], rechunk=True) for name in parts[0].columns}
    return Table(path, parts[0].header, columns, ("line", lines), dialect, tuple(problems.first))


def pieces_of_csv(
    path: Path, content: bytes | IO[bytes], rows: int, dialect: Dialect, problems: Problems | None = None
) -> Iterator[Table]:
    """At least one table, if only of no rows.

    Symbols     problems = takes the rows of another length than the first one; None: such a row is a DataError
    """
    import polars

    size = 0

    def counted() -> Iterator[str]:
        nonlocal size
        for line in islice(lines_of(path, content, dialect.encoding), dialect.skipped, None):
            size += len(line)
            yield line

    with reading(path, "a CSV file"):
        reader = csv.reader(counted(), strict=True, delimiter=dialect.separator, quoting=dialect.quoting)
        names, percents = [name.strip() for name in next(reader, [])], dict[str, bool]()
        _check(path, names)
        more = first = True
        while more:
            # All cells in one list: Python's garbage collector would visit each row that is a list, again and again.
            cells, lines, more, size = list[str](), array("q"), False, 0
            before = reader.line_num
            for row in islice(reader, rows):
                more, line = True, reader.line_num
                if line > before + 1 and dialect.separator == "\t" and swallowing(row):
                    where = f"the lines {before + 1 + dialect.skipped} to {line + dialect.skipped}"
                    what = f"quotation marks make one row of {where}: remove the two"
                    raise DataError(f"{path}: {what}, or write them twice and put two more around their cells")
                before = line
                if len(row) == len(names):
                    cells.extend(row)
                    lines.append(line + dialect.skipped)
                elif row:  # a line with nothing in it is none
                    problem = f"{path}: line {line + dialect.skipped} does not have {len(names)} columns"
                    if problems is None:
                        raise DataError(problem)
                    problems.add(problem)
                if size > WIDE:
                    break
            if lines or first:
                columns = {
                    name: polars.Series(name, cells[number :: len(names)], polars.String)
                    for number, name in enumerate(names)
                    if name
                }
                yield Table(path, names, columns, ("line", lines), dialect, percents=percents)
            first = False


def pieces_of_json(path: Path, content: bytes | IO[bytes], rows: int) -> Iterator[Table]:
    """At least one table, if only of no rows, of lines with an object of JSON each: a column for each of their names.

    Errors      DataError for a line that holds no object, and for a later piece with a column that the first one lacks
    """
    lines = ((number, line) for number, line in enumerate(lines_of(path, content), start=1) if line.strip())
    first = list[str]()
    while True:
        found, places, size, problems = list[dict[str, Any]](), array("q"), 0, Problems()
        for number, line in islice(lines, rows):
            made = object_in(line)
            if made is None:
                problems.add(f'{path}: line {number} is no object of JSON, as {{"age": 3}}')
                continue
            found.append(made)
            places.append(number)
            if (size := size + len(line)) > WIDE and rows < MAX_ROWS:
                break
        names = list(dict.fromkeys(name for row in found for name in row))
        if first and not (found or problems.count):
            return
        if first and (later := [name for name in names if name not in first]):
            raise DataError(
                f"{path}: {later[0]!r} is in no line before line {places[0]}: name it in the first, if as null"
            )
        first = first or names
        _check(path, first, len(found))
        cells = {name: [row.get(name) for row in found] for name in first if name}
        columns = {name: series_of(name, some) for name, some in cells.items()}
        others = {name: "lists or objects" for name, column in columns.items() if column is None}
        columns |= {name: series_of(name, [json.dumps(cell) for cell in cells[name]]) for name in others}
        yield Table(path, first, columns, ("line", places), problems=tuple(problems.first), others=others)


def object_in(text: str) -> dict[str, Any] | None:
    """The object of JSON that a text is, or None; what stands for no number is null there.

    >>> object_in('{"smiles": "CCO", "mass": NaN}'), object_in("CCO")
    ({'smiles': 'CCO', 'mass': None}, None)
    """
    with suppress(ValueError, RecursionError):
        made = json.loads(text, parse_constant=lambda _: None) if text.lstrip()[:1] == "{" else None
        return made if isinstance(made, dict) else None
    return None


def series_of(name: str, cells: Sequence[Any]) -> Any:
    """Values of JSON as polars' series: numbers where all are, else texts; None where some are lists or objects."""
    import polars

    kinds = {type(cell) for cell in cells} - {type(None)}
    if kinds & {list, dict}:
        return None
    if kinds and kinds <= {int, float}:
        small = all(abs(cell) < 1 << 53 for cell in cells if cell is not None)
        if float in kinds or small:
            return polars.Series(name, cells, polars.Float64 if float in kinds else polars.Int64, strict=False)
    texts = [cell if cell is None or isinstance(cell, str) else json.dumps(cell) for cell in cells]
    return polars.Series(name, texts, polars.String)


def _check(path: Path, names: Sequence[str], rows: int = 0) -> None:
    """Refuse columns none of which has a name, or two have one, and more rows or cells than fit."""
    if not any(names):
        raise DataError(f"{path}: it holds no table: its first line must have the names of the columns")
    if twice := [name for name, count in Counter(names).items() if name and count > 1]:
        raise DataError(f"{path}: more than one column is called {twice[0]!r}: each name once")
    if rows * len(names) > MAX_CELLS or rows > MAX_ROWS:
        raise DataError(f"{path}: {rows:,} rows of {len(names)} columns are more than such a file may have")


def _text(value: float | None) -> str:
    if value is None or value != value:
        return ""
    return str(int(value) if value.is_integer() else value)
