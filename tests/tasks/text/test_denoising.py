import json
import math

import pytest
import torch

from edgewise.errors import ConfigError, DataError
from edgewise.models import (
    BERT,
    BERTSettings,
    EncoderDecoder,
    EncoderDecoderSettings,
    Recurrent,
    RecurrentSettings,
    Transformer,
    TransformerSettings,
)
from edgewise.tasks import Denoising, MaskedTokens, Noise, multi30k, multi30k_denoising
from edgewise.tasks.text.denoising import infill, mask_tokens, permute_sentences
from edgewise.tasks.text.tokenization import BEGIN, END, MASK, SPECIAL, CharacterTokenizer, read_tokenizer
from edgewise.tasks.text.translation import Manner
from tasks.miniature import write_multi30k

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


@pytest.mark.parametrize("kind", [(BERT, BERTSettings), (Transformer, TransformerSettings)])
def test_a_batch_is_cut_between_texts_with_the_same_loss(kind):
    task, (model_of, settings) = _task(share=0.5), kind
    model = model_of(settings(width=16, depth=1, heads=2), task.signature).eval()
    batch = next(task.batches("train", 4))
    parts = batch.split(2)
    assert [len(part.members) for part in parts] == [2, 2]
    assert [text for part in parts for text in _whole(part)] == _whole(batch)
    whole = task.loss(model(batch.graph, batch.x), batch)
    assert torch.equal(whole, task.loss(chosen := model(*batch.inputs), batch)) and len(chosen) == batch.size
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
    assert task.preprocessing()["special"] == {"begin": 5, "end": 6, "mask": 7}
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(named | {"mask_token": "none"}))
    with pytest.raises(DataError, match="no token for a mask"):
        task.use(read_tokenizer(tmp_path / "tokenizer.json"))


def test_what_cannot_be_is_refused():
    with pytest.raises(ConfigError, match="Recurrent has outputs for all tokens, and this task asks for those of"):
        Recurrent(RecurrentSettings(width=8), _task().signature)
    with pytest.raises(DataError, match="11 tokens, and its two ends, is longer than length=12"):
        _task(length=12)
    with pytest.raises(ConfigError, match="share must be above 0"):
        _task(share=0.0)
    with pytest.raises(DataError, match="no texts"):
        MaskedTokens("none", TEXTS | {"valid": []}, CharacterTokenizer(LETTERS), 16)
    with pytest.raises(DataError, match="nothing to guess"):
        _task().predict(torch.nn.Identity(), None, "graph", "cpu")
    assert MASK not in torch.cat(_task().tokens["train"])


def _draw(seed=0):
    return torch.Generator().manual_seed(seed)


def test_masks_are_fifteen_percent_and_of_these_eighty_ten_and_ten():
    size, n = 203, 200_000
    tokens = torch.randint(SPECIAL, size, (n,))
    read, rows = mask_tokens(tokens, size, 0.15, _draw())
    assert abs(len(rows) / n - 0.15) < 4 * math.sqrt(0.15 * 0.85 / n)
    there, was = read[rows], tokens[rows]
    tolerance = 4 * math.sqrt(0.8 * 0.2 / len(rows))
    assert abs((there == MASK).double().mean() - 0.8) < tolerance
    assert abs((there == was).double().mean() - 0.1 - 0.1 / 200) < tolerance  # one other token in 200 is the same
    other = there[(there != MASK) & (there != was)]
    assert abs(len(other) / len(rows) - 0.1 * 199 / 200) < tolerance
    assert other.min() >= SPECIAL
    assert len(other.unique()) == 200
    untouched = torch.ones(n, dtype=torch.bool).index_fill_(0, rows, False)
    assert torch.equal(read[untouched], tokens[untouched])


def test_the_ends_are_never_masked_and_something_always_is():
    tokens = torch.tensor([BEGIN, 7, 8, 9, END, BEGIN, MASK, END])
    for seed in range(50):
        read, rows = mask_tokens(tokens, 10, 0.01, _draw(seed))
        assert len(rows) >= 1
        assert set(rows.tolist()) <= {1, 2, 3}
        assert read[[0, 4, 5, 6, 7]].tolist() == [BEGIN, END, BEGIN, MASK, END]
    assert mask_tokens(tokens, 10, 1.0, _draw())[1].tolist() == [1, 2, 3]
    read, rows = mask_tokens(torch.tensor([BEGIN, END]), 10, 0.15, _draw())
    assert (read.tolist(), rows.tolist()) == ([BEGIN, END], [])


def _spans(text, damaged):
    """How many tokens each mask of a damaged text stands for, where all tokens of the text differ and rise."""
    lengths, here, masks = [], 0, 0
    for token in [*damaged, text[-1] + 1]:
        if token == MASK:
            masks += 1
            continue
        missing = token - text[0] - here
        lengths.append((masks, missing))
        here, masks = token - text[0] + 1, 0
    return [pair for pair in lengths if pair[0]]


