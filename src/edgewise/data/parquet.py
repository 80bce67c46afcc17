"""Parquet files, decoded by polars: their pages are measured before; pandas' index has no name, as in a CSV file."""

import io
import mmap
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any

from edgewise.errors import DataError
from edgewise.files import reading
from edgewise.memory import check_fits

MAX_UNPACKED = 1 << 28  # bytes of all pages
MAX_VALUES = 1 << 25  # of all pages: equal ones take no space in the file, and 8 bytes each in memory
MAX_FOOTER = 1 << 22
MAX_DEPTH = 20
DELTA_BYTE_ARRAY = 7  # each text as what it shares with the one before: a few bytes can be a megabyte, over and over
# Fields: of a file, a group of rows, a column, what is known of it; of a page's header, and of the two kinds in it
ROWS, GROUPS, COLUMNS, ABOUT = 3, 4, 1, 3
COMPRESSED, FIRST, DICTIONARY = 7, 9, 11
UNPACKED, PACKED, DATA, DATA_V2 = 2, 3, 5, 8
VALUES, ENCODING, ENCODING_V2 = 1, 2, 4
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 7, 8, 9, 10, 12

Fields = dict[int, Any]
Bytes = bytes | mmap.mmap


def check_pages(path: Path, content: Bytes, by_group: bool = False) -> int:
    """How many rows a file has; one is refused whose pages unpack to more than `MAX_UNPACKED`, claim more than
    `MAX_VALUES`, or are encoded so that texts grow without bound.

    Symbols     by_group = one group of rows is read after the other, so that the bound is that of a group
    Errors      DataError; for what is no Parquet file KeyError, ValueError or IndexError
    Reference   Apache Parquet, parquet.thrift: FileMetaData and PageHeader, in Thrift's compact protocol
    """
    length = int.from_bytes(content[-8:-4], "little")
    if content[-4:] != b"PAR1" or not 0 < length <= min(MAX_FOOTER, len(content) - 8):
        raise ValueError("no footer")
    footer, _ = _struct(content, len(content) - 8 - length, 0)
    unpacked = values = last = 0
    for number, about in ((n, column[ABOUT]) for n, group in enumerate(footer[GROUPS]) for column in group[COLUMNS]):
        if by_group and number != last:
            last, unpacked, values = number, 0, 0
        place = min(start for start in (about[FIRST], about.get(DICTIONARY)) if start)
        end = place + about[COMPRESSED]
        while 0 <= place < end:
            header, place = _struct(content, place, 0)
            place += header[PACKED]
            unpacked += header[UNPACKED]
            encodings = header.get(DATA, {}).get(ENCODING), header.get(DATA_V2, {}).get(ENCODING_V2)
            values += max(header.get(kind, {}).get(VALUES, 0) for kind in (DATA, DATA_V2))
            if header[PACKED] < 0 or header[UNPACKED] < 0:
                raise ValueError("a page of a negative size")
            if DELTA_BYTE_ARRAY in encodings:
                raise DataError(f"{path}: its size is not known beforehand: write it without DELTA_BYTE_ARRAY")
            if unpacked > MAX_UNPACKED:
                what = f"its group {number} of rows" if by_group else "it"
                raise DataError(f"{path}: {what} unpacks to more than the {MAX_UNPACKED:,} bytes that it may have")
            if values > MAX_VALUES:
                raise DataError(f"{path}: its pages hold more than the {MAX_VALUES:,} values that they may have")
    return int(footer[ROWS])


def _struct(content: Bytes, place: int, depth: int) -> tuple[Fields, int]:
    """The numbers, structs and lists of a struct, by field; and where it ends."""
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} structs in one another")
    fields: Fields = {}
    number = 0
    while head := content[place]:
        place, kind = place + 1, head & 15
        if head >> 4:
            number += head >> 4
        else:
            number, place = _integer(content, place)
        fields[number], place = _value(content, place, kind, depth)
    return fields, place + 1


def _value(content: Bytes, place: int, kind: int, depth: int) -> tuple[Any, int]:
    if kind in (TRUE, FALSE):
        return kind == TRUE, place
    if kind == BYTE:
        return content[place], place + 1
    if kind < DOUBLE:
        return _integer(content, place)
    if kind == DOUBLE:
        return None, place + 8
    if kind == BINARY:
        length, place = _varint(content, place)
        return None, place + length
    if kind == STRUCT:
        return _struct(content, place, depth + 1)
    if kind not in (LIST, SET) or depth > MAX_DEPTH:
        raise ValueError(f"a field of type {kind}")
    head, place, values = content[place], place + 1, []
    length, place = _varint(content, place) if head >> 4 == 15 else (head >> 4, place)
    for _ in range(length):
        if head & 15 in (TRUE, FALSE):
            value, place = content[place] == TRUE, place + 1
        else:
            value, place = _value(content, place, head & 15, depth + 1)
        if place > len(content):
            raise IndexError("a list beyond the end")
        values.append(value)
    return values, place


def _varint(content: Bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while content[place] & 128:
        value |= (content[place] & 127) << shift
        place, shift = place + 1, shift + 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
    return value | content[place] << shift, place + 1


def _integer(content: Bytes, place: int) -> tuple[int, int]:
    value, place = _varint(content, place)
    return (value >> 1) ^ -(value & 1), place


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
