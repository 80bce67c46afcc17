"""Graphs by rule: each pattern is a predicate on positions, the same as intervals, and the function that checks.

`draw(graph)` shows a small graph as text: a row for each receiver, a column for each sender. Every pattern costs
nothing until it is lowered; its ranges then take O(I) and its edges O(E).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs.checks import whole_number
from edgewise.graphs.graph import Graph
from edgewise.graphs.rule import Blocks, Complete, Intervals, Rule, Squares, Symmetric, ascending, clip


def complete(receivers: int, senders: int | None = None) -> Graph:
    """Everyone listens to everyone: a transformer's encoder; with `senders`, cross-attention.

    Equation    N(i) = {0, ..., J - 1}
    Symbols     receivers = I, senders = J (None: I)
    Errors      a number that is not whole, or negative

    >>> print(draw(complete(2, 3)))
    ###
    ###
    """
    receivers = whole_number(receivers, "receivers")
    return Graph(Complete(), receivers, receivers if senders is None else whole_number(senders, "senders"))


@dataclass(frozen=True)
class Causal(Rule):
    """Listen to the past and to oneself: j <= i."""

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        return j <= i

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        return clip(torch.zeros_like(i)[:, None], i[:, None] + 1, senders)


def causal(n: int, senders: int | None = None, offset: int = 0) -> Graph:
    """Everyone listens to the past and to itself: a transformer's decoder.

    Equation    N(i) = {j : j <= i + offset}
    Symbols     n = I receivers, at positions offset, ..., offset + n - 1; senders = J (None: offset + n)
    Errors      a number that is not whole, or negative

    >>> print(draw(causal(3)))
    #..
    ##.
    ###
    >>> print(draw(causal(1, offset=2)))  # one new token, with two in the cache
    ###
    """
    n, offset = whole_number(n, "n"), whole_number(offset, "offset")
    return Graph(Causal(), n, offset + n if senders is None else whole_number(senders, "senders"), offset)


@dataclass(frozen=True)
class Window(Rule):
    """Listen to the `radius` nearest positions on one or both sides, `dilation` apart, and to oneself."""

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
        steps = torch.arange(-self.radius, ahead + 1, device=i.device)
        starts = i[:, None] + steps * self.dilation
        return clip(starts, starts + 1, senders)

    def transposed(self) -> Rule | None:
        return self if self.sides == "both" else None


def window(n: int, radius: int, dilation: int = 1, sides: Literal["both", "past"] = "both") -> Graph:
    """Everyone listens to itself and to `radius` others on each side, or on the side of the past.

    Equation    N(i) = {j : |i - j| <= radius * dilation and dilation divides i - j}, with sides="past" only j <= i
    Errors      a number that is not whole; n or radius negative, dilation below 1; another word for sides
    Reference   Beltagy, Peters and Cohan, Longformer: The Long-Document Transformer, 2020

    >>> print(draw(window(4, 1)))
    ##..
    ###.
    .###
    ..##
    """
    n, radius = whole_number(n, "n"), whole_number(radius, "radius")
    dilation = whole_number(dilation, "dilation", least=1)
    if sides not in ("both", "past"):
        raise GraphError(f"sides must be 'both' or 'past', not {sides!r}")
    return Graph(Window(radius, dilation, sides), n, n)


def _sizes(sizes: Sequence[int] | Tensor, name: str) -> tuple[int, ...]:
    listed = sizes.tolist() if isinstance(sizes, Tensor) else sizes
    return tuple(whole_number(size, f"{name}[{b}]") for b, size in enumerate(listed))


def blocks(
    sizes: int | Sequence[int] | Tensor, size: int | None = None, senders: Sequence[int] | Tensor | None = None
) -> Graph:
    """Nodes in blocks; everyone listens to its whole block and to nobody outside.

    Equation    N(i) = {j : block(j) = block(i)}
    Symbols     `blocks([3, 2])` gives the size of each block; `blocks(n, size)` cuts n nodes into blocks of one size,
                the last of which is smaller where size does not divide n; senders = other sizes on the senders' side
    Errors      a size that is not whole, or negative; not one size of senders for each block
    Edge cases  a block may be empty, on either side

    >>> print(draw(blocks(5, 2)))
    ##...
    ##...
    ..##.
    ..##.
    ....#
    """
    if isinstance(sizes, Sequence | Tensor):
        if size is not None:
            raise GraphError("blocks takes either a list of sizes, or n and one size")
        receivers = _sizes(sizes, "sizes")
    else:
        n = whole_number(sizes, "n")
        size = whole_number(size, "size", least=1)
        receivers = tuple(min(size, n - start) for start in range(0, n, size))
    others = receivers if senders is None else _sizes(senders, "senders")
    if len(others) != len(receivers):
        raise GraphError(f"senders must have one size for each of {len(receivers)} blocks, not {len(others)}")
    return Graph(Blocks(receivers, others))


@dataclass(frozen=True)
class Strided(Rule):
    """Listen to the last `stride` positions and to every stride-th one before: causal."""

    stride: int

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        back = i - j
        return (back >= 0) & ((back < self.stride) | (back % self.stride == 0))

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        i = i[:, None]
        local = i - self.stride + 1
        column = i % self.stride + torch.arange(0, senders, self.stride, device=i.device)
        starts = torch.cat([torch.minimum(column, local), local], dim=1)
        stops = torch.cat([torch.minimum(column + 1, local), i + 1], dim=1)
        return clip(starts, stops, senders)


def strided(n: int, stride: int) -> Graph:
    """Everyone listens to the last `stride` positions, and to every stride-th one before them.

    Equation    N(i) = {j : j <= i, and i - j < stride or stride divides i - j}
    Errors      a number that is not whole; n negative, stride below 1
    Differs     both of the paper's strided heads in one graph; `strided_parts` gives each its own
    Reference   Child, Gray, Radford and Sutskever, Generating Long Sequences with Sparse Transformers, 2019

    >>> print(draw(strided(5, 2)))
    #....
    ##...
    ###..
    .###.
    #.###
    """
    n = whole_number(n, "n")
    return Graph(Strided(whole_number(stride, "stride", least=1)), n, n)


def strided_parts(n: int, stride: int) -> tuple[Graph, Graph]:
    """The two factors of `strided`, one for each half of the heads: the last `stride` positions, and every stride-th.

    Errors      those of `strided`
    Reference   Child et al., 2019, §4.2

    >>> print(draw(strided_parts(4, 2)[1]))
    #...
    .#..
    #.#.
    .#.#
    """
    stride = whole_number(stride, "stride", least=1)
    return window(n, stride - 1, sides="past"), window(n, -(-n // stride), dilation=stride, sides="past")


@dataclass(frozen=True)
class Block(Rule):
    """Listen to the past of one's own block of `size` positions, and to oneself."""

    size: int

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        return (j <= i) & (i // self.size == j // self.size)

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        return clip((i - i % self.size)[:, None], i[:, None] + 1, senders)


@dataclass(frozen=True)
class Summaries(Rule):
    """Listen to the last `count` positions of every block of `size`, as far as they lie in the past."""

    size: int
    count: int

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        return (j <= i) & (j % self.size >= self.size - self.count)

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        stops = torch.arange(self.size, senders + self.size, self.size, device=i.device)
        starts = (stops - self.count).expand(len(i), -1)
        return clip(torch.minimum(starts, i[:, None] + 1), torch.minimum(stops, i[:, None] + 1), senders)


def fixed(n: int, stride: int, summaries: int = 1) -> Graph:
    """Everyone listens to the past of its own block of `stride`, and to the last `summaries` positions of each block.

    Equation    N(i) = {j : j <= i, and floor(j / stride) = floor(i / stride) or j mod stride >= stride - summaries}
    Errors      a number that is not whole; n negative, stride or summaries below 1, more summaries than a block has
    Differs     both of the paper's fixed heads in one graph; `fixed_parts` gives each its own
    Reference   Child, Gray, Radford and Sutskever, Generating Long Sequences with Sparse Transformers, 2019

    >>> print(draw(fixed(5, 2)))
    #....
    ##...
    .##..
    .###.
    .#.##
    """
    own, columns = fixed_parts(n, stride, summaries)
    return own.union(columns)


def fixed_parts(n: int, stride: int, summaries: int = 1) -> tuple[Graph, Graph]:
    """The two factors of `fixed`, one for each half of the heads: one's own block, and the summaries of all.

    Errors      those of `fixed`
    Reference   Child et al., 2019, §4.2

    >>> draw(fixed_parts(4, 2)[1]).split()
    ['....', '.#..', '.#..', '.#.#']
    """
    n, stride = whole_number(n, "n"), whole_number(stride, "stride", least=1)
    summaries = whole_number(summaries, "summaries", least=1)
    if summaries > stride:
        raise GraphError(f"a block of {stride} positions has no {summaries} summaries")
    return Graph(Block(stride), n, n), Graph(Summaries(stride, summaries), n, n)


@dataclass(frozen=True)
class Grid(Symmetric):
    """Pixels of a height x width image, row by row: listen to the 4 or 8 around, and to oneself if `loops`."""

    height: int
    width: int
    neighbors: int = 8
    loops: bool = True

    @property
    def extent(self) -> tuple[int, int]:
        return self.height * self.width, self.height * self.width

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        down = (i // self.width - j // self.width).abs()
        across = (i % self.width - j % self.width).abs()
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


def squares(height: int, width: int, size: int, shift: int = 0) -> Graph:
    """The pixels of an image, cut into squares: each listens to its whole square and to nobody outside.

    Equation    N(i) = {j : floor((y_j - shift) / size) = floor((y_i - shift) / size), and the same of x}
    Symbols     i = y * width + x: pixels row by row; shift = where the first whole square begins, down and across
    Errors      a number that is not whole; height, width or shift negative, size below 1; a shift of size or more
    Edge cases  the squares at the borders are smaller where size does not divide, or with a shift
    Reference   Liu et al., Swin Transformer, 2021, §3.2: windows, and windows shifted by half their size

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
        raise GraphError(f"shift={shift} must be below size={size}: after a whole square they begin again")
    return Graph(Squares(height, width, size, shift))


@dataclass(frozen=True)
class Disc(Symmetric):
    """Pixels of a height x width image, row by row: listen to those no farther away than `radius`."""

    height: int
    width: int
    radius: float
    torus: bool = False

    @property
    def extent(self) -> tuple[int, int]:
        return self.height * self.width, self.height * self.width

    @property
    def reach(self) -> int:
        """How many rows up or down the farthest neighbours lie."""
        return int(self.radius)

    def half_width(self, down: int) -> int:
        """How many columns left or right one hears, so many rows away."""
        return int((self.radius**2 - down**2) ** 0.5 + 1e-9)

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        down = (i // self.width - j // self.width).abs()
        across = (i % self.width - j % self.width).abs()
        if self.torus:
            down, across = torch.minimum(down, self.height - down), torch.minimum(across, self.width - across)
        return down.square() + across.square() <= self.radius**2 + 1e-9

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
        )  # what leaves on one side, enters on the other
        starts = torch.cat([rows, rows + left.clamp(min=0), rows + self.width + under], 1)
        stops = torch.cat([rows + over, rows + right.clamp(max=self.width), rows + self.width], 1)
        starts, order = starts.sort(1)
        return clip(*ascending(starts, stops.gather(1, order)), senders)


def disc(height: int, width: int, radius: float = 1.5, torus: bool = False) -> Graph:
    """The pixels of an image: each listens to those within a distance, which no rotation changes, and to itself.

    Equation    N(i) = {j : (y_i - y_j)² + (x_i - x_j)² <= radius²}, on a torus with y modulo height, x modulo width
    Symbols     i = y * width + x: pixels row by row; radius 1.5 is the square of 9, 2.3 that of 25 without its corners
    Errors      sizes that are not whole, or negative; a radius that is negative or not finite, or that reaches once
                around a torus

    >>> print(draw(disc(2, 3, radius=1)))
    ##.#..
    ###.#.
    .##..#
    #..##.
    .#.###
    ..#.##
    """
    height, width = whole_number(height, "height"), whole_number(width, "width")
    if not (isinstance(radius, int | float) and 0 <= radius < float("inf")):
        raise GraphError(f"radius must be a finite number of at least 0, not {radius!r}")
    if torus and 2 * int(radius) + 1 > min(height, width):
        raise GraphError(f"a radius of {radius:g} reaches around a torus of {height} x {width} pixels")
    return Graph(Disc(height, width, float(radius), bool(torus)))


@dataclass(frozen=True)
class Bipartite(Symmetric):
    """Nodes 0 .. left - 1 and the `right` ones after them listen to the other side only."""

    left: int
    right: int

    @property
    def extent(self) -> tuple[int, int]:
        return self.left + self.right, self.left + self.right

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        return (i < self.left) != (j < self.left)

    def intervals(self, i: Tensor, senders: int) -> Intervals:
        on_left = (i < self.left)[:, None]
        return clip(on_left * self.left, torch.where(on_left, self.left + self.right, self.left), senders)


def bipartite(left: int, right: int) -> Graph:
    """The complete bipartite graph on left + right nodes: each side listens to all of the other side.

    Equation    N(i) = {j : left <= j} for i < left, and {j : j < left} for the others
    Errors      a number that is not whole, or negative

    >>> print(draw(bipartite(1, 2)))
    .##
    #..
    #..
    """
    return Graph(Bipartite(whole_number(left, "left"), whole_number(right, "right")))


def draw(graph: Graph) -> str:
    """The graph as text: row = receiver, column = sender, '#' where i listens to j."""
    return "\n".join("".join("#" if listens else "." for listens in row) for row in graph.dense_mask().tolist())


PATTERNS: dict[str, Callable[..., Graph]] = {
    "complete": complete,
    "causal": causal,
    "window": window,
    "blocks": blocks,
    "strided": strided,
    "fixed": fixed,
    "grid": grid,
    "squares": squares,
    "disc": disc,
    "bipartite": bipartite,
}
