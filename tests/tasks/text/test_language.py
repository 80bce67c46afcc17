"""Text: windows, vocabulary, splits and prompts."""

import json
import math
from functools import partial
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from edgewise.errors import ConfigError, DataError
from edgewise.graphs import causal, window
from edgewise.models import GNN, GNNSettings, Recurrent, RecurrentSettings, Transformer, TransformerSettings
from edgewise.tasks import PatternChoice, Text, text
from edgewise.tasks.core.abilities import Sampling
from edgewise.tasks.text.language import TextInBytes, read_text

SENTENCE = "the quick brown fox jumps over the lazy dog. " * 20
CAUSAL = PatternChoice("causal")


@pytest.fixture
def task() -> Text:
    return Text("fox", SENTENCE, context=8)


def test_the_vocabulary_is_sorted_and_reversible(task: Text) -> None:
    assert task.vocabulary == "".join(sorted(set(SENTENCE)))
    assert task.decode(task.encode("lazy fox.")) == "lazy fox."
    assert task.encode(task.vocabulary).tolist() == list(range(len(task.vocabulary)))


def test_any_alphabet_is_read() -> None:
    many = "".join(chr(0x4E00 + n) for n in range(300)) + "é😀"
    task = Text("many", many * 3, context=4)
    assert task.decode(task.encode(many)) == many
    assert task.signature.inputs == 302
    batch = next(task.batches("valid", 3))
    assert task.decode(batch.x[0]) == (many * 3)[int(0.9 * 906) :][:4]


def test_targets_are_the_next_characters(task: Text) -> None:
    batch = task.train_batch(5, torch.Generator().manual_seed(0), CAUSAL)
    assert batch.x.shape == batch.target.shape == (5, 8)
    assert batch.x.dtype == batch.target.dtype == torch.long
    assert torch.equal(batch.x[:, 1:], batch.target[:, :-1])
    for x, target in zip(batch.x, batch.target, strict=True):
        assert task.decode(torch.cat([x, target[-1:]])) in SENTENCE


