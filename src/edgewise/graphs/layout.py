"""What a store is on disk: a folder with one safetensors file for each array, and a manifest with sizes and hashes.

    STORE/manifest.json          sizes, and of each array its type, shape and sha256
          offsets.safetensors    int64 [N + 1]: the edges of receiver i are offsets[i], ..., offsets[i + 1] - 1
          senders.safetensors    int32 or int64 [E], ascending inside a row
          x, labels, train, valid, test, e, names, name_ends: what else was given

A file's data begin at byte `START`, so that they can be mapped, and its header follows from the manifest.
"""

import hashlib
import json
import mmap
import os
import shutil
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor

from edgewise.errors import DataError
from edgewise.files import MAX_JSON, claimed, flush, make_folder, path_of, read_json, reading
from edgewise.graphs.checks import falls
from edgewise.memory import SHARE, machine

MANIFEST, FORMAT, LAYOUT = "manifest.json", "edgewise store", 1
START = 256  # bytes of a header, its length included
IN_MEMORY = 1 << 30  # bytes of what is computed on the way; more are in a temporary file
BLOCK = 1 << 24  # bytes read at once to be hashed
MAX_NODES = (1 << 32) - 1  # the sort packs a receiver and a sender into 64 bits
NO_RESERVE = getattr(mmap, "MAP_NORESERVE", 0x4000 if sys.platform == "linux" else 0)

Array = np.ndarray[Any, np.dtype[Any]]
# Of safetensors' types those that are read here; NumPy has no bfloat16, whose bits are read as whole numbers.
TYPES: dict[str, torch.dtype] = {
    "I64": torch.int64, "I32": torch.int32, "I16": torch.int16, "I8": torch.int8, "U8": torch.uint8,
    "BOOL": torch.bool, "F64": torch.float64, "F32": torch.float32, "F16": torch.float16, "BF16": torch.bfloat16,
}  # fmt: skip
NAMES = {dtype: name for name, dtype in TYPES.items()}
NUMBERS = {  # the arrays with one axis, which are read as one of these types, in C++ too
    "offsets": (torch.int64,),
    "senders": (torch.int32, torch.int64),
    "labels": (torch.int32, torch.int64),
    **dict.fromkeys(("train", "valid", "test", "name_ends"), (torch.int64,)),
    "names": (torch.uint8,),
}


def mapped_edges(store: Path | str) -> tuple[int, Tensor, Tensor]:
    """(nodes, offsets, senders) of a store, mapped: all that a graph needs."""
    manifest = Manifest.read(store)
    offsets, senders = (manifest.arrays[name].mapped() for name in ("offsets", "senders"))
    if int(offsets[0]) != 0 or int(offsets[-1]) != len(senders):
        raise DataError(
            f"{store}: its offsets lead from {int(offsets[0])} to {int(offsets[-1])}, not from 0 to {len(senders)}"
        )
    return manifest.nodes, offsets, senders


def as_array(values: Tensor) -> Array:
    """A tensor's memory as NumPy's, the bits of bfloat16 as int16."""
    return (values.view(torch.int16) if values.dtype == torch.bfloat16 else values).numpy()


@dataclass(frozen=True)
class Stored:
    """An array in a file: its rows are read where they lie."""

    path: Path
    dtype: torch.dtype
    shape: tuple[int, ...]
    start: int = START
    sha256: str = ""

    @property
    def row_bytes(self) -> int:
        return prod(self.shape[1:]) * self.dtype.itemsize

    @property
    def nbytes(self) -> int:
        return prod(self.shape) * self.dtype.itemsize

    def rows(self, first: int, last: int) -> Tensor:
        """Rows first, ..., last - 1, in memory of their own; a file that ends too early is a DataError."""
        content = bytearray((last - first) * self.row_bytes)
        with reading(self.path, "a readable array"), self.path.open("rb", buffering=0) as file:
            file.seek(self.start + first * self.row_bytes)
            view, got = memoryview(content), 0
            while got < len(content):
                count = file.readinto(view[got:])
                if not count:
                    raise ValueError("it ends too early")
                got += count
        shape = (last - first, *self.shape[1:])
        return (
            torch.frombuffer(content, dtype=self.dtype).view(shape) if content else torch.empty(shape, dtype=self.dtype)
        )

    def pieces(self, rows: int) -> Iterator[Tensor]:
        """All rows in turn, so many at a time."""
        for first in range(0, self.shape[0], max(1, rows)):
            yield self.rows(first, min(first + max(1, rows), self.shape[0]))

    def mapped(self) -> Tensor:
        """All of it, mapped: a page is read when it is first touched; a write would stay in this process."""
        if self.nbytes == 0:
            return torch.empty(self.shape, dtype=self.dtype)
        with reading(self.path, "a file that can be mapped"), self.path.open("rb") as file:
            flags = {"flags": mmap.MAP_PRIVATE | NO_RESERVE, "prot": mmap.PROT_READ | mmap.PROT_WRITE}
            private: dict[str, Any] = {"access": mmap.ACCESS_COPY} if sys.platform == "win32" else flags
            content = mmap.mmap(file.fileno(), self.start + self.nbytes, **private)
            if hasattr(mmap, "MADV_RANDOM") and self.nbytes > SHARE * (machine() or self.nbytes):
                content.madvise(mmap.MADV_RANDOM)  # what does not fit in memory is not read ahead
        return torch.frombuffer(content, dtype=self.dtype, count=prod(self.shape), offset=self.start).view(self.shape)

    def header(self, name: str) -> bytes:
        """What the file begins with, as safetensors wants it."""
        known = {"dtype": NAMES[self.dtype], "shape": list(self.shape), "data_offsets": [0, self.nbytes]}
        text = json.dumps({name: known}).encode()
        return (START - 8).to_bytes(8, "little") + text.ljust(START - 8)


