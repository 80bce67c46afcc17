"""Parquet files as tables, by pyarrow; the index that pandas writes beside them has no name, as in a CSV file."""

import mmap
import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from pathlib import Path
from typing import IO, Any

import numpy as np

from edgewise.data.pages import check_pages
from edgewise.data.table import EXACT, Table, check_names, check_size
from edgewise.errors import DataError, EdgewiseError, installing
from edgewise.files import reading

DIGITS = 15  # of a decimal number: float64 keeps apart any two
INDEX = re.compile(r"__index_level_\d+__")  # what pandas calls an index without a name


def read_parquet(path: Path, content: bytes, needed: Sequence[str]) -> Table:
    """The whole table."""
    with reading(path, "a Parquet file"):
        check_pages(path, content)
        kinds, flat, texts, claimed = _checked_parquet(path, content, needed)
        check_size(path, claimed.num_rows, claimed.num_columns)
        table = _parquet(path).ParquetFile(_buffer(content), read_dictionary=texts).read(flat)
        if table.num_rows != claimed.num_rows:
            raise DataError(f"{path}: damaged; its footer promises {claimed.num_rows} rows, {table.num_rows} follow")
        columns = kinds | {name: _values(table[name]) for name in flat}
    return Table(path, columns, ("row", range(claimed.num_rows)))


def pieces_of_parquet(path: Path, file: IO[bytes], needed: Sequence[str], rows: int) -> Iterator[Table]:
    """Some rows at a time."""
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
    check_names(path, _names(file), needed)
    types = {column.name: column.type for column in file.schema_arrow if not INDEX.fullmatch(column.name)}
    # A text that many rows share is in memory once, as in the file; and no list is read.
    texts = [name for name, kind in types.items() if _is_text(kind)]
    flat = [name for name, kind in types.items() if kind.num_fields == 0]
    return {name: str(kind) for name, kind in types.items()}, flat, texts, file.metadata


def names_of_parquet(path: Path, content: bytes) -> list[str]:
    """The names of the columns."""
    with reading(path, "a Parquet file"):
        check_pages(path, content)
        return _names(_parquet(path).ParquetFile(_buffer(content)))


def names_in_parquet(path: Path, file: IO[bytes]) -> list[str]:
    """The same of a file of any length."""
    with reading(path, "a Parquet file"), mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        check_pages(path, content, by_group=True)
        return _names(_parquet(path).ParquetFile(path))


def _names(file: Any) -> list[str]:
    return ["" if INDEX.fullmatch(name) else name for name in file.schema_arrow.names]


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
    if types.is_integer(kind) and column.null_count:
        return _whole(column)
    if types.is_integer(kind) or types.is_floating(kind):
        return column.to_numpy()
    if types.is_decimal(kind):
        return _decimals(column, kind.scale)
    if types.is_boolean(kind):
        return column.cast("int8").to_numpy()
    if types.is_date(kind) or types.is_timestamp(kind):
        return column.cast("string").to_pylist()
    return column.to_pylist() if _is_text(kind) else str(kind)


def _whole(column: Any) -> Any:
    """Whole numbers and gaps as float64, or as texts where that does not hold each of them."""
    import pyarrow.compute as compute

    ends = compute.min_max(column).as_py().values()
    return column.to_numpy() if all(abs(end or 0) <= EXACT for end in ends) else column.cast("string").to_pylist()


def _decimals(column: Any, scale: int) -> Any:
    """Decimal numbers as float64, or as texts where one has more digits than that keeps apart."""
    import pyarrow.compute as compute

    texts = column.cast("string")
    digits = compute.replace_substring_regex(compute.utf8_rtrim(texts, "0") if scale else texts, "[-.]|E.*", "")
    if (compute.max(compute.utf8_length(compute.utf8_ltrim(digits, "0"))).as_py() or 0) <= DIGITS:
        return texts.cast("float64").to_numpy()  # that of the decimals themselves is not the nearest number
    return [text and _plain(text) for text in texts.to_pylist()]


def _plain(text: str) -> str:
    """A decimal number without an exponent, and without zeros at its end."""
    plain = f"{Decimal(text):f}"
    return plain.rstrip("0").rstrip(".") if "." in plain else plain


def _is_text(kind: Any) -> bool:
    import pyarrow.types as types

    return types.is_string(kind) or types.is_large_string(kind) or types.is_string_view(kind)


def _shared(chunk: Any) -> list[str | None]:
    """The texts of a chunk, those that are equal one object."""
    texts = np.array([*chunk.dictionary.to_pylist(), None], dtype=object)
    return texts[chunk.indices.fill_null(len(texts) - 1).to_numpy(zero_copy_only=False)].tolist()
