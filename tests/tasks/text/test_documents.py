import json

import pytest
import torch

from edgewise.errors import ConfigError, DataError
from edgewise.tasks import denoised_documents, documents, masked_documents
from edgewise.tasks.text.documents import (
    PLAYS,
    SUBJECTS,
    Corpus,
    Reading,
    read_captions,
    read_corpus,
    read_documents,
    read_plays,
)
from edgewise.tasks.text.tokenization import BEGIN, END, MASK

READ = {"level": "byte", "length": 24}
WORDS = {"sea": "ship wave sail storm", "land": "field horse road barn"}


@pytest.fixture
def folder(tmp_path):
    """Ten documents about the sea and ten about the land."""
    for label, words in WORDS.items():
        (tmp_path / "texts" / label).mkdir(parents=True)
        for n in range(10):
            text = " ".join(words.split()[(n + k) % 4] for k in range(3)) + f". The {n}."
            (tmp_path / "texts" / label / f"{n}.txt").write_text(text, encoding="utf-8")
    return str(tmp_path / "texts")


def test_a_batch_is_whole_documents_with_their_classes(folder) -> None:
    task = documents(path=folder, **READ)
    batch = next(task.batches("test", 9))
    for x, label in zip(batch.x.split(batch.graph.sizes.tolist()), batch.target.tolist(), strict=True):
        assert (x[0], x[-1]) == (BEGIN, END)
        text = task.tokenizer.decode(x.tolist())
        assert set(text.split(".")[0].split()) <= set(WORDS[task.classes[label]].split())
    assert task.signature.whole_graph
    assert task.signature.outputs == 2


def test_a_long_document_is_cut_and_letters_are_small(folder) -> None:
    task = documents(path=folder, level="byte", length=6)
    assert all(len(x) == 6 for x in task._x)
    task = documents(path=folder, level="byte", length=64)
    assert "T" not in task.tokenizer.decode(torch.cat(task._x).tolist())
    large = documents(path=folder, **READ, lowercase=False)
    assert "T" in large.tokenizer.decode(torch.cat(large._x).tolist())
    with pytest.raises(ConfigError, match="at least 3 tokens"):
        Reading(length=2)
    with pytest.raises(ConfigError, match="unknown level 'character' of documents; known are bpe, byte"):
        Reading("character")


def test_the_pre_training_tasks_never_read_what_the_classes_are_tested_on(folder) -> None:
    task = documents(path=folder, **READ)
    tested = {task.reading.text(task.corpus.texts[n]) for n in task.splits["test"].tolist()}
    masked, damaged = masked_documents(path=folder, **READ), denoised_documents(path=folder, **READ)
    assert tested == set(masked.texts["test"]) == set(damaged.texts["test"][0])
    assert not tested & {*masked.texts["train"], *damaged.texts["train"][0]}
    assert masked.tokenizer.to_json() == damaged.tokenizer.to_json() == task.tokenizer.to_json()


def test_the_tokens_of_the_run_before_are_read(folder, tmp_path) -> None:
    """A classification that starts from another corpus reads by that corpus's tokens."""
    run, task = tmp_path / "run", masked_documents(path=folder, length=24, vocabulary=300)
    run.mkdir()
    task.keep(run)
    after = documents(path=folder, **READ)
    assert after.signature.inputs != task.signature.inputs
    after.recall(run)
    assert after.signature.inputs == task.signature.inputs
    assert json.loads(after.tokenizer.to_json()) == json.loads(task.tokenizer.to_json())
    assert after.preprocessing()["special"]["end"] == END
    again = masked_documents(path=folder, **READ)
    again.recall(run)
    assert again.signature == task.signature
    after.recall(tmp_path)  # a folder without tokens changes nothing
    assert after.signature.inputs == task.signature.inputs


def test_a_hidden_word_is_a_mask(tmp_path) -> None:
    for split in ("train", "val", "test_2016_flickr"):
        (tmp_path / f"{split}.en").write_text("A man runs.\nTwo dogs see a dog.\nA cat.\n", encoding="utf-8")
        (tmp_path / f"{split}.de").write_text("Ja.\nJa.\nJa.\n", encoding="utf-8")
    task = documents(folder=str(tmp_path), level="byte")
    x = next(task.batches("test", 9)).x
    assert int((x == MASK).sum()) == 2
    assert "man" not in task.tokenizer.decode(x.tolist())
    masked = masked_documents(folder=str(tmp_path), level="byte")
    assert masked.texts["train"] == ["a man runs.", "two dogs see a dog.", "a cat."]


def _text(speeches: int = 30) -> str:
    """Nine small plays, each with its opening line, and speeches of four words."""
    parts = []
    for number, opening in enumerate(PLAYS.values()):
        parts.append(f"SOMEBODY:\n{opening}")
        parts += [f"NAME{number}:\nw{number} of speech {speech}" for speech in range(speeches)]
    return "\n\n".join(parts).replace("SOMEBODY:\nGregory", "\nSOMEBODY:\nGregory")


