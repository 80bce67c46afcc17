"""Text as numbers: bytes, characters, or byte pairs learned from a text; each is plain JSON in a run folder."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from typing import Any, Literal, Protocol

from edgewise.errors import ConfigError, DataError, EdgewiseError, installing
from edgewise.files import reading

BEGIN, END, MASK = 0, 1, 2  # tokens that no text contains
SPECIAL = 3
NO_TEXT = frozenset({BEGIN, END, MASK})
HOLE = "<mask>"  # how a request writes MASK

Level = Literal["bpe", "byte", "character"]


class Tokenizer(Protocol):
    """A text as a list of tokens below size, and back; `begin`, `end` and `mask` are tokens that no text contains, and
    `special` is all such."""

    size: int
    begin: int
    end: int
    special: frozenset[int]

    @property
    def mask(self) -> int: ...

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """The tokens of each text, without BEGIN and END."""

    def known(self, text: str) -> str:
        """What of a text `encode` takes."""

    def decode(self, tokens: Sequence[int]) -> str:
        """The text of tokens; BEGIN, END and MASK say nothing."""

    def to_json(self) -> str:
        """Everything that `tokenizer_from_json` needs."""


def with_masks(pieces: Sequence[Sequence[int]], mask: int = MASK) -> list[int]:
    """The tokens of the pieces between the holes of a text, with a mask for each hole."""
    return [token for piece in pieces for token in (mask, *piece)][1:]


class OwnTokenizer:
    """The special tokens of tokenizers that are made here: all others are from SPECIAL on."""

    begin, end, mask, special = BEGIN, END, MASK, NO_TEXT

    def known(self, text: str) -> str:
        return text


class ByteTokenizer(OwnTokenizer):
    """The UTF-8 bytes of a text: 256 tokens for every language, and long texts.

    Example
        >>> tokenizer = ByteTokenizer()
        >>> tokenizer.encode(["aé"]), tokenizer.decode([100, 198, 172])
        ([[100, 198, 172]], 'aé')
    """

    size = SPECIAL + 256

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        return [[SPECIAL + byte for byte in text.encode("utf-8", "surrogatepass")] for text in texts]

    def decode(self, tokens: Sequence[int]) -> str:
        return bytes(token - SPECIAL for token in tokens if token >= SPECIAL).decode("utf-8", "replace")

    def to_json(self) -> str:
        return json.dumps({"level": "byte"})


class CharacterTokenizer(OwnTokenizer):
    """The characters of the texts it was made from; another one is a DataError with its position.

    Example
        >>> tokenizer = CharacterTokenizer("abc")
        >>> tokenizer.encode(["cab"]), tokenizer.decode([5, 3, 4, 1])
        ([[5, 3, 4]], 'cab')
    """

    def __init__(self, characters: str) -> None:
        self.characters = characters
        self.size = SPECIAL + len(characters)
        self._numbers = {character: SPECIAL + number for number, character in enumerate(characters)}

    @classmethod
    def learn(cls, texts: Iterable[str]) -> CharacterTokenizer:
        """The sorted set of all characters of the texts."""
        return cls("".join(sorted(set().union(*texts))))

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        for text in texts:
            for position, character in enumerate(text):
                if character not in self._numbers:
                    known = f"the {len(self.characters)} characters that were learned"
                    raise DataError(f"character {character!r} at position {position} is none of {known}")
        return [[self._numbers[character] for character in text] for text in texts]

    def known(self, text: str) -> str:
        return "".join(character for character in text if character in self._numbers)

    def decode(self, tokens: Sequence[int]) -> str:
        return "".join(self.characters[token - SPECIAL] for token in tokens if token >= SPECIAL)

    def to_json(self) -> str:
        return json.dumps({"level": "character", "characters": self.characters})


class BPETokenizer(OwnTokenizer):
    """Byte pairs: the most frequent pair of neighbours becomes one token, over and over; no text is unknown to it.

    Symbols     size = SPECIAL + 256 bytes + merges: at most the size that was requested
    Errors      EdgewiseError where the package tokenizers is not installed; DataError for JSON that it cannot read
    Edge cases  a text comes back as it was, but for white space at its beginning
    Reference   Sennrich, Haddow & Birch, 2016; on bytes: Radford et al., 2019 (GPT-2)

    Example
        >>> tokenizer = BPETokenizer.learn(["low lower lowest"] * 9, size=270)
        >>> tokenizer.decode(tokenizer.encode(["lowest löw"])[0])
        'lowest löw'
    """

    def __init__(self, merges: Any) -> None:
        self._merges = merges
        self.size = SPECIAL + merges.get_vocab_size()

    @classmethod
    def learn(cls, texts: Iterable[str], size: int) -> BPETokenizer:
        """Byte pairs of some texts: `size` tokens, or fewer where the texts have no more pairs."""
        if size < SPECIAL + 256:
            raise ConfigError(f"byte pairs need at least {SPECIAL + 256} tokens, not {size}")
        library = tokenizers_library()
        merges = library.Tokenizer(library.models.BPE())
        merges.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=True)
        merges.decoder = library.decoders.ByteLevel()
        alphabet = library.pre_tokenizers.ByteLevel.alphabet()
        trainer = library.trainers.BpeTrainer(
            vocab_size=size - SPECIAL, initial_alphabet=alphabet, show_progress=False, min_frequency=2
        )
        merges.train_from_iterator(texts, trainer)
        return cls(merges)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        encoded = self._merges.encode_batch(list(texts), add_special_tokens=False)
        return [[SPECIAL + number for number in text.ids] for text in encoded]

    def decode(self, tokens: Sequence[int]) -> str:
        text: str = self._merges.decode([token - SPECIAL for token in tokens if token >= SPECIAL])
        return text.removeprefix(" ")

    def to_json(self) -> str:
        return json.dumps({"level": "bpe", "merges": json.loads(self._merges.to_str())}, ensure_ascii=False)


def learn_tokenizer(level: Level, texts: Sequence[str], size: int) -> Tokenizer:
    """A tokenizer of some texts: "bpe" of `size` tokens, "byte" or "character".

    Example
        >>> learn_tokenizer("character", ["ab", "bc"], 0).size
        6
    """
    if level == "byte":
        return ByteTokenizer()
    if level == "character":
        return CharacterTokenizer.learn(texts)
    if level != "bpe":
        raise ConfigError(f"unknown level {level!r}; known are bpe, byte, character")
    return BPETokenizer.learn(texts, size)


def tokenizer_from_json(text: str, where: str) -> Tokenizer:
    """The tokenizer that `to_json` wrote; anything else is a DataError that names `where`.

    Example
        >>> tokenizer_from_json(CharacterTokenizer("ab").to_json(), "here").decode([4, 3])
        'ba'
    """
    with reading(where, "a tokenizer"):
        content = json.loads(text)
        level = content["level"]
        if level == "byte":
            return ByteTokenizer()
        if level == "character" and isinstance(content["characters"], str):
            return CharacterTokenizer(content["characters"])
        if level == "bpe":
            return BPETokenizer(tokenizers_library().Tokenizer.from_str(json.dumps(content["merges"])))
    raise DataError(f"{where}: not a tokenizer (its level is none of bpe, byte, character)")


def tokenizers_library() -> Any:
    """The package tokenizers, where it is installed."""
    try:
        import tokenizers
        import tokenizers.decoders
        import tokenizers.models
        import tokenizers.pre_tokenizers
        import tokenizers.trainers
    except ImportError as error:
        raise EdgewiseError(f"byte pairs are the package tokenizers': {installing('text')}") from error
    return tokenizers
