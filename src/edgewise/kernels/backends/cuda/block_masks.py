"""FlexAttention's block mask of a graph, from its band or ranges, never from a predicate on all pairs.

Cost        O(I·R) time and memory, beside the lists of blocks
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs import forms as lowering
from edgewise.graphs.derived import cached
from edgewise.graphs.rule import Causal, Intervals, Window

if TYPE_CHECKING:
    from torch.nn.attention.flex_attention import BlockMask

BLOCK = 128  # FlexAttention's own; a block's bits are [BLOCK, WORDS] words

Mod = Callable[..., Tensor]
Tiles = tuple[Tensor, Tensor, Tensor]  # row, column and number of pairs of each block with any, by row, then column


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
