"""The tiles of pairs in which a graph's edges lie: ranges of senders in an order of receivers, and bits in them."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn.functional import pad

from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.graphs.forms import intervals_of, range_count
from edgewise.graphs.rule import Blocks, Rule, constant
from edgewise.graphs.tracing import is_real
from edgewise.native import library

LEAST, EMPTY = 8, 16  # edges of a receiver for which, and pairs for each edge up to which bits are made; assumed
BITS = 32  # receivers of a word
AROUND = 40  # pairs of a receiver in the tiles of a causal graph or a window that are no edges: 23 to 63
COUNTED = 1 << 22  # receivers of a rule, up to which the pairs of all are counted
STEP = 32  # senders by which tiles are cut, as pairs_in_tiles has it
SAMPLES, SAMPLE = 64, 1 << 12  # parts of more of them, and receivers of each whose pairs are

Tiles = tuple[Tensor, Tensor, Tensor | None]  # starts, stops [I, R], and the order of the nodes in which they hold


@cached
def tiles_of(graph: Graph) -> Tiles | None:
    """The graph's ranges, those of its nodes in another order where they are fewer, or what its edges lie within.

    None where there are too many, or too few edges in them.
    """
    device = graph.device
    if (reordered := _by_block(graph)) is not None:
        blocks, order = reordered
        starts, stops = blocks.intervals(torch.arange(graph.num_receivers, device=device), graph.num_senders)
        return starts.contiguous(), stops.contiguous(), torch.tensor(order(), dtype=torch.int64, device=device)
    ranges = graph.ranges()
    return _spans(graph) if ranges is None else (ranges[0].contiguous(), ranges[1].contiguous(), None)


def _by_block(graph: Graph) -> tuple[Blocks, Callable[[], list[int]]] | None:
    """The blocks that a graph by rule is in another order, and what lists it."""
    rule, extent = graph.rule, (graph.num_receivers, graph.num_senders)
    return rule.by_block() if rule is not None and graph.offset == 0 and rule.extent == extent else None


def has_tiles(graph: Graph) -> bool:
    """Whether there are tiles, which of a rule are not made for it."""
    if graph.rule is None:
        return tiles_of(graph) is not None
    return range_count(graph) is not None or _by_block(graph) is not None


def _spans(graph: Graph) -> Tiles | None:
    """For each receiver from its first sender to its last, where a good part of the pairs in such tiles are edges."""
    if graph.rule is not None or graph.is_mapped or library is None or graph.device.type != "cpu":
        return None
    if not is_real(graph.offsets) or graph.num_edges < LEAST * max(1, graph.num_receivers):
        return None
    some = graph.in_degrees() > 0
    starts = graph.offsets.new_zeros(graph.num_receivers, 1)
    stops = starts.clone()
    starts[some, 0] = graph.senders[graph.offsets[:-1][some]]
    stops[some, 0] = graph.senders[graph.offsets[1:][some] - 1] + 1
    pairs = _pairs_of_ranges(starts, stops, graph.num_senders)
    return (starts, stops, None) if pairs <= EMPTY * graph.num_edges else None


def says_everything(graph: Graph) -> bool:
    """Whether every pair inside a rule's or ranges' tiles is an edge."""
    return graph.rule is not None or graph.ranges() is not None


@cached
def words_of(graph: Graph) -> tuple[Tensor, Tensor] | None:
    """Bits of the edges: words int32, and for each block of receivers first and last sender, and where its words begin.

    None where a rule or ranges say everything.
    """
    tiles = tiles_of(graph)
    if tiles is None or says_everything(graph):
        return None
    (starts, stops), count = tiles[:2], -(-graph.num_receivers // BITS)
    beyond = (0, count * BITS - graph.num_receivers)
    first = torch.where(stops > starts, starts, graph.num_senders).squeeze(1)
    first = pad(first, beyond, value=graph.num_senders).view(count, BITS).amin(1)
    last = pad(stops.squeeze(1), beyond).view(count, BITS).amax(1)
    lengths = (last - first).clamp(min=0)
    begin, block = lengths.cumsum(0) - lengths, graph.receivers // BITS
    words = torch.zeros(int(lengths.sum()), dtype=torch.int64)
    words.index_add_(0, (begin - first)[block] + graph.senders, 1 << graph.receivers % BITS)
    signed = torch.where(words < 1 << BITS - 1, words, words - (1 << BITS))
    return signed.to(torch.int32), torch.stack([first, first + lengths, begin], 1)


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
    tiling.set_ranges(starts.shape[1], starts.data_ptr(), stops.data_ptr())
    return int(library.pairs_in_tiles(tiling))
