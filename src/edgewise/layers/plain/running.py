"""How PyTorch runs a call: what the compiler leaves alone, and what a checkpoint that runs it once more reads."""

import functools
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Generic, ParamSpec, TypeVar

import torch

P = ParamSpec("P")
R = TypeVar("R")


def uncompiled(function: Callable[P, R]) -> Callable[P, R]:
    """`torch.compiler.disable`, which does not import the compiler (2.3 s of CPU time) before something else has."""
    disabled: list[Callable[P, R]] = []

    @functools.wraps(function)
    def run(*args: P.args, **kwargs: P.kwargs) -> R:
        if "torch._dynamo" not in sys.modules:
            return function(*args, **kwargs)
        if not disabled:
            disabled.append(torch.compiler.disable(function))
        return disabled[0](*args, **kwargs)

    run._torchdynamo_disable = True  # type: ignore[attr-defined] # the compiler cuts callers here, as PyTorch's own
    return run


T = TypeVar("T")
CALLS = 256  # most calls of a module before a backward pass whose states are known when it runs them once more
_RESTORED = ContextVar("restored", default=False)


@contextmanager
def restored() -> Iterator[None]:
    """Within, whoever runs a call once more brings back the module's buffers itself: no state is kept or drawn for."""
    token = _RESTORED.set(True)
    try:
        yield
    finally:
        _RESTORED.reset(token)


class States(Generic[T]):
    """The states in which recent calls ran inside a checkpoint; other calls cost nothing and draw nothing.

    Symbols     first() = the state of a call that runs once more, else None; keep(state) = that of a first run
    Edge cases  calls are known by a number that PyTorch's generator draws, whose state a checkpoint brings back unless
                preserve_rng_state=False: without it the module's present state counts
    """

    def __init__(self) -> None:
        self._held: dict[int, T] = {}
        self._call: int | None = None

    def first(self) -> T | None:
        again = torch._C._current_graph_task_id() >= 0  # in a backward pass
        inside = not torch.is_grad_enabled() or torch._C._autograd._top_saved_tensors_default_hooks(True) is not None
        self._call = int(torch.randint(2**62, ())) if (again or inside) and not _RESTORED.get() else None
        return self._held.get(self._call) if again and self._call is not None else None

    def keep(self, state: Callable[[], T]) -> None:
        if self._call is None:
            return
        self._held[self._call] = state()
        if len(self._held) > CALLS:
            del self._held[next(iter(self._held))]
