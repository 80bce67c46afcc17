"""Kernels as PyTorch operators: one definition serves eager autograd, `torch.compile` and `opcheck`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

LIBRARY = torch.library.Library("edgewise", "DEF")

Results = Tensor | tuple[Tensor, ...]


class Operator:
    """An operator `edgewise::name` that computes outside PyTorch's sight.

    Symbols     schema = its signature in PyTorch's notation; compute = the kernel; shape = the same results, empty;
                save(ctx, inputs, output) and gradient(ctx, *grads) as in `torch.autograd.Function`; no gradient
                where they are None
    Cost        called eagerly it goes through a plain autograd.Function, a quarter of a library operator's overhead;
                under torch.compile it is the library operator
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
        LIBRARY.impl(name, compute, "CPU")
        qualified = f"edgewise::{name}"
        torch.library.register_fake(qualified, shape, lib=LIBRARY)
        if save is not None and gradient is not None:
            torch.library.register_autograd(
                qualified, _for_lists(gradient), setup_context=_with_lists(save), lib=LIBRARY
            )
        self.overload = getattr(torch.ops.edgewise, name).default
        methods = {"forward": compute, "setup_context": save, "backward": gradient}
        self.function = (
            type(name, (torch.autograd.Function,), {key: staticmethod(value) for key, value in methods.items()})  # type: ignore[arg-type]
            if gradient is not None
            else None
        )
        self.compute = compute

    def __call__(self, *inputs: Any) -> Any:
        if torch.compiler.is_compiling() or _is_traced(inputs):
            return self.overload(*inputs)
        return self.compute(*inputs) if self.function is None else self.function.apply(*inputs)  # type: ignore[attr-defined]


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
