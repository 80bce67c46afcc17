"""Sparse products as operators over any family of kernels: their shapes, gradients and second derivatives.

x [B, J, H, C], weight [B or 1, E, 1 or H]. A structure is a list of tensors: offsets [I + 1]; index [E], the row of x
that edge e reads; edge, where edge e has weight edge[e], or e where it is empty; and whatever else the kernels read.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.kernels.call import Aggregate, Call, Collect
from edgewise.kernels.operator.layout import flat
from edgewise.kernels.operator.operator import Operator
from edgewise.kernels.operator.second_derivatives import differentiated_again, gradients_again

SUM, MEAN, MAX, MIN = range(4)
REDUCTIONS = {"sum": SUM, "mean": MEAN, "max": MAX, "min": MIN}


class Products:
    """The operators `{prefix}product` and, for its gradients, three more.

    Symbols     product(x, weight, structure, reverse, reduce) -> y [B, I, H, C], where reverse = the structure of the
                transpose; product_gradient(dy, x, structure, weight_heads) -> the gradient to the weights of a sum;
                extreme_share(dy, x, weight, structure, y) -> dy over the number of messages that reach an extreme;
                extreme_gradient(share, x, weight, structure, y, reverse) -> its gradients to x and to the weights
    """

    def __init__(
        self,
        prefix: str,
        product: Callable[..., Tensor],
        product_gradient: Callable[..., Tensor],
        extreme_share: Callable[..., Tensor],
        extreme_gradient: Callable[..., tuple[Tensor, Tensor]],
    ) -> None:
        self.product_gradient = Operator(
            f"{prefix}product_gradient",
            "(Tensor dy, Tensor x, Tensor[] structure, int weight_heads) -> Tensor",
            product_gradient,
            product_gradient_shape,
        )
        self.extreme_share = Operator(
            f"{prefix}extreme_share",
            "(Tensor dy, Tensor x, Tensor? weight, Tensor[] structure, Tensor y) -> Tensor",
            extreme_share,
            lambda dy, *_: torch.empty_like(dy, memory_format=torch.contiguous_format),
        )
        self.extreme_gradient = Operator(
            f"{prefix}extreme_gradient",
            "(Tensor share, Tensor x, Tensor? weight, Tensor[] structure, Tensor y, Tensor[] reverse)"
            " -> (Tensor, Tensor)",
            extreme_gradient,
            extreme_gradient_shape,
        )
        self.product = Operator(
            f"{prefix}product",
            "(Tensor x, Tensor? weight, Tensor[] structure, Tensor[] reverse, int reduce) -> Tensor",
            product,
            product_shape,
            _save,
            self._gradient,
        )

    def _gradient(self, ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, y, *saved = ctx.saved_tensors
        structure, reverse = saved[: ctx.length], saved[ctx.length :]
        dx = dweight = None
        dy = rows_contiguous(dy)
        if ctx.reduce in (MAX, MIN):
            if differentiated_again(dy, x, weight):
                return *_extreme_again(dy, x, weight, structure, ctx.reduce), None, None, None
            share = self.extreme_share(dy, x, weight, structure, y)
            dx, found = self.extreme_gradient(share, x, weight, structure, y, reverse)
            return dx, None if weight is None else like(found, weight), None, None, None
        if ctx.reduce == MEAN:
            dy = dy / structure[0].diff().clamp(min=1).to(dy.dtype).reshape(-1, 1, 1)
        if ctx.needs_input_grad[0]:
            dx = self.product(dy, weight, reverse, structure, SUM)
        if weight is not None and ctx.needs_input_grad[1]:
            if differentiated_again(dy, x):
                found = _product_gradient_again(dy, x, structure, weight.shape[2])
            else:
                found = self.product_gradient(dy, x, structure, weight.shape[2])
            dweight = like(found, weight)
        return dx, dweight, None, None, None


def product_shape(
    x: Tensor, weight: Tensor | None, structure: Sequence[Tensor], reverse: Sequence[Tensor], reduce: int
) -> Tensor:
    """An empty y."""
    return x.new_empty(x.shape[0], structure[0].shape[0] - 1, x.shape[2], x.shape[3])


def product_gradient_shape(dy: Tensor, x: Tensor, structure: Sequence[Tensor], weight_heads: int) -> Tensor:
    """An empty gradient to the weights."""
    return x.new_empty(x.shape[0], structure[1].shape[0], weight_heads)


def extreme_gradient_shape(
    share: Tensor, x: Tensor, weight: Tensor | None, structure: Sequence[Tensor], y: Tensor, reverse: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    """Empty gradients to x and, where there are any, to the weights."""
    shape = (0,) if weight is None else (x.shape[0], structure[1].shape[0], weight.shape[2])
    return x.new_empty(x.shape), x.new_empty(shape)


def rows_contiguous(x: Tensor) -> Tensor:
    """The same numbers, where needed copied so that those of a row follow each other."""
    return x if x.ndim == 4 and x.stride(3) == 1 and (x.stride(2) == x.shape[3] or x.shape[2] == 1) else x.contiguous()


def like(found: Tensor, given: Tensor) -> Tensor:
    """The gradient to numbers that the whole batch shares."""
    return found.sum(0, keepdim=True) if given.shape[0] < found.shape[0] else found


def differentiated(x: Tensor, weight: Tensor | None) -> bool:
    """Whether a product of these will have a backward pass."""
    return torch.is_grad_enabled() and (x.requires_grad or (weight is not None and weight.requires_grad))


def run(call: Call, product: Callable[[Graph, Tensor, Tensor | None, int, bool], Tensor]) -> Tensor:
    """An `Aggregate` or `Collect` by product(graph, x, weight, reduce, messages), in the layout of this file.

    Symbols     messages = whether the rows of x are messages on the graph's edges rather than its senders
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
    batched = flat(x, axes)
    rows = rows_contiguous(batched.unsqueeze(2) if axes == 2 else batched)
    y = product(call.graph, rows, weight, REDUCTIONS[call.reduce], isinstance(call, Collect))
    return y.reshape(*x.shape[:-axes], y.shape[1], *x.shape[1 - axes :])


