"""A table of named columns from a CSV or a Parquet file; what is wrong with it is named by line or row."""

import csv
import io
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.errors import DataError, EdgewiseError, installing
from edgewise.tasks.core.source import read_bytes

MAX_BYTES = 1 << 30
MAX_CELLS = 1 << 29  # a Parquet file of a few bytes can claim any number of rows
ENDINGS = (".csv", ".parquet")

Floats = np.ndarray[Any, np.dtype[np.float64]]


@dataclass(frozen=True)
class Table:
    """Named columns of one length, each a numpy array of numbers or a list of texts; None and NaN are cells without a
    value.

    In place of a column of another type stands that type's name. The file calls each row "line" 2, 3, ... or "row" 0,
    1, ..."""

    path: Path
    columns: dict[str, Any]
    rows: tuple[str, Sequence[int]]

    def __len__(self) -> int:
        return len(self.rows[1])

    def at(self, number: int) -> str:
        """What a row is called, counted from 0 here."""
        return f"{self.path}: {self.rows[0]} {self.rows[1][number]}"

    def numbers(self, name: str) -> Floats:
        """A column of finite numbers."""
        column = self._column(name)
        if isinstance(column, np.ndarray):
            values = column.astype(np.float64)
        else:
            values = np.array([_number(text) for text in column], dtype=np.float64)
        wrong = np.flatnonzero(~(np.abs(values) <= np.finfo(np.float32).max))
        if len(wrong):
            shown = str(column[wrong[0]])[:40]
            raise DataError(f"{self.at(int(wrong[0]))}: {name} is {shown!r}, not a finite number")
        return values

    def texts(self, name: str) -> list[str]:
        """A column as texts, "" where there is no value; a whole number has no point, whatever its type."""
        column = self._column(name)
        if not isinstance(column, np.ndarray):
            return ["" if text is None else text.strip() for text in column]
        if column.dtype.kind != "f":
            return [str(value) for value in column.tolist()]
        return ["" if value != value else str(int(value) if value.is_integer() else value) for value in column.tolist()]

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


def read_table(path: Path, needed: Sequence[str]) -> Table:
    """A file's columns by name.

    Errors      DataError: a file that is missing, malformed or too long, a column of `needed` that it lacks, or two of
                one name. EdgewiseError: Parquet without pyarrow
    """
    content = read_bytes(path, MAX_BYTES)
    names, table = (_read_parquet if path.suffix == ".parquet" else _read_csv)(path, content)
    if not set(needed) <= set(names) or len(set(names)) < len(names):
        raise DataError(f"{path}: its columns are {', '.join(names)}; expected {', '.join(needed)}, each once")
    return table


def _number(text: str | None) -> float:
    try:
        return float(text or "nan")
    except ValueError:
        return float("nan")


def _read_csv(path: Path, content: bytes) -> tuple[list[str], Table]:
    try:
        reader = csv.reader(io.StringIO(content.decode("utf-8-sig"), newline=""), strict=True)
        names = next(reader, [])
        rows = [(reader.line_num, row) for row in reader if row]  # a line with nothing in it is none
    except (ValueError, csv.Error) as error:
        raise DataError(f"{path}: not a CSV file ({error})") from error
    for line, row in rows:
        if len(row) != len(names):
            raise DataError(f"{path}: line {line} does not have {len(names)} columns")
    columns = {name: [row[place] for _, row in rows] for place, name in enumerate(names)}
    return names, Table(path, columns, ("line", [line for line, _ in rows]))


def _read_parquet(path: Path, content: bytes) -> tuple[list[str], Table]:
    try:
        import pyarrow as pa
        import pyarrow.parquet as pq
    except ImportError as error:
        raise EdgewiseError(f"{path}: Parquet is read by pyarrow: {installing('parquet')}") from error
    try:
        file = pq.ParquetFile(pa.BufferReader(content))
        claimed, names = file.metadata, list(file.schema_arrow.names)
        size = sum(claimed.row_group(group).total_byte_size for group in range(claimed.num_row_groups))
        if size > MAX_BYTES or claimed.num_rows * len(names) > MAX_CELLS:
            raise DataError(
                f"{path}: {claimed.num_rows:,} rows of {len(names)} columns are more than such a file may have"
            )
        table = file.read()
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, EdgewiseError):
            raise
        raise DataError(f"{path}: not a Parquet file ({str(error)[:200]})") from error
    columns = {name: _values(column) for name, column in zip(names, table.columns, strict=True)}
    return names, Table(path, columns, ("row", range(table.num_rows)))


def _values(column: Any) -> Any:
    """A column of Parquet as numpy numbers, as a list of texts, or else its type's name."""
    import pyarrow.types as types

    kind = column.type
    if types.is_dictionary(kind):
        column = column.cast(kind.value_type)
        kind = kind.value_type
    if types.is_integer(kind) or types.is_floating(kind):
        return column.to_numpy()
    if types.is_decimal(kind):
        return column.cast("float64").to_numpy()
    if types.is_boolean(kind):
        return column.cast("int8").to_numpy()
    if types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind):
        return column.to_pylist()
    return str(kind)
