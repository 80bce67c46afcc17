"""Parallel texts of one's own."""

from pathlib import Path

import pytest

from edgewise import deployment, training
from edgewise.apps.command.main import main
from edgewise.errors import ConfigError, DataError
from edgewise.tasks import parallel_text

pytest.importorskip("sacrebleu")
PAIRS = [(f"Wort {n} größer", f"λέξη {n}") for n in range(30)]


def write(path: Path, head: str = "de\tel\n", encoding: str = "utf-8") -> Path:
    path.write_text(head + "".join(f"{x}\t{y}\n" for x, y in PAIRS), encoding=encoding)
    return path


def two_files(place: Path) -> tuple[Path, Path]:
    paths = place / "a.de", place / "a.el"
    for side, path in enumerate(paths):
        path.write_text("".join(f"{pair[side]}\n" for pair in PAIRS), encoding="utf-16" if side else "utf-8-sig")
    return paths


def test_two_files_and_tables_say_the_same(tmp_path) -> None:
    source, target = two_files(tmp_path)
    plain = {"level": "byte"}
    tasks = [
        parallel_text(str(source), str(target), **plain),
        parallel_text(file=str(write(tmp_path / "a.tsv")), columns="de,el", **plain),
        parallel_text(file=str(write(tmp_path / "b.tsv", "", "utf-16")), columns="1,2", **plain),
        parallel_text(file=str(write(tmp_path / "c.csv", "target\tsource\n")), columns="target,source", **plain),
    ]
    assert all(task.texts == tasks[0].texts for task in tasks)
    assert [task.name for task in tasks] == ["a", "a", "b", "c"]
    assert sum(len(x) for x, _ in tasks[0].texts.values()) == 30
    assert ("Wort 3 größer", "λέξη 3") in [
        pair for sides in tasks[0].texts.values() for pair in zip(*sides, strict=True)
    ]


def test_empty_and_long_sides_are_left_out_and_said(tmp_path) -> None:
    path = write(tmp_path / "a.tsv")
    with path.open("a", encoding="utf-8") as file:
        file.write(f"leer\t\n{'lang ' * 100}\tx\n")
    task = parallel_text(file=str(path), columns="de,el", level="byte")
    said = "\n".join(task.summary)
    assert "1 pair left out: a side is empty" in said
    assert "1 pair left out: a side is over 400 bytes" in said
    assert task.signature.length == 2 * 401 + 10


def test_quotation_marks_of_sentences_swallow_no_lines(tmp_path) -> None:
    pairs = [*PAIRS]
    pairs[3], pairs[9] = ('"Wort', "λέξη"), ('Wort"', "λέξη")
    path = tmp_path / "a.tsv"
    path.write_text("de\tel\n" + "".join(f"{x}\t{y}\n" for x, y in pairs), encoding="utf-8")
    rows = parallel_text(file=str(path), columns="de,el", level="byte").own.given
    assert rows.inputs["source"] == [x for x, _ in pairs]


@pytest.mark.parametrize(
    ("content", "columns", "told"),
    [
        ("de\tel\na\tb\n", "", r"none is called source.* as in 1,2"),
        ("de\tel\na\tb\n", "de,fr", "no column 'fr' with the target"),
        ("a\tb\nc\n", "1,2", "line 2 has 1 columns between tabs, not 2"),
        ("a\tb\n", "0,1", "columns are numbered from 1"),
        ("source\ttarget\n\tb\n", "", "no pair of sentences"),
        ("source\ttarget\na\tb\tc\n", "", "line 2 does not have 2 columns"),
    ],
)
def test_what_is_wrong_with_a_table_is_named(tmp_path, content: str, columns: str, told: str) -> None:
    (tmp_path / "a.tsv").write_text(content, encoding="utf-8")
    with pytest.raises(DataError, match=told):
        parallel_text(file=str(tmp_path / "a.tsv"), columns=columns)


