"""The native product of several heads, each with a matrix of its own, as an operator.

y_h = x_h W_h for rows x [B, N, H, C] and matrices W [H, C, R]: [B, N, H, R], with heads side by side as other kernels
read them, which a batched product of matrices would have to move. In float32 or float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from edgewise.kernels.backends.cpu.features import wide_dtype
from edgewise.kernels.operator.layout import check_rows, expect
from edgewise.kernels.operator.operator import DTYPES, Arguments, Gradients, Operator, unless_batched
from edgewise.native import library, threads


@dataclass(slots=True)
class Heads(Arguments):
    """x_h W_h [B, N, H, R]."""

    x: Tensor
    weight: Tensor

    differentiable: ClassVar[tuple[str, ...]] = ("x", "weight")

    def empty(self) -> Tensor:
        return self.x.new_empty(*self.x.shape[:3], self.weight.shape[2])

    def check(self) -> None:
        kind = wide_dtype("x", self.x)
        check_rows("x", self.x, (None, None, None, None), kind, strided=True)
        check_rows("weight", self.weight, (*self.x.shape[2:], None), kind, strided=True)
        expect(self.weight.numel() > 0, "weight is empty")

    def unread(self) -> tuple[str, ...]:
        return ("results",)


@dataclass(slots=True)
class HeadsGradient(Arguments):
    """Σ x_hᵀ y_h over all rows, [H, C, R]."""

    x: Tensor
    y: Tensor

    differentiable: ClassVar[tuple[str, ...]] = ("x", "y")

    def empty(self) -> Tensor:
        return self.x.new_empty(*self.x.shape[2:], self.y.shape[3])

    def check(self) -> None:
        kind = wide_dtype("x", self.x)
        check_rows("x", self.x, (None, None, None, None), kind, strided=True)
        check_rows("y", self.y, (*self.x.shape[:3], None), kind, strided=True)
        expect(self.x.shape[2] * self.x.shape[3] * self.y.shape[3] > 0, "x or y has no heads or channels")

    def unread(self) -> tuple[str, ...]:
        return ("results",)


def _call(x: Tensor, y: Tensor, weight: Tensor) -> Any:
    call = library.Heads()
    call.threads, call.rows, (call.heads, call.inputs, call.outputs) = threads(), x.shape[:2].numel(), weight.shape
    call.x, call.y, call.weight = x.data_ptr(), y.data_ptr(), weight.data_ptr()
    return call


def _product(own: Heads) -> Tensor:
    y, x, weight = own.empty(), own.x.contiguous(), own.weight.contiguous()
    library.by_heads(DTYPES[y.dtype], _call(x, y, weight))
    return y


def _gradient(own: HeadsGradient) -> Tensor:
    weight, x, y = own.empty(), own.x.contiguous(), own.y.contiguous()
    library.by_heads_gradient(DTYPES[x.dtype], _call(x, y, weight))
    return weight


def _product_gradients(own: Heads, _: Any, dy: Tensor, needed: Sequence[bool]) -> Gradients:
    dx = product(Heads(dy, own.weight.transpose(1, 2))) if needed[0] else None
    return dx, gradient(HeadsGradient(own.x, dy)) if needed[1] else None


def _second_gradients(own: HeadsGradient, _: Any, d: Tensor, needed: Sequence[bool]) -> Gradients:
    dx = product(Heads(own.y, d.transpose(1, 2))) if needed[0] else None
    return dx, product(Heads(own.x, d)) if needed[1] else None


product: Operator[Heads, Tensor] = Operator(
    "by_heads",
    Heads,
    _product,
    unless_batched(_product_gradients, lambda own: torch.einsum("bnhc,hcr->bnhr", own.x, own.weight)),
    on_cpu=True,
)
gradient: Operator[HeadsGradient, Tensor] = Operator(
    "by_heads_gradient",
    HeadsGradient,
    _gradient,
    unless_batched(_second_gradients, lambda own: torch.einsum("bnhc,bnhr->hcr", own.x, own.y)),
    on_cpu=True,
)
