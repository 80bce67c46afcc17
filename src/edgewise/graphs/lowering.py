"""From one exact form of a graph to the next: rule -> ranges -> edges. Plain functions on tensors.

Shape letters: I receivers, J senders, E edges, R intervals per receiver.
"""

from __future__ import annotations

from collections.abc import Iterator

import torch
from torch import Tensor

from edgewise.graphs.rule import Intervals, Rule

FEW = 8  # more intervals than this per receiver, and the edges themselves are the smaller form
CHUNK = 1 << 22  # intervals held at once while a rule with many of them is lowered


def positions(receivers: int, offset: int, device: torch.device) -> Tensor:
    """Where the receivers sit: offset, ..., offset + I - 1."""
    return torch.arange(offset, offset + receivers, device=device)


def interval_chunks(rule: Rule, at: Tensor, senders: int) -> Iterator[Intervals]:
    """The rule's intervals for the positions `at`, some receivers at a time so that memory stays bounded."""
    per_receiver = max(1, rule.intervals(at[:0], senders)[0].shape[1])
    for some in at.split(max(1, CHUNK // per_receiver)):
        yield rule.intervals(some, senders)


def few_intervals(rule: Rule, at: Tensor, senders: int) -> Intervals | None:
    """Ranges [I, R] of a rule, or None when they are too many to be worth keeping."""
    if rule.intervals(at[:0], senders)[0].shape[1] > FEW:
        return None
    return rule.intervals(at, senders)


def senders_of(starts: Tensor, stops: Tensor) -> Tensor:
    """All j of all intervals in order [E]: j counts up by one, and jumps where an interval begins."""
    starts, lengths = starts.flatten(), (stops - starts).flatten()
    first_edge = lengths.cumsum(0) - lengths
    jumps = torch.repeat_interleave(starts - first_edge, lengths)
    return jumps.add_(torch.arange(jumps.shape[0], device=jumps.device))


def offsets_of(degrees: Tensor) -> Tensor:
    """CSR row offsets [I + 1] of row lengths [I]."""
    return torch.nn.functional.pad(degrees.cumsum(0), (1, 0))


def receivers_of(offsets: Tensor) -> Tensor:
    """The receiver of each edge [E]."""
    rows = torch.arange(offsets.shape[0] - 1, device=offsets.device)
    return torch.repeat_interleave(rows, offsets.diff())


def sorted_edges(receivers: Tensor, senders: Tensor, num_receivers: int) -> tuple[Tensor, Tensor, Tensor]:
    """CSR (offsets, senders) of an edge list in any order, and the order: edge e was edge order[e] of the list.

    Two stable sorts, by sender and then by receiver: no key i * J + j that could overflow.
    """
    by_sender = torch.sort(senders, stable=True).indices
    by_receiver = torch.sort(receivers[by_sender], stable=True).indices
    order = by_sender[by_receiver]
    return offsets_of(counts(receivers, num_receivers)), senders[order], order


def counts(index: Tensor, size: int) -> Tensor:
    """How often each of 0 .. size - 1 occurs in `index`."""
    return torch.bincount(index, minlength=size)


def block_counts_of_edges(receivers: Tensor, senders: Tensor, shape: tuple[int, int], block: int) -> Tensor:
    """Edges in each block x block tile, in O(E)."""
    rows, columns = (-(-n // block) for n in shape)
    return counts((receivers // block) * columns + senders // block, rows * columns).view(rows, columns)


def block_counts_of_ranges(chunks: Iterator[Intervals], shape: tuple[int, int], block: int) -> Tensor:
    """Edges in each block x block tile, in O(I * R + tiles), without any edge.

    An interval [s, t) has max(0, B - s) - max(0, B - t) senders below B. Summed over the receivers of a tile row,
    sum_s max(0, B - s) = B * #{s < B} - sum{s : s < B}, so two histograms over tiles are enough.
    """
    device, rows, columns = torch.device("cpu"), -(-shape[0] // block), -(-shape[1] // block)
    below, first = None, 0
    for starts, stops in chunks:
        device = starts.device
        if below is None:
            below = torch.zeros(2, rows * (columns + 1), dtype=torch.int64, device=device)
        row = torch.arange(first, first + starts.shape[0], device=device) // block
        for sign, bound in ((1, starts), (-1, stops)):
            tile = (row[:, None] * (columns + 1) + bound // block).flatten()
            below[0].index_add_(0, tile, torch.full_like(tile, sign))
            below[1].index_add_(0, tile, bound.flatten(), alpha=sign)
        first += starts.shape[0]
    if below is None:
        return torch.zeros(rows, columns, dtype=torch.int64, device=device)
    number, total = below.view(2, rows, columns + 1)[:, :, :columns].cumsum(2)
    edge = torch.arange(1, columns + 1, device=device) * block
    return (edge * number - total).diff(dim=1, prepend=torch.zeros_like(number[:, :1]))
