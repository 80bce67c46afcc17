"""Attention with vectors of edges on the native kernels: scores, their softmax, then what it weighs.

A linear map of features is never applied to them: q_i · W x_ij is (Wᵀ q_i) · x_ij, and Σ_j p_ij W x_ij is
W Σ_j p_ij x_ij, where Wᵀ q_i and Σ_j p_ij x_ij belong to nodes. Where a score has W x_ij inside its LeakyReLU the
kernel makes it for a few edges at a time. All in float32, or float64.

Cost        memory O(N·H·(C + R) + E·H) for R features; for vectors that are given theirs, and their gradients
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from edgewise.kernels.backend import Cost
from edgewise.kernels.backends.cpu import edges, features, gates, heads, scoring
from edgewise.kernels.call import Attend
from edgewise.kernels.messages import EdgeInput
from edgewise.kernels.operator.dropout import drop, seed_for
from edgewise.kernels.operator.layout import batched, flat, rows_contiguous, unflat, wide
from edgewise.kernels.operator.products import SUM, Product
from edgewise.kernels.scores import Additive, Dot, EdgeVectors, GatedAdditive, Uniform

Structure = tuple[Tensor, ...]


class _Vectors(NamedTuple):
    """Vectors of edges [B or 1, E, H, C]; or features [B or 1, E, 1, R] with a map of every head [H, C, R]."""

    x: Tensor
    weight: Tensor | None


PASSES, CALL = 6, 10.5  # over scores and weights, a number for each edge and head: counted; and launches: fitted
BLOCK = 512  # edges of a product
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
    return total + Cost(edges=2 * WEIGHT * numbers, bytes=PASSES * size * numbers, launches=CALL)


def run(call: Attend) -> Tensor:
    """A call with equal heads and vectors."""
    graph, dtype, vectors = call.graph, wide(call.dtype), call.score.vectors or EdgeVectors()
    v = flat(call.v, 3).to(dtype)
    q, k = (None, None) if call.q is None else (flat(x, 3).to(dtype) for x in call.ends())
    keys, values = _read(vectors.keys, call, dtype), _read(vectors.values, call, dtype)
    k, v = None if k is None else _shifted(k, vectors.keys), _shifted(v, vectors.values)
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
        s = s + flat(bias.to(dtype), 2)
    structure = edges.product_structure_of(graph)
    p = scoring.softmax(scoring.Softmax(s, structure[0]))
    if call.dropout > 0:
        p = drop(p, call.dropout, seed_for(graph, call.dropout))
    y = edges.product(Product(rows_contiguous(v), p, structure, reverse[:3], SUM))
    if values is not None:
        z = features.sums(features.Sums(p, values.x, structure[0]))
        y = y + (z if values.weight is None else heads.product(heads.Heads(z, values.weight.transpose(1, 2))))
    return unflat(y.to(call.dtype), call)


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


def _by_map(x: Tensor, weight: Tensor) -> Tensor:
    """x [B, E, R] by weight [H, R]: [B, E, H], in blocks of edges, or the bits of the weight's gradient, a sum over
    all edges, would depend on the number of threads."""
    whole = x.shape[1] // BLOCK * BLOCK
    parts = [x[:, :whole].reshape(-1, BLOCK, x.shape[2]), x[:, whole:]]
    made = [torch.bmm(part, weight.t().expand(len(part), -1, -1)) for part in parts]
    return torch.cat([made[0].reshape(len(x), whole, len(weight)), made[1]], 1)


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
        u = q if keys.weight is None else heads.product(heads.Heads(q, keys.weight))
        return s + features.dots(features.Dots(u, keys.x, structure[0]))
    x = None if keys is None else keys.x.flatten(2)
    weight = None if keys is None or keys.weight is None else keys.weight.flatten(0, 1)
    if isinstance(score, Additive):
        x = x if x is None or weight is None else _by_map(x, weight)  # one number for each head
        own_ends = scoring.Additive(q.squeeze(-1), k.squeeze(-1), x, structure, reverse[:3], score.slope)
        return scoring.additive(own_ends)
    assert isinstance(score, GatedAdditive)
    a = score.a.to(q.dtype).expand(q.shape[2:])
    own = gates.Scores(rows_contiguous(q), rows_contiguous(k), x, weight, structure, reverse, a, score.slope)
    return gates.scores(own)[0]
