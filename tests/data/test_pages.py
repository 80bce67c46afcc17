"""Pages of Parquet are measured before they are unpacked."""

import io

import numpy as np
import pytest

from edgewise.data import pages
from edgewise.data.pages import check_pages
from edgewise.errors import DataError
from fuzz.harnesses import CORPUS

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def written(table, **options):
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


@pytest.mark.parametrize("compression", ["none", "snappy", "gzip", "zstd", "brotli"])
@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_what_pages_unpack_to_is_what_pyarrow_says(compression, version, tmp_path, monkeypatch):
    table = pa.table({"a": np.zeros(100_000), "b": [f"text {n % 7}" for n in range(100_000)], "c": [[1, 2]] * 100_000})
    content = written(table, compression=compression, data_page_version=version, row_group_size=30_000)
    metadata = pq.ParquetFile(pa.BufferReader(content)).metadata
    groups = [metadata.row_group(n) for n in range(metadata.num_row_groups)]
    unpacked = sum(group.column(n).total_uncompressed_size for group in groups for n in range(3))
    monkeypatch.setattr(pages, "MAX_UNPACKED", unpacked)  # theirs counts the headers too
    check_pages(tmp_path, content)
    monkeypatch.setattr(pages, "MAX_UNPACKED", int(unpacked * 0.98))
    with pytest.raises(DataError, match="unpacks to more than the"):
        check_pages(tmp_path, content)


def test_texts_that_share_their_beginnings_are_refused(tmp_path):
    table = pa.table({"a": [f"{'a' * 1000}{n}" for n in range(100)]})
    content = written(table, use_dictionary=False, column_encoding={"a": "DELTA_BYTE_ARRAY"})
    with pytest.raises(DataError, match="write it without DELTA_BYTE_ARRAY"):
        check_pages(tmp_path, content)


def test_what_is_no_file_is_an_error_in_python(tmp_path):
    content = written(pa.table({"a": [1, 2]}))
    statistics = (CORPUS / "parquet" / "statistics").read_bytes()  # pyarrow's view of its column aborts the process
    for damaged in (statistics, b"", b"PAR1", content[:-9], content[:4] + b"\xff" * 20 + content[24:], content[-8:]):
        with pytest.raises((ValueError, IndexError, KeyError)):
            check_pages(tmp_path, damaged)
    deep = b"\x3c" * 5000 + bytes(5001)
    with pytest.raises(ValueError, match="more than 20 structs in one another"):
        check_pages(tmp_path, deep + len(deep).to_bytes(4, "little") + b"PAR1")
    endless = b"\x29\xf7\xff\xff\xff\xff\xff\xff\xff\xff\x7f"  # a list of 2⁶² doubles
    with pytest.raises(IndexError, match="beyond the end"):
        check_pages(tmp_path, endless + len(endless).to_bytes(4, "little") + b"PAR1")
