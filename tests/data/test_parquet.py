"""Parquet files."""

import re
import sys
from decimal import Decimal

import numpy as np
import pytest

from edgewise.data import table
from edgewise.data.reading import File, names_in, pieces, read_table
from edgewise.errors import DataError, EdgewiseError, installing

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def parquet(folder, **columns):
    pq.write_table(pa.table(columns), folder / "nodes.parquet")
    return folder / "nodes.parquet"


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
    with pytest.raises(DataError, match="its columns are size; expected weight"):
        read_table(path, ["weight"])
    monkeypatch.setattr(table, "MAX_CELLS", 999)
    with pytest.raises(DataError, match="1,000 rows of 1 columns are more than"):
        read_table(path, ["size"])
    with pytest.raises(DataError, match="cannot be read"):
        read_table(tmp_path / "none.parquet", [])


def test_two_columns_of_one_name_are_refused(tmp_path):
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["size", "size"])
    pq.write_table(twice, tmp_path / "nodes.parquet")
    with pytest.raises(DataError, match="more than one column is called 'size'"):
        read_table(tmp_path / "nodes.parquet", ["size"])


def test_without_pyarrow_the_extra_is_named(tmp_path, monkeypatch):
    path = parquet(tmp_path, size=[1])
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(EdgewiseError, match=re.escape(installing("parquet"))):
        read_table(path, ["size"])


def test_the_index_that_pandas_writes_has_no_name(tmp_path):
    path = parquet(tmp_path, size=[1.0, 2.0], __index_level_0__=[7, 9])
    for read in (read_table(path, ["size"]), *pieces(path, ["size"])):
        assert [*read.columns] == ["size"] and read.numbers("size").tolist() == [1, 2]
    assert File(path).names == names_in(path) == ["size", ""]
    with pytest.raises(DataError, match="it holds no table"):
        read_table(parquet(tmp_path, __index_level_0__=[7, 9]), [])


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ([2**60 + 1, 2**60 + 3, None, -(2**62) - 1], pa.int64()),
        ([2**63 + 1, 2**63 + 3, None], pa.uint64()),
        ([2**60 + 1, 2**60 + 3, None], pa.decimal128(38, 0)),
        ([Decimal("1234567890123456.5"), Decimal("1234567890123456.51"), None, Decimal("0.07")], pa.decimal128(38, 18)),
        ([Decimal("1234567890123456789"), Decimal("0.00"), Decimal("100.00")], pa.decimal128(38, 2)),
        ([Decimal("0.000000012345678901234567"), Decimal(0)], pa.decimal128(38, 38)),
    ],
)
def test_numbers_that_float64_would_round_are_exact_as_names(tmp_path, values, kind):
    path, names = parquet(tmp_path, id=pa.array(values, kind)), ["" if v is None else str(v) for v in values]
    names = ["0.000000012345678901234567" if "E" in name else name.removesuffix(".00") for name in names]
    for read in (read_table(path, ["id"]), *pieces(path, ["id"])):
        assert read.texts("id") == names
    whole = read_table(parquet(tmp_path, id=pa.array([v for v in values if v], kind)), ["id"])
    assert whole.numbers("id").tolist() == [float(v) for v in values if v]


def test_decimals_of_few_digits_are_the_nearest_numbers(tmp_path):
    """Arrow makes 0.30000000000000004 of 0.3, and 0.24999999999999997 of 0.25 with 38 places."""
    values = [Decimal("0.3"), Decimal("0.25"), Decimal(0), Decimal("-123456.5")]
    path = parquet(tmp_path, few=pa.array(values, pa.decimal128(15, 2)), many=pa.array(values, pa.decimal128(38, 30)))
    table = read_table(path, [])
    for name in ("few", "many"):
        assert isinstance(table.columns[name], np.ndarray) and table.columns[name].tolist() == [0.3, 0.25, 0, -123456.5]
        assert table.texts(name) == ["0.3", "0.25", "0", "-123456.5"]
