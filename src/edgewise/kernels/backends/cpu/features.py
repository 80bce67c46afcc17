"""The native kernels of features of edges as operators: products with vectors of receivers.

u [B, I, H, C] belongs to receivers, w [B, E, H] and x [B or 1, E, H or 1, C] to edges; where x has one head, all share
it. Edges are in their graph's order, receiver by receiver: offsets [I + 1]. All in float32 or float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from edgewise.graphs.forms import receivers_of
from edgewise.kernels.backends.cpu.edges import PRODUCTS
from edgewise.kernels.operator.layout import (
    check_offsets,
    check_rows,
    check_transpose,
    dtype_of,
    expect,
    rows_contiguous,
)
from edgewise.kernels.operator.operator import DTYPES, Arguments, Gradients, Operator, unless_batched
from edgewise.kernels.operator.products import SUM, Product, ProductGradient
from edgewise.native import library, threads

WIDE = (torch.float32, torch.float64)


def wide_dtype(name: str, x: Tensor) -> torch.dtype:
    """ShapeError for another dtype than float32 and float64."""
    expect(dtype_of(name, x) in WIDE, f"{name} is {x.dtype}, but must be float32 or float64")
    return x.dtype


# Vectors of edges and of their receivers


@dataclass(slots=True)
class Dots(Arguments):
    """u_i · x_ij [B, E, H]."""

    u: Tensor
    x: Tensor
    offsets: Tensor

    differentiable: ClassVar[tuple[str, ...]] = ("u", "x")

    def empty(self) -> Tensor:
        return self.u.new_empty(self.u.shape[0], self.x.shape[1], self.u.shape[2])

    def check(self) -> None:
        kind = wide_dtype("u", self.u)
        check_rows("u", self.u, (None, None, None, None), kind, strided=True)
        batch, receivers, heads, channels = self.u.shape
        expect(check_offsets(self.offsets) == receivers, f"offsets must be those of {receivers} receivers")
        _check_vectors(self.x, batch, int(self.offsets[-1]), heads, channels, kind)

    def unread(self) -> tuple[str, ...]:
        return ("results",)


@dataclass(slots=True)
class Sums(Arguments):
    """Σ_j w_ij x_ij [B, I, H, C]."""

    w: Tensor
    x: Tensor
    offsets: Tensor

    differentiable: ClassVar[tuple[str, ...]] = ("w", "x")

    def empty(self) -> Tensor:
        return self.w.new_empty(self.w.shape[0], self.offsets.shape[0] - 1, self.w.shape[2], self.x.shape[3])

    def check(self) -> None:
        kind = wide_dtype("w", self.w)
        check_rows("w", self.w, (None, None, None), kind, strided=True)
        batch, edges, heads = self.w.shape
        check_ends(self.offsets, edges)
        _check_vectors(self.x, batch, edges, heads, None, kind)

    def unread(self) -> tuple[str, ...]:
        return ("results",)


@dataclass(slots=True)
class Spread(Arguments):
    """w_ij u_i [B, E, H, C], or with one vector for all heads their sum [B, E, 1, C]."""

    w: Tensor
    u: Tensor
    offsets: Tensor
    vectors: int

    differentiable: ClassVar[tuple[str, ...]] = ("w", "u")

    def empty(self) -> Tensor:
        return self.w.new_empty(*self.w.shape[:2], self.vectors, self.u.shape[3])

    def check(self) -> None:
        kind = wide_dtype("w", self.w)
        check_rows("w", self.w, (None, None, None), kind, strided=True)
        batch, edges, heads = self.w.shape
        check_ends(self.offsets, edges)
        check_rows("u", self.u, (batch, self.offsets.shape[0] - 1, heads, None), kind, strided=True)
        expect(self.u.shape[3] > 0, "u has no channels")
        expect(self.vectors in (1, heads), f"vectors is {self.vectors}, but must be 1 or {heads}")

    def unread(self) -> tuple[str, ...]:
        return ("results",)


def _check_vectors(x: Tensor, batch: int, edges: int, heads: int, channels: int | None, kind: torch.dtype) -> None:
    one, shared = x is not None and x.shape[:1] == (1,), x is not None and x.shape[2:3] == (1,)
    check_rows("x", x, (1 if one else batch, edges, 1 if shared else heads, channels), kind, strided=True)
    expect(x.numel() > 0, "x has no channels")


def check_ends(offsets: Tensor, edges: int) -> None:
    """ShapeError for offsets that do not end with the number of edges."""
    check_offsets(offsets)
    expect(int(offsets[-1]) == edges, f"offsets must ascend from 0 to the number of edges, {edges}")


def _vectors(heads: int, vectors: int, channels: int, batch: int, out: Tensor) -> Any:
    call = library.Vectors()
    call.threads, call.batch, call.heads, call.vectors, call.channels = threads(), batch, heads, vectors, channels
    call.out = out.data_ptr()
    return call


def along(offsets: Tensor, edges: int) -> Any:
    """A graph as kernels read it that look up no senders."""
    return library.Adjacency(offsets.shape[0] - 1, edges, offsets.data_ptr(), 0, 0)


def address(x: Tensor | None) -> int:
    """Where a tensor lies, 0 for none."""
    return 0 if x is None else x.data_ptr()


def start(x: Tensor | None) -> tuple[Tensor | None, int]:
    """Contiguous vectors, and how far their batches are apart."""
    if x is None:
        return None, 0
    x = x.contiguous()
    return x, x.stride(0) if x.shape[0] > 1 else 0


def _dots(own: Dots) -> Tensor:
    out, u, (x, apart) = own.empty(), own.u.contiguous(), start(own.x)
    assert x is not None
    batch, _, heads, channels = u.shape
    call = _vectors(heads, x.shape[2], channels, batch, out)
    call.graph, call.u, call.x, call.x_batch_stride = along(own.offsets, x.shape[1]), u.data_ptr(), x.data_ptr(), apart
    call.x_row_stride = x.stride(1)
    library.edge_dots(DTYPES[out.dtype], call)
    return out


def _sums(own: Sums) -> Tensor:
    out, w, (x, apart) = own.empty(), own.w.contiguous(), start(own.x)
    assert x is not None
    call = _vectors(w.shape[2], x.shape[2], x.shape[3], w.shape[0], out)
    call.graph, call.w, call.x, call.x_batch_stride = along(own.offsets, x.shape[1]), w.data_ptr(), x.data_ptr(), apart
    call.x_row_stride = x.stride(1)
    library.edge_sums(DTYPES[out.dtype], call)
    return out


def _spread(own: Spread) -> Tensor:
    out, w, u = own.empty(), own.w.contiguous(), own.u.contiguous()
    call = _vectors(w.shape[2], own.vectors, u.shape[3], w.shape[0], out)
    call.graph, call.w, call.u = along(own.offsets, w.shape[1]), w.data_ptr(), u.data_ptr()
    library.edge_spread(DTYPES[out.dtype], call)
    return out


# Each gradient is one of the three.


def _dots_gradients(own: Dots, _: Any, ds: Tensor, needed: Sequence[bool]) -> Gradients:
    du = sums(Sums(ds, own.x, own.offsets)) if needed[0] else None
    return du, spread(Spread(ds, own.u, own.offsets, own.x.shape[2])) if needed[1] else None


def _sums_gradients(own: Sums, _: Any, dz: Tensor, needed: Sequence[bool]) -> Gradients:
    dw = dots(Dots(dz, own.x, own.offsets)) if needed[0] else None
    return dw, spread(Spread(own.w, dz, own.offsets, own.x.shape[2])) if needed[1] else None


def _spread_gradients(own: Spread, _: Any, dx: Tensor, needed: Sequence[bool]) -> Gradients:
    dw = dots(Dots(own.u, dx, own.offsets)) if needed[0] else None
    return dw, sums(Sums(own.w, dx, own.offsets)) if needed[1] else None


# And by differentiable operations


def _composed_dots(own: Dots) -> Tensor:
    return (_on_edges(own.u, own.offsets, own.x.shape[1]) * own.x).sum(-1)


def _composed_sums(own: Sums) -> Tensor:
    m, count = own.w.unsqueeze(-1) * own.x, own.offsets.shape[0] - 1
    return m.new_zeros(len(m), count, *m.shape[2:]).index_add(1, receivers_of(own.offsets, m.shape[1]), m)


def _composed_spread(own: Spread) -> Tensor:
    m = own.w.unsqueeze(-1) * _on_edges(own.u, own.offsets, own.w.shape[1])
    return m if own.vectors == m.shape[2] else m.sum(2, keepdim=True)


def _on_edges(u: Tensor, offsets: Tensor, edges: int) -> Tensor:
    return u.index_select(1, receivers_of(offsets, edges))


dots: Operator[Dots, Tensor] = Operator(
    "edge_dots", Dots, _dots, unless_batched(_dots_gradients, _composed_dots), on_cpu=True
)
sums: Operator[Sums, Tensor] = Operator(
    "edge_sums", Sums, _sums, unless_batched(_sums_gradients, _composed_sums), on_cpu=True
)
spread: Operator[Spread, Tensor] = Operator(
    "edge_spread", Spread, _spread, unless_batched(_spread_gradients, _composed_spread), on_cpu=True
)


@dataclass(slots=True)
class Pairs(Arguments):
    """q_i · k_j [B, E, H] of queries [B, I, H, C] and keys [B, J, H, C]; reverse = the structure of the transpose."""

    q: Tensor
    k: Tensor
    structure: Sequence[Tensor]
    reverse: Sequence[Tensor]

    differentiable: ClassVar[tuple[str, ...]] = ("q", "k")

    def empty(self) -> Tensor:
        return self.q.new_empty(self.q.shape[0], self.structure[1].shape[0], self.q.shape[2])

    def check(self) -> None:
        wide_dtype("q", self.q)
        check_rows("q", self.q, (None,) * 4, self.q.dtype, strided=True)
        check_rows("k", self.k, (None,) * 4, self.q.dtype, strided=True)
        self.weights().check()
        if self.reverse:
            check_transpose(self.reverse, self.q.shape[1], (self.k.shape[1], self.structure[1].shape[0]), (3, 4))

    def weights(self) -> ProductGradient:
        """They are the gradients to the weights of a sum of keys."""
        return ProductGradient(rows_contiguous(self.q), rows_contiguous(self.k), self.structure, self.q.shape[2])

    def unread(self) -> tuple[str, ...]:
        return ("results",)


def _pairs_gradients(own: Pairs, _: Any, ds: Tensor, needed: Sequence[bool]) -> Gradients:
    q, k, of = own.q, own.k, PRODUCTS.product
    dq = of(Product(rows_contiguous(k), ds, own.structure, own.reverse, SUM)) if needed[0] else None
    return dq, of(Product(q.contiguous(), ds, own.reverse, own.structure, SUM)) if needed[1] else None


def _composed_pairs(own: Pairs) -> Tensor:
    offsets, index = own.structure[:2]
    return (_on_edges(own.q, offsets, index.shape[0]) * own.k.index_select(1, index)).sum(-1)


pairs = Operator(
    "edge_pairs",
    Pairs,
    lambda own: PRODUCTS.product_gradient.compute(own.weights()),
    unless_batched(_pairs_gradients, _composed_pairs),
    on_cpu=True,
)
