"""Numbers by name, and arrays where they lie in a file."""

from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from edgewise.data import build_store
from edgewise.data.building import Names, arrays_of, edges_of
from edgewise.data.table import pieces
from edgewise.errors import DataError
from edgewise.graphs import Store


def test_names_are_found_and_strangers_named(tmp_path: Path) -> None:
    names = Names()
    names.add([f"node {n}" for n in range(1000)])
    names.add(["", "-5"])
    assert names.finish() is None
    (tmp_path / "e.csv").write_text("sender\nnode 7\nnode 999\n\n-5\n")
    (table,) = pieces(tmp_path / "e.csv", ("sender",))
    assert names.find(table, "sender").tolist() == [7, 999, 1001]
    (tmp_path / "e.csv").write_text("sender\nnode 7\nnode 1000\n")
    (table,) = pieces(tmp_path / "e.csv", ("sender",))
    with pytest.raises(DataError, match="line 3: there is no node 'node 1000'"):
        names.find(table, "sender")


def test_a_name_that_is_there_twice() -> None:
    names = Names()
    names.add(["a", "b", "a", "b"])
    assert names.finish() == 2


def test_arrays_are_read_where_they_lie(tmp_path: Path) -> None:
    x = torch.arange(24).view(6, 4)
    save_file({"a": x.to(torch.bfloat16), "b": x}, tmp_path / "x.safetensors")
    np.save(tmp_path / "x.npy", x.numpy())
    found = arrays_of(tmp_path / "x.safetensors") | arrays_of(tmp_path / "x.npy")
    assert found["a"].rows(1, 3).equal(x[1:3].to(torch.bfloat16))
    assert found["b"].rows(5, 6).equal(x[5:6])
    assert found[""].rows(0, 6).equal(x)
    assert [len(part) for part in found[""].pieces(4)] == [4, 2]


def test_an_array_that_promises_more_than_it_holds(tmp_path: Path) -> None:
    np.save(tmp_path / "x.npy", np.zeros(100))
    (tmp_path / "x.npy").write_bytes((tmp_path / "x.npy").read_bytes()[:-8])
    with pytest.raises(DataError, match=r"x\.npy: .*promises \[100\]"):
        arrays_of(tmp_path / "x.npy")
    np.save(tmp_path / "f.npy", np.asfortranarray(np.zeros((3, 2))))
    with pytest.raises(DataError, match="write it in C order"):
        arrays_of(tmp_path / "f.npy")
    np.save(tmp_path / "o.npy", np.array([{}]), allow_pickle=True)
    with pytest.raises(DataError, match=r"o\.npy: not a"):
        arrays_of(tmp_path / "o.npy")


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (np.array([[0, 1], [1, 0]], dtype=bool), r"edges must be integers \[2, E\] or \[E, 2\]"),
        (np.array([[0, 1], [1, 0]], dtype=">i4"), "its numbers are in the other order of bytes: write it in that of"),
    ],
)
def test_arrays_of_other_numbers_than_whole_ones_of_this_machine_are_refused(tmp_path, array, message: str) -> None:
    np.save(tmp_path / "e.npy", array)
    with pytest.raises(DataError, match=message):
        list(edges_of(tmp_path / "e.npy", None))


def test_a_column_without_a_name_is_neither_a_feature_nor_an_attribute(tmp_path) -> None:
    (tmp_path / "e.csv").write_text(",sender,receiver\n0,1,0\n1,0,1\n")
    (tmp_path / "n.csv").write_text(",size\n0,5\n1,7\n")
    assert [e for _, _, e in edges_of(tmp_path / "e.csv", None)] == [None]
    build_store(tmp_path / "s", [tmp_path / "e.csv"], [tmp_path / "n.csv"])
    assert Store.open(tmp_path / "s").x.rows(0, 2).tolist() == [[5], [7]]
