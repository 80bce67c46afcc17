"""MATLAB files are read as scipy reads them, and damaged ones are errors rather than signals."""

import struct
import zlib
from io import BytesIO

import numpy as np
import pytest
from scipy.io import loadmat, savemat

from edgewise.tasks.graphs import matlab
from edgewise.tasks.graphs.matlab import read_matlab

NUMBERS = [np.dtype(kind) for kind in ("u1", "i1", "u2", "i2", "u4", "i4", "u8", "i8", "f4", "f8")]


def saved(**variables) -> bytes:
    file = BytesIO()
    savemat(file, variables, **({"do_compression": variables.pop("packed")} if "packed" in variables else {}))
    return file.getvalue()


@pytest.mark.parametrize("packed", [False, True])
@pytest.mark.parametrize("kind", NUMBERS, ids=str)
def test_numbers_are_scipys(kind, packed):
    x = np.arange(12).reshape(3, 4).astype(kind)
    file = saved(x=x, y=np.zeros((0, 2)), packed=packed)
    read = read_matlab(file)
    assert np.array_equal(read["x"], loadmat(BytesIO(file))["x"]) and read["x"].dtype.isnative
    assert np.array_equal(read["x"], x) and read["y"].shape == (0, 2)


def test_texts_cells_and_structs_are_read():
    cells = np.empty((1, 2), dtype=object)
    cells[0, :] = [np.array(["ab", "cd"]), np.eye(2)]
    file = saved(x={"text": "äö", "cells": cells, "inner": {"n": 5}}, z=1 + 2j, on=np.array([True, False]))
    read = read_matlab(file)
    assert read["x"]["text"] == [["äö"]]
    texts, numbers = read["x"]["cells"][0]
    assert texts == ["ab", "cd"] and np.array_equal(numbers, np.eye(2))
    assert read["x"]["inner"][0]["n"][0].tolist() == [[5]]
    assert read["on"].tolist() == [[1, 0]]


def element(order: str, kind: int, data: bytes) -> bytes:
    return struct.pack(f"{order}II", kind, len(data)) + data + bytes(-len(data) % 8)


@pytest.mark.parametrize(("order", "mark"), [("<", b"IM"), (">", b"MI")])
@pytest.mark.parametrize(
    ("kind", "encoding"),
    [(1, "latin-1"), (2, "latin-1"), (4, "utf-16-{}"), (16, "utf-8"), (17, "utf-16-{}"), (18, "utf-32-{}")],
)
def test_a_text_is_read_in_each_encoding_and_order_of_bytes(kind, encoding, order, mark):
    letters = "äbcdef".encode(encoding.format("le" if order == "<" else "be"))
    flags, shape = struct.pack(f"{order}II", 4, 0), struct.pack(f"{order}ii", 2, 3)
    parts = [(6, flags), (5, shape), (1, b"name"), (kind, letters)]
    matrix = b"".join(element(order, *part) for part in parts)
    file = bytes(126) + mark + element(order, 14, matrix)
    assert read_matlab(file) == {"name": ["äce", "bdf"]}


def test_what_is_damaged_is_an_error(monkeypatch):
    file = saved(x={"text": "ab", "numbers": np.eye(3), "cells": np.array([["a", 2.0]], dtype=object)})
    errors = (ValueError, struct.error, zlib.error, LookupError, OverflowError, TypeError)
    for place in range(len(file)):
        for changed in (file[:place], file[:place] + b"\xff" + file[place + 1 :]):
            try:
                read_matlab(changed)
            except errors:
                continue
    with pytest.raises(ValueError, match="no header of version 5"):
        read_matlab(b"MATLAB")
    monkeypatch.setattr(matlab, "MAX_UNPACKED", 10_000)
    with pytest.raises(ValueError, match="unpacks to more than 10,000 bytes"):
        read_matlab(saved(x=np.zeros(10_000), packed=True))


def test_cells_in_cells_end():
    deep = np.zeros(1)
    for _ in range(30):
        outer = np.empty((1, 1), dtype=object)
        outer[0, 0] = deep
        deep = outer
    with pytest.raises(ValueError, match="more than 20 cells in one another"):
        read_matlab(saved(x=deep))


@pytest.mark.parametrize("kind", [1, 2])
def test_cells_and_fields_without_number_are_refused(kind):
    """Each would be an object: a file of two kilobytes took seven gigabytes."""
    count = (1 << 20) + 1
    shape = struct.pack("<ii", 1, count if kind == 1 else 1)
    head = element("<", 6, struct.pack("<II", kind, 0)) + element("<", 5, shape) + element("<", 1, b"x")
    fields = element("<", 5, struct.pack("<i", 1)) + element("<", 1, bytes(count))
    inner = head + (element("<", 14, b"") * count if kind == 1 else fields)
    file = saved()[:128] + element("<", 15, zlib.compress(element("<", 14, inner)))
    assert len(file) < 20_000
    with pytest.raises(ValueError, match="more than 1,048,576 cells, fields or rows"):
        read_matlab(file)
