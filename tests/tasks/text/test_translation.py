import gzip
import math
from collections import Counter

import pytest
import torch
from torch.nn import functional

from edgewise import training
from edgewise.errors import CheckpointError, ConfigError, DataError
from edgewise.models import EncoderDecoder, EncoderDecoderSettings, translate
from edgewise.tasks import PatternChoice, Translation, multi30k
from edgewise.tasks.text.translation import HASHES, Manner, PairBatch, compared, multi30k_files, read_lines
from edgewise.training import Choice, EvaluationSettings, MachineSettings, RunConfig, TrainSettings
from tasks.miniature import PAIRS as TEXTS
from tasks.miniature import write_multi30k


def _task(**options):
    return Translation("few", TEXTS, Manner(**({"level": "character"} | options)))


def _model(task, **options):
    settings = {"width": 16, "encoder_depth": 1, "decoder_depth": 1, "heads": 2, "dropout": 0.0} | options
    return EncoderDecoder(EncoderDecoderSettings(**settings), task.signature)


def bleu(written, references, lowercase):
    return compared(written, references, lowercase)["bleu"]


def test_a_batch_is_pairs_side_by_side():
    task = _task()
    batch = next(task.batches("test", 2))
    sources, targets = [len("eine katze") + 1, len("zwei hunde") + 1], [len("a cat") + 1, len("two dogs") + 1]
    assert batch.graph.encoder.sizes.tolist() == sources
    assert batch.graph.decoder.sizes.tolist() == targets
    read = batch.x.split(sources + targets)
    assert [task.tokenizer.decode(part.tolist()) for part in read] == ["eine katze", "zwei hunde", "a cat", "two dogs"]
    assert [part[-1].item() for part in read[:2]] == [1, 1]  # a source ends; a target that is read only begins
    assert [part[0].item() for part in read[2:]] == [0, 0]
    guessed = batch.target.split(targets)
    assert [(task.tokenizer.decode(part.tolist()), part[-1].item()) for part in guessed] == [
        ("a cat", 1),
        ("two dogs", 1),
    ]


def test_every_pair_of_a_split_is_read_once_and_empty_ones_never():
    task = _task()
    assert [len(batch.pairs) for batch in task.batches("train", 3)] == [3, 1]
    assert task.epoch_size == 4
    assert [len(batch.pairs) for batch in task.batches("test", 9)] == [3]


def test_a_training_batch_follows_from_its_generator():
    task = _task()
    one, two, other = (task.train_batch(8, torch.Generator().manual_seed(seed)) for seed in (1, 1, 2))
    assert torch.equal(one.x, two.x)
    assert not torch.equal(one.target, other.target)


def test_a_batch_is_cut_between_pairs_with_the_same_loss():
    task = _task()
    model, batch = _model(task).eval(), task.train_batch(5, torch.Generator().manual_seed(0))
    parts = batch.split(2)
    assert [len(part.pairs) for part in parts] == [2, 3]
    whole = task.loss(model(batch.graph, batch.x), batch)
    weighed = sum(task.loss(model(part.graph, part.x), part) * part.size for part in parts) / batch.size
    assert torch.allclose(whole, weighed)
    assert batch.split(6) == [batch] * 6


def test_a_batch_moves_as_a_whole():
    task = _task()
    there = next(task.batches("test", 2)).to("meta")
    assert {there.x.device.type, there.target.device.type, there.graph.cross.device.type} == {"meta"}
    batch = next(task.batches("test", 2))
    assert batch.to("cpu") is batch


def test_smoothing_spreads_over_all_tokens():
    task = _task(smoothing=0.2)
    batch = next(task.batches("test", 3))
    outputs = torch.randn(batch.size, task.tokenizer.size)
    log_p = outputs.log_softmax(-1)
    expected = -(0.8 * log_p.gather(1, batch.target[:, None]).squeeze(1) + 0.2 * log_p.mean(1)).mean()
    assert torch.allclose(task.loss(outputs, batch), expected)
    assert task.score(outputs, batch)["loss"] == pytest.approx(
        functional.cross_entropy(outputs, batch.target, reduction="sum").item(), rel=1e-5
    )


def test_the_encoder_can_read_another_graph():
    batch = next(_task().batches("test", 3, PatternChoice("window", {"radius": 1})))
    assert batch.graph.encoder.in_degrees().max() == 3
    assert batch.graph.cross.in_degrees().max() == len("ein mann läuft") + 1


