"""PyTorch's FlexAttention, compiled, on graphs by rule or ranges, and on others whose edges lie close together.

Its block mask is built from the ranges or the edges, never from a predicate on all pairs: O(I·R) or O(E) time and
memory, beside the lists of blocks. Blocks of 128 × 128 pairs which are empty cost nothing, full ones need no mask.

Cost        time O(blocks·128²·H·C), memory O(N·H·C); on the CPU all pairs, uncompiled, forward only: for tests
Differs     second derivatives are those of `segment`; the gradients of biases are added up in no fixed order
Reference   Dong et al., Flex Attention, 2024
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs import forms as lowering
from edgewise.graphs.derived import cached
from edgewise.graphs.rule import Intervals
from edgewise.kernels.backend import Attention, Backend, Cost, Takes
from edgewise.kernels.backends.cuda import programs as gpu
from edgewise.kernels.backends.torch import segment
from edgewise.kernels.call import Attend, Call
from edgewise.kernels.operator.gradients import by_operations, gradients
from edgewise.kernels.operator.layout import heads_first, unflat
from edgewise.kernels.scores import Bias, Dot, EdgeBias, RelativeBias, SenderBias

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

BLOCK = 128  # FlexAttention's own; a block's bits are [BLOCK, WORDS] words
WORDS = BLOCK // 32
SOFTMAX, CALL = 8, 30  # products for a pair's exponential, and launches of a call; assumed
TABLE = 2**26  # entries of a table of all blocks that is still reasonable
BITMAPS = 2**20  # blocks with bitmaps, of 2 KB each, that are still reasonable
COMPILED = 64  # kinds of calls that may be compiled: biases, sizes of heads, dtypes, numbers of ranges

Mod = Callable[..., Tensor]
Tiles = tuple[Tensor, Tensor, Tensor]  # row, column and number of pairs of each block with any, by row, then column


def _refuses_call(call: Call) -> str | None:
    """Precisions and gradients that it lacks on a device, and graphs without a block mask."""
    assert isinstance(call, Attend)
    device, inputs = call.graph.device.type, (*call.ends(), call.v, *map(_tensor_of, call.score.biases))
    if device == "cuda" and call.dtype == torch.float64:
        return "FlexAttention does not compute in float64 on the GPU: use segment"
    if device == "cpu" and torch.is_grad_enabled() and any(x.requires_grad for x in inputs):
        return "FlexAttention has no gradients on the CPU"
    return _refuses_graph(call.graph, any(isinstance(bias, EdgeBias) for bias in call.score.biases))


def _refuses_graph(graph: Graph, edge_bias: bool) -> str | None:
    if not graph.num_edges:
        return "the graph has no edges"
    if graph.ranges() is not None:
        return None
    if edge_bias:
        return "a biased edge can be found by its ends only where the graph has ranges"
    rows, columns = _shape(graph)
    if rows * columns > TABLE:
        return f"a table of {rows} × {columns} blocks is too large"
    if min(graph.num_edges, rows * columns) > BITMAPS and len(tiles(graph)[0]) > BITMAPS:
        return f"the edges lie in more than {BITMAPS} blocks"
    return None


def cost(call: Call) -> Cost:
    """Pairs inside the blocks, at the speed of matrix products; how many blocks is estimated, not counted."""
    assert isinstance(call, Attend)
    graph, (rows, columns) = call.graph, _shape(call.graph)
    ranges = graph.ranges()
    # Beside full blocks, a range has some at both of its ends; edges without ranges may each lie in another block.
    blocks = graph.num_edges if ranges is None else graph.num_edges // BLOCK**2 + 2 * ranges[0].shape[1] * rows
    pairs = min(blocks, rows * columns) * BLOCK**2
    width = call.v.shape[-1] + call.ends()[0].shape[-1]
    numbers = call.v.shape[:-3].numel() * call.heads * pairs
    return Cost(flops=2 * numbers * (width + SOFTMAX), bytes=16 * call.v.numel(), launches=CALL)


def run(call: Call) -> Tensor:
    """Compute the call in the blocks that hold any of its edges."""
    assert isinstance(call, Attend) and isinstance(call.score, Dot)
    scale, (q, k) = call.score.scale, call.ends()
    if isinstance(scale, Tensor):
        q = q * (scale * q.shape[-1] ** 0.5).reshape(-1, 1).to(q.dtype)
        call = replace(call, q=q, score=replace(call.score, scale=None))
    inputs = (q, k, call.v, *map(_tensor_of, call.score.biases))
    if torch.compiler.is_compiling() or not (torch.is_grad_enabled() and any(x.requires_grad for x in inputs)):
        return _attend(call)
    y: Tensor = Differentiable.apply(call, *inputs)  # type: ignore[no-untyped-call]
    return y


BACKEND = Backend(
    name="flex",
    summary="PyTorch's FlexAttention on a GPU: windows and other graphs whose edges lie close together",
    takes=Takes(attend=Attention(scores=(Dot,), cap=True, dropout=False, least=16), parallel=False),
    devices=("cuda",),
    by_name=("cpu",),
    need=gpu.TRITON,
    limits=_refuses_call,
    cost=cost,
    run=run,
)


def _attend(call: Attend) -> Tensor:
    q, k, v = (heads_first(x) for x in (*call.ends(), call.v))
    mask = block_mask(call.graph)
    try:
        y: Tensor = _flex_attention(q.device.type)(q, k, v, score_mod(call), mask, enable_gqa=q.shape[1] != k.shape[1])
    except Exception as error:
        if type(error).__name__ != "FailOnRecompileLimitHit":  # of a module that takes seconds to import
            raise
        warnings.warn(f"flex has compiled {COMPILED} kinds of calls; others run on segment", stacklevel=2)
        return segment.run(call)  # type: ignore[return-value]
    return unflat(y.transpose(1, 2), call)


class Differentiable(torch.autograd.Function):
    """FlexAttention, which has first derivatives, with second ones by plain PyTorch operations."""

    @staticmethod
    def forward(ctx: Any, call: Attend, *inputs: Tensor) -> Tensor:
        """The call, whose tensors are also given one by one."""
        with torch.enable_grad():
            ctx.leaves = [x.detach().requires_grad_(x.requires_grad) for x in inputs]
            ctx.y = _attend(_with(call, ctx.leaves))
        ctx.call = call
        ctx.save_for_backward(*inputs)
        return ctx.y.detach()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        """FlexAttention's own gradients, unless they are to be differentiated in turn."""
        (dy,), inputs = grads, ctx.saved_tensors
        if by_operations(dy, *inputs):
            return None, *gradients(lambda *inputs: segment.run(_with(ctx.call, inputs)), inputs, [dy])
        leaves = [x for x in ctx.leaves if x.requires_grad]
        # As whoever asks: what was compiled for graphs that are used once refuses to keep one.
        kept = torch._C._autograd._get_current_graph_task_keep_graph()
        own = iter(torch.autograd.grad(ctx.y, leaves, dy, retain_graph=kept, allow_unused=True))
        return None, *(next(own) if x.requires_grad else None for x in ctx.leaves)


