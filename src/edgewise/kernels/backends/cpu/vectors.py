"""Attention with vectors of edges on the native kernels: scores, their softmax, then what it weighs.

A linear map of features is never applied to them: q_i · W x_ij is (Wᵀ q_i) · x_ij, and Σ_j p_ij W x_ij is
W Σ_j p_ij x_ij, where Wᵀ q_i and Σ_j p_ij x_ij belong to nodes. Where a score has W x_ij inside its LeakyReLU the
kernel makes it for a few edges at a time. All in float32, or float64.

Cost        memory O(N·H·(C + R) + E·H) for R features; for vectors that are given theirs, and their gradients
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, NamedTuple, cast

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.kernels.backend import Cost
from edgewise.kernels.backends.cpu import edges, features, scoring
from edgewise.kernels.backends.cpu.messages import activations
from edgewise.kernels.call import Attend
from edgewise.kernels.messages import EdgeInput
from edgewise.kernels.operator.attention import DOT, Attention, composed
from edgewise.kernels.operator.composed import attend
from edgewise.kernels.operator.dropout import check_dropout, drop, seed_for
from edgewise.kernels.operator.layout import (
    batched,
    check_rows,
    check_structure,
    check_transpose,
    empty_like,
    expect,
    flat,
    rows_contiguous,
    unflat,
    wide,
)
from edgewise.kernels.operator.operator import DTYPES, Arguments, Operator
from edgewise.kernels.operator.products import SUM, Product
from edgewise.kernels.scores import Additive, Dot, EdgeVectors, GatedAdditive, Uniform
from edgewise.native import library, threads

Structure = tuple[Tensor, ...]


class _Vectors(NamedTuple):
    """Vectors of edges [B or 1, E, H, C]; or features [B or 1, E, 1, R] with a map of every head [H, C, R]."""

    x: Tensor
    weight: Tensor | None


@dataclass(slots=True)
class Featured(Arguments):
    """y [B, I, H, D] of attention whose keys and values have a map of one tensor of features added, and its weights.

    Equation    y_i = Σ_j p_ij (v_j + V x_ij);  p = softmax(scale q_i · (k_j + K x_ij) + bias)
    Shapes      q [B, I, H, C], k [B, J, H, C], v [B, J, H, D], x [B or 1, E, R], keys = K [H, C, R],
                values = V [H, D, R], bias [B or 1, E, H]; p [B, E, H], before dropout, only where a gradient follows
    """

    q: Tensor
    k: Tensor
    v: Tensor
    x: Tensor
    keys: Tensor | None
    values: Tensor | None
    bias: Tensor | None
    structure: Sequence[Tensor]
    reverse: Sequence[Tensor]
    scale: float
    dropout: float
    seed: Tensor

    differentiable: ClassVar[tuple[str, ...]] = ("q", "k", "v", "x", "keys", "values", "bias")

    def empty(self) -> tuple[Tensor, Tensor]:
        batch, receivers, heads, _ = self.q.shape
        edges = self.structure[1].shape[0] if len(self.reverse) else 0
        return self.v.new_empty(batch, receivers, heads, self.v.shape[3]), self.v.new_empty(batch, edges, heads)

    def check(self) -> None:
        kind = features.wide_dtype("q", self.q)
        check_rows("q", self.q, (None, None, None, None), kind, strided=True)
        batch, receivers, heads, channels = self.q.shape
        check_rows("k", self.k, (batch, None, heads, channels), kind, strided=True)
        check_rows("v", self.v, (batch, self.k.shape[1], heads, None), kind, strided=True)
        sizes = check_structure("structure", self.structure, self.k.shape[1], (2, 3))
        expect(sizes[0] == receivers, f"q has {receivers} receivers, and the structure {sizes[0]}")
        one = self.x is not None and self.x.shape[:1] == (1,)
        check_rows("x", self.x, (1 if one else batch, sizes[1], None), kind, strided=True)
        expect(min(channels, self.v.shape[3], self.x.shape[2]) > 0, "q, v or x has no channels")
        for name, weight, width in (("keys", self.keys, channels), ("values", self.values, self.v.shape[3])):
            if weight is not None:
                check_rows(name, weight, (heads, width, self.x.shape[2]), kind, strided=True)
        if self.bias is not None:
            shape = (1 if self.bias.shape[:1] == (1,) else batch, sizes[1], heads)
            check_rows("bias", self.bias, shape, kind, strided=True)
        if self.reverse:
            check_transpose(self.reverse, receivers, (self.k.shape[1], sizes[1]), (3, 4))
        check_dropout(self.dropout, self.seed)

    def unread(self) -> tuple[str, ...]:
        return ("first result",)


@dataclass(slots=True)
class FeaturedGradient(Featured):
    """Those of the call, its results, the gradient to y, and which of its differentiable fields need one."""

    y: Tensor | None
    p: Tensor
    dy: Tensor
    needed: Sequence[bool]

    def check(self) -> None:
        Featured.check(self)
        y, p = Featured.empty(self)
        check_rows("dy", self.dy, tuple(y.shape), self.q.dtype, strided=True)
        check_rows("p", self.p, tuple(p.shape), self.q.dtype)
        expect(len(self.needed) == 7, f"needed has {len(self.needed)} values, but must have 7")
        expect(len(self.reverse) > 0, "a gradient needs the structure of the transpose")

    def empty(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:  # type: ignore[override]
        """To q, k, v; and to x, of each member of a batch, the maps and the bias, empty where none is needed."""
        of_x = len(self.p), *self.x.shape[1:]
        shapes = of_x, *(() if w is None else w.shape for w in (self.keys, self.values)), self.p.shape
        wanted = zip(shapes, (self.x, self.keys, self.values, self.bias), self.needed[3:], strict=True)
        x, keys, values, bias = (
            self.q.new_empty(shape if need and given is not None else 0) for shape, given, need in wanted
        )
        return empty_like(self.q), empty_like(self.k), empty_like(self.v), x, keys, values, bias


def _call(own: Featured) -> tuple[Any, list[Tensor | None]]:
    """The call as both kernels read it, and the tensors that must live as long."""
    call = library.FeaturedAttention()
    q, k, v = (rows_contiguous(t) for t in (own.q, own.k, own.v))
    (x, apart), (bias, bias_apart) = features.start(own.x), features.start(own.bias)
    keys, values = (None if t is None else t.contiguous() for t in (own.keys, own.values))
    call.threads, (call.batch, _, call.heads, call.channels) = threads(), q.shape
    call.values, call.inputs, call.scale = v.shape[3], own.x.shape[2], own.scale
    call.graph, call.q, call.k, call.v = edges.adjacency(*own.structure), *map(edges.matrix, (q, k, v))
    call.x, call.x_batch_stride = features.address(x), apart
    call.bias, call.bias_batch_stride = features.address(bias), bias_apart
    call.key_weight, call.value_weight = features.address(keys), features.address(values)
    if own.dropout > 0:
        call.dropout, call.seed = own.dropout, int(own.seed)
    return call, [q, k, v, x, keys, values, bias]


def _attend(own: Featured) -> tuple[Tensor, Tensor]:
    y, p = results = own.empty()
    call, held = _call(own)
    call.y, call.p = edges.matrix(y), features.address(p) if p.numel() else 0
    library.attend_features(DTYPES[y.dtype], call)
    del held
    return results


def _attend_gradient(own: FeaturedGradient) -> tuple[Tensor, ...]:
    results, dy = own.empty(), rows_contiguous(own.dy)
    (call, held), p = _call(own), own.p.contiguous()
    call.transpose, call.p, call.dy = edges.adjacency(*own.reverse[:3]), p.data_ptr(), edges.matrix(dy)
    call.dq, call.dk, call.dv = map(edges.matrix, results[:3])
    for name, result in zip(("dx", "dkey_weight", "dvalue_weight", "dbias"), results[3:], strict=True):
        setattr(call, name, result.data_ptr() if result.numel() else 0)
    library.attend_features_gradient(DTYPES[dy.dtype], call)
    del held
    return results


def _composed(own: Featured) -> Tensor:
    """The attention by differentiable operations."""
    keys, values = (None if w is None else torch.einsum("ber,hcr->behc", own.x, w) for w in (own.keys, own.values))
    kind = (DOT, own.scale, 0.0, own.dropout, own.seed)
    return composed(Attention(own.q, own.k, own.v, None, own.bias, keys, values, own.structure[:2], (), *kind))


_featured_gradient = Operator("attend_features_gradient", FeaturedGradient, _attend_gradient, on_cpu=True)
_featured = Operator("attend_features", Featured, _attend, _featured_gradient, _composed, on_cpu=True)


PASSES = 6  # over scores and weights, a number for each edge and head: counted
CALL, FUSED = 18, 3.5  # launches, of one operation after the other and of all in one kernel: fitted
BLOCK = 512  # rows of a product
WEIGHT = 100  # products of an edge and head, beside those of attention in one kernel; fitted to 200,000 edges of 4 × 16


def cost(call: Attend) -> Cost:
    """What vectors of edges add to attention: they are read once, and their products are with vectors of receivers."""
    vectors, batch = call.score.vectors or EdgeVectors(), call.v.shape[:-3].numel()
    count, size, total = call.graph.num_edges, call.v.element_size(), Cost()
    for x in (vectors.keys, vectors.values):
        if isinstance(x, EdgeInput):
            width, inputs = x.map[0].shape
            inside = isinstance(call.score, GatedAdditive) and x is vectors.keys
            products = 2 * batch * count * (width * inputs if inside else call.heads * inputs)
            total += Cost(tiles=products * inside, edges=products * (not inside), bytes=size * count * inputs)
        elif x is not None:
            total += Cost(edges=2 * batch * x.shape[-3:].numel(), bytes=size * x.numel())
    numbers = batch * count * call.heads
    launches = FUSED if isinstance(call.score, Dot) and _share_features(vectors) else CALL
    return total + Cost(edges=2 * WEIGHT * numbers, bytes=PASSES * size * numbers, launches=launches)


def run(call: Attend) -> Tensor:
    """A call with equal heads and vectors."""
    if call.graph.num_edges == 0:  # numbers of edges that are none, which no kernel sees
        return attend(call.graph, call.q, call.k, call.v, call.score)
    graph, dtype, vectors = call.graph, wide(call.dtype), call.score.vectors or EdgeVectors()
    v = flat(call.v, 3).to(dtype)
    q, k = (None, None) if call.q is None else (flat(x, 3).to(dtype) for x in call.ends())
    keys, values = _read(vectors.keys, call, dtype), _read(vectors.values, call, dtype)
    k, v = None if k is None else _shifted(k, vectors.keys), _shifted(v, vectors.values)
    if isinstance(call.score, Dot) and q is not None and k is not None and _share_features(vectors):
        return unflat(_by_maps(call, call.score, (q, k, v), keys, values).to(call.dtype), call)
    tensors = (q, k, v, getattr(call.score, "a", None), *(t for pair in (keys, values) if pair for t in pair))
    learns = torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors)
    bias = call.score.edge_bias(graph)
    if learns or (torch.is_grad_enabled() and bias is not None and bias.requires_grad):
        reverse: Structure = edges.reverse_of(graph)
    else:
        reverse = ()
    s = _scores(call, q, k, keys, reverse)
    if s is None:
        s = v.new_zeros(v.shape[0], graph.num_edges, call.heads)
    if bias is not None:
        s = s + cast(Tensor, batched(bias.to(dtype), call, 2))
    structure = edges.product_structure_of(graph)
    p = scoring.softmax(scoring.Softmax(s, structure[0]))
    if call.dropout > 0:
        p = drop(p, call.dropout, seed_for(graph, call.dropout))
    y = edges.product(Product(rows_contiguous(v), p, structure, reverse[:3], SUM))
    if values is not None:
        z = features.sums(features.Sums(p, values.x, structure[0]))
        y = y + (z if values.weight is None else _by_heads(z, values.weight.transpose(1, 2)))
    return unflat(y.to(call.dtype), call)


def _share_features(vectors: EdgeVectors) -> bool:
    """Whether keys, values or both are maps of the same features."""
    given = [x for x in (vectors.keys, vectors.values) if x is not None]
    read = [[x.values, x.reach, x.map[0].shape[1]] for x in given if isinstance(x, EdgeInput) and x.map[0].shape[1]]
    same = [values is read[0][0] and kind == read[0][1:] for values, *kind in read]
    return len(same) == len(given) > 0 and all(same)


def _by_maps(
    call: Attend, score: Dot, ends: tuple[Tensor, Tensor, Tensor], keys: _Vectors | None, values: _Vectors | None
) -> Tensor:
    graph, bias, dropout = call.graph, score.edge_bias(call.graph), call.dropout
    (q, scale), k, v = score.scaled(ends[0]), *ends[1:]
    x = next(each.x for each in (keys, values) if each is not None).squeeze(2)
    if bias is not None:
        bias = cast(Tensor, batched(bias.to(q.dtype), call, 2)).expand(-1, -1, call.heads)
    K, V = (None if each is None else each.weight for each in (keys, values))
    own = Featured(q, k, v, x, K, V, bias, edges.structure_of(graph), (), scale, dropout, seed_for(graph, dropout))
    if _featured.differentiates(own):
        own.reverse = edges.reverse_of(graph)
    return _featured(own)[0]


def _read(x: Tensor | EdgeInput | None, call: Attend, dtype: torch.dtype) -> _Vectors | None:
    if isinstance(x, EdgeInput) and x.map[0].shape[1] == 0:
        x = x.term().unflatten(-1, (call.heads, -1))
    if x is None or isinstance(x, Tensor):
        given = batched(x, call, 3)
        return None if given is None else _Vectors(given.to(dtype), None)
    raw = batched(x.features.to(dtype), call, 2)
    assert raw is not None
    return _Vectors(raw.unsqueeze(2), x.map[0].to(dtype).unflatten(0, (call.heads, -1)))


def _shifted(nodes: Tensor, x: Tensor | EdgeInput | None) -> Tensor:
    """A map's bias belongs to the senders as much as to their edges."""
    if not isinstance(x, EdgeInput) or x.map[1] is None or x.map[0].shape[1] == 0:
        return nodes
    return nodes + x.map[1].to(nodes.dtype).view(nodes.shape[2:])


