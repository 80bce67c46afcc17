"""Attention on edges as an operator over any family of kernels: its arguments, and those of its gradient.

q [B, I, H, C], k [B, J, H, C], v [B, J, H, D], a [H, C], bias [B or 1, E, H or 1], keys and values of edges
[B or 1, E, H, *]. A structure is a list of tensors: offsets [I + 1]; index [E], the sender of edge e; and whatever else
the kernels read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, TypeVar

from torch import Tensor

from edgewise.graphs import Graph
from edgewise.kernels.call import Attend
from edgewise.kernels.operator.dropout import drop, seed_for
from edgewise.kernels.operator.layout import batched, check_edges, check_rows, flat
from edgewise.kernels.operator.operator import Arguments
from edgewise.kernels.operator.second_derivatives import attend
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
        batch, senders, heads, _ = self.v.shape
        check_rows("v", self.v, (None, None, None, None))
        check_rows("q", self.q, (batch, self.receivers, heads, None))
        check_rows("k", self.k, (batch, senders, heads, None if self.q is None else self.q.shape[-1]))
        check_edges(senders, *self.structure[:2])
        if self.bias is not None:
            check_rows("bias", self.bias, (batch if self.bias.shape[0] > 1 else 1, self.edges, heads))
        if self.reverse:
            check_edges(self.receivers, *self.reverse[:3])


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
        for name, x in (("y", self.y), ("dy", self.dy)):
            check_rows(name, x, (self.v.shape[0], self.receivers, *self.v.shape[2:]))


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
    vectors = score.vectors or EdgeVectors()
    return arguments(
        q, k, v, a, batched(score.edge_bias(graph), call, 2), batched(vectors.keys, call, 3),
        batched(vectors.values, call, 3), structure, (), KINDS[type(score)], scale, slope, call.dropout,
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
