"""The native kernels on edges as operators: fused attention, and sparse products with their gradients.

Tensors arrive with the batch written out: nodes [B, N, H, C], weights and biases [B or 1, E, H].
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs.forms import compact_edges
from edgewise.kernels.call import Attend
from edgewise.kernels.operator.operator import DTYPES, Operator
from edgewise.kernels.operator.products import (
    Products,
    extreme_gradient_shape,
    like,
    product_gradient_shape,
    product_shape,
    rows_contiguous,
)
from edgewise.kernels.operator.second_derivatives import attend_again, differentiated_again
from edgewise.kernels.scores import Additive, Dot, GatedAdditive, Score, Uniform
from edgewise.native import library, threads

DOT, ADDITIVE, GATED, NONE = range(4)
MOST = 2**31 - 1  # nodes and edges are numbered in 32 bits

Structure = tuple[Tensor, Tensor]  # offsets [I + 1] int64, senders [E] int32
Reverse = tuple[Tensor, Tensor, Tensor, Tensor]  # the same of the transpose; its edges' numbers here; and the inverse


def structure_of(graph: Graph) -> Structure:
    """The graph's edges as the kernels read them, cached with the graph."""
    return compact_edges(graph)


def reverse_of(graph: Graph) -> Reverse:
    """The transpose as the kernels read it, kept with the graph."""
    return graph.memo("native transpose", lambda: _reverse(graph))


def _reverse(graph: Graph) -> Reverse:
    transpose, order = graph.transpose()
    places = torch.empty(graph.num_edges, dtype=torch.int32, device=order.device)
    places = places.scatter(0, order, torch.arange(graph.num_edges, dtype=torch.int32, device=order.device))
    return (*structure_of(transpose), order.to(torch.int32), places)


def matrix(x: Tensor) -> Any:
    """[B, N, ...] with rows that are contiguous, as the kernels read it."""
    return library.Matrix(x.data_ptr(), x.stride(0), x.stride(1))  # type: ignore[union-attr]


def adjacency(offsets: Tensor, index: Tensor, edge: Tensor | None = None) -> Any:
    """A graph as the kernels read it; edge e has number edge[e], or e where edge is empty."""
    number = 0 if edge is None or not edge.numel() else edge.data_ptr()
    return library.Adjacency(  # type: ignore[union-attr]
        offsets.shape[0] - 1, index.shape[0], offsets.data_ptr(), index.data_ptr(), number
    )


def wide(dtype: torch.dtype) -> torch.dtype:
    """What the kernels keep sums in."""
    return torch.float64 if dtype == torch.float64 else torch.float32


# Attention: q [B, I, H, C], k [B, J, H, C], v [B, J, H, D], a [H, C], bias [B or 1, E, H]


def _attention(
    q: Tensor | None, k: Tensor | None, v: Tensor, a: Tensor | None, bias: Tensor | None,
    offsets: Tensor, index: Tensor, score: int, scale: float, slope: float, dropout: float, seed: Tensor,
) -> Any:  # fmt: skip
    call = library.Attention()  # type: ignore[union-attr]
    call.threads, call.score, call.scale, call.slope = threads(), score, scale, slope
    call.batch, call.senders, call.heads, call.values = v.shape
    call.graph = adjacency(offsets, index)
    call.v = matrix(v)
    if q is not None and k is not None:
        call.channels, call.q, call.k = q.shape[3], matrix(q), matrix(k)
    if a is not None:
        call.a = a.data_ptr()
    if bias is not None:
        call.bias, call.bias_batch_stride = bias.data_ptr(), bias.stride(0) if bias.shape[0] > 1 else 0
    if dropout > 0:
        call.dropout, call.seed = dropout, int(seed)
    return call


