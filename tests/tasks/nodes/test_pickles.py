"""A pickle is a program: what it may ask for, and that nothing else of it ever runs."""

import os
import pickle
import pickletools
import struct
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from edgewise.errors import DataError
from edgewise.tasks.nodes.pickles import INSTRUCTIONS, Array, Dtype, read_pickle
from tasks.miniature import python2


@pytest.mark.parametrize("kind", ["float32", "float64", "float16", "int8", "int32", "uint64", "bool", ">i4"])
@pytest.mark.parametrize("shape", [(3,), (2, 3), (0, 4)])
def test_arrays_come_back(kind: str, shape: tuple[int, ...]) -> None:
    values = np.arange(np.prod(shape)).reshape(shape).astype(kind)
    for pickled in (pickle.dumps(values, 2), python2(values)):
        read = read_pickle(pickled, "file")
        assert np.array_equal(read, values)
        assert read.dtype == values.dtype.newbyteorder("=")


def test_sparse_matrices_and_dictionaries_come_back() -> None:
    matrix = csr_matrix(np.eye(3, 4, dtype=np.float32))
    assert np.array_equal(read_pickle(python2(matrix), "file").toarray(), matrix.toarray())
    lists = defaultdict(list, {0: [1, 2], 1: [], 300: [70_000]})
    assert read_pickle(python2(lists), "file") == lists
    assert read_pickle(pickle.dumps(dict(lists), 2), "file") == lists


class Calls:
    """Pickled, this is a call: a function of the standard library with its arguments."""

    def __init__(self, function: Callable[..., Any], *arguments: object) -> None:
        self.call = function, arguments

    def __reduce__(self) -> tuple[Callable[..., Any], tuple[object, ...]]:
        return self.call


def attacks(marker: Path) -> dict[str, bytes]:
    """Pickles that would create `marker` if any of them ran."""
    code = f"__import__('pathlib').Path({str(marker)!r}).touch()"
    shell = f"touch {marker}"
    calls = {
        "os.system": Calls(os.system, shell),
        "eval": Calls(eval, code),
        "exec": Calls(exec, code),
        "popen": Calls(os.popen, shell),
        "subprocess": Calls(__import__("subprocess").check_output, ["touch", str(marker)]),
        "getattr": Calls(getattr, "", "format"),
        "open": Calls(open, str(marker), "w"),
        "import": Calls(__import__, "this"),
        "in a dictionary": {0: [Calls(os.system, shell)]},
    }
    pickled = {f"{name}, protocol {p}": pickle.dumps(call, p) for name, call in calls.items() for p in (0, 2, 4)}
    quoted = shell.encode()
    return pickled | {
        "instruction INST": b"(S'" + quoted + b"'\nios\nsystem\n.",
        "instruction OBJ": b"(cos\nsystem\nS'" + quoted + b"'\no.",
        "instruction STACK_GLOBAL": b"\x80\x04\x8c\x02os\x8c\x06system\x93\x8c"
        + bytes([len(quoted)])
        + quoted
        + b"\x85R.",
        "instruction EXT1": b"\x80\x02\x82\x01.",
        "instruction PERSID": b"Pname\n.",
        "instruction BINPERSID": b"\x80\x02K\x01Q.",
        "instruction BYTEARRAY8": b"\x80\x05\x96" + struct.pack("<Q", 1 << 40) + b".",
        "instruction FRAME": b"\x80\x04\x95" + struct.pack("<Q", 1 << 40) + b".",
        "the module's other names": b"\x80\x02cnumpy\nload\n" + b"U\x01a\x85R.",
        "a dotted name": b"\x80\x02ccollections\ndefaultdict.__class__\n.",
        "copy_reg": b"\x80\x02ccopy_reg\n_reconstructor\n(c__builtin__\nobject\nc__builtin__\nobject\nNtR.",
        "a memo far away": b"\x80\x02]r\xff\xff\xff\x7f.",
        "a codec that is no encoding": b"\x80\x02c_codecs\nencode\nX\x02\x00\x00\x00abU\x06base64\x86R.",
        "tuples in tuples": b"\x80\x02})" + b"\x85" * 500_000 + b"K\x01s.",
        "state for a list class": b"\x80\x02c__builtin__\nlist\n}U\x06appendK\x01sb.",
        "state for the array class": b"\x80\x02cnumpy\nndarray\n}U\x06valuesK\x01sb.",
        "slots for the encoder": b"\x80\x02c_codecs\nencode\nN}U\x07__new__K\x01s\x86b.",
        "slots for the reconstruction": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\nN}U\x07__new__K\x01s\x86b.",
        "an array without state": b"\x80\x02cscipy.sparse.csr\ncsr_matrix\n)\x81.",
        "an array called with a shape": b"\x80\x02cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85\x85R.",
        "reconstruct with a shape": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n"
        b"cnumpy\nndarray\nJ\xff\xff\xff\x7f\x85U\x01b\x87R.",
        "reconstruct of a list": b"\x80\x02cnumpy.core.multiarray\n_reconstruct\n"
        b"c__builtin__\nlist\nK\x00\x85U\x01b\x87R.",
        "many bytes": b"\x80\x02c__builtin__\nbytes\nJ\xff\xff\xff\x7f\x85R.",
        "a dtype of objects": b"\x80\x02cnumpy\ndtype\nU\x02O8K\x00K\x01\x87R.",
        "a dtype of records": b"\x80\x02cnumpy\ndtype\nU\x03V16K\x00K\x01\x87R.",
        "a dtype with fields": b"\x80\x02cnumpy\ndtype\nU\x02i4K\x00K\x01\x87R(K\x03U\x01<N)}J\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb.",
        "a dtype of no order": b"\x80\x02cnumpy\ndtype\nU\x02i4K\x00K\x01\x87R(K\x03K\x01NNNJ\xff\xff\xff\xff"
        b"J\xff\xff\xff\xffK\x00tb.",
        "an empty stack": b"\x80\x02R.",
        "a memo that is not there": b"\x80\x02h\x07.",
        "an unhashable key": b"\x80\x02}]K\x01s.",
        "setting items of a number": b"\x80\x02K\x01K\x02K\x03s.",
    }


