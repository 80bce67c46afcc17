"""Tables by name, from CSV and Parquet."""

import gc
import re
import sys
from decimal import Decimal

import numpy as np
import pytest

from edgewise.errors import DataError, EdgewiseError, installing
from edgewise.tables import table
from edgewise.tables.table import find_table, pieces, read_table

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def parquet(folder, **columns):
    pq.write_table(pa.table(columns), folder / "nodes.parquet")
    return folder / "nodes.parquet"


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


def test_every_type_of_parquet_is_numbers_or_texts_or_told(tmp_path):
    path = parquet(
        tmp_path,
        whole=pa.array([1, 2], pa.uint8()),
        half=pa.array([0.5, 2.0], pa.float32()),
        hole=pa.array([3, None], pa.int64()),
        truth=[True, False],
        money=[Decimal("1.25"), Decimal("2.00")],
        text=["b", None],
        large=pa.array([" x ", "y"], pa.large_string()),
        kind=pa.array(["u", "v"]).dictionary_encode(),
        pairs=[[1.0, 2.0], [3.0, 4.0]],
    )
    table = read_table(path, ["whole", "pairs"])
    assert table.numbers("whole").tolist() == [1, 2]
    assert table.numbers("half").tolist() == [0.5, 2]
    assert table.numbers("truth").tolist() == [1, 0]
    assert table.numbers("money").tolist() == [1.25, 2]
    assert table.texts("whole") == ["1", "2"]
    assert table.texts("half") == ["0.5", "2"]
    assert table.texts("hole") == ["3", ""]
    assert table.texts("text") == ["b", ""]
    assert table.texts("large") == ["x", "y"]
    assert table.texts("kind") == ["u", "v"]
    with pytest.raises(DataError, match=r"nodes\.parquet: row 1: hole is 'nan', not a finite number"):
        table.numbers("hole")
    with pytest.raises(DataError, match=r"row 0: text is 'b', not a finite number"):
        table.numbers("text")
    with pytest.raises(DataError, match=r"'pairs' holds list<.*double>, not numbers or texts"):
        table.numbers("pairs")


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e39])
def test_a_number_that_is_not_finite_in_float32_is_named(tmp_path, value):
    table = read_table(parquet(tmp_path, size=[1.0, value]), ["size"])
    with pytest.raises(DataError, match="row 1: size"):
        table.numbers("size")


def test_a_damaged_or_huge_file_is_refused(tmp_path, monkeypatch):
    path = parquet(tmp_path, size=list(range(1000)))
    content = path.read_bytes()
    for damaged in (b"", b"PAR1", content[:-9], content[:60] + bytes(40) + content[100:]):
        path.write_bytes(damaged)
        with pytest.raises(DataError, match=r"nodes\.parquet: not a Parquet file"):
            read_table(path, ["size"])
    path.write_bytes(content)
    with pytest.raises(DataError, match="expected weight, each once"):
        read_table(path, ["weight"])
    monkeypatch.setattr(table, "MAX_CELLS", 999)
    with pytest.raises(DataError, match="1,000 rows of 1 columns are more than"):
        read_table(path, ["size"])
    with pytest.raises(DataError, match="cannot be read"):
        read_table(tmp_path / "none.parquet", [])


def test_a_piece_of_wide_texts_ends_early(tmp_path, monkeypatch):
    monkeypatch.setattr("edgewise.tables.table.WIDE", 1000)
    path = tmp_path / "a.csv"
    path.write_text("node,size\n" + "".join(f"{'a' * 300}{number},{number}\n" for number in range(20)))
    parts = list(pieces(path, ["node"], texts=["node"]))
    assert [len(part) for part in parts] == [4, 4, 4, 4, 4]
    assert [value for part in parts for value in part.numbers("size")] == list(range(20))
    assert parts[1].at(0).endswith("line 6")
    assert len(read_table(path, ["node"], texts=["node"])) == 20


def test_two_columns_of_one_name_are_refused(tmp_path):
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["size", "size"])
    pq.write_table(twice, tmp_path / "nodes.parquet")
    with pytest.raises(DataError, match="each once"):
        read_table(tmp_path / "nodes.parquet", ["size"])


def test_the_one_of_two_files_that_is_meant_is_not_guessed(tmp_path):
    assert find_table(tmp_path, "nodes") is None
    path = parquet(tmp_path, size=[1])
    assert find_table(tmp_path, "nodes") == path
    (tmp_path / "nodes.csv").write_text("size\n1\n")
    with pytest.raises(DataError, match=r"nodes\.csv and nodes\.parquet: leave one"):
        find_table(tmp_path, "nodes")


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    path = parquet(tmp_path, size=[1])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(EdgewiseError, match=re.escape(installing("parquet"))):
        read_table(path, ["size"])


def test_rows_of_a_csv_file_are_no_work_for_the_garbage_collector(tmp_path):
    """A list for each row would be visited many times: three quarters of the time of a long file."""
    path = tmp_path / "long.csv"
    path.write_text("a,b\n" + "1,2\n" * 30_000)
    gc.collect()
    before = gc.get_stats()[0]["collections"]
    assert sum(len(piece) for piece in pieces(path, ("a", "b"))) == 30_000
    assert gc.get_stats()[0]["collections"] - before < 10
