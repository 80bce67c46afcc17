"""The tiles of pairs in which a graph's edges lie: ranges of senders in an order of receivers."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.graphs.forms import FEW, in_rows, intervals_of, range_count
from edgewise.graphs.rule import Blocks, Rule, constant
from edgewise.graphs.tracing import is_real
from edgewise.native import library

AROUND = 40  # pairs of a receiver in the tiles of a causal graph or a window that are no edges: 23 to 63
COUNTED = 1 << 22  # receivers of a rule, up to which the pairs of all are counted
STEP = 32  # senders by which tiles are cut, as pairs_in_tiles has it
LONG = 16  # edges to consecutive senders that are worth a range in place of a list; assumed
FIRST = 1 << 12  # edges of a list that are looked at before all of them are
SAMPLES, SAMPLE = 64, 1 << 12  # parts of more of them, and receivers of each whose pairs are

Tiles = tuple[Tensor, Tensor, Tensor | None]  # starts, stops [I, R], and the order of the nodes in which they hold


def tiles_of(graph: Graph) -> Tiles | None:
    """The graph's ranges, or fewer of its nodes in another order; None where there are too many.

    Edge cases  a list of edges has those of its runs of consecutive senders, as of all pairs but loops, unless traced
    """
    if not graph.is_list:
        return _tiles_of(graph)
    long = is_real(graph.senders) and 0 < LONG * graph.num_receivers <= graph.num_edges
    return _runs_of(graph) if long else None


@cached
def _runs_of(graph: Graph) -> Tiles | None:
    senders, offsets = graph.senders, graph.offsets
    some = senders[:FIRST]
    if LONG * (int((some.diff() != 1).sum()) - FEW) > len(some):  # their runs are short: so are others
        return None
    begins = functional.pad(senders.diff() != 1, (1, 0), value=True)
    begins[offsets[:-1][graph.in_degrees() > 0]] = True
    first = begins.nonzero().flatten()
    counts = torch.bincount(torch.bucketize(first, offsets[1:], right=True), minlength=graph.num_receivers)
    if LONG * int(counts.max()) * graph.num_receivers > len(senders):
        return None
    last = functional.pad(first[1:], (0, 1), value=len(senders)) - 1
    return *in_rows(senders[first], senders[last] + 1, counts), None


@cached
def _tiles_of(graph: Graph) -> Tiles | None:
    device = graph.device
    if (reordered := _by_block(graph)) is not None:
        blocks, order = reordered
        starts, stops = blocks.intervals(torch.arange(graph.num_receivers, device=device), graph.num_senders)
        return starts.contiguous(), stops.contiguous(), torch.tensor(order(), dtype=torch.int64, device=device)
    ranges = graph.ranges()
    return None if ranges is None else (ranges[0].contiguous(), ranges[1].contiguous(), None)


def _by_block(graph: Graph) -> tuple[Blocks, Callable[[], list[int]]] | None:
    """The blocks that a graph by rule is in another order, and what lists it."""
    rule, extent = graph.rule, (graph.num_receivers, graph.num_senders)
    return rule.by_block() if rule is not None and graph.offset == 0 and rule.extent == extent else None


def has_tiles(graph: Graph) -> bool:
    """Whether there are tiles, which of a rule are not made for it."""
    if graph.rule is None:
        return tiles_of(graph) is not None
    return range_count(graph) is not None or _by_block(graph) is not None


@cached
def places_of(graph: Graph) -> Tensor:
    """For each interval what added to a sender gives the number of its edge, int64 [I, R]."""
    tiles = tiles_of(graph)
    assert tiles is not None
    starts, stops, order = tiles
    first = graph.offsets[:-1] if order is None else graph.offsets[order]
    lengths = stops - starts
    return (first.unsqueeze(-1) + lengths.cumsum(1) - lengths - starts).contiguous()


@cached
def pairs_of(graph: Graph) -> int:
    """Pairs inside the tiles, those which the graph masks among them; for torch.compile, whose sizes change, about."""
    if graph.rule is not None and torch.compiler.is_compiling():
        return graph.num_edges + (0 if graph.is_complete else AROUND * graph.num_receivers)
    if graph.rule is not None:
        return _pairs_of_rule(graph.rule, graph.num_receivers, graph.num_senders, graph.offset)
    tiles = tiles_of(graph)
    if tiles is None or library is None or not is_real(tiles[0]):
        return graph.num_edges
    return _pairs_of_ranges(tiles[0], tiles[1], graph.num_senders)


@constant
def _pairs_of_rule(rule: Rule, receivers: int, senders: int, offset: int) -> int:
    graph = Graph(rule, receivers, senders, offset)
    if receivers > COUNTED:  # about, by some receivers in each part
        reordered, pairs = _by_block(graph), 0
        rule = rule if reordered is None else reordered[0]
        for part in range(SAMPLES):
            first = (2 * part + 1) * receivers // (2 * SAMPLES) // SAMPLE * SAMPLE  # tiles begin as in the whole
            found = intervals_of(rule, torch.arange(first, first + SAMPLE) + offset, senders)
            starts, stops = (ends.clone(memory_format=torch.contiguous_format) for ends in found)
            starts[:1] -= starts[:1] % STEP
            pairs += _pairs_of_ranges(starts, stops, senders)
        return pairs * receivers // (SAMPLES * SAMPLE)
    tiles = tiles_of(graph)
    assert tiles is not None
    return _pairs_of_ranges(tiles[0], tiles[1], senders)


def _pairs_of_ranges(starts: Tensor, stops: Tensor, senders: int) -> int:
    tiling = library.Tiling()
    tiling.receivers, tiling.senders = len(starts), senders
    tiling.ranges, tiling.starts, tiling.stops = starts.shape[1], starts.data_ptr(), stops.data_ptr()
    return int(library.pairs_in_tiles(tiling))
