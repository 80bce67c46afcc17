"""ListOps: nested lists of digits under MIN, MAX, MED and SM, to be worked out from their text. Generated."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from edgewise.data.splits import Split
from edgewise.errors import ConfigError, DataError
from edgewise.graphs import Graph, complete
from edgewise.models.signature import Tokens
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.classification import Classification, class_probabilities
from edgewise.tasks.core.subject import Subject, in_a_row
from edgewise.tasks.core.task import Device, Pattern

OPERATORS: dict[str, Callable[[list[int]], int]] = {
    "[MIN": min,
    "[MAX": max,
    "[MED": lambda values: (sorted(values)[(len(values) - 1) // 2] + sorted(values)[len(values) // 2]) // 2,
    "[SM": lambda values: sum(values) % 10,
}
NAMES, CLOSE = tuple(OPERATORS), "]"
DIGITS = tuple("0123456789")
TOKENS = (*DIGITS, *NAMES, CLOSE)
NUMBERS = {token: number for number, token in enumerate(TOKENS)}
NESTED = 0.25  # how often an element is a list
PATIENCE = 100_000  # expressions drawn in vain, of which none had a length in the range


class ListOps(Classification):
    """The value of an expression, 0 to 9; a batch of expressions is one disjoint graph with flat nodes, no padding.

    Every training batch is drawn anew, so that nothing can be learned by heart; `examples` of them validate and as many
    test, drawn once.

    Errors      settings that no expression fits are a `ConfigError`.
    """

    classes = DIGITS
    unit = "expressions"

    def __init__(self, shortest: int, longest: int, depth: int, arguments: int, examples: int, seed: int) -> None:
        if not (4 <= shortest <= longest and depth >= 1 and arguments >= 2 and examples >= 1):
            raise ConfigError(
                f"shortest={shortest} must be at least 4 and at most longest={longest}, depth={depth} at least 1, "
                f"arguments={arguments} at least 2 and examples={examples} at least 1"
            )
        self.name = "listops"
        self.signature = Tokens(len(TOKENS), len(DIGITS), length=longest, whole_graph=True)
        self.epoch_size = examples
        self._range, self._depth, self._arguments = range(shortest, longest + 1), depth, arguments
        drawn: tuple[Split, ...] = ("valid", "test")
        self.splits: dict[Split, list[list[str]]] = {
            split: self._draw(random.Random(f"{split} {seed}"), examples) for split in drawn
        }
        self.contents = f"expressions of at most {longest} tokens"

    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> Batch:
        seed = int(torch.randint(2**62, (), generator=generator))
        return self._batch(self._draw(random.Random(seed), size), pattern)

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        """The expressions of a split, the shortest first; there is no training split."""
        if split not in self.splits:
            raise DataError(f"{self.name} has no {split} split: every training batch is drawn anew")
        expressions = sorted(self.splits[split], key=len)
        for first in range(0, len(expressions), size):
            yield self._batch(expressions[first : first + size], pattern)

    def _draw(self, choice: random.Random, count: int) -> list[list[str]]:
        return [expression(choice, self._range, self._depth, self._arguments) for _ in range(count)]

    def _batch(self, expressions: list[list[str]], pattern: Pattern) -> Batch:
        graph = Graph.batch([self.laid(pattern, complete, len(tokens)) for tokens in expressions])
        x = torch.tensor([NUMBERS[token] for tokens in expressions for token in tokens])
        return Batch(graph, x, torch.tensor([value(tokens) for tokens in expressions]), torch.arange(len(expressions)))

    @property
    def typical(self) -> str:
        return "[MAX 2 9 [MIN 4 7 ] 0 ]"

    @torch.no_grad()
    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """What the model takes an expression for, for instance "[MAX 2 9 [MIN 4 7 ] 0 ]", and what it is."""
        tokens = request.split()
        right = value(tokens)
        if len(tokens) > (self.signature.length or 0):
            raise DataError(f"the expression has {len(tokens)} tokens, at most {self.signature.length} are read")
        batch = self._batch([tokens], pattern).to(device)
        probabilities = class_probabilities(model.eval()(batch.graph, batch.x)[0].cpu(), DIGITS)
        return {"value": int(next(iter(probabilities))), "right": right, "probabilities": probabilities}

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        names = request.split()
        draw = in_a_row(names, "The tokens of the expression.", gap=" ")
        return replace(super().subject(model, pattern, request), classes=DIGITS, names=names, draw=draw)


def expression(choice: random.Random, lengths: range, depth: int, arguments: int) -> list[str]:
    """Tokens of a random expression of a length in the range: drawn until one has it.

    Equation    element = a list with probability 1/4, else a digit, evenly; at the greatest depth always a digit;
                list = an operator and 2 … `arguments` elements, evenly
    Errors      a range that is never met is a `ConfigError`
    Reference   Nangia & Bowman, "ListOps", 2018; Tay et al., "Long range arena", 2021, §2.2.1

    >>> " ".join(expression(random.Random(3), range(4, 12), depth=3, arguments=4))
    '[MED [SM 0 4 8 ] 9 8 9 ]'
    """
    for _ in range(PATIENCE):
        tokens: list[str] = []
        if _draw_list(choice.random, tokens, lengths[-1], depth, arguments) and len(tokens) in lengths:
            return tokens
    bounds = f"{lengths[0]} to {lengths[-1]} tokens"
    raise ConfigError(f"no expression has {bounds} with depth={depth} and arguments={arguments}: allow more of either")


def _draw_list(draw: Callable[[], float], tokens: list[str], most: int, depth: int, arguments: int) -> bool:
    """Append a list's tokens; False as soon as there are too many."""
    tokens.append(NAMES[int(draw() * len(NAMES))])
    for _ in range(2 + int(draw() * (arguments - 1))):
        if len(tokens) >= most:
            return False
        if depth == 1 or draw() >= NESTED:
            tokens.append(DIGITS[int(draw() * 10)])
        elif not _draw_list(draw, tokens, most, depth - 1, arguments):
            return False
    tokens.append(CLOSE)
    return True


