"""Tables: cells are read as they stand, rows are called as in their file, and what is wrong is named."""

import gc
from pathlib import Path

import numpy as np
import polars
import pytest

from edgewise.data import table as module
from edgewise.data.table import (
    SHOWN,
    Called,
    Problems,
    Table,
    find_table,
    find_tables,
    names_in,
    numbers_of,
    pieces,
    read_table,
    unread,
)
from edgewise.errors import DataError


def write(folder: Path, text: str | bytes, name: str = "a.csv") -> Path:
    (folder / name).write_bytes(text.encode() if isinstance(text, str) else text)
    return folder / name


def test_a_csv_file_whole_and_in_pieces(tmp_path) -> None:
    path = write(tmp_path, '\ufeffname,size,,\n"a, b",1,,\n\n c ,2.5,,\n')
    for table in (read_table(path, ["size"]), *pieces(path, ["size"])):
        assert table.header == ["name", "size", "", ""] and len(table) == 2
        assert table.cells("name") == ["a, b", " c "] and table.cells("size") == ["1", "2.5"]
        assert table.texts("name") == ["a, b", "c"] and table.numbers("size").tolist() == [1, 2.5]
        assert table.at(1) == f"{path}: line 4"  # the empty line counts
        with pytest.raises(DataError, match="line 2: name is 'a, b', not a finite number"):
            table.numbers("name")
    with pytest.raises(DataError, match=r"its columns are name, size, , ; expected weight"):
        read_table(path, ["weight"])
    for name, message in (("torn.parquet", "not a Parquet file"), ("absent.csv", "cannot be read")):
        (tmp_path / "torn.parquet").write_bytes(b"PAR1")
        with pytest.raises(DataError, match=message):
            names_in(tmp_path / name)


def test_a_number_has_no_underscore_and_thousands_are_parted_alike(tmp_path) -> None:
    """Python reads 1_2 as 12, so that names of districts became numbers."""
    with pytest.raises(DataError, match="line 3: ward is '1_2', not a finite number"):
        read_table(write(tmp_path, "ward\n1\n1_2\n")).numbers("ward")
    assert numbers_of(["1.234", "1.234,5", "0.125", "-1.234 %"], comma=True).tolist() == [1234, 1234.5, 0.125, -1234]
    assert numbers_of(["1.234", "2.5"], comma=True).tolist() == [1234, 2.5]
    assert np.isnan(numbers_of(["0,125", "01,234", "1,5", "1_000.5"])).all()


def test_a_floating_number_beyond_all_its_digits_is_no_name() -> None:
    columns = {"id": polars.Series([1.0, 2.0**60]), "n": polars.Series([1, 1 << 60])}
    table = Table(Path("a.parquet"), ["id", "n"], columns, ("row", range(2)))
    assert table.names("n") == ["1", str(1 << 60)] and table.texts("id") == table.names("n")
    with pytest.raises(DataError, match=r"a\.parquet: row 1: id is 1152921504606846976, a floating number, which has"):
        table.names("id")
    narrow = {"id": polars.Series([1, 2**24 - 1, 2**24], dtype=polars.Float32)}
    with pytest.raises(DataError, match=r"row 2: id is 16777216, a floating number, which has lost digits"):
        Table(Path("a.parquet"), ["id"], narrow, ("row", range(3))).names("id")


def test_rows_are_the_same_by_what_their_cells_say(tmp_path) -> None:
    table = read_table(write(tmp_path, "a,b\n1,NA\n1.0,\n2,x\n"))
    assert table.same(0, 1, "ab") and not table.same(0, 2, "a") and not table.same(1, 2, "b")


def test_columns_that_differ_in_capitals_alone_are_no_guess() -> None:
    columns = Called(Path("a.csv"), ["id", "ID", "Split", "x", "X", "Node id"], {"X"})
    assert columns["split"] == "Split" and columns["x"] == "x" and "id" in columns and columns["node_id"] == "Node id"
    with pytest.raises(DataError, match=r"a\.csv: it has the columns id and ID, and which is meant is a guess"):
        columns["id"]


