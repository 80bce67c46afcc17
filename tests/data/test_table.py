"""Columns by name."""

from pathlib import Path

import numpy as np
import pytest

from edgewise.data.reading import read_table
from edgewise.data.table import Called, Table, numbers_of
from edgewise.errors import DataError


def test_a_csv_file(tmp_path):
    path = tmp_path / "nodes.csv"
    path.write_text('name,size\n"a, b",1\n\n c ,2.5\n', encoding="utf-8-sig")
    table = read_table(path, ["size"], ["name"])
    assert len(table) == 2
    assert table.texts("name") == ["a, b", "c"]
    assert table.numbers("size").tolist() == [1, 2.5]
    assert table.at(1) == f"{path}: line 4"  # the empty line counts
    with pytest.raises(DataError, match="line 2: name is 'a, b', not a finite number"):
        table.numbers("name")


def test_a_number_has_no_underscore(tmp_path):
    """Python reads 1_2 as 12, so that names of districts became numbers."""
    assert [bool(one) for one in np.isnan(numbers_of(["1_2", "12", "1_000.5"]))] == [True, False, True]
    path = tmp_path / "nodes.csv"
    path.write_text("ward\n1\n1_2\n", encoding="utf-8")
    with pytest.raises(DataError, match="line 3: ward is '1_2', not a finite number"):
        read_table(path, ["ward"]).numbers("ward")
    with pytest.raises(DataError, match="line 3: ward is '1_2', not a finite number"):
        read_table(path, ["ward"], ["ward"]).numbers("ward")


def test_thousands_are_parted_alike_with_and_without_a_decimal_comma() -> None:
    assert numbers_of(["1.234", "1.234,5", "0.125", "-1.234 %"], comma=True).tolist() == [1234, 1234.5, 0.125, -1234]
    assert numbers_of(["1.234", "2.5"], comma=True).tolist() == [1234, 2.5]
    assert np.isnan(numbers_of(["0,125", "01,234", "1,5"])).all()


def test_a_floating_number_beyond_all_its_digits_is_no_name() -> None:
    table = Table(Path("a.parquet"), {"id": np.array([1.0, 2.0**60]), "n": np.array([1, 1 << 60])}, ("row", range(2)))
    assert table.names("n") == ["1", str(1 << 60)] and table.texts("id") == table.names("n")
    with pytest.raises(DataError, match=r"a\.parquet: row 1: id is 1152921504606846976, a floating number, which has"):
        table.names("id")
    narrow = Table(Path("a.parquet"), {"id": np.array([1, 2**24 - 1, 2**24], dtype=np.float32)}, ("row", range(3)))
    with pytest.raises(DataError, match=r"a\.parquet: row 2: id is 16777216, a floating number, which has lost digits"):
        narrow.names("id")


def test_columns_that_differ_in_capitals_alone_are_no_guess() -> None:
    columns = Called(Path("a.csv"), ["id", "ID", "Split", "x", "X", "Node id"], {"X"})
    assert columns["split"] == "Split" and columns["x"] == "x" and "id" in columns and columns["node_id"] == "Node id"
    with pytest.raises(DataError, match=r"a\.csv: it has the columns id and ID, and which is meant is a guess"):
        columns["id"]