def _with(call: Attend, inputs: Sequence[Tensor]) -> Attend:
    """The same call on other tensors."""
    q, k, v, *values = inputs
    biases = tuple(type(bias)(x) for bias, x in zip(call.score.biases, values, strict=True))
    return replace(call, q=q, k=k, v=v, score=replace(call.score, biases=biases))


def _tensor_of(bias: Bias) -> Tensor:
    return bias.table if isinstance(bias, RelativeBias) else bias.values


@functools.cache
def _flex_attention(device: str) -> Callable[..., Tensor]:
    """FlexAttention, compiled where it is to be fast."""
    from torch.nn.attention.flex_attention import flex_attention

    compiled = flex_attention if device == "cpu" else torch.compile(flex_attention, fullgraph=True)

    def attention(*inputs: Any, **options: Any) -> Any:
        if torch.compiler.is_compiling():
            return flex_attention(*inputs, **options)
        with warnings.catch_warnings(), torch._dynamo.config.patch(recompile_limit=COMPILED):
            warnings.simplefilter("ignore")  # uncompiled it warns that it is slow
            return compiled(*inputs, **options)

    return attention


@cached
def _number(graph: Graph, value: float) -> Tensor:
    """A number that a kernel reads: one in a closure would be compiled into it, or make it impossible to compile."""
    return torch.tensor(value, device=graph.device)


# Mods: small functions of a pair's batch, head, receiver and sender, which FlexAttention compiles into its kernel


