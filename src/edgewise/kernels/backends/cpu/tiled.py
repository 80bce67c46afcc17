"""C++ kernels on the CPU for graphs by rule or ranges: dense tiles of pairs, whole ones skipped, without any edges.

A bias is a number for each edge; dropout is hashed from the numbers of receiver and sender.

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

from edgewise.graphs import Graph, complete
from edgewise.graphs.rule import Rule
from edgewise.kernels.backend import Attention, Backend, Cost, Probe, Takes
from edgewise.kernels.backends.cpu import KERNELS
from edgewise.kernels.backends.cpu.edges import MOST, matrix, wide
from edgewise.kernels.call import Attend, Call
from edgewise.kernels.operator.dropout import seed_for
from edgewise.kernels.operator.layout import flat, unflat
from edgewise.kernels.operator.operator import DTYPES, Operator
from edgewise.kernels.operator.products import rows_contiguous
from edgewise.kernels.operator.second_derivatives import differentiated_again, gradients_again
from edgewise.kernels.scores import Dot, EdgeBias
from edgewise.native import library, threads

SOFTMAX = 30  # products: what a pair's exponential costs; fitted
BIAS, DROP = 4, 4  # products likewise: its bias, and whether it is dropped; assumed
ROW, ALL_HEADS = 1800, 9000  # operations: for a row of a head beside its pairs, and for a row of all heads; fitted
NUMBER, LISTED = 4, 24  # bytes: of an edge's bias, and of an edge that has to be listed for it; counted
CALL = 4  # launches; fitted
PARTS = 8  # of a batch, whose gradients to a bias that they share are summed apart and then together


def _refuses_graph(call: Call) -> str | None:
    return "the graph has no form with few sender intervals per receiver" if _tiles(call.graph) is None else None


def cost(call: Call) -> Cost:
    """Pairs inside the tiles, at the speed of matrix products; a bias is a number more for each."""
    assert isinstance(call, Attend)
    pairs = call.graph.memo("pairs in tiles", lambda: _pairs(call.graph))
    width = call.v.shape[-1] + call.ends()[0].shape[-1]
    size, batch = call.v.element_size(), call.v.shape[:-3].numel()
    width += DROP if call.dropout > 0 else 0
    numbers, biases = batch * call.heads * pairs, 0
    if call.score.biases:
        width += BIAS
        # Edges have to be listed where a bias does not come as a number for each.
        listed = all(isinstance(bias, EdgeBias) for bias in call.score.biases)
        biases = (NUMBER * call.heads + (0 if listed else LISTED)) * call.graph.num_edges
    rows = batch * (ROW * call.heads + ALL_HEADS) * call.graph.num_receivers
    return Cost(tiles=2 * numbers * (width + SOFTMAX) + rows, bytes=2 * size * call.v.numel() + biases, launches=CALL)


def run(call: Call) -> Tensor:
    """Compute the call on the graph's ranges."""
    assert isinstance(call, Attend) and isinstance(call.score, Dot)
    score, call = call.score, call.with_equal_heads()
    q, k = call.ends()
    factor = score.factor(q.shape[-1])
    if isinstance(factor, Tensor):
        q, factor = q * factor.reshape(-1, 1).to(q.dtype), 1.0
    graph = call.graph
    tiles = _tiles(graph)
    assert tiles is not None
    bias, places = score.edge_bias(graph), None
    if bias is not None:
        places = graph.memo("edges in tiles", lambda: _places(graph, *tiles))
        bias = bias.expand(*bias.shape[:-1], call.heads)
        bias = bias.unsqueeze(0) if bias.ndim == 2 else bias.expand(*call.v.shape[:-3], *bias.shape[-2:]).flatten(0, -3)
        bias = bias.transpose(1, 2).to(wide(call.v.dtype)).contiguous()  # [B or 1, H, E]
    q, k, v = (rows_contiguous(flat(x, 3)) for x in (q, k, call.v))
    seed = seed_for(graph, call.dropout)
    y: Tensor = attend_tiles(q, k, v, bias, *tiles, places, float(factor), call.dropout, seed)[0]
    return unflat(y, call)


BACKEND = Backend(
    name="tiled",
    summary="C++ on the CPU, dense tiles of pairs without any edges: graphs by rule or ranges",
    takes=Takes(dtypes=tuple(DTYPES), attend=Attention(scores=(Dot,)), nodes=MOST),
    devices=("cpu",),
    need=KERNELS,
    limits=_refuses_graph,
    cost=cost,
    run=run,
    probes=(Probe("cpu", "tiles", lambda device: complete(512)),),
)


Tiles = tuple[Tensor, Tensor, Tensor | None]  # starts, stops [I, R], and the order of the nodes in which they hold


def _tiles(graph: Graph) -> Tiles | None:
    """The graph's ranges, those of its nodes in another order where they are fewer; None where there are too many."""
    found: Tiles | None = graph.memo("tiles", lambda: _tiles_of(graph))
    return found