def _by_heads(x: Tensor, weight: Tensor) -> Tensor:
    """x_h W_h [B, N, H, R] of rows x [B, N, H, C] and W [H, C, R], in blocks of rows, or the bits of the weight's
    gradient, a sum over all rows, would depend on the number of threads."""
    rows = x.flatten(0, 1)
    count = max(1, -(-len(rows) // BLOCK))
    blocks = functional.pad(rows, (0, 0, 0, 0, 0, -len(rows) % count)).unflatten(0, (count, -1))
    y = blocks.transpose(1, 2) @ weight.expand(count, -1, -1, -1)
    return y.transpose(1, 2).flatten(0, 1)[: len(rows)].unflatten(0, x.shape[:2])


def _scores(
    call: Attend, q: Tensor | None, k: Tensor | None, keys: _Vectors | None, reverse: Structure
) -> Tensor | None:
    """s_ij [B, E, H] without biases; None where all are 0."""
    score, structure = call.score, edges.product_structure_of(call.graph)
    if isinstance(score, Uniform) or q is None or k is None:
        return None
    if isinstance(score, Dot):
        q, scale = score.scaled(q)
        q = rows_contiguous(q * scale)
        s = features.pairs(features.Pairs(q, rows_contiguous(k), structure, reverse[:3]))
        if keys is None:
            return s
        u = q if keys.weight is None else _by_heads(q, keys.weight)
        return s + features.dots(features.Dots(u, keys.x, structure[0]))
    x = None if keys is None else keys.x.flatten(2)
    weight = None if keys is None or keys.weight is None else keys.weight.flatten(0, 1)
    if isinstance(score, Additive):
        x = x if x is None or weight is None else _by_heads(x.unsqueeze(2), weight.t().unsqueeze(0)).squeeze(2)
        own_ends = scoring.Additive(q.squeeze(-1), k.squeeze(-1), x, structure, reverse[:3], score.slope)
        return scoring.additive(own_ends)
    assert isinstance(score, GatedAdditive)
    a = score.a.to(q.dtype).expand(q.shape[2:])
    own = activations.Scores(rows_contiguous(q), rows_contiguous(k), x, weight, structure, reverse, a, score.slope)
    return activations.scores(own)[0]
