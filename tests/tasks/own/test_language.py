"""Texts of one's own for a language model."""

import json
import random
from collections import Counter
from math import e, exp, log, log2
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.nn import functional

from edgewise import deployment, training
from edgewise.apps.command.main import main
from edgewise.errors import ConfigError, DataError
from edgewise.tasks import text_files
from edgewise.tasks.own.language import NGrams
from edgewise.training import evaluate
from edgewise.training.simple import best_simple

SMALL = ("--model.width", "8", "--model.depth", "1", "--model.heads", "2", "--task.context", "16")


def story(lines: int = 400, seed: int = 0) -> str:
    """Sentences, of which the second half is told by what the first is."""
    draw = random.Random(seed)
    pairs = {"the cat": "ate a fish", "the dog": "chased the cat", "zoé": "naïvely slept"}
    told = (draw.choice([*pairs]) for _ in range(lines))
    return "".join(f"{who} {pairs[who]}.\n" for who in told)


def documents(place: Path, count: int = 60, name: str = "story") -> Path:
    seeds = [n - 50 if 50 <= n < 60 else n for n in range(count)]  # of ten there are two
    rows = [{"nr": n, name: story(20, seed), "author": f"a{seed % 7}"} for n, seed in enumerate(seeds)]
    place.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    return place


def test_one_text_is_cut_by_place(tmp_path) -> None:
    path = tmp_path / "a.txt"
    path.write_bytes(story().replace("\n", "\r\n").encode("cp1252"))
    task = text_files(str(path), context=16)
    parts = [task.decode(task._parts[split]) for split in ("train", "valid", "test")]
    assert "".join(parts) == story()
    assert [len(part) / len(story()) for part in parts] == pytest.approx([0.6, 0.2, 0.2], abs=0.05)
    assert f"a.txt: a text of {len(story()):,} characters: encoded in cp1252" in task.summary
    assert task.summary[-1].startswith("passages by place: train 0 to ") and task.signature.outputs <= 512
    passages = task.own.given.inputs["text"]
    path.write_text(story() + story(9, seed=1), encoding="utf-8")
    longer = text_files(str(path), context=16).own.given.inputs["text"]
    assert longer[: len(passages) - 1] == passages[:-1]  # what is appended moves no cut


def test_documents_are_each_in_one_part_and_have_ends(tmp_path) -> None:
    task = text_files(str(documents(tmp_path / "a.jsonl")), text="story", context=16)
    assert task.ends and len(task.own.given) == 50 and "a.jsonl: 10 repeated rows, read once" in task.summary
    texts = task.own.given.inputs["text"]
    of = {split: {texts[row] for row in rows.tolist()} for split, rows in task.own.splits.items()}
    assert not of["train"] & of["test"] and not of["train"] & of["valid"]
    for split, rows in task.own.splits.items():
        ends = (task._parts[split] == task.tokenizer.end).nonzero()[:, 0]
        between = [task.decode(part) for part in task._parts[split].tensor_split(ends + 1)][1:-1]
        assert between == [texts[row] for row in rows.tolist()]
    by_author = text_files(str(tmp_path / "a.jsonl"), text="story", context=16, group="author")
    assert any("by author, of which there are" in line for line in by_author.summary)


def test_a_folder_names_its_parts_or_each_file_is_a_document(tmp_path) -> None:
    for n in range(12):
        place = tmp_path / "mine" / f"{n}.txt"
        place.parent.mkdir(exist_ok=True)
        place.write_text(story(20, n), encoding="utf-16" if n % 2 else "utf-8")
    task = text_files(str(tmp_path / "mine"), context=16)
    assert task.name == "mine" and "each of 12 files is a document" in task.summary
    assert {split: len(rows) for split, rows in task.own.splits.items()} == {"train": 7, "valid": 3, "test": 2}
    for n in range(12):
        place = tmp_path / "parted" / ("test" if n < 3 else "train") / f"{n}.txt"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.write_text(story(20, n), encoding="utf-8")
    parted = text_files(str(tmp_path / "parted"), context=16).own
    assert [parted.given.name(row) for row in parted.splits["test"].tolist()] == [f"test/{n}.txt" for n in range(3)]
    assert {split: len(rows) for split, rows in parted.splits.items()} == {"train": 8, "valid": 1, "test": 3}


def test_perplexity_is_per_token_and_bits_are_per_character(tmp_path, echo) -> None:
    task = text_files(str(documents(tmp_path / "a.jsonl")), text="story", context=16)
    model = echo(task.signature.inputs, task.signature.outputs, tokens=True)
    scores = evaluate(model, task, "test", 7)
    tokens = task._parts["test"].long()
    nats = functional.cross_entropy(model.weight[tokens[:-1]].double(), tokens[1:], reduction="sum").item()
    characters = sum(len(task.own.given.inputs["text"][row]) for row in task.own.splits["test"].tolist())
    assert scores["perplexity"] == pytest.approx(exp(nats / (len(tokens) - 1)))
    assert scores["bits_per_character"] == pytest.approx(nats * log2(e) / characters)
    assert scores.keys() == {"loss", "accuracy", "perplexity", "bits_per_character"}


