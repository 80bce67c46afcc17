"""The tokens of other libraries' models: a `tokenizer.json` in the layout of Hugging Face, beside a model's weights."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from edgewise.errors import DataError
from edgewise.files import read_bytes, read_json, reading
from edgewise.tasks.text import tokenization

TOKENIZER, MAX_BYTES = "tokenizer.json", 1 << 26
NAMES = ("tokenizer_config.json", "special_tokens_map.json")  # where the special tokens are named
# What begins and ends a text, the first of these that a model has.
BEGINS, ENDS = ("cls_token", "bos_token", "eos_token"), ("sep_token", "eos_token", "cls_token")


class PretrainedTokenizer:
    """The tokens that a model of another library was trained on, by the library tokenizers.

    Symbols     size = rows of the model's embedding, which may be more than there are tokens; special = the numbers
                without a token among them
    Errors      EdgewiseError where the package tokenizers is not installed; DataError for JSON that it cannot read, or
                a text that a task is to mask where the tokenizer knows no mask
    Edge cases  tokens that only frame a text are left out by `encode`, and say nothing to `decode`
    """

    def __init__(self, content: dict[str, Any], size: int, special: dict[str, int]) -> None:
        self._content, self.size, self._special = content, size, special
        library = tokenization.tokenizers_library()
        with reading(TOKENIZER, "a tokenizer"):
            self._made = library.Tokenizer.from_str(json.dumps(content))
        self._made.no_padding()
        self._made.no_truncation()
        self.begin, self.end = special["begin"], special["end"]
        if not all(0 <= number < size for number in special.values()) or self._made.get_vocab_size() > size:
            raise ValueError(f"its {self._made.get_vocab_size():,} tokens are not those of a model with {size:,}")
        added = {number for number, token in self._made.get_added_tokens_decoder().items() if token.special}
        unused = {*range(size)} - {*self._made.get_vocab(with_added_tokens=True).values()}
        self.special = frozenset({*special.values(), *added, *unused})

    @property
    def mask(self) -> int:
        """The token that takes the place of one to be guessed."""
        if "mask" not in self._special:
            raise DataError("this tokenizer has no token for a mask: its model was trained without")
        return self._special["mask"]

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [text.ids for text in self._made.encode_batch(list(texts), add_special_tokens=False)]

    def known(self, text: str) -> str:
        return text

    def decode(self, tokens: Sequence[int]) -> str:
        return str(self._made.decode(list(tokens), skip_special_tokens=True))

    def to_json(self) -> str:
        kept = {"level": "pretrained", "size": self.size, "special": self._special, "tokenizer": self._content}
        return json.dumps(kept, ensure_ascii=False)


def keep_tokenizer(run: Path, tokenizer: tokenization.Tokenizer) -> None:
    """Write a tokenizer into a run folder."""
    (run / TOKENIZER).write_text(tokenizer.to_json(), encoding="utf-8")


class KeepsTokenizer:
    """A task whose tokenizer is saved in a run, and taken from the one that it starts from."""

    kept: tuple[str, ...] = (TOKENIZER,)
    tokenizer: tokenization.Tokenizer

    if TYPE_CHECKING:

        def use(self, tokenizer: tokenization.Tokenizer) -> None:
            """Read the data by a tokenizer."""

    def keep(self, run: Path) -> None:
        """Write the tokenizer into a run folder."""
        keep_tokenizer(run, self.tokenizer)

    def recall(self, run: Path) -> None:
        """Go on with the tokenizer of a run folder or of another library's model, where it has one."""
        if (found := kept_tokenizer(run)) is not None:
            self.use(found)


def kept_tokenizer(folder: Path) -> tokenization.Tokenizer | None:
    """The tokenizer of a run folder, or of a folder with another library's model, where it has one."""
    return read_tokenizer(folder / TOKENIZER) if (folder / TOKENIZER).is_file() else None


def read_tokenizer(path: Path) -> tokenization.Tokenizer:
    """The tokenizer in a `tokenizer.json`, of a run folder or beside another library's model.

    Errors      DataError for a file that is neither, or a model without a token to begin or to end a text
    """
    text = read_bytes(path, MAX_BYTES).decode("utf-8", "replace")
    with reading(path, "a tokenizer"):
        content = json.loads(text)
        if content.get("level") == "pretrained":
            return PretrainedTokenizer(content["tokenizer"], content["size"], content["special"])
        if "level" in content:
            return tokenization.tokenizer_from_json(text, str(path))
        vocabulary = tokenization.tokenizers_library().Tokenizer.from_str(text).get_vocab(with_added_tokens=True)
        config = read_json(path.parent / "config.json", "a model's configuration")
        size = max(int(config["vocab_size"]), 1 + max(vocabulary.values()))
        return PretrainedTokenizer(content, size, _special(path, config, vocabulary))


def _special(path: Path, config: dict[str, Any], vocabulary: dict[str, int]) -> dict[str, int]:
    """The numbers of the tokens that begin, end and mask, as the model's configuration or the tokenizer's files say."""
    names: dict[str, str] = {}
    for file in NAMES:
        if (path.parent / file).is_file():
            listed = read_json(path.parent / file, "a list of special tokens").items()
            values = {name: value["content"] if isinstance(value, dict) else value for name, value in listed}
            names |= {name: value for name, value in values.items() if isinstance(value, str) and value in vocabulary}

    def first(number: str, *tokens: str) -> int | None:
        named = next((vocabulary[names[token]] for token in tokens if token in names), None)
        return config[number] if isinstance(config.get(number), int) else named

    start = first("decoder_start_token_id", *BEGINS)
    found = {"begin": first("bos_token_id") if start is None else start}
    found["end"] = first("sep_token_id", *ENDS) if "sep_token" in names else first("eos_token_id", *ENDS)
    for name, number in found.items():
        if number is None:
            raise DataError(f"{path}: no token is named that {name}s a text, in config.json or {' or '.join(NAMES)}")
    mask = {"mask": vocabulary[names["mask_token"]]} if "mask_token" in names else {}
    return {name: number for name, number in found.items() if number is not None} | mask
