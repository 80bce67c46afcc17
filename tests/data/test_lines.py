"""CSV files, whole and in pieces."""

import gc

import pytest

from edgewise.data import reading
from edgewise.data.reading import File, pieces, read_table
from edgewise.data.table import SHOWN
from edgewise.errors import DataError


def test_a_piece_of_wide_texts_ends_early(tmp_path, monkeypatch):
    monkeypatch.setattr("edgewise.data.lines.WIDE", 1000)
    path = tmp_path / "a.csv"
    path.write_text("node,size\n" + "".join(f"{'a' * 300}{number},{number}\n" for number in range(20)))
    parts = list(pieces(path, ["node"], texts=["node"]))
    assert [len(part) for part in parts] == [4, 4, 4, 4, 4]
    assert [value for part in parts for value in part.numbers("size")] == list(range(20))
    assert parts[1].at(0).endswith("line 6")
    assert len(read_table(path, ["node"], texts=["node"])) == 20


def test_rows_of_a_csv_file_are_no_work_for_the_garbage_collector(tmp_path):
    """A list for each row would be visited many times: three quarters of the time of a long file."""
    path = tmp_path / "long.csv"
    path.write_text("a,b\n" + "1,2\n" * 30_000)
    gc.collect()
    before = gc.get_stats()[0]["collections"]
    assert sum(len(piece) for piece in pieces(path, ("a", "b"))) == 30_000
    assert gc.get_stats()[0]["collections"] - before < 10


def test_rows_of_another_length_are_all_named_but_not_without_end(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n" + "3\n" * 12 + "4,5\n", encoding="utf-8")
    read = File(path).table()
    assert read.numbers("a").tolist() == [1, 4] and read.at(1) == f"{path}: line 15"
    assert read.problems[0] == f"{path}: line 3 does not have 2 columns" and len(read.problems) == SHOWN + 1
    assert read.problems[-1] == "and 2 more such rows"
    with pytest.raises(DataError, match="line 3 does not have 2 columns"):
        read_table(path, [])
    with pytest.raises(DataError, match="line 3 does not have 2 columns"):
        list(pieces(path, []))


def test_quotation_marks_that_swallow_rows_are_no_marks_around_cells(tmp_path, monkeypatch):
    path = tmp_path / "a.tsv"
    rows = [f"x{n}\ty{n}\n" for n in range(9)]
    rows[2], rows[6] = '"x2\ty2\n', 'x6"\ty6\n'
    path.write_text("a\tb\n" + "".join(rows), encoding="utf-8")
    table = File(path).table(texts=("a", "b"))
    assert table.texts("a")[2:7:4] == ['"x2', 'x6"'] and len(table) == 9
    assert table.notes == ("a.tsv: separated by '\\t', quotation marks as characters of cells",)
    monkeypatch.setattr(reading, "BEGINNING", 16)  # they come later
    with pytest.raises(DataError, match=r"a\.tsv: quotation marks make one row of the lines 4 to 8: remove the two"):
        list(pieces(path, [], ("a", "b")))


def test_cells_that_are_no_numbers_are_known_from_those_without_a_value(tmp_path):
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\nNA,x\n,inf\n", encoding="utf-8")
    read = File(path).table(guess=False)
    assert read.wrong == {"a": (1, "NA"), "b": (1, "x")} and read.strange == {"b": [(1, "x"), (2, "inf")]}


@pytest.mark.parametrize(
    ("first", "later", "said"),
    [
        ("1;5", "1,234;5", "a is '1,234'"),  # were it among the first, it would be 1.234
        ("1;5", "12 345;1,234 %", "b is '1,234 %'"),
        ("1,5;5", "2.5;5", "a is '2.5'"),
        ("1,5;5", "2,5;1.234", "b is '1.234'"),
    ],
)
def test_a_later_number_has_the_decimal_sign_of_the_first_ones(tmp_path, first: str, later: str, said: str):
    path = tmp_path / "long.csv"
    path.write_text("a;b\n" + f"{first}\n" * 1500 + f"{later}\n" + f"{first}\n")
    table = File(path).table()
    ((name, problem),) = table.doubtful.items()
    assert problem.startswith(f"{path}: line 1502: {said}, which is one number or another: give it a decimal")
    for read in (table.numbers, table.texts, next(pieces(path, ["a"])).numbers):
        with pytest.raises(DataError, match=f"line 1502: {said}"):
            read(name)
    assert not table.problems and len(table.texts("ab".replace(name, ""))) == 1502  # whoever reads the other may


@pytest.mark.parametrize(("first", "later"), [("1.5;5", "1,234;1,234"), ("1,5;5", "1.234,5;2,5"), ("x;5", "1,234;7")])
def test_a_later_number_may_be_written_as_the_first_ones_are(tmp_path, first: str, later: str):
    path = tmp_path / "long.csv"
    path.write_text("a;b\n" + f"{first}\n" * 1500 + f"{later}\n")
    assert not File(path).table().doubtful


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
    path = tmp_path / "a.csv"
    path.write_text("a,b\n" + "".join(f"{cell},1\n" for cell in cells), encoding="utf-8")
    table = File(path).table()
    assert [*table.numbers("b")] == [1] * len(cells)
    if said is None:
        assert not table.doubtful
    else:
        assert table.doubtful["a"].startswith(f"{path}: {said}")
