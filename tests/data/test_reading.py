"""Tables from a folder."""

import pytest

from edgewise.data.reading import File, find_table, find_tables, names_in, pieces
from edgewise.errors import DataError

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")


def parquet(folder, **columns):
    pq.write_table(pa.table(columns), folder / "nodes.parquet")
    return folder / "nodes.parquet"


def test_the_one_of_two_files_that_is_meant_is_not_guessed(tmp_path):
    assert find_table(tmp_path, "nodes") is None
    path = parquet(tmp_path, size=[1])
    assert find_table(tmp_path, "nodes") == path
    (tmp_path / "nodes.csv").write_text("size\n1\n")
    with pytest.raises(DataError, match=r"nodes\.csv and nodes\.parquet: leave one"):
        find_table(tmp_path, "nodes")


def test_edges_may_be_in_several_files(tmp_path):
    assert find_tables(tmp_path, "edges") == []
    for name in ("edges-work.csv", "edges_home.tsv", "edges.csv", "edgestone.csv", "edges-a.txt"):
        (tmp_path / name).touch()
    assert [path.name for path in find_tables(tmp_path, "edges")] == ["edges.csv", "edges-work.csv", "edges_home.tsv"]


def test_names_of_files_may_have_capitals(tmp_path):
    (tmp_path / "Nodes.CSV").write_text("a\n1\n")
    (tmp_path / "EDGES-work.Tsv").write_text("a\n1\n")
    assert find_table(tmp_path, "nodes") == tmp_path / "Nodes.CSV"
    assert find_tables(tmp_path, "edges") == [tmp_path / "EDGES-work.Tsv"]
    path = parquet(tmp_path, size=[1]).rename(tmp_path / "ages.PARQUET")
    assert File(path).names == ["size"] and next(pieces(path, ["size"])).columns["size"].tolist() == [1]


def test_columns_without_a_name_may_be_several(tmp_path):
    (tmp_path / "a.csv").write_text("a,b,,\n1,2,,\n")
    assert File(tmp_path / "a.csv").table().columns["b"].tolist() == [2]


def test_names_come_before_columns(tmp_path):
    (tmp_path / "a.csv").write_text(" a ;b\n1;007\n2;008\n", encoding="utf-8")
    file = File(tmp_path / "a.csv")
    assert file.names == ["a", "b"]
    assert file.table().columns["b"] == ["007", "008"] and file.table(guess=False).columns["b"].tolist() == [7, 8]
    assert File(parquet(tmp_path, size=[1], name=["x"])).names == ["size", "name"]


def test_pieces_find_out_how_a_file_is_written(tmp_path):
    (tmp_path / "a.csv").write_text("a\tb\n1\t2\n", encoding="utf-16")
    (piece,) = pieces(tmp_path / "a.csv", ["a"])
    assert piece.numbers("b").tolist() == [2]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r"])
def test_a_line_of_names_may_be_longer_than_a_sample(tmp_path, end):
    names = [f"ENSG{number:011}" for number in range(10_000)]
    rows = [";".join(["a", *["0,5"] * (len(names) - 2), "007"])] * 9
    (tmp_path / "a.csv").write_bytes((end.join([";".join(names), *rows, ""])).encode())
    file = File(tmp_path / "a.csv")
    assert file.names == names_in(file.path) == names
    assert file.dialect.commas == {*names[1:-1]} and file.dialect.texts == {names[0], names[-1]}
    (piece,) = pieces(file.path, names, names[:1])
    assert len(piece) == 9 and piece.numbers(names[-2]).tolist() == [0.5] * 9


def test_the_names_of_a_files_columns_need_no_rows(tmp_path):
    (tmp_path / "a.csv").write_text("# of 2024\nNode;size\n1;2\n")
    assert names_in(tmp_path / "a.csv") == ["Node", "size"]
    assert names_in(parquet(tmp_path, size=[1], age=[2])) == ["size", "age"]
    (tmp_path / "torn.parquet").write_bytes(b"PAR1")
    for file, message in (("torn.parquet", "not a Parquet file"), ("b.csv", "cannot be read")):
        with pytest.raises(DataError, match=message):
            names_in(tmp_path / file)


def test_commas_in_a_tsv_file_with_one_column_are_its_texts_own(tmp_path) -> None:
    path = tmp_path / "new.tsv"
    path.write_text("text\nGood, really\nBad\n", encoding="utf-8")
    assert names_in(path) == File(path).names == ["text"]
    for table in (File(path).table(), *pieces(path, ["text"], ["text"])):
        assert table.texts("text") == ["Good, really", "Bad"]
