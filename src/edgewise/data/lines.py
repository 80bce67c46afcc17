"""CSV files as tables, by Python's reader, whole or some rows at a time: memory of a piece beside the columns."""

import csv
import io
import re
from array import array
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from edgewise.data.dialect import CODE, Dialect, swallowing
from edgewise.data.table import LARGEST, MISSING, SHOWN, Cells, Table, Texts, check_names, check_size, numbers_of
from edgewise.errors import DataError
from edgewise.files import reading

PIECE = 1 << 16  # rows
WIDE = 1 << 24  # characters, with which a piece ends before it has so many rows: 4 bytes each at most
MAX_LINE = 1 << 20  # characters
PLAIN = Dialect()
CODES = re.compile(rf"\n[ \t]*{CODE.pattern}[ \t]*\n", re.ASCII)


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
        wrong = f"byte {error.object[error.start]:#04x} is not {encoding.removesuffix('-sig')}"
        raise DataError(f"{path}: not a text in a known encoding ({wrong})") from error
    finally:
        with suppress(ValueError):  # it is closed already
            file.detach()  # whoever opened the file closes it


def reader_of(lines: Iterable[str], dialect: Dialect) -> Any:
    """Python's reader of the lines after those that the dialect skips."""
    return csv.reader(lines, strict=True, delimiter=dialect.separator, quoting=dialect.quoting)


def refuse_swallowing(path: Path, row: Sequence[str], first: int, last: int, dialect: Dialect) -> None:
    """Refuse a row of several lines of which quotation marks make one cell of others.

    Symbols     first, last = its lines, from 1 after those that the dialect skips
    """
    if dialect.separator == "\t" and swallowing(row):
        what = f"quotation marks make one row of the lines {first + dialect.skipped} to {last + dialect.skipped}"
        raise DataError(f"{path}: {what}: remove the two, or write them twice and put two more around their cells")


def read_csv(
    path: Path, content: bytes, needed: Sequence[str], texts: Collection[str], dialect: Dialect = PLAIN
) -> Table:
    """The whole table; rows of another length than the first one are left out, and named in its `problems`."""
    parts, rows, problems = list[Table](), 0, Problems()
    for part in pieces_of_csv(path, content, needed, texts, PIECE, dialect, problems):
        parts.append(part)
        rows += len(part)
        check_size(path, rows, len(part.columns))
    columns: dict[str, Any] = {}
    for name, first in parts[0].columns.items():
        of_parts = [part.columns[name] for part in parts]
        columns[name] = list(chain(*of_parts)) if isinstance(first, list) else np.concatenate(of_parts)
    lines, wrong, strange = array("q"), dict[str, tuple[int, str]](), dict[str, Cells]()
    doubtful: dict[str, str] = {}
    for part in parts:
        doubtful = {**part.doubtful, **doubtful}
        for name, (row, cell) in part.wrong.items():
            wrong.setdefault(name, (len(lines) + row, cell))
        for name, cells in part.strange.items():
            known = strange.setdefault(name, [])
            known += [(len(lines) + row, cell) for row, cell in cells[: SHOWN - len(known)]]
        lines.extend(part.rows[1])
    notes = (f"{path.name}: {dialect}",) if str(dialect) else ()
    in_a_row = len(lines) > 0 and lines[-1] - lines[0] == len(lines) - 1  # as nearly always: nothing is to be kept
    numbers = range(lines[0], lines[-1] + 1) if in_a_row else lines
    return Table(path, columns, ("line", numbers), wrong, strange, notes, problems.sentences(), doubtful)


class Problems:
    """What is wrong with a file: the first ones in full, and how many there are."""

    def __init__(self) -> None:
        self.first, self.count = list[str](), 0

    def add(self, problem: str) -> None:
        """One more."""
        self.count += 1
        if self.count <= SHOWN:
            self.first.append(problem)

    def sentences(self) -> tuple[str, ...]:
        """All of them, in at most `SHOWN` + 1 lines."""
        more = self.count - len(self.first)
        return (*self.first, f"and {more:,} more such rows") if more else tuple(self.first)