def _attend(
    q: Tensor | None, k: Tensor | None, v: Tensor, a: Tensor | None, bias: Tensor | None,
    offsets: Tensor, index: Tensor, reverse: Sequence[Tensor],
    score: int, scale: float, slope: float, dropout: float, seed: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    y, lse, positive = _attend_shape(
        q, k, v, a, bias, offsets, index, reverse, score, scale, slope, dropout, seed
    )  # fmt: skip
    call = _attention(q, k, v, a, bias, offsets, index, score, scale, slope, dropout, seed)
    call.y, call.lse = matrix(y), lse.data_ptr()
    if positive.numel():
        call.positive = positive.data_ptr()
    library.attend(DTYPES[v.dtype], call)  # type: ignore[union-attr]
    return y, lse, positive


def _attend_shape(
    q: Tensor | None, k: Tensor | None, v: Tensor, a: Tensor | None, bias: Tensor | None,
    offsets: Tensor, index: Tensor, reverse: Sequence[Tensor],
    score: int, scale: float, slope: float, dropout: float, seed: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """y [B, I, H, D]; log Σ_j exp s_ij [B, I, H]; and for additive scores with a gradient their positive parts."""
    batch, _, heads, values = v.shape
    receivers = offsets.shape[0] - 1
    y = v.new_empty(batch, receivers, heads, values)
    lse = v.new_empty(batch, receivers, heads, dtype=wide(v.dtype))
    parts = (batch, receivers, heads * (values + 1)) if score == ADDITIVE and len(reverse) else (0,)
    return y, lse, v.new_empty(parts, dtype=wide(v.dtype))


def _attend_save(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
    q, k, v, a, bias, offsets, index, reverse, *ctx.options, seed = inputs
    y, lse, positive = output
    ctx.mark_non_differentiable(lse, positive)
    ctx.set_materialize_grads(False)
    ctx.shared = k is v
    ctx.save_for_backward(q, k, v, a, bias, offsets, index, *reverse, seed, y, lse, positive)


def _attend_backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    dy = grads[0]
    if dy is None:
        return (None,) * 13
    q, k, v, a, bias, offsets, index, *reverse, seed, y, lse, positive = ctx.saved_tensors
    if differentiated_again(dy, q, k, v, a, bias):
        kind, scale, slope, dropout = ctx.options
        graph = Graph.from_csr(offsets, index.long(), v.shape[1])
        score: Score = {DOT: Dot(scale), ADDITIVE: Additive(slope), NONE: Uniform()}.get(kind) or GatedAdditive(
            a, slope
        )
        found = attend_again(dy, Attend(graph, q, k, v, score, dropout), a, bias, None, seed)[:5]
    else:
        to_bias = bias is not None and ctx.needs_input_grad[4]
        found = attend_gradient(
            rows_contiguous(dy),
            q,
            k,
            v,
            a,
            bias,
            offsets,
            index,
            reverse,
            *ctx.options,
            seed,
            y,
            lse,
            positive,
            to_bias,
            ctx.shared,
        )
        if ctx.shared:
            found = [found[0], None, *found[2:]]
    dq, dk, dv, da, dbias = found
    have_ends = q is not None
    return (
        dq if have_ends else None, dk if have_ends else None, dv,
        None if a is None or da is None else da.to(a.dtype),
        None if bias is None or dbias is None or not ctx.needs_input_grad[4] else like(dbias, bias),
        *[None] * 8,
    )  # fmt: skip


def _attend_gradient(
    dy: Tensor, q: Tensor | None, k: Tensor | None, v: Tensor, a: Tensor | None, bias: Tensor | None,
    offsets: Tensor, index: Tensor, reverse: Sequence[Tensor],
    score: int, scale: float, slope: float, dropout: float, seed: Tensor,
    y: Tensor, lse: Tensor, positive: Tensor, to_bias: bool, shared: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    dq, dk, dv, da, dbias = found = _attend_gradient_shape(
        dy, q, k, v, a, bias, offsets, index, reverse, score, scale, slope, dropout, seed, y, lse, positive, to_bias,
        shared,
    )  # fmt: skip
    call = _attention(q, k, v, a, bias, offsets, index, score, scale, slope, dropout, seed)
    back_offsets, back_index, back_edge, places = reverse
    call.transpose = adjacency(back_offsets, back_index, back_edge)
    call.transposed = places.data_ptr()
    dy = rows_contiguous(dy)
    call.dy, call.y, call.dv, call.lse = matrix(dy), matrix(y), matrix(dv), lse.data_ptr()
    if q is not None:
        call.dq, call.dk = matrix(dq), matrix(dv if shared else dk)
    if positive.numel():
        call.positive = positive.data_ptr()
    if a is not None:
        call.da = da.data_ptr()
    if to_bias:
        call.dbias = dbias.data_ptr()
    library.attend_gradient(DTYPES[v.dtype], call)  # type: ignore[union-attr]
    return found


def _attend_gradient_shape(
    dy: Tensor, q: Tensor | None, k: Tensor | None, v: Tensor, a: Tensor | None, bias: Tensor | None,
    offsets: Tensor, index: Tensor, reverse: Sequence[Tensor],
    score: int, scale: float, slope: float, dropout: float, seed: Tensor,
    y: Tensor, lse: Tensor, positive: Tensor, to_bias: bool, shared: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """The gradients to q, k, v, a and the bias; where the keys are the values (`shared`), both parts in that to v."""
    nothing = (0,)
    return (
        v.new_empty(nothing if q is None else q.shape),
        v.new_empty(nothing if k is None or shared else k.shape),
        v.new_empty(v.shape),
        v.new_empty(nothing if a is None else a.shape, dtype=wide(v.dtype)),
        v.new_empty(
            (v.shape[0], index.shape[0], v.shape[2]) if to_bias and bias is not None else nothing, dtype=wide(v.dtype)
        ),
    )


_ENDS = "Tensor? q, Tensor? k, Tensor v, Tensor? a, Tensor? bias"
_GRAPH = "Tensor offsets, Tensor index, Tensor[] reverse"
_OPTIONS = "int score, float scale, float slope, float dropout, Tensor seed"

attend_gradient = Operator(
    "attend_edges_gradient",
    f"(Tensor dy, {_ENDS}, {_GRAPH}, {_OPTIONS}, Tensor y, Tensor lse, Tensor positive, bool to_bias, bool shared)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
    _attend_gradient,
    _attend_gradient_shape,
)
attend = Operator(
    "attend_edges",
    f"({_ENDS}, {_GRAPH}, {_OPTIONS}) -> (Tensor, Tensor, Tensor)",
    _attend,
    _attend_shape,
    _attend_save,
    _attend_backward,
)


# Sparse products: x [B, J, H, C], weight [B or 1, E, 1 or H]; a structure is (offsets, index, edge)


def _product_call(x: Tensor, weight: Tensor | None, graph: Any, reduce: int = 0) -> Any:
    call = library.Product()  # type: ignore[union-attr]
    call.threads, call.reduce, call.graph = threads(), reduce, graph
    call.batch, _, call.heads, call.channels = x.shape
    call.x = matrix(x)
    if weight is not None:
        call.weight, call.weight_heads = weight.data_ptr(), weight.shape[2]
        call.weight_batch_stride = weight.stride(0) if weight.shape[0] > 1 else 0
    return call


def _product(
    x: Tensor, weight: Tensor | None, structure: Sequence[Tensor], reverse: Sequence[Tensor], reduce: int
) -> Tensor:
    y = product_shape(x, weight, structure, reverse, reduce)
    call = _product_call(x, weight, adjacency(*structure), reduce)
    call.y = matrix(y)
    library.product(DTYPES[x.dtype], call)  # type: ignore[union-attr]
    return y


def _product_gradient(dy: Tensor, x: Tensor, structure: Sequence[Tensor], weight_heads: int) -> Tensor:
    out = product_gradient_shape(dy, x, structure, weight_heads)
    call = _product_call(x, None, adjacency(*structure))
    call.g, call.out, call.weight_heads = matrix(dy), out.data_ptr(), weight_heads
    library.product_gradient(DTYPES[x.dtype], call)  # type: ignore[union-attr]
    return out


def pair_gradient(graph: Graph, dy: Tensor, x: Tensor) -> Tensor:
    """The gradient to weights [E, C] that serve each edge in both directions: dy_i ∘ x_j + dy_j ∘ x_i [E, C]."""
    ones = x.reshape(1, *x.shape, 1)
    call = _product_call(ones, None, adjacency(*structure_of(graph)))
    out = x.new_empty(graph.num_edges, x.shape[-1])
    call.g, call.out, call.weight_heads, call.both = matrix(dy.reshape(ones.shape)), out.data_ptr(), x.shape[-1], True
    library.product_gradient(DTYPES[x.dtype], call)  # type: ignore[union-attr]
    return out


def _extreme_share(dy: Tensor, x: Tensor, weight: Tensor | None, structure: Sequence[Tensor], y: Tensor) -> Tensor:
    share = torch.empty_like(dy, memory_format=torch.contiguous_format)
    call = _product_call(x, weight, adjacency(*structure))
    call.y, call.g, call.out = matrix(y), matrix(dy), share.data_ptr()
    library.extreme_share(DTYPES[x.dtype], call)  # type: ignore[union-attr]
    return share


def _extreme_gradient(
    share: Tensor, x: Tensor, weight: Tensor | None, structure: Sequence[Tensor], y: Tensor, reverse: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    dx, dweight = extreme_gradient_shape(share, x, weight, structure, y, reverse)
    call = _product_call(x, weight, adjacency(*structure))
    call.y, call.g = matrix(y), matrix(share)
    if weight is not None:
        call.out = dweight.data_ptr()
        library.extreme_weight_gradient(DTYPES[x.dtype], call)  # type: ignore[union-attr]
    call.graph, call.out = adjacency(*reverse), dx.data_ptr()
    library.extreme_gradient(DTYPES[x.dtype], call)  # type: ignore[union-attr]
    return dx, dweight


PRODUCTS = Products("", _product, _product_gradient, _extreme_share, _extreme_gradient)
product = PRODUCTS.product
