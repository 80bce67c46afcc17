"""A table of examples is read as a person would read it, or refused with all its problems in one message."""

from dataclasses import replace
from pathlib import Path

import pytest

from edgewise.data import examples as module
from edgewise.data.examples import Asked, Examples, read_examples
from edgewise.errors import DataError
from edgewise.tasks.own.molecules import molecule_table
from edgewise.tasks.own.texts import text_table

ASKED = Asked("texts", {"text": ("text", "review")})
PLAIN = "id,text,label\na,one,u\nb,two,v\n"


def read(place: Path, content: str | bytes, asked: Asked = ASKED, name: str = "t.csv") -> tuple[Examples, list[str]]:
    (place / name).write_bytes(content.encode() if isinstance(content, str) else content)
    problems: list[str] = []
    return read_examples(place / name, asked, problems), problems


def refused(place: Path, content: str, asked: Asked) -> None:
    _, problems = read(place, content, asked)
    raise DataError(*problems)


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (PLAIN, "t.csv"),
        (PLAIN.encode("utf-8-sig"), "t.csv"),
        (PLAIN.replace(",", "\t").encode("utf-16"), "t.tsv"),
        (PLAIN.replace(",", ";"), "t.csv"),
        (PLAIN.replace("one", '"one"').replace("\n", "\r\n"), "t.csv"),
        ("# by hand\n" + PLAIN, "t.csv"),
        (PLAIN + "a,one,u\n", "t.csv"),
        ("label,ID,Review\nu,a,one\nv,b,two\n", "t.csv"),
    ],
    ids=["plain", "mark", "utf-16", "semicolons", "quotes", "comment", "twice", "other names"],
)
def test_a_table_however_it_is_written(tmp_path, content: str | bytes, name: str) -> None:
    rows, problems = read(tmp_path, content, name=name)
    assert problems == [] and list(rows.names or ()) == ["a", "b"]
    assert rows.inputs == {"text": ["one", "two"]} and rows.targets == [["u", "v"]] and rows.called == ("label",)


def test_cells_keep_commas_quotes_and_lines(tmp_path) -> None:
    rows, _ = read(tmp_path, 'text,label\n"a, ""b""\nc",u\nd,v\n')
    assert rows.inputs["text"] == ['a, "b"\nc', "d"] and rows.names is None
    assert rows.at(1).endswith("line 4")


def test_decimal_commas_of_a_target_are_numbers(tmp_path) -> None:
    rows, _ = read(tmp_path, "text;label\na;1,5\nb;-2,25\nc;\nd;n/a\n")
    assert rows.targets == [["1.5", "-2.25", "", "n/a"]]


def test_rows_that_are_there_twice_are_read_once(tmp_path) -> None:
    rows, problems = read(tmp_path, "text,label\na,u\nb,v\na,u\na,v\n")
    assert rows.inputs["text"] == ["a", "b", "a"] and problems == []
    assert rows.names == ["0", "1", "3"] and "t.csv: 1 repeated row, read once" in rows.notes


def test_of_rows_to_be_predicted_each_has_an_answer(tmp_path) -> None:
    new = replace(ASKED, labelled=False)
    rows, problems = read(tmp_path, "text,price\na,1\nb,2\na,3\n", new)
    assert rows.inputs["text"] == ["a", "b", "a"] and rows.names is None and problems == []
    named, _ = read(tmp_path, "id,text\nx,a\ny,a\nx,a\n", new)
    assert named.names == ["x", "y"]


def test_a_table_without_rows_is_refused_by_its_name(tmp_path) -> None:
    for asked in (ASKED, replace(ASKED, labelled=False)):
        assert read(tmp_path, "id,text,label\n", asked)[1] == [f"{tmp_path / 't.csv'}: it has no texts"]
        assert "line 2 does not have 3 columns" in read(tmp_path, "id,text,label\na\n", asked)[1][0]


