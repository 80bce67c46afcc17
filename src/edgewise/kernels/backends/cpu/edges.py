"""The native kernels on edges as operators: fused attention, and sparse products with their gradients."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import Graph, checks
from edgewise.graphs.derived import cached
from edgewise.graphs.forms import compact_edges, transposed_edges
from edgewise.kernels.operator.attention import ADDITIVE, Attention, AttentionGradient, composed
from edgewise.kernels.operator.layout import empty_like, expect, rows_contiguous, wide
from edgewise.kernels.operator.masked_rows import are_far, lifted, times_counted
from edgewise.kernels.operator.operator import DTYPES, Operator
from edgewise.kernels.operator.products import ExtremeGradient, ExtremeShare, Product, ProductGradient, Products
from edgewise.native import library, threads

MOST = 2**31 - 1  # nodes and edges are numbered in 32 bits

Reverse = tuple[Tensor, Tensor, Tensor, Tensor]  # the same of the transpose; its edges' numbers here; and the inverse


@cached
def structure_of(graph: Graph) -> tuple[Tensor, Tensor]:
    """Offsets and senders as the kernels read them, which follow them unchecked."""
    if graph.is_mapped:
        checks.stored(graph)
    return compact_edges(graph)


@cached
def reverse_of(graph: Graph) -> Reverse:
    """The transpose as the kernels read it."""
    offsets, index, order = product_reverse_of(graph)
    return offsets, index, order, torch.empty_like(order).scatter_(0, order.long(), torch.arange(len(order)).int())


@cached
def product_structure_of(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """The graph as products read it: offsets, senders, and no numbers of edges other than their own."""
    return *structure_of(graph), torch.empty(0, dtype=torch.int32)


@cached
def product_reverse_of(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """The transpose as products read it."""
    shape = graph.num_receivers, graph.num_senders
    offsets, receivers, order = transposed_edges(graph.senders, graph.receivers, shape)
    return offsets, receivers.to(torch.int32), order.to(torch.int32)


def matrix(x: Tensor) -> Any:
    """[B, N, ...] with rows that are contiguous, as the kernels read it."""
    between = x.stride()
    return library.Matrix(x.data_ptr(), between[0], between[1])


def adjacency(offsets: Tensor, index: Tensor, edge: Tensor | None = None) -> Any:
    """A graph as the kernels read it; edge e has number edge[e], or e where edge is empty."""
    number = 0 if edge is None or not edge.numel() else edge.data_ptr()
    return library.Adjacency(offsets.numel() - 1, index.numel(), offsets.data_ptr(), index.data_ptr(), number)


class EdgesAttention(Attention):
    """With biases for each head, and without keys and values of edges."""

    __slots__ = ()
    differentiable = ("q", "k", "v", "a", "bias")

    def check(self) -> None:
        _check_vectors(self)
        Attention.check(self)

    def empty(self) -> tuple[Tensor, Tensor, Tensor]:
        return _empty(self)


class EdgesAttentionGradient(AttentionGradient):
    __slots__ = ()
    differentiable = EdgesAttention.differentiable

    def check(self) -> None:
        _check_vectors(self)
        AttentionGradient.check(self)

    def empty(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """To q, k, v, a and the bias; where the keys are the values, both parts in that to v."""
        v, a = self.v, self.a
        dtype, dbias = wide(v.dtype), None
        if self.bias is not None and self.needed[4]:
            dbias = v.new_empty(v.shape[0], self.edges, v.shape[2], dtype=dtype)
        return (
            v.new_empty(0) if self.q is None else empty_like(self.q),
            v.new_empty(0) if self.k is None else empty_like(self.k),
            empty_like(v),
            v.new_empty(0, dtype=dtype) if a is None else v.new_empty(a.shape, dtype=dtype),
            v.new_empty(0, dtype=dtype) if dbias is None else dbias,
        )


def _check_vectors(own: Attention) -> None:
    expect(own.keys is None and own.values is None, "these kernels read no keys and values of edges")


def work(structure: Sequence[Tensor], x: Tensor) -> int:
    """How many numbers of x [B, J, H, C] all edges read."""
    return structure[1].numel() * (x.numel() // max(1, x.shape[1]))


def _attention(own: Attention) -> Any:
    """The call as both kernels read it."""
    call, v = library.Attention(), own.v
    call.threads = threads(2 * work(own.structure, v))
    call.score, call.scale, call.slope = own.score, own.scale, own.slope
    call.batch, call.senders, call.heads, call.values = v.shape
    call.graph = adjacency(*own.structure)
    call.v = values = matrix(v)
    if own.q is not None:
        call.channels, call.q, call.k = own.q.shape[3], matrix(own.q), values if own.k is None else matrix(own.k)
    if own.a is not None:
        call.a = own.a.data_ptr()
    if own.bias is not None:
        call.bias, call.bias_batch_stride = own.bias.data_ptr(), own.bias.stride(0) if own.bias.shape[0] > 1 else 0
    if own.dropout > 0:
        call.dropout, call.seed = own.dropout, int(own.seed)
    return call


def _empty(own: Attention) -> tuple[Tensor, Tensor, Tensor]:
    """y [B, I, H, D]; log Σ_j exp s_ij [B, I, H]; and for additive scores with a gradient their positive parts."""
    v, receivers = own.v, own.receivers
    batch, _, heads, values = v.shape
    parts = (batch, receivers, heads * (values + 1)) if own.score == ADDITIVE and len(own.reverse) else (0,)
    y, dtype = v.new_empty(batch, receivers, heads, values), wide(v.dtype)
    return y, v.new_empty(batch, receivers, heads, dtype=dtype), v.new_empty(parts, dtype=dtype)


def _attend(own: Attention) -> tuple[Tensor, Tensor, Tensor]:
    y, lse, positive = results = _empty(own)
    call = _attention(own)
    call.y, call.lse = matrix(y), lse.data_ptr()
    if positive.numel():
        call.positive = positive.data_ptr()
    library.attend(DTYPES[y.dtype], call)
    return results


def _attend_gradient(own: EdgesAttentionGradient) -> tuple[Tensor, ...]:
    own = own if own.bias is None or not are_far(own.lse).any() else _counted_once(own, own.bias)
    dq, dk, dv, da, dbias = results = own.empty()
    call, dy, rest = _attention(own), rows_contiguous(own.dy), own.rest
    offsets, index, edge, places = own.reverse
    call.transpose, call.transposed = adjacency(offsets, index, edge), places.data_ptr()
    call.dy, call.y, call.dv, call.lse = matrix(dy), matrix(own.y), matrix(dv), own.lse.data_ptr()
    if own.q is not None:
        call.dq, call.dk = matrix(dq), matrix(dv if own.k is None else dk)
    if rest.numel():
        call.positive = rest.data_ptr()
    if own.a is not None:
        call.da = da.data_ptr()
    if dbias.numel():
        call.dbias = dbias.data_ptr()
    library.attend_gradient(DTYPES[dv.dtype], call)
    return results


def _counted_once(own: EdgesAttentionGradient, bias: Tensor) -> EdgesAttentionGradient:
    """The same gradient where some rows' biases are far below 0."""
    rows = own.structure[0][:-1], own.structure[0].diff()
    near = lifted(bias, *rows)
    if near is not bias:
        own = replace(own, bias=near)
        own.y, own.lse, own.rest = _attend(own)
    times, rest = times_counted(own.lse, near, *rows), own.rest
    of_rest = torch.cat([times.repeat_interleave(own.v.shape[3], 2), times], 2)
    dy = own.dy / times.unsqueeze(-1).to(own.dy.dtype)
    return replace(own, dy=dy, rest=rest * of_rest if rest.numel() else rest)


