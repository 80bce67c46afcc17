"""The headers of a Parquet file's pages: how much they unpack to, before the parser allocates it."""

from pathlib import Path
from typing import Any

from edgewise.errors import DataError

MAX_UNPACKED = 1 << 28  # bytes of all pages
DELTA_BYTE_ARRAY = 7  # each text as what it shares with the one before: a few bytes can be a megabyte, over and over
# Fields of a page's header, and of the two kinds of header of data inside it
UNPACKED, PACKED, DATA, DATA_V2 = 2, 3, 5, 8
ENCODING, ENCODING_V2 = 2, 4
TRUE, FALSE, BYTE, DOUBLE, BINARY, LIST, SET, STRUCT = 1, 2, 3, 7, 8, 9, 10, 12

Fields = dict[int, Any]


def check_pages(path: Path, content: bytes, metadata: Any) -> None:
    """Refuse a file whose pages unpack to more than `MAX_UNPACKED`, or are encoded so that texts grow without bound.

    Symbols     metadata = pyarrow's, which says where each column begins and how long it is
    Errors      DataError; ValueError or IndexError for what is no header
    Reference   Apache Parquet, parquet.thrift: PageHeader, in Thrift's compact protocol
    """
    unpacked = 0
    for group in range(metadata.num_row_groups):
        for number in range(metadata.num_columns):
            column = metadata.row_group(group).column(number)
            starts = column.data_page_offset, column.dictionary_page_offset
            place = min(start for start in starts if start) if any(starts) else 0
            end = place + column.total_compressed_size
            while place < end:
                header, place = _struct(content, place)
                place += header[PACKED]
                unpacked += header[UNPACKED]
                encodings = header.get(DATA, {}).get(ENCODING), header.get(DATA_V2, {}).get(ENCODING_V2)
                if header[PACKED] < 0 or header[UNPACKED] < 0 or DELTA_BYTE_ARRAY in encodings:
                    raise DataError(f"{path}: its size is not known beforehand: write it without DELTA_BYTE_ARRAY")
                if unpacked > MAX_UNPACKED:
                    raise DataError(f"{path}: unpacks to more than the {MAX_UNPACKED:,} bytes that it may have")


def _struct(content: bytes, place: int) -> tuple[Fields, int]:
    """The whole numbers and structs of a struct, by field; and where it ends."""
    fields: Fields = {}
    number = 0
    while head := content[place]:
        place, kind = place + 1, head & 15
        if head >> 4:
            number += head >> 4
        else:
            number, place = _integer(content, place)
        fields[number], place = _value(content, place, kind)
    return fields, place + 1


def _value(content: bytes, place: int, kind: int) -> tuple[Any, int]:
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
        return _struct(content, place)
    if kind not in (LIST, SET):
        raise ValueError(f"a page's header with a field of type {kind}")
    head, place = content[place], place + 1
    length, place = _varint(content, place) if head >> 4 == 15 else (head >> 4, place)
    for _ in range(length):
        _, place = _value(content, place + ((head & 15) in (TRUE, FALSE)), head & 15)
    return None, place


def _varint(content: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while content[place] & 128:
        value |= (content[place] & 127) << shift
        place, shift = place + 1, shift + 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")
    return value | content[place] << shift, place + 1


def _integer(content: bytes, place: int) -> tuple[int, int]:
    value, place = _varint(content, place)
    return (value >> 1) ^ -(value & 1), place
