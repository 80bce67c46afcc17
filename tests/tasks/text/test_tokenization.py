import json

import pytest

from edgewise.errors import DataError
from edgewise.tasks.text.tokenization import (
    SPECIAL,
    CharacterTokenizer,
    PretrainedTokenizer,
    learn_byte_pairs,
    learn_tokenizer,
    read_tokenizer,
    tokenizer_from_json,
)

TEXTS = ["ein hund läuft über die wiese .", "a dog runs over the meadow .", "Zwölf Boxkämpfer\tjagen Viktor"] * 3
LEVELS = ["bpe", "byte", "character"]


@pytest.mark.parametrize("level", LEVELS)
def test_a_text_comes_back_as_it_was(level):
    tokenizer = learn_tokenizer(level, TEXTS, 300)
    for text, tokens in zip(TEXTS, tokenizer.encode(TEXTS), strict=True):
        assert tokenizer.decode(tokens) == text
        assert all(SPECIAL <= token < tokenizer.size for token in tokens)
        assert tokenizer.decode([0, *tokens, 2, 1]) == text  # what no text contains says nothing


@pytest.mark.parametrize("level", LEVELS)
def test_json_holds_all_of_a_tokenizer(level):
    tokenizer = learn_tokenizer(level, TEXTS, 300)
    again = tokenizer_from_json(tokenizer.to_json(), "here")
    assert (type(again), again.size) == (type(tokenizer), tokenizer.size)
    assert again.encode(TEXTS) == tokenizer.encode(TEXTS)
    assert again.to_json() == tokenizer.to_json()


def test_byte_pairs_are_the_most_frequent_ones():
    """Written out: 'ab' is there 6 times, then 'abc' 4 times; each becomes one token."""
    tokenizer = learn_byte_pairs(["xabc xabc xabc xabc xabd xabd"], SPECIAL + 256 + 2)
    assert tokenizer.size == SPECIAL + 258
    lengths = [len(tokens) for tokens in tokenizer.encode(["xabc", "xabd", "abc"])]
    plain = [len(text) + 1 for text in ("xabc", "xabd", "abc")]  # the blank in front is a byte too
    assert [a - b for a, b in zip(plain, lengths, strict=True)] == [2, 2, 1]


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"level": "word"}',
        '{"level": "character", "characters": 3}',
        '{"level": "pretrained"}',
        '{"level": "pretrained", "size": 3, "special": {}, "tokenizer": {"model": {"type": "odd"}}}',
        json.dumps({"level": "pretrained", "size": 3, "special": {}, "tokenizer": "x"}),
    ],
)
def test_other_json_is_no_tokenizer(content):
    with pytest.raises(DataError, match="here: not a tokenizer"):
        tokenizer_from_json(content, "here")


tokenizers = pytest.importorskip("tokenizers")
NAMED = ["[CLS]", "[SEP]", "[MASK]", "[UNK]"]


def made(folder, **config):
    """A folder with words as tokens, and what else a model's folder says."""
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({}, "[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    trainer = tokenizers.trainers.WordLevelTrainer(special_tokens=NAMED, show_progress=False)
    words.train_from_iterator(["who attends to whom"], trainer)
    words.enable_truncation(2)  # as many a tokenizer.json has it: texts are not to be cut here
    words.enable_padding(length=9)
    words.save(str(folder / "tokenizer.json"))
    (folder / "config.json").write_text(json.dumps({"vocab_size": 12, **config}))
    named = {"cls_token": "[CLS]", "sep_token": {"content": "[SEP]"}, "mask_token": "[MASK]"}
    (folder / "special_tokens_map.json").write_text(json.dumps(named))
    return words


def test_a_models_tokens_are_those_of_its_file_and_go_through_a_run_folder(tmp_path):
    words = made(tmp_path)
    found = read_tokenizer(tmp_path / "tokenizer.json")
    expected = [words.token_to_id(word) for word in ("whom", "attends", "to", "[UNK]", "who")]
    assert found.encode(["whom attends to x who"]) == [expected]
    assert found.decode([0, *expected[:3], 1]) == "whom attends to"
    assert (found.begin, found.end, found.mask, found.size) == (0, 1, 2, 12)
    (tmp_path / "run.json").write_text(found.to_json())
    again = read_tokenizer(tmp_path / "run.json")
    assert isinstance(again, PretrainedTokenizer) and again.encode(["whom to"]) == found.encode(["whom to"])
    assert again.to_json() == found.to_json()
    (tmp_path / "own.json").write_text(CharacterTokenizer("ab").to_json())
    assert isinstance(read_tokenizer(tmp_path / "own.json"), CharacterTokenizer)


def test_the_configuration_says_how_a_decoder_starts_and_ends(tmp_path):
    made(tmp_path, decoder_start_token_id=7, eos_token_id=6)
    (tmp_path / "special_tokens_map.json").unlink()
    found = read_tokenizer(tmp_path / "tokenizer.json")
    assert (found.begin, found.end) == (7, 6)
    with pytest.raises(DataError, match="no token for a mask"):
        _ = found.mask


@pytest.mark.parametrize(
    ("config", "message"),
    [({"vocab_size": "many"}, "not a tokenizer"), ({"decoder_start_token_id": 99}, "are not those of a model with 12")],
)
def test_a_folder_that_contradicts_itself_is_refused(config, message, tmp_path):
    made(tmp_path, **config)
    with pytest.raises(DataError, match=message):
        read_tokenizer(tmp_path / "tokenizer.json")
    (tmp_path / "tokenizer.json").write_text(json.dumps({"level": "pretrained", "size": 3}))
    with pytest.raises(DataError, match="not a tokenizer"):
        read_tokenizer(tmp_path / "tokenizer.json")
