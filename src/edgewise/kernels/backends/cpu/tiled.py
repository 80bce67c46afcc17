"""C++ kernels on the CPU for dense tiles of pairs, whole ones skipped: graphs by rule, and those of a few ranges.

No edge is listed. Dropout is hashed from the numbers of receiver and sender.

Cost        time O(E·H·C) with E the pairs inside the tiles, memory O(N·H·C), forward and backward; the same bits at
            any number of threads
Edge cases  where a number is not finite each receiver is taken alone: 0 times it, of a pair that is no edge, is NaN
Reference   Dao et al., FlashAttention, 2022
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar

import torch
from torch import Tensor

from edgewise.graphs import Graph, complete
from edgewise.kernels.backend import Attention, Backend, Cost, Probe, Takes
from edgewise.kernels.backends.cpu import KERNELS
from edgewise.kernels.backends.cpu.edges import MOST, matrix
from edgewise.kernels.backends.cpu.tiles import has_tiles, pairs_of, places_of, tiles_of
from edgewise.kernels.call import Attend, Call
from edgewise.kernels.operator.composed import attend
from edgewise.kernels.operator.dropout import check_dropout, drop_pairs, seed_for
from edgewise.kernels.operator.layout import (
    batched,
    check_rows,
    dtype_of,
    empty_like,
    expect,
    flat,
    rows_contiguous,
    unflat,
    wide,
)  # fmt: skip
from edgewise.kernels.operator.masked_rows import are_far, are_low, lifted, times_counted, within_reach
from edgewise.kernels.operator.operator import DTYPES, Arguments, Operator
from edgewise.kernels.scores import Dot, EdgeBias
from edgewise.native import library, threads

# Products of a pair: for each number of both ends, of its exponential, and of whether it is dropped. All fitted, the
# first two to the densities at which tiles become as fast as edges on an EPYC and a Xeon (docs/performance.md)
NUMBER, SOFTMAX, DROP = 1.05, 22, 12
BIAS, LISTED = 75, 24  # bytes: of an edge's bias (fitted), and of an edge that has to be listed for it (counted)
END = 13  # bytes for each number of a node; fitted
CALL = 4  # launches; fitted
PARTS = 8  # of a batch, whose gradients to a bias that they share are summed apart and then together


def _refuses_graph(call: Call) -> str | None:
    return None if has_tiles(call.graph) else "the graph has no form with few sender intervals per receiver"


def cost(call: Call) -> Cost:
    """Pairs inside the tiles, at the speed of matrix products; a bias is a number more for each."""
    assert isinstance(call, Attend)
    pairs = pairs_of(call.graph)
    width = call.v.shape[-1] + call.ends()[0].shape[-1]
    batch = call.v.shape[:-3].numel()
    product = NUMBER * width + SOFTMAX + DROP * (call.dropout > 0)
    traffic = END * batch * call.heads * width * (call.graph.num_receivers + call.graph.num_senders)
    if call.score.biases:
        # Edges have to be listed where a bias does not come as a number for each.
        listed = all(isinstance(bias, EdgeBias) for bias in call.score.biases)
        traffic += (BIAS * batch * call.heads + (0 if listed else LISTED)) * call.graph.num_edges
    return Cost(tiles=int(2 * batch * call.heads * pairs * product), bytes=traffic, launches=CALL)


def run(call: Call) -> Tensor:
    """Compute the call on the graph's ranges."""
    assert isinstance(call, Attend) and isinstance(call.score, Dot)
    score, call = call.score, call.with_equal_heads()
    q, k = call.ends()
    (q, scale), graph = score.scaled(q), call.graph
    tiles = tiles_of(graph)
    assert tiles is not None
    bias, places = batched(score.edge_bias(graph), call, 2), None
    if bias is not None:
        places, bias = places_of(graph), bias.expand(*bias.shape[:-1], call.heads)
        bias = bias.transpose(1, 2).to(wide(call.v.dtype)).contiguous()  # [B or 1, H, E]
    q, k, v = (rows_contiguous(flat(x, 3)) for x in (q, k, call.v))
    seed = seed_for(graph, call.dropout)
    y, *_ = attend_tiles(TilesAttention(q, k, v, bias, *tiles, places, scale, call.dropout, seed))
    return unflat(y, call)


BACKEND = Backend(
    name="tiled",
    summary="C++ on the CPU, dense tiles of pairs: graphs by rule or ranges",
    takes=Takes(dtypes=tuple(DTYPES), attend=Attention(scores=(Dot,)), nodes=MOST, parallel=False),
    devices=("cpu",),
    need=KERNELS,
    limits=_refuses_graph,
    cost=cost,
    run=run,
    probes=(Probe("cpu", "tiles", lambda device: complete(512)),),
)


