"""The IDX file format: a magic number, the sizes, then one unsigned byte per value; plain or gzipped."""

import struct
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from edgewise.errors import DataError
from edgewise.files import gunzip, read_bytes

MAX_BYTES = 1 << 27  # MNIST has 47 MB
UNSIGNED_BYTES = 0x08


def read_idx(path: Path, dimensions: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    """The array of unsigned bytes that an IDX file holds.

    Symbols     dimensions = how many sizes the header must give: 1 for labels, 3 for images
    Shapes      -> uint8, as the header says
    Errors      DataError names the file: unreadable, damaged gzip, wrong magic number, truncated, trailing bytes
    Cost        memory of at most twice the unpacked file, which may have 128 MiB
    Reference   LeCun, Cortes and Burges 1998
    """
    content = read_bytes(path, MAX_BYTES)
    if content.startswith(b"\x1f\x8b"):
        content = gunzip(path, content, MAX_BYTES)
    header = 4 + 4 * dimensions
    if len(content) < header:
        raise DataError(f"{path}: truncated; an IDX header of {header} bytes was expected, it has {len(content)}")
    magic = bytes([0, 0, UNSIGNED_BYTES, dimensions])
    if content[:4] != magic:
        kind = f"IDX of unsigned bytes in {dimensions} dimensions"
        raise DataError(f"{path}: starts with {content[:4].hex()}, expected {magic.hex()} ({kind})")
    shape = struct.unpack(f">{dimensions}I", content[4:header])
    found, expected = len(content) - header, prod(shape)
    if found != expected:
        fault = "truncated" if found < expected else "trailing bytes"
        size = " x ".join(map(str, shape))
        raise DataError(f"{path}: {fault}; its header promises {size} = {expected} bytes, {found} follow")
    if not found:  # an empty array, whose other sizes may be too large for numpy
        raise DataError(f"{path}: it holds no data; its header promises {' x '.join(map(str, shape))} bytes")
    return np.frombuffer(content, dtype=np.uint8, offset=header).reshape(shape).copy()