def test_all_problems_are_listed_at_once(tmp_path) -> None:
    content = "id,text,label,split\na,one,u,train\na,two,u,train\nb,,v,valid\nc,three\nd,four,u,tset\n,five,u,test\n"
    _, problems = read(tmp_path, content)
    told = "\n".join(problems)
    for part in (
        "line 3: 'a' is there twice, with other cells in line 2; give --task.id row where they are no names",
        "line 4: text has no text",
        "line 5 does not have 4 columns",
        "line 6: the split 'tset' is none of train, valid, test",
        "line 7: it has no name",
    ):
        assert part in told
    _, problems = read(tmp_path, "text,label\n" + "".join(f",u{n}\n" for n in range(80)))
    assert len(problems) == 11 and problems[-1] == "and 70 more such rows"


@pytest.mark.parametrize(
    ("content", "asked", "told"),
    [
        ("a,b\n1,2\n", ASKED, "none is called text. Give --task.text NAME"),
        ("text,review,label\na,b,u\n", ASKED, "text or review, which has the text?"),
        ("text,age,size\na,1,2\n", ASKED, "which columns are to be predicted, of age, size"),
        ("text,label\na,u\n", Asked("texts", {"text": ("text",)}, label=("x", "y")), "it lacks the columns x, y"),
        ("text,label\na,u\n", Asked("texts", {"text": ("text",)}, id="key"), "no column 'key' that names the texts"),
        ("text,label\na,u\n", Asked("texts", {"text": ("text",)}, {"text": "body"}), "no column 'body' with the text"),
        ("text,label\na,u\n", replace(ASKED, ignore=frozenset(["nmae"])), "no table has the columns nmae"),
        ("text,text,label\na,b,u\n", ASKED, "more than one column is called 'text'"),
        ("id,ID,text,label\na,b,one,u\n", ASKED, "it has the columns id and ID, and which is meant is a guess"),
        ("text,label,split,Split\na,u,train,test\n", ASKED, "it has the columns split and Split, and which is meant"),
    ],
)
def test_a_column_that_is_not_clear_is_asked_for(tmp_path, content: str, asked: Asked, told: str) -> None:
    with pytest.raises(DataError, match=told):
        refused(tmp_path, content, asked)


def test_columns_that_are_not_read_are_named(tmp_path) -> None:
    rows, _ = read(
        tmp_path, "Review,label,age,note\na,u,1,x\nb,v,2,y\n", Asked("texts", ASKED.inputs, ignore=frozenset(["age"]))
    )
    assert rows.notes == ("Review has the text", "not read: the columns note")


def test_hostile_sizes_are_refused(tmp_path, monkeypatch) -> None:
    with pytest.raises(DataError, match="longer than 1,048,576"):
        read(tmp_path, "text,label\n" + "x" * (1 << 21) + ",u\n")
    with pytest.raises(DataError, match="none is called text"):
        read(tmp_path, b"\x00" * 1000)
    monkeypatch.setattr(module, "MAX_ROWS", 3)
    with pytest.raises(DataError, match="4 rows, of at most 3"):
        read(tmp_path, "text,label\na,u\nb,u\nc,u\nd,u\n")
    with pytest.raises(DataError, match=r"read from a table that ends with \.csv"):
        read(tmp_path, PLAIN, name="t.xlsx")
    with pytest.raises(DataError):
        read_examples(tmp_path / "absent.csv", ASKED, [])


def test_a_table_that_is_not_there_is_asked_for_by_its_option(tmp_path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"^molecules\.csv: no such file: give --task\.file, a table of molecules$"):
        molecule_table()
    with pytest.raises(DataError, match=r"mine\.csv: no such file: give --task\.file, a table of texts$"):
        text_table(str(tmp_path / "mine.csv"))


def test_rows_that_have_labels_alone_all_stay(tmp_path) -> None:
    graphs = Asked("graphs")
    rows, problems = read(tmp_path, "label\nu\nv\nu\n", graphs)
    assert rows.targets == [["u", "v", "u"]] and rows.names is None and problems == []
    indexed, _ = read(tmp_path, ",id,split,mass\n0,a,train,1.5\n1,b,test,2.5\n", graphs)
    assert indexed.called == ("mass",) and "not read: the columns without a name" in indexed.notes