@dataclass(slots=True)
class TilesAttention(Arguments):
    """q [B, I, H, C], k [B, J, H, C], v [B, J, H, D], bias [B or 1, H, E], starts, stops and places [I, R], order [N].

    Row order[n] of q, k and v is number n of starts and stops.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    bias: Tensor | None
    starts: Tensor
    stops: Tensor
    order: Tensor | None
    places: Tensor | None
    scale: float
    dropout: float
    seed: Tensor

    differentiable: ClassVar[tuple[str, ...]] = ("q", "k", "v", "bias")

    def empty(self) -> tuple[Tensor, Tensor]:
        """y [B, I, H, D]; and the log-sum-exp [B, H, I] in the kernel's own base and order."""
        batch, receivers, heads, _ = self.q.shape
        y = self.v.new_empty(batch, receivers, heads, self.v.shape[3])
        return y, self.v.new_empty(batch, heads, receivers, dtype=wide(y.dtype))

    def check(self) -> None:
        kind = dtype_of("v", self.v)
        check_rows("q", self.q, (None, None, None, None), kind, strided=True)
        expect(self.q.numel() > 0, "q is empty")
        batch, receivers, heads, channels = self.q.shape
        check_rows("k", self.k, (batch, None, heads, channels), kind, strided=True)
        senders = self.k.shape[1]
        check_rows("v", self.v, (batch, senders, heads, None), kind, strided=True)
        check_rows("starts", self.starts, (receivers, None), torch.int64)
        check_rows("stops", self.stops, tuple(self.starts.shape), torch.int64)
        bounds = torch.stack([self.starts, self.stops], -1).flatten(1)
        right = not bounds.numel() or bool((bounds.diff() >= 0).all() and bounds.min() >= 0 and bounds.max() <= senders)
        expect(right, f"starts and stops must ascend within 0, ..., {senders}, the number of senders")
        if self.order is not None:
            check_rows("order", self.order, (max(receivers, senders),), torch.int64)
            (least, most), rows = map(int, self.order.aminmax()), min(receivers, senders)
            expect(least >= 0 and most < rows, f"order must lie in 0, ..., {rows - 1}")
        if self.bias is not None:
            self._check_bias(self.bias)
        check_dropout(self.dropout, self.seed)

    def _check_bias(self, bias: Tensor) -> None:
        check_rows("places", self.places, tuple(self.starts.shape), torch.int64)
        assert self.places is not None
        batch, _, heads, _ = self.v.shape
        check_rows("bias", bias, (1 if bias.shape[:1] == (1,) else batch, heads, None), wide(self.v.dtype))
        inside = self.stops > self.starts
        first, last = (self.places + self.starts)[inside], (self.places + self.stops - 1)[inside]
        right = not first.numel() or 0 <= int(first.min()) <= int(last.max()) < bias.shape[2]
        expect(right, f"places must lead to the numbers 0, ..., {bias.shape[2] - 1} of the bias")


@dataclass(slots=True)
class TilesAttentionGradient(TilesAttention):
    """Those of the call, its results, and which of its differentiable fields need a gradient."""

    y: Tensor
    lse: Tensor
    dy: Tensor
    needed: Sequence[bool]

    def check(self) -> None:
        TilesAttention.check(self)
        (batch, receivers, heads, _), values = self.q.shape, self.v.shape[3]
        check_rows("y", self.y, (batch, receivers, heads, values), self.v.dtype)
        check_rows("dy", self.dy, (batch, receivers, heads, values), self.v.dtype, strided=True)
        check_rows("lse", self.lse, (batch, heads, receivers), wide(self.v.dtype))
        expect(len(self.needed) == 4, f"needed has {len(self.needed)} values, but must have 4")

    def empty(self) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # type: ignore[override]
        """To q, k, v, and to the bias, summed over parts of a batch that shares it."""
        v, bias = self.v, self.bias
        dbias = v.new_empty(0, dtype=wide(v.dtype))
        if bias is not None and self.needed[3]:
            parts = min(v.shape[0], PARTS) if bias.shape[0] == 1 else v.shape[0]
            dbias = v.new_empty(parts, *bias.shape[1:], dtype=dbias.dtype)
        return empty_like(self.q), empty_like(self.k), empty_like(v), dbias


