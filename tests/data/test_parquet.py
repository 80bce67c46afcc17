"""Parquet files."""

import io
from decimal import Decimal

import numpy as np
import pytest

from edgewise.data import parquet as module
from edgewise.data import table as tables
from edgewise.data.parquet import check_pages
from edgewise.data.table import names_in, pieces, read_table
from edgewise.errors import DataError

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
    with pytest.raises(DataError, match=r"nodes\.parquet: row 1: hole is '', not a finite number"):
        table.numbers("hole")
    with pytest.raises(DataError, match=r"row 0: text is 'b', not a finite number"):
        table.numbers("text")
    with pytest.raises(DataError, match=r"'pairs' holds List\(Float64\), not numbers or texts"):
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
    monkeypatch.setattr(tables, "MAX_CELLS", 999)
    with pytest.raises(DataError, match="1,000 rows of 1 columns are more than"):
        read_table(path, ["size"])
    with pytest.raises(DataError, match="cannot be read"):
        read_table(tmp_path / "none.parquet", [])


def test_two_columns_of_one_name_are_refused(tmp_path):
    twice = pa.Table.from_arrays([pa.array([1]), pa.array([2])], names=["size", "size"])
    pq.write_table(twice, tmp_path / "nodes.parquet")
    with pytest.raises(DataError, match="each column must have its own name"):
        read_table(tmp_path / "nodes.parquet", ["size"])


def test_the_index_that_pandas_writes_has_no_name(tmp_path):
    path = parquet(tmp_path, size=[1.0, 2.0], __index_level_0__=[7, 9])
    for read in (read_table(path, ["size"]), *pieces(path, ["size"])):
        assert [*read.columns] == ["size"] and read.numbers("size").tolist() == [1, 2]
    assert read_table(path).header == names_in(path) == ["size", ""]
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
        assert table.numbers(name).tolist() == [0.3, 0.25, 0, -123456.5]
        assert table.texts(name) == ["0.3", "0.25", "0", "-123456.5"]


def written(table, **options):
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


@pytest.mark.parametrize(
    ("compression", "version"),
    [("none", "1.0"), ("snappy", "2.0"), ("gzip", "1.0"), ("zstd", "2.0"), ("brotli", "1.0")],
)
def test_what_pages_unpack_to_is_what_pyarrow_says(compression, version, tmp_path, monkeypatch):
    table = pa.table({"a": np.zeros(100_000), "b": [f"text {n % 7}" for n in range(100_000)], "c": [[1, 2]] * 100_000})
    content = written(table, compression=compression, data_page_version=version, row_group_size=30_000)
    metadata = pq.ParquetFile(pa.BufferReader(content)).metadata
    groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
    unpacked = sum(group.column(n).total_uncompressed_size for group in groups for n in range(3))
    monkeypatch.setattr(module, "MAX_UNPACKED", unpacked)  # theirs counts the headers too
    monkeypatch.setattr(module, "MAX_VALUES", 400_000)
    assert check_pages(tmp_path, content) == 100_000
    monkeypatch.setattr(module, "MAX_UNPACKED", int(unpacked * 0.98))
    with pytest.raises(DataError, match="unpacks to more than the"):
        check_pages(tmp_path, content)
    monkeypatch.setattr(module, "MAX_UNPACKED", unpacked)
    monkeypatch.setattr(module, "MAX_VALUES", 399_999)
    with pytest.raises(DataError, match="its pages hold more than the 399,999 values"):
        check_pages(tmp_path, content)


def test_texts_that_share_their_beginnings_are_refused(tmp_path):
    table = pa.table({"a": [f"{'a' * 1000}{n}" for n in range(100)]})
    content = written(table, use_dictionary=False, column_encoding={"a": "DELTA_BYTE_ARRAY"})
    with pytest.raises(DataError, match="write it without DELTA_BYTE_ARRAY"):
        check_pages(tmp_path, content)


def test_pages_of_what_is_no_file_are_an_error_in_python(tmp_path):
    content = written(pa.table({"a": [1, 2]}))
    for damaged in (b"", b"PAR1", content[:-9], content[:4] + b"\xff" * 20 + content[24:], content[-8:]):
        with pytest.raises((ValueError, IndexError, KeyError)):
            check_pages(tmp_path, damaged)
    deep = b"\x3c" * 5000 + bytes(5001)
    with pytest.raises(ValueError, match="more than 20 structs in one another"):
        check_pages(tmp_path, deep + len(deep).to_bytes(4, "little") + b"PAR1")
    endless = b"\x29\xf7\xff\xff\xff\xff\xff\xff\xff\xff\x7f"  # a list of 2⁶² doubles
    with pytest.raises(IndexError, match="beyond the end"):
        check_pages(tmp_path, endless + len(endless).to_bytes(4, "little") + b"PAR1")


def test_categories_share_their_texts_and_more_than_a_gigabyte_of_them_is_refused(tmp_path):
    rows = pa.DictionaryArray.from_arrays(np.zeros(4000, np.int32), ["ARROW:schema" + "a" * 1_000_000])
    path = parquet(tmp_path, node=rows, size=np.arange(4000.0))
    with pytest.raises(DataError, match="the texts of the column 'node' have more than 1,073,741,824 bytes"):
        read_table(path, ["node"])
    (few,) = pieces(parquet(tmp_path, node=pa.array(["ARROW:schema", None]).dictionary_encode()), ["node"])
    assert few.texts("node") == ["ARROW:schema", ""]
