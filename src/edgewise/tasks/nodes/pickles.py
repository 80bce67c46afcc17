"""Read numbers out of a pickle without running any of it.

A pickle is a program. This reader first scans the program: an instruction or a global name that a citation data set
does not need is refused before anything runs. The few globals that are left are replaced by the stand-ins below, which
only record what they are given: no code of numpy or scipy ever sees the file's bytes unchecked.
"""

import io
import pickle
import pickletools
import re
from collections import defaultdict
from math import prod
from typing import Any

import numpy as np
from scipy.sparse import csr_matrix

from edgewise.files import reading

_INSTRUCTIONS = """
    PROTO STOP MARK GLOBAL NEWOBJ REDUCE BUILD BINPUT LONG_BINPUT BINGET LONG_BINGET
    NONE NEWTRUE NEWFALSE BININT BININT1 BININT2 LONG1 BINFLOAT SHORT_BINSTRING BINSTRING BINUNICODE
    EMPTY_TUPLE TUPLE1 TUPLE2 TUPLE3 TUPLE EMPTY_LIST APPEND APPENDS EMPTY_DICT SETITEM SETITEMS
"""
INSTRUCTIONS = frozenset(_INSTRUCTIONS.split())
MAX_BUILT = 24  # calls and states; a sparse matrix needs 17, and each can copy as many bytes as the file has
MAX_INSTRUCTIONS = 1 << 22  # "{}" is one byte here and 64 in memory
MAX_TUPLES = 1000  # bounds their nesting, because hashing a deep tuple exhausts the C stack


class StandIn:
    """What a global of the file becomes: it takes no state unless a subclass says so."""

    def __setstate__(self, state: Any) -> None:
        raise TypeError(f"{type(self).__name__} takes no state")


class Dtype(StandIn):
    """numpy.dtype: real numbers of a fixed size only."""

    def __init__(self, code: str, align: object = False, copy: object = True) -> None:
        if not re.fullmatch("f[248]|[iu][1248]|b1", code):
            raise TypeError(f"an array of dtype {code!r}; expected real numbers")
        self.code, self.order = code, "="

    def __setstate__(self, state: Any) -> None:
        if len(state) < 5 or state[1] not in "<>|=" or state[2:5] != (None, None, None):
            raise TypeError(f"a dtype with state {state!r}")
        self.order = state[1]


class Array(StandIn):
    """numpy.ndarray: its values are rebuilt from their bytes once shape, dtype and length agree."""

    values: np.ndarray[Any, Any] | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, content = state
        sizes = type(shape) is tuple and all(type(size) is int and size >= 0 for size in shape)
        if not sizes or type(dtype) is not Dtype or len(shape) > 2:
            raise TypeError(f"an array of shape {shape!r}")
        content = content.encode("latin1") if isinstance(content, str) else content
        if type(content) is not bytes:  # bytes(1 << 31) would be 2 GB
            raise TypeError(f"an array whose values are {type(content).__name__}")
        kind = np.dtype(dtype.order + dtype.code)
        if prod(shape) * kind.itemsize != len(content):
            raise TypeError(f"an array of shape {shape} and dtype {kind} in {len(content)} bytes")
        values = np.frombuffer(content, kind).reshape(shape, order="F" if fortran else "C")
        self.values = values.astype(kind.newbyteorder("="))


class Reconstruct(StandIn):
    """numpy's _reconstruct: an empty array, to be filled by its state."""

    def __new__(cls, kind: object, shape: object, code: object) -> Any:
        if kind is not Array or shape != (0,):
            raise TypeError(f"_reconstruct of {kind!r} with shape {shape!r}")
        return Array()


class Encode(StandIn):
    """_codecs.encode, by which Python 3 writes bytes into an old pickle."""

    def __new__(cls, text: str, encoding: str = "latin1") -> Any:
        if type(text) is not str or encoding != "latin1":
            raise TypeError(f"encode to {encoding!r}")
        return text.encode("latin1")


class Factory(StandIn):
    """list, by which a defaultdict would fill what it lacks; nothing asks it to."""


class Empty(StandIn):
    """bytes, by which Python 3 writes an array without values into an old pickle."""

    def __new__(cls) -> Any:
        return b""


