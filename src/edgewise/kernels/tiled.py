"""C++ kernels on the CPU for graphs by rule or ranges: dense tiles of pairs, whole ones skipped, without any edges.

Cost        time O(E·H·C) with E the pairs inside the tiles, memory O(N·H·C), forward and backward; the same bits at
            any number of threads
Differs     a sender with a value that is not finite can reach receivers beside those which listen to it
Reference   Dao et al., FlashAttention, 2022
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import Graph, lowering
from edgewise.graphs.rule import Rule
from edgewise.kernels.again import differentiated_again, gradients_again
from edgewise.kernels.call import Attend, Call
from edgewise.kernels.edges import (
    MOST,
    matrix,
    rows_contiguous,
    wide,
)
from edgewise.kernels.operators import DTYPES, Operator
from edgewise.kernels.planner import Cost
from edgewise.kernels.scores import Dot
from edgewise.native import library, threads

SOFTMAX = 5  # a pair's exponential costs about as much as so many products


def refuses(call: Call) -> str | None:
    """All but `Dot` attention without biases, caps or dropout, on the CPU, on a graph that has ranges."""
    if library is None:
        return "edgewise was installed without its C++ kernels"
    if not isinstance(call, Attend):
        return "it computes attention only"
    graph = call.graph
    if graph.device.type != "cpu":
        return f"its kernels run on the CPU, not on {graph.device.type}"
    if call.v.dtype not in DTYPES:
        return f"its kernels compute in float32, float64 and bfloat16, not in {call.v.dtype}"
    if not isinstance(call.score, Dot):
        return f"it has no {type(call.score).__name__} score"
    if call.score.cap is not None:
        return "it has no soft cap"
    if call.score.biases:
        return "it has no biases"
    if call.dropout > 0:
        return "it has no dropout"
    if call.return_weights:
        return "it does not return its weights"
    if max(graph.num_senders, graph.num_receivers) > MOST:
        return f"it numbers nodes in 32 bits, and there are more than {MOST}"
    if graph.ranges() is None:
        return "the graph has no form with few sender intervals per receiver"
    return None


def cost(call: Call) -> Cost:
    """Pairs inside the tiles, at the speed of matrix products."""
    assert isinstance(call, Attend)
    pairs = call.graph.memo("pairs in tiles", lambda: _pairs(call.graph))
    width = call.v.shape[-1] + call.ends()[0].shape[-1]
    numbers = call.v.shape[:-3].numel() * call.heads * pairs
    return Cost(tiles=2 * numbers * (width + SOFTMAX), bytes=2 * call.v.element_size() * call.v.numel(), launches=13)


def run(call: Call) -> Tensor:
    """Compute the call on the graph's ranges."""
    assert isinstance(call, Attend) and isinstance(call.score, Dot)
    score, call = call.score, call.with_equal_heads()
    q, k = call.ends()
    factor = score.factor(q.shape[-1])
    if isinstance(factor, Tensor):
        q, factor = q * factor.reshape(-1, 1).to(q.dtype), 1.0
    ranges = call.graph.ranges()
    assert ranges is not None
    y: Tensor = attend_tiles(_batched(q), _batched(k), _batched(call.v), *ranges, float(factor))[0]
    return y.squeeze(0) if call.v.ndim == 3 else y.reshape(*call.v.shape[:-3], *y.shape[1:])


def _pairs(graph: Graph) -> int:
    """Pairs inside the tiles, those included which the graph masks."""
    if graph.rule is not None:
        return _pairs_of_rule(graph.rule, graph.num_receivers, graph.num_senders, graph.offset)
    return graph.num_edges


def _pairs_of_rule(rule: Rule, receivers: int, senders: int, offset: int) -> int:
    ranges = lowering.few_intervals(rule, lowering.positions(receivers, offset, torch.device("cpu")), senders)
    assert ranges is not None and library is not None
    starts, stops = (x.contiguous() for x in ranges)
    tiling = library.Tiling()
    tiling.receivers, tiling.senders = receivers, senders
    tiling.set_ranges(starts.shape[1], starts.data_ptr(), stops.data_ptr())
    return int(library.pairs_in_tiles(tiling))


# As for `lowering.count_edges`: torch.compile runs it while it traces.
_pairs_of_rule._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _batched(x: Tensor) -> Tensor:
    """[*, N, H, C] -> [B, N, H, C], each row's numbers one after another."""
    return rows_contiguous(x.unsqueeze(0) if x.ndim == 3 else x.flatten(0, x.ndim - 4))


