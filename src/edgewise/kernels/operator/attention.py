"""Attention on edges as an operator over any family of kernels: its arguments, and those of its gradient.

q [B, I, H, C], k [B, J, H, C], v [B, J, H, D], a [H, C], bias [B or 1, E, H or 1], keys and values of edges
[B or 1, E, H, *]. A structure is a list of tensors: offsets [I + 1]; index [E], the sender of edge e; and whatever else
the kernels read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.kernels.call import Attend
from edgewise.kernels.operator.composed import attend
from edgewise.kernels.operator.dropout import check_dropout, drop, seed_for
from edgewise.kernels.operator.layout import (
    batched,
    check_edges,
    check_rows,
    check_structure,
    check_transpose,
    dtype_of,
    expect,
    flat,
    wide,
)  # fmt: skip
from edgewise.kernels.operator.operator import Arguments
from edgewise.kernels.scores import Additive, Dot, EdgeBias, EdgeVectors, GatedAdditive, Score, Uniform

DOT, ADDITIVE, GATED, NONE = range(4)
KINDS: dict[type[Score], int] = {Dot: DOT, Additive: ADDITIVE, GatedAdditive: GATED, Uniform: NONE}


@dataclass(slots=True)
class Attention(Arguments):
    """A call; k may be None beside a q: then the keys are the values. reverse = the structure of the transpose."""

    q: Tensor | None
    k: Tensor | None
    v: Tensor
    a: Tensor | None
    bias: Tensor | None
    keys: Tensor | None
    values: Tensor | None
    structure: Sequence[Tensor]
    reverse: Sequence[Tensor]
    score: int
    scale: float
    slope: float
    dropout: float
    seed: Tensor

    differentiable: ClassVar[tuple[str, ...]] = ("q", "k", "v", "a", "bias", "keys", "values")

    @property
    def receivers(self) -> int:
        return self.structure[0].shape[0] - 1

    @property
    def edges(self) -> int:
        return self.structure[1].shape[0]

    def check(self) -> None:
        kind, sums = dtype_of("v", self.v), wide(self.v.dtype)
        check_rows("v", self.v, (None, None, None, None), kind)
        batch, senders, heads, values = self.v.shape
        receivers, edges = check_structure("structure", self.structure, senders, (2, 3))
        expect(self.score in range(4), f"score is {self.score}, but must be 0, 1, 2 or 3")
        if self.score == NONE:
            expect(self.q is None and self.k is None, "where all scores are equal there is no q and no k")
        else:
            check_rows("q", self.q, (batch, receivers, heads, 1 if self.score == ADDITIVE else None), kind)
            assert self.q is not None
            channels = self.q.shape[3]
            expect(channels > 0, "q has no channels")
            if self.k is None:
                expect(channels == values, f"q has {channels} channels, but v, which is k too, has {values}")
            else:
                check_rows("k", self.k, (batch, senders, heads, channels), kind)
            if self.score == GATED:
                check_rows("a", self.a, (heads, channels), sums)
        if self.bias is not None:
            check_rows("bias", self.bias, (1 if self.bias.shape[:1] == (1,) else batch, edges, heads), sums)
        if self.reverse:
            _check_reverse(self.reverse, (receivers, senders, edges))
        check_dropout(self.dropout, self.seed)


@dataclass(slots=True)
class AttentionGradient(Attention):
    """Those of the call, its results, and which of its differentiable fields need a gradient."""

    y: Tensor
    lse: Tensor
    rest: Tensor
    dy: Tensor
    needed: Sequence[bool]

    def check(self) -> None:
        Attention.check(self)
        (batch, _, heads, values), kind, sums = self.v.shape, self.v.dtype, wide(self.v.dtype)
        expect(len(self.reverse) > 0, "a gradient needs the structure of the transpose: reverse is empty")
        check_rows("y", self.y, (batch, self.receivers, heads, values), kind)
        check_rows("dy", self.dy, (batch, self.receivers, heads, values), kind, strided=True)
        check_rows("lse", self.lse, (batch, self.receivers, heads), sums)
        parts = (batch, self.receivers, heads * (values + 1))
        check_rows("rest", self.rest, parts if self.score == ADDITIVE else (0,), sums)
        wanted = len(self.differentiable)
        expect(len(self.needed) == wanted, f"needed has {len(self.needed)} values, but must have {wanted}")


def _check_reverse(reverse: Sequence[Tensor], sizes: tuple[int, int, int]) -> None:
    """The transpose's structure, and of each of its edges its place there."""
    receivers, senders, edges = sizes
    check_transpose(reverse, receivers, (senders, edges), (4,))
    check_edges(edges, torch.tensor([0, edges]), reverse[3])


A = TypeVar("A", bound=Attention)


def attention_of(call: Attend, arguments: type[A], structure: Sequence[Tensor]) -> A:
    """A call with equal heads whose score is Dot, Additive, GatedAdditive or Uniform; without a reverse."""
    graph, score, v = call.graph, call.score, flat(call.v, 3)
    q = k = a = None
    if call.q is not None and call.k is not None:
        q, k = flat(call.q, 3), v if call.k is call.v else flat(call.k, 3)  # keys that are the values stay one tensor
    scale, slope = 1.0, 0.0
    if isinstance(score, Dot):
        assert q is not None
        q, scale = score.scaled(q)
    elif isinstance(score, Additive):
        slope = score.slope
    elif isinstance(score, GatedAdditive):
        assert q is not None
        slope, a = score.slope, score.a.expand(call.heads, q.shape[-1])
    keys, values = (score.vectors or EdgeVectors()).written(call.heads)
    return arguments(
        q, k, v, a, batched(score.edge_bias(graph), call, 2), batched(keys, call, 3),
        batched(values, call, 3), structure, (), KINDS[type(score)], scale, slope, call.dropout,
        seed_for(graph, call.dropout),
    )  # fmt: skip


def composed(own: Attention) -> Tensor:
    """The attention by differentiable operations."""
    offsets, index = own.structure[:2]
    graph, k = Graph.from_csr(offsets, index.long(), own.v.shape[1]), own.k
    if own.score == GATED:
        assert own.a is not None
        score: Score = GatedAdditive(own.a.to(own.v.dtype), own.slope)
    else:
        score = {DOT: Dot(own.scale), ADDITIVE: Additive(own.slope), NONE: Uniform()}[own.score]
    if own.q is not None and k is None:
        k = own.v
    if own.bias is not None:
        score = score + EdgeBias(own.bias)
    if own.keys is not None or own.values is not None:
        score = score + EdgeVectors(own.keys, own.values)
    dropped = (lambda p_ij: drop(p_ij, own.dropout, own.seed)) if own.dropout > 0 else None
    return attend(graph, own.q, k, own.v, score, dropped)
