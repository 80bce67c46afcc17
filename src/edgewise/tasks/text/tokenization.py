"""Text as numbers: bytes, characters, byte pairs learned from a text, or the tokens of other libraries' models."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Protocol

from edgewise.errors import ConfigError, DataError, EdgewiseError, installing
from edgewise.files import read_bytes, read_json, reading

BEGIN, END, MASK = 0, 1, 2  # tokens that no text contains
SPECIAL = 3
NO_TEXT = frozenset({BEGIN, END, MASK})
HOLE = "<mask>"  # how a request writes MASK
NAMED = {"<begin>": BEGIN, "<end>": END, HOLE: MASK}  # as the library names them
EMPTY = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor")) | {
    "version": "1.0",
    "added_tokens": [],
}

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

    def to_library(self) -> dict[str, Any]:
        """The same as the library tokenizers reads it, each token with its number here."""


def words(tokens: Sequence[int], names: Sequence[str], tokenizer: Tokenizer) -> list[tuple[str, list[int]]]:
    """The words of a text, which blanks end, each with the places of its tokens; a special token is one by its name.

    >>> words([SPECIAL + byte for byte in b"a hat"], "a hat", ByteTokenizer())
    [('a', [0, 1]), ('hat', [2, 3, 4])]
    """
    made, ended = list[list[int]](), True
    for place, token in enumerate(tokens):
        text, before = tokenizer.decode([token]), tokenizer.decode(tokens[max(place - 1, 0) : place])
        both = tokenizer.decode(tokens[max(place - 1, 0) : place + 1])
        begins = both.startswith(before) and both[len(before) : len(before) + 1].isspace()
        special, blank = token in tokenizer.special, text.isspace()
        if not made or special or ((ended or begins) and not blank):
            made.append([])
        made[-1].append(place)
        ended = special or text[-1:].isspace()
    return [(tokenizer.decode([tokens[place] for place in word]).strip() or names[word[0]], word) for word in made]


def with_masks(tokenizer: Tokenizer, pieces: Sequence[str]) -> list[int]:
    """The tokens of the pieces between the holes of a text, with a mask for each hole."""
    first, *rest = tokenizer.encode(pieces)
    return [*first, *(token for piece in rest for token in (tokenizer.mask, *piece))]


class OwnTokenizer:
    """The special tokens of tokenizers that are made here: all others are from SPECIAL on."""

    begin, end, mask = BEGIN, END, MASK
    special: frozenset[int] = NO_TEXT

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

    def to_library(self) -> dict[str, Any]:
        own = [*range(33, 127), *range(161, 173), *range(174, 256)]  # bytes that the library writes as themselves
        others = [byte for byte in range(256) if byte not in own]
        vocabulary = {chr(byte): SPECIAL + byte for byte in own}
        vocabulary |= {chr(256 + number): SPECIAL + byte for number, byte in enumerate(others)}
        level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}
        model = {"type": "BPE", "vocab": NAMED | vocabulary, "merges": []}
        return EMPTY | {"pre_tokenizer": level, "decoder": level, "model": model}


class CharacterTokenizer(OwnTokenizer):
    """The characters of the texts it was made from; another one is a DataError with its position.

    Symbols     first = the number of the first one; 0: there are no special tokens

    Example
        >>> tokenizer = CharacterTokenizer("abc")
        >>> tokenizer.encode(["cab"]), tokenizer.decode([5, 3, 4, 1])
        ([[5, 3, 4]], 'cab')
    """

    def __init__(self, characters: str, first: int = SPECIAL) -> None:
        self.characters, self.first, self.size = characters, first, first + len(characters)
        self.special = NO_TEXT if first else frozenset()
        self._numbers = {character: first + number for number, character in enumerate(characters)}

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
        return "".join(self.characters[token - self.first] for token in tokens if token >= self.first)

    def to_json(self) -> str:
        return json.dumps({"level": "character", "characters": self.characters, "first": self.first})

    def to_library(self) -> dict[str, Any]:
        each = {"type": "Split", "pattern": {"Regex": r"[\s\S]"}, "behavior": "Isolated", "invert": False}
        model = {"type": "WordLevel", "vocab": NAMED | self._numbers, "unk_token": "<unknown>"}
        return EMPTY | {"pre_tokenizer": each, "decoder": {"type": "Fuse"}, "model": model}


def learn_byte_pairs(texts: Iterable[str], size: int, spaced: bool = True) -> PretrainedTokenizer:
    """Byte pairs of some texts: the most frequent pair of neighbours becomes one token, over and over; no text is
    unknown to them.

    Symbols     size = 256 bytes, merges and the special tokens: fewer where the texts have no more pairs; spaced =
                whether a first word is the same token as one within a text
    Errors      EdgewiseError where the package tokenizers is not installed
    Edge cases  a text comes back as it was, but, where a space is set before it, for white space at its beginning
    Reference   Sennrich, Haddow & Birch, 2016; on bytes: Radford et al., 2019 (GPT-2)

    Example
        >>> tokenizer = learn_byte_pairs(["low lower lowest"] * 9, size=270)
        >>> tokenizer.decode(tokenizer.encode(["lowest löw"])[0])
        'lowest löw'
    """
    if size < SPECIAL + 256:
        raise ConfigError(f"byte pairs need at least {SPECIAL + 256} tokens, not {size}")
    library = tokenizers_library()
    made = library.Tokenizer(library.models.BPE())
    made.pre_tokenizer = library.pre_tokenizers.ByteLevel(add_prefix_space=spaced)
    made.decoder = library.decoders.ByteLevel()
    alphabet = library.pre_tokenizers.ByteLevel.alphabet()
    trainer = library.trainers.BpeTrainer(
        vocab_size=size, special_tokens=[*NAMED], initial_alphabet=alphabet, show_progress=False, min_frequency=2
    )
    made.train_from_iterator(texts, trainer)
    content = json.loads(made.to_str()) | {"added_tokens": []}  # a text with "<mask>" in it has no mask
    return PretrainedTokenizer(content, made.get_vocab_size(), {"begin": BEGIN, "end": END, "mask": MASK})


def learn_tokenizer(level: Level, texts: Sequence[str], size: int, spaced: bool = True) -> Tokenizer:
    """A tokenizer of some texts: "bpe" of `size` tokens (see `learn_byte_pairs`), "byte" or "character".

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
    return learn_byte_pairs(texts, size, spaced)


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
            return CharacterTokenizer(content["characters"], int(content["first"]))
        if level == "pretrained":
            return PretrainedTokenizer(content["tokenizer"], content["size"], content["special"], where)
    raise DataError(f"{where}: not a tokenizer (its level is none of byte, character, pretrained)")


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


