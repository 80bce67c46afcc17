"""What every verb does on a partition: it fetches the rows of senders that a rank lacks, and calls on its own edges.

Plain attention to all nodes never holds the keys and values of all on a rank: on a complete graph they go around a
ring instead; on a causal one the ranks share the heads, since the last ones' nodes have most of the pairs.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import pad

from edgewise.errors import GraphError
from edgewise.graphs import Partition
from edgewise.graphs.partition import Ring, by_heads, by_rows
from edgewise.kernels.call import Aggregate, Attend, Call, Collect
from edgewise.kernels.messages import Filter, Message
from edgewise.kernels.operator.layout import flat, unflat, wide
from edgewise.kernels.operator.operator import in_own_dtypes
from edgewise.kernels.scores import Dot, RelativeBias, Score, SenderBias

C = TypeVar("C", bound=Call)
Results = Tensor | tuple[Tensor, ...]


def run(call: Call, on_edges: Callable[[Call], Results], named: bool) -> Results:
    """A call on a partition.

    Symbols     on_edges = runs a call on an ordinary graph; named = whether its backend was asked for by name
    """
    part = call.graph
    if not named and isinstance(call, Attend) and goes_around(call):
        assert isinstance(part, Partition)
        return around(call) if part.unparted is None else by_share_of_heads(call, on_edges)
    return on_edges(with_senders(call))


def with_senders(call: C) -> C:
    """A call on a partition as one on this rank's edges, with the senders' rows of other ranks.

    Errors      GraphError for distances of senders that lie scattered, and for a filter of both directions
    """
    part = call.graph
    assert isinstance(part, Partition)
    if isinstance(call, Attend):
        k = None if call.k is None else part.fetch(call.k, -3)
        v = k if k is not None and call.v is call.k else part.fetch(call.v, -3)
        return replace(call, graph=part.local, k=k, v=v, score=_score(part, call.score))
    if isinstance(call, Aggregate):
        return replace(call, graph=part.local, x=part.fetch(call.x, call.node_axis))
    assert isinstance(call, Collect)
    message = call.message
    if isinstance(message, Filter) and message.both_ways:
        raise GraphError("a filter of both directions reads edges of other ranks: list both directions as edges")
    message = message.fetched(part.fetch) if isinstance(message, Message) else message
    return replace(call, graph=part.local, message=message)


def _score(part: Partition, score: Score) -> Score:
    if not score.biases:
        return score
    if not part.is_contiguous and any(isinstance(bias, RelativeBias) for bias in score.biases):
        raise GraphError(
            "a bias by distance needs senders that follow one another: this rank's are scattered over the whole graph"
        )
    biases = [SenderBias(part.fetch(bias.values)) if isinstance(bias, SenderBias) else bias for bias in score.biases]
    return replace(score, biases=tuple(biases))


SCORES = 1 << 20  # numbers of the matrix of scores that are in memory at a time without a fused kernel; 4 MB in float32


def goes_around(call: Attend) -> bool:
    """Whether a call is attention by plain dot products on a complete or causal graph that several ranks share.

    Biases, dropout and weights that are returned need every sender's row at once, which is fetched then, and so does a
    causal graph where the ranks' number does not divide that of the heads.
    """
    part = call.graph
    if not isinstance(part, Partition) or part.ring is None or call.q is None or call.k is None:
        return False
    score, options = call.score, call.dropout or call.return_weights
    if not isinstance(score, Dot) or score.biases or score.vectors is not None or options:
        return False
    if not call.q.shape[:-3] == call.k.shape[:-3] == call.v.shape[:-3] or len({x.dtype for x in call.tensors()}) > 1:
        return False
    return score.cap is None if part.unparted is None else call.v.shape[-2] % len(part.ring.sizes) == 0


def by_share_of_heads(call: Attend, attend: Callable[[Call], Tensor | tuple[Tensor, ...]]) -> Tensor:
    """Causal attention in which each rank has all nodes and some of the heads, so that all do the same work.

    Equation    that of `attend`; y of a head reads that head alone
    Cost        I²/2 · H/P pairs for each of P ranks; memory O(I/P·H·C); on the way the rows of q, k, v and y but a
                rank's own share, forward and backward
    Reference   Jacobs et al., "DeepSpeed Ulysses", 2023
    """
    part, score = call.graph, call.score
    assert isinstance(part, Partition) and part.ring and part.unparted and isinstance(score, Dot)
    q, factor = score.scaled(call.ends()[0])
    sizes, group = part.ring.sizes, part.ring.group
    q, k, v = (by_heads(x, sizes, group) for x in (q, call.ends()[1], call.v))
    y = attend(replace(call, graph=part.unparted, q=q, k=k, v=v, score=replace(score, scale=factor)))
    assert isinstance(y, Tensor)
    return by_rows(y, sizes, group)


def around(call: Attend) -> Tensor:
    """Attention of this rank's receivers to the senders of all ranks, a block of these after the other.

    Equation    y_i = Σ_b exp(l_ib - l_i) y_ib,  l_i = log Σ_b exp(l_ib): b a rank's block of senders; y_ib, l_ib
                what softmax attention to it alone gives, and the logarithm of its sum. Backward, with δ_i = dy_i·y_i:
                ds_ij = p_ij (dy_i·v_j - δ_i); the gradients of keys and values go around with their block
    Cost        time of I × J pairs; memory O((I + J)·H·C) of this rank's I and J; each rank passes
                all blocks but one forward, and all blocks and all gradients but one each backward
    Reference   Liu, Zaharia & Abbeel, "Ring attention with blockwise transformers", 2023; Milakov & Gimelshein, 2018
    """
    part = call.graph
    assert isinstance(part, Partition) and part.ring is not None and isinstance(call.score, Dot)
    q, k = call.ends()
    q, scale = call.score.scaled(q)
    groups, rows = call.v.shape[-2], q.shape[-3]
    q = flat(q, 3).transpose(1, 2)  # [B, H, I, C]
    q = q.reshape(len(q), groups, -1, q.shape[-1])  # heads that share keys one after the other: [B, G, R·I, C]
    y: Tensor = _Around.apply(q, *(flat(x, 3).transpose(1, 2) for x in (k, call.v)), scale, part.ring)  # type: ignore[no-untyped-call]
    return unflat(y.reshape(len(y), -1, rows, y.shape[-1]).transpose(1, 2), call)


class _Around(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, k: Tensor, v: Tensor, scale: float, ring: Ring) -> Tensor:
        own, keys = torch.cat([k, v], -1), k.shape[-1]
        y = q.new_zeros(*q.shape[:-1], v.shape[-1], dtype=wide(q.dtype))
        total = y.new_full(q.shape[:-1], -torch.inf, dtype=torch.float64)  # what rounds here, all weights share
        block, steps = own, len(ring.sizes)
        for step in range(steps):
            arrives = ring.passed(block, -2, step + 1) if step + 1 < steps else None
            values, sums = attention(q, block[..., :keys], block[..., keys:], scale)
            now = torch.logaddexp(total, sums)
            before, share = ((x - now).exp_()[..., None].to(y.dtype) for x in (total, sums))
            y = y.mul_(before).addcmul_(values.to(y.dtype), share)
            total = now
            block = arrives() if arrives is not None else block
        y = y.to(q.dtype)
        ctx.save_for_backward(q, own, y, total.to(wide(q.dtype)))
        ctx.how = scale, ring
        return y

    @staticmethod
    @in_own_dtypes
    @once_differentiable
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        q, own, y, total = ctx.saved_tensors
        scale, ring = ctx.how
        dq = torch.zeros_like(q, dtype=total.dtype)
        block, steps, keys = own, len(ring.sizes), q.shape[-1]
        mine, carried = own, None
        for step in range(steps):
            arrives = ring.passed(block, -2, step + 1) if step + 1 < steps else None
            by_q, *by_block = gradients(dy, q, block[..., :keys], block[..., keys:], y, total, scale)
            dq += by_q
            gradient = torch.cat(by_block, -1).to(total.dtype)
            if carried is not None:
                gradient += carried()
            if step:
                carried = ring.passed(gradient, -2, step + 1, tag=1)
            else:
                mine = gradient
            block = arrives() if arrives is not None else block
        if carried is not None:
            mine += carried()
        return dq.to(q.dtype), *mine.to(q.dtype).split([keys, y.shape[-1]], -1), None, None


def attention(q: Tensor, k: Tensor, v: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    """Softmax attention to one block, and the logarithm of its sum.

    Cost        where there is a fused kernel, memory of the result; else that of SCORES beside it
    """
    if fused(q):
        q, k, padded = _as_wide(q, k, v)
        y, sums = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu(q, k, padded, scale=scale)
        return y[..., : v.shape[-1]], sums
    y = q.new_empty(*q.shape[:-1], v.shape[-1], dtype=wide(q.dtype))
    sums = y.new_empty(q.shape[:-1])
    for rows in _chunks(q, k):
        scores = _scores(q[:, :, rows], k, scale)
        sums[:, :, rows] = scores.logsumexp(-1)
        y[:, :, rows] = scores.sub_(sums[:, :, rows, None]).exp_() @ v.to(y.dtype)
    return y, sums


def gradients(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, total: Tensor, scale: float
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of queries, keys and values that come of one block; y and total are those of all blocks."""
    if fused(q):
        keys, values = q.shape[-1], v.shape[-1]
        (q, k, v), (y, dy) = _as_wide(q, k, v), _as_wide(y, dy, q)[:2]
        backward = torch.ops.aten._scaled_dot_product_flash_attention_for_cpu_backward
        by_q, by_k, by_v = backward(dy, q, k, v, y, total, 0.0, False, scale=scale)
        return by_q[..., :keys], by_k[..., :keys], by_v[..., :values]
    q, dy, k_, v_ = (x.to(total.dtype) for x in (q, dy, k, v))
    change = (dy * y).sum(-1, keepdim=True)
    dq, dk, dv = torch.empty_like(q), torch.zeros_like(k_), torch.zeros_like(v_)
    for rows in _chunks(q, k):
        p = _scores(q[:, :, rows], k_, scale).sub_(total[:, :, rows, None]).exp_()
        dv += p.transpose(-1, -2) @ dy[:, :, rows]
        ds = (dy[:, :, rows] @ v_.transpose(-1, -2)).sub_(change[:, :, rows]).mul_(p).mul_(scale)
        dq[:, :, rows] = ds @ k_
        dk += ds.transpose(-1, -2) @ q[:, :, rows]
    return dq, dk, dv


def fused(x: Tensor) -> bool:
    """Whether PyTorch has a kernel that returns the logarithm of the sums too, and whose backward reads it."""
    return x.device.type == "cpu"


def _as_wide(*tensors: Tensor) -> list[Tensor]:
    """Tensors with as many channels as the widest of them, by zeros, which change no product."""
    width = max(x.shape[-1] for x in tensors)
    return [x if x.shape[-1] == width else pad(x, (0, width - x.shape[-1])) for x in tensors]


def _scores(q: Tensor, k: Tensor, scale: float) -> Tensor:
    """scale · qᵢ·kⱼ, in the dtype of sums."""
    dtype = wide(q.dtype)
    return (q.to(dtype) @ k.to(dtype).transpose(-1, -2)).mul_(scale)


def _chunks(q: Tensor, k: Tensor) -> list[slice]:
    """The queries that are read at a time."""
    length = max(1, SCORES // max(1, q.shape[:2].numel() * k.shape[-2]))
    return [slice(first, first + length) for first in range(0, q.shape[-2], length)]
