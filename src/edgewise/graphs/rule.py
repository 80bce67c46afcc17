"""A rule says who listens to whom by a predicate on positions, and knows the same thing as a few sender intervals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate

import torch
from torch import Tensor

Intervals = tuple[Tensor, Tensor]  # starts, stops: [I, R], half-open


class Rule:
    """Who listens to whom, as a function of positions alone.

    Equation    j is in N(i)  <=>  listens(i, j)  <=>  starts[i, r] <= j < stops[i, r] for one r
    Symbols     i = receiver position, j = sender position, R = intervals per receiver
    Shapes      listens: i, j broadcast -> bool;  intervals: i [I] -> starts, stops [I, R]
    Errors      none of its own: the pattern functions and `Graph` check their arguments
    Edge cases  a receiver with fewer than R intervals has empty ones (start = stop)
    Cost        listens O(1) a pair; intervals O(I * R), never O(I * J)

    A new pattern is a frozen dataclass with these two methods. Its intervals are ascending and disjoint
    (`starts <= stops`, each stop at most the next start) and clipped to `0 <= j < senders`.
    """

    @property
    def extent(self) -> tuple[int, int] | None:
        """Receiver and sender positions that the rule covers; None where it covers any."""
        return None

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        raise NotImplementedError

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        raise NotImplementedError

    def transposed(self) -> Rule | None:
        """The rule of the reversed edges, where it is a rule that we know; None elsewhere."""
        return None


def clip(starts: Tensor, stops: Tensor, senders: int) -> Intervals:
    """Cut ascending intervals to 0 <= j < senders; one that ends before it starts becomes empty."""
    starts = starts.clamp(0, senders)
    return starts, torch.maximum(stops.clamp(0, senders), starts)


@dataclass(frozen=True)
class Complete(Rule):
    """Everyone listens to everyone."""

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        return (i >= 0) & (j >= 0)

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        starts = torch.zeros_like(i)[:, None]
        return starts, starts + senders

    def transposed(self) -> Rule:
        return self


@dataclass(frozen=True)
class Itself(Rule):
    """Everyone listens to itself alone: the self-loops."""

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        return i == j

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        return clip(i[:, None], i[:, None] + 1, senders)

    def transposed(self) -> Rule:
        return self


@dataclass(frozen=True)
class Others(Rule):
    """Everyone listens to everyone but itself."""

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        return i != j

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        before, after = torch.zeros_like(i), torch.full_like(i, senders)
        return clip(torch.stack([before, i + 1], 1), torch.stack([i, after], 1), senders)

    def transposed(self) -> Rule:
        return self


@dataclass(frozen=True)
class Blocks(Rule):
    """Receivers of block b listen to all senders of block b: a batch of complete graphs."""

    receivers: tuple[int, ...]
    senders: tuple[int, ...]

    @cached_property
    def extent(self) -> tuple[int, int]:
        return sum(self.receivers), sum(self.senders)

    @cached_property
    def _receiver_stops(self) -> Tensor:
        return torch.tensor(list(accumulate(self.receivers)), dtype=torch.int64)

    @cached_property
    def _sender_stops(self) -> Tensor:
        return torch.tensor(list(accumulate(self.senders)), dtype=torch.int64)

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        block_i = torch.bucketize(i, self._receiver_stops.to(i.device), right=True)
        block_j = torch.bucketize(j, self._sender_stops.to(j.device), right=True)
        return block_i == block_j

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        block = torch.bucketize(i, self._receiver_stops.to(i.device), right=True)
        bounds = torch.nn.functional.pad(self._sender_stops, (1, 0)).to(i.device)
        return clip(bounds[block][:, None], bounds[block + 1][:, None], senders)

    def transposed(self) -> Rule:
        return Blocks(self.senders, self.receivers)


@dataclass(frozen=True)
class Either(Rule):
    """Union: i listens to j by one rule or by the other."""

    first: Rule
    second: Rule

    @property
    def extent(self) -> tuple[int, int] | None:
        return _smaller(self.first.extent, self.second.extent)

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        return self.first.listens(i, j) | self.second.listens(i, j)

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        pairs = zip(self.first.intervals(i, senders), self.second.intervals(i, senders), strict=True)
        starts, stops = (torch.cat(pair, dim=1) for pair in pairs)
        starts, by_start = starts.sort(dim=1)
        reached = stops.gather(1, by_start).cummax(dim=1).values  # first sender after all intervals so far
        starts[:, 1:] = torch.maximum(starts[:, 1:], reached[:, :-1])
        return starts, torch.maximum(starts, reached)

    def transposed(self) -> Rule | None:
        first, second = self.first.transposed(), self.second.transposed()
        return Either(first, second) if first and second else None


@dataclass(frozen=True)
class Both(Rule):
    """Intersection: i listens to j by one rule and by the other."""

    first: Rule
    second: Rule

    @property
    def extent(self) -> tuple[int, int] | None:
        return _smaller(self.first.extent, self.second.extent)

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        return self.first.listens(i, j) & self.second.listens(i, j)

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        (a, b), (c, d) = self.first.intervals(i, senders), self.second.intervals(i, senders)
        starts = torch.maximum(a[:, :, None], c[:, None, :]).flatten(1)
        stops = torch.minimum(b[:, :, None], d[:, None, :]).flatten(1)
        return ascending(starts, stops)

    def transposed(self) -> Rule | None:
        first, second = self.first.transposed(), self.second.transposed()
        return Both(first, second) if first and second else None


def ascending(starts: Tensor, stops: Tensor) -> Intervals:
    """Move empty intervals (stop <= start) to where the ones before them end, so that the row ascends."""
    empty = stops <= starts
    reached = stops.masked_fill(empty, 0).cummax(dim=1).values if stops.shape[1] else stops
    return torch.where(empty, reached, starts), torch.where(empty, reached, stops)


def _smaller(a: tuple[int, int] | None, b: tuple[int, int] | None) -> tuple[int, int] | None:
    if a is None or b is None:
        return a or b
    return min(a[0], b[0]), min(a[1], b[1])