def value(tokens: list[str]) -> int:
    """What an expression comes to.

    Errors      tokens that are no expression are a `DataError` that names the place.

    >>> value("[MAX 2 9 [MIN 4 7 ] 0 ]".split()), value("[SM 8 7 ]".split()), value("[MED 1 2 8 9 ]".split())
    (9, 5, 5)
    """
    open_lists: list[tuple[str, list[int]]] = [("", [])]
    for place, token in enumerate(tokens):
        if token in OPERATORS:
            open_lists.append((token, []))
        elif token in DIGITS:
            open_lists[-1][1].append(int(token))
        elif token == CLOSE and len(open_lists) > 1 and open_lists[-1][1]:
            operator, elements = open_lists.pop()
            open_lists[-1][1].append(OPERATORS[operator](elements))
        else:
            raise DataError(f"token {place}, {token[:20]!r}, is not expected there: {', '.join(TOKENS)} are known")
    if len(open_lists) != 1 or len(open_lists[0][1]) != 1:
        raise DataError(f"{len(tokens)} tokens are not one whole expression, as [MAX 2 9 [MIN 4 7 ] 0 ] is")
    return open_lists[0][1][0]


def listops(
    shortest: int = 16, longest: int = 512, depth: int = 10, arguments: int = 10, examples: int = 1000, seed: int = 0
) -> ListOps:
    """Work out expressions such as [MAX 2 9 [MIN 4 7 ] 0 ] to a digit, 0 to 9: smallest, largest, median (its whole
    part) or sum modulo 10 of a list whose elements may be lists.

    The long-range arena's definition, in shorter texts; its two parentheses around every element say nothing, and are
    left out there and here.

    Reference   Nangia & Bowman, "ListOps", 2018; Tay et al., "Long range arena", 2021

    Args:
        shortest: Fewest tokens of an expression.
        longest: Most tokens.
        depth: Deepest nesting.
        arguments: Most elements of a list.
        examples: Expressions that validate, and that test; those that train are drawn anew in every step.
        seed: Chooses those that validate and test.

    Example
        >>> task = listops(shortest=4, longest=20, examples=3)
        >>> next(task.batches("valid", 3)).size, task.signature.inputs
        (3, 15)
    """
    return ListOps(shortest, longest, depth, arguments, examples, seed)
