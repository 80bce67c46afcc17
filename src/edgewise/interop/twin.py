"""A twin: another library's module that computes its forward pass here, with its own weights, options and name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any

import torch
from torch import nn

from edgewise.graphs.tracing import PLAIN
from edgewise.interop.later.tensor import ordinary


def _nothing(module: Any) -> None:
    return None


@dataclass(frozen=True)
class Twin:
    """How one class of modules is computed here.

    Symbols     forward(module, ...) = what the module's own `forward(...)` returns, or NotImplemented for a call that
                it leaves to that; refusal(module) = why a module with its options has no twin, or None; later = whether
                it reads the results of other twins whose numbers come later as they are; propagate = the same as
                `forward` for PyTorch Geometric's `propagate`, which its own forward passes call
    """

    forward: Callable[..., Any]
    refusal: Callable[[Any], str | None] = _nothing
    later: bool = False
    propagate: Callable[..., Any] | None = None


@cache
def twin_class(kind: Any, twin: Twin) -> Any:
    """The class of the modules of a kind that have become twins: a subclass, of the same name."""

    @wraps(kind.forward)
    def forward(self: nn.Module, *args: Any, **named: Any) -> Any:
        if not twin.later:
            args, named = ordinary(args), ordinary(named)
        y = twin.forward(self, *args, **named)
        return kind.forward(self, *ordinary(args), **ordinary(named)) if y is NotImplemented else y

    def reduced(self: nn.Module, protocol: Any) -> Any:
        return _made, (kind, twin), self.__getstate__()

    def train(self: nn.Module, mode: bool = True) -> nn.Module:
        return _set_training(self, mode) if isinstance(mode, bool) else kind.train(self, mode)  # which refuses it

    members: dict[str, Any] = {"forward": forward, "__reduce_ex__": reduced, "__module__": __name__, "twin_of": kind}
    if twin.propagate is not None:
        members["propagate"] = _otherwise(twin.propagate, kind.propagate)
    if kind.train is nn.Module.train:
        members["train"] = train
    return type(kind.__name__, (kind,), members)


def _otherwise(own: Callable[..., Any], theirs: Callable[..., Any]) -> Callable[..., Any]:
    """A method that is their own for calls that ours leaves to it."""

    @wraps(theirs)
    def method(self: nn.Module, *args: Any, **named: Any) -> Any:
        y = own(self, *args, **named)
        return theirs(self, *args, **named) if y is NotImplemented else y

    return method


def _set_training(module: nn.Module, mode: bool) -> nn.Module:
    """What `nn.Module.train` does, without its detours, which take as long as a layer of a small model."""
    module.__dict__["training"] = mode
    for part in module._modules.values():
        if part is not None and _is_usual(part):
            _set_training(part, mode)
        elif part is not None:
            part.train(mode)
    return module


def _is_usual(part: nn.Module) -> bool:
    """Whether neither a part's class nor the part itself sets its mode in another way than modules do."""
    kind = type(part)
    usual = kind.train is nn.Module.train and kind.__setattr__ is nn.Module.__setattr__
    return usual and "train" not in part.__dict__


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
