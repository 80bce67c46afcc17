"""Texts of one's own without labels, restored before a task with few labels."""

import json
from pathlib import Path

import pytest

from edgewise.errors import ConfigError, DataError
from edgewise.tasks import damaged_texts, masked_texts, text_table
from edgewise.tasks.text.tokenization import BEGIN, END, MASK

READ = {"level": "byte", "length": 40}
MAKERS = [masked_texts, damaged_texts]


def table(folder: Path, names: str = "text,split,mood") -> str:
    """Twenty texts, the first twelve of which train; the last five test."""
    parts = ["train"] * 12 + ["valid"] * 3 + ["test"] * 5
    rows = [f"The text {n} is {'good' if n % 2 else 'bad'}.,{part},{n % 2}" for n, part in enumerate(parts)]
    (folder / "texts.csv").write_text("\n".join([names, *rows]), encoding="utf-8")
    return str(folder / "texts.csv")


@pytest.mark.parametrize("make", MAKERS)
def test_what_tests_is_never_read_to_train_and_nothing_is_padded(tmp_path, make) -> None:
    task = make(file=table(tmp_path), **READ)
    text = {split: texts[0] if make is damaged_texts else texts for split, texts in task.texts.items()}
    assert [len(text[split]) for split in ("train", "valid", "test")] == [12, 3, 5]
    assert not {*text["train"]} & {*text["test"]}
    x = next(task.batches("test", 1)).x  # of BART, the source is followed by the target without its end
    length = len(x) // 2 if make is damaged_texts else len(x)
    assert x[0] == BEGIN and END in x[: length + 2] and MASK in x


def test_the_classes_are_learned_by_the_same_tokens(tmp_path) -> None:
    file = table(tmp_path)
    task, run = masked_texts(file=file, length=40, vocabulary=300), tmp_path / "run"
    run.mkdir()
    task.keep(run)
    after = text_table(file=file, **READ)
    assert after.signature.inputs != task.signature.inputs
    after.recall(run)
    assert json.loads(after.tokenizer.to_json()) == json.loads(task.tokenizer.to_json())
    assert after.splits["test"].tolist() == task.own.splits["test"].tolist()


@pytest.mark.parametrize("make", MAKERS)
def test_a_run_stands_alone_and_reads_others(tmp_path, make) -> None:
    file, run = Path(table(tmp_path)), tmp_path / "run"
    run.mkdir()
    task = make(file=str(file), **READ)
    task.keep(run)
    file.unlink()
    (kept,) = (run / "data").iterdir()
    alone = make(file=str(kept), like=str(run), **READ)
    assert alone.few and len(alone.own.splits["train"]) == 3
    (tmp_path / "more.txt").write_text("Another text.\nAnd one more.\n", encoding="utf-8")
    other = alone.elsewhere(tmp_path / "more.txt")
    assert len(other.own.splits["test"]) == len(other.own.given) and not len(other.own.splits["train"])
    assert other.asked('{"text": "A <mask>"}') == "A <mask>"
    with pytest.raises(DataError, match=r'a row of .* is {"text": TEXT}, and it has words'):
        other.asked('{"words": "A"}')


def test_a_text_too_long_is_named_by_its_row_or_cut(tmp_path) -> None:
    with pytest.raises(DataError, match=r"line 3: a text of 19 tokens, of at most 18: give --task\.truncate"):
        masked_texts(file=table(tmp_path), level="byte", length=20)
    task = masked_texts(file=table(tmp_path), level="byte", length=20, truncate=True)
    assert {len(x) for x in task.tokens["train"]} == {20}
    with pytest.raises(ConfigError, match=r"task\.share must be above 0"):
        masked_texts(file=table(tmp_path), share=0.0)


def classed(folder: Path, places: str) -> Path:
    for place in places.split():
        for n in range(10):
            file = folder / "films" / place / f"{n}.txt"
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(f"{place} {n}", encoding="utf-8")
    return folder / "films"


def test_a_folder_of_texts_for_each_class(tmp_path) -> None:
    task = text_table(file=str(classed(tmp_path, "good bad")), **READ)
    assert task.classes == ("bad", "good") and task.name_of(0) == "bad/0.txt"
    assert [len(rows) for rows in task.splits.values()] == [12, 4, 4]
    parted = text_table(file=str(classed(tmp_path / "parts", "train/good train/bad test/good test/bad")), **READ)
    names = {split: {parted.name_of(n).split("/")[0] for n in rows.tolist()} for split, rows in parted.splits.items()}
    assert names == {"train": {"train"}, "valid": {"train"}, "test": {"test"}}
    run = tmp_path / "run"
    run.mkdir()
    parted.keep(run)
    alone = text_table(file=str(next((run / "data").iterdir())), like=str(run), **READ)
    assert alone.classes == ("bad", "good") and alone.name_of(0) == parted.name_of(0)
    with pytest.raises(DataError, match="no texts in folders of their classes"):
        text_table(file=str(tmp_path / "films" / "good"))
