"""A twin: another library's module, one method of which computes here, with its own weights, options and name."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, cast
from weakref import WeakKeyDictionary

import torch
from torch import nn

from edgewise.graphs.tracing import PLAIN, is_traced
from edgewise.kernels.gates import gates
from edgewise.kernels.planning.recording import recording, recording_messages

left: WeakKeyDictionary[nn.Module, Counter[str]] = WeakKeyDictionary()
"""Of each twin, how many calls it has left to its own code, by what they were."""


def _nothing(module: Any) -> None:
    return None


@dataclass(frozen=True)
class Twin:
    """How one class of modules is computed here.

    Symbols     forward(module, ...) = what the module's own `forward(...)` returns; NotImplemented, or the reason, to
                leave a call to it; propagate = the same for PyTorch Geometric's; refusal(module) = why a module
                stays, or None; least = edges below which a call is left to the module's own code
    """

    forward: Callable[..., Any] | None = None
    refusal: Callable[[Any], str | None] = _nothing
    propagate: Callable[..., Any] | None = None
    least: int = 0


@cache
def twin_class(kind: Any, twin: Twin) -> Any:
    """The class of the modules of a kind that have become twins: a subclass, of the same name."""

    def reduced(self: nn.Module, protocol: Any) -> Any:
        return _made, (kind, twin), self.__getstate__()

    def scriptable(self: nn.Module) -> nn.Module:
        """The layer as it was, of the very same parameters: torch.jit.script reads its own code."""
        module: nn.Module = kind.__new__(kind)
        vars(module).update(vars(self))
        return module

    def packaged(self: nn.Module, exporter: Any) -> Any:
        """In a torch.package too, which holds what it needs: `cast` returns its second argument, after the importer."""
        return cast, (scriptable(self),)

    members: dict[str, Any] = {"__reduce_ex__": reduced, "__prepare_scriptable__": scriptable}
    members["__reduce_package__"] = packaged
    members |= {"__module__": kind.__module__, "twin_of": kind}
    for name, ours in (("forward", twin.forward), ("propagate", twin.propagate)):
        if ours is not None:
            last = (
                name == "propagate" or twin.propagate is None
            )  # of a forward pass that is left, propagate may be ours
            members[name] = _method(ours, getattr(kind, name), twin, last)
    return type(kind.__name__, (kind,), members)


def _method(ours: Callable[..., Any], theirs: Callable[..., Any], twin: Twin, last: bool) -> Any:
    """A method that is their own for modules and calls that ours leaves to it, which the last one counts, and where
    PyTorch reads the code."""

    few = f"fewer than {twin.least:,} edges"

    @wraps(theirs)
    def method(self: nn.Module, *args: Any, **named: Any) -> Any:
        if is_traced() or torch._C._get_tracing_state() is not None:
            return theirs(self, *args, **named)
        why = few if twin.least and is_small((*args, *named.values()), twin.least) else twin.refusal(self)
        y = NotImplemented if why is not None else ours(self, *args, **named)
        if isinstance(y, str):
            why, y = y, NotImplemented
        if y is not NotImplemented:
            return y
        if last:
            if self not in left:
                left[self] = Counter()
            left[self][why or f"a call with {_given((*args, *named.values()))}"] += 1
        return theirs(self, *args, **named)

    return method


def is_small(given: tuple[Any, ...], least: int) -> bool:
    """Whether an `edge_index` is among what is given, of fewer edges than that: to sort them would cost more than is
    gained. Explanations and recordings see all."""
    for t in given:
        if isinstance(t, torch.Tensor) and t.dtype is torch.int64 and t.dim() == 2 and len(t) == 2:
            return t.size(1) < least and all(watcher() is None for watcher in (gates, recording, recording_messages))
    return False


def _given(values: tuple[Any, ...]) -> str:
    """What of a call is no plain tensor and no number, in words."""
    told = list[str]()
    for value in values:
        if isinstance(value, torch.Tensor) and value.layout != torch.strided:
            told.append("a sparse tensor")
        elif isinstance(value, tuple | list):
            told.append(f"({', '.join('None' if part is None else type(part).__name__ for part in value)})")
        elif not isinstance(value, bool | int | float | str | None) and type(value) not in PLAIN:
            told.append(type(value).__name__)
    return " and ".join(dict.fromkeys(told)) or "these options"


def _made(kind: Any, twin: Twin) -> Any:
    """A twin without its state, for copies and pickles."""
    made = twin_class(kind, twin)
    return made.__new__(made)


def origin(kind: type) -> tuple[str, str]:
    """The library that a class comes from, and its name."""
    return kind.__module__.partition(".")[0], kind.__name__


def is_plain(*tensors: Any) -> bool:
    """Whether these are ordinary dense tensors, with numbers."""
    for t in tensors:  # noqa: SIM110 (a generator takes twice as long)
        if type(t) not in PLAIN or t.layout != torch.strided or t.is_meta or t.is_nested:
            return False
    return True
