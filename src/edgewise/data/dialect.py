"""How a CSV file is written: its encoding, what separates its cells, and where numbers have a comma for a point."""

import codecs
import csv
import io
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice, pairwise, repeat
from operator import contains
from typing import Any, Literal

import numpy as np

from edgewise.errors import DataError
from edgewise.files import reading

LARGEST = float(np.finfo(np.float32).max)
LONGEST = 1000  # characters of a number
UNKNOWN = frozenset(("", "na", "n/a", "nan", "null", "?"))  # labels, whatever their case, of what has none
MISSING = UNKNOWN | {"none", "-"}  # other cells; a class may be called none
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