@pytest.mark.parametrize("name", attacks(Path("marker")))
def test_nothing_of_an_attack_runs(name: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    with pytest.raises(DataError, match=r"^bad\.pickle: not a pickle of numbers \(.+\)$"):
        read_pickle(attacks(marker)[name], "bad.pickle")
    assert not marker.exists()


def test_the_attacks_would_work_elsewhere(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    pickle.loads(attacks(marker)["os.system, protocol 2"])  # noqa: S301 (its own pickle, to see that the test can fail)
    assert marker.exists()


@pytest.mark.parametrize(
    ("function", "shown"), [(os.system, f"{os.name}.system"), (eval, "__builtin__.eval"), (exec, "__builtin__.exec")]
)
def test_the_refused_global_is_named(function: Callable[..., Any], shown: str) -> None:
    with pytest.raises(DataError, match=f"the global {shown} at byte 2 is refused"):
        read_pickle(pickle.dumps(Calls(function, "1"), 2), "file")


def test_every_allowed_instruction_exists() -> None:
    assert {instruction.name for instruction in pickletools.opcodes} >= INSTRUCTIONS


class Claims:
    """Pickled, this is an array that claims a dtype, a shape and a content, whether or not they agree."""

    def __init__(self, code: str, shape: object = None, content: bytes | None = None) -> None:
        self.code, self.shape, self.content = code, shape, content

    def __reduce__(self) -> tuple[Any, ...]:
        if self.content is None:
            return np.dtype, (self.code, False, True), (3, "<", None, None, None, -1, -1, 0)
        state = (1, self.shape, Claims(self.code), False, self.content)
        return np._core.multiarray._reconstruct, (np.ndarray, (0,), b"b"), state


def test_an_array_that_agrees_is_read() -> None:
    claims = Claims("i4", (2, 2), np.arange(4, dtype=np.int32).tobytes())
    assert read_pickle(pickle.dumps(claims, 2), "file").tolist() == [[0, 1], [2, 3]]


@pytest.mark.parametrize(
    ("shape", "content", "code"),
    [
        ((7,), bytes(24), "i4"),
        ((5,), bytes(24), "i4"),
        ((6,), bytes(23), "i4"),
        ((1 << 40,), bytes(24), "i4"),
        ((1 << 62, 4), bytes(0), "i4"),
        ((-6,), bytes(24), "i4"),
        ((-2, -3), bytes(24), "i4"),
        ((6.0,), bytes(24), "i4"),
        (("6",), bytes(24), "i4"),
        ((1, 2, 3), bytes(24), "i4"),
        ((6,), bytes(24), "i8"),
        ((6,), bytes(24), "i3"),
        ((6,), bytes(48), "O8"),
        ((6,), bytes(24), "S4"),
        ((6,), bytes(48), "M8"),
    ],
)
def test_an_array_that_lies_is_refused(shape: tuple[Any, ...], content: bytes, code: str) -> None:
    with pytest.raises(DataError, match="file: not a pickle of numbers"):
        read_pickle(pickle.dumps(Claims(code, shape, content), 2), "file")


def test_any_damage_is_a_data_error() -> None:
    """Each byte of a pickle changed in turn, and each truncation: a value or a DataError, never another exception."""
    honest = python2(csr_matrix(np.eye(3, dtype=np.float32)))
    refused = 0
    damaged = [honest[:end] for end in range(len(honest))]
    for at, byte in enumerate(honest):
        damaged += [honest[:at] + bytes([byte ^ flip]) + honest[at + 1 :] for flip in (1, 128)]
    for content in damaged:
        try:
            read_pickle(content, "file")
        except DataError:
            refused += 1
    assert refused > len(honest)


def test_an_array_has_both_a_shape_and_a_dtype() -> None:
    dtype = Dtype("f4")
    for shape, kind in (([2], dtype), ((-1,), dtype), ((2,), "f4"), ((1, 1, 2), dtype)):
        with pytest.raises(TypeError, match="an array of shape"):
            Array().__setstate__((1, shape, kind, False, bytes(8)))