def test_passages_are_what_is_spoken_in_order() -> None:
    corpus = read_plays(_text(), words=4)
    assert not any("NAME" in text or "SOMEBODY" in text for text in corpus.texts)
    assert all(len(text.split()) == 4 for text in corpus.texts)
    for label, opening in enumerate(PLAYS.values()):
        own = [text for text, other in zip(corpus.texts, corpus.labels.tolist(), strict=True) if other == label]
        said = f"{opening} " + " ".join(f"w{label} of speech {n}" for n in range(30))
        assert " ".join(own) == " ".join(said.split()[: 4 * len(own)])
        assert len(said.split()) - 4 * len(own) < 4
    assert corpus.names[0] == "Coriolanus, passage 0"


def test_neighbours_are_on_one_side_and_every_passage_in_one_split() -> None:
    corpus = read_plays(_text(200), words=4)
    where = torch.full((len(corpus.texts),), -1)
    for number, rows in enumerate(corpus.splits.values()):
        assert bool((where[rows] == -1).all())
        where[rows] = number
    assert bool((where >= 0).all())
    whole = len(where) // 5 * 5
    assert bool((where[:whole].view(-1, 5) == where[:whole].view(-1, 5)[:, :1]).all())
    shares = [len(rows) / len(where) for rows in corpus.splits.values()]
    assert shares == pytest.approx([0.6, 0.2, 0.2], abs=0.02)
    assert not torch.equal(corpus.splits["test"], read_plays(_text(200), 4, fold=1).splits["test"])


def test_captions_with_one_subject_hide_it_and_all_are_there_to_learn_from() -> None:
    train = ["A MAN and his dog.", "Two women run; the women win.", "A cat.", "", "The man's hat."]
    corpus = read_captions({"train": train, "valid": ["A boy."], "test": ["Children sing.", "Childrens games."]})
    assert corpus.texts == (
        "Two <mask> run; the <mask> win.", "The <mask>'s hat.", "A <mask>.", "<mask> sing.",
    )  # fmt: skip
    assert [SUBJECTS[label] for label in corpus.labels] == ["women", "man", "boy", "children"]
    assert {split: rows.tolist() for split, rows in corpus.splits.items()} == {
        "train": [0, 1],
        "valid": [2],
        "test": [3],
    }
    assert corpus.plain("train") == ("A MAN and his dog.", "Two women run; the women win.", "A cat.", "The man's hat.")
    assert corpus.plain("test") == ("Children sing.", "Childrens games.")


def _write(folder, files) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


def test_a_folder_with_a_folder_for_each_class(tmp_path) -> None:
    files = {
        f"{label}/{n:02}.{'TXT' if n % 2 else 'txt'}": f"{label}  word\n{n}"
        for label in ("good", "bad")
        for n in range(10)
    }
    _write(tmp_path, files | {"good/notes.md": "not read"})
    corpus = read_documents(tmp_path)
    assert corpus.classes == ("bad", "good")
    assert corpus.names[0] == "bad/00.txt"
    assert corpus.texts[0] == "bad word 0"
    assert [len(corpus.splits[split]) for split in ("train", "valid", "test")] == [12, 4, 4]
    assert torch.bincount(corpus.labels[corpus.splits["test"]]).tolist() == [2, 2]


def test_train_and_test_as_they_lie_and_a_fifth_to_validate(tmp_path) -> None:
    _write(tmp_path, {f"train/{c}/{n}.txt": f"{c}{n}" for c in ("pos", "neg") for n in range(10)})
    _write(tmp_path, {f"test/{c}/{n}.txt": f"{c}{n} test" for c in ("pos", "neg") for n in range(3)})
    corpus: Corpus = read_corpus(path=str(tmp_path))
    named = {split: {corpus.names[n].split("/")[0] for n in rows.tolist()} for split, rows in corpus.splits.items()}
    assert named == {"train": {"train"}, "valid": {"train"}, "test": {"test"}}
    assert [len(corpus.splits[split]) for split in ("train", "valid", "test")] == [16, 4, 6]
    _write(tmp_path, {f"valid/{c}/0.txt": c for c in ("pos", "neg")})
    assert [len(rows) for rows in read_documents(tmp_path).splits.values()] == [20, 2, 6]


@pytest.mark.parametrize(
    ("files", "message"),
    [
        ({}, "no such folder"),
        ({"one/a.txt": "x"}, "1 classes; expected a folder"),
        ({"one/a.txt": "x", "two/a.md": "x"}, "two: no document"),
        ({"one/a.txt": "x", "two/a.txt": " \n"}, "nothing but white space"),
        ({"one/a.txt": "x", "two/a.txt": ""}, "the file is empty"),
        ({"one/a.txt": "x", "two/a.txt": "\0"}, "a binary file"),
        ({"train/one/a.txt": "x", "train/two/a.txt": "x"}, "has the folder 'train' alone"),
        (
            {"train/one/a.txt": "x", "train/two/a.txt": "x", "test/one/a.txt": "x"},
            "two: no document",
        ),
    ],
)
def test_a_folder_that_is_none_of_documents_is_refused(tmp_path, files, message) -> None:
    _write(tmp_path / "texts", files)
    with pytest.raises(DataError, match=message):
        read_documents(tmp_path / "texts")