def test_bleu_is_its_formula():
    written, references = (
        ["the cat sat on the mat now", "a dog runs over grass"],
        ["the cat sat on a mat", "a dog runs fast"],
    )

    def grams(text, n):
        words = text.split()
        return Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))

    log_p = 0.0
    for n in range(1, 5):
        pairs = [(grams(w, n), grams(r, n)) for w, r in zip(written, references, strict=True)]
        log_p += math.log(sum((w & r).total() for w, r in pairs) / sum(w.total() for w, _ in pairs)) / 4
    assert bleu(written, references, lowercase=False) == pytest.approx(100 * math.exp(log_p))  # longer: no penalty
    short = compared(["one two three four five"], ["one two three four five six"], lowercase=False)
    assert short["bleu"] == pytest.approx(100 * math.exp(1 - 6 / 5))  # every n-gram is right, but one word is missing
    assert short["length"] == pytest.approx(5 / 6)
    assert compared(written, references, lowercase=False)["length"] == pytest.approx(12 / 10)


def test_small_letters_are_the_manners_choice():
    assert bleu(["A Dog runs over grass"], ["a dog runs over grass"], lowercase=True) == pytest.approx(100)
    assert bleu(["A Dog runs over grass"], ["a dog runs over grass"], lowercase=False) < 50
    assert _task().texts["train"][1][0] == "a dog"
    assert _task(lowercase=False).texts["train"][1][0] == "a Dog"


def _learned(steps=150):
    """A model that knows the test split by heart."""
    task = _task(smoothing=0.0)
    model = _model(task, width=32)
    optimizer = torch.optim.Adam(model.parameters(), 5e-3)
    batch = next(task.batches("test", 3))
    for _ in range(steps):
        optimizer.zero_grad()
        task.loss(model(batch.graph, batch.x), batch).backward()
        optimizer.step()
    return task, model.eval()


def test_what_was_learned_is_written():
    task, model = _learned()
    assert [text for text, _ in task.translate(model, task.texts["test"][0], None, "cpu", at_once=2)] == TEXTS["test"][
        1
    ]
    references = task.texts["test"][1]
    judged = task.judge(model, "test", None, "cpu")
    assert judged == {"bleu": bleu(references, references, lowercase=True), "length": 1.0}
    answer = task.predict(model, None, " Eine Katze ", "cpu")
    assert answer["translation"] == "a cat"
    (found,) = translate(model, [task._source(task.tokenizer.encode(["eine katze"])[0])], (0, 1))
    assert answer["score"] == pytest.approx(found.score)


def test_a_sentence_must_say_something():
    task = _task()
    with pytest.raises(DataError, match="the sentence is empty"):
        task.predict(_model(task), None, "  ", "cpu")


def test_a_sentence_that_is_longer_than_any_of_the_data_is_not_searched_for():
    task = _task()
    word = task.texts["train"][0][0].split()[0]
    with pytest.raises(DataError, match=f"tokens, of at most {task.longest}: translate its sentences one by one"):
        task.predict(_model(task), None, f"{word} " * task.longest * 2, "cpu")


def test_a_run_keeps_its_tokenizer(tmp_path):
    folder, run = write_multi30k(tmp_path / "data"), tmp_path / "run"
    options = {"level": "bpe", "vocabulary": 265, "beam": 2, "folder": str(folder)}
    config = RunConfig(
        Choice("multi30k", options),
        Choice("encoder-decoder", {"width": 8, "encoder_depth": 1, "decoder_depth": 1, "heads": 2}),
        optimizer=Choice("adamw", {"learning_rate": 0.01}),
        train=TrainSettings(steps=2, batch=3),
        evaluation=EvaluationSettings(every=2),
        machine=MachineSettings(threads=1),
    )
    result = training.train(config, run, progress=False)
    assert result.metric == "bleu" and result.test is not None
    assert {"loss", "accuracy", "bleu"} <= set(training.read_metrics(run)[-1]["test"])
    before = training.load_run(run)
    (folder / "train.de.gz").write_bytes(gzip.compress(b"ganz andere Worte\n" * 5, mtime=0))
    with pytest.raises(CheckpointError, match="its data have changed"):
        training.load_run(run)
    after = training.load_run(run, accept=True)
    assert after.task.tokenizer.to_json() == before.task.tokenizer.to_json()
    assert after.task.signature.inputs == before.task.signature.inputs
    (run / "tokenizer.json").unlink()
    assert training.assemble(config, run)[0].tokenizer.to_json() != before.task.tokenizer.to_json()
    (run / "tokenizer.json").write_text("{}")
    with pytest.raises(CheckpointError, match=r"tokenizer\.json was altered"):
        training.load_run(run)
    with pytest.raises(DataError, match=r"tokenizer\.json: not a tokenizer"):
        training.load_run(run, accept=True)