def scratch(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """Room for numbers that are written before they are read: in memory, or where it is large in a temporary file."""
    size = prod(shape) * dtype.itemsize
    if size <= IN_MEMORY:
        return torch.empty(shape, dtype=dtype)
    with TemporaryFile() as file:
        file.truncate(size)
        return torch.frombuffer(mmap.mmap(file.fileno(), size), dtype=dtype).view(shape)


class Writer:
    """An array that is written row by row, of any length; `finish` gives the file its header."""

    def __init__(self, folder: Path, name: str, dtype: torch.dtype, row_shape: tuple[int, ...] = ()) -> None:
        self.name, self.path, self.dtype, self.row_shape = name, folder / f"{name}.safetensors", dtype, row_shape
        self.count, self.hash = 0, hashlib.sha256()
        self.path.write_bytes(bytes(START))

    def write(self, rows: Tensor) -> None:
        """The next rows."""
        content = _bytes(rows.to(self.dtype))
        self.hash.update(content)
        with self.path.open("ab") as file:
            file.write(content)
        self.count += len(rows)

    def finish(self) -> Stored:
        """The array as it is stored now."""
        stored = Stored(self.path, self.dtype, (self.count, *self.row_shape), sha256=self.hash.hexdigest())
        with self.path.open("r+b") as file:
            file.write(stored.header(self.name))
        flush(self.path)
        return stored


def _bytes(values: Tensor) -> memoryview:
    return as_array(values.contiguous()).reshape(-1).view(np.uint8).data


@dataclass(frozen=True)
class Manifest:
    """What a store holds: sizes, the arrays by name, the classes' names in order, and the features'."""

    nodes: int
    edges: int
    arrays: dict[str, Stored]
    classes: tuple[str, ...] = ()
    features: tuple[str, ...] = ()
    about: dict[str, Any] = field(default_factory=dict)

    def to_json(self) -> str:
        arrays = {
            name: {"dtype": NAMES[one.dtype], "shape": list(one.shape), "sha256": one.sha256}
            for name, one in self.arrays.items()
        }
        known = {"format": FORMAT, "layout": LAYOUT, "nodes": self.nodes, "edges": self.edges, "arrays": arrays}
        return json.dumps(known | {"classes": self.classes, "features": self.features, "about": self.about}, indent=1)

    @classmethod
    def read(cls, store: Path | str) -> Self:
        """A store's manifest, once every file has the header and the length that it says.

        Errors      DataError: a folder that is no store, another layout, a file that is missing or cut short
        """
        store = path_of(store, "a store", DataError)
        if not (store / MANIFEST).is_file():
            raise DataError(f"{store} is no store: it has no {MANIFEST}; `edgewise store build` makes one")
        content = read_json(store / MANIFEST, "a store's manifest", MAX_JSON)
        with reading(store / MANIFEST, "a store's manifest"):
            if content["format"] != FORMAT or content["layout"] != LAYOUT:
                raise ValueError(f"its layout is {content['layout']!r:.40}, and this version reads {LAYOUT}")
            arrays = {name: _stored(store, name, known) for name, known in content["arrays"].items()}
            nodes, edges = int(content["nodes"]), int(content["edges"])
            _check_shapes(arrays, nodes, edges)
            classes, features = (tuple(map(str, content[part])) for part in ("classes", "features"))
            manifest = cls(nodes, edges, arrays, classes, features, dict(content["about"]))
        for name, stored in arrays.items():
            _check_file(name, stored)
        return manifest


def _stored(store: Path, name: str, known: dict[str, Any]) -> Stored:
    if not name.isidentifier() or any(type(size) is not int or size < 0 for size in known["shape"]):
        raise ValueError(f"an array {name[:40]!r} of shape {known['shape']!r:.80}")
    path = store / f"{name}.safetensors"
    return Stored(path, TYPES[known["dtype"]], tuple(known["shape"]), sha256=str(known["sha256"]))


def _check_shapes(arrays: dict[str, Stored], nodes: int, edges: int) -> None:
    """ValueError for arrays of other lengths, axes or types than a store has, which C++ would misread."""
    if min(nodes, edges) < 0:
        raise ValueError(f"it has {nodes:,} nodes and {edges:,} edges")
    lengths = {"offsets": nodes + 1, "senders": edges, "e": edges} | dict.fromkeys(("x", "labels", "name_ends"), nodes)
    for name, length in lengths.items():
        missing = name in ("offsets", "senders") and name not in arrays
        if missing or (name in arrays and arrays[name].shape[:1] != (length,)):
            raise ValueError(f"its {name} do not fit {nodes:,} nodes and {edges:,} edges")
    for name, types in NUMBERS.items():
        if name in arrays and (arrays[name].dtype not in types or len(arrays[name].shape) != 1):
            found = f"{NAMES[arrays[name].dtype]} {list(arrays[name].shape)}"
            raise ValueError(
                f"its {name} are {found}, and must be {' or '.join(NAMES[t] for t in types)} with one axis"
            )


def _check_file(name: str, stored: Stored) -> None:
    with reading(stored.path, "an array of this store"), stored.path.open("rb") as file:
        if file.read(START) != stored.header(name):
            raise ValueError("its header is not what the manifest says")
        if (size := os.fstat(file.fileno()).st_size) != START + stored.nbytes:
            raise ValueError(f"it has {size:,} bytes instead of {START + stored.nbytes:,}")


def check_store(store: Path | str) -> Manifest:
    """Compare every byte of a store with its hash, and every offset, sender and end of a name with their bounds.

    Errors      DataError that names the file
    Cost        reads all of it once
    """
    manifest = Manifest.read(store)
    ends = {"offsets": manifest.edges}  # where arrays end that never fall
    if "names" in manifest.arrays:
        ends["name_ends"] = manifest.arrays["names"].shape[0]
    for name, stored in manifest.arrays.items():
        digest, last = hashlib.sha256(), 0
        for rows in stored.pieces(BLOCK // max(1, stored.row_bytes)):
            digest.update(_bytes(rows))
            if name in ends:
                if int(rows[0]) < last or bool(falls(rows).any()):
                    raise DataError(f"{stored.path}: {name} that fall")
                last = int(rows[-1])
            if name == "senders" and len(rows) and not 0 <= int(rows.min()) <= int(rows.max()) < manifest.nodes:
                raise DataError(f"{stored.path}: a sender that is none of {manifest.nodes:,} nodes")
        if digest.hexdigest() != stored.sha256:
            raise DataError(f"{stored.path} is damaged: its sha256 is not what the manifest says")
        if name == "offsets" and (first := int(stored.rows(0, 1))):
            raise DataError(f"{stored.path}: it starts with {first:,}, not with 0")
        if last != ends.get(name, last):
            raise DataError(f"{stored.path}: it ends with {last:,}, not with {ends[name]:,}")
    return manifest


@contextmanager
def writing_store(store: Path) -> Iterator[Path]:
    """A folder beside `store` to write to, which gets that name at the end: there is a whole store, or none.

    Errors      DataError: something of that name is there already, another process is writing it, or it cannot be
                written, as on a full disk
    """
    if not store.name:  # such as . or /, beside which nothing can be written and then get their name
        raise DataError(f"a store gets a folder of its own, which is made for it: name a new one, not {str(store)!r}")
    part = store.with_name(f".writing-{store.name}")
    try:
        _check_free(store)
        make_folder(store.absolute().parent)
        part.mkdir(exist_ok=True)
        with claimed(part) as mine:
            if not mine:
                raise DataError(f"another process is writing {store}: wait for it or stop it")
            try:
                _check_free(store)  # it may have got its name since
                for left in part.iterdir():  # by a process that was killed
                    left.unlink()
                yield part
                flush(part)
                part.rename(store)
            except BaseException:
                shutil.rmtree(part, ignore_errors=True)
                raise
        flush(store.absolute().parent)
    except OSError as error:
        raise DataError(f"cannot write the store {store}: {error.strerror or error}") from error


def _check_free(store: Path) -> None:
    if store.exists():
        raise DataError(f"{store} is there already: name a new folder, or remove it first")
