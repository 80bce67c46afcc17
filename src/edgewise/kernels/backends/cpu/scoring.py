"""The native kernels of attention's weights as operators: additive scores of both ends and the edge, and the softmax.

Scores and weights [B, E, H] lie in their graph's order of edges, receiver by receiver. All in float32 or float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.graphs.forms import receivers_of
from edgewise.kernels.backends.cpu.edges import PRODUCTS, adjacency
from edgewise.kernels.backends.cpu.features import address, along, check_ends, start, wide_dtype
from edgewise.kernels.operator.layout import check_rows, check_structure, check_transpose, empty_like, expect
from edgewise.kernels.operator.operator import DTYPES, Arguments, Operator, gradients, is_batched
from edgewise.kernels.operator.products import SUM, Product
from edgewise.native import library, threads

# The softmax


@dataclass(slots=True)
class Softmax(Arguments):
    """p = softmax of each receiver's s [B, E, H]; 0 where all of them are -inf."""

    s: Tensor
    offsets: Tensor

    differentiable: ClassVar[tuple[str, ...]] = ("s",)

    def empty(self) -> Tensor:
        return empty_like(self.s)

    def check(self) -> None:
        check_rows("s", self.s, (None, None, None), wide_dtype("s", self.s), strided=True)
        check_ends(self.offsets, self.s.shape[1])

    def unread(self) -> tuple[str, ...]:
        return ("s",)


@dataclass(slots=True)
class SoftmaxGradient(Arguments):
    """p_ij (dp_ij - Σ_j' p_ij' dp_ij') [B, E, H]."""

    p: Tensor
    dp: Tensor
    offsets: Tensor

    differentiable: ClassVar[tuple[str, ...]] = ("p", "dp")

    def empty(self) -> Tensor:
        return empty_like(self.p)

    def check(self) -> None:
        check_rows("p", self.p, (None, None, None), wide_dtype("p", self.p), strided=True)
        check_rows("dp", self.dp, tuple(self.p.shape), self.p.dtype, strided=True)
        check_ends(self.offsets, self.p.shape[1])


def _softmax(s: Tensor, offsets: Tensor, out: Tensor, dp: Tensor | None = None) -> Tensor:
    call, s = library.Softmax(), s.contiguous()
    dp = None if dp is None else dp.contiguous()
    call.threads, (call.batch, edges, call.heads) = threads(8 * s.numel()), s.shape  # an exponential for each
    call.graph, call.s, call.dp, call.out = along(offsets, edges), s.data_ptr(), address(dp), out.data_ptr()
    library.edge_softmax(DTYPES[s.dtype], call)
    return out


def _softmax_gradient(p: Tensor, dp: Tensor, offsets: Tensor) -> Tensor:
    """The same by differentiable operations."""
    receivers = receivers_of(offsets, p.shape[1])
    mean = p.new_zeros(p.shape[0], offsets.shape[0] - 1, p.shape[2]).index_add(1, receivers, p * dp)
    return p * (dp - mean.index_select(1, receivers))


def _softmax_second(own: SoftmaxGradient, _: Any, d: Tensor, __: Sequence[bool]) -> Sequence[Tensor | None]:
    with torch.enable_grad():
        return gradients(lambda p, dp: _softmax_gradient(p, dp, own.offsets), [own.p, own.dp], [d])


def _softmax_first(own: Softmax, results: Sequence[Tensor], dp: Tensor, _: Any) -> Sequence[Tensor]:
    (p,) = results
    if is_batched(dp):
        return [_softmax_gradient(p, dp, own.offsets)]
    return [softmax_gradient(SoftmaxGradient(p, dp, own.offsets))]


softmax_gradient = Operator(
    "edge_softmax_gradient",
    SoftmaxGradient,
    lambda own: _softmax(own.p, own.offsets, own.empty(), own.dp),
    _softmax_second,
    on_cpu=True,
)
softmax = Operator(
    "edge_softmax",
    Softmax,
    lambda own: _softmax(own.s, own.offsets, own.empty()),
    _softmax_first,
    on_cpu=True,
)


# Additive scores


