"""Patterns on a line: positions 0, 1, ... of a sequence."""

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs.checks import whole_number
from edgewise.graphs.graph import Graph
from edgewise.graphs.rule import Causal, Intervals, Rule, Window, clip

FARTHEST = 1 << 60  # that a pattern reaches: beyond all positions, and a sum with one of them is a number of 64 bits


def causal(n: int, senders: int | None = None, offset: int = 0) -> Graph:
    """Everyone listens to the past and to itself: a transformer's decoder.

    Equation    N(i) = {j : j <= i + offset}
    Symbols     n = I receivers, at positions offset, ..., offset + n - 1; senders = J (None: offset + n)
    Errors      a number that is not whole, or negative

    >>> from edgewise.graphs import draw
    >>> print(draw(causal(3)))
    #..
    ##.
    ###
    >>> print(draw(causal(1, offset=2)))  # one new token, with two in the cache
    ###
    """
    n, offset = whole_number(n, "n"), whole_number(offset, "offset")
    return Graph(Causal(), n, offset + n if senders is None else whole_number(senders, "senders"), offset)


def window(n: int, radius: int, dilation: int = 1, sides: Literal["both", "past"] = "both") -> Graph:
    """Everyone listens to itself and to `radius` others on each side, or on the side of the past.

    Equation    N(i) = {j : |i - j| <= radius * dilation and dilation divides i - j}, with sides="past" only j <= i
    Errors      a number that is not whole; n or radius negative, dilation below 1; another word for sides
    Reference   Beltagy, Peters and Cohan, Longformer: The Long-Document Transformer, 2020

    >>> from edgewise.graphs import draw
    >>> print(draw(window(4, 1)))
    ##..
    ###.
    .###
    ..##
    """
    n, radius = whole_number(n, "n"), whole_number(radius, "radius")
    dilation = min(whole_number(dilation, "dilation", least=1), FARTHEST)
    radius = min(radius, FARTHEST // dilation)
    if sides not in ("both", "past"):
        raise GraphError(f"sides must be 'both' or 'past', not {sides!r}")
    return Graph(Window(radius, dilation, sides), n, n)


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

    def edges_of(self, first: int, last: int, senders: int) -> int | None:
        if senders < last:
            return None
        blocks = [(end // self.stride, end % self.stride) for end in (first, last)]
        before, upto = (self.stride * n * (n - 1) // 2 + rest * n for n, rest in blocks)  # of those farther away
        return Window(self.stride - 1, sides="past").edges_of(first, last, senders) + upto - before


def strided(n: int, stride: int) -> Graph:
    """Everyone listens to the last `stride` positions, and to every stride-th one before them.

    Equation    N(i) = {j : j <= i, and i - j < stride or stride divides i - j}
    Errors      a number that is not whole; n negative, stride below 1
    Differs     both of the paper's strided heads in one graph; `strided_parts` gives each its own
    Reference   Child, Gray, Radford and Sutskever, Generating Long Sequences with Sparse Transformers, 2019

    >>> from edgewise.graphs import draw
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

    >>> from edgewise.graphs import draw
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

    >>> from edgewise.graphs import draw
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

    >>> from edgewise.graphs import draw
    >>> draw(fixed_parts(4, 2)[1]).split()
    ['....', '.#..', '.#..', '.#.#']
    """
    n, stride = whole_number(n, "n"), whole_number(stride, "stride", least=1)
    summaries = whole_number(summaries, "summaries", least=1)
    if summaries > stride:
        raise GraphError(f"a block of {stride} positions has no {summaries} summaries")
    size = min(stride, FARTHEST)
    summaries = max(0, summaries - (stride - size))  # those that lie as far ahead
    return Graph(Block(size), n, n), Graph(Summaries(size, summaries), n, n)
