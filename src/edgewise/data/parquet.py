"""Parquet files, decoded by polars: their pages are measured before; pandas' index has no name, as in a CSV file."""

import io
import mmap
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from edgewise.data.pages import check_pages
from edgewise.errors import DataError
from edgewise.files import reading
from edgewise.memory import check_fits

INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name
ARROW = b"ARROW:schema"  # the key of the types that a file's writer had in memory
MAX_TEXTS = 1 << 30  # bytes of a column's texts, equal ones counted each time
ZEROS = r"(\.\d*?)0+$"  # at the end of a decimal number

Check = Callable[[Path, Sequence[str], int], None]
Part = tuple[list[str], dict[str, Any], tuple[str, range], None, tuple[str, ...], dict[str, str]]  # of a `Table`


def read_parquet(path: Path, content: bytes, check: Check) -> Part:
    """The whole table.

    Symbols     check(path, names, rows) = refuses what a table must not have
    """
    import polars

    with reading(path, "a Parquet file"):
        rows = check_pages(path, content)
        schema = _schema(path, io.BytesIO(content))
        if _categories(schema):
            content = _as_texts(content)
            schema = _schema(path, io.BytesIO(content))
        check(path, _names(schema), rows)
        table = polars.read_parquet(io.BytesIO(content), columns=_flat(schema))
        if len(table) != rows and table.width:
            raise DataError(f"{path}: damaged; its footer promises {rows} rows, {len(table)} follow")
        return _part(path, schema, table, range(rows))


def pieces_of_parquet(path: Path, file: IO[bytes], rows: int, check: Check) -> Iterator[Part]:
    """Some rows at a time."""
    import polars

    with reading(path, "a Parquet file"):
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            check_pages(path, content, by_group=True)
        source: Any = path
        schema = _schema(path, path)
        if _categories(schema):
            check_fits(path.stat().st_size, str(path), error=DataError)
            source = io.BytesIO(_as_texts(path.read_bytes()))
            schema = _schema(path, source)
        check(path, _names(schema), 0)
        start, lazy = 0, polars.scan_parquet(source).select(_flat(schema))
        for table in lazy.collect_batches(chunk_size=rows, maintain_order=True):
            yield _part(path, schema, table, range(start, start + len(table)))
            start += len(table)


def names_of_parquet(path: Path, file: IO[bytes]) -> list[str]:
    """The names of the columns of a file of any length."""
    with reading(path, "a Parquet file"):
        with mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
            check_pages(path, content, by_group=True)
        return _names(_schema(path, path))


def _schema(path: Path, source: Any) -> dict[str, Any]:
    import polars

    try:
        return dict(polars.read_parquet_schema(source))
    except polars.exceptions.DuplicateError as error:
        raise DataError(f"{path}: each column must have its own name ({error})") from error


def _categories(schema: dict[str, Any]) -> bool:
    import polars

    return any(kind in (polars.Categorical, polars.Enum) for kind in schema.values())


def _as_texts(content: bytes) -> bytes:
    """A file whose categories are read as texts, which share their dictionary: categories are hashed row by row, and a
    file of kilobytes may have a million rows of one text of a megabyte."""
    footer = len(content) - 8 - int.from_bytes(content[-8:-4], "little")
    return content[:footer] + content[footer:].replace(ARROW, b"-" * len(ARROW))


def _names(schema: dict[str, Any]) -> list[str]:
    return ["" if INDEX.fullmatch(name) else name for name in schema]


def _flat(schema: dict[str, Any]) -> list[str]:
    """The columns that hold numbers or texts, or what is written as a text: dates, decimal numbers, categories."""
    import polars

    none = polars.Binary, polars.Time, polars.Duration, polars.Object
    return [n for n, t in schema.items() if not (INDEX.fullmatch(n) or t.is_nested() or t in none)]


def _part(path: Path, schema: dict[str, Any], table: Any, rows: range) -> Part:
    import polars

    columns = {name: _plain(table[name]) for name in table.columns}
    for name, column in columns.items():
        if column.dtype == polars.String and column.str.len_bytes().cast(int).sum() > MAX_TEXTS:
            raise DataError(f"{path}: the texts of the column {name!r} have more than {MAX_TEXTS:,} bytes")
    others = {name: str(kind) for name, kind in schema.items() if name not in columns and not INDEX.fullmatch(name)}
    return _names(schema), columns, ("row", rows), None, (), others


def _plain(column: Any) -> Any:
    """A series of texts, whole or floating numbers."""
    import polars

    kind = column.dtype
    if kind == polars.Boolean:
        return column.cast(polars.Int8)
    if kind.is_decimal():
        return column.cast(polars.String).str.replace(ZEROS, "$1").str.strip_suffix(".")
    return column if kind.is_float() or kind.is_integer() else column.cast(polars.String)