def test_train_batch_is_a_function_of_its_generator(task: Text) -> None:
    one, same, other = (task.train_batch(5, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.x, same.x)
    assert not torch.equal(one.x, other.x)


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


def test_train_is_before_the_validation_part_and_there_is_no_third(task: Text) -> None:
    assert not task.has_test
    with pytest.raises(DataError, match="no test part; it has train and valid"):
        next(task.batches("test", 4))
    train = "".join(task.decode(row) for batch in task.batches("train", 4) for row in batch.x)
    assert train == SENTENCE[: int(0.9 * len(SENTENCE)) - 1]


def test_graphs_are_kept_for_each_length(task: Text) -> None:
    batches = list(task.batches("valid", 2, CAUSAL))
    assert all(batch.graph is task.graph(PatternChoice("causal"), batch.x.shape[1]) for batch in batches)
    assert task.train_batch(2, torch.Generator(), CAUSAL).graph is task.graph(CAUSAL)
    assert torch.equal(task.graph().dense_mask(), causal(8).dense_mask())
    assert torch.equal(task.graph(PatternChoice()).dense_mask(), causal(8).dense_mask())


@pytest.mark.parametrize(
    "pattern",
    [causal, partial(window, radius=2, sides="past"), PatternChoice("strided", {"stride": 3}), CAUSAL,
     PatternChoice("window", {"radius": 2, "dilation": 2, "sides": "past"})],
)  # fmt: skip
def test_graphs_that_look_back_are_taken(task: Text, pattern) -> None:
    assert task.graph(pattern).num_receivers == 8


@pytest.mark.parametrize(
    "pattern",
    [PatternChoice("complete"), PatternChoice("window", {"radius": 1}), PatternChoice("blocks", {"size": 4})],
)
def test_graphs_that_see_ahead_are_refused(task: Text, pattern) -> None:
    with pytest.raises(ConfigError, match="lets a token see the next one"):
        task.train_batch(2, torch.Generator(), pattern)


def test_a_grid_is_no_layout_of_a_text(task: Text) -> None:
    with pytest.raises(ConfigError, match=r"grid\(\) does not fit 8 positions"):
        task.graph(PatternChoice("grid"))


def test_score_of_a_blind_guess_is_the_vocabularys_logarithm(task: Text) -> None:
    batch = next(task.batches("valid", 3))
    outputs = torch.zeros(*batch.x.shape, len(task.vocabulary))
    score = task.score(outputs, batch)
    assert score["count"].item() == 24
    assert (score["loss"] / score["count"]).item() == pytest.approx(math.log(len(task.vocabulary)))
    assert task.loss(outputs, batch).item() == pytest.approx(math.log(len(task.vocabulary)))


def test_predict_gives_the_likeliest_and_the_prompts_loss(task: Text, echo) -> None:
    model = echo(len(task.vocabulary), len(task.vocabulary), tokens=True)
    answer = task.predict(model, CAUSAL, "the fox", "cpu")
    tokens = task.encode("the fox")
    logits = model.weight[tokens].double()
    assert answer["loss"] == pytest.approx(functional.cross_entropy(logits[:-1], tokens[1:]).item())
    assert answer["next"][0]["character"] == task.vocabulary[logits[-1].argmax()]
    assert len(answer["next"]) == 5
    json.dumps(answer)


def test_predict_reads_the_end_of_a_long_prompt(task: Text, echo) -> None:
    model = echo(len(task.vocabulary), len(task.vocabulary), tokens=True)
    long, short = (task.predict(model, None, prompt, "cpu") for prompt in ("jumps over the lazy", "the lazy"))
    assert long["read"] == short["read"] == 8
    assert long["next"] == short["next"]
    assert task.predict(model, None, "t", "cpu")["loss"] is None


def test_predict_names_a_character_it_does_not_know(task: Text, echo) -> None:
    with pytest.raises(DataError, match=r"character 'X' at position 4 is none of the 28 characters of fox"):
        task.predict(echo(28, 28, tokens=True), None, "the X", "cpu")
    with pytest.raises(DataError, match="empty"):
        task.predict(echo(28, 28, tokens=True), None, "", "cpu")


@pytest.mark.parametrize("context", [0, -3])
def test_context_must_be_positive(context: int) -> None:
    with pytest.raises(ConfigError, match="context must be at least 1"):
        Text("fox", SENTENCE, context)


def test_topics_are_embedded_english() -> None:
    task = text()
    assert (task.name, task.context) == ("topics", 64)
    assert len(task._parts["train"]) > 300_000
    assert "the" in task.decode(task._parts["train"][:10_000].long())


def test_a_text_that_is_gone_is_asked_for_by_its_option(tmp_path: Path) -> None:
    with pytest.raises(DataError, match=r"gone\.txt: no such file: give --task\.file, a text"):
        text(file=str(tmp_path / "gone.txt"))


def test_any_file_is_read_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "own.txt"
    file.write_bytes(b"\xef\xbb\xbf" + "line\r\nzwölf\n".encode() * 10)
    assert read_text(file) == "line\r\nzwölf\n" * 10
    task = text(file=str(file), context=4)
    file.write_bytes(("line\r\nzwölf\n" * 10).encode("utf-16"))
    assert read_text(file) == "line\r\nzwölf\n" * 10
    assert task.name == "own.txt"
    assert "\ufeff" not in task.vocabulary


def test_unknown_sources_are_named() -> None:
    with pytest.raises(ConfigError, match="unknown text 'bible'; known are topics, shakespeare"):
        text(source="bible")


def test_shakespeare_is_nanogpts(data) -> None:
    task = text(source="shakespeare", folder=str(data("tinyshakespeare")))
    assert len(task.vocabulary) == 65
    assert [len(task._parts[part]) for part in ("train", "valid")] == [1_003_854, 111_540]
    assert task.decode(task._parts["train"][:13].long()) == "First Citizen"


@pytest.mark.parametrize(("attention", "drawn"), [("softmax", True), ("lsh", False), ("sinkhorn", False)])
def test_attention_among_copies_of_the_nodes_is_not_drawn_over_the_nodes(attention: str, drawn: bool) -> None:
    task = Text("abc", "abcabcabca" * 30, context=8)
    model = Transformer(TransformerSettings(width=8, depth=1, heads=2, attention=attention), task.signature)
    assert bool(task.attention(model.eval(), None)) is drawn


def test_a_report_shows_attention_and_a_text_continued(task: Text) -> None:
    attention, text = task.draw(Transformer(TransformerSettings(8, 1, 2), task.signature).eval(), None, {})
    (matrix,), (passage,) = attention.make(), text.make()
    assert matrix.figure.weights.shape == (2, 8, 8) and len(matrix.figure.labels) == 8
    assert matrix.figure.weights.sum(-1) == pytest.approx(1)
    assert passage.prompt in SENTENCE and len(passage.continuation) == 300
    assert task.describe() == "fox: text of 28 different characters, 8 at once"


def test_a_model_without_caches_writes_nothing(task: Text) -> None:
    model = GNN(GNNSettings("gcn"), task.signature).eval()
    assert [section.title for section in task.draw(model, None, {})] == ["Attention"]
    with pytest.raises(ConfigError, match="a GNN cannot generate"):
        task.generate(model, None, Sampling(prompt="fox"), "cpu")


@pytest.mark.parametrize("cache", [True, False])
def test_any_language_model_continues_a_prompt(task: Text, cache: bool) -> None:
    model = Recurrent(RecurrentSettings(width=8), task.signature)
    values, drawings, text = task.generate(model, None, Sampling(prompt="the fox", steps=5, cache=cache), "cpu")
    assert values == {"prompt": "the fox", "text": text, "cache": cache}
    assert text.startswith("the fox") and len(text) == 12 and drawings == {}
    with pytest.raises(ConfigError, match="the prompt is empty"):
        task.generate(model, None, Sampling(prompt=""), "cpu")


def test_bytes_are_shown_as_characters_where_they_are_ascii():
    task = TextInBytes("name", "äbä" * 9, context=2)
    assert [task.shown(token) for token in (98, 127, 128, 195)] == ["b", "\x7f", "\\x80", "\\xc3"]


def test_a_run_reads_texts_with_the_vocabulary_that_it_has_kept(tmp_path: Path, task: Text) -> None:
    task.keep(tmp_path)
    fewer = Text("fewer", "the fox. " * 20, context=8)
    fewer.recall(tmp_path)
    assert fewer.vocabulary == task.vocabulary and fewer.signature == task.signature
    assert torch.equal(fewer.encode("the lazy dog"), task.encode("the lazy dog"))
    assert fewer.decode(fewer._parts["valid"]) == ("the fox. " * 20)[162:]
    more = Text("more", "the fox. \n" * 20 + "Fox", context=8)
    with pytest.raises(
        DataError, match=rf"more: line 1 has '\\n', none of the 28 characters of {tmp_path}: give a text"
    ):
        more.recall(tmp_path)
    (tmp_path / "vocabulary.json").write_text('{"vocabulary": "aa"}')
    with pytest.raises(DataError, match="not the vocabulary of a run"):
        more.recall(tmp_path)
