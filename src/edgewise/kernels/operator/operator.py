"""Kernels as PyTorch operators: one dataclass of arguments serves eager autograd, `torch.compile` and `opcheck`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from functools import wraps
from itertools import chain
from operator import attrgetter, itemgetter
from typing import Any, ClassVar, Generic, TypeVar

import torch
from torch import Tensor
from torch._C._functorch import is_batchedtensor, is_legacy_batchedtensor

from edgewise.errors import ShapeError

LIBRARY = torch.library.Library("edgewise", "DEF")

DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}  # those that the kernels compute in, by their numbers
SCHEMA = {
    "Tensor": "Tensor",
    "Tensor | None": "Tensor?",
    "Sequence[Tensor]": "Tensor[]",
    "Sequence[bool]": "bool[]",
    "int": "int",
    "float": "float",
    "bool": "bool",
}

PLAIN = {type(None), Tensor, torch.nn.Parameter}

Results = Tensor | tuple[Tensor, ...]
Gradients = Sequence[Tensor | None]
Gradient = Callable[[Any, Sequence[Tensor], Tensor, Sequence[bool]], Gradients]


@dataclass(slots=True)
class Arguments:
    """What an operator reads: a dataclass of tensors, sequences of tensors and numbers.

    The operator's schema and the signature of its gradient follow from the fields, in their order.

    Symbols     differentiable = the fields that have a gradient; unread() = those tensors that the gradient does not
                read, and "results" or "first result" where it does not read those; empty() = the results, not filled in
    """

    differentiable: ClassVar[tuple[str, ...]] = ()

    def empty(self) -> Results:
        raise NotImplementedError

    def unread(self) -> tuple[str, ...]:
        return ()

    def check(self) -> None:
        """Raise ShapeError where a kernel on the CPU would leave its tensors; the verbs' own arguments are right."""


A = TypeVar("A", bound=Arguments)
R = TypeVar("R", bound=Results)