class Sparse(StandIn):
    """scipy's csr_matrix: built from its three arrays once they fit one another."""

    state: dict[str, Any] | None = None

    def __setstate__(self, state: Any) -> None:
        self.state = dict(state)

    def matrix(self) -> csr_matrix:
        state = self.state or {}
        shape = state.get("_shape")
        parts = [state.get(name) for name in ("data", "indices", "indptr")]
        if not all(isinstance(part, Array) and part.values is not None and part.values.ndim == 1 for part in parts):
            raise TypeError("a sparse matrix without its arrays data, indices and indptr")
        data, indices, indptr = (part.values for part in parts)  # type: ignore[union-attr]
        if not (type(shape) is tuple and len(shape) == 2 and all(type(size) is int and size >= 0 for size in shape)):
            raise TypeError(f"a sparse matrix of shape {shape!r}")
        if indices.dtype.kind not in "iu" or indptr.dtype.kind not in "iu" or len(indptr) != shape[0] + 1:
            raise TypeError(f"a sparse matrix of shape {shape} with {len(indptr)} row offsets")
        if indptr[0] != 0 or indptr[-1] != len(indices) or len(data) != len(indices) or (np.diff(indptr) < 0).any():
            raise TypeError(f"a sparse matrix whose row offsets do not fit its {len(indices)} indices")
        if len(indices) and (indices.min() < 0 or indices.max() >= shape[1]):
            raise TypeError(f"a sparse matrix with a column outside 0 to {shape[1] - 1}")
        return csr_matrix((data, indices, indptr), shape=shape)


GLOBALS: dict[str, Any] = {
    "__builtin__ bytes": Empty,
    "__builtin__ list": Factory,
    "_codecs encode": Encode,
    "collections defaultdict": defaultdict,
    "numpy dtype": Dtype,
    "numpy ndarray": Array,
    "numpy._core.multiarray _reconstruct": Reconstruct,
    "numpy.core.multiarray _reconstruct": Reconstruct,
    "scipy.sparse._csr csr_matrix": Sparse,
    "scipy.sparse.csr csr_matrix": Sparse,
}


class _Reader(pickle.Unpickler):
    def find_class(self, module: str, name: str) -> Any:
        if f"{module} {name}" not in GLOBALS:
            raise pickle.UnpicklingError(f"the global {module}.{name} is refused")
        return GLOBALS[f"{module} {name}"]


def read_pickle(content: bytes, name: str) -> Any:
    """The array, sparse matrix or dictionary of a pickle of protocol 2 or less.

    Symbols     name = the file, for error messages
    Errors      DataError: a global or an instruction that is refused (it is named, and nothing has run), a damaged file
    Cost        time and memory linear in the file's length
    """
    with reading(name, "a pickle of numbers"):
        _scan(content)
        value = _Reader(io.BytesIO(content), encoding="latin1").load()
        if isinstance(value, Sparse):
            return value.matrix()
        return value.values if isinstance(value, Array) else value


def _scan(content: bytes) -> None:
    """Refuse whatever a pickle of numbers does not need, before any of it runs."""
    tuples, built, end = 0, 0, -1
    for number, (instruction, argument, position) in enumerate(pickletools.genops(content)):
        if instruction.name not in INSTRUCTIONS:
            raise pickle.UnpicklingError(f"the instruction {instruction.name} at byte {position} is refused")
        if instruction.name == "GLOBAL" and argument not in GLOBALS:
            raise pickle.UnpicklingError(f"the global {str(argument).replace(' ', '.')} at byte {position} is refused")
        if instruction.name == "LONG_BINPUT" and int(argument or 0) > len(content):
            # The reader would allocate a table of that length.
            raise pickle.UnpicklingError(f"the memo {argument} at byte {position} is out of bounds")
        tuples += instruction.name.startswith("TUPLE")
        built += instruction.name in ("REDUCE", "NEWOBJ", "BUILD")
        if built > MAX_BUILT or number > MAX_INSTRUCTIONS:
            raise pickle.UnpicklingError(f"more than {MAX_BUILT} objects, or {MAX_INSTRUCTIONS:,} instructions")
        if tuples > MAX_TUPLES:
            raise pickle.UnpicklingError(f"more than {MAX_TUPLES} tuples")
        end = position or 0
    if end != len(content) - 1:
        raise pickle.UnpicklingError("bytes after the end")
