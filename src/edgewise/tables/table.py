"""A table of named columns from a CSV or a Parquet file, whole or in pieces; what is wrong is named by line or row."""

import csv
import io
import mmap
import sys
from array import array
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import chain, islice
from pathlib import Path
from typing import IO, Any

import numpy as np

from edgewise.errors import DataError, EdgewiseError, installing
from edgewise.files import read_bytes, reading
from edgewise.tables.pages import check_pages

MAX_BYTES = 1 << 28
MAX_CELLS = 1 << 25  # 8 bytes each; a Parquet file of a few bytes can claim any number of rows
MAX_ROWS = 1 << 23
MAX_TEXTS = 1 << 28  # bytes in memory of all texts that differ
PART = 1 << 16  # numbers that are Python objects at once
PIECE = 1 << 16  # rows
WIDE = 1 << 24  # characters, with which a piece ends before it has so many rows: 4 bytes each at most
ENTRY = 100  # bytes that a text takes beside itself where it is looked up
LARGEST = float(np.finfo(np.float32).max)
LONGEST = 1000  # characters of a number
MAX_LINE = 1 << 20  # characters
ENDINGS = (".csv", ".parquet")

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Table:
    """Named columns of one length, each a numpy array of numbers or a list of texts; None and NaN are cells without a
    value.

    In place of a column of another type stands that type's name. The file calls each row "line" 2, 3, ... or "row" 0,
    1, ... Of a column of numbers, `wrong` has the first cell that is none."""

    path: Path
    columns: dict[str, Any]
    rows: tuple[str, Sequence[int]]
    wrong: Mapping[str, tuple[int, str]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.rows[1])

    def at(self, number: int) -> str:
        """What a row is called, counted from 0 here."""
        return f"{self.path}: {self.rows[0]} {self.rows[1][number]}"

    def numbers(self, name: str) -> Floats:
        """A column of finite numbers."""
        column = self._column(name)
        if isinstance(column, np.ndarray):
            values = column.astype(np.float64, copy=False)
        else:
            values = np.array([_number(text) for text in column], dtype=np.float64)
        wrong = np.flatnonzero(~(np.abs(values) <= LARGEST))
        if len(wrong):
            row, shown = self.wrong.get(name, (int(wrong[0]), str(column[wrong[0]])))
            raise DataError(f"{self.at(row)}: {name} is {shown[:40]!r}, not a finite number")
        return values

    def texts(self, name: str) -> list[str]:
        """A column as texts, "" where there is no value; a whole number has no point, whatever its type."""
        column = self._column(name)
        if not isinstance(column, np.ndarray):
            return ["" if text is None else text.strip() for text in column]
        shared = Texts(self.path).shared
        parts = np.array_split(column, 1 + len(column) // PART)
        return [shared(_text(value)) for part in parts for value in part.tolist()]

    def _column(self, name: str) -> Any:
        column = self.columns[name]
        if isinstance(column, str):
            raise DataError(f"{self.path}: the column {name!r} holds {column}, not numbers or texts")
        return column


def find_table(place: Path, name: str) -> Path | None:
    """name.csv or name.parquet of a folder, or None; which of two is meant would be a guess, so that is refused."""
    files = [place / f"{name}{ending}" for ending in ENDINGS if (place / f"{name}{ending}").is_file()]
    if len(files) > 1:
        raise DataError(f"{place}: it has {files[0].name} and {files[1].name}: leave one of them")
    return files[0] if files else None


def read_table(path: Path, needed: Sequence[str], texts: Collection[str] = ()) -> Table:
    """A file's columns by name; in a CSV file, those of `texts` hold texts and the others numbers.

    Errors      DataError: a file that is missing, malformed or too long, a column of `needed` that it lacks, or two of
                one name. EdgewiseError: Parquet without pyarrow
    """
    content = read_bytes(path, MAX_BYTES)
    return (
        _read_parquet(path, content, needed) if path.suffix == ".parquet" else _read_csv(path, content, needed, texts)
    )


def pieces(path: Path, needed: Sequence[str], texts: Collection[str] = (), rows: int = PIECE) -> Iterator[Table]:
    """The rows of a file of any length, at most so many at a time; columns and errors are those of `read_table`.

    Errors      DataError, too, for a group of rows of a Parquet file that unpacks to more than `check_pages` allows
    Cost        memory of one piece and, of a Parquet file, of one group of rows
    """
    try:
        with path.open("rb") as file:
            parts = (
                _pieces_of_parquet(path, file, needed, rows)
                if path.suffix == ".parquet"
                else _pieces_of_csv(path, file, needed, texts, rows)
            )
            yield from parts
    except OSError as error:
        raise DataError(f"{path}: cannot be read ({error.strerror or error})") from error


def _check_names(path: Path, names: Sequence[str], needed: Sequence[str]) -> None:
    if not set(needed) <= set(names) or len(set(names)) < len(names):
        raise DataError(f"{path}: its columns are {', '.join(names)}; expected {', '.join(needed)}, each once")


def _text(value: float) -> str:
    if value != value:
        return ""
    return str(int(value) if isinstance(value, float) and value.is_integer() else value)


def _number(text: str | None) -> float:
    try:
        return float(text) if text and len(text) <= LONGEST else float("nan")
    except ValueError:
        return float("nan")


def lines_of(path: Path, content: bytes | IO[bytes]) -> Iterator[str]:
    """The lines of a UTF-8 text, each with its end; one that has none for `MAX_LINE` characters is a DataError."""
    file = io.TextIOWrapper(io.BytesIO(content) if isinstance(content, bytes) else content, "utf-8-sig", newline="")
    try:
        while line := file.readline(MAX_LINE + 1):
            if len(line) > MAX_LINE:
                raise DataError(f"{path}: a line is longer than {MAX_LINE:,} characters")
            yield line
    finally:
        with suppress(ValueError):  # it is closed already
            file.detach()  # whoever opened the file closes it


def _read_csv(path: Path, content: bytes, needed: Sequence[str], texts: Collection[str]) -> Table:
    parts, rows = list[Table](), 0
    for part in _pieces_of_csv(path, content, needed, texts, PIECE):
        parts.append(part)
        rows += len(part)
        _check_size(path, rows, len(part.columns))
    columns: dict[str, Any] = {}
    for name, first in parts[0].columns.items():
        of_parts = [part.columns[name] for part in parts]
        columns[name] = list(chain(*of_parts)) if isinstance(first, list) else np.concatenate(of_parts)
    lines, wrong = array("q"), dict[str, tuple[int, str]]()
    for part in parts:
        for name, (row, cell) in part.wrong.items():
            wrong.setdefault(name, (len(lines) + row, cell))
        lines.extend(part.rows[1])
    return Table(path, columns, ("line", lines), wrong)


def _pieces_of_csv(
    path: Path, content: bytes | IO[bytes], needed: Sequence[str], texts: Collection[str], rows: int
) -> Iterator[Table]:
    """At least one table, if only of no rows."""
    with reading(path, "a CSV file"):
        read = [0]  # characters of the piece
        reader = csv.reader(_counted(lines_of(path, content), read), strict=True)
        names = next(reader, [])
        _check_names(path, names, needed)
        seen, more, first = Texts(path), True, True
        while more:
            # All cells in one list: Python's garbage collector would visit each row that is a list, again and again.
            cells, lines, more, read[0] = list[str](), array("q"), False, 0
            for row in islice(reader, rows):
                more = True
                if not row:  # a line with nothing in it is none
                    continue
                if len(row) != len(names):
                    raise DataError(f"{path}: line {reader.line_num} does not have {len(names)} columns")
                cells.extend(row)
                lines.append(reader.line_num)
                if read[0] > WIDE:
                    break
            if lines or first:
                columns, wrong = dict[str, Any](), dict[str, tuple[int, str]]()
                for number, name in enumerate(names):
                    column = cells[number :: len(names)]
                    if name in texts:
                        columns[name] = list(map(seen.shared, column))
                        continue
                    columns[name] = values = numbers_of(column)
                    row_of = np.flatnonzero(~(np.abs(values) <= LARGEST))
                    if len(row_of):
                        wrong[name] = int(row_of[0]), column[row_of[0]]
                yield Table(path, columns, ("line", lines), wrong)
            first = False


def _counted(lines: Iterable[str], read: list[int]) -> Iterator[str]:
    for line in lines:
        read[0] += len(line)
        yield line


def numbers_of(cells: Sequence[str]) -> Floats:
    """The numbers of a column of texts, NaN for what is none."""
    try:
        if max(map(len, cells), default=0) <= LONGEST:
            return np.fromiter(map(float, cells), np.float64, len(cells))
    except ValueError:
        pass
    return np.fromiter(map(_number, cells), np.float64, len(cells))


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


def _check_size(path: Path, rows: int, columns: int) -> None:
    if rows * columns > MAX_CELLS or rows > MAX_ROWS:
        raise DataError(f"{path}: {rows:,} rows of {columns} columns are more than such a file may have")


def _read_parquet(path: Path, content: bytes, needed: Sequence[str]) -> Table:
    with reading(path, "a Parquet file"):
        check_pages(path, content)
        kinds, flat, texts, claimed = _checked_parquet(path, content, needed)
        _check_size(path, claimed.num_rows, claimed.num_columns)
        table = _parquet(path).ParquetFile(_buffer(content), read_dictionary=texts).read(flat)
        if table.num_rows != claimed.num_rows:
            raise DataError(f"{path}: damaged; its footer promises {claimed.num_rows} rows, {table.num_rows} follow")
        columns = kinds | {name: _values(table[name]) for name in flat}
    return Table(path, columns, ("row", range(claimed.num_rows)))


def _pieces_of_parquet(path: Path, file: IO[bytes], needed: Sequence[str], rows: int) -> Iterator[Table]:
    with reading(path, "a Parquet file"), mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        check_pages(path, content, by_group=True)
        kinds, flat, texts, _ = _checked_parquet(path, path, needed)
        start = 0
        for batch in _parquet(path).ParquetFile(path, read_dictionary=texts).iter_batches(rows, columns=flat):
            columns = kinds | {name: _values(_chunked(batch[name])) for name in flat}
            yield Table(path, columns, ("row", range(start, start + batch.num_rows)))
            start += batch.num_rows


def _checked_parquet(
    path: Path, content: Any, needed: Sequence[str]
) -> tuple[dict[str, Any], list[str], list[str], Any]:
    """Of a file whose pages were checked: its columns' types, those that are no lists, those that are texts, and what
    it claims to hold."""
    file = _parquet(path).ParquetFile(_buffer(content))
    _check_names(path, list(file.schema_arrow.names), needed)
    types = {column.name: column.type for column in file.schema_arrow}
    # A text that many rows share is in memory once, as in the file; and no list is read.
    texts = [name for name, kind in types.items() if _is_text(kind)]
    flat = [name for name, kind in types.items() if kind.num_fields == 0]
    return {name: str(kind) for name, kind in types.items()}, flat, texts, file.metadata


def _parquet(path: Path) -> Any:
    try:
        import pyarrow.parquet
    except ImportError as error:
        raise EdgewiseError(f"{path}: Parquet is read by pyarrow: {installing('parquet')}") from error
    return pyarrow.parquet


def _buffer(content: Any) -> Any:
    import pyarrow

    return pyarrow.BufferReader(content) if isinstance(content, bytes) else content


def _chunked(column: Any) -> Any:
    import pyarrow

    return pyarrow.chunked_array([column])


def _values(column: Any) -> Any:
    """A column of Parquet as numpy numbers, as a list of texts, or else its type's name."""
    import pyarrow.types as types

    kind = column.type
    if types.is_dictionary(kind) and _is_text(kind.value_type):
        return [text for chunk in column.chunks for text in _shared(chunk)]
    if types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = kind.value_type
    if types.is_integer(kind) or types.is_floating(kind):
        return column.to_numpy()
    if types.is_decimal(kind):
        return column.cast("float64").to_numpy()
    if types.is_boolean(kind):
        return column.cast("int8").to_numpy()
    return column.to_pylist() if _is_text(kind) else str(kind)


def _is_text(kind: Any) -> bool:
    import pyarrow.types as types

    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _shared(chunk: Any) -> list[str | None]:
    """The texts of a chunk, those that are equal one object."""
    texts = np.array([*chunk.dictionary.to_pylist(), None], dtype=object)
    return texts[chunk.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)].tolist()
