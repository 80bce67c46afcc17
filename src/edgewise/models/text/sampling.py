"""Sampling: which of the likely tokens comes next, and where a text ends: the rules of all that generates."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Literal, NamedTuple

import torch
from torch import Tensor

from edgewise.configuration import Bounds, Count, Natural, NonNegative, Portion, Positive, Settings
from edgewise.errors import ConfigError
from edgewise.layers import probabilities

Ended = Literal["", "stop", "end", "length", "time"]
COUNT = 10  # graphs or images that are written where nobody says how many
BEFORE = 8  # tokens of a prompt with which the first new one is decoded: a character may be several
UNFINISHED = "\ufffd"  # what bytes that are no character yet are decoded as


@dataclass(frozen=True)
class Sampling(Settings):
    """How a model is to write.

    Equation    of the scores z of the next token, in this order: z_t / r where z_t > 0, else z_t r, of each token t of
                the text so far; the top_k largest; p = softmax(z / T); of these the fewest likeliest that sum to top_p;
                of these those with p_t >= min_p max p
    Symbols     temperature = T; repetition_penalty = r
    Reference   Keskar et al., 2019 (penalty); Fan et al., 2018 (top-k); Holtzman et al., 2020 (top-p); Nguyen et al.,
                2024 (min-p)

    Args:
        prompt: The text to continue.
        steps: How many tokens to add to it, at most.
        count: How many texts, graphs or images to write; None: one text, or ten of the others.
        temperature: 0 takes the likeliest token; None: what suits the task.
        top_k: Draw from so many of the likeliest tokens only.
        top_p: Draw from the fewest likeliest tokens that have this probability together; 1: from all.
        min_p: Draw from tokens with at least this share of the likeliest one's probability only; 0: from all.
        repetition_penalty: Above 1, tokens that are in the text already become less likely; 1: they stay as they are.
        stop: A text, or several: what is written ends before the first of these that it would contain.
        cache: Keep the keys and values of earlier tokens instead of recomputing them.
        seed: Of the random draws.

    Errors      a value outside its range is a ConfigError that names it with its range
    """

    section: ClassVar[str | None] = ""

    prompt: str = "\n"
    steps: Natural = 200
    count: Count | None = None
    temperature: NonNegative | None = None
    top_k: Count | None = None
    top_p: Annotated[float, Bounds(above=0, at_most=1)] = 1.0
    min_p: Portion = 0.0
    repetition_penalty: Positive = 1.0
    stop: tuple[str, ...] | str = ()
    cache: bool = True
    seed: Natural = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if "" in self.stops:
            raise ConfigError("stop must be a text of at least one character, or a list of such texts")

    @property
    def stops(self) -> tuple[str, ...]:
        """The texts before which one ends."""
        return (self.stop,) if isinstance(self.stop, str) else self.stop

    def only(self, what: str, *names: str) -> None:
        """Refuse options beside those that have an effect on what is written."""
        given = [one.name for one in fields(self) if getattr(self, one.name) != one.default and one.name not in names]
        if given:
            raise ConfigError(f"{given[0]} has no effect on {what}, which follow from {', '.join(names)}: leave it out")

    def likely(self, scores: Tensor, tokens: Tensor) -> Tensor:
        """The scores [*, vocabulary] by which the token after tokens [*, n] is drawn: -inf of those that are not."""
        if self.repetition_penalty != 1:
            seen, penalty = scores.gather(-1, tokens), self.repetition_penalty
            scores = scores.scatter(-1, tokens, torch.where(seen < 0, seen * penalty, seen / penalty))
        if self.temperature == 0:
            return scores
        if self.top_k is not None and self.top_k < scores.shape[-1]:
            least = scores.topk(self.top_k, -1).values[..., -1:]
            scores = scores.masked_fill(scores < least, -torch.inf)
        scores = scores if self.temperature in (None, 1) else scores / self.temperature
        if self.top_p < 1:
            ascending, order = scores.sort(-1)
            rare = ascending.softmax(-1).cumsum(-1) <= 1 - self.top_p
            rare[..., -1] = False
            scores = scores.masked_fill(rare.scatter(-1, order, rare), -torch.inf)
        if self.min_p > 0:
            p = scores.softmax(-1)
            scores = scores.masked_fill(p < self.min_p * p.amax(-1, keepdim=True), -torch.inf)
        return scores

    def draw(self, scores: Tensor, tokens: Tensor, generator: torch.Generator | None) -> Tensor:
        """The token after each of the texts [*, n], by its scores [*, vocabulary]: [*, 1]."""
        scores = self.likely(scores, tokens)
        if self.temperature == 0:
            return scores.argmax(-1, keepdim=True)
        p = probabilities(scores)
        return torch.multinomial(p.reshape(-1, p.shape[-1]), 1, generator=generator).view(*p.shape[:-1], 1)


class Piece(NamedTuple):
    """What comes next of a text that is being written.

    Symbols     number = which of the texts; ended = why it ends here: "stop" (before a text of `stop`), "end" (by the
                model's own token for that), "length" (with the last of `steps` tokens), "time" (a service has cut it
                short); empty: it goes on
    """

    number: int
    text: str
    ended: Ended = ""


def pieces(
    drawn: Iterable[Tensor], prompt: list[int], decode: Callable[[list[int]], str], sampling: Sampling, end: int | None
) -> Iterator[Piece]:
    """The texts that tokens make as they are drawn, without the prompt.

    Symbols     drawn = of each step a token of each text, [texts, 1]; prompt = the tokens before the first; end = the
                token that ends a text
    Edge cases  each step has its pieces: what may be the beginning of a stop text, or of a character, is held back
                until that is known, and a piece may be empty
    """
    texts = [_Text(prompt, decode, sampling.stops) for _ in range(sampling.count or 1)]
    for step in drawn:
        for number, (text, token) in enumerate(zip(texts, step[:, -1].tolist(), strict=True)):
            if not text.ended:
                new = text.finish("end") if token == end else text.add(token)
                yield Piece(number, new, text.ended)
        if all(text.ended for text in texts):
            return
    for number, text in enumerate(texts):
        if not text.ended:
            yield Piece(number, text.finish("length"), text.ended)


def texts_of(written: Iterable[Piece], sampling: Sampling) -> dict[str, Any]:
    """The whole texts, with the prompt, as JSON can hold them, and why each ended."""
    count = sampling.count or 1
    parts, ended = [[sampling.prompt] for _ in range(count)], [""] * count
    for number, text, why in written:
        parts[number].append(text)
        ended[number] = why
    texts = ["".join(some) for some in parts]
    return {"prompt": sampling.prompt, "text": texts[0], "texts": texts, "ended": ended, "cache": sampling.cache}


class _Text:
    """One text as it grows."""

    def __init__(self, prompt: list[int], decode: Callable[[list[int]], str], stop: tuple[str, ...]) -> None:
        self.decode, self.stop, self.held = decode, stop, ""
        self.ended: Ended = ""
        self.tokens = prompt[-BEFORE:]  # the last, with which new ones are decoded
        self.known = len(self.tokens)  # how many of them have been decoded

    def add(self, token: int) -> str:
        """What is new of the text with one more token."""
        self.tokens.append(token)
        return self._settled(self._decoded(last=False))

    def finish(self, why: Ended) -> str:
        """What is still to come of a text that ends."""
        text = self._settled(self._decoded(last=True))
        if not self.ended:
            self.ended, text = why, text + self.held
        return text

    def _decoded(self, last: bool) -> str:
        before, now = self.decode(self.tokens[: self.known]), self.decode(self.tokens)
        if now.endswith(UNFINISHED) and not last:
            return ""
        self.tokens = self.tokens[self.known :] or self.tokens
        self.known = len(self.tokens)
        return now[len(before) :]

    def _settled(self, new: str) -> str:
        text = self.held + new
        if found := [place for stop in self.stop if (place := text.find(stop)) >= 0]:
            self.ended = "stop"
            return text[: min(found)]
        begun = (n for stop in self.stop for n in range(1, len(stop)) if text.endswith(stop[:n]))
        place = len(text) - max(begun, default=0)
        self.held = text[place:]
        return text[:place]
