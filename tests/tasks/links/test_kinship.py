"""Families whose facts follow from one another, and folders of facts."""

from pathlib import Path

import pytest

from edgewise.errors import DataError
from edgewise.tasks import kinship, knowledge_folder
from edgewise.tasks.links.knowledge import RELATIONS


def test_kinships_are_those_that_follow_from_parents_and_couples() -> None:
    task = kinship(families=6)
    facts = {tuple(fact) for split in task.splits.values() for fact in split.tolist()}
    by: dict[str, set[tuple[int, int]]] = {name: set() for name in RELATIONS}
    for a, r, b in facts:
        by[RELATIONS[r]].add((a, b))
    assert all(by.values()) and len(facts) == sum(map(len, by.values()))

    def union(*names: str) -> set[tuple[int, int]]:
        return set().union(*(by[name] for name in names))

    def inverse(pairs: set[tuple[int, int]]) -> set[tuple[int, int]]:
        return {(b, a) for a, b in pairs}

    parent, couple, sibling = union("father", "mother"), union("husband", "wife"), union("brother", "sister")
    assert inverse(by["husband"]) == by["wife"] and inverse(parent) == union("son", "daughter")
    assert inverse(sibling) == sibling and inverse(union("uncle", "aunt")) == union("nephew", "niece")
    assert sibling == {(a, c) for a, b in parent for c, d in parent if b == d and a != c}
    blood = {(a, c) for a, b in parent for d, c in sibling if d == b}
    assert union("uncle", "aunt") == blood | {(a, d) for a, b in blood for c, d in couple if c == b}
    men = {b for name in ("husband", "father", "son", "brother", "uncle", "nephew") for _, b in by[name]}
    women = {b for name in ("wife", "mother", "daughter", "sister", "aunt", "niece") for _, b in by[name]}
    assert not men & women and len(men | women) == task.count


def write(folder: Path, **files: str) -> str:
    for name, text in files.items():
        (folder / f"{name}.txt").write_text(text, encoding="utf-8")
    return str(folder)


def test_three_files_are_three_parts(tmp_path: Path) -> None:
    folder = write(
        tmp_path,
        train="\ufeffrose\tis a\tflower\ntulip\tis a\tflower\nrose\tlikes\ttulip\nlily\tis a\tflower\n\n",
        valid="rose\tis a\tflower\ntulip\tlikes\trose\n",
        test="tulip\tis a\tflower\n",
    )
    task = knowledge_folder(folder, width=4)
    assert set(task.facts.entities) == {"rose", "tulip", "lily", "flower"} and set(task.facts.relations) == {
        "is a",
        "likes",
    }
    told = {
        split: {(task.facts.entities[a], task.facts.relations[r], task.facts.entities[b]) for a, r, b in part.tolist()}
        for split, part in task.splits.items()
    }
    assert told == {
        "test": {("tulip", "is a", "flower")},
        "valid": {("rose", "is a", "flower"), ("tulip", "likes", "rose")},
        "train": {("rose", "likes", "tulip"), ("lily", "is a", "flower")},
    }


def test_one_file_is_cut(tmp_path: Path) -> None:
    lines = "".join(f"a{n}\tnext\ta{n + 1}\n" for n in range(20))
    folder = write(tmp_path, facts=lines)
    first, again, other = (knowledge_folder(folder, fold=fold) for fold in (0, 0, 1))
    assert [len(first.splits[split]) for split in ("train", "valid", "test")] == [16, 2, 2]
    assert first.splits["test"].equal(again.splits["test"]) and not first.splits["test"].equal(other.splits["test"])
    assert "21 entities, 1 relations" in first.summary[0]
    odd = lines.replace("a3\t", "a\u20283\t").replace("\n", "\r\n")  # a name with what ends a line to str.splitlines
    (tmp_path / "facts.txt").write_bytes(odd.encode("utf-16"))
    assert "a\u20283" in knowledge_folder(folder).facts.entities


def test_a_first_line_that_names_the_columns_is_no_fact(tmp_path: Path) -> None:
    lines = "".join(f"a{n}\tnext\ta{n + 1}\n" for n in range(20))
    task = knowledge_folder(write(tmp_path, facts="Subject\tPredicate\tObject\n" + lines))
    assert task.facts.relations == ("next",) and len(task.facts.entities) == 21
    assert task.summary[1:] == ("facts.txt: its first line names the columns: Subject, Predicate, Object",)
    unsure = knowledge_folder(write(tmp_path, facts="head\trelation\ttail\n" + lines + "a1\thas\thead\n"))
    assert {"relation", "next", "has"} == {*unsure.facts.relations} and len(unsure.summary) == 1
    (tmp_path / "facts.txt").unlink()
    parts = {"train": "head\trelation\ttail\n" + lines, "valid": "a1\tnext\ta3\n", "test": "a2\tnext\ta4\n"}
    assert knowledge_folder(write(tmp_path, **parts)).facts.relations == ("next",)
    parts |= {"valid": "a1\tnext\tnew\n", "test": "a2\tfar\ta4\n"}
    told = knowledge_folder(write(tmp_path, **parts)).summary[-2:]
    assert [line.partition(":")[0] for line in told] == ["1 fact of valid", "1 fact of test"]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, r"lacks train.txt, valid.txt, test.txt: it needs"),
        ({"train": "a\tr\tb\n"}, r"lacks valid.txt, test.txt"),
        ({"facts": "a\tr\tb\n", "train": "a\tr\tb\n"}, r"leave one file, or three"),
        ({"facts": "a\tr\tb\na b\n\tr\tc\n"}, r"facts.txt: a fact is a head.* not line 2: 'a b'; line 3: "),
        ({"facts": "a\tr\tb\n"}, r"has no facts in valid"),
    ],
)
def test_folders_that_do_not_fit_are_said(tmp_path: Path, files: dict[str, str], message: str) -> None:
    with pytest.raises(DataError, match=message):
        knowledge_folder(write(tmp_path, **files))
    with pytest.raises(DataError, match=r"elsewhere: no such folder: give --task\.folder"):
        knowledge_folder(str(tmp_path / "elsewhere"))


def test_bytes_that_are_no_text_are_refused(tmp_path: Path) -> None:
    (tmp_path / "facts.tsv").write_bytes(b"a\tr\t\xff\xfe\n")
    with pytest.raises(DataError, match=r"facts.tsv: not UTF-8 text: byte 4 is 0xff, on line 1"):
        knowledge_folder(str(tmp_path))
