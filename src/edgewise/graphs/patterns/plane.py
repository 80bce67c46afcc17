"""Patterns in the plane: the pixels of an image of height x width, row by row."""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs.checks import whole_number
from edgewise.graphs.graph import Graph
from edgewise.graphs.rule import Blocks, Intervals, Symmetric, ascending, clip


@dataclass(frozen=True)
class Pixels(Symmetric):
    """Rules on the pixels of a height x width image, row by row."""

    height: int
    width: int

    @property
    def extent(self) -> tuple[int, int]:
        return self.height * self.width, self.height * self.width

    def edges_of(self, first: int, last: int, senders: int) -> int | None:
        whole = self.height * self.width
        return self.all_edges() if (first, last, senders) == (0, whole, whole) else None

    def all_edges(self) -> int:
        """The edges of the whole image, in closed form."""
        raise NotImplementedError

    def apart(self, i: Tensor, j: Tensor) -> tuple[Tensor, Tensor]:
        """How many rows and columns lie between two pixels."""
        return (i // self.width - j // self.width).abs(), (i % self.width - j % self.width).abs()


@dataclass(frozen=True)
class Grid(Pixels):
    """Pixels listen to the 4 or 8 around, and to themselves if `loops`."""

    neighbors: int = 8
    loops: bool = True

    def all_edges(self) -> int:
        down, across, own = pairs_within(1, self.height), pairs_within(1, self.width), self.height * self.width
        around = down * across if self.neighbors == 8 else down * self.width + self.height * across - own
        return around if self.loops else around - own

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        down, across = self.apart(i, j)
        near = (down <= 1) & (across <= 1) if self.neighbors == 8 else down + across <= 1
        return near if self.loops else near & (i != j)

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        if self.width == 0:
            return i.new_zeros(0, 1), i.new_zeros(0, 1)
        i = i[:, None]
        x = i % self.width
        left, right = i - (x > 0).long(), i + (x < self.width - 1).long()
        beside = (left, right) if self.neighbors == 8 else (i, i)  # first and last in the rows above and below
        own = [(left, right)] if self.loops else [(left, i - 1), (i + 1, right)]
        rows = [tuple(end - self.width for end in beside), *own, tuple(end + self.width for end in beside)]
        first, last = (torch.cat(ends, dim=1) for ends in zip(*rows, strict=True))
        return clip(first, last + 1, senders)


def grid(height: int, width: int, neighbors: int = 8, loops: bool = True) -> Graph:
    """The pixels of an image: each listens to those around it, and to itself if `loops`.

    Equation    N(i) = {j : max(|y_i - y_j|, |x_i - x_j|) <= 1}, with neighbors=4 {j : |y_i - y_j| + |x_i - x_j| <= 1}
    Symbols     i = y * width + x: pixels row by row
    Errors      a number that is not whole, or negative; neighbors other than 4 or 8

    >>> from edgewise.graphs import draw
    >>> print(draw(grid(2, 2, neighbors=4)))
    ###.
    ##.#
    #.##
    .###
    """
    height, width = whole_number(height, "height"), whole_number(width, "width")
    if neighbors not in (4, 8):
        raise GraphError(f"neighbors must be 4 or 8, not {neighbors!r}")
    return Graph(Grid(height, width, neighbors, bool(loops)))


@dataclass(frozen=True)
class Squares(Pixels):
    """Pixels listen to their own square of size x size."""

    size: int
    shift: int = 0

    def all_edges(self) -> int:
        down, across = ([len(places) ** 2 for places in axis] for axis in self.cuts())
        return sum(down) * sum(across)

    def cuts(self) -> tuple[list[range], list[range]]:
        """The rows of each row of squares, and the columns of each column."""
        first = self.shift - self.size if self.shift else 0
        down, across = (
            [range(max(0, at), min(at + self.size, extent)) for at in range(first, extent, self.size)]
            for extent in (self.height, self.width)
        )
        return down, across

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        down = (i // self.width - self.shift) // self.size == (j // self.width - self.shift) // self.size
        return down & ((i % self.width - self.shift) // self.size == (j % self.width - self.shift) // self.size)

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        if self.width == 0:
            return i.new_zeros(0, 1), i.new_zeros(0, 1)
        (top, bottom), (left, right) = (
            (first.clamp(min=0), (first + self.size).clamp(max=extent))
            for position, extent in ((i // self.width, self.height), (i % self.width, self.width))
            for first in ((position - self.shift) // self.size * self.size + self.shift,)
        )
        rows = top[:, None] + torch.arange(self.size, device=i.device)
        starts, stops = rows * self.width + left[:, None], rows * self.width + right[:, None]
        inside = rows < bottom[:, None]
        end = (bottom * self.width)[:, None]
        return clip(torch.where(inside, starts, end), torch.where(inside, stops, end), senders)

    def by_block(self) -> tuple[Blocks, Callable[[], list[int]]]:
        down, across = self.cuts()
        sizes = tuple(len(rows) * len(columns) for rows in down for columns in across)
        return Blocks(sizes, sizes), lambda: [
            y * self.width + x for rows in down for columns in across for y in rows for x in columns
        ]


def squares(height: int, width: int, size: int, shift: int = 0) -> Graph:
    """The pixels of an image, cut into squares: each listens to all of its square and to nothing outside.

    Equation    N(i) = {j : floor((y_j - shift) / size) = floor((y_i - shift) / size), and the same of x}
    Symbols     i = y * width + x: pixels row by row; shift = where the first whole square begins, down and across
    Errors      a number that is not whole; height, width or shift negative, size below 1; a shift of size or more
    Edge cases  the squares at the borders are smaller where size does not divide, or with a shift
    Reference   Liu et al., Swin Transformer, 2021, §3.2: windows, and windows shifted by half their size

    >>> from edgewise.graphs import draw
    >>> print(draw(squares(2, 4, 2)))
    ##..##..
    ##..##..
    ..##..##
    ..##..##
    ##..##..
    ##..##..
    ..##..##
    ..##..##
    """
    height, width = whole_number(height, "height"), whole_number(width, "width")
    size, shift = whole_number(size, "size", least=1), whole_number(shift, "shift")
    if shift >= size:
        raise GraphError(f"shift={shift} must be below size={size}: the squares repeat after that")
    longest = max(height, width)
    size, shift = min(size, longest + 1), min(shift, longest)  # of larger ones the same pixels are there
    return Graph(Squares(height, width, size, shift))


@dataclass(frozen=True)
class Disc(Pixels):
    """Pixels listen to those no farther away than `radius`."""

    radius: float
    torus: bool = False

    @property
    def square(self) -> int:
        """The largest square of a distance within it, which is a whole number; a radius of 2.99999999999 is 3."""
        return int(min(self.radius * self.radius, self.height**2 + self.width**2) + 1e-9)

    @property
    def reach(self) -> int:
        """How many rows up or down the farthest neighbours lie."""
        return math.isqrt(self.square)

    def half_width(self, down: int) -> int:
        """How many columns the disc reaches to each side, so many rows up or down."""
        return math.isqrt(self.square - down**2)

    def all_edges(self) -> int:
        rows = ((abs(d), self.half_width(d)) for d in range(-self.reach, self.reach + 1))
        if self.torus:
            return self.height * self.width * sum(2 * half + 1 for _, half in rows)
        return sum(max(0, self.height - d) * pairs_within(half, self.width) for d, half in rows)

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        down, across = self.apart(i, j)
        if self.torus:
            down, across = torch.minimum(down, self.height - down), torch.minimum(across, self.width - across)
        return down.square() + across.square() <= self.square

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        if self.width == 0:
            return i.new_zeros(0, 1), i.new_zeros(0, 1)
        down = torch.arange(-self.reach, self.reach + 1, device=i.device)
        beside = torch.tensor([self.half_width(d) for d in down.tolist()], device=i.device)
        y, x = i[:, None] // self.width + down, i[:, None] % self.width
        left, right = x - beside, x + beside + 1
        if not self.torus:
            rows = y * self.width
            return clip(rows + left.clamp(min=0), rows + right.clamp(max=self.width), senders)
        rows = y % self.height * self.width
        over, under = (
            (right - self.width).clamp(min=0),
            left.clamp(max=0),
        )  # leaving one side, entering the other
        starts = torch.cat([rows, rows + left.clamp(min=0), rows + self.width + under], 1)
        stops = torch.cat([rows + over, rows + right.clamp(max=self.width), rows + self.width], 1)
        starts, order = starts.sort(1)
        return clip(*ascending(starts, stops.gather(1, order)), senders)


def pairs_within(apart: int, extent: int) -> int:
    """How many pairs of 0, ..., extent - 1 are at most so far apart.

    >>> pairs_within(1, extent=3)
    7
    """
    apart = max(0, min(apart, extent - 1))
    return (2 * apart + 1) * extent - apart * (apart + 1)


def disc(height: int, width: int, radius: float = 1.5, torus: bool = False) -> Graph:
    """The pixels of an image: each listens to those within a distance, which no rotation changes, and to itself.

    Equation    N(i) = {j : (y_i - y_j)² + (x_i - x_j)² <= radius²}, on a torus with y modulo height, x modulo width
    Symbols     i = y * width + x: pixels row by row; radius 1.5 is the square of 9, 2.3 that of 25 without its corners
    Errors      sizes that are not whole, or negative; a radius that is negative, infinite or reaches around a torus

    >>> from edgewise.graphs import draw
    >>> print(draw(disc(2, 3, radius=1)))
    ##.#..
    ###.#.
    .##..#
    #..##.
    .#.###
    ..#.##
    """
    height, width = whole_number(height, "height"), whole_number(width, "width")
    if not (isinstance(radius, int | float) and 0 <= radius <= sys.float_info.max):
        raise GraphError(f"radius must be a finite number of at least 0, not {radius!r}")
    rule = Disc(height, width, float(radius), bool(torus))
    if torus and 2 * rule.reach + 1 > min(height, width):
        raise GraphError(f"a radius of {radius:g} reaches around a torus of {height} x {width} pixels")
    return Graph(rule)
