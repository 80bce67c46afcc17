"""Values that follow from an immutable object or a tensor: computed at the first read, cached with it from then on."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import update_wrapper, wraps
from typing import Any, Concatenate, Generic, ParamSpec, TypeVar, overload
from weakref import ReferenceType, ref

import torch
from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs.tracing import is_traced, lastingly, untransformed

T = TypeVar("T")
P = ParamSpec("P")


def cached(build: Callable[Concatenate[Any, P], T]) -> Callable[Concatenate[Any, P], T]:
    """A function of a graph (and of further hashable arguments) whose value is computed once and cached with the graph.

    The function is its own key, so that what is cached has one name, one type and one place.

    >>> from edgewise.graphs import complete
    >>> @cached
    ... def squares(graph, scale):
    ...     print("computed")
    ...     return scale * graph.num_edges**2
    >>> pair = complete(2)
    >>> squares(pair, 10), squares(pair, 10)
    computed
    (160, 160)
    """
    name = f"{build.__module__}.{build.__qualname__}"

    @wraps(build)
    def value(graph: Any, /, *arguments: P.args, **named: P.kwargs) -> T:
        if not hasattr(graph, "memo"):
            raise GraphError(f"{build.__name__} reads a Graph, not {type(graph).__name__}")
        return graph.memo((name, *arguments, *named.items()), lambda: build(graph, *arguments, **named))

    return value


class derived(Generic[T]):  # noqa: N801 - reads as a decorator, like property
    """`functools.cached_property` without its lock, which torch.compile cannot trace in Python 3.11.

    >>> class Circle:
    ...     radius = 2
    ...     @derived
    ...     def diameter(self) -> int:
    ...         return 2 * self.radius
    >>> circle = Circle()
    >>> circle.diameter, vars(circle)
    (4, {'diameter': 4})
    """

    def __init__(self, build: Callable[[Any], T]) -> None:
        self.build = build
        self.name = build.__name__
        self.__doc__ = build.__doc__

    @overload
    def __get__(self, instance: None, owner: type) -> derived[T]: ...
    @overload
    def __get__(self, instance: object, owner: type) -> T: ...
    def __get__(self, instance: object | None, owner: type) -> derived[T] | T:
        if instance is None:
            return self
        if torch.compiler.is_dynamo_compiling():
            with torch.inference_mode(False):  # as in `untransformed`, which the compiler cannot read
                value = self.build(instance)
        else:
            graph: Any = instance if hasattr(instance, "check_unwritten") else None
            if graph is not None:
                graph.check_unwritten()
            value = lastingly(self.build, instance)
            if graph is not None:
                graph.watch({self.name: value})
        instance.__dict__[self.name] = value
        return value


class per_tensor(Generic[P, T]):  # noqa: N801 - reads as a decorator
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

    def __init__(self, build: Callable[P, T]) -> None:
        self.build = build
        self.memo: dict[int, tuple[ReferenceType[Tensor], dict[Any, Entry[T]]]] = {}
        update_wrapper(self, build)

    def __call__(self, *args: P.args, **named: P.kwargs) -> T:
        """The value for these arguments, computed where it is not there."""
        tensors = [t for t in args if isinstance(t, Tensor)]
        if named or is_traced() or any(map(Tensor.is_inference, tensors)):
            return self.build(*args, **named)
        entries, key, stamp = self._place(args, tensors)
        found = entries.get(key)
        if found is not None and _holds(found, stamp, tensors):
            return found[2]
        for gone in [k for k, (_, refs, _) in entries.items() if any(r() is None for r in refs)]:
            del entries[gone]
        with untransformed(tensors):  # a value that training can read too
            value = self.build(*args, **named)
        entries[key] = (stamp, [ref(t) for t in tensors], value)
        return value

    def _place(self, args: Any, tensors: list[Tensor]) -> tuple[dict[Any, Entry[T]], Hashable, list[Any]]:
        """The values that lie with the first tensor, the key of these arguments, and what changes with a write."""
        key = tuple([id(t) if isinstance(t, Tensor) else t for t in args])
        stamp = [(t._version, t.untyped_storage().data_ptr(), t.storage_offset(), t.shape) for t in tensors]
        number, memo = key[0], self.memo
        found = memo.get(number)
        if found is None or found[0]() is not args[0]:
            memo[number] = found = ref(args[0], lambda gone: _forget(memo, number, gone)), {}
        return found[1], key, stamp


Entry = tuple[list[Any], list[ReferenceType[Tensor]], T]


def _holds(entry: Entry[Any], stamp: list[Any], tensors: list[Tensor]) -> bool:
    """Whether these are the tensors of an entry, and nobody has written them."""
    return entry[0] == stamp and all(r() is t for r, t in zip(entry[1], tensors, strict=True))


def _forget(memo: dict[int, Any], number: int, gone: Any) -> None:
    if number in memo and memo[number][0] is gone:  # and not one of a new tensor in the same place
        del memo[number]