def _tiles_of(graph: Graph) -> Tiles | None:
    rule, device = graph.rule, graph.device
    if rule is not None and graph.offset == 0 and rule.extent == (graph.num_receivers, graph.num_senders):
        found = rule.by_block()
        if found is not None:
            order, blocks = found
            starts, stops = blocks.intervals(torch.arange(graph.num_receivers, device=device), graph.num_senders)
            return starts.contiguous(), stops.contiguous(), torch.tensor(order, dtype=torch.int64, device=device)
    ranges = graph.ranges()
    return None if ranges is None else (*ranges, None)


def _places(graph: Graph, starts: Tensor, stops: Tensor, order: Tensor | None) -> Tensor:
    """For each interval what added to a sender gives the number of its edge, int64 [I, R]."""
    first = graph.offsets[:-1] if order is None else graph.offsets[order]
    lengths = stops - starts
    return (first.unsqueeze(-1) + lengths.cumsum(1) - lengths - starts).contiguous()


def _pairs(graph: Graph) -> int:
    """Pairs inside the tiles, those included which the graph masks."""
    if graph.rule is not None:
        return _pairs_of_rule(graph.rule, graph.num_receivers, graph.num_senders, graph.offset)
    return graph.num_edges


def _pairs_of_rule(rule: Rule, receivers: int, senders: int, offset: int) -> int:
    tiles = _tiles_of(Graph(rule, receivers, senders, offset))
    assert tiles is not None and library is not None
    starts, stops = (x.contiguous() for x in tiles[:2])
    tiling = library.Tiling()
    tiling.receivers, tiling.senders = receivers, senders
    tiling.set_ranges(starts.shape[1], starts.data_ptr(), stops.data_ptr())
    return int(library.pairs_in_tiles(tiling))


# As for `lowering.count_edges`: torch.compile runs it while it traces.
_pairs_of_rule._dynamo_marked_constant = True  # type: ignore[attr-defined]


# The operator: q [B, I, H, C], k [B, J, H, C], v [B, J, H, D], bias [B or 1, H, E], starts, stops and places [I, R],
# order [N]: row order[n] of q, k and v is number n of starts and stops


def _tiling(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, starts: Tensor, stops: Tensor, order: Tensor | None,
    places: Tensor | None, scale: float, dropout: float, seed: Tensor,
) -> Any:  # fmt: skip
    call = library.Tiling()  # type: ignore[union-attr]
    call.threads, call.scale = threads(), scale
    if dropout > 0:
        call.dropout, call.seed = dropout, int(seed)
    call.batch, call.receivers, call.heads, call.channels = q.shape
    call.senders, call.values = v.shape[1], v.shape[3]
    call.set_ranges(starts.shape[1], starts.data_ptr(), stops.data_ptr())
    call.q, call.k, call.v = matrix(q), matrix(k), matrix(v)
    if order is not None:
        call.set_order(order.data_ptr())
    if bias is not None and places is not None:
        between = bias.stride(0) if bias.shape[0] > 1 else 0
        call.set_bias(bias.shape[2], places.data_ptr(), bias.data_ptr(), between)
    return call


