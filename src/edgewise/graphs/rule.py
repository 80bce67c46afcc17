"""A rule says who listens to whom by a predicate on positions, and says the same as a few sender intervals."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from itertools import accumulate
from typing import Any, ClassVar, Literal

import torch
from torch import Tensor

from edgewise.graphs.derived import derived

Intervals = tuple[Tensor, Tensor]  # starts, stops [I, R]: half-open


class Rule:
    """Who listens to whom, as a function of positions alone.

    Equation    j is in N(i)  <=>  listens(i, j)  <=>  starts[i, r] <= j < stops[i, r] for one r
    Symbols     i = receiver position, j = sender position, R = intervals per receiver
    Shapes      listens: i, j broadcast -> bool;  intervals: i [I] -> starts, stops [I, R]
    Errors      none of its own: the pattern functions and `Graph` check their arguments, and a graph the intervals of a
                rule that is not the package's
    Edge cases  a receiver with fewer than R intervals has empty ones (start = stop)
    Cost        listens O(1) a pair; intervals O(I * R), never O(I * J)

    A new pattern is a frozen dataclass with these two methods. Its intervals are clipped to 0 <= j < senders,
    ascending and disjoint: each starts <= stops, and each stops where the next starts or before.
    """

    is_relative: ClassVar[bool] = False  # whether it depends on i - j alone

    @property
    def extent(self) -> tuple[int, int] | None:
        """How many receiver and sender positions the rule covers; None where it covers any number."""
        return None

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        raise NotImplementedError

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        raise NotImplementedError

    def edges_of(self, first: int, last: int, senders: int) -> int | None:
        """The edges of the receivers first, ..., last - 1 in closed form; None where there is none."""
        return None

    def transposed(self) -> Rule | None:
        """The rule of the reversed edges; None where it is no rule that we know."""
        return None

    def by_block(self) -> tuple[Blocks, Callable[[], list[int]]] | None:
        """`Blocks` that the graph is in another order of the nodes, and what lists it; None where none is needed."""
        return None


def written(rule: Rule) -> tuple[Any, ...]:
    """A rule as its class and its fields; one that is no dataclass as itself."""
    if not is_dataclass(rule):
        return (rule,)
    values = [getattr(rule, field.name) for field in fields(rule)]
    return type(rule), *[written(value) if isinstance(value, Rule) else value for value in values]


def read(parts: tuple[Any, ...]) -> Rule:
    """The rule that was `written`."""
    kind, *values = parts
    if isinstance(kind, Rule):
        return kind
    rule: Rule = kind(*[read(v) if isinstance(v, tuple) and v and isinstance(v[0], type | Rule) else v for v in values])
    return rule


def constant(of_rule: Callable[..., int]) -> Callable[..., int]:
    """A number that follows from a rule and sizes, computed by torch.compile while it traces: a sum would be no int.

    A rule that the compiled function makes itself reaches such a function without its fields, so they are handed over.
    """

    def of_parts(parts: tuple[Any, ...], *sizes: int) -> int:
        return of_rule(read(parts), *sizes)

    # All that torch.compiler.assume_constant_result does, but for importing the compiler, which takes seconds.
    of_parts._dynamo_marked_constant = True  # type: ignore[attr-defined]

    @wraps(of_rule)
    def number(rule: Rule, *sizes: int) -> int:
        return of_parts(written(rule), *sizes)

    return number


class Symmetric(Rule):
    """A rule which says the same about (i, j) and (j, i)."""

    def transposed(self) -> Rule:
        return self


def clip(starts: Tensor, stops: Tensor, senders: int) -> Intervals:
    """Cut ascending intervals to 0 <= j < senders."""
    return starts.clamp(0, senders), stops.clamp(0, senders)


def clipped_sum(first: int, last: int, senders: int) -> int:
    """The sum of min(max(p, 0), senders) over p = first, ..., last - 1."""
    above = max(0, last - max(first, senders))
    low, high = max(first, 0), min(last, senders)
    return above * senders + (high - low) * (low + high - 1) // 2 if high > low else above * senders


def ascending(starts: Tensor, stops: Tensor) -> Intervals:
    """Move intervals that are empty (stop <= start) to where the ones before them stop, so that each row ascends."""
    if starts.shape[1] == 0:
        return starts, stops
    empty = stops <= starts
    reached = stops.masked_fill(empty, 0).cummax(dim=1).values
    return torch.where(empty, reached, starts), torch.where(empty, reached, stops)


@dataclass(frozen=True)
class Complete(Symmetric):
    """Everyone listens to everyone."""

    is_relative = True

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        return (i >= 0) & (j >= 0)  # always, in the shape of i and j broadcast

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        starts = torch.zeros_like(i)[:, None]
        return starts, starts + senders


@dataclass(frozen=True)
class Itself(Symmetric):
    """Everyone listens to itself alone: j = i."""

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        return i == j

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        return clip(i[:, None], i[:, None] + 1, senders)


@dataclass(frozen=True)
class Others(Symmetric):
    """Everyone listens to everyone else: j != i."""

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        return i != j

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        first, last = torch.zeros_like(i), torch.full_like(i, senders)
        return clip(torch.stack([first, i + 1], dim=1), torch.stack([i, last], dim=1), senders)


@dataclass(frozen=True)
class Causal(Rule):
    """Listen to the past and to oneself: j <= i."""

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        return j <= i

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        return clip(torch.zeros_like(i)[:, None], i[:, None] + 1, senders)

    def edges_of(self, first: int, last: int, senders: int) -> int:
        return clipped_sum(first + 1, last + 1, senders)


@dataclass(frozen=True)
class Window(Rule):
    """Listen to the `radius` nearest positions on one or both sides, `dilation` apart, and to oneself."""

    is_relative: ClassVar[bool] = True

    radius: int
    dilation: int = 1
    sides: Literal["both", "past"] = "both"

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        back, reach = i - j, self.radius * self.dilation
        near = (back <= reach) & (back >= (0 if self.sides == "past" else -reach))
        return near & (back % self.dilation == 0)

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        ahead = 0 if self.sides == "past" else self.radius
        if self.dilation == 1:
            return clip(i[:, None] - self.radius, i[:, None] + ahead + 1, senders)
        i, most = i[:, None], max(1, -(-senders // self.dilation))  # of all senders only so many lie so far apart
        first = torch.maximum(i - self.radius * self.dilation, i % self.dilation)
        starts = first + torch.arange(min(self.radius + ahead + 1, most), device=i.device) * self.dilation
        return clip(starts, starts + (starts <= i + ahead * self.dilation), senders)

    def edges_of(self, first: int, last: int, senders: int) -> int:
        ahead, apart = 0 if self.sides == "past" else self.radius, self.dilation
        if 1 < apart <= self.radius:  # positions so far apart are a line of their own
            lines = [[-(-(end - start) // apart) for end in (first, last, senders)] for start in range(apart)]
            return sum(replace(self, dilation=1).edges_of(*line) for line in lines)
        steps = [(-self.radius, ahead)]  # of neighbours side by side
        if apart > 1:
            steps = [(step * apart, step * apart) for step in range(-self.radius, ahead + 1)]
        ends = [(first + near, last + near, first + far + 1, last + far + 1) for near, far in steps]
        return sum(clipped_sum(c, d, senders) - clipped_sum(a, b, senders) for a, b, c, d in ends)

    def transposed(self) -> Rule | None:
        return self if self.sides == "both" else None


@dataclass(frozen=True)
class Blocks(Rule):
    """Receivers of block b listen to the senders of block b, all to all: a batch of complete graphs."""

    receivers: tuple[int, ...]
    senders: tuple[int, ...]

    @property
    def extent(self) -> tuple[int, int]:
        return sum(self.receivers), sum(self.senders)

    @derived
    def _stops(self) -> tuple[Tensor, Tensor]:
        """Where the blocks of receivers and those of senders stop."""
        receivers, senders = (list(accumulate(sizes)) for sizes in (self.receivers, self.senders))
        return torch.tensor(receivers, dtype=torch.int64), torch.tensor(senders, dtype=torch.int64)

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        receivers, senders = (stops.to(i.device) for stops in self._stops)
        return torch.bucketize(i, receivers, right=True) == torch.bucketize(j, senders, right=True)

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        receiver_stops, sender_stops = (stops.to(i.device) for stops in self._stops)
        block = torch.bucketize(i, receiver_stops, right=True)
        bounds = torch.nn.functional.pad(sender_stops, (1, 0))
        return clip(bounds[block][:, None], bounds[block + 1][:, None], senders)

    def transposed(self) -> Rule:
        return Blocks(self.senders, self.receivers)


@dataclass(frozen=True)
class _Pair(Rule):
    """Two rules joined."""

    first: Rule
    second: Rule

    @property
    def extent(self) -> tuple[int, int] | None:
        a, b = self.first.extent, self.second.extent
        return a or b if a is None or b is None else (min(a[0], b[0]), min(a[1], b[1]))

    def transposed(self) -> Rule | None:
        first, second = self.first.transposed(), self.second.transposed()
        return None if first is None or second is None else type(self)(first, second)


@dataclass(frozen=True)
class Either(_Pair):
    """Union: i listens to j by one rule or by the other."""

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        return self.first.listens(i, j) | self.second.listens(i, j)

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        pairs = zip(self.first.intervals(i, senders), self.second.intervals(i, senders), strict=True)
        starts, stops = (torch.cat(pair, dim=1) for pair in pairs)
        starts, by_start = starts.sort(dim=1)
        reached = stops.gather(1, by_start).cummax(dim=1).values  # where all the intervals so far stop
        starts[:, 1:] = torch.maximum(starts[:, 1:], reached[:, :-1])
        return starts, torch.maximum(starts, reached)


@dataclass(frozen=True)
class Both(_Pair):
    """Intersection: i listens to j by one rule and by the other."""

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        return self.first.listens(i, j) & self.second.listens(i, j)

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        (starts, stops), (starts_2, stops_2) = self.first.intervals(i, senders), self.second.intervals(i, senders)
        return ascending(
            torch.maximum(starts[:, :, None], starts_2[:, None, :]).flatten(1),
            torch.minimum(stops[:, :, None], stops_2[:, None, :]).flatten(1),
        )