def test_infilling_removes_its_share_and_keeps_the_order():
    text, removed = list(range(10, 29)), []
    for seed in range(2000):
        damaged = infill(text, 0.3, 3.0, _draw(seed))
        kept = [token for token in damaged if token != MASK]
        assert kept == sorted(kept)
        assert set(kept) <= set(text)
        removed.append(len(text) - len(kept))
        assert sum(missing for _, missing in _spans(text, damaged)) == removed[-1]  # where one is missing, a mask is
    assert set(removed) == {5, 6}  # 0.3 · 19 = 5.7
    assert abs(sum(removed) / 2000 - 5.7) < 4 * math.sqrt(0.21 / 2000)


def test_sentences_stay_whole_in_any_order():
    text = [11, 12, 5, 13, 5, 14, 15]
    found = {tuple(permute_sentences(text, {5}, _draw(seed))) for seed in range(200)}
    pieces = [(11, 12, 5), (13, 5), (14, 15)]
    orders = {
        pieces[a] + pieces[b] + pieces[c]
        for a, b, c in ((0, 1, 2), (0, 2, 1), (1, 0, 2), (1, 2, 0), (2, 0, 1), (2, 1, 0))
    }
    assert found == orders


PLAIN = {
    "train": ["a cat sits.", "two dogs run! a man looks.", "a"],
    "valid": ["a dog."],
    "test": ["two cats look."],
}
TOKENS = CharacterTokenizer("abcdefghijklmnopqrstuvwxyz .!")


def _damaged(**noise):
    return Denoising("few", PLAIN, Manner("character"), Noise(**noise), TOKENS)


def _letters(text):
    return sorted(text.replace(" ", ""))


def test_the_target_is_the_text_and_the_source_what_noise_has_left_of_it():
    task = _damaged(infill=0.5, sentences=False)
    batch = task.train_batch(50, torch.Generator().manual_seed(0))
    texts = {task.tokenizer.decode(target.tolist()) for _, target in batch.pairs}
    assert texts == set(PLAIN["train"])
    for source, target in batch.pairs:
        assert (target[0], target[-1], source[-1]) == (BEGIN, END, END)
        left = [token for token in source[:-1].tolist() if token != MASK]
        assert all(left.count(token) <= target.tolist().count(token) for token in left)
    assert any((source == MASK).any() for source, _ in batch.pairs)
    assert len({tuple(source.tolist()) for source, _ in batch.pairs}) > 20  # each text is damaged anew


@pytest.mark.parametrize(
    ("noise", "same"),
    [
        ({"infill": 0.0, "sentences": False}, lambda found, text: found == text),
        ({"infill": 0.0}, lambda found, text: _letters(found) == _letters(text) and found[-1] in ".!a"),
        ({"infill": 0.0, "sentences": False, "reach": 2}, lambda found, text: _letters(found) == _letters(text)),
        ({"infill": 0.0, "sentences": False, "delete": 0.5}, lambda found, text: len(found) <= len(text)),
    ],
    ids=["none", "sentences", "order", "deletion"],
)
def test_each_kind_of_noise(noise, same):
    task = _damaged(**noise)
    pairs = task.train_batch(40, torch.Generator().manual_seed(0)).pairs
    read = [tuple(task.tokenizer.decode(side.tolist()) for side in pair) for pair in pairs]
    assert all(same(found.strip(), text) for found, text in read)
    assert any(found != text for found, text in read) == (noise != {"infill": 0.0, "sentences": False})


def test_a_request_has_holes():
    task = _damaged()
    (tokens,) = task.read(["a <mask> sits."])
    assert tokens.count(MASK) == 1
    assert task.tokenizer.decode(tokens) == "asits."
    model = EncoderDecoder(EncoderDecoderSettings(width=8, encoder_depth=1, decoder_depth=1, heads=2), task.signature)
    assert set(task.predict(model, None, "a <mask> sits.", "cpu")) == {"source", "translation", "score"}


def test_multi30k_reads_one_language_with_the_tokens_of_both(tmp_path):
    folder = str(write_multi30k(tmp_path))
    task = multi30k_denoising(vocabulary=300, folder=folder)
    assert task.texts["train"][0] == task.texts["train"][1]
    assert task.tokenizer.to_json() == multi30k(vocabulary=300, folder=folder).tokenizer.to_json()
    with pytest.raises(ConfigError, match="unknown language"):
        multi30k_denoising("fr", folder=folder)
    with pytest.raises(DataError):
        multi30k_denoising(folder=str(tmp_path / "nothing"))