def pieces_of_csv(
    path: Path,
    content: bytes | IO[bytes],
    needed: Sequence[str],
    texts: Collection[str],
    rows: int,
    dialect: Dialect = PLAIN,
    problems: Problems | None = None,
) -> Iterator[Table]:
    """At least one table, if only of no rows.

    Symbols     problems = takes the rows of another length than the first one; None: such a row is a DataError
    """
    with reading(path, "a CSV file"):
        read = [0]  # characters of the piece
        lines_in = islice(_counted(lines_of(path, content, dialect.encoding), read), dialect.skipped, None)
        reader = reader_of(lines_in, dialect)
        names = [name.strip() for name in next(reader, [])]
        check_names(path, names, needed)
        seen, more, first, signs = Texts(path), True, True, dict[str, bool]()
        while more:
            # All cells in one list: Python's garbage collector would visit each row that is a list, again and again.
            cells, lines, more, read[0] = list[str](), array("q"), False, 0
            before = reader.line_num
            for row in islice(reader, rows):
                more, line = True, reader.line_num
                if line > before + 1:
                    refuse_swallowing(path, row, before + 1, line, dialect)
                before = line
                if not row:  # a line with nothing in it is none
                    continue
                if len(row) != len(names):
                    problem = f"{path}: line {line + dialect.skipped} does not have {len(names)} columns"
                    if problems is None:
                        raise DataError(problem)
                    problems.add(problem)
                    continue
                cells.extend(row)
                lines.append(line + dialect.skipped)
                if read[0] > WIDE:
                    break
            if lines or first:
                part = _piece(path, names, cells, lines, texts, dialect, seen)
                yield replace(part, doubtful=_doubtful(part, names, cells, dialect, signs))
            first = False


def _piece(
    path: Path, names: list[str], cells: list[str], lines: Any, texts: Collection[str], dialect: Dialect, seen: Texts
) -> Table:
    columns, wrong, strange = dict[str, Any](), dict[str, tuple[int, str]](), dict[str, Cells]()
    for number, name in enumerate(names):
        column = cells[number :: len(names)]
        if name in texts:
            columns[name] = list(map(seen.shared, column))
            continue
        columns[name] = values = numbers_of(column, name in dialect.commas)
        no_numbers = np.flatnonzero(~(np.abs(values) <= LARGEST)).tolist()
        if no_numbers:
            wrong[name] = no_numbers[0], column[no_numbers[0]]
        others = (row for row in no_numbers if column[row].strip().lower() not in MISSING)
        if first := {*islice(others, SHOWN), *islice(_codes(column), SHOWN)}:
            strange[name] = [(row, column[row]) for row in sorted(first)[:SHOWN]]
    return Table(path, columns, ("line", lines), wrong, strange)


def _doubtful(
    table: Table, names: list[str], cells: list[str], dialect: Dialect, signs: dict[str, bool]
) -> dict[str, str]:
    """Of each column that has one, the first cell whose decimal sign is not the one that its first rows show, or that
    has a % where those before it have none, or none where they have one.

    Symbols     signs = whether the numbers of columns have a %, as the rows before this piece show
    """
    found = dict[str, str]()
    for number, name in enumerate(names):
        if not name or name in dialect.texts:
            continue
        column = cells[number :: len(names)]
        if (row := dialect.disagreeing(name, column)) is not None:
            right = "comma, as in the" if name in dialect.commas else "point, or none, as in the"
            what = f"which is one number or another: give it a decimal {right} first rows"
        elif (row := _unlike(name, column, dialect, signs)) is not None:
            what = f"and numbers before it have {'a' if signs[name] else 'no'} %: give all of them one, or none"
        if row is not None:
            found[name] = f"{table.at(row)}: {name} is {column[row][:40]!r}, {what}"
    return found


def _unlike(name: str, column: Sequence[str], dialect: Dialect, signs: dict[str, bool]) -> int | None:
    """The first number with a % where those before it have none, or without one where they have one."""
    if not signs.get(name) and "%" not in "".join(column):
        if name not in signs and any(cell.strip().lower() not in MISSING for cell in column):
            signs[name] = False
        return None
    numbers = np.flatnonzero(~np.isnan(numbers_of(column, name in dialect.commas)))
    percents = ((row, column[row].rstrip().endswith("%")) for row in numbers.tolist())
    return next((row for row, percent in percents if signs.setdefault(name, percent) != percent), None)


def _codes(column: Sequence[str]) -> Iterator[int]:
    """The rows with a code such as 007; most columns have none, which a search of all cells at once shows soonest."""
    if CODES.search("\n".join(["", *column, ""])):
        yield from (row for row, cell in enumerate(column) if CODE.fullmatch(cell.strip()))


def _counted(lines: Iterable[str], read: list[int]) -> Iterator[str]:
    for line in lines:
        read[0] += len(line)
        yield line