def test_n_grams_are_probabilities_by_the_formula() -> None:
    draw = np.random.default_rng(0)
    tokens, vocabulary = draw.integers(0, 5, 300), 6  # of which one never occurs
    for order in (1, 2, 4):
        model = NGrams(tokens, vocabulary, order)
        for before in ([], [3], [1, 2, 0, 4], [5, 5, 5]):
            p = [model.probabilities(np.array([*before, token]))[-1] for token in range(vocabulary)]
            assert sum(p) == pytest.approx(1) and min(p) > 0
    pairs = Counter(zip(tokens[:-1].tolist(), tokens[1:].tolist(), strict=True))

    def discounted(counts: Counter) -> float:
        once, twice = (sum(count == number for count in counts.values()) for number in (1, 2))
        return once / (once + 2 * twice) if once and twice else 0.5

    kinds = Counter(second for _, second in pairs)
    d1, d2 = discounted(kinds), discounted(pairs)
    first, second = 3, 1
    before = sum(min(count, d1) for count in kinds.values()) / len(pairs) / vocabulary
    single = max(kinds[second] - d1, 0) / len(pairs) + before
    row = {pair: count for pair, count in pairs.items() if pair[0] == first}
    left = sum(min(count, d2) for count in row.values()) / sum(row.values())
    expected = max(pairs[first, second] - d2, 0) / sum(row.values()) + left * single
    assert NGrams(tokens, vocabulary, 2).probabilities(np.array([first, second]))[1] == pytest.approx(expected)


def test_n_grams_stand_beside_the_model_on_the_same_tokens(tmp_path) -> None:
    (tmp_path / "a.txt").write_text(story(), encoding="utf-8")
    task = text_files(str(tmp_path / "a.txt"), context=16)
    found = best_simple(task)
    assert found is not None and found.name.endswith("grams (Kneser and Ney)") and found.metric == "perplexity"
    assert 1 < found.valid < found.tried["the tokens' frequencies"] / 2
    p = NGrams(task._parts["train"].numpy(), task.signature.inputs, int(found.name[0]))
    assert found.test == pytest.approx(exp(-np.log(p.probabilities(task._parts["test"].numpy())[1:]).mean()))


@pytest.mark.parametrize(
    ("content", "options", "message"),
    [
        (b" \n", {}, "the text is empty"),
        (b"", {}, "empty"),
        (b"a\0b" * 99, {}, "a binary file: character 1 is zero"),
        (b"\xff\xf0\x81" * 100, {}, r"not a text in a known encoding \(byte 0xff is not utf-8\)"),
        (b"short\n" * 3, {}, "a text of 18 characters is too short to be cut into three parts"),
        (b"short\n" * 999, {"context": 4096}, "too short: .* for training, .* more than context=4096 tokens"),
        (story().encode(), {"text": "story"}, r"--task.text is a column of a table, and .*a.txt is none"),
        (story().encode(), {"group": "author"}, r"--task.group is a column of a table"),
        (story().encode(), {"vocabulary": 100}, "task.vocabulary must be from 259"),
        (story().encode(), {"context": 0}, "task.context must be from 1"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(tmp_path, content: bytes, options, message: str) -> None:
    (tmp_path / "a.txt").write_bytes(content)
    with pytest.raises((DataError, ConfigError), match=message):
        text_files(str(tmp_path / "a.txt"), **{"context": 16} | options)


def test_a_run_keeps_its_parts_and_is_measured_on_other_texts(tmp_path, capsys) -> None:
    path, run = documents(tmp_path / "a.jsonl"), tmp_path / "run"
    given = ("--task.file", str(path), "--task.text", "story", "--task.vocabulary", "300", *SMALL)
    assert main(["train", "own-text-model", *given, "--train.steps", "2", "--run", str(run)]) == 0
    told = capsys.readouterr().out
    assert "a simple method is better: " in told and "test perplexity" in told
    before = training.load_run(run).task
    documents(path, 80)
    after = training.load_run(run).task
    assert after.tokenizer.to_json() == before.tokenizer.to_json()
    assert torch.equal(after._parts["test"], before._parts["test"])
    capsys.readouterr()
    other = tmp_path / "other.txt"
    other.write_text(story(30, seed=99), encoding="utf-8")
    assert main(["evaluate", str(run), "--data", str(other), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out.splitlines()[-1])["test"]
    assert log(scores["perplexity"]) == pytest.approx(scores["loss"])
    path.unlink()
    trained = deployment.load(run)
    made = trained.generate("the cat", steps=5, count=2, top_p=0.9, seed=1)
    assert made == trained.generate("the cat", steps=5, count=2, top_p=0.9, seed=1)
    assert made["ended"] == ["length"] * 2 and all(text.startswith("the cat") for text in made["texts"])
    assert "".join(piece.text for piece in trained.stream("", steps=5)) == trained.generate("", steps=5)["text"]
    assert "next" in trained.predict(["the cat"])[0] and "_parts" not in vars(trained.task)  # only what is asked
    with pytest.raises(ConfigError, match="did you mean 'top_p'"):
        trained.generate("the cat", topp=0.9)
    with pytest.raises(DataError, match="the test part is gone, but for the few examples that the run keeps"):
        evaluate(trained.model, trained.task, "test", 7)
