"""MATLAB files of version 5, as far as data sets need them; each length is checked against the bytes that are there."""

import struct
import zlib
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

MAX_UNPACKED = 1 << 26  # bytes of all elements
MAX_DEPTH = 20  # cells in cells
MAX_CELLS = 1 << 20  # of all cells, fields and rows of texts, each of which is an object
COMPRESSED, MATRIX = 15, 14
NUMBERS = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
TEXTS = {1: "latin-1", 2: "latin-1", 4: "utf-16-{}", 16: "utf-8", 17: "utf-16-{}", 18: "utf-32-{}"}
CELL, STRUCT, OBJECT, CHAR, NUMERIC = 1, 2, 3, 4, range(6, 16)


def read_matlab(content: bytes) -> dict[str, Any]:
    """The variables of a file: numbers as arrays, texts as a list of rows, cells as a list, a struct as a dictionary of
    lists with one entry for each of its elements; None for what is none of these.

    Errors      ValueError, struct.error or zlib.error for what is no such file, unpacks to more than `MAX_UNPACKED` or
                has more than `MAX_CELLS` cells
    Cost        memory for the unpacked file and its arrays
    Reference   MathWorks, "MAT-File Format", 2019

    Example
        >>> from io import BytesIO
        >>> from scipy.io import savemat
        >>> file = BytesIO()
        >>> savemat(file, {"x": {"size": [[1, 2]], "name": "ab"}})
        >>> read_matlab(file.getvalue())["x"]["size"], read_matlab(file.getvalue())["x"]["name"]
        ([array([[1, 2]])], [['ab']])
    """
    if len(content) < 128 or content[126:128] not in (b"IM", b"MI"):
        raise ValueError("no header of version 5")
    order = "<" if content[126:128] == b"IM" else ">"
    outer, variables, unpacked = _Bytes(memoryview(content)[128:], order, _Cells()), {}, 0
    while not outer.ended:
        kind, data = outer.element(aligned=False)
        if kind == COMPRESSED:
            data = memoryview(zlib.decompressobj().decompress(data, MAX_UNPACKED - unpacked + 1))
            unpacked += len(data)
            if unpacked > MAX_UNPACKED:
                raise ValueError(f"it unpacks to more than {MAX_UNPACKED:,} bytes")
            kind, data = _Bytes(data, order, outer.cells).element()
        if kind == MATRIX:
            name, value = _matrix(_Bytes(data, order, outer.cells), 0)
            variables[name] = value
    return variables


@dataclass
class _Cells:
    """How many more there may be."""

    left: int = MAX_CELLS

    def take(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise ValueError(f"more than {MAX_CELLS:,} cells, fields or rows of texts")


@dataclass
class _Bytes:
    """Elements, one after the other."""

    content: memoryview
    order: str
    cells: _Cells
    place: int = 0

    @property
    def ended(self) -> bool:
        return self.place >= len(self.content)

    def element(self, aligned: bool = True) -> tuple[int, memoryview]:
        """The type and the bytes of the next element; a short one has both in its first 8 bytes."""
        (first,) = struct.unpack_from(f"{self.order}I", self.content, self.place)
        if first >> 16:
            kind, size, begin, end = first & 0xFFFF, first >> 16, self.place + 4, self.place + 8
        else:
            kind, size = struct.unpack_from(f"{self.order}II", self.content, self.place)
            begin = self.place + 8
            end = begin + size + (-size % 8 if aligned else 0)
        if begin + size > min(len(self.content), end):
            raise ValueError(f"an element of {size:,} bytes, of which {len(self.content) - begin:,} are there")
        self.place = end
        return kind, self.content[begin : begin + size]

    def numbers(self) -> Any:
        """The next element as numbers."""
        kind, data = self.element()
        if kind not in NUMBERS:
            raise ValueError(f"an element of type {kind} instead of numbers")
        return np.frombuffer(data, self.order + NUMBERS[kind])


def _matrix(part: _Bytes, depth: int) -> tuple[str, Any]:
    """The name and the value of a matrix."""
    if depth > MAX_DEPTH:
        raise ValueError(f"more than {MAX_DEPTH} cells in one another")
    if part.ended:
        return "", None
    kind = int(part.numbers()[0]) & 255
    shape = [int(size) for size in part.numbers()]
    if len(shape) < 2 or min(shape) < 0 or (count := prod(shape)) > len(part.content):
        raise ValueError(f"a matrix of shape {shape}")
    name = str(part.element()[1], "latin-1")
    if kind in (STRUCT, OBJECT):
        if kind == OBJECT:
            part.element()  # the name of the class
        length, joined = int(part.numbers()[0]), part.element()[1]
        if length < 1:
            raise ValueError("fields without names")
        part.cells.take(len(joined) // length + count)
        starts = range(0, len(joined), length)
        fields = [bytes(joined[at : at + length]).split(b"\0")[0].decode("latin-1") for at in starts]
        made: dict[str, list[Any]] = {field: [] for field in fields}
        for _ in range(count):
            for field in fields:
                made[field].append(_cell(part, depth))
        return name, made
    if kind == CELL:
        return name, [_cell(part, depth) for _ in range(count)]
    if kind == CHAR:
        form, data = part.element()
        part.cells.take(shape[0])
        letters = str(data, TEXTS[form].format("le" if part.order == "<" else "be"))
        if len(letters) != count:
            raise ValueError(f"a text of {len(letters)} characters in a matrix of shape {shape}")
        return name, [letters[row :: shape[0]] for row in range(shape[0])]
    if kind in NUMERIC:
        numbers = part.numbers().reshape(shape, order="F")
        return name, numbers.astype(numbers.dtype.newbyteorder("="))
    return name, None


def _cell(part: _Bytes, depth: int) -> Any:
    kind, data = part.element()
    part.cells.take(1)
    if kind != MATRIX:
        raise ValueError(f"a cell of type {kind}")
    return _matrix(_Bytes(data, part.order, part.cells), depth + 1)[1]