def test_a_carriage_return_within_a_sentence_ends_no_line(tmp_path) -> None:
    """One on either side made as many lines, of which those in between were no translations."""
    source, target = two_files(tmp_path)
    for path, number, encoding in ((source, 3, "utf-8"), (target, 9, "utf-16")):
        lines = path.read_text(encoding=encoding).split("\n")
        lines[number] = lines[number].replace(" ", "\r", 1)
        path.write_bytes("\r\n".join(lines).encode(encoding))
    rows = parallel_text(str(source), str(target), level="character").own.given
    assert len(rows) == 30 and "\r" in rows.inputs["source"][3] and "\r" not in rows.inputs["source"][4]


def test_two_files_must_fit_each_other(tmp_path) -> None:
    source, target = two_files(tmp_path)
    with source.open("a", encoding="utf-8") as file:
        file.write("noch einer\n")
    broken = tmp_path / "broken.de"
    broken.write_bytes(b"\xff\xf0\x81" * 100)
    with pytest.raises(DataError, match=r"broken\.de: not a text in a known encoding \(byte 0xff is not utf-8\)"):
        parallel_text(str(broken), str(target))
    with pytest.raises(DataError, match=r"a\.de has 31 lines, and .*a\.el 30"):
        parallel_text(str(source), str(target))
    for wrong in ({"source": "a"}, {}, {"source": "a", "target": "b", "file": "c"}):
        with pytest.raises(ConfigError, match=r"give --task\.source and --task\.target"):
            parallel_text(**wrong)
    with pytest.raises(ConfigError, match="two names, or two numbers"):
        parallel_text(file="a.tsv", columns="de")


def test_a_run_keeps_its_parts_and_tokens(tmp_path, capsys) -> None:
    path, run = write(tmp_path / "a.tsv"), tmp_path / "run"
    options = ("--task.file", str(path), "--task.columns", "de,el", "--task.vocabulary", "300", "--train.steps", "2")
    small = ("--model.width", "16", "--model.feed_forward.hidden", "16", "--task.length", "40", "--task.beam", "1")
    assert main(["train", "own-translation", *options, *small, "--run", str(run)]) == 0
    before = training.load_run(run).task
    with path.open("a", encoding="utf-8") as file:
        file.write("ganz neu\tολοκαίνουργιο\n")
    after = training.load_run(run).task
    assert after.texts == before.texts and after.tokenizer.to_json() == before.tokenizer.to_json()
    assert "a.tsv has changed since the run was trained" in capsys.readouterr().err
    (tmp_path / "new.txt").write_text("Wort 3 größer\nWort 99\n", encoding="utf-8")
    assert deployment.predict_file(deployment.load(run), tmp_path / "new.txt", tmp_path / "out.csv") == 2
    assert (tmp_path / "out.csv").read_text(encoding="utf-8").startswith("input,source,translation,score")
    for other in (str(write(tmp_path / "b.tsv")), ",".join(map(str, two_files(tmp_path)))):  # by the run's own columns
        on = training.on_data(training.load_run(run), Path(other)).task
        assert (on.texts["test"][0][:2], len(on.texts["test"][0])) == (["Wort 0 größer", "Wort 1 größer"], 30)
        assert main(["evaluate", str(run), "--data", other]) == 0
        assert f"{other}: loss" in capsys.readouterr().out


def test_characters_that_no_pair_that_trains_has_are_left_out(tmp_path) -> None:
    rows = [("a cat", "un chat", "train"), ("a ñ", "un ö", "valid"), ("a dog", "ü", "test")]
    file = tmp_path / "pairs.csv"
    file.write_text("source,target,split\n" + "".join(",".join(row) + "\n" for row in rows), encoding="utf-8")
    task = parallel_text(file=str(file), level="character")
    ((source, target),) = task.pairs("valid")
    assert task.tokenizer.decode(source.tolist()) == "a " and task.tokenizer.decode(target.tolist()) == "un "
    ((_, target),) = task.pairs("test")
    assert task.tokenizer.decode(target.tolist()) == ""
    assert task.texts["test"][1] == ["ü"]  # what is written is compared with the whole
