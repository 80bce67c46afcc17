"""The native kernels of activations on edges: of what both ends of an edge and a linear map of its features add up to.

z_ij = a_i + b_j + W e_ij, of a [B, I, H, C] or one for all receivers [1, 1, H, C], b [B, J, H, C], e [B or 1, E, R] and
W [H C, R], or of an e of H C numbers without W. Edges are in their graph's order; reverse is the structure of the
transpose. All in float32 or float64.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.graphs.forms import receivers_of
from edgewise.kernels.backends.cpu.edges import adjacency, matrix
from edgewise.kernels.backends.cpu.features import WIDE
from edgewise.kernels.messages import Activation, shifted_softplus
from edgewise.kernels.operator.layout import (
    check_rows,
    check_structure,
    check_transpose,
    dtype_of,
    expect,
    rows_contiguous,
)
from edgewise.kernels.operator.operator import DTYPES, Arguments, Operator
from edgewise.native import library, threads

ACTIVATIONS: dict[Activation, int] = {  # their numbers in the kernel
    functional.relu: 0, functional.silu: 1, shifted_softplus: 2, torch.sigmoid: 3, torch.relu: 0, functional.sigmoid: 3,
}  # fmt: skip


@dataclass(slots=True)
class Terms(Arguments):
    """z_ij."""

    a: Tensor | None
    b: Tensor
    e: Tensor | None
    weight: Tensor | None
    structure: Sequence[Tensor]
    reverse: Sequence[Tensor]

    def check(self) -> None:
        kind = dtype_of("b", self.b)
        expect(kind in WIDE, f"b is {kind}, but must be float32 or float64")
        check_rows("b", self.b, (None, None, None, None), kind, strided=True)
        batch, senders, heads, channels = self.b.shape
        receivers, edges = check_structure("structure", self.structure, senders, (2, 3))
        if self.a is not None:
            rows = 1 if self.a.shape[1:2] == (1,) and batch == 1 else receivers
            check_rows("a", self.a, (batch, rows, heads, channels), kind, strided=True)
        if self.e is not None:
            inputs = heads * channels if self.weight is None else None
            check_rows("e", self.e, (1 if self.e.shape[:1] == (1,) else batch, edges, inputs), kind, strided=True)
            expect(self.e.shape[2] > 0, "e has no channels")
        if self.weight is not None:
            expect(self.e is not None, "a weight needs an e")
            assert self.e is not None
            check_rows("weight", self.weight, (heads * channels, self.e.shape[2]), kind, strided=True)
        if self.reverse:
            check_transpose(self.reverse, receivers, (senders, edges), (4,))

    def unread(self) -> tuple[str, ...]:
        return ("first result",)


def _arguments(call: Any, own: Terms) -> list[Tensor | None]:
    """Fill in the call as the kernels read it; the tensors that must live as long."""
    a, b = (None if t is None else rows_contiguous(t) for t in (own.a, own.b))
    e, weight = (None if t is None else t.contiguous() for t in (own.e, own.weight))
    assert b is not None
    call.threads, call.batch, call.width = threads(), b.shape[0], b.shape[2] * b.shape[3]
    call.graph, call.b = adjacency(*own.structure), matrix(b)
    if len(own.reverse):
        call.transpose = adjacency(*own.reverse[:3])
    if a is not None:
        call.one = one = a.shape[1] == 1 and own.structure[0].shape[0] > 2
        call.a = library.Matrix(a.data_ptr(), 0, 0) if one else matrix(a)
    if e is not None:
        call.e, call.e_batch_stride = e.data_ptr(), e.stride(0) if e.shape[0] > 1 else 0
    if weight is not None:
        call.weight, call.inputs = weight.data_ptr(), weight.shape[1]
    return [a, b, e, weight]


def _z(own: Terms) -> tuple[Tensor, Tensor, Tensor]:
    """z_ij [B, E, H, C] by differentiable operations; the receivers and senders of all edges."""
    offsets, senders = own.structure[0], own.structure[1].long()
    receivers = receivers_of(offsets, senders.shape[0])
    z = own.b.index_select(1, senders)
    if own.a is not None:
        z = z + (own.a if own.a.shape[1] == 1 else own.a.index_select(1, receivers))
    if own.e is not None:
        z = z + (own.e if own.weight is None else own.e @ own.weight.t()).unflatten(-1, z.shape[2:])
    return z, receivers, senders


def _empty(own: Terms, needed: Sequence[bool], last: Tensor | None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
    """Room for the gradients that are needed: to a, b, e (of each member of a batch), the weight and `last`."""
    e = None if own.e is None else own.e[:1].expand(own.b.shape[0], *own.e.shape[1:])
    fields = zip((own.a, own.b, e, own.weight, last), needed, strict=True)
    a, b, e, weight, last = (
        own.b.new_empty(0) if field is None or not need else field.new_empty(field.shape) for field, need in fields
    )
    return a, b, e, weight, last


def _signs(own: Terms) -> Tensor:
    """A bit for each number z."""
    batch, _, heads, channels = own.b.shape
    return own.b.new_empty(batch, own.structure[1].shape[0], -(-heads * channels // 64), dtype=torch.int64)


def _fill(call: Any, names: Sequence[str], results: Sequence[Tensor]) -> None:
    for name, result in zip(names, results, strict=True):
        setattr(call, name, result.data_ptr() if result.numel() else 0)


# Sums of activations


@dataclass(slots=True)
class Activations(Terms):
    """Σ_j σ(z_ij), and with x [B, J, H, C] also Σ_j σ(z_ij) ∘ x_j: [1 or 2, B, I, H, C]. kind = the number of σ.

    The second result are the signs of z, in whole numbers, where a gradient follows from them: of a sum of ReLUs alone.
    """

    x: Tensor | None
    kind: int

    differentiable: ClassVar[tuple[str, ...]] = ("a", "b", "e", "weight", "x")

    def empty(self) -> tuple[Tensor, Tensor]:
        batch, _, *rest = self.b.shape
        by_signs = self.kind == ACTIVATIONS[functional.relu] and self.x is None and len(self.reverse) > 0
        sums = self.b.new_empty(1 if self.x is None else 2, batch, self.structure[0].shape[0] - 1, *rest)
        return sums, _signs(self) if by_signs else self.b.new_empty(0, 0, 0, dtype=torch.int64)

    def check(self) -> None:
        Terms.check(self)
        expect(0 <= self.kind <= 3, f"kind is {self.kind}, but must be 0, 1, 2 or 3")
        if self.x is not None:
            check_rows("x", self.x, tuple(self.b.shape), self.b.dtype, strided=True)


@dataclass(slots=True)
class ActivationsGradient(Activations):
    """Those of the call, its results, the gradient to the sums, and which of its differentiable fields need one."""

    sums: Tensor | None
    signs: Tensor
    dy: Tensor
    needed: Sequence[bool]

    def check(self) -> None:
        Activations.check(self)
        sums, signs = Activations.empty(self)
        check_rows("dy", self.dy, tuple(sums.shape), self.b.dtype, strided=True)
        check_rows("signs", self.signs, tuple(signs.shape), torch.int64)
        expect(len(self.needed) == 5, f"needed has {len(self.needed)} values, but must have 5")
        expect(len(self.reverse) == 4, "a gradient needs the structure of the transpose")

    def empty(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # type: ignore[override]
        """To a, b, e [B, E, R], the weight and x; empty where none is needed."""
        return _empty(self, self.needed, self.x)


def _call(own: Activations, prefix: str, result: Tensor, signs: Tensor) -> tuple[Any, list[Tensor | None]]:
    call = library.Activations()
    held, x = _arguments(call, own), None if own.x is None else rows_contiguous(own.x)
    call.kind = own.kind
    setattr(call, f"{prefix}t", result.data_ptr())
    call.signs = signs.data_ptr() if signs.numel() else 0
    if x is not None:
        call.x = matrix(x)
        setattr(call, f"{prefix}y", result[1].data_ptr())
    return call, [*held, x]


def _activations(own: Activations) -> tuple[Tensor, Tensor]:
    sums, signs = results = own.empty()
    call, held = _call(own, "", sums, signs)
    library.edge_activations(DTYPES[sums.dtype], call)
    del held
    return results


def _activations_gradient(own: ActivationsGradient) -> tuple[Tensor, ...]:
    results, dy = own.empty(), own.dy.contiguous()
    call, held = _call(own, "d", dy, own.signs)
    _fill(call, ("da", "db", "de", "dweight", "dx"), results)
    library.edge_activations_gradient(DTYPES[dy.dtype], call)
    del held
    return results


def _composed_sums(own: Activations) -> Tensor:
    z, receivers, senders = _z(own)
    g = next(activation for activation, kind in ACTIVATIONS.items() if kind == own.kind)(z)
    zeros = g.new_zeros(g.shape[0], own.structure[0].shape[0] - 1, *g.shape[2:])
    summed = [g] if own.x is None else [g, g * own.x.index_select(1, senders)]
    return torch.stack([zeros.index_add(1, receivers, m) for m in summed])


activations_gradient = Operator("edge_activations_gradient", ActivationsGradient, _activations_gradient, on_cpu=True)
activations = Operator("edge_activations", Activations, _activations, activations_gradient, _composed_sums, on_cpu=True)


# Scores


@dataclass(slots=True)
class Scores(Terms):
    """r · LeakyReLU(z_ij) of every head [B, E, H] for a readout r [H, C]; and the signs of z, in whole numbers."""

    readout: Tensor
    slope: float

    differentiable: ClassVar[tuple[str, ...]] = ("a", "b", "e", "weight", "readout")

    def empty(self) -> tuple[Tensor, Tensor]:
        return self.b.new_empty(self.b.shape[0], self.structure[1].shape[0], self.b.shape[2]), _signs(self)

    def check(self) -> None:
        Terms.check(self)
        whole = self.a is not None and self.a.shape[1] == len(self.structure[0]) - 1
        expect(whole, "scores need both ends of all edges")
        check_rows("readout", self.readout, tuple(self.b.shape[2:]), self.b.dtype, strided=True)


@dataclass(slots=True)
class ScoresGradient(Scores):
    """Those of the call, its results, the gradient to the scores, and which of its differentiable fields need one."""

    s: Tensor | None
    signs: Tensor
    ds: Tensor
    needed: Sequence[bool]

    def check(self) -> None:
        Scores.check(self)
        s, signs = Scores.empty(self)
        check_rows("ds", self.ds, tuple(s.shape), self.b.dtype, strided=True)
        check_rows("signs", self.signs, tuple(signs.shape), torch.int64)
        expect(len(self.needed) == 5, f"needed has {len(self.needed)} values, but must have 5")
        expect(len(self.reverse) == 4, "a gradient needs the structure of the transpose")

    def empty(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # type: ignore[override]
        """To a, b, e [B, E, R], the weight and the readout; that to e empty where none is needed."""
        return _empty(self, (True, True, self.needed[2], True, True), self.readout)


def _scores(own: Scores) -> tuple[Tensor, Tensor]:
    s, signs = results = own.empty()
    call, held = _scores_call(own, signs)
    call.s = s.data_ptr()
    library.edge_scores(DTYPES[s.dtype], call)
    del held
    return results


def _scores_call(own: Scores, signs: Tensor) -> tuple[Any, list[Tensor | None]]:
    call, readout = library.Scores(), own.readout.contiguous()
    held = [*_arguments(call, own), readout]
    call.heads, call.slope, call.readout, call.signs = readout.shape[0], own.slope, readout.data_ptr(), signs.data_ptr()
    return call, held


def _scores_gradient(own: ScoresGradient) -> tuple[Tensor, ...]:
    results, ds = own.empty(), own.ds.contiguous()
    call, held = _scores_call(own, own.signs)
    call.ds = ds.data_ptr()
    _fill(call, ("da", "db", "de", "dweight", "dreadout"), results)
    library.edge_scores_gradient(DTYPES[ds.dtype], call)
    del held
    return results


def _composed_scores(own: Scores) -> Tensor:
    z, _, _ = _z(own)
    return (functional.leaky_relu(z, own.slope) * own.readout).sum(-1)


scores_gradient = Operator("edge_scores_gradient", ScoresGradient, _scores_gradient, on_cpu=True)
scores = Operator("edge_scores", Scores, _scores, scores_gradient, _composed_scores, on_cpu=True)
