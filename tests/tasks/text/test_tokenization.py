import json

import pytest

from edgewise.errors import DataError
from edgewise.tasks.text.tokenization import (
    SPECIAL,
    BPETokenizer,
    learn_tokenizer,
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
    tokenizer = BPETokenizer.learn(["xabc xabc xabc xabc xabd xabd"], SPECIAL + 256 + 2)
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
        '{"level": "bpe"}',
        '{"level": "bpe", "merges": {"model": {"type": "odd"}}}',
        json.dumps({"level": "bpe", "merges": "x"}),
    ],
)
def test_other_json_is_no_tokenizer(content):
    with pytest.raises(DataError, match="here: not a tokenizer"):
        tokenizer_from_json(content, "here")