def score_mod(call: Attend) -> Mod | None:
    """What FlexAttention makes of qᵢ·kⱼ / √C: other scales, the soft cap, the biases; None where there is none."""
    score, graph = call.score, call.graph
    assert isinstance(score, Dot)
    terms = [_term(call, bias) for bias in score.biases]
    factor = None
    if isinstance(score.scale, float | int):
        factor = _number(graph, score.scale * call.ends()[0].shape[-1] ** 0.5)
    cap = None if score.cap is None else _number(graph, float(score.cap))
    if factor is None and cap is None and not terms:
        return None

    def mod(s: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        s = s if factor is None else s * factor
        s = s if cap is None else cap * torch.tanh(s / cap)
        for term in terms:
            s = s + term(b, h, i, j)
        return s

    return mod


def _term(call: Attend, bias: Bias) -> Mod:
    if isinstance(bias, RelativeBias):
        return _relative(call.graph, bias.table.expand(call.heads, -1))
    if isinstance(bias, SenderBias):
        return _looked_up(call, bias.values, lambda i, j: j)
    return _looked_up(call, bias.values, _edge_of_pair(call.graph))


def _relative(graph: Graph, table: Tensor) -> Mod:
    reach, offset = _number(graph, table.shape[1] // 2), _number(graph, graph.offset)

    def term(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return table[h, torch.clamp(i + offset - j, -reach, reach) + reach]

    return term


def _looked_up(call: Attend, values: Tensor, place: Mod) -> Mod:
    """A bias [*, N, H or 1] at the place of a pair."""
    if values.ndim > 2:
        values = values.expand(*call.v.shape[:-3], *values.shape[-2:]).flatten(0, -3)
    batched, shared = values.ndim > 2, values.shape[-1] == 1
    values = values.squeeze(-1) if shared else values

    def term(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        at = place(i, j)
        if shared:
            return values[b, at] if batched else values[at]
        return values[b, at, h] if batched else values[at, h]

    return term


@cached
def _edge_of_pair(graph: Graph) -> Mod:
    """The number of the edge from j to i; of some edge where there is none."""
    ranges = graph.ranges()
    assert ranges is not None
    bounds, offsets, last = _bounds(ranges), graph.offsets, _number(graph, graph.num_edges - 1)

    def edge(i: Tensor, j: Tensor) -> Tensor:
        at = offsets[i]
        for starts, stops in bounds:  # of each range, the senders before j
            at = at + torch.relu(torch.minimum(j, stops[i]) - starts[i])
        return torch.minimum(at, last)

    return edge


# The block mask


@cached
def block_mask(graph: Graph) -> BlockMask:
    """The graph as FlexAttention reads it."""
    from torch.nn.attention.flex_attention import BlockMask

    row, column, pairs = tiles(graph)
    full = pairs == BLOCK**2
    rows, columns = _shape(graph)
    by_column = torch.sort(column, stable=True).indices
    lists = _lists("kv", row, column, full, rows)
    lists |= _lists("q", column[by_column], row[by_column], full[by_column], columns)
    ranges = graph.ranges()
    mask_mod = _in_bitmaps(graph, full) if ranges is None else _in_ranges(ranges)
    lengths = (graph.num_receivers, graph.num_senders)
    return BlockMask(seq_lengths=lengths, BLOCK_SIZE=(BLOCK, BLOCK), mask_mod=mask_mod, **lists)


@cached
def tiles(graph: Graph) -> Tiles:
    """Every block of 128 × 128 pairs that holds an edge, and how many it holds."""
    columns, ranges = _shape(graph)[1], graph.ranges()
    if ranges is not None:
        return _tiles_of_ranges(*ranges, columns)
    block, pairs = torch.unique(graph.receivers // BLOCK * columns + graph.senders // BLOCK, return_counts=True)
    return block // columns, block % columns, pairs


def _tiles_of_ranges(starts: Tensor, stops: Tensor, columns: int) -> Tiles:
    """The same from ranges: those that touch a row of blocks are merged, and the pairs in front of a bound counted.

    A range [s, t) has max(0, x - s) - max(0, x - t) senders below x. Summed over a row of blocks, that is x times the
    ranges which are open at x, less the sum of the bounds below x with their signs: two cumulative sums.
    """
    row = (torch.arange(starts.shape[0], device=starts.device) // BLOCK)[:, None].expand_as(starts)
    some = stops > starts
    row, starts, stops = row[some], starts[some], stops[some]
    # Runs of blocks that are touched: they begin where ranges open and end where all are closed.
    bound = torch.cat([row * (columns + 1) + starts // BLOCK, row * (columns + 1) + (stops - 1) // BLOCK + 1])
    sign = torch.ones_like(bound)
    sign[starts.shape[0] :] = -1
    bound, inverse = torch.unique(bound, return_inverse=True)
    open_ranges = torch.zeros_like(bound).index_add(0, inverse, sign).cumsum(0)
    length = torch.where(open_ranges[:-1] > 0, bound.diff(), 0)
    block = torch.repeat_interleave(bound[:-1] - length.cumsum(0) + length, length)
    block = block + torch.arange(block.shape[0], device=block.device)
    row_of, column = block // (columns + 1), block % (columns + 1)
    # Pairs in each: what lies below its right bound, less what lies below its left one.
    width = (columns + 1) * BLOCK
    place, order = torch.cat([row * width + starts, row * width + stops]).sort()
    number = torch.nn.functional.pad(sign[order].cumsum(0), (1, 0))
    total = torch.nn.functional.pad((sign[order] * (place % width)).cumsum(0), (1, 0))
    edges = torch.stack([column, column + 1]) * BLOCK
    below = torch.searchsorted(place, row_of * width + edges)
    left, right = edges * number[below] - total[below]
    return row_of, column, right - left


def _lists(name: str, rows: Tensor, columns: Tensor, full: Tensor, count: int) -> dict[str, Any]:
    """How many blocks in part and full ones each row has [1, 1, rows], and which, in front of zeros [1, 1, rows, most].

    Both lists are as wide as the longest row of either: PyTorch's kernels read the full blocks at the strides of the
    others (2.11 in all kernels, 2.13 in that of few receivers).
    """
    numbers = {f"{part}{name}": lowering.counts(rows[which], count) for part, which in (("", ~full), ("full_", full))}
    most = max([1, *(int(number.max()) for number in numbers.values() if count)])
    lists: dict[str, Any] = {}
    for (part, number), which in zip(numbers.items(), (~full, full), strict=True):
        row = rows[which]
        within = torch.arange(row.shape[0], device=row.device) - (number.cumsum(0) - number)[row]
        indices = torch.zeros(count, most, dtype=torch.int32, device=row.device)
        indices[row, within] = columns[which].to(torch.int32)
        lists |= {f"{part}_num_blocks": number.to(torch.int32)[None, None], f"{part}_indices": indices[None, None]}
    return lists


def _bounds(ranges: Intervals) -> list[tuple[Tensor, Tensor]]:
    """Starts and stops [I] of the first range of each receiver, of the second, ..."""
    return [
        (starts.contiguous(), stops.contiguous())
        for starts, stops in zip(*(x.int().unbind(1) for x in ranges), strict=True)
    ]


def _in_ranges(ranges: Intervals) -> Mod:
    bounds = _bounds(ranges)

    def has_edge(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        inside = j < 0
        for starts, stops in bounds:
            inside = inside | ((starts[i] <= j) & (j < stops[i]))
        return inside

    return has_edge


def _in_bitmaps(graph: Graph, full: Tensor) -> Mod:
    """By a bit for each pair of the blocks that are neither empty (number 0) nor full (number 1)."""
    row, column, _ = tiles(graph)
    rows, columns = _shape(graph)
    width = _number(graph, columns)
    number = torch.where(full, 1, 1 + (~full).cumsum(0))
    table = torch.zeros(rows * columns, dtype=torch.int32, device=row.device)
    table[row * columns + column] = number.to(torch.int32)
    i, j = graph.receivers, graph.senders
    block = table[i // BLOCK * columns + j // BLOCK].long()
    i, j, block = (x[block > 1] for x in (i, j, block))
    words = torch.zeros((2 + int((~full).sum())) * BLOCK * WORDS, dtype=torch.int64, device=row.device)
    words.index_add_(0, (block * BLOCK + i % BLOCK) * WORDS + j % BLOCK // 32, 1 << (j % 32))
    words[BLOCK * WORDS : 2 * BLOCK * WORDS] = 2**32 - 1
    bits = words.to(torch.int32)  # the same 32 bits

    def has_edge(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        block = table[i // BLOCK * width + j // BLOCK]
        word = bits[(block * BLOCK + i % BLOCK) * WORDS + j % BLOCK // 32]
        return (word >> (j % 32)) & 1 == 1

    return has_edge


def _shape(graph: Graph) -> tuple[int, int]:
    """Rows and columns of blocks."""
    return -(-graph.num_receivers // BLOCK), -(-graph.num_senders // BLOCK)