def test_files_of_a_folder(tmp_path) -> None:
    assert find_table(tmp_path, "nodes") is None and find_tables(tmp_path, "edges") == []
    for name in ("Nodes.CSV", "edges-work.csv", "EDGES_home.Tsv", "edges.csv", "edgestone.csv", "edges-a.txt"):
        (tmp_path / name).touch()
    assert find_table(tmp_path, "nodes") == tmp_path / "Nodes.CSV"
    assert [path.name for path in find_tables(tmp_path, "edges")] == ["edges.csv", "EDGES_home.Tsv", "edges-work.csv"]
    (tmp_path / "nodes.parquet").touch()
    with pytest.raises(DataError, match=r"Nodes\.CSV and nodes\.parquet: leave one"):
        find_table(tmp_path, "nodes")
    for number in range(20):
        (tmp_path / f"c{number:02}").touch()
    assert unread(tmp_path, [])[0].endswith("c07 and 17 more") and unread(tmp_path, [*tmp_path.iterdir()]) == ()


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_line_of_names_may_be_longer_than_a_sample(tmp_path, end: str) -> None:
    names = [f"ENSG{number:011}" for number in range(10_000)]
    rows = [";".join(["a", *["0,5"] * (len(names) - 2), "007"])] * 9
    path = write(tmp_path, end.join([";".join(names), *rows, ""]))
    (piece,) = pieces(path, names)
    assert piece.header == names_in(path) == names
    assert piece.commas == {*names[1:-1]} and piece.dialect.texts == {names[0], names[-1]}
    assert len(piece) == 9 and piece.numbers(names[-2]).tolist() == [0.5] * 9


def test_a_piece_of_wide_texts_ends_early(tmp_path, monkeypatch) -> None:
    monkeypatch.setattr(module, "WIDE", 1000)
    path = write(tmp_path, "node,size\n" + "".join(f"{'a' * 300}{number},{number}\n" for number in range(20)))
    parts = list(pieces(path, ["node"]))
    assert [len(part) for part in parts] == [4, 4, 4, 4, 4] and parts[1].at(0).endswith("line 6")
    assert [value for part in parts for value in part.numbers("size")] == list(range(20)) and len(
        read_table(path)
    ) == 20


def test_rows_of_a_csv_file_are_no_work_for_the_garbage_collector(tmp_path) -> None:
    """A list for each row would be visited many times: three quarters of the time of a long file."""
    path = write(tmp_path, "a,b\n" + "1,2\n" * 30_000)
    next(pieces(path))
    gc.collect()
    before = gc.get_stats()[0]["collections"]
    assert sum(len(piece) for piece in pieces(path, ("a", "b"))) == 30_000
    assert gc.get_stats()[0]["collections"] - before < 10


def test_rows_of_another_length_are_all_named_but_not_without_end(tmp_path) -> None:
    path = write(tmp_path, "a,b\n1,2\n" + "3\n" * 12 + "4,5\n")
    read = read_table(path, whole=False)
    assert read.numbers("a").tolist() == [1, 4] and read.at(1) == f"{path}: line 15"
    assert read.problems[0] == f"{path}: line 3 does not have 2 columns" and len(read.problems) == 12
    told = Problems(read.problems).sentences()
    assert len(told) == SHOWN + 1 and told[-1] == "and 2 more such rows"
    for reading in (read_table, lambda path: list(pieces(path))):
        with pytest.raises(DataError, match="line 3 does not have 2 columns"):
            reading(path)


