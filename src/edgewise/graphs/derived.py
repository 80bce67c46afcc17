"""Values that follow from an immutable object: computed at the first read, a plain attribute from then on."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar, overload

import torch

T = TypeVar("T")


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
        with torch.inference_mode(False):  # a value first read during evaluation must also serve a later backward pass
            value = self.build(instance)
        instance.__dict__[self.name] = value
        return value
