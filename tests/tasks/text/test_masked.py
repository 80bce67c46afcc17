import json

import pytest
import torch

from edgewise.errors import ConfigError, DataError
from edgewise.models import BERT, BERTSettings
from edgewise.tasks import MaskedTokens
from edgewise.tasks.text.tokenization import BEGIN, END, MASK, CharacterTokenizer, read_tokenizer

LETTERS = "abcdefghijklmnopqrstuvwxyz"
TEXTS = {"train": ["attention", "graph", "edge", "transformer"], "valid": ["sender", "receiver"], "test": ["node"]}


def _task(**options):
    return MaskedTokens("words", TEXTS, CharacterTokenizer(LETTERS), **({"length": 16} | options))


def _whole(batch):
    """The texts of a batch before they were masked."""
    x = batch.x.clone()
    x[batch.rows] = batch.target
    return [part.tolist() for part in x.split([member.num_receivers for member in batch.members])]


class Likely(torch.nn.Module):
    """The same logits for each token."""

    def __init__(self, logits):
        super().__init__()
        self.logits = logits

    def forward(self, graph, x):
        self.read = x.tolist()
        return self.logits.expand(len(x), -1)


def test_a_batch_is_masked_texts_side_by_side():
    task = _task()
    batch = task.train_batch(6, torch.Generator().manual_seed(0))
    texts = _whole(batch)
    assert all((text[0], text[-1]) == (BEGIN, END) for text in texts)
    assert {task.tokenizer.decode(text) for text in texts} <= set(TEXTS["train"])
    assert batch.graph.sizes.tolist() == [len(text) for text in texts]
    assert batch.size == len(batch.rows) == (len(batch.target)) > 0


def test_every_text_is_read_once_with_the_same_masks():
    task = _task()
    for split in ("train", "valid", "test"):
        read = [task.tokenizer.decode(text) for batch in task.batches(split, 3) for text in _whole(batch)]
        assert read == TEXTS[split]
    first, again = (next(task.batches("valid", 2)) for _ in range(2))
    assert torch.equal(first.x, again.x)


def test_the_loss_is_of_what_was_chosen_alone():
    task = _task(share=0.4)
    batch = next(task.batches("train", 4))
    outputs = torch.randn(len(batch.x), task.tokenizer.size)
    expected = -outputs.log_softmax(-1)[batch.rows, batch.target].mean()
    assert torch.allclose(task.loss(outputs, batch), expected)
    changed = outputs.clone()
    changed[[row for row in range(len(batch.x)) if row not in batch.rows]] = 9.0
    assert torch.equal(task.loss(outputs, batch), task.loss(changed, batch))


def test_a_batch_is_cut_between_texts_with_the_same_loss():
    task = _task(share=0.5)
    model = BERT(BERTSettings(width=16, depth=1, heads=2), task.signature).eval()
    batch = next(task.batches("train", 4))
    parts = batch.split(2)
    assert [len(part.members) for part in parts] == [2, 2]
    assert [text for part in parts for text in _whole(part)] == _whole(batch)
    whole = task.loss(model(batch.graph, batch.x), batch)
    weighed = sum(task.loss(model(part.graph, part.x), part) * part.size for part in parts) / batch.size
    assert torch.allclose(whole, weighed)
    assert batch.split(5) == [batch] * 5


def test_another_wording_is_read_to_train_unless_it_is_too_long():
    task = _task(reword=lambda text, generator: text[::-1] * (1 + int(torch.randint(2, (), generator=generator))))
    read = {task.tokenizer.decode(text) for text in _whole(task.train_batch(99, torch.Generator().manual_seed(0)))}
    turned = {text[::-1] for text in TEXTS["train"]}
    assert read == turned | {"egdeegde", "hparghparg", "attention", "transformer"}  # twice those two would not fit
    assert [task.tokenizer.decode(text) for text in _whole(next(task.batches("valid", 2)))] == TEXTS["valid"]


def test_another_librarys_tokens_have_their_own_mask_and_ends(tmp_path):
    library = pytest.importorskip("tokenizers")
    words = ["[PAD]", "x", "y", "z", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the", "man", "runs", "walks"]
    made = library.Tokenizer(library.models.WordLevel({word: n for n, word in enumerate(words)}, words[4]))
    made.pre_tokenizer = library.pre_tokenizers.Whitespace()
    made.add_special_tokens(["[PAD]", "[UNK]"])
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "config.json").write_text(json.dumps({"vocab_size": 16}))  # four rows without a token
    named = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named))
    texts = {split: ["the man runs", "x what"] for split in TEXTS}
    task = MaskedTokens("words", texts, CharacterTokenizer(LETTERS + " "), 20)
    task.reword = lambda text, generator: f"{text} y"
    task.use(read_tokenizer(tmp_path / "tokenizer.json"))
    batch = task.train_batch(500, torch.Generator().manual_seed(0))
    read, special = batch.x[batch.rows], {0, 4, 5, 6, 7, 12, 13, 14, 15}
    assert 0.75 < (read == 7).double().mean() < 0.85 and set(read.tolist()) == {1, 2, 3, 7, 8, 9, 10, 11}
    assert not special & {*batch.target.tolist()} and {text[0] for text in _whole(batch)} == {5}
    assert [made.token_to_id(word) for word in ("the", "man", "runs", "y", "[SEP]")] in [x[1:] for x in _whole(batch)]
    model = Likely(torch.arange(16.0).flip(0))
    (found,) = task.predict(model, None, "the <mask> runs", "cpu")["guesses"]
    assert model.read == [5, 8, 7, 10, 6] and [one["token"] for one in found] == ["x", "y", "z", "the", "man"]
    assert task.subject(model, None, "the <mask> runs").names == ["⟨begin⟩", "the", "<mask>", "runs", "⟨end⟩"]
    assert {name: task.preprocessing()["tokenizer"][name] for name in ("begin", "end", "mask")} == {
        "begin": 5,
        "end": 6,
        "mask": 7,
    }
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named | {"mask_token": "none"}))
    with pytest.raises(DataError, match="no token for a mask"):
        task.use(read_tokenizer(tmp_path / "tokenizer.json"))


def test_what_cannot_be_is_refused():
    with pytest.raises(DataError, match="11 tokens, and its two ends, is longer than length=12"):
        _task(length=12)
    with pytest.raises(ConfigError, match="share must be above 0"):
        _task(share=0.0)
    with pytest.raises(DataError, match="no texts"):
        MaskedTokens("none", TEXTS | {"valid": []}, CharacterTokenizer(LETTERS), 16)
    with pytest.raises(DataError, match="nothing to guess"):
        _task().predict(torch.nn.Identity(), None, "graph", "cpu")
    assert MASK not in torch.cat(_task().tokens["train"])
