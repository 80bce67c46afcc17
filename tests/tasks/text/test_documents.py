import json

import pytest
import torch

from edgewise.errors import ConfigError
from edgewise.tasks import denoised_documents, documents, masked_documents
from edgewise.tasks.text.documents import Reading
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
    assert after.preprocessing()["tokenizer"]["end"] == END
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
