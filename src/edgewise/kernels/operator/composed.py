"""Calls by PyTorch's differentiable operations, edge by edge: gather both ends, softmax over each receiver, sum.

Where a backward pass is itself differentiated, kernels are computed so too.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.graphs.forms import receivers_of
from edgewise.kernels.call import Attend
from edgewise.kernels.operator.layout import widened
from edgewise.kernels.scores import Dot, Kernel, Score


def attention(call: Attend) -> Tensor | tuple[Tensor, Tensor]:
    """Attention on the edges; keys and values have as many heads as queries."""
    graph, score = call.graph, call.score
    s_ij = _edge_scores(call)  # [*, E, H]
    if isinstance(score, Kernel):
        w_ij = s_ij
    else:
        top = reduced(graph, s_ij.detach(), "max", -2)  # softmax is unchanged by a shift per receiver
        top = top.clamp(min=torch.finfo(top.dtype).min)  # of a receiver whose senders are all masked by −∞
        w_ij = (s_ij - top.index_select(-2, graph.receivers)).exp()
    total = _sum(graph, w_ij, -2)
    total = torch.where(total == 0, 1, total)  # a receiver without senders divides 0 by 1
    v_j = call.v.index_select(-3, graph.senders)  # [*, E, H, D]
    # Dividing nodes by their total is the softmax, without another tensor of E·H numbers.
    y = _sum(graph, functional.dropout(w_ij, call.dropout).unsqueeze(-1) * v_j, -3) / total.unsqueeze(-1)
    y = y.to(call.v.dtype)
    return (y, w_ij / total.index_select(-2, graph.receivers)) if call.return_weights else y


def _edge_scores(call: Attend) -> Tensor:
    """s_ij on every edge; for `Kernel` the weight itself. At least float32, as exponentials need it."""
    graph, score = call.graph, call.score
    bias = score.edge_bias(graph)
    if not score.needs_ends:
        shape = (*call.v.shape[:-3], graph.num_edges, call.heads)
        s_ij = call.v.new_zeros(shape, dtype=call.v.real.dtype)
    else:
        (q, k), pairwise = call.ends(), score.pairwise
        if isinstance(score, Kernel):  # the features of a node are those of all its edges
            q, k, pairwise = score.feature_map(q), score.feature_map(k), Dot(1.0).pairwise
        if call.v.dtype == torch.float16:  # whose products may be beyond it before they are scaled
            q, k = widened(q), widened(k)
        s_ij = pairwise(q.index_select(-3, graph.receivers), k.index_select(-3, graph.senders))
    s_ij = widened(s_ij)
    if bias is None:
        return s_ij
    if not isinstance(score, Kernel):
        return s_ij + bias
    bias = bias.to(s_ij.dtype)
    top = reduced(graph, bias.detach(), "max", -2).clamp(min=torch.finfo(bias.dtype).min)  # what is common cancels
    return s_ij * (bias - top.index_select(-2, graph.receivers)).exp()


def _sum(graph: Graph, m_ij: Tensor, axis: int) -> Tensor:
    """Messages summed by receiver, half precisions accumulated in float32."""
    shape = list(m_ij.shape)
    shape[axis] = graph.num_receivers
    wide = widened(m_ij)
    return wide.new_zeros(shape).index_add_(axis, graph.receivers, wide).to(m_ij.dtype)


def reduced(graph: Graph, m_ij: Tensor, reduce: str | None, axis: int = -2) -> Tensor:
    """Messages combined by receiver."""
    if reduce == "sum":
        return _sum(graph, m_ij, axis)
    if reduce == "mean":
        y = divide_by_degree(graph, _sum(graph, widened(m_ij), axis), axis)
        return y.to(m_ij.dtype) if m_ij.is_floating_point() else y  # a mean may fit where the sum does not
    shape = list(m_ij.shape)
    shape[axis] = graph.num_receivers
    index = graph.receivers.reshape(-1, *[1] * (-axis - 1)).expand_as(m_ij)
    # A start that equals no message: PyTorch would give it a share of the gradient, even with include_self=False.
    start = m_ij.new_full(shape, float("nan") if m_ij.is_floating_point() else 0)
    best = start.scatter_reduce(axis, index, m_ij, "amax" if reduce == "max" else "amin", include_self=False)
    return torch.where(_has_senders(graph).reshape(-1, *[1] * (-axis - 1)), best, best.new_zeros(()))


def divide_by_degree(graph: Graph, y: Tensor, axis: int) -> Tensor:
    """Sums over the number of senders of each receiver, 1 where there are none."""
    degrees = graph.in_degrees().clamp(min=1)
    return y / (degrees.to(y.dtype) if y.is_floating_point() else degrees).reshape(-1, *[1] * (-axis - 1))


@cached
def _has_senders(graph: Graph) -> Tensor:
    return graph.in_degrees() > 0


def attend(
    graph: Graph, q: Tensor | None, k: Tensor | None, v: Tensor, score: Score,
    drop: Callable[[Tensor], Tensor] | None = None,
) -> Tensor:  # fmt: skip
    """Attention by differentiable operations; `drop` applies a kernel's dropout to the weights [B, E, H]."""
    call = Attend(graph, q, k, v, score, return_weights=True).with_own_senders()
    result = attention(call.with_equal_heads())
    assert isinstance(result, tuple)
    y, p_ij = result
    if drop is None:
        return y
    return _sum(call.graph, drop(p_ij).to(call.v.dtype).unsqueeze(-1) * call.v.index_select(-3, call.graph.senders), -3)


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
    offsets, index, edge = structure[:3]
    m = x.index_select(1, index)
    if weight is not None:
        m = m * (weight.index_select(1, edge.long()) if edge.numel() else weight).unsqueeze(-1)
    graph = Graph.from_csr(offsets, index.long(), x.shape[1])
    return reduced(graph, m, "max" if largest else "min", 1 - m.ndim)
