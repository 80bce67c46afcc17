"""The headers of a Parquet file's pages: how much they unpack to, before the parser allocates it."""

import mmap
from pathlib import Path
from typing import Any

from edgewise.errors import DataError

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
