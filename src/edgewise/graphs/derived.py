"""Values that follow from an immutable object: computed at the first read, cached with the object from then on."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from functools import wraps
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, cast, overload

import torch

from edgewise.graphs.tracing import untransformed

T = TypeVar("T")
P = ParamSpec("P")


class Caching(Protocol):
    """What caches derived values: a `Graph`."""

    def memo(self, key: Hashable, build: Callable[[], T]) -> T:
        """The value under a key, built at the first call."""


class Watching(Protocol):
    """What notices that its tensors were written: a `Graph`."""

    def check_unwritten(self) -> None:
        """Raise an error where one was."""

    def watch(self, name: str, value: object) -> None:
        """Notice it from now on, for a value with tensors."""


G = TypeVar("G", bound=Caching)


def cached(build: Callable[Concatenate[G, P], T]) -> Callable[Concatenate[G, P], T]:
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
    def value(graph: G, /, *arguments: P.args, **named: P.kwargs) -> T:
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
            graph = cast(Watching, instance) if hasattr(instance, "check_unwritten") else None
            if graph is not None:
                graph.check_unwritten()
            with untransformed(vars(instance)):
                value = self.build(instance)
            if graph is not None:
                graph.watch(self.name, value)
        instance.__dict__[self.name] = value
        return value