TOKENIZER, MAX_BYTES = "tokenizer.json", 1 << 26
NAMES = ("tokenizer_config.json", "special_tokens_map.json")  # where the special tokens are named
# What begins and ends a text, the first of these that a model has.
BEGINS, ENDS = ("cls_token", "bos_token", "eos_token"), ("sep_token", "eos_token", "cls_token")


class PretrainedTokenizer:
    """Byte pairs that were learned here, or the tokens that a model of another library was trained on, by the library
    tokenizers.

    Symbols     size = rows of the model's embedding, which may be more than there are tokens; special = the numbers
                without a token among them
    Errors      EdgewiseError where the package tokenizers is not installed; DataError for JSON that it cannot read, or
                a text that a task is to mask where the tokenizer knows no mask
    Edge cases  tokens that only frame a text are left out by `encode`, and say nothing to `decode`
    """

    def __init__(self, content: dict[str, Any], size: int, special: dict[str, int], where: str = "byte pairs") -> None:
        self._content, self.size, self._special = content, size, special
        with reading(where, "a tokenizer"):
            self._made = tokenizers_library().Tokenizer.from_str(json.dumps(content))
        self._made.no_padding()
        self._made.no_truncation()
        self.begin, self.end = special["begin"], special["end"]
        if not all(0 <= number < size for number in special.values()) or self._made.get_vocab_size() > size:
            raise ValueError(f"its {self._made.get_vocab_size():,} tokens are not those of a model with {size:,}")
        added = {number for number, token in self._made.get_added_tokens_decoder().items() if token.special}
        unused = {*range(size)} - {*self._made.get_vocab(with_added_tokens=True).values()}
        self.special = frozenset({*special.values(), *added, *unused})
        self._spaced = (content.get("pre_tokenizer") or {}).get("add_prefix_space", False)

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
        text = str(self._made.decode([token for token in tokens if token not in self.special]))
        return text.removeprefix(" ") if self._spaced else text  # which was set before a text

    def to_json(self) -> str:
        kept = {"level": "pretrained", "size": self.size, "special": self._special, "tokenizer": self._content}
        return json.dumps(kept, ensure_ascii=False)

    def to_library(self) -> dict[str, Any]:
        return self._content | {"truncation": None, "padding": None, "post_processor": None}