class Operator(Generic[A, R]):
    """An operator `edgewise::name` that computes outside PyTorch's sight.

    Symbols     arguments = its dataclass; compute(arguments) -> the results, the first of which has a gradient;
                gradient(arguments, results, dy, needed) -> gradients to the differentiable fields, or the operator that
                computes them, whose arguments are those fields, the results, dy and needed; composed(arguments) -> the
                first result by differentiable operations, from which second derivatives follow; on_cpu = whether its
                kernels read memory unguarded: the library operator then checks its arguments
    Cost        called eagerly it is the kernel alone where nothing needs a gradient (2 µs beside it), else a plain
                autograd.Function (10 µs, a quarter of a library operator's overhead); under torch.compile and
                torch.func it is the library operator
    """

    def __init__(
        self,
        name: str,
        arguments: type[A],
        compute: Callable[[A], R],
        gradient: Operator[Any, Any] | Gradient | None = None,
        composed: Callable[[A], Tensor] | None = None,
        on_cpu: bool = False,
    ) -> None:
        self.arguments, self.compute, self.gradient, self.composed = arguments, compute, gradient, composed
        kinds = {field.name: SCHEMA[str(field.type)] for field in fields(arguments)}
        self.names = list(kinds)
        self.tensors = [name for name, kind in kinds.items() if kind in ("Tensor", "Tensor?")]
        self.lists = [name for name, kind in kinds.items() if kind == "Tensor[]"]
        others = [name for name in self.names if name not in self.tensors + self.lists]
        saved = [*self.tensors, *self.lists, *others]
        self.in_order = itemgetter(*[saved.index(name) for name in self.names])
        self.places = [self.names.index(name) for name in arguments.differentiable]
        self.tensors_of, self.lists_of, self.others_of = _values(self.tensors), _values(self.lists), _values(others)
        self.leaves_of = _values(arguments.differentiable)
        self._register(name, kinds, on_cpu)
        self.function = None if gradient is None else self._function(name)

    def __call__(self, arguments: A) -> R:
        if (
            torch.compiler.is_compiling()
            or torch._C._are_functorch_transforms_active()
            or _is_traced(self.tensors_of(arguments))
        ):
            return self.overload(*[getattr(arguments, name) for name in self.names])
        if self.function is not None and torch.is_grad_enabled():
            leaves = self.leaves_of(arguments)
            if _require_grad(leaves):
                return self.function.apply(arguments, *leaves)
        return self.compute(arguments)

    def differentiates(self, arguments: A) -> bool:
        """Whether a call with these arguments has a backward pass."""
        leaves = [getattr(arguments, name) for name in arguments.differentiable]
        return torch.is_grad_enabled() and _require_grad(leaves)

    def _register(self, name: str, kinds: dict[str, str], on_cpu: bool) -> None:
        """Define the library's operator."""
        results = self.arguments.empty.__annotations__["return"].count("Tensor")
        returned = "Tensor" if results == 1 else f"({', '.join(['Tensor'] * results)})"
        LIBRARY.define(f"{name}({', '.join(f'{kind} {field}' for field, kind in kinds.items())}) -> {returned}")
        for device in ("CPU", "CUDA"):  # the backend refuses the one that its kernels do not run on
            LIBRARY.impl(name, self._checked if on_cpu else self._unchecked, device)
        qualified = f"edgewise::{name}"
        torch.library.register_fake(qualified, lambda *inputs: self.arguments(*inputs).empty(), lib=LIBRARY)
        if self.gradient is not None:
            torch.library.register_autograd(qualified, self._backward_of_all, setup_context=self._setup, lib=LIBRARY)
        self.overload = getattr(torch.ops.edgewise, name).default

    def _checked(self, *inputs: Any) -> R:
        own = self.arguments(*inputs)
        own.check()
        return self.compute(own)

    def _unchecked(self, *inputs: Any) -> R:
        return self.compute(self.arguments(*inputs))

    def _setup(self, ctx: Any, inputs: Sequence[Any], output: R) -> None:
        own = self.arguments(*inputs)
        lists = dict(zip(self.lists, self.lists_of(own), strict=True))
        if not lists.get("reverse", True):
            raise ShapeError("a gradient needs the structure of the transpose: reverse is empty")
        self._save(ctx, own, output)

    def _backward_of_all(self, ctx: Any, dy: Tensor | None, *_: Tensor | None) -> tuple[Any, ...]:
        """The gradients to all fields, as the library's operator returns them."""
        gradients = self._backward(ctx, [ctx.needs_input_grad[n] for n in self.places], dy)
        of_leaf = dict(zip(self.places, gradients, strict=True))
        empty = dict(zip(self.lists, ctx.lengths, strict=True))
        return tuple([None] * empty[name] if name in empty else of_leaf.get(n) for n, name in enumerate(self.names))

    def _function(self, name: str) -> Any:
        """The autograd.Function. Its forward saves too: PyTorch spends 50 µs a call on one with a setup_context."""

        def forward(ctx: Any, arguments: A, *_: Tensor | None) -> R:
            output = self.compute(arguments)
            self._save(ctx, arguments, output)
            return output

        @in_own_dtypes
        def backward(ctx: Any, dy: Tensor | None, *_: Tensor | None) -> tuple[Tensor | None, ...]:
            return None, *self._backward(ctx, ctx.needs_input_grad[1:], dy)

        methods = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
        return type(name, (torch.autograd.Function,), methods)

    def _save(self, ctx: Any, arguments: A, output: R) -> None:
        results: Sequence[Tensor | None] = [output] if isinstance(output, Tensor) else output
        if len(results) > 1:
            ctx.mark_non_differentiable(*output[1:])
            ctx.set_materialize_grads(False)
        tensors, lists = self.tensors_of(arguments), self.lists_of(arguments)
        if unread := arguments.unread():
            results = () if "results" in unread else results
            results = [None, *results[1:]] if "first result" in unread else results
            tensors = [None if name in unread else x for x, name in zip(tensors, self.tensors, strict=True)]
        ctx.others, ctx.lengths = self.others_of(arguments), [*map(len, lists)]
        ctx.save_for_backward(*tensors, *chain(*lists), *results)

    def _backward(self, ctx: Any, needed: Sequence[bool], dy: Tensor | None) -> Gradients:
        """Gradients to the differentiable fields."""
        if dy is None:
            return [None] * len(needed)
        saved, start = ctx.saved_tensors, len(self.tensors)
        values = list(saved[:start])
        for length in ctx.lengths:
            values.append(saved[start : start + length])
            start += length
        values += ctx.others
        inputs, results = self.in_order(values), saved[start:]
        leaves = [inputs[n] for n in self.places]
        if self.composed is not None and by_operations(dy, *leaves):
            return _composed_gradients(self.arguments(*inputs), self.composed, dy)
        if isinstance(self.gradient, Operator):
            of_leaves = self.gradient(self.gradient.arguments(*inputs, *results, dy, needed))
        else:
            assert self.gradient is not None
            of_leaves = self.gradient(self.arguments(*inputs), results, dy, needed)
        return [_fitted(dx, x) if need else None for dx, x, need in zip(of_leaves, leaves, needed, strict=True)]


