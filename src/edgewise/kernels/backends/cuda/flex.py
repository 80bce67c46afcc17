"""PyTorch's FlexAttention, compiled, on graphs whose senders are a few ranges for each receiver.

Its block mask is built from the ranges, never from a predicate on all pairs: O(I·R) time and memory, beside the lists
of blocks. Blocks of 128 × 128 pairs which are empty cost nothing, full ones need no mask.

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
from edgewise.graphs.derived import cached
from edgewise.graphs.forms import counts, range_count
from edgewise.graphs.rule import Causal, Intervals, Window
from edgewise.kernels.backend import Attention, Backend, Cost, Takes
from edgewise.kernels.backends.cuda import programs as gpu
from edgewise.kernels.backends.torch import segment
from edgewise.kernels.call import Attend, Call
from edgewise.kernels.operator.layout import heads_first, unflat
from edgewise.kernels.operator.operator import by_operations, gradients
from edgewise.kernels.scores import Bias, Dot, RelativeBias, SenderBias

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

SOFTMAX = 8  # products for a pair's exponential; assumed
CALL, BIAS = 16, 2  # launches of a call, by an H100's host, and more of each bias; assumed
SLOWER = 1.6  # than flash attention for a pair, in half precision; a step is 1.5 to 1.7 times as long on an H200
RANGE = 12  # operations for a pair whose mask is read as bounds of its row; on an H100
BLOCK = 128  # FlexAttention's own; a block's bits are [BLOCK, WORDS] words
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
    return _refuses_graph(call.graph)


def _refuses_graph(graph: Graph) -> str | None:
    if not graph.num_edges:
        return "the graph has no edges"
    return "it runs on graphs whose senders are ranges only" if range_count(graph) is None else None


def cost(call: Call) -> Cost:
    """Pairs inside the blocks, at the speed of matrix products; how many blocks is estimated, not counted."""
    assert isinstance(call, Attend)
    graph, (rows, columns) = call.graph, shape_of(call.graph)
    ranges = range_count(graph)
    assert ranges is not None
    blocks = graph.num_edges // BLOCK**2 + 2 * ranges * rows  # beside full ones, a range has some at both of its ends
    pairs = min(blocks, rows * columns) * BLOCK**2
    width = call.v.shape[-1] + call.ends()[0].shape[-1]
    numbers = call.v.shape[:-3].numel() * call.heads * pairs
    masked = 0 if band_of(graph) else RANGE
    slower = SLOWER if call.dtype.itemsize < 4 else 1
    return Cost(
        flops=int(2 * numbers * (width + SOFTMAX) * slower),
        edges=masked * numbers,
        bytes=16 * call.v.numel(),
        launches=CALL + BIAS * len(call.score.biases),
    )


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
    summary="PyTorch's FlexAttention on a GPU: windows and other graphs whose senders are ranges",
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
        if not _is_beyond_limit(error):
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

    def quietly(*inputs: Any, **options: Any) -> Any:
        if torch.compiler.is_compiling():
            return flex_attention(*inputs, **options)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # uncompiled it warns that it is slow
            return flex_attention(*inputs, **options)

    if device == "cpu":
        return quietly
    compiled = torch.compile(flex_attention, fullgraph=True)

    def attention(*inputs: Any, **options: Any) -> Any:
        if torch.compiler.is_compiling():
            return flex_attention(*inputs, **options)
        try:
            return compiled(*inputs, **options)
        except Exception as error:
            if not _is_beyond_limit(error):
                raise
        with torch._dynamo.config.patch(recompile_limit=COMPILED):  # takes as long as a kernel: where it must be alone
            return compiled(*inputs, **options)

    return attention


def _is_beyond_limit(error: Exception) -> bool:
    return type(error).__name__ == "FailOnRecompileLimitHit"  # of a module that takes seconds to import


# Mods: small functions of a pair's batch, head, receiver and sender, which FlexAttention compiles into its kernel


def score_mod(call: Attend) -> Mod | None:
    """What FlexAttention makes of qᵢ·kⱼ / √C: other scales, the soft cap, the biases; None where there is none."""
    score, graph = call.score, call.graph
    assert isinstance(score, Dot)
    terms = [_term(call, bias) for bias in score.biases]
    factor = None
    if isinstance(score.scale, float | int):
        factor = number_of(graph, score.scale * call.ends()[0].shape[-1] ** 0.5)
    cap = None if score.cap is None else number_of(graph, float(score.cap))
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
    reach, offset = number_of(graph, table.shape[1] // 2), number_of(graph, graph.offset)

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
    bounds, offsets, last = bounds_of(ranges), graph.offsets, number_of(graph, graph.num_edges - 1)

    def edge(i: Tensor, j: Tensor) -> Tensor:
        at = offsets[i]
        for starts, stops in bounds:  # of each range, the senders before j
            at = at + torch.relu(torch.minimum(j, stops[i]) - starts[i])
        return torch.minimum(at, last)

    return edge


# The block mask of a graph, from its band or ranges, in O(I·R) time and memory beside the lists of blocks


@cached
def number_of(graph: Graph, value: float) -> Tensor:
    """A number that a kernel reads: one in a closure would be compiled into it, or make it impossible to compile."""
    return torch.tensor(value, device=graph.device)


@cached
def block_mask(graph: Graph) -> BlockMask:
    """The graph as FlexAttention reads it."""
    from torch.nn.attention.flex_attention import BlockMask

    row, column, pairs = tiles(graph)
    full = pairs == BLOCK**2
    rows, columns = shape_of(graph)
    by_column = torch.sort(column, stable=True).indices
    lists = _lists("kv", row, column, full, rows)
    lists |= _lists("q", column[by_column], row[by_column], full[by_column], columns)
    ranges = graph.ranges()
    if (band := band_of(graph)) is not None:
        mask_mod = _in_band(band, graph.device)
    else:
        assert ranges is not None
        mask_mod = _in_ranges(ranges)
    lengths = (graph.num_receivers, graph.num_senders)
    return BlockMask(seq_lengths=lengths, BLOCK_SIZE=(BLOCK, BLOCK), mask_mod=mask_mod, **lists)


@cached
def tiles(graph: Graph) -> Tiles:
    """Every block of 128 × 128 pairs that holds an edge, and how many it holds."""
    ranges = graph.ranges()
    assert ranges is not None
    return _tiles_of_ranges(*ranges, shape_of(graph)[1])


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
    numbers = {f"{part}{name}": counts(rows[which], count) for part, which in (("", ~full), ("full_", full))}
    most = max([1, *(int(number.max()) for number in numbers.values() if count)])
    lists: dict[str, Any] = {}
    for (part, number), which in zip(numbers.items(), (~full, full), strict=True):
        row = rows[which]
        within = torch.arange(row.shape[0], device=row.device) - (number.cumsum(0) - number)[row]
        indices = torch.zeros(count, most, dtype=torch.int32, device=row.device)
        indices[row, within] = columns[which].to(torch.int32)
        lists |= {f"{part}_num_blocks": number.to(torch.int32)[None, None], f"{part}_indices": indices[None, None]}
    return lists


def bounds_of(ranges: Intervals) -> list[tuple[Tensor, Tensor]]:
    """Starts and stops [I] of the first range of each receiver, of the second, ..."""
    return [
        (starts.contiguous(), stops.contiguous())
        for starts, stops in zip(*(x.int().unbind(1) for x in ranges), strict=True)
    ]


def band_of(graph: Graph) -> tuple[int, int] | None:
    """The least and the largest j - i of edges, where all pairs between are edges."""
    rule = graph.rule
    if isinstance(rule, Window) and rule.dilation == 1:
        return graph.offset - rule.radius, graph.offset + (0 if rule.sides == "past" else rule.radius)
    return (-(2**31), graph.offset) if isinstance(rule, Causal) else None


def _in_band(band: tuple[int, int], device: torch.device) -> Mod:
    """By two numbers: with bounds read for every row a kernel takes three times as long (0.36 ms, not 0.13)."""
    least, largest = (torch.tensor(n, dtype=torch.int32, device=device) for n in band)

    def has_edge(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        ahead = j - i
        return (ahead >= least) & (ahead <= largest)

    return has_edge


def _in_ranges(ranges: Intervals) -> Mod:
    bounds = bounds_of(ranges)

    def has_edge(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        inside = j < 0
        for starts, stops in bounds:
            inside = inside | ((starts[i] <= j) & (j < stops[i]))
        return inside

    return has_edge


def shape_of(graph: Graph) -> tuple[int, int]:
    """Rows and columns of blocks."""
    return -(-graph.num_receivers // BLOCK), -(-graph.num_senders // BLOCK)