# The operator: q [B, I, H, C], k [B, J, H, C], v [B, J, H, D], starts and stops [I, R]


def _tiling(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, stops: Tensor, scale: float) -> Any:
    call = library.Tiling()  # type: ignore[union-attr]
    call.threads, call.scale = threads(), scale
    call.batch, call.receivers, call.heads, call.channels = q.shape
    call.senders, call.values = v.shape[1], v.shape[3]
    call.set_ranges(starts.shape[1], starts.data_ptr(), stops.data_ptr())
    call.q, call.k, call.v = matrix(q), matrix(k), matrix(v)
    return call


def _attend(q: Tensor, k: Tensor, v: Tensor, starts: Tensor, stops: Tensor, scale: float) -> tuple[Tensor, Tensor]:
    y, lse = _attend_shape(q, k, v, starts, stops, scale)
    q, k, v, starts, stops = *map(rows_contiguous, (q, k, v)), starts.contiguous(), stops.contiguous()
    call = _tiling(q, k, v, starts, stops, scale)
    call.y, call.lse = matrix(y), lse.data_ptr()
    library.attend_tiles(DTYPES[v.dtype], call)  # type: ignore[union-attr]
    return y, lse


def _attend_shape(
    q: Tensor, k: Tensor, v: Tensor, starts: Tensor, stops: Tensor, scale: float
) -> tuple[Tensor, Tensor]:
    """y [B, I, H, D], and the log-sum-exp [B, H, I] in the kernel's own base."""
    batch, receivers, heads, _ = q.shape
    y = v.new_empty(batch, receivers, heads, v.shape[3])
    return y, v.new_empty(batch, heads, receivers, dtype=wide(v.dtype))


def _attend_save(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
    *tensors, ctx.scale = inputs
    y, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, y, lse)


def _attend_backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    dy = grads[0]
    if dy is None:
        return (None,) * 6
    q, k, v, starts, stops, y, lse = ctx.saved_tensors
    if differentiated_again(dy, q, k, v):
        found = _attend_again(dy, q, k, v, starts, stops, ctx.scale)
    else:
        found = attend_tiles_gradient(dy, q, k, v, starts, stops, ctx.scale, y, lse)
    return (*found, None, None, None)


def _attend_again(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, starts: Tensor, stops: Tensor, scale: float
) -> Sequence[Tensor | None]:
    """The same gradients by differentiable operations, for second derivatives."""
    from edgewise.kernels import segment

    # Fresh names for the inputs, so that one tensor used twice has two gradients.
    q, k, v = (x.view_as(x) for x in (q, k, v))
    graph = Graph.from_ranges(starts, stops, v.shape[1])
    y = segment.run(Attend(graph, q, k, v, Dot(scale)))
    assert isinstance(y, Tensor)
    return gradients_again(y, (q, k, v), dy)


def _attend_gradient(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, starts: Tensor, stops: Tensor, scale: float, y: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    dq, dk, dv = _attend_gradient_shape(dy, q, k, v, starts, stops, scale, y, lse)
    dy, q, k, v = map(rows_contiguous, (dy, q, k, v))
    starts, stops = starts.contiguous(), stops.contiguous()
    call = _tiling(q, k, v, starts, stops, scale)
    call.dy, call.y, call.lse = matrix(dy), matrix(y), lse.data_ptr()
    call.dq, call.dk, call.dv = matrix(dq), matrix(dk), matrix(dv)
    library.attend_tiles_gradient(DTYPES[v.dtype], call)  # type: ignore[union-attr]
    return dq, dk, dv


def _attend_gradient_shape(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, starts: Tensor, stops: Tensor, scale: float, y: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)


_INPUTS = "Tensor q, Tensor k, Tensor v, Tensor starts, Tensor stops, float scale"

attend_tiles_gradient = Operator(
    "attend_tiles_gradient",
    f"(Tensor dy, {_INPUTS}, Tensor y, Tensor lse) -> (Tensor, Tensor, Tensor)",
    _attend_gradient,
    _attend_gradient_shape,
)
attend_tiles = Operator(
    "attend_tiles",
    f"({_INPUTS}) -> (Tensor, Tensor)",
    _attend,
    _attend_shape,
    _attend_save,
    _attend_backward,
)
