"""A tensor with numbers that are computed when they are read: below autograd, which sees an ordinary tensor."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, ClassVar
from weakref import ref

import torch
from torch import Tensor

from edgewise.errors import ConfigError
from edgewise.native import library

aten = torch.ops.aten

FLOATS = (torch.float32, torch.float64)
LARGE = 1 << 15  # numbers of a tensor below which computing them takes less than looking whether to
EMPTY = {op.default for op in (aten.new_zeros, aten.new_empty, aten.zeros_like, aten.empty_like, aten.ones_like)}


class Numbers:
    """The numbers of a tensor, which may be computed later; several tensors share them after `detach`.

    Symbols     readers = numbers that are computed from these, and have to be before these are written; lent = whether
                an ordinary tensor has the same memory, so that writing these would not be seen here
    """

    def __init__(self, shape: torch.Size, dtype: torch.dtype) -> None:
        self.shape, self.dtype = shape, dtype
        self.readers: list[ref[Numbers]] = []
        self.lent = False

    def whole(self) -> Tensor:
        """All numbers, as an ordinary tensor without gradient, the same one at every call."""
        raise NotImplementedError

    def read_by(self, reader: Numbers) -> None:
        """Let `reader`, which is computed from these numbers, be computed before they are written."""
        if self.lent:
            reader.whole()
        else:
            self.readers.append(ref(reader))

    def settle(self) -> None:
        """Compute what is computed from these numbers, which are about to be written."""
        readers, self.readers = self.readers, []
        for reader in readers:
            there = reader()
            if there is not None:
                there.whole()


class Later(Tensor):
    """A tensor for autograd and for everyone else; an operation that is not in `known` computes its numbers first.

    Symbols     numbers = its numbers; known = operations that need fewer of them: what they return, or NotImplemented
    Edge cases  operations return ordinary tensors, and gradients are those of the same operations on these
    Cost        some 10 microseconds for each operation on it
    """

    numbers: Numbers
    known: ClassVar[dict[Any, Callable[..., Any]]] = {}
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(cls, numbers: Numbers) -> Later:
        made: Later = Tensor._make_wrapper_subclass(cls, numbers.shape, dtype=numbers.dtype)
        made.numbers = numbers
        return made

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        if func is aten.detach.default:  # autograd saves a result, or the user leaves its gradient
            return type(args[0])(args[0].numbers)
        kwargs = kwargs or {}
        for kind in dict.fromkeys(types):
            known = kind.known.get(func) if issubclass(kind, Later) else None
            y = NotImplemented if known is None else known(*args, **kwargs)
            if y is not NotImplemented:
                return y
        return _plainly(func, args, kwargs)


def _plainly(func: Any, args: Any, kwargs: Any) -> Any:
    """The operation on all numbers."""
    if func in EMPTY:
        return func(_blank(args[0].numbers), *args[1:], **kwargs)
    if torch.Tag.inplace_view in func.tags:
        raise ConfigError(f"{func.__name__} cannot change the shape of a converted layer's result: clone() it first")
    shares = func._schema.is_mutable or any(result.alias_info is not None for result in func._schema.returns)
    found: list[tuple[Later, Tensor]] = []

    def plain(value: Any) -> Any:
        if isinstance(value, Later):
            found.append((value, value.numbers.whole()))
            return found[-1][1]
        return type(value)(map(plain, value)) if isinstance(value, list | tuple) else value

    args, kwargs = plain(args), {name: plain(value) for name, value in kwargs.items()}
    if shares:
        for value, _ in found:
            value.numbers.settle()
            value.numbers.lent |= not func._schema.is_mutable
    y = func(*args, **kwargs)
    for value, own in found:
        if y is own:  # written in place
            torch.autograd.graph.increment_version(own)
            return value
    return y


def _blank(numbers: Numbers) -> Tensor:
    """A tensor of that shape, for operations that look at nothing else."""
    return torch.empty((), dtype=numbers.dtype).expand(numbers.shape)


def ordinary(value: Any) -> Any:
    """A tensor with its numbers and its gradient, in place of a `Later`; in tuples, lists and dictionaries too."""
    if isinstance(value, Later):
        return aten.alias.default(value)
    if isinstance(value, tuple | list) and any(isinstance(part, Later) for part in value):
        return type(value)(map(ordinary, value))
    return {name: ordinary(part) for name, part in value.items()} if isinstance(value, dict) else value


def _of_ordinary(name: str) -> Callable[..., Any]:
    def method(self: Later, *args: Any, **named: Any) -> Any:
        """That of an ordinary tensor with the same numbers."""
        return getattr(ordinary(self), name)(*args, **named)

    method.__name__ = name
    return method


for _name in (
    "numpy", "tolist", "data_ptr", "untyped_storage", "storage", "share_memory_",
    "__array__", "__dlpack__", "__reduce_ex__", "__deepcopy__", "__repr__", "__format__",
):  # fmt: skip
    setattr(Later, _name, _of_ordinary(_name))  # these read memory without an operation


def is_worth_it(y: Tensor) -> bool:
    """Whether a result may be a tensor whose numbers come later: one of training, on the CPU, of enough numbers."""
    if library is None or not y.requires_grad or y.dim() != 2 or y.dtype not in FLOATS:
        return False
    return y.device.type == "cpu" and y.numel() >= LARGE