attend_gradient = Operator("attend_edges_gradient", EdgesAttentionGradient, _attend_gradient, on_cpu=True)
attend = Operator("attend_edges", EdgesAttention, _attend, attend_gradient, composed, on_cpu=True)


# Sparse products; a structure is (offsets, index, edge)


def _product_call(x: Tensor, weight: Tensor | None, structure: Sequence[Tensor], reduce: int = 0) -> Any:
    call = library.Product()
    call.threads, call.reduce, call.graph = threads(work(structure, x)), reduce, adjacency(*structure)
    call.batch, call.senders, call.heads, call.channels = x.shape
    call.x = matrix(x)
    if weight is not None:
        call.weight, call.weight_heads = weight.data_ptr(), weight.shape[2]
        call.weight_batch_stride = weight.stride(0) if weight.shape[0] > 1 else 0
    return call


def _product(own: Product) -> Tensor:
    y = own.empty()
    call = _product_call(own.x, own.weight, own.structure, own.reduce)
    call.y = matrix(y)
    library.product(DTYPES[y.dtype], call)
    return y


def _product_gradient(own: ProductGradient) -> Tensor:
    dweight = own.empty()
    call = _product_call(own.x, None, own.structure)
    call.g, call.out, call.weight_heads = matrix(own.dy), dweight.data_ptr(), own.weight_heads
    library.product_gradient(DTYPES[dweight.dtype], call)
    return dweight


def _extreme_share(own: ExtremeShare) -> Tensor:
    share = own.empty()
    call = _product_call(own.x, own.weight, own.structure)
    call.y, call.g, call.out = matrix(own.y), matrix(own.dy), share.data_ptr()
    library.extreme_share(DTYPES[share.dtype], call)
    return share


def _extreme_gradient(own: ExtremeGradient) -> tuple[Tensor, Tensor]:
    dx, dweight = own.empty()
    call = _product_call(own.x, own.weight, own.structure)
    call.y, call.g = matrix(own.y), matrix(own.share)
    of_x, of_weight = own.needed
    if own.weight is not None and of_weight:
        call.out = dweight.data_ptr()
        library.extreme_weight_gradient(DTYPES[dx.dtype], call)
    if of_x:
        call.graph, call.out = adjacency(*own.reverse), dx.data_ptr()
        library.extreme_gradient(DTYPES[dx.dtype], call)
    return dx, dweight


PRODUCTS = Products("", _product, _product_gradient, _extreme_share, _extreme_gradient, on_cpu=True)
product = PRODUCTS.product
