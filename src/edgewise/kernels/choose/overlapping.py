"""Contexts that change something of the whole process, in which several threads may be at once."""

import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from threading import RLock
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Overlapping(Generic[T]):
    """Contexts that hold a setting of the process at a value; they may end in any order, as those of threads do.

    Symbols     exchange = sets a value and returns the one before
    Edge cases  the setting has the value of the last that was entered of those that are open; after all of them, what
                it had before

    Example
        >>> setting = [0]
        >>> def exchange(value):
        ...     setting.append(value)
        ...     return setting.pop(0)
        >>> one, two = (Overlapping(exchange).holding(number) for number in (1, 2))
        >>> with one, two:
        ...     setting
        [2]
        >>> setting
        [0]
    """

    def __init__(self, exchange: Callable[[T], T]) -> None:
        self.exchange = exchange
        self.open: dict[object, T] = {}
        self.lock = RLock()  # a context that is collected as garbage ends wherever its thread is

    @contextmanager
    def holding(self, value: T) -> Iterator[None]:
        """Within, the setting has this value, unless a context that was entered later has another."""
        entry = object()
        with self.lock:
            before = self.exchange(value)
            if not self.open:
                self.before = before
            self.open[entry] = value
        try:
            yield
        finally:
            with self.lock:
                del self.open[entry]
                self.exchange(next(reversed(self.open.values()), self.before))


def as_written() -> AbstractContextManager[None]:
    """Within, functions compiled by torch.compile run as they were written, on every thread."""
    if "torch._dynamo" not in sys.modules:  # which takes seconds to import
        return nullcontext()
    from torch._dynamo.eval_frame import DynamoStance

    return _stances.holding(DynamoStance("force_eager"))


def _exchange_stance(stance: Any) -> Any:
    from torch._dynamo.eval_frame import _set_stance

    return _set_stance(stance)


_stances = Overlapping(_exchange_stance)
