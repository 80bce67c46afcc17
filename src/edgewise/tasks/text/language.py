"""Text, one character at a time: guess the next character from those before it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.data.splits import Split
from edgewise.data.table import encoding_of
from edgewise.errors import ConfigError, DataError
from edgewise.files import read_bytes
from edgewise.graphs import Graph, causal
from edgewise.models.signature import LanguageModel, Tokens, language_model
from edgewise.models.text.generation import drawn, generate
from edgewise.models.text.sampling import Piece, Sampling, pieces, texts_of
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.classification import Classification, with_perplexity
from edgewise.tasks.core.drawing import Drawing, Matrix, Output, Passage, Section
from edgewise.tasks.core.source import Remote, find_folder
from edgewise.tasks.core.subject import Subject, captured, in_a_row, last_attention, matrices
from edgewise.tasks.core.task import Device, Pattern, without_future
from edgewise.tasks.text.tokenization import CharacterTokenizer, KeepsTokenizer, Tokenizer, for_library, words

SHAKESPEARE = Remote(
    name="input.txt",
    url="https://raw.githubusercontent.com/karpathy/char-rnn/master/data/tinyshakespeare/input.txt",
    sha256="86c4e6aa9db7c042ec79f339dcb96d42b0075e16b8fc2e86bf0ca57e2dc565ed",
    max_bytes=1 << 21,
)
MAX_BYTES = 1 << 28  # of a text
DRAWN, ADDED = 40, 300  # characters in a report: whose attention it draws, and that a model adds
TEMPERATURE = 0.8  # a little more certain than the model itself

PURPOSES: dict[Split, str] = {"train": "training", "valid": "validation", "test": "testing"}
SEEN = {" ": "␣", "\n": "↵", "\t": "⇥"}  # how white space is shown


class Text(KeepsTokenizer, Classification):
    """Next-character prediction on windows of `context` characters; the graph must not let a character see ahead.

    The vocabulary is the sorted set of the text's characters; a run keeps it, and reads any text with it. The first
    90 % of the text train, the rest validates: sizes, vocabulary and split are those of nanoGPT's shakespeare_char, so
    losses compare. There is no third part: a language model's result is its validation loss.

    Errors      a text whose parts are not longer than the context is a `DataError`.

    Example
        >>> task = Text("abc", "abcabcabca" * 3, context=2)
        >>> batch = next(task.batches("valid", 8))  # the last three characters: "bca"
        >>> task.decode(batch.x[0]), task.decode(batch.target[0])
        ('bc', 'ca')
    """

    metric = "loss"
    has_test = False
    unit = "windows of the text"
    generates = '--prompt "..."'
    ends = False  # whether its texts have ends, which are tokens that it learns

    def __init__(self, name: str, text: str, context: int) -> None:
        if context < 1:
            raise ConfigError(f"context must be at least 1 character, not {context}")
        self.name, self.context, train = name, context, int(0.9 * len(text))
        self.texts: dict[Split, str] = {"train": text[:train], "valid": text[train:]}
        self.use(CharacterTokenizer("".join(sorted(set(text))), first=0))

    def use(self, tokenizer: Tokenizer) -> None:
        """Read and write by a tokenizer, such as that of another model."""
        self.tokenizer, self.ends = tokenizer, bool(tokenizer.special)
        tokens = zip(self.texts, tokenizer.encode([*self.texts.values()]), strict=True)
        self._parts = {split: torch.tensor(part, dtype=torch.int32) for split, part in tokens}
        self._check_long(self._parts)
        self.signature = Tokens(tokenizer.size, tokenizer.size, length=self.context)
        self.epoch_size = max(1, (len(self._parts["train"]) - 1) // self.context)

    def _check_long(self, parts: dict[Split, Tensor]) -> None:
        if min(map(len, parts.values())) <= self.context:
            told = ", ".join(f"{len(part)} for {PURPOSES[split]}" for split, part in parts.items())
            what = f"too short: {told}; each must be more than context={self.context} {self.units}"
            raise DataError(f"{self.name}: {what}")

    def finish(self, means: dict[str, float]) -> dict[str, float]:
        return with_perplexity(means)

    @property
    def units(self) -> str:
        """What the text is made of, in the plural."""
        return "tokens" if self.tokenizer.special else "characters"

    def recall(self, run: Path) -> None:
        try:
            super().recall(run)
        except DataError as error:
            right = "give a text of these, or train text-files with --task.level byte"
            raise DataError(f"{self.name}: {error}, of {run}: {right}") from error

    def graph(self, pattern: Pattern = None, length: int | None = None) -> Graph:
        """The graph over `length` characters (default: the context); the data's own graph is causal."""
        return without_future(self.laid(pattern, causal, self.context if length is None else length))

    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> Batch:
        windows = self._parts["train"].unfold(0, self.context + 1, 1)
        starts = torch.randint(len(windows), (size,), generator=generator)
        # An index in brackets would wait for threads, milliseconds on a busy machine.
        return self._batch(windows.index_select(0, starts), pattern)

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        """The whole part in windows that do not overlap: each character but the first is guessed exactly once."""
        if split not in self._parts:
            raise DataError(f"{self.name}: the text has no {split} part; it has {' and '.join(self._parts)}")
        part = self._parts[split]
        for windows in part.unfold(0, self.context + 1, self.context).split(size):
            yield self._batch(windows, pattern, split)
        rest = part[(len(part) - 1) // self.context * self.context :]
        if len(rest) > 1:
            yield self._batch(rest[None], pattern, split)

    def _batch(self, windows: Tensor, pattern: Pattern, split: Split = "train") -> Batch:
        windows = windows.long()
        return Batch(self.graph(pattern, windows.shape[1] - 1), windows[:, :-1], windows[:, 1:])

    def encode(self, text: str) -> Tensor:
        """The tokens' numbers [N]; a character that no token is for is a DataError with its position."""
        return torch.tensor(self.tokenizer.encode([text])[0], dtype=torch.long)

    def decode(self, tokens: Tensor) -> str:
        return self.tokenizer.decode(tokens.tolist())

    def shown(self, token: int) -> str:
        """How a prediction names a token."""
        return self.tokenizer.decode([token])

    def describe(self) -> str:
        return f"{self.name}: text of {self.signature.inputs:,} different {self.units}, {self.context} at once"

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        yield Section("Attention", lambda: self.attention(model, pattern))
        if isinstance(model, LanguageModel):
            yield Section("Generated text", lambda: [self.continued(model, pattern)])

    def attention(self, model: nn.Module, pattern: Pattern) -> list[Drawing]:
        """The model's last attention among some characters of the validation text, if it has any."""
        tokens = self.passage(pattern, DRAWN)
        length = tokens.shape[-1]
        _, call = last_attention(model, self.graph(pattern, length), tokens)
        if call is None:
            return []
        weights = matrices(call.graph, call.weights[0].double().T)
        characters = [SEEN.get(c, c) for c in map(self.shown, tokens[0].tolist())]
        caption = (
            f"{length} {self.units} of the validation text: the attention of each (row) to the others (columns) "
            f"relative to the largest weight of its row. Last attention layer; heads: {len(weights)}."
        )
        return [Drawing("attention", Matrix(weights, characters), caption)]

    def continued(self, model: LanguageModel, pattern: Pattern) -> Passage:
        """A passage of the validation text, and what the model adds to it."""
        tokens = self.passage(pattern, self.context)
        drawn = torch.Generator().manual_seed(0)
        text = generate(model, tokens, ADDED, partial(self.graph, pattern), TEMPERATURE, generator=drawn)[0]
        caption = (
            f"Validation text (coloured), and {ADDED} {self.units} that the model adds at temperature {TEMPERATURE}."
        )
        start = tokens.shape[-1]
        return Passage(self.decode(text[:start]), self.decode(text[start:]), caption)

    def passage(self, pattern: Pattern, length: int) -> Tensor:
        """At most `length` tokens of the validation text [1, n]: of its first 64 windows the one with most letters."""
        windows = cast(Tensor, next(self.batches("valid", 64, pattern)).x)[:, :length]
        letters = [sum(map(str.isalpha, self.decode(window))) for window in windows]
        return windows[letters.index(max(letters))][None]

    def stream(self, model: nn.Module, pattern: Pattern, sampling: Sampling, device: Device) -> Iterator[Piece]:
        """What a model adds to a prompt as it is written, at temperature 0.8 unless another is given."""
        end = self.tokenizer.end if self.ends else None
        prompt = self.encode(sampling.prompt).tolist() or ([] if end is None else [end])
        if not prompt:
            raise ConfigError("the prompt is empty: give at least one character")
        sampling = replace(sampling, temperature=TEMPERATURE) if sampling.temperature is None else sampling
        tokens = torch.tensor([prompt] * (sampling.count or 1), device=device)
        generator = torch.Generator(device).manual_seed(sampling.seed)
        steps = drawn(language_model(model), tokens, partial(self.graph, pattern), sampling, generator)
        yield from pieces(steps, prompt, lambda tokens: self.decode(torch.tensor(tokens)), sampling, end)

    def generate(self, model: nn.Module, pattern: Pattern, sampling: Sampling, device: Device) -> Output:
        """A prompt continued, once or several times."""
        values = texts_of(self.stream(model, pattern, sampling, device), sampling)
        return Output(values, {}, "\n".join(values["texts"]))

    @torch.no_grad()
    def preprocessing(self) -> dict[str, Any]:
        if isinstance(self.tokenizer, CharacterTokenizer) and not self.tokenizer.special:
            return {"vocabulary": self.tokenizer.characters, "token": "the place of a character in the vocabulary"}
        return for_library(self.tokenizer, ends=())

    @property
    def typical(self) -> str:
        return self.decode(self._parts["valid"][:20])

    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """The five likeliest next characters after a prompt, and the prompt's own mean loss (None for one character).

        Only the last `context` characters of the prompt are read.
        """
        tokens = self.encode(request)[-self.context :]
        if not len(tokens):
            raise DataError("the prompt is empty: give at least one character")
        batch = Batch(self.graph(pattern, len(tokens)), tokens[None], tokens[None]).to(device)
        logits = model.eval()(batch.graph, batch.x)[0].cpu().double()
        loss = functional.cross_entropy(logits[:-1], tokens[1:]).item() if len(tokens) > 1 else None
        top = logits[-1].softmax(-1).topk(min(5, logits.shape[-1]))
        likely = zip(top.indices.tolist(), top.values.tolist(), strict=True)
        following = [{self.units[:-1]: self.shown(token), "probability": p} for token, p in likely]
        return {"prompt": request, "read": len(tokens), "loss": loss, "next": following}

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """The character after a prompt, by default the likeliest."""
        inputs = captured(model, lambda: self.predict(model, pattern, request, "cpu"))
        graph, tokens = inputs[0], inputs[1][0].tolist()
        pieces = [self.shown(token) for token in tokens]
        names = [SEEN.get(piece, piece) for piece in pieces]
        draw = in_a_row(names, "The characters of the prompt that are read.", graph)
        classes = [SEEN.get(piece, piece) for piece in map(self.shown, range(self.signature.inputs))]
        groups = words(tokens, names, self.tokenizer) if self.tokenizer.special else []
        row = 0, len(tokens) - 1
        return Subject(inputs, row, classes, names=names, groups=groups, draw=draw, node=row[1])


def read_text(path: Path) -> tuple[str, str]:
    r"""A text in UTF-8, UTF-16 with a byte order mark, or Windows-1252, its lines ended by \n; a note on its encoding.

    Errors      DataError for a file that is missing, empty, binary, in none of these, or too long
    """
    content = read_bytes(path, MAX_BYTES)
    encoding = encoding_of(content)
    try:
        text = content.decode(encoding).replace("\r\n", "\n").replace("\r", "\n")
    except UnicodeDecodeError as error:
        found = f"byte {content[error.start]:#04x} is not {encoding.removesuffix('-sig')}"
        raise DataError(f"{path}: not a text in a known encoding ({found})") from error
    if "\0" in text:
        raise DataError(f"{path}: a binary file: character {text.index(chr(0))} is zero; expected a text")
    if not text.strip():
        raise DataError(f"{path}: the text is empty")
    return text, "" if encoding == "utf-8-sig" else f": encoded in {encoding}"


def text(
    source: Literal["topics", "shakespeare"] = "topics",
    file: str | None = None,
    context: int = 64,
    folder: str | None = None,
    download: bool = False,
) -> Text:
    """Guess the next character of English text, or of any text file.

    Args:
        source: "topics" is the language reference that every Python carries (pydoc_data.topics, about 0.5 MB of real
            English, under Python's licence; its wording varies with Python's version); "shakespeare" is
            tinyshakespeare/input.txt, 1.1 MB.
        file: A text file in UTF-8, UTF-16 with a byte order mark or Windows-1252, to read instead of `source`.
        context: How many characters a model reads at once.
        folder: Where Shakespeare's input.txt lies (default: tinyshakespeare in $EDGEWISE_DATA, then the cache).
        download: Fetch Shakespeare if it is missing, over TLS and verified by its hash.

    Errors      a file that is missing, empty, binary or too short for the context is a `DataError` that names it.

    Example
        >>> task = text()
        >>> task.signature.kind, task.signature.length
        ('tokens', 64)
    """
    if file is not None:
        path = Path(file).expanduser()
        if not path.exists():
            raise DataError(f"{path}: no such file: give --task.file, a text")
        return Text(path.name, read_text(path)[0], context)
    if source == "topics":
        from pydoc_data.topics import topics

        return Text("topics", "".join(topics[name] for name in sorted(topics)), context)
    if source != "shakespeare":
        raise ConfigError(f"unknown text {source!r}; known are topics, shakespeare, or give file=")
    place = find_folder("tinyshakespeare", [SHAKESPEARE], folder, download)
    return Text("shakespeare", read_text(place / SHAKESPEARE.name)[0], context)