def test_quotation_marks_that_swallow_rows_are_no_marks_around_cells(tmp_path, monkeypatch) -> None:
    rows = [f"x{n}\ty{n}\n" for n in range(9)]
    rows[2], rows[6] = '"x2\ty2\n', 'x6"\ty6\n'
    path = write(tmp_path, "a\tb\n" + "".join(rows), "a.tsv")
    table = read_table(path)
    assert table.texts("a")[2:7:4] == ['"x2', 'x6"'] and len(table) == 9
    assert table.notes == ("a.tsv: separated by '\\t', quotation marks as characters of cells",)
    monkeypatch.setattr(module, "BEGINNING", 16)  # they come later
    with pytest.raises(DataError, match=r"a\.tsv: quotation marks make one row of the lines 4 to 8: remove the two"):
        list(pieces(path))


@pytest.mark.parametrize(
    ("first", "later", "said"),
    [
        ("1;5", "1,234;5", "a is '1,234'"),  # were it among the first, it would be 1.234
        ("1;5", "12 345;1,234 %", "b is '1,234 %'"),
        ("1,5;5", "2.5;5", "a is '2.5'"),
        ("1,5;5", "2,5;1.234", "b is '1.234'"),
        ("1.5;5", "1,234;1,234", ""),
        ("1,5;5", "1.234,5;2,5", ""),
        ("x;5", "1,234;7", ""),
    ],
)
def test_a_later_number_has_the_decimal_sign_of_the_first_ones(tmp_path, first: str, later: str, said: str) -> None:
    path = write(tmp_path, "a;b\n" + f"{first}\n" * 1500 + f"{later}\n" + f"{first}\n")
    table, piece = read_table(path), next(pieces(path))
    name = said[:1]
    for other in "ab".replace(name, "") if said else "ab":
        assert len(table.texts(other)) == len(piece.texts(other)) == 1502  # whoever reads the other may
    for read in (table.numbers, table.texts, piece.numbers) if said else ():
        with pytest.raises(DataError, match=f"line 1502: {said}, which is one number or another: give it a decimal"):
            read(name)


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        (["0.5", "12%"], "line 3: a is '12%', and numbers before it have no %: give all of them one, or none"),
        (["12 %", "NA", "0.5"], "line 4: a is '0.5', and numbers before it have a %"),
        ([*["7"] * 70_000, "7%"], "line 70002: a is '7%', and numbers before it have no %"),  # in another piece
        (["12%", "", "13 %"], None),
        (["low", "mid", "high", "12%", "7"], None),  # texts
    ],
)
def test_numbers_of_a_column_all_have_a_percent_sign_or_none(tmp_path, cells: list[str], said: str | None) -> None:
    path = write(tmp_path, "a,b\n" + "".join(f"{cell},1\n" for cell in cells))
    for read in (lambda: [read_table(path)], lambda: pieces(path)):
        assert sum(int(table.numbers("b").sum()) for table in read()) == len(cells)
        if said is None:
            assert sum(len(table.texts("a")) for table in read()) == len(cells)
        else:
            with pytest.raises(DataError, match=said):
                [table.texts("a") for table in read()]


def test_objects_of_json_in_lines_are_a_table(tmp_path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text(
        '{"id": 7, "age": 3}\n\n{"id": "b", "age": null, "on": true}\n{"id": "c", "age": 1.5, "list": [1]}\n'
    )
    read = read_table(path)
    assert [*read.header] == names_in(path) == ["id", "age", "on", "list"] and read.at(1) == f"{path}: line 3"
    assert read.texts("id") == ["7", "b", "c"] and read.texts("on") == ["", "true", ""]
    assert read.values("age")[[0, 2]].tolist() == [3.0, 1.5] and read.texts("age")[1] == ""
    with pytest.raises(DataError, match="the column 'list' holds lists or objects, not numbers or texts"):
        read.texts("list")
    with pytest.raises(DataError, match="'list' is in no line before line 4: name it in the first, if as null"):
        list(pieces(path, rows=2))
    path.write_text('{"a": 1}\n[2]\n{"a": 3}\n{"a": 4\n')
    assert read_table(path, whole=False).values("a").tolist() == [1, 3]
    with pytest.raises(DataError, match=r"line 2 is no object of JSON, as \{\"age\": 3\}\n.*line 4"):
        read_table(path)