def test_files_of_ones_own_are_read(tmp_path):
    folder = str(write_multi30k(tmp_path / "own"))
    task = multi30k(folder=folder, level="byte", pairs=2)
    assert (task.epoch_size, task.name) == (2, "multi30k de-en")
    assert multi30k("en-de", level="byte", folder=folder).texts["test"] == task.texts["test"][::-1]


def test_multi30k_has_its_sizes(data):
    task = multi30k(folder=str(data("multi30k")), level="byte")
    assert {split: len(x) for split, (x, _) in task.texts.items()} == {"train": 29_000, "valid": 1_014, "test": 1_000}
    assert task.texts["train"][0][0].startswith("zwei junge weiße männer")
    assert task.texts["train"][1][0].startswith("two young, white males")


@pytest.mark.parametrize("direction", ["fr-en", "en-fr", "cs-en", "en-cs"])
def test_other_languages_have_files_of_their_own(direction, tmp_path):
    folder, (language,) = write_multi30k(tmp_path / "own"), {*direction.split("-")} - {"en"}
    for path in folder.glob("*.de.gz"):
        path.rename(path.with_name(path.name.replace(".de.", f".{language}.")))
    german, task = write_multi30k(tmp_path / "german"), multi30k(direction, level="byte", folder=str(folder))
    ends = "de-en" if direction.endswith("-en") else "en-de"
    assert task.texts == multi30k(ends, level="byte", folder=str(german)).texts
    assert task.name == f"multi30k {direction}"
    with pytest.raises(DataError, match=r"lacks train\.de\.gz"):
        multi30k(folder=str(folder))
    names = {file.name for file in multi30k_files(*direction.split("-"))}
    assert names == {path.name for path in folder.iterdir()}
    assert len(set(HASHES.values())) == len(HASHES) == 12


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"direction": "de-fr"}, "unknown direction"),
        ({"pairs": 0}, "pairs must be at least 1"),
        ({"smoothing": 1.0}, "smoothing"),
        ({"beam": 0}, "beam=0"),
        ({"penalty": -1.0}, "penalty=-1.0"),
    ],
)
def test_impossible_options_are_refused(options, message):
    with pytest.raises(ConfigError, match=message):
        multi30k(**options)


@pytest.mark.parametrize(
    ("texts", "message"),
    [
        (TEXTS | {"valid": (["a"], [])}, "valid part has 1 sources and 0 targets"),
        (TEXTS | {"test": ([" "], ["a"])}, "test part has no pair"),
    ],
)
def test_impossible_texts_are_refused(texts, message):
    with pytest.raises(DataError, match=message):
        Translation("few", texts, Manner("character"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"plain", "not an intact gzip"),
        (gzip.compress(b"a line\n" * 100, mtime=0)[:-9], "ends too early"),
        (gzip.compress(b"\xff", mtime=0), "byte 0 is 0xff"),
    ],
)
def test_damaged_files_are_named(tmp_path, content, message):
    (tmp_path / "train.de.gz").write_bytes(content)
    with pytest.raises(DataError, match=f"train.de.gz: .*{message}"):
        read_lines(tmp_path / "train.de.gz")


def test_only_a_line_feed_ends_a_line(tmp_path):
    (tmp_path / "train.de").write_text("one\u2028still one\ntwo\r\n\nfour\n", encoding="utf-8", newline="")
    assert read_lines(tmp_path / "train.de.gz") == ["one\u2028still one", "two\r", "", "four"]


def test_missing_files_are_named(tmp_path):
    with pytest.raises(DataError, match=r"train\.de\.gz"):
        multi30k(folder=str(tmp_path))


def test_a_batch_of_pairs_is_a_batch():
    task = _task()
    batch = PairBatch.of(task.pairs("test"), lambda n: task.source_graph(None, n))
    assert batch.size == len(batch.target) == batch.graph.decoder.num_receivers