def _tiling(own: TilesAttention, q: Tensor, k: Tensor, v: Tensor) -> Any:
    """The call as both kernels read it."""
    call = library.Tiling()
    call.threads, call.scale = threads(q.numel() * v.shape[1] // 8), own.scale  # all pairs; tiles are fast
    if own.dropout > 0:
        call.dropout, call.seed = own.dropout, int(own.seed)
    call.batch, call.receivers, call.heads, call.channels = q.shape
    call.senders, call.values = v.shape[1], v.shape[3]
    call.ranges, call.starts, call.stops = own.starts.shape[1], own.starts.data_ptr(), own.stops.data_ptr()
    call.q, call.k, call.v = matrix(q), matrix(k), matrix(v)
    if own.order is not None:
        call.order = own.order.data_ptr()
    if own.bias is not None and own.places is not None:
        between = own.bias.stride(0) if own.bias.shape[0] > 1 else 0
        call.pairs, call.places = own.bias.shape[2], own.places.data_ptr()
        call.bias, call.bias_batch_stride = own.bias.data_ptr(), between
    return call


def _attend(own: TilesAttention) -> tuple[Tensor, Tensor]:
    y, lse = results = TilesAttention.empty(own)
    q, k, v = map(rows_contiguous, (own.q, own.k, own.v))
    call = _tiling(own, q, k, v)
    call.y, call.lse = matrix(y), lse.data_ptr()
    library.attend_tiles(DTYPES[v.dtype], call)
    vanished = own.bias is not None and (are_low(lse) | lse.isinf()).any()
    bias = within_reach(own.bias) if own.bias is not None and vanished else own.bias
    return results if bias is own.bias else _attend(replace(own, bias=bias))


def _attend_gradient(own: TilesAttentionGradient) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    if own.bias is not None and own.places is not None and are_far(own.lse).any():
        own = _counted_once(own, own.bias, own.places)
    dq, dk, dv, dbias = results = own.empty()
    dy, q, k, v = map(rows_contiguous, (own.dy, own.q, own.k, own.v))
    call = _tiling(own, q, k, v)
    call.dy, call.y, call.lse = matrix(dy), matrix(own.y), own.lse.data_ptr()
    call.dq, call.dk, call.dv = matrix(dq), matrix(dk), matrix(dv)
    if own.bias is not None and own.needed[3]:
        call.parts, call.dbias = dbias.shape[0], dbias.data_ptr()
    library.attend_tiles_gradient(DTYPES[v.dtype], call)
    return results


def _counted_once(own: TilesAttentionGradient, bias: Tensor, places: Tensor) -> TilesAttentionGradient:
    """The same gradient where some rows' biases are far below 0."""
    rows = (places + own.starts)[:, 0], (own.stops - own.starts).sum(1)
    near = lifted(on_edges := bias.transpose(1, 2), *rows)
    if near is not on_edges:
        own = replace(own, bias=near.transpose(1, 2).contiguous())
        own.y, own.lse = _attend(own)
    times = times_counted(own.lse.transpose(1, 2), near, *rows).to(own.dy.dtype)
    times = times if own.order is None else torch.empty_like(times).index_copy(1, own.order, times)
    return replace(own, bias=within_reach(near).transpose(1, 2).contiguous(), dy=own.dy / times.unsqueeze(-1))


def _composed(own: TilesAttention) -> Tensor:
    """The attention by differentiable operations."""
    q, k, v, order = own.q, own.k, own.v, own.order
    graph, score = Graph.from_ranges(own.starts, own.stops, v.shape[1]), Dot(own.scale)
    if (places := own.places) is not None:
        beyond = torch.arange(graph.num_edges, device=v.device) - graph.offsets[graph.receivers]
        places = (places + own.starts)[:, 0][graph.receivers] + beyond
    if own.bias is not None and places is not None:
        score = score + EdgeBias(own.bias.index_select(-1, places).transpose(1, 2))
    if order is not None:
        q, k, v = (x.index_select(1, order) for x in (q, k, v))
    drop = (lambda p_ij: drop_pairs(graph, p_ij, own.dropout, own.seed)) if own.dropout > 0 else None
    y = attend(graph, q, k, v, score, drop)
    return y if order is None else torch.empty_like(y).index_copy(1, order, y)


attend_tiles_gradient = Operator("attend_tiles_gradient", TilesAttentionGradient, _attend_gradient, on_cpu=True)
attend_tiles = Operator("attend_tiles", TilesAttention, _attend, attend_tiles_gradient, _composed, on_cpu=True)