@dataclass(slots=True)
class Additive(Arguments):
    """LeakyReLU(a_i + b_j + x_ij) [B, E, H] of a [B, I, H], b [B, J, H] and x [B or 1, E, H]."""

    a: Tensor
    b: Tensor
    x: Tensor | None
    structure: Sequence[Tensor]
    reverse: Sequence[Tensor]
    slope: float

    differentiable: ClassVar[tuple[str, ...]] = ("a", "b", "x")

    def empty(self) -> Tensor:
        return self.a.new_empty(self.a.shape[0], self.structure[1].shape[0], self.a.shape[2])

    def check(self) -> None:
        kind = wide_dtype("a", self.a)
        check_rows("a", self.a, (None, None, None), kind, strided=True)
        batch, receivers, heads = self.a.shape
        check_rows("b", self.b, (batch, None, heads), kind, strided=True)
        sizes = check_structure("structure", self.structure, self.b.shape[1], (3,))
        expect(sizes[0] == receivers, f"a has {receivers} receivers, and the structure {sizes[0]}")
        if self.x is not None:
            check_rows("x", self.x, (1 if self.x.shape[:1] == (1,) else batch, sizes[1], heads), kind, strided=True)
        if self.reverse:
            check_transpose(self.reverse, receivers, (self.b.shape[1], sizes[1]), (3, 4))

    def unread(self) -> tuple[str, ...]:
        return ("results",)


@dataclass(slots=True)
class AdditiveGradient(Additive):
    """To x [B, E, H], of which b's is a sum, and to a [B, I, H]."""

    ds: Tensor

    def empty(self) -> tuple[Tensor, Tensor]:  # type: ignore[override]
        return Additive.empty(self), empty_like(self.a)

    def check(self) -> None:
        Additive.check(self)
        check_rows("ds", self.ds, tuple(Additive.empty(self).shape), self.a.dtype, strided=True)


def _additive(own: Additive, out: Tensor, ds: Tensor | None = None, da: Tensor | None = None) -> None:
    call, a, b, (x, apart) = library.Ends(), own.a.contiguous(), own.b.contiguous(), start(own.x)
    ds = None if ds is None else ds.contiguous()
    call.threads, call.slope, (call.batch, _, call.heads), call.senders = threads(), own.slope, a.shape, b.shape[1]
    call.graph, call.a, call.b, call.x = adjacency(*own.structure), a.data_ptr(), b.data_ptr(), address(x)
    call.x_batch_stride, call.ds, call.out, call.da = apart, address(ds), out.data_ptr(), address(da)
    library.edge_ends(DTYPES[out.dtype], call)


def _additive_scores(own: Additive) -> Tensor:
    s = own.empty()
    _additive(own, s)
    return s


def _additive_gradient(own: AdditiveGradient) -> tuple[Tensor, Tensor]:
    dx, da = results = own.empty()
    if own.ds.numel():
        _additive(own, dx, own.ds, da)
    else:  # an address of nothing is none, and the kernel would take the call for one without a gradient
        da.zero_()
    return results


def _additive_gradients(own: Additive, _: Any, ds: Tensor, needed: Sequence[bool]) -> Sequence[Tensor | None]:
    dx, da = additive_gradient(AdditiveGradient(own.a, own.b, own.x, own.structure, own.reverse, own.slope, ds))
    if not needed[1]:
        return da, None, dx
    offsets, _, edge = own.reverse[:3]
    db = PRODUCTS.product(Product(dx.unsqueeze(-1), None, (offsets, edge, edge[:0]), (), SUM))
    return da, db.squeeze(-1), dx


def _composed_additive(own: Additive) -> Tensor:
    offsets, index = own.structure[0], own.structure[1].long()
    receivers = receivers_of(offsets, index.shape[0])
    z = own.a.index_select(1, receivers) + own.b.index_select(1, index)
    return functional.leaky_relu(z if own.x is None else z + own.x, own.slope)


additive_gradient = Operator("edge_additive_gradient", AdditiveGradient, _additive_gradient, on_cpu=True)
additive = Operator("edge_additive", Additive, _additive_scores, _additive_gradients, _composed_additive, on_cpu=True)