def _attend(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, starts: Tensor, stops: Tensor, order: Tensor | None,
    places: Tensor | None, scale: float, dropout: float, seed: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    y, lse = _attend_shape(q, k, v, bias, starts, stops, order, places, scale, dropout, seed)
    q, k, v, starts, stops = *map(rows_contiguous, (q, k, v)), starts.contiguous(), stops.contiguous()
    call = _tiling(q, k, v, bias, starts, stops, order, places, scale, dropout, seed)
    call.y, call.lse = matrix(y), lse.data_ptr()
    library.attend_tiles(DTYPES[v.dtype], call)  # type: ignore[union-attr]
    return y, lse


def _attend_shape(
    q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, starts: Tensor, stops: Tensor, order: Tensor | None,
    places: Tensor | None, scale: float, dropout: float, seed: Tensor,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    """y [B, I, H, D], and the log-sum-exp [B, H, I] in the kernel's own base and order."""
    batch, receivers, heads, _ = q.shape
    y = v.new_empty(batch, receivers, heads, v.shape[3])
    return y, v.new_empty(batch, heads, receivers, dtype=wide(v.dtype))


def _attend_save(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
    *tensors, ctx.scale, ctx.dropout, seed = inputs
    y, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, seed, y, lse)


def _attend_backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    dy = grads[0]
    if dy is None:
        return (None,) * 11
    q, k, v, bias, starts, stops, order, places, seed, y, lse = ctx.saved_tensors
    structure, options = (starts, stops, order, places), (ctx.scale, ctx.dropout, seed)
    if differentiated_again(dy, q, k, v, bias):
        return *_attend_again(dy, q, k, v, bias, *structure, *options), *[None] * 7
    to_bias = bias is not None and ctx.needs_input_grad[3]
    dq, dk, dv, dbias = attend_tiles_gradient(dy, q, k, v, bias, *structure, *options, y, lse, to_bias)
    if not to_bias:
        dbias = None
    elif bias.shape[0] != dbias.shape[0]:
        dbias = dbias.sum(0, keepdim=True)
    return dq, dk, dv, dbias, *[None] * 7


def _attend_again(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, starts: Tensor, stops: Tensor,
    order: Tensor | None, places: Tensor | None, scale: float, dropout: float, seed: Tensor,
) -> Sequence[Tensor | None]:  # fmt: skip
    """The same gradients by differentiable operations, for second derivatives."""
    from edgewise.kernels.backends.torch import segment

    # Fresh names for the inputs, so that one tensor used twice has two gradients.
    inputs = [x if x is None else x.view_as(x) for x in (q, k, v, bias)]
    fresh_q, fresh_k, fresh_v, fresh_bias = inputs
    assert fresh_q is not None and fresh_k is not None and fresh_v is not None
    ends = [x if order is None else x.index_select(1, order) for x in (fresh_q, fresh_k, fresh_v, dy)]
    graph = Graph.from_ranges(starts, stops, v.shape[1])
    score = Dot(scale)
    if fresh_bias is not None and places is not None:
        beyond = torch.arange(graph.num_edges, device=v.device) - graph.offsets[graph.receivers]
        edges = (places + starts)[:, 0][graph.receivers] + beyond
        score = score + EdgeBias(fresh_bias.index_select(-1, edges).transpose(1, 2))
    result = segment.run(Attend(graph, ends[0], ends[1], ends[2], score, return_weights=True))
    assert isinstance(result, tuple)
    y, w_ij = result
    if dropout > 0:
        w_ij = w_ij * kept(graph, w_ij.shape, dropout, seed) / (1 - dropout)
        y = segment.weighted_values(graph, w_ij, ends[2])
    return gradients_again(y, inputs, ends[3])


def kept(graph: Graph, shape: Sequence[int], dropout: float, seed: Tensor) -> Tensor:
    """Which weights [B, E, H] the kernels keep, as they hash it from a receiver's number and a sender's."""
    batch, _, heads = shape
    low, high = int(seed) & WORD, int(seed) >> 32
    row = torch.arange(batch * heads).view(batch, 1, heads) * graph.num_receivers + graph.receivers.unsqueeze(-1)
    key = _second(_first(row & WORD, low) ^ high ^ ((row >> 32) * 0x9E3779B9 & WORD))
    return _second(_first(graph.senders, low).unsqueeze(-1) ^ key) >= int(dropout * 2**32)


WORD = 2**32 - 1


def _first(x: Tensor, low: int) -> Tensor:
    x = x ^ low
    x = (x ^ (x >> 16)) * 0x7FEB352D & WORD
    x = (x ^ (x >> 15)) * 0x846CA68B & WORD
    return x ^ (x >> 16)


def _second(x: Tensor) -> Tensor:
    x = (x ^ (x >> 16)) * 0x21F0AAAD & WORD
    x = (x ^ (x >> 15)) * 0xD35A2D97 & WORD
    return x ^ (x >> 15)


def _attend_gradient(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, starts: Tensor, stops: Tensor,
    order: Tensor | None, places: Tensor | None, scale: float, dropout: float, seed: Tensor, y: Tensor, lse: Tensor,
    to_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    dq, dk, dv, dbias = found = _attend_gradient_shape(
        dy, q, k, v, bias, starts, stops, order, places, scale, dropout, seed, y, lse, to_bias
    )
    dy, q, k, v = map(rows_contiguous, (dy, q, k, v))
    starts, stops = starts.contiguous(), stops.contiguous()
    call = _tiling(q, k, v, bias, starts, stops, order, places, scale, dropout, seed)
    call.dy, call.y, call.lse = matrix(dy), matrix(y), lse.data_ptr()
    call.dq, call.dk, call.dv = matrix(dq), matrix(dk), matrix(dv)
    if to_bias:
        call.set_dbias(dbias.shape[0], dbias.data_ptr())
    library.attend_tiles_gradient(DTYPES[v.dtype], call)  # type: ignore[union-attr]
    return found


def _attend_gradient_shape(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, bias: Tensor | None, starts: Tensor, stops: Tensor,
    order: Tensor | None, places: Tensor | None, scale: float, dropout: float, seed: Tensor, y: Tensor, lse: Tensor,
    to_bias: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """dq, dk, dv, and the gradient to the bias if it is asked for, summed over parts of a batch that shares it."""
    if to_bias and bias is not None:
        parts = min(v.shape[0], PARTS) if bias.shape[0] == 1 else v.shape[0]
        dbias = v.new_empty(parts, *bias.shape[1:], dtype=wide(v.dtype))
    else:
        dbias = v.new_empty(0, dtype=wide(v.dtype))
    return q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape), dbias


_ENDS = "Tensor q, Tensor k, Tensor v, Tensor? bias"
_INPUTS = (
    f"{_ENDS}, Tensor starts, Tensor stops, Tensor? order, Tensor? places, float scale, float dropout, Tensor seed"
)

attend_tiles_gradient = Operator(
    "attend_tiles_gradient",
    f"(Tensor dy, {_INPUTS}, Tensor y, Tensor lse, bool to_bias) -> (Tensor, Tensor, Tensor, Tensor)",
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
