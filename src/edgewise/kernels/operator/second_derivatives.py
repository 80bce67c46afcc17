"""Kernels by differentiable operations, for where a backward pass is itself to be differentiated."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs.forms import receivers_of
from edgewise.kernels.call import Aggregate, Attend
from edgewise.kernels.scores import Score


def attend(
    graph: Graph, q: Tensor | None, k: Tensor | None, v: Tensor, score: Score,
    drop: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:  # fmt: skip
    """Attention by differentiable operations; `drop` applies a kernel's dropout to the weights [B, E, H]."""
    from edgewise.kernels.backends.torch import segment

    call = Attend(graph, q, k, v, score, return_weights=True).with_own_senders()
    result = segment.run(call)
    assert isinstance(result, tuple)
    y, p_ij = result
    return y if drop is None else segment.weighted_values(call.graph, drop(p_ij).to(call.v.dtype), call.v)


def weighted_sum(x: Tensor, weight: Tensor | None, structure: Sequence[Tensor]) -> Tensor:
    """Σ_j w_ij x_j by differentiable operations, of a product's own tensors."""
    offsets, index, edge, *_ = structure
    m = x.index_select(1, index)
    if weight is not None:
        m = m * (weight.index_select(1, edge) if edge.numel() else weight).unsqueeze(-1)
    rows = receivers_of(offsets, index.shape[0])
    return x.new_zeros(x.shape[0], offsets.shape[0] - 1, *x.shape[2:]).index_add(1, rows, m)


def weight_gradient(dy: Tensor, x: Tensor, structure: Sequence[Tensor], heads: int) -> Tensor:
    """The gradient to the weights [B, E, heads] of a sum, by differentiable operations."""
    offsets, index, edge = structure[:3]
    receivers = receivers_of(offsets, index.shape[0])
    dw = (dy.index_select(1, receivers) * x.index_select(1, index)).sum(-1)
    dw = dw.sum(-1, keepdim=True) if heads == 1 else dw
    return torch.zeros_like(dw).index_copy(1, edge.long(), dw) if edge.numel() else dw


def extreme(x: Tensor, weight: Tensor | None, structure: Sequence[Tensor], largest: bool) -> Tensor:
    """Each receiver's largest or smallest message, by differentiable operations."""
    from edgewise.kernels.backends.torch import segment

    offsets, index, edge = structure[:3]
    if weight is None:
        weight = x.new_ones(1, index.shape[0], 1)
    elif edge.numel():
        weight = weight.index_select(1, edge.long())
    graph = Graph.from_csr(offsets, index.long(), x.shape[1])
    y = segment.run(Aggregate(graph, x, weight, "max" if largest else "min"))
    assert isinstance(y, Tensor)
    return y
