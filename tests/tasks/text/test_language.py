"""Text: windows, vocabulary, splits and prompts."""

import json
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from edgewise.errors import ConfigError, DataError
from edgewise.graphs import causal
from edgewise.models import Recurrent, RecurrentSettings, Transformer, TransformerSettings
from edgewise.models.text.sampling import Sampling
from edgewise.tasks import PatternChoice, Text, text
from edgewise.tasks.text.language import read_text

SENTENCE = "the quick brown fox jumps over the lazy dog. " * 20
CAUSAL = PatternChoice("causal")


@pytest.fixture
def task() -> Text:
    return Text("fox", SENTENCE, context=8)


def test_train_batch_draws_as_nanogpt_does(task: Text) -> None:
    """Window starts are uniform over 0 .. len(train) - context - 1, by one call of randint."""
    tokens = task.encode(SENTENCE)[: int(0.9 * len(SENTENCE))]
    starts = torch.randint(len(tokens) - 8, (5,), generator=torch.Generator().manual_seed(4))
    batch = task.train_batch(5, torch.Generator().manual_seed(4))
    assert torch.equal(batch.x, torch.stack([tokens[i : i + 8] for i in starts]))
    assert torch.equal(batch.target, torch.stack([tokens[i + 1 : i + 9] for i in starts]))


@pytest.mark.parametrize("size", [1, 4, 1000])
@pytest.mark.parametrize("context", [1, 7, 8, 11, 89])
def test_validation_guesses_every_character_once(size: int, context: int) -> None:
    task = Text("fox", SENTENCE, context)
    held_out = SENTENCE[int(0.9 * len(SENTENCE)) :]
    batches = list(task.batches("valid", size))
    assert "".join(task.decode(row) for batch in batches for row in batch.target) == held_out[1:]
    assert "".join(task.decode(row) for batch in batches for row in batch.x) == held_out[:-1]
    assert all(len(batch.x) <= size for batch in batches)
    assert sum(batch.size for batch in batches) == len(held_out) - 1


def test_graphs_are_kept_for_each_length(task: Text) -> None:
    batches = list(task.batches("valid", 2, CAUSAL))
    assert all(batch.graph is task.graph(PatternChoice("causal"), batch.x.shape[1]) for batch in batches)
    assert task.train_batch(2, torch.Generator(), CAUSAL).graph is task.graph(CAUSAL)
    assert torch.equal(task.graph().dense_mask(), causal(8).dense_mask())
    assert torch.equal(task.graph(PatternChoice()).dense_mask(), causal(8).dense_mask())


@pytest.mark.parametrize(
    "pattern",
    [PatternChoice("complete"), PatternChoice("window", {"radius": 1}), PatternChoice("blocks", {"size": 4})],
)
def test_graphs_that_see_ahead_are_refused(task: Text, pattern) -> None:
    with pytest.raises(ConfigError, match="lets a token see the next one"):
        task.train_batch(2, torch.Generator(), pattern)


def test_predict_gives_the_likeliest_and_the_prompts_loss(task: Text, echo) -> None:
    model = echo(task.tokenizer.size, task.tokenizer.size, tokens=True)
    answer = task.predict(model, CAUSAL, "the fox", "cpu")
    tokens = task.encode("the fox")
    logits = model.weight[tokens].double()
    assert answer["loss"] == pytest.approx(functional.cross_entropy(logits[:-1], tokens[1:]).item())
    assert answer["next"][0]["character"] == task.shown(int(logits[-1].argmax()))
    assert len(answer["next"]) == 5
    json.dumps(answer)


def test_any_file_is_read_without_its_mark_and_with_plain_ends_of_lines(tmp_path: Path) -> None:
    file = tmp_path / "own.txt"
    file.write_bytes(b"\xef\xbb\xbf" + "line\r\nzwölf\n".encode() * 10)
    assert read_text(file) == ("line\nzwölf\n" * 10, "")
    task = text(file=str(file), context=4)
    file.write_bytes(("line\r\nzwölf\n" * 10).encode("utf-16"))
    assert read_text(file) == ("line\nzwölf\n" * 10, ": encoded in utf-16")
    assert task.name == "own.txt"
    assert "\ufeff" not in task.tokenizer.characters


def test_shakespeare_is_nanogpts(data) -> None:
    task = text(source="shakespeare", folder=str(data("tinyshakespeare")))
    assert task.tokenizer.size == 65
    assert [len(task._parts[part]) for part in ("train", "valid")] == [1_003_854, 111_540]
    assert task.decode(task._parts["train"][:13].long()) == "First Citizen"


def test_a_report_shows_attention_and_a_text_continued(task: Text) -> None:
    attention, text = task.draw(Transformer(TransformerSettings(8, 1, 2), task.signature).eval(), None, {})
    (matrix,), (passage,) = attention.make(), text.make()
    assert matrix.figure.weights.shape == (2, 8, 8) and len(matrix.figure.labels) == 8
    assert matrix.figure.weights.sum(-1) == pytest.approx(1)
    assert passage.prompt in SENTENCE and len(passage.continuation) == 300
    assert task.describe() == "fox: text of 28 different characters, 8 at once"


@pytest.mark.parametrize("cache", [True, False])
def test_any_language_model_continues_a_prompt(task: Text, cache: bool) -> None:
    model = Recurrent(RecurrentSettings(width=8), task.signature)
    values, drawings, text = task.generate(model, None, Sampling(prompt="the fox", steps=5, cache=cache), "cpu")
    assert values == {"prompt": "the fox", "text": text, "texts": [text], "ended": ["length"], "cache": cache}
    assert text.startswith("the fox") and len(text) == 12 and drawings == {}
    several = task.generate(model, None, Sampling(prompt="the fox", steps=40, count=3, stop="e"), "cpu").values
    assert len({*several["texts"]}) == 3 and several["ended"].count("stop") > 0
    assert all("e" not in text[7:] for text in several["texts"])
    with pytest.raises(ConfigError, match="the prompt is empty"):
        task.generate(model, None, Sampling(prompt=""), "cpu")


def test_a_run_reads_texts_with_the_vocabulary_that_it_has_kept(tmp_path: Path, task: Text) -> None:
    task.keep(tmp_path)
    fewer = Text("fewer", "the fox. " * 20, context=8)
    fewer.recall(tmp_path)
    assert fewer.tokenizer.characters == task.tokenizer.characters and fewer.signature == task.signature
    assert torch.equal(fewer.encode("the lazy dog"), task.encode("the lazy dog"))
    assert fewer.decode(fewer._parts["valid"]) == ("the fox. " * 20)[162:]
    more = Text("more", "the fox. \n" * 20 + "Fox", context=8)
    with pytest.raises(
        DataError, match=rf"more: character '\\n' at position 9 is none of the 28 .* of {tmp_path}: give a text"
    ):
        more.recall(tmp_path)
    (tmp_path / "tokenizer.json").write_text('{"level": "character"}')
    with pytest.raises(DataError, match="not a tokenizer"):
        more.recall(tmp_path)
