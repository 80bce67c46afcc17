"""A twin: another library's module, one method of which computes here, with its own weights, options and name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any

import torch
from torch import nn

from edgewise.graphs.tracing import PLAIN, is_traced


def _nothing(module: Any) -> None:
    return None


@dataclass(frozen=True)
class Twin:
    """How one class of modules is computed here.

    Symbols     forward(module, ...) = what the module's own `forward(...)` returns, or NotImplemented to leave a call
                to it; propagate = the same for PyTorch Geometric's; refusal(module) = why a module stays, or None
    """

    forward: Callable[..., Any] | None = None
    refusal: Callable[[Any], str | None] = _nothing
    propagate: Callable[..., Any] | None = None


@cache
def twin_class(kind: Any, twin: Twin) -> Any:
    """The class of the modules of a kind that have become twins: a subclass, of the same name."""

    def reduced(self: nn.Module, protocol: Any) -> Any:
        return _made, (kind, twin), self.__getstate__()

    members: dict[str, Any] = {"__reduce_ex__": reduced, "__module__": kind.__module__, "twin_of": kind}
    for name, ours in (("forward", twin.forward), ("propagate", twin.propagate)):
        if ours is not None:
            members[name] = _method(ours, getattr(kind, name), twin.refusal)
    return type(kind.__name__, (kind,), members)


def _method(ours: Callable[..., Any], theirs: Callable[..., Any], refusal: Callable[[Any], str | None]) -> Any:
    """A method that is their own for modules and calls that ours leaves to it, and where PyTorch reads the code."""

    @wraps(theirs)
    def method(self: nn.Module, *args: Any, **named: Any) -> Any:
        left = is_traced() or torch._C._get_tracing_state() is not None or refusal(self) is not None
        y = NotImplemented if left else ours(self, *args, **named)
        return theirs(self, *args, **named) if y is NotImplemented else y

    return method


def _made(kind: Any, twin: Twin) -> Any:
    """A twin without its state, for copies and pickles."""
    made = twin_class(kind, twin)
    return made.__new__(made)


def origin(kind: type) -> tuple[str, str]:
    """The library that a class comes from, and its name."""
    return kind.__module__.partition(".")[0], kind.__name__


def is_plain(*tensors: Any) -> bool:
    """Whether these are ordinary dense tensors, with numbers."""
    return all(type(t) in PLAIN and t.layout == torch.strided and not (t.is_meta or t.is_nested) for t in tensors)
