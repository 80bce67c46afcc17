"""Masked tokens: guess those that were taken out of a text, from both sides; before a task with few labels."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Self

import torch
from torch import Generator, Tensor, nn

from edgewise.data.splits import Split
from edgewise.errors import ConfigError, DataError
from edgewise.graphs import Graph, complete
from edgewise.models.signature import Tokens
from edgewise.tasks.core.batch import Batch, DisjointBatch, evenly
from edgewise.tasks.core.classification import Classification
from edgewise.tasks.core.drawing import Coloured, Content
from edgewise.tasks.core.subject import Subject, captured, on_matrix
from edgewise.tasks.core.task import Device, Pattern, given, lay
from edgewise.tasks.text.denoising import mask_tokens
from edgewise.tasks.text.tokenization import HOLE, SPECIAL, Tokenizer, with_masks

Reword = Callable[[str, Generator], str]


@dataclass
class MaskedBatch(DisjointBatch):
    """Some texts side by side as one graph; `rows` are the tokens to guess, `target` what they were."""

    rows: Tensor

    def split(self, parts: int) -> list[Self]:
        """Cut between texts; where a part would have nothing to guess, each part is the whole batch."""
        ends = torch.tensor([0] + [member.num_receivers for member in self.members]).cumsum(0)
        made = []
        for first, last in evenly(len(self.members), parts):
            start, stop = int(ends[first]), int(ends[last])
            mine = (self.rows >= start) & (self.rows < stop)
            if not mine.any():
                return [self] * parts
            members, rows = self.members[first:last], self.rows[mine] - start
            graph = Graph.batch(members)
            made.append(type(self)(graph, self.x[start:stop], self.target[mine], rows, members=members))
        return made


class MaskedTokens(Classification):
    """Guess masked tokens from those on both sides: an encoder learns what texts are like without any label (BERT).

    Equation    loss = −1/M Σ_m log p(x_m | the text with some of it masked), over the M tokens that were chosen
    Symbols     share = how likely a token is chosen; `mask_tokens` says what becomes of it
    Shapes      a text of n tokens is BEGIN, n tokens, END: n + 2 nodes that attend to one another
    Errors      DataError for a text longer than `length`, a split without texts, or a tokenizer without a mask
    Edge cases  `reword` draws another wording of the same text each time it is read to train; one that is too long is
                replaced by the text itself. Masks that validate and test are drawn once
    Cost        a batch costs what its tokens cost: nothing is padded
    Differs     no second sentence; masks are drawn anew at every reading, as in RoBERTa
    Reference   Devlin et al., "BERT", 2019; Liu et al., "RoBERTa", 2019

    Example
        >>> from edgewise.tasks.text.tokenization import CharacterTokenizer
        >>> texts = {"train": ["abcd"], "valid": ["abc"], "test": []}
        >>> task = MaskedTokens("letters", texts, CharacterTokenizer("abcd"), length=6)
        >>> batch = next(task.batches("valid", 8))
        >>> batch.x.tolist(), batch.rows.tolist(), batch.target.tolist()  # a, b, ?, of the tokens BEGIN a b c END
        ([0, 3, 4, 2, 1], [3], [5])
    """

    metric = "loss"
    unit = "texts"
    maximise = False

    def __init__(
        self,
        name: str,
        texts: Mapping[Split, Sequence[str]],
        tokenizer: Tokenizer,
        length: int,
        share: float = 0.15,
        reword: Reword | None = None,
    ) -> None:
        if not 0 < share <= 1:
            raise ConfigError(f"share must be above 0 and at most 1, not {share}")
        if not (texts["train"] and texts["valid"]):
            raise DataError(f"{name} has no texts to train on, or none to validate")
        self.name, self.texts, self.share, self.reword = name, texts, share, reword
        self.epoch_size, self.has_test, self.splits = len(texts["train"]), bool(texts["test"]), texts
        self.length = length
        self.use(tokenizer)

    def use(self, tokenizer: Tokenizer) -> None:
        """Read the texts by a tokenizer."""
        self.tokenizer, self.mask, self.contents = tokenizer, tokenizer.mask, f"{tokenizer.size:,} tokens, texts"
        self.signature = Tokens(tokenizer.size, tokenizer.size, length=self.length)
        self.tokens = {split: [self.frame(x) for x in tokenizer.encode(texts)] for split, texts in self.texts.items()}

    def frame(self, tokens: Sequence[int]) -> Tensor:
        """A text's tokens between those that begin and end it."""
        return framed(self.name, tokens, self.length, (self.tokenizer.begin, self.tokenizer.end))

    def train_batch(self, size: int, generator: Generator, pattern: Pattern = None) -> Batch:
        """`size` training texts drawn with replacement, each worded and masked anew."""
        chosen = torch.randint(self.epoch_size, (size,), generator=generator).tolist()
        texts = [self._reworded(number, generator) for number in chosen]
        return self._batch(texts, *self._masked(texts, generator), pattern)

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        """Every text of a split once, in a fixed order, with the same masks every time, whatever the size."""
        texts = self.tokens[split]
        lengths = [len(text) for text in texts]
        read, rows = self._masked(texts, Generator().manual_seed(0))
        chosen = torch.zeros(len(read), dtype=torch.bool).index_fill(0, rows, True).split(lengths)
        x = read.split(lengths)
        for first in range(0, len(texts), size):
            some = slice(first, first + size)
            yield self._batch(texts[some], torch.cat(x[some]), torch.cat(chosen[some]).nonzero()[:, 0], pattern)

    def _reworded(self, number: int, generator: Generator) -> Tensor:
        if self.reword is None:
            return self.tokens["train"][number]
        tokens = self.tokenizer.encode([self.reword(self.texts["train"][number], generator)])[0]
        fits = len(tokens) + 2 <= self.length
        return self.frame(tokens) if fits else self.tokens["train"][number]

    def _masked(self, texts: Sequence[Tensor], generator: Generator) -> tuple[Tensor, Tensor]:
        """What is read of texts in a row, and which of their tokens are to be guessed."""
        whole, tokenizer = torch.cat([*texts, torch.empty(0, dtype=torch.int64)]), self.tokenizer
        return mask_tokens(whole, tokenizer.size, self.share, generator, self.mask, tokenizer.special)

    def _batch(self, texts: Sequence[Tensor], x: Tensor, rows: Tensor, pattern: Pattern) -> Batch:
        members = tuple(text_graph(pattern, len(text)) for text in texts)
        return MaskedBatch(Graph.batch(members), x, torch.cat(list(texts))[rows], rows, members=members)

    @torch.no_grad()
    def preprocessing(self) -> dict[str, Any]:
        special = {"first": SPECIAL, "begin": self.tokenizer.begin, "end": self.tokenizer.end, "mask": self.mask}
        return {"tokenizer": json.loads(self.tokenizer.to_json()) | special}

    @property
    def typical(self) -> str:
        return "<mask>"

    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """The five likeliest tokens for each "<mask>" of a text."""
        pieces = self.tokenizer.encode(request.strip().split(HOLE))
        if len(pieces) == 1:
            raise DataError(f"nothing to guess: write {HOLE} in place of a token")
        x = self.frame(with_masks(pieces, self.mask))
        graph = text_graph(pattern, len(x)).to(device)
        special = list(self.tokenizer.special)
        logits = model.eval()(graph, x.to(device)).cpu().double()[x == self.mask]
        best = logits.index_fill(-1, torch.tensor(special), -torch.inf).softmax(-1)
        best = best.topk(min(5, best.shape[-1] - len(special)))
        likely = zip(best.indices.tolist(), best.values.tolist(), strict=True)
        name = self.tokenizer.decode
        guesses = [[{"token": name([t]), "probability": p} for t, p in zip(*pair, strict=True)] for pair in likely]
        return {"text": request, "guesses": guesses}

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """The token in place of the first "<mask>" of a text."""
        inputs = captured(model, lambda: self.predict(model, pattern, request, "cpu"))
        tokens = inputs[1].tolist()
        classes = [self.tokenizer.decode([token]) for token in range(self.tokenizer.size)]
        special = {self.tokenizer.begin: "⟨begin⟩", self.tokenizer.end: "⟨end⟩", self.mask: HOLE}
        names = [special.get(token, classes[token]) for token in tokens]

        def draw(edges: Tensor | None, nodes: Tensor) -> list[Content]:
            text = Coloured(names, nodes.double().numpy(), "The tokens of the text.")
            return [text, *on_matrix(inputs[0], edges, names, names)]

        return Subject(inputs, (tokens.index(self.mask),), classes, names=names, draw=draw)


@lru_cache(maxsize=4096)
def text_graph(pattern: Pattern, length: int) -> Graph:
    """The graph over a text, the same object every time; the data's own is complete."""
    return complete(length) if given(pattern) else lay(pattern, length)


def framed(name: str, tokens: Sequence[int], length: int, ends: tuple[int, int]) -> Tensor:
    """The token that begins, a text's tokens and the one that ends; more than `length` are a DataError."""
    if len(tokens) + 2 > length:
        raise DataError(f"{name}: a text of {len(tokens)} tokens, and its two ends, is longer than length={length}")
    return torch.tensor([ends[0], *tokens, ends[1]])
