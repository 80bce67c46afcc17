"""The native product of several heads, each with a matrix of its own, as an operator; and sums over edges and heads.

y_h = x_h W_h for rows x [B, N, H, C] and matrices W [H, C, R]: [B, N, H, R], with heads side by side as other kernels
read them, which a batched product of matrices would have to move. In float32 or float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.kernels.backends.cpu.edges import adjacency, product_reverse_of, product_structure_of
from edgewise.kernels.backends.cpu.features import wide_dtype
from edgewise.kernels.operator.gradients import by_operations, gradients, in_own_dtypes
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


def combined(graph: Graph, x: Tensor, weight: Tensor) -> Tensor:
    """Σ_j Σ_h w_ijh x_jh of x [J, H, C], in any order in memory, and weights [E, H]: [I, C], without the sums of heads.

    Cost        time O(E H C); memory for E C numbers, and for the results
    """
    y: Tensor = _Combined.apply(x, weight, graph)  # type: ignore[no-untyped-call]
    return y


class _Combined(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, graph: Graph) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.graph = graph
        x, weight, kind = _side_by_side(x), weight.contiguous(), DTYPES[x.dtype]
        channels, offsets = x.shape[2], product_structure_of(graph)[0]
        m, y = x.new_empty(graph.num_edges, channels), x.new_empty(graph.num_receivers, channels)
        call = _combining(graph, x, weight)
        call.set_results(m.data_ptr())
        library.combine(kind, call)
        library.pool(kind, threads(), 0, *y.shape, offsets.data_ptr(), m.data_ptr(), y.data_ptr())
        return y

    @staticmethod
    @in_own_dtypes
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight = ctx.saved_tensors
        if by_operations(dy, x, weight):
            return *gradients(partial(_composed, ctx.graph), [x, weight], [dy]), None
        x, weight, dy = _side_by_side(x), weight.contiguous(), dy.contiguous()
        wanted = zip((x, weight), ctx.needs_input_grad[:2], strict=True)
        dx, dw = (torch.empty_like(one) if needed else None for one, needed in wanted)
        call = _combining(ctx.graph, x, weight)
        call.set_gradients(*(0 if one is None else one.data_ptr() for one in (dy, dx, dw)))
        library.combine_gradient(DTYPES[x.dtype], call)
        return dx, dw, None


def _side_by_side(x: Tensor) -> Tensor:
    """Rows whose numbers lie side by side, and that do not share any."""
    dense = x.stride(2) == 1 and torch.empty_like(x).stride() == x.stride()
    return x if dense else x.contiguous()


def _combining(graph: Graph, x: Tensor, weight: Tensor) -> Any:
    places = x.data_ptr(), weight.data_ptr()
    transpose = adjacency(*product_reverse_of(graph))
    return library.Combined(threads(), *x.shape[1:], transpose, *x.stride()[:2], *places)


def _composed(graph: Graph, x: Tensor, weight: Tensor) -> Tensor:
    """The same by differentiable operations."""
    m = (x.index_select(0, graph.senders) * weight.unsqueeze(-1)).sum(1)
    return m.new_zeros(graph.num_receivers, x.shape[2]).index_add(0, graph.receivers, m)
