"""A pickle is a program: what it may ask for, and that nothing else of it ever runs."""

import os
import pickle
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.sparse import csr_matrix

from edgewise.errors import DataError
from edgewise.tasks.nodes.citation import read_pickle
from tasks.miniature import python2


@pytest.mark.parametrize(("kind", "shape"), [("float32", (3,)), ("int32", (2, 3)), ("bool", (0, 4)), (">i4", (2, 3))])
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


def matrix_of(*changed: tuple[str, Any]) -> bytes:
    """A pickled sparse matrix whose parts do not fit."""
    matrix = csr_matrix(np.eye(3, dtype=np.float32))
    vars(matrix).update(changed)
    return python2(matrix)


def attacks(marker: Path) -> dict[str, bytes]:
    """Pickles that would create `marker`, take the memory or the stack, or lie."""
    code, shell = f"__import__('pathlib').Path({str(marker)!r}).touch()", f"touch {marker}"
    calls = [Calls(os.system, shell), Calls(eval, code), Calls(open, str(marker), "w"), Calls(getattr, "", "format")]
    pickled = {f"{number}, {p}": pickle.dumps(call, p) for number, call in enumerate(calls) for p in (0, 2, 4)}
    quoted = shell.encode()
    return pickled | {
        "instruction INST": b"(S'" + quoted + b"'\nios\nsystem\n.",
        "instruction OBJ": b"(cos\nsystem\nS'" + quoted + b"'\no.",
        "instruction EXT1": b"\x80\x02\x82\x01.",
        "instruction PERSID": b"Pname\n.",
        "another name of numpy's": b"\x80\x02cnumpy\nload\n" + b"U\x01a\x85R.",
        "a dotted name": b"\x80\x02ccollections\ndefaultdict.__class__\n.",
        "a memo far away": b"\x80\x02]r\xff\xff\xff\x7f.",
        "tuples in tuples": b"\x80\x02})" + b"\x85" * 500_000 + b"K\x01s.",
        "many objects": b"\x80\x02" + b"c__builtin__\nlist\n)R0" * 100 + b"N.",
        "many bytes": b"\x80\x02c__builtin__\nbytes\nJ\xff\xff\xff\x7f\x85R.",
        "slots for a class": b"\x80\x02cscipy.sparse.csr\ncsr_matrix\nN}U\x07__new__K\x01s\x86b)\x81.",
        "a matrix without parts": b"\x80\x02cscipy.sparse.csr\ncsr_matrix\n)\x81.",
        "a column too many": matrix_of(("indices", np.array([0, 1, 7]))),
        "offsets too large": matrix_of(("indptr", np.array([0, 1, 2, 1 << 40]))),
        "an array of objects": pickle.dumps(np.array([{}, []], dtype=object), 2),
        "an array of texts": python2(np.array(["a", "b"])),
        "bytes after the end": python2(np.eye(2)) * 2,
        "nothing": b"",
    }


@pytest.mark.parametrize("name", attacks(Path("marker")))
def test_nothing_of_an_attack_runs(name: str, tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    with pytest.raises(DataError, match=r"^bad\.pickle: not a pickle of numbers \(.+\)$"):
        read_pickle(attacks(marker)[name], "bad.pickle")
    assert not marker.exists()


def test_the_attacks_would_work_elsewhere(tmp_path: Path) -> None:
    marker = tmp_path / "marker"
    pickle.loads(attacks(marker)["0, 2"])  # noqa: S301 (its own pickle, to see that the test can fail)
    assert marker.exists()


def test_the_refused_global_is_named() -> None:
    with pytest.raises(DataError, match=f"the global {os.name}.system is refused"):
        read_pickle(pickle.dumps(Calls(os.system, "1"), 2), "file")


def test_any_damage_is_a_data_error() -> None:
    """Each third byte of a pickle changed in turn, and each truncation there."""
    honest = python2(csr_matrix(np.eye(3, dtype=np.float32)))
    refused = 0
    for at in range(0, len(honest), 3):
        for content in (honest[:at], honest[:at] + bytes([honest[at] ^ 129]) + honest[at + 1 :]):
            try:
                read_pickle(content, "file")
            except DataError:
                refused += 1
    assert refused > len(honest) // 3