def _save(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
    x, weight, structure, reverse, ctx.reduce = inputs
    ctx.length = len(structure)
    extreme = ctx.reduce in (MAX, MIN)
    kept = x if extreme or (weight is not None and weight.requires_grad) else None
    ctx.save_for_backward(kept, weight, output if extreme else None, *structure, *reverse)


def _product_gradient_again(dy: Tensor, x: Tensor, structure: Sequence[Tensor], weight_heads: int) -> Tensor:
    """The gradient to the weights by differentiable operations, for second derivatives."""
    offsets, index, edge = structure[:3]
    receivers = torch.repeat_interleave(offsets.diff(), output_size=index.shape[0])
    found = (dy.index_select(1, receivers) * x.index_select(1, index)).sum(-1)
    found = found.sum(-1, keepdim=True) if weight_heads == 1 else found
    return torch.zeros_like(found).index_copy(1, edge.long(), found) if edge.numel() else found


def _extreme_again(
    dy: Tensor, x: Tensor, weight: Tensor | None, structure: Sequence[Tensor], reduce: int
) -> list[Tensor | None]:
    """Both gradients of an extreme by differentiable operations, for second derivatives."""
    from edgewise.kernels.backends.torch import segment

    offsets, index, edge = structure[:3]
    inputs = [given if given is None else given.view_as(given) for given in (x, weight)]
    x, weight = inputs  # type: ignore[assignment]
    graph = Graph.from_csr(offsets, index.long(), x.shape[1])
    if weight is not None:
        by_edge = weight.index_select(1, edge.long()) if edge.numel() else weight
    else:
        by_edge = x.new_ones(1, index.shape[0], 1)
    y = segment.run(Aggregate(graph, x, by_edge, "max" if reduce == MAX else "min"))
    assert isinstance(y, Tensor)
    return gradients_again(y, inputs, dy)
