import gzip
import math
from collections import Counter

import pytest
import torch
from torch.nn import functional

from edgewise import training
from edgewise.errors import CheckpointError, DataError
from edgewise.models import EncoderDecoder, EncoderDecoderSettings, translate
from edgewise.tasks import Translation, multi30k
from edgewise.tasks.text.translation import Manner, compared
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


def test_a_batch_is_cut_between_pairs_with_the_same_loss():
    task = _task()
    model, batch = _model(task).eval(), task.train_batch(5, torch.Generator().manual_seed(0))
    parts = batch.split(2)
    assert [len(part.pairs) for part in parts] == [2, 3]
    whole = task.loss(model(batch.graph, batch.x), batch)
    weighed = sum(task.loss(model(part.graph, part.x), part) * part.size for part in parts) / batch.size
    assert torch.allclose(whole, weighed)
    assert batch.split(6) == [batch] * 6


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


def test_multi30k_has_its_sizes(data):
    task = multi30k(folder=str(data("multi30k")), level="byte")
    assert {split: len(x) for split, (x, _) in task.texts.items()} == {"train": 29_000, "valid": 1_014, "test": 1_000}
    assert task.texts["train"][0][0].startswith("zwei junge weiße männer")
    assert task.texts["train"][1][0].startswith("two young, white males")