def for_library(
    tokenizer: Tokenizer, ends: Sequence[str] = ("begin", "end"), lowercase: bool = False
) -> dict[str, Any]:
    """What belongs to a text model beside it: the tokenizer as the library tokenizers reads it, and the tokens that no
    text contains.

    Symbols     ends = which of "begin" and "end" a text has
    """
    made, special = tokenizer.to_library(), {"begin": tokenizer.begin, "end": tokenizer.end}
    with suppress(DataError):  # of a model that was trained without
        special["mask"] = tokenizer.mask
    pieces = {name: {"SpecialToken": {"id": f"<{name}>", "type_id": 0}} for name in ends}
    first = [
        *filter(None, [pieces.get("begin")]),
        {"Sequence": {"id": "A", "type_id": 0}},
        *filter(None, [pieces.get("end")]),
    ]
    named = {f"<{name}>": {"id": f"<{name}>", "ids": [special[name]], "tokens": [f"<{name}>"]} for name in ends}
    frame = {"type": "TemplateProcessing", "single": first, "pair": [*first, {"Sequence": {"id": "B", "type_id": 0}}]}
    made |= {"post_processor": frame | {"special_tokens": named} if ends else None}
    if lowercase:
        parts = [{"type": "Lowercase"}, *filter(None, [made["normalizer"]])]
        made |= {"normalizer": {"type": "Sequence", "normalizers": parts}}
    return {"tokenizer": made, "special": special}


def keep_tokenizer(run: Path, tokenizer: Tokenizer) -> None:
    """Write a tokenizer into a run folder."""
    (run / TOKENIZER).write_text(tokenizer.to_json(), encoding="utf-8")


class KeepsTokenizer:
    """A task whose tokenizer is saved in a run, and taken from the one that it starts from."""

    kept: tuple[str, ...] = (TOKENIZER,)
    tokenizer: Tokenizer

    if TYPE_CHECKING:

        def use(self, tokenizer: Tokenizer) -> None:
            """Read the data by a tokenizer."""

    def keep(self, run: Path) -> None:
        keep_tokenizer(run, self.tokenizer)

    def recall(self, run: Path) -> None:
        """Go on with the tokenizer of a run folder or of another library's model, where it has one."""
        found = kept_tokenizer(run)
        if found is not None and found.to_json() != self.tokenizer.to_json():
            self.use(found)


def kept_tokenizer(folder: Path) -> Tokenizer | None:
    """The tokenizer of a run folder, or of a folder with another library's model, where it has one."""
    return read_tokenizer(folder / TOKENIZER) if (folder / TOKENIZER).is_file() else None


def read_tokenizer(path: Path) -> Tokenizer:
    """The tokenizer in a `tokenizer.json`, of a run folder or beside another library's model.

    Errors      DataError for a file that is neither, or a model without a token to begin or to end a text
    """
    text = read_bytes(path, MAX_BYTES).decode("utf-8", "replace")
    with reading(path, "a tokenizer"):
        content = json.loads(text)
        if "level" in content:
            return tokenizer_from_json(text, str(path))
        vocabulary = tokenizers_library().Tokenizer.from_str(text).get_vocab(with_added_tokens=True)
        config = read_json(path.parent / "config.json", "a model's configuration")
        size = max(int(config["vocab_size"]), 1 + max(vocabulary.values()))
        return PretrainedTokenizer(content, size, _special(path, config, vocabulary), str(path))


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
