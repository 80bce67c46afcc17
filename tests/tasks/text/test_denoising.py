import pytest
import torch

from edgewise.errors import ConfigError, DataError
from edgewise.models import EncoderDecoder, EncoderDecoderSettings
from edgewise.tasks import Denoising, Noise, multi30k, multi30k_denoising
from edgewise.tasks.text.tokenization import BEGIN, END, MASK, CharacterTokenizer
from edgewise.tasks.text.translation import Manner
from tasks.miniature import write_multi30k

TEXTS = {"train": ["a cat sits.", "two dogs run! a man looks.", "a"], "valid": ["a dog."], "test": ["two cats look."]}
TOKENS = CharacterTokenizer("abcdefghijklmnopqrstuvwxyz .!")


def _task(**noise):
    return Denoising("few", TEXTS, Manner("character"), Noise(**noise), TOKENS)


def _letters(text):
    return sorted(text.replace(" ", ""))


def test_the_target_is_the_text_and_the_source_what_noise_has_left_of_it():
    task = _task(infill=0.5, sentences=False)
    batch = task.train_batch(50, torch.Generator().manual_seed(0))
    texts = {task.tokenizer.decode(target.tolist()) for _, target in batch.pairs}
    assert texts == set(TEXTS["train"])
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
    task = _task(**noise)
    pairs = task.train_batch(40, torch.Generator().manual_seed(0)).pairs
    read = [tuple(task.tokenizer.decode(side.tolist()) for side in pair) for pair in pairs]
    assert all(same(found.strip(), text) for found, text in read)
    assert any(found != text for found, text in read) == (noise != {"infill": 0.0, "sentences": False})


def test_a_request_has_holes():
    task = _task()
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
