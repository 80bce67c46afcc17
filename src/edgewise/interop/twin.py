"""A twin: another library's module that computes its forward pass here, with its own weights, options and name."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, wraps
from typing import Any, ParamSpec, TypeVar, cast
from weakref import ReferenceType, ref

import torch
from torch import Tensor, nn
from torch.utils.weak import WeakIdKeyDictionary

from edgewise.graphs.tracing import PLAIN, is_traced

P = ParamSpec("P")
T = TypeVar("T")


def _nothing(module: Any) -> None:
    return None


@dataclass(frozen=True)
class Twin:
    """How one class of modules is computed here.

    Symbols     forward(module, ...) = what the module's own `forward(...)` returns, or NotImplemented for a call that
                it leaves to that; refusal(module) = why a module with its options has no twin, or None
    """

    forward: Callable[..., Any]
    refusal: Callable[[Any], str | None] = _nothing


@cache
def twin_class(kind: Any, twin: Twin) -> Any:
    """The class of the modules of a kind that have become twins: a subclass, of the same name."""

    @wraps(kind.forward)
    def forward(self: nn.Module, *args: Any, **named: Any) -> Any:
        y = twin.forward(self, *args, **named)
        return kind.forward(self, *args, **named) if y is NotImplemented else y

    def reduced(self: nn.Module, protocol: Any) -> Any:
        return _made, (kind, twin), self.__getstate__()

    members = {"forward": forward, "__reduce_ex__": reduced, "__module__": __name__, "twin_of": kind}
    return type(kind.__name__, (kind,), members)


def _made(kind: Any, twin: Twin) -> Any:
    """A twin without its state, for copies and pickles."""
    made = twin_class(kind, twin)
    return made.__new__(made)


def is_plain(*tensors: Any) -> bool:
    """Whether these are ordinary dense tensors."""
    return all(type(t) in PLAIN and t.layout == torch.strided for t in tensors)


def per_tensor(build: Callable[P, T]) -> Callable[P, T]:
    """A function of tensors, the first argument among them, and of hashable arguments, computed once for each of them.

    The value lies with the first tensor and goes with it. It is computed anew where a tensor was written in place, is
    another one now, or is traced. The value must hold none of the tensors, or they would never go.

    Example
        >>> @per_tensor
        ... def total(x, factor):
        ...     print("computed")
        ...     return factor * x.sum().item()
        >>> x = torch.ones(3)
        >>> total(x, 2), total(x, 2)
        computed
        (6.0, 6.0)
        >>> total(x.mul_(2), 2)
        computed
        12.0
    """
    memo = WeakIdKeyDictionary()

    @wraps(build)
    def value(*args: P.args, **named: P.kwargs) -> T:
        tensors = [t for t in args if isinstance(t, Tensor)]
        if named or is_traced() or any(t.is_inference() for t in tensors):
            return build(*args, **named)
        first = cast(Tensor, args[0])
        key = tuple(id(t) if isinstance(t, Tensor) else t for t in args)
        stamp = [(t._version, t.data_ptr(), t.shape) for t in tensors]
        entries: dict[Any, tuple[list[Any], list[ReferenceType[Tensor]], T]] = memo.setdefault(first, {})
        found = entries.get(key)
        if found is not None and found[0] == stamp and all(r() is t for r, t in zip(found[1], tensors, strict=True)):
            return found[2]
        for gone in [k for k, (_, refs, _) in entries.items() if any(r() is None for r in refs)]:
            del entries[gone]
        entries[key] = (stamp, [ref(t) for t in tensors], build(*args, **named))
        return entries[key][2]

    return value
