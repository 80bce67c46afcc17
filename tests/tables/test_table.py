"""Columns by name."""

import pytest

from edgewise.errors import DataError
from edgewise.tables.reading import read_table


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
