"""Examples from a table: read as a person would read them, or refused with all their problems in one message; targets,
parts and scales are fitted to what trains."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from edgewise.data import examples as module
from edgewise.data.examples import (
    Asked,
    Edges,
    Examples,
    columns_of,
    ends_within,
    read_examples,
    read_members,
)
from edgewise.data.record import settle, targets_of
from edgewise.data.splits import How
from edgewise.data.table import Problems
from edgewise.errors import DataError
from edgewise.tasks import molecule_table, text_table

ASKED = Asked("texts", {"text": ("text", "review")})
PLAIN = "id,text,label\na,one,u\nb,two,v\n"
BOTH = replace(ASKED, label=("size", "kind"))


def read(place: Path, content: str | bytes, asked: Asked = ASKED, name: str = "t.csv") -> tuple[Examples, list[str]]:
    (place / name).write_bytes(content.encode() if isinstance(content, str) else content)
    problems: list[str] = []
    return read_examples(place / name, asked, problems), problems


def test_cells_keep_commas_quotes_and_lines_and_targets_lose_decimal_commas(tmp_path) -> None:
    rows, _ = read(tmp_path, 'text,label\n"a, ""b""\nc",u\nd,v\n')
    assert rows.inputs["text"] == ['a, "b"\nc', "d"] and rows.names is None and rows.at(1).endswith("line 4")
    rows, _ = read(tmp_path, "text;label\na;1,5\nb;-2,25\nc;\nd;n/a\n")
    assert rows.targets == [["1.5", "-2.25", "", "n/a"]]


def test_rows_that_are_there_twice_are_read_once_unless_each_needs_an_answer(tmp_path) -> None:
    rows, problems = read(tmp_path, "text,label\na,u\nb,v\na,u\na,v\n")
    assert rows.inputs["text"] == ["a", "b", "a"] and problems == []
    assert rows.names == ["0", "1", "3"] and "t.csv: 1 repeated row, read once" in rows.notes
    new = replace(ASKED, labelled=False)
    rows, problems = read(tmp_path, "text,price\na,1\nb,2\na,3\n", new)
    assert rows.inputs["text"] == ["a", "b", "a"] and rows.names is None and problems == []
    assert read(tmp_path, "id,text\nx,a\ny,a\nx,a\n", new)[0].names == ["x", "y"]
    rows, problems = read(tmp_path, "label\nu\nv\nu\n", Asked("graphs"))  # labels alone
    assert rows.targets == [["u", "v", "u"]] and rows.names is None and problems == []


def test_all_problems_are_listed_at_once(tmp_path) -> None:
    content = "id,text,label,split\na,one,u,train\na,two,u,train\nb,,v,valid\nc,three\nd,four,u,tset\n,five,u,test\n"
    told = "\n".join(read(tmp_path, content)[1])
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
    assert read(tmp_path, "id,text,label\n")[1] == [f"{tmp_path / 't.csv'}: it has no texts"]


@pytest.mark.parametrize(
    ("content", "asked", "told"),
    [
        ("a,b\n1,2\n", ASKED, "none is called text. Give --task.text NAME"),
        ("text,review,label\na,b,u\n", ASKED, "text or review, which has the text?"),
        ("text,age,size\na,1,2\n", ASKED, "which columns are to be predicted, of age, size"),
        ("text,label\na,u\n", replace(ASKED, label=("x", "y")), "it lacks the columns x, y"),
        ("text,label\na,u\n", replace(ASKED, id="key"), "no column 'key' that names the texts"),
        ("text,label\na,u\n", replace(ASKED, chosen={"text": "body"}), "no column 'body' with the text"),
        ("text,label\na,u\n", replace(ASKED, ignore=frozenset(["nmae"])), "no table has the columns nmae"),
        ("id,ID,text,label\na,b,one,u\n", ASKED, "it has the columns id and ID, and which is meant is a guess"),
        ("text,label,split,Split\na,u,train,test\n", ASKED, "it has the columns split and Split, and which is meant"),
    ],
)
def test_a_column_that_is_not_clear_is_asked_for(tmp_path, content: str, asked: Asked, told: str) -> None:
    with pytest.raises(DataError, match=told):
        raise DataError(*read(tmp_path, content, asked)[1])


def test_columns_that_are_not_read_are_named(tmp_path) -> None:
    asked = replace(ASKED, ignore=frozenset(["age"]))
    rows, _ = read(tmp_path, "Review,label,age,note,\na,u,1,x,1\nb,v,2,y,2\n", asked)
    assert rows.notes == ("Review has the text", "not read: the columns note, without a name")


def test_hostile_sizes_and_other_files_are_refused(tmp_path, monkeypatch) -> None:
    with pytest.raises(DataError, match="longer than 1,048,576"):
        read(tmp_path, "text,label\n" + "x" * (1 << 21) + ",u\n")
    with pytest.raises(DataError, match="none is called text"):
        read(tmp_path, b"\x00" * 1000)
    monkeypatch.setattr(module, "MAX_ROWS", 3)
    with pytest.raises(DataError, match="4 rows, of at most 3"):
        read(tmp_path, "text,label\na,u\nb,u\nc,u\nd,u\n")
    with pytest.raises(DataError, match=r"read from a table that ends with \.csv"):
        read(tmp_path, PLAIN, name="t.xlsx")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=r"^molecules\.csv: no such file: give --task\.file, a table of molecules$"):
        molecule_table()
    with pytest.raises(DataError, match=r"mine\.csv: no such file: give --task\.file, a table of texts$"):
        text_table(str(tmp_path / "mine.csv"))


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("b,x,1\na,y,2\nb,x,9", "line 4: 'x' of 'b' is there twice, with other cells in line 2"),
        ("b,x,7\na,y,2\nb,x,", "line 4: 'x' of 'b' is there twice, with other cells in line 2"),
        ("b,x,1\na,,2", "line 3: the row has no name"),
        ("b,x,1\na,y,2\nc,z,3", "line 4: there is no graph 'c'"),
        ("b,x,1", "the graph 'a' has no rows"),
    ],
)
def test_rows_of_examples_that_do_not_fit_are_named(tmp_path, text: str, told: str) -> None:
    (tmp_path / "n.csv").write_text(f"graph,id,size\n{text}\n", encoding="utf-8")
    problems: list[str] = []
    read_members(tmp_path / "n.csv", ["a", "b"], "graph", "", Asked("graphs"), problems)
    assert len(problems) == 1 and problems[0].endswith(told)


def test_rows_come_by_example_and_edges_name_them_there(tmp_path) -> None:
    (tmp_path / "n.csv").write_text(",graph,id,size\n0,b,x,1\n1,a,x,2\n2,b,x,1\n3,a,z,3\n4,b,y,4\n", encoding="utf-8")
    (tmp_path / "e.csv").write_text("graph,from,to\nb,x,y\na,z,x\nb,x,q\n", encoding="utf-8")
    problems, wrong, asked = list[str](), Problems(), Asked("graphs")
    members = read_members(tmp_path / "n.csv", ["a", "b"], "graph", "", asked, problems)
    assert problems == [] and members.names == ["x", "z", "x", "y"] and members.groups == ["a", "a", "b", "b"]
    assert members.sizes.tolist() == [2, 2] and members.columns[0].values.tolist() == [2, 3, 1, 4]
    assert "n.csv: 1 repeated row, read once" in members.notes
    links = [Edges(tmp_path / "e.csv", (), "graph")]
    ends = ends_within(links, members, asked, wrong)
    assert ends.tolist() == [[2, 1, 2], [3, 0, -1]] and columns_of(links, asked) == ([], [])
    assert wrong.sentences() == (f"{tmp_path / 'e.csv'}: line 4: there is no node 'b / q'",)
    with pytest.raises(DataError, match=r"none is called cloud\. Give --task\.cloud NAME"):
        read_members(tmp_path / "n.csv", ["a"], "cloud", "", asked, [])


def texts(place: Path, rows: list[str], asked: Asked = BOTH) -> Examples:
    return read(place, "\n".join(["id,text,size,kind", *rows]) + "\n", asked)[0]


def gapped(count: int = 30) -> list[str]:
    return [
        f"n{n},text {n % 10},{'' if n % 3 == 0 else n + 0.5},{'' if n % 4 == 0 else 'uv'[n % 2]}" for n in range(count)
    ]


def test_what_trains_alone_gives_the_scales_and_equal_texts_stay_together(tmp_path) -> None:
    rows = texts(tmp_path, gapped())
    own = settle(rows, "", "auto", How(), rows.inputs["text"])
    assert [target.kind for target in own.fitted.targets] == ["number", "class"] and own.changes == ()
    values = torch.tensor([n + 0.5 for n in own.splits["train"].tolist() if n % 3], dtype=torch.float64)
    assert own.fitted.scales[0] == pytest.approx((values.mean().item(), values.std(correction=0).item()))
    parts = {split: {rows.inputs["text"][row] for row in chosen.tolist()} for split, chosen in own.splits.items()}
    assert not parts["train"] & parts["test"] and not parts["train"] & parts["valid"]
    assert sum(map(len, own.splits.values())) == sum(n % 3 != 0 or n % 4 != 0 for n in range(30))  # n12 has no target


@pytest.mark.parametrize(
    ("rows", "told"),
    [
        (
            [*gapped(), "m1,a,about 3,u", "m2,b,inf,u"],
            r"size holds numbers with fractions, and 'about 3', 'inf': empty",
        ),
        (
            [f"n{n},t,{n},name {n}" for n in range(30)],
            "size: 30 different whole numbers in 30 texts.*\n.*kind: 30 labels of 30 texts differ",
        ),
    ],
)
def test_all_doubtful_targets_are_named(tmp_path, rows: list[str], told: str) -> None:
    with pytest.raises(DataError, match=told):
        targets_of(texts(tmp_path, rows), "auto")
    assert {target.kind for target in targets_of(texts(tmp_path, rows), "class")} == {"class"}


def test_what_cannot_be_learned_is_refused_or_said(tmp_path) -> None:
    asked = replace(ASKED, label=("kind",))
    with pytest.raises(DataError, match="kind: all labels are 'u': one class leaves nothing to learn"):
        settle(texts(tmp_path, [f"n{n},t{n},1,u" for n in range(30)], asked), "", "auto", How())
    splits = {"train": torch.arange(12), "valid": torch.arange(12, 16), "test": torch.arange(16, 30)}
    rows = texts(tmp_path, [f"n{n},t{n},1,{'uvw'[n // 10]}" for n in range(30)], asked)
    said = settle(replace(rows, splits=splits), "", "auto", How()).changes
    assert said == ("kind: no text that trains is of the class w",)
    rare = texts(tmp_path, [f"n{n},t{n},{n + 0.5 if n > 20 else ''},{'uv'[n % 2]}" for n in range(30)])
    with pytest.raises(DataError, match="size: no text that trains has a label"):
        settle(replace(rare, splits=splits), "", "auto", How())
