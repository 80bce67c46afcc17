"""Graphs that content chose, held while the content is varied: neighbours in feature space, buckets, clusters."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar, Token
from functools import wraps
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import torch

P = ParamSpec("P")
T = TypeVar("T")


class Held:
    """The graphs that are chosen by content inside a `with` block: those of the first block, in turn, in later ones.

    Example
        >>> from edgewise.graphs.make.neighbors import k_nearest_in_members
        >>> held = Held()
        >>> for second in (1.0, 4.0):
        ...     with held:
        ...         k_nearest_in_members(torch.tensor([[0.0], [second], [5.0]]), torch.tensor([3]), 2).senders.tolist()
        [0, 1, 0, 1, 1, 2]
        [0, 1, 0, 1, 1, 2]
    """

    def __init__(self) -> None:
        self._graphs: list[Any] = []
        self._next = 0
        self._tokens: list[Token[Chooser | None]] = []

    def __enter__(self) -> None:
        self._next = 0
        self._tokens.append(_held.set(self))

    def __exit__(self, *error: object) -> None:
        _held.reset(self._tokens.pop())

    def choose(self, make: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """The next graph, made where it was not yet."""
        if self._next == len(self._graphs):
            self._graphs.append(make(*arguments, **named))
        self._next += 1
        return cast(T, self._graphs[self._next - 1])


class Chooser(Protocol):
    """What chooses graphs by content in place of the functions that do."""

    def choose(self, make: Callable[..., T], *arguments: Any, **named: Any) -> T:
        """The graph that the function `make` would choose of these arguments, or another one."""


_held: ContextVar[Chooser | None] = ContextVar("held", default=None)


@contextmanager
def chosen_by(chooser: Chooser) -> Iterator[None]:
    """Let another choose the graphs inside the block."""
    token = _held.set(chooser)
    try:
        yield
    finally:
        _held.reset(token)


def by_content(make: Callable[P, T]) -> Callable[P, T]:
    """A function that chooses a graph by content, which `Held` can hold."""

    @wraps(make)
    def chosen(*arguments: P.args, **named: P.kwargs) -> T:
        held = None if torch.compiler.is_dynamo_compiling() else _held.get()
        return make(*arguments, **named) if held is None else held.choose(make, *arguments, **named)

    return chosen
