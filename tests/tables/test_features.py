"""What the columns of a table hold, as features."""

from pathlib import Path

import numpy as np
import pytest

from edgewise.errors import DataError
from edgewise.tables.features import SHOWN, Column, matrix, read_columns
from edgewise.tables.table import read_table


def columns(folder: Path, text: str) -> list[Column]:
    path = folder / "a.csv"
    path.write_text(text, encoding="utf-8")
    table = read_table(path, ())
    return read_columns(table, list(table.columns))


@pytest.mark.parametrize(
    ("cells", "kind", "levels"),
    [
        ("1 2 -3e4 0.5", "number", ()),
        ("1 NA n/a -", "number", ()),
        ("yes No YES ?", "boolean", ()),
        ("t f t f", "boolean", ()),
        ("a b a b", "category", ("a", "b")),
        ("red null red blue", "category", ("blue", "red")),
        ("yes maybe no no", None, ()),
        ("a b c d", None, ()),
        ("1 2 x 4", None, ()),
        ("1 2 inf 4", None, ()),
        ("- - ? NA", None, ()),
    ],
)
def test_a_column_is_what_most_of_its_cells_are(tmp_path: Path, cells: str, kind: str | None, levels: object) -> None:
    text = "x\n" + "\n".join(cells.split()) + "\n"
    if kind is None:
        with pytest.raises(DataError, match=r"a\.csv: .*x (is|holds) "):
            columns(tmp_path, text)
        return
    (column,) = columns(tmp_path, text)
    assert (column.kind, column.levels) == (kind, levels)
    assert column.values.shape == (4, max(1, len(levels)))  # type: ignore[arg-type]
    missing = sum(cell.lower() in ("na", "n/a", "-", "?", "null") for cell in cells.split())
    assert (~column.present).sum() == missing
    assert (f"missing in {missing} rows" in str(column)) == (missing > 0)


def test_numbers_are_standardised_by_the_rows_that_train(tmp_path: Path) -> None:
    read = columns(tmp_path, "a,b,c\n1,5,x\n3,5,y\n,5,x\n9,5,y\n")
    x = matrix(read, np.array([0, 1]), scale=True)
    assert x.tolist() == [[-1, 0, 0, 1, 0], [1, 0, 0, 0, 1], [0, 1, 0, 1, 0], [7, 0, 0, 0, 1]]
    plain = matrix(read, np.array([0, 1]), scale=False)
    assert plain[:, [0, 2]].tolist() == [[1, 5], [3, 5], [2, 5], [9, 5]]
    assert matrix(read, np.array([], dtype=int), scale=True)[:, 0].tolist() == [1, 3, 0, 9]


def test_all_columns_that_cannot_be_read_are_named_but_not_without_end(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(SHOWN + 3)]
    rows = [",".join(f"{name} {row}" for name in names) for row in range(4)]
    with pytest.raises(DataError) as caught:
        columns(tmp_path, "\n".join([",".join(names), *rows]) + "\n")
    lines = str(caught.value).split("\n")
    assert len(lines) == SHOWN + 1 and lines[-1] == "and 3 more columns"
    assert "c0 holds 4 different texts in 4 rows" in lines[0]
