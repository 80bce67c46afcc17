"""From one exact form of a graph to the next: rule -> ranges -> edges. Plain functions on tensors.

Shape letters: I receivers, J senders, E edges, R intervals per receiver.
"""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from edgewise import native
from edgewise.errors import GraphError
from edgewise.graphs import checks
from edgewise.graphs.derived import cached
from edgewise.graphs.rule import Both, Either, Intervals, Rule, constant
from edgewise.graphs.tracing import is_traced
from edgewise.memory import check_fits

FEW = 8  # with more intervals than this per receiver, the edges themselves are the smaller form
COUNTED = 1 << 31  # intervals of all receivers that are counted: a minute or so
LISTED = 1 << 13  # edges up to which receivers are listed at once: sooner than they are counted again
CHUNK = 1 << 20  # intervals held at once while a rule that has many of them is lowered


def positions(receivers: int, offset: int, device: torch.device) -> Tensor:
    """Where the receivers sit: offset, ..., offset + I - 1."""
    return torch.arange(offset, offset + receivers, device=device)


def intervals_of(rule: Rule, i: Tensor, senders: int) -> Intervals:
    """Those of the rule; of a rule that is not ours they are checked, since kernels follow them in memory.

    Errors      GraphError where a rule's intervals are not clipped to 0 <= j < senders, ascending and disjoint
    """
    found = rule.intervals(i, senders)
    if _is_ours(rule) or is_traced():
        return found
    try:
        starts, stops = checks.ranges(*found, senders)
        if starts.shape[0] != i.shape[0]:
            raise GraphError(f"there are {starts.shape[0]} rows for {i.shape[0]} receivers")
    except GraphError as error:
        first = f" from position {int(i[0])} on" if i.shape[0] else ""
        raise GraphError(f"the intervals of {rule} for receivers{first}: {error}") from None
    return starts, stops


def _is_ours(rule: Rule) -> bool:
    if isinstance(rule, Either | Both):
        return _is_ours(rule.first) and _is_ours(rule.second)
    return type(rule).__module__.partition(".")[0] == __name__.partition(".")[0]


def few(rule: Rule, receivers: int, offset: int, senders: int, device: torch.device) -> int | None:
    """R of the rule's intervals, none of which is made, or None where it is too large for ranges to be worth keeping.

    Errors      GraphError where a list of the ranges of all receivers would not fit in memory
    """
    per_receiver = intervals_of(rule, positions(0, offset, device), senders)[0].shape[1]
    if per_receiver > FEW:
        return None
    check_fits(8 * receivers * (2 * per_receiver + 1), "a list of the ranges of {:,} receivers", receivers)
    return per_receiver


def few_intervals(rule: Rule, receivers: int, offset: int, senders: int, device: torch.device) -> Intervals | None:
    """Ranges [I, R] for receivers at positions offset, ..., or None where R is too large to be worth keeping."""
    if few(rule, receivers, offset, senders, device) is None:
        return None
    return intervals_of(rule, positions(receivers, offset, device), senders)


def range_count(graph: Any) -> int | None:
    """R of a graph's ranges, which are not made for it; None where there is no form with few of them."""
    if graph.rule is not None and "_ranges" not in graph.__dict__:
        return few(graph.rule, *graph._extent())
    ranges = graph.ranges()
    return None if ranges is None else int(ranges[0].shape[1])


