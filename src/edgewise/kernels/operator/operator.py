"""Kernels as PyTorch operators: one definition serves eager autograd, `torch.compile` and `opcheck`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

LIBRARY = torch.library.Library("edgewise", "DEF")

DTYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}  # those that the kernels compute in, by their numbers
Results = Tensor | tuple[Tensor, ...]


class Operator:
    """An operator `edgewise::name` that computes outside PyTorch's sight.

    Symbols     schema = its signature in PyTorch's notation; compute = the kernel; shape = the same results, empty;
                save(ctx, inputs, output) and gradient(ctx, *grads) as in `torch.autograd.Function`; no gradient
                where they are None
    Cost        called eagerly it is the kernel alone where nothing needs a gradient (a microsecond), else a plain
                autograd.Function (10 µs, a quarter of a library operator's overhead); under torch.compile and
                torch.func it is the library operator
    """

    def __init__(
        self,
        name: str,
        schema: str,
        compute: Callable[..., Results],
        shape: Callable[..., Results],
        save: Callable[[Any, Sequence[Any], Results], None] | None = None,
        gradient: Callable[..., Sequence[Tensor | None] | Tensor | None] | None = None,
    ) -> None:
        LIBRARY.define(f"{name}{schema}")
        for device in ("CPU", "CUDA"):  # the backend refuses the one that its kernels do not run on
            LIBRARY.impl(name, compute, device)
        qualified = f"edgewise::{name}"
        torch.library.register_fake(qualified, shape, lib=LIBRARY)
        if save is not None and gradient is not None:
            torch.library.register_autograd(
                qualified, _for_lists(gradient), setup_context=_with_lists(save), lib=LIBRARY
            )
        self.overload = getattr(torch.ops.edgewise, name).default
        self.function = None if save is None or gradient is None else _function(name, compute, save, gradient)
        self.compute = compute

    def __call__(self, *inputs: Any) -> Any:
        if torch.compiler.is_compiling() or torch._C._are_functorch_transforms_active() or _is_traced(inputs):
            return self.overload(*inputs)
        if self.function is not None and torch.is_grad_enabled() and _needs_gradient(inputs):
            return self.function.apply(*inputs)
        return self.compute(*inputs)


def _function(name: str, compute: Callable[..., Results], save: Callable[..., None], gradient: Any) -> Any:
    """The autograd.Function. Its forward saves too: PyTorch spends 50 µs a call on one with a setup_context."""

    def forward(ctx: Any, *inputs: Any) -> Results:
        output = compute(*inputs)
        save(ctx, inputs, output)
        return output

    return type(
        name, (torch.autograd.Function,), {"forward": staticmethod(forward), "backward": staticmethod(gradient)}
    )


def _needs_gradient(inputs: Sequence[Any]) -> bool:
    return any(isinstance(x, Tensor) and x.requires_grad for x in inputs)


def _is_traced(inputs: Sequence[Any]) -> bool:
    """Whether a tensor is a fake or otherwise not plain one, which only the library operator understands."""
    return any(isinstance(x, Tensor) and type(x) not in (Tensor, torch.nn.Parameter) for x in inputs)


def _with_lists(save: Callable[..., None]) -> Callable[..., None]:
    """`save`, which also remembers how long the inputs are that are lists of tensors."""

    def saved(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
        ctx.lengths = [len(x) if isinstance(x, list | tuple) else None for x in inputs]
        save(ctx, inputs, output)

    return saved


def _for_lists(gradient: Callable[..., Any]) -> Callable[..., Any]:
    """`gradient`, with the list of Nones that a library operator expects for a list of tensors."""

    def listed(ctx: Any, *grads: Tensor | None) -> tuple[Any, ...]:
        found = gradient(ctx, *grads)
        return tuple(x if n is None else [None] * n for x, n in zip(found, ctx.lengths, strict=True))

    return listed
