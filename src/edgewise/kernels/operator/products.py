"""Sparse products as operators over any family of kernels: their shapes, gradients and second derivatives.

x [B, J, H, C], weight [B or 1, E, 1 or H]. A structure is a list of tensors: offsets [I + 1]; index [E], the row of x
that edge e reads; edge, where edge e has weight edge[e], or e where it is empty; and whatever else the kernels read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.kernels.call import Aggregate, Call, Collect
from edgewise.kernels.operator.composed import extreme, weight_gradient, weighted_sum
from edgewise.kernels.operator.layout import (
    apart,
    check_reverse,
    check_rows,
    check_structure,
    dtype_of,
    empty_like,
    expect,
    flat,
    rows_contiguous,
    side_by_side,
)  # fmt: skip
from edgewise.kernels.operator.operator import Arguments, Gradients, Operator, by_operations, gradients, is_batched

SUM, MEAN, MAX, MIN = range(4)
Form = Callable[[Graph], Sequence[Tensor]]  # a graph as kernels read it
REDUCTIONS = {"sum": SUM, "mean": MEAN, "max": MAX, "min": MIN}


@dataclass(slots=True)
class Product(Arguments):
    """y [B, I, H, C]; reverse = the structure of the transpose."""

    x: Tensor
    weight: Tensor | None
    structure: Sequence[Tensor]
    reverse: Sequence[Tensor]
    reduce: int

    differentiable: ClassVar[tuple[str, ...]] = ("x", "weight")

    def empty(self) -> Tensor:
        batch, _, heads, channels = self.x.shape
        return self.x.new_empty(batch, self.structure[0].shape[0] - 1, heads, channels)

    def check(self) -> None:
        receivers, edges = _check(self.x, self.weight, self.structure)
        if self.reverse:
            check_reverse(self.reverse, receivers, (self.x.shape[1], edges), (3, 4))
        expect(self.reduce in range(4), f"reduce is {self.reduce}, but must be 0, 1, 2 or 3")

    def unread(self) -> tuple[str, ...]:
        if self.reduce in (MAX, MIN):
            return ()
        return ("results",) if self.weight is not None and self.weight.requires_grad else ("x", "results")


@dataclass(slots=True)
class ProductGradient(Arguments):
    """The gradient to the weights of a sum, [B, E, weight_heads]."""

    dy: Tensor
    x: Tensor
    structure: Sequence[Tensor]
    weight_heads: int

    def empty(self) -> Tensor:
        return self.x.new_empty(self.x.shape[0], self.structure[1].shape[0], self.weight_heads)

    def check(self) -> None:
        _check(self.x, None, self.structure, dy=self.dy)
        heads = self.x.shape[2]
        expect(self.weight_heads in (1, heads), f"weight_heads is {self.weight_heads}, but must be 1 or {heads}")


@dataclass(slots=True)
class ExtremeShare(Arguments):
    """dy over the number of messages that reach an extreme."""

    dy: Tensor
    x: Tensor
    weight: Tensor | None
    structure: Sequence[Tensor]
    y: Tensor

    def empty(self) -> Tensor:
        return empty_like(self.dy)

    def check(self) -> None:
        _check(self.x, self.weight, self.structure, dy=self.dy, y=self.y)


@dataclass(slots=True)
class ExtremeGradient(Arguments):
    """The gradients of an extreme to x and to the weights, those of both that are needed."""

    share: Tensor
    x: Tensor
    weight: Tensor | None
    structure: Sequence[Tensor]
    y: Tensor
    reverse: Sequence[Tensor]
    needed: Sequence[bool]

    def empty(self) -> tuple[Tensor, Tensor]:
        x, edges, weight = self.x, self.structure[1].shape[0], self.weight
        of_x, of_weight = self.needed
        shape = (x.shape[0], edges, weight.shape[2]) if weight is not None and of_weight else (0,)
        return empty_like(x) if of_x else x.new_empty(0), x.new_empty(shape)

    def check(self) -> None:
        expect(len(self.needed) == 2, f"needed has {len(self.needed)} values, but must have 2")
        receivers, edges = _check(self.x, self.weight, self.structure, share=self.share, y=self.y)
        check_reverse(self.reverse, receivers, (self.x.shape[1], edges), (3, 4))


def _check(x: Tensor, weight: Tensor | None, structure: Sequence[Tensor], **of_receivers: Tensor) -> tuple[int, int]:
    """The receivers and edges of a product whose tensors are right."""
    check_rows("x", x, (None, None, None, None), dtype_of("x", x))
    batch, rows, heads, channels = x.shape
    receivers, edges = check_structure("structure", structure, rows, (3,))
    for name, y in of_receivers.items():
        check_rows(name, y, (batch, receivers, heads, channels), x.dtype)
    if weight is not None:
        shared, one = weight.shape[:1] == (1,), weight.shape[2:] == (1,)
        check_rows("weight", weight, (1 if shared else batch, edges, 1 if one else heads), x.dtype)
    return receivers, edges


class Products:
    """The operators `{prefix}product` and, for its gradients, three more, from the kernels that compute them."""

    def __init__(
        self,
        prefix: str,
        product: Callable[[Product], Tensor],
        product_gradient: Callable[[ProductGradient], Tensor],
        extreme_share: Callable[[ExtremeShare], Tensor],
        extreme_gradient: Callable[[ExtremeGradient], tuple[Tensor, Tensor]],
        on_cpu: bool = False,
    ) -> None:
        self.product = Operator(f"{prefix}product", Product, product, self._gradient, on_cpu=on_cpu)
        self.product_gradient = Operator(f"{prefix}product_gradient", ProductGradient, product_gradient, on_cpu=on_cpu)
        self.extreme_share = Operator(f"{prefix}extreme_share", ExtremeShare, extreme_share, on_cpu=on_cpu)
        self.extreme_gradient = Operator(f"{prefix}extreme_gradient", ExtremeGradient, extreme_gradient, on_cpu=on_cpu)

    def _gradient(self, own: Product, results: Sequence[Tensor], dy: Tensor, needed: Sequence[bool]) -> Gradients:
        x, weight, structure = own.x, own.weight, own.structure
        dx = dweight = None
        dy = rows_contiguous(dy)
        if own.reduce in (MAX, MIN):
            if by_operations(dy, x, weight):
                return gradients(lambda x, w: extreme(x, w, structure, own.reduce == MAX), [x, weight], [dy])
            (y,) = results
            share = self.extreme_share(ExtremeShare(dy, x, weight, structure, y))
            return self.extreme_gradient(ExtremeGradient(share, x, weight, structure, y, own.reverse, needed))
        if own.reduce == MEAN:
            dy = dy / structure[0].diff().clamp_(min=1).to(dy.dtype).view(-1, 1, 1)
        if needed[0] and is_batched(dy):
            dx = weighted_sum(dy, weight, own.reverse)
        elif needed[0]:
            dx = self.product(Product(dy, weight, own.reverse, structure, SUM))
        if weight is not None and needed[1]:
            if by_operations(dy, x):
                dweight = weight_gradient(dy, x, structure, weight.shape[2])
            else:
                dweight = self.product_gradient(ProductGradient(dy, x, structure, weight.shape[2]))
        return dx, dweight


@cached
def _messages(graph: Graph, structure_of: Form) -> Sequence[Tensor]:
    """The graph from messages on the edges to their receivers."""
    offsets, _, none, *more = structure_of(graph)
    return offsets, torch.arange(graph.num_edges, dtype=torch.int32, device=graph.device), none, *more


@cached
def _messages_reversed(graph: Graph) -> Sequence[Tensor]:
    """Its transpose: each message has one edge, to its receiver."""
    numbers = torch.arange(graph.num_edges + 1, device=graph.device)
    return numbers, graph.receivers.to(torch.int32), numbers[:-1].to(torch.int32)


def run(call: Call, own: Products, structure_of: Form, reverse_of: Form, members: int = 1) -> Tensor:
    """An `Aggregate` or `Collect` by one family of kernels, given a graph and its transpose as these read them.

    Symbols     members = how many of a batch share one walk over the edges, whose weights then are the same for all
    """
    if isinstance(call, Collect):
        x, weight, axes = call.m_ij, None, 2
    else:
        assert isinstance(call, Aggregate)
        x, weight, axes = call.x, call.weight, -call.node_axis
    if weight is not None and weight.ndim == 1:
        weight = weight.contiguous().reshape(1, -1, 1)
    elif weight is not None:
        if weight.ndim > 2 and weight.shape[:-2] != x.shape[:-3]:
            lead = torch.broadcast_shapes(weight.shape[:-2], x.shape[:-3])
            x, weight = x.expand(*lead, *x.shape[-3:]), weight.expand(*lead, *weight.shape[-2:])
        weight = flat(weight, 2).contiguous()
    batched = x.view(1, len(x), 1, -1) if x.ndim == 2 else flat(x, axes)
    rows = rows_contiguous(side_by_side(batched.unsqueeze(2) if batched.ndim == 3 else batched, members, 3))
    graph = call.graph
    if isinstance(call, Collect):
        structure, reverse_of = _messages(graph, structure_of), _messages_reversed
    else:
        structure = structure_of(graph)
    differentiated = torch.is_grad_enabled() and (rows.requires_grad or (weight is not None and weight.requires_grad))
    reverse = reverse_of(graph) if differentiated else ()
    y = apart(own.product(Product(rows, weight, structure, reverse, REDUCTIONS[call.reduce or "sum"])), members, 3)
    return y.reshape(*x.shape[:-axes], y.shape[1], *x.shape[1 - axes :])
