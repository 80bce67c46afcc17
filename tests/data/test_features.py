"""What the columns of a table hold, as features."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from edgewise.data.features import LISTED, Column, in_lines, read_columns
from edgewise.data.reading import File
from edgewise.data.table import SHOWN
from edgewise.errors import DataError


def write(folder: Path, text: str) -> Path:
    (folder / "a.csv").write_text(text, encoding="utf-8")
    return folder / "a.csv"


def columns(folder: Path, text: str) -> list[Column]:
    return read(write(folder, text))


def read(path: Path, names: Sequence[str] = (), known: dict | None = None) -> list[Column]:
    file = File(path)
    found, problems = read_columns(file, file.table(), names or file.names, known)
    if problems:
        raise DataError("\n".join(problems))
    return found


@pytest.mark.parametrize(
    ("cells", "kind", "levels"),
    [
        ("1 2 -3e4 0.5", "number", ()),
        ("1 NA n/a -", "number", ()),
        ("yes No YES ?", "boolean", ()),
        ("t f t f", "boolean", ()),
        ("ja nein YES no", "boolean", ()),
        ("N F N F", "category", ("F", "N")),  # both were 0
        ("y T y T", "category", ("T", "y")),
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
    assert column.values.shape == (4,)
    missing = sum(cell.lower() in ("na", "n/a", "-", "?", "null") for cell in cells.split())
    assert (~column.present).sum() == missing
    assert (f"missing in {missing} rows" in str(column)) == (missing > 0)


def test_a_column_whose_kind_is_known_is_not_guessed(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b,c,d\n1,1,u,\n2,0,v,\n3,,w,\n")
    kinds = {"a": "category", "b": "boolean", "c": "category", "d": "number"}
    a, b, c, d = read(path, "abcd", kinds)  # type: ignore[arg-type]
    assert a.levels == ("1", "2", "3") and a.values.tolist() == [0, 1, 2]
    assert b.kind == "boolean" and b.values.tolist() == [1, 0, 0] and b.present.tolist() == [True, True, False]
    assert c.levels == ("u", "v", "w")  # all different: by guess no feature
    assert not d.present.any()
    for kind, what in (("boolean", "line 3: a is '2', not a truth value"), ("number", "line 2: c is 'u'")):
        with pytest.raises(DataError, match=what):
            read(path, "a" if kind == "boolean" else "c", dict.fromkeys("ac", kind))  # type: ignore[arg-type]


def test_codes_are_texts_wherever_they_come_first(tmp_path: Path) -> None:
    """Behind the rows that are looked at, 01067 was the number 1067."""
    zips = ["53113", "10115"] * 600 + ["01067"]
    (column,) = columns(tmp_path, "zip\n" + "\n".join(zips) + "\n")
    assert (column.kind, column.levels) == ("category", ("01067", "10115", "53113"))
    (number,) = columns(tmp_path, "share\n" + "\n".join(["1", "0.5", "0"] * 400) + "\n")
    assert number.kind == "number"


def test_truth_values_may_be_written_as_numbers_with_a_point(tmp_path: Path) -> None:
    path = write(tmp_path, "a,b,c\n1.0,1.0,1\n,0.0,0\n0.0,yes,0\n")
    (guessed,) = read(path, "a")
    known = read(path, "abc", dict.fromkeys("abc", "boolean"))  # type: ignore[arg-type]
    assert guessed.kind == "boolean" and guessed.present.tolist() == [True, False, True]
    assert [column.values.tolist() for column in known] == [guessed.values.tolist(), [1, 0, 1], [1, 0, 0]]


def test_all_columns_that_cannot_be_read_are_named_but_not_without_end(tmp_path: Path) -> None:
    names = [f"c{number}" for number in range(SHOWN + 3)]
    rows = [",".join(f"{name} {row}" for name in names) for row in range(4)]
    with pytest.raises(DataError) as caught:
        columns(tmp_path, "\n".join([",".join(names), *rows]) + "\n")
    lines = str(caught.value).split("\n")
    assert len(lines) == SHOWN + 1 and lines[-1].endswith("and 3 more columns")
    assert "c0 holds 4 different texts in 4 rows" in lines[0]


def test_of_very_many_columns_the_first_are_listed(tmp_path):
    names = [f"c{number}" for number in range(LISTED + 2)]
    found = columns(tmp_path, ",".join(names) + "\n" + ",".join("5" for _ in names) + "\n")
    assert in_lines(found[:2], "of edges: ") == ["of edges: c0 (a number)", "of edges: c1 (a number)"]
    assert in_lines(found)[LISTED - 1 :] == [f"c{LISTED - 1} (a number)", "and 2 more columns, which are read too"]


def test_a_column_with_many_mistakes_is_one_of_few(tmp_path):
    """Its lines were counted as columns."""
    cells = "".join(f"{number},{'inf' if number < 12 else number}\n" for number in range(30))
    with pytest.raises(DataError) as caught:
        columns(tmp_path, "a,b\n" + cells)
    assert str(caught.value).splitlines()[-1] == "and 2 more cells of b"


def test_rows_that_are_taken_are_called_as_in_their_file(tmp_path: Path) -> None:
    file = write(tmp_path, "x,y\n1,2\n\n3,4\n5,6\n")
    column, _ = read(file)
    assert column.taken(np.arange(3)) is column
    assert [column.at(row) for row in range(3)] == [f"{file}: line {line}" for line in (2, 4, 5)]
    taken = column.taken(np.array([2, 0]))
    assert taken.values.tolist() == [5, 1]
    assert [taken.at(row) for row in range(2)] == [f"{file}: line {line}" for line in (5, 2)]