def interval_chunks(
    rule: Rule, receivers: int, offset: int, senders: int, device: torch.device | str = "cpu"
) -> Iterator[Intervals]:
    """The same for any R: some receivers at a time, so that memory stays bounded."""
    device = torch.device(device)
    step = max(1, CHUNK // max(1, intervals_of(rule, positions(0, offset, device), senders)[0].shape[1]))
    for first in range(0, max(1, receivers), step):
        yield intervals_of(rule, positions(min(step, receivers - first), offset + first, device), senders)


def count_edges(rule: Rule, receivers: int, senders: int, offset: int) -> int:
    """E of a rule graph, without edges."""
    counted = rule.edges_of(offset, offset + receivers, senders)
    return _summed(rule, receivers, senders, offset) if counted is None else counted


@constant
def _summed(rule: Rule, receivers: int, senders: int, offset: int) -> int:
    ranges = receivers * intervals_of(rule, positions(0, offset, torch.device("cpu")), senders)[0].shape[1]
    if ranges > COUNTED:
        what = f"the edges of {rule} are counted in {ranges:,} ranges of {receivers:,} receivers"
        raise GraphError(f"{what}, which takes too long: of at most {COUNTED:,}")
    return sum(int((stops - starts).sum()) for starts, stops in interval_chunks(rule, receivers, offset, senders))


def repeats_an_edge(offsets: Tensor, senders: Tensor) -> bool:
    """Whether some receiver lists a sender twice; its senders ascend."""
    same = torch.nn.functional.pad(senders[1:] == senders[:-1], (1, 0))
    same[offsets[:-1][offsets[:-1] < senders.shape[0]]] = False  # the first of a row repeats nothing
    return bool(same.any())


# As `rule.constant` has it.
repeats_an_edge._dynamo_marked_constant = True  # type: ignore[attr-defined]


def in_rows(starts: Tensor, stops: Tensor, counts: Tensor) -> Intervals:
    """Intervals one after the other as a table [I, R] of as many for each receiver as `counts` [I] says, then empty."""
    row = torch.repeat_interleave(counts)
    both = starts.new_zeros(2, len(counts), int(counts.max()) if len(counts) else 0)
    both[:, row, torch.arange(len(row)) - offsets_of(counts)[row]] = torch.stack([starts, stops])
    return both[0], both[1]


def senders_of(starts: Tensor, stops: Tensor, num_edges: int | None = None) -> Tensor:
    """All j of all intervals, in order [E]: they count up by one, and jump where an interval begins."""
    starts, lengths = starts.flatten(), (stops - starts).flatten()
    first_edge = lengths.cumsum(0) - lengths
    senders = torch.repeat_interleave(starts - first_edge, lengths, output_size=num_edges)
    return senders.add_(torch.arange(senders.shape[0], device=senders.device))


@cached
def compact_edges(graph: Any) -> tuple[Tensor, Tensor]:
    """(offsets [I + 1] int64, senders [E] int32): the edges as the C++ reads them, in its own memory or in a store.

    Of more than 2³¹ senders, which no C++ reads, they are int64.
    """
    if graph.is_mapped and graph._compact[1].dtype == torch.int32:
        return graph._compact
    senders = graph.senders.to(torch.int32 if graph.num_senders <= 1 << 31 else torch.int64)
    return graph.offsets.clone(memory_format=torch.contiguous_format), senders


def receivers_of(offsets: Tensor, num_edges: int) -> Tensor:
    """The receiver of each edge [E]."""
    return torch.repeat_interleave(offsets.diff(), output_size=num_edges)


def edges_of(offsets: Tensor, rows: Tensor) -> tuple[Tensor, Tensor]:
    """The edges of some rows, one row after the other: the place of each one's row among `rows`, and its number."""
    starts, stops = offsets[rows], offsets[rows + 1]
    return torch.repeat_interleave(stops - starts), senders_of(starts, stops)


def offsets_of(degrees: Tensor) -> Tensor:
    """CSR row offsets [I + 1] of row lengths [I]."""
    return torch.nn.functional.pad(degrees.cumsum(0), (1, 0))


def counts(index: Tensor, size: int) -> Tensor:
    """How often each of 0 .. size - 1 occurs in `index`."""
    # Not bincount: its length depends on the data, which torch.compile cannot trace.
    return torch.zeros(size, dtype=torch.int64, device=index.device).scatter_add_(0, index, torch.ones_like(index))


def compiled(*tensors: Tensor) -> ModuleType | None:
    """The C++ library where it can run on these tensors: it was built, and they are real ones on the CPU."""
    if torch.compiler.is_compiling() or not all(type(t) is Tensor and t.device.type == "cpu" for t in tensors):
        return None
    return native.library


def sorted_edges(
    receivers: Tensor, senders: Tensor, shape: tuple[int, int]
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """CSR (offsets, senders) of an edge list in any order, that order, and the receivers, unless there are many or they
    are compiled: edge e of the CSR is edge order[e].

    Errors      GraphError for an edge that leads out of the graph: it and the bound are named
    Edge cases  parallel edges keep the caller's order
    Cost        O(E) in C++, O(E log E) without it; the same bits either way
    """
    few = not torch.compiler.is_compiling() and receivers.shape[0] <= LISTED
    listed = torch.empty_like(receivers) if few else None
    built = _sorted_in_c(receivers, senders, shape, listed=listed)
    if built is not None:
        return *built, listed
    checks.ends(receivers, senders, shape)
    if not is_traced() and shape[0] * shape[1] > checks.MOST:  # a pair is no number of 64 bits
        order = torch.sort(senders, stable=True).indices
        order = order[torch.sort(receivers[order], stable=True).indices]
        return offsets_of(counts(receivers, shape[0])), senders[order], order, receivers[order] if few else None
    key = receivers * shape[1] + senders
    if bool((key[1:] >= key[:-1]).all()):
        order = torch.arange(key.shape[0], device=key.device)
    else:
        order = torch.sort(key, stable=True).indices  # stable: parallel edges keep the caller's order
    return offsets_of(counts(receivers, shape[0])), senders[order], order, receivers[order] if few else None


def transposed_edges(senders: Tensor, receivers: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor, Tensor]:
    """(offsets [J + 1], receivers [E], order [E]) by sender, of edges in the graph's own order."""
    built = _sorted_in_c(senders, receivers, (shape[1], shape[0]), ascending=True)
    if built is not None:
        return built
    # Stable: receivers ascend inside each row. Half as many bits are half the passes of a card's radix sort.
    order = torch.sort(senders.to(torch.int32) if shape[1] < 1 << 31 else senders, stable=True).indices
    return offsets_of(counts(senders, shape[1])), receivers[order], order


def _sorted_in_c(
    majors: Tensor, minors: Tensor, shape: tuple[int, int], ascending: bool = False, listed: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor] | None:
    """Edges sorted by major, then minor; None where the C++ cannot, or one leads out of bounds.

    Symbols     ascending = whether minors already ascend in the list, a graph's own; listed = what the majors go into
    """
    edges, (rows, columns) = majors.shape[0], shape
    check_fits(8 * rows, "a list of where the edges of each of {:,} nodes begin", rows)
    offsets = majors.new_empty(rows + 1)
    library = compiled(majors, minors)
    if library is None or rows.bit_length() + columns.bit_length() > 63:  # a pair must fit in a word
        return None
    majors, minors = majors.contiguous(), minors.contiguous()
    by_major, order = torch.empty_like(minors), torch.empty_like(minors)
    inside = library.sort_edges(
        native.threads(),
        *(edges, rows, columns, majors.data_ptr(), minors.data_ptr(), ascending),
        *(offsets.data_ptr(), by_major.data_ptr(), order.data_ptr(), 0 if listed is None else listed.data_ptr()),
    )
    return (offsets, by_major, order) if inside else None