def unless_batched(by_kernels: Gradient, composed: Callable[..., Tensor]) -> Gradient:
    """A gradient by operators that have one themselves; of several at once, whose memory no kernel can read, that of
    composed(arguments), the first result by differentiable operations."""

    def gradient(own: Any, results: Sequence[Tensor], dy: Tensor, needed: Sequence[bool]) -> Gradients:
        if not is_batched(dy):
            return by_kernels(own, results, dy, needed)
        return _composed_gradients(own, composed, dy)

    return gradient


def _composed_gradients(own: Arguments, composed: Callable[..., Tensor], dy: Tensor) -> Gradients:
    leaves = [getattr(own, name) for name in own.differentiable]

    def function(*fresh: Tensor) -> Tensor:
        return composed(replace(own, **dict(zip(own.differentiable, fresh, strict=True))))

    return gradients(function, leaves, [dy])


def _values(names: Sequence[str]) -> Callable[[Any], Sequence[Any]]:
    """The values of those fields."""
    return attrgetter(*names) if len(names) > 1 else lambda arguments: [getattr(arguments, name) for name in names]


def _require_grad(leaves: Sequence[Tensor | None]) -> bool:
    for x in leaves:  # noqa: SIM110 (a generator takes twice as long)
        if x is not None and x.requires_grad:
            return True
    return False


def _is_traced(tensors: Sequence[Tensor | None]) -> bool:
    """Whether a tensor is a fake or otherwise not plain one, which only the library operator understands."""
    return not PLAIN.issuperset(map(type, tensors))


def _fitted(dx: Tensor | None, x: Tensor | None) -> Tensor | None:
    """The gradient to numbers that the whole batch, or every head, shares; in their dtype."""
    if dx is None or x is None:
        return dx
    dx = dx if dx.numel() == x.numel() else dx.sum_to_size(x.shape)
    return dx if dx.dtype is x.dtype else dx.to(x.dtype)


T = TypeVar("T")


def by_operations(*tensors: Tensor | None) -> bool:
    """Whether a backward pass that reads these tensors needs differentiable operations: it will itself be
    differentiated (`create_graph=True`), or has several gradients at once, whose memory no kernel can read."""
    if torch.compiler.is_compiling():
        return False
    again = torch.is_grad_enabled()
    return any(x is not None and ((again and x.requires_grad) or is_batched(x)) for x in tensors)


def is_batched(x: Tensor) -> bool:
    """Whether a tensor is several at once, as `torch.autograd.grad(is_grads_batched=True)` and `torch.func.vmap` of a
    backward pass hand them over."""
    return is_legacy_batchedtensor(x) or is_batchedtensor(x)


def in_own_dtypes(backward: Callable[..., T]) -> Callable[..., T]:
    """A backward pass that computes in its tensors' dtypes, within torch.autocast too: kernels read their memory."""

    @wraps(backward)
    def run(*arguments: Any) -> T:
        if not torch.is_autocast_enabled("cpu"):
            return backward(*arguments)
        with torch.autocast("cpu", enabled=False):
            return backward(*arguments)

    return run


def gradients(
    function: Callable[..., Tensor | Sequence[Tensor | None]],
    inputs: Sequence[Tensor | None],
    grads: Sequence[Tensor | None],
) -> list[Tensor | None]:
    """Gradients to those inputs that require one, of a function made of differentiable operations; themselves
    differentiable where gradients are enabled.

    Symbols     function(*inputs) -> y, one tensor or several; grads = the gradient to each y, None where there is none
    """
    again = torch.is_grad_enabled()
    with torch.enable_grad():
        fresh = [x if x is None else x.view_as(x) for x in inputs]  # so that one tensor used twice has two gradients
        y = function(*fresh)
    results = [y] if isinstance(y, Tensor) else y
    pairs = [(y, dy) for y, dy in zip(results, grads, strict=False) if y is not None and dy is not None]
    leaves = [x for x in fresh if x is not None and x.requires_grad]
    of_leaves = torch.autograd.grad(
        [y for y, _ in pairs], leaves, [dy for _, dy in pairs], create_graph=again, allow_unused=True,
        materialize_grads=True,
    )  # fmt: skip
    of_leaf = iter(of_leaves)
    return [next(of_leaf) if x is not None and x.requires_grad else None for x in fresh]
