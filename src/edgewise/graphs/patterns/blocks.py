"""Patterns of blocks that listen to themselves as a whole, or to each other."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs.checks import whole_number
from edgewise.graphs.graph import Graph
from edgewise.graphs.rule import Blocks, Complete, Intervals, Symmetric, clip


def complete(receivers: int, senders: int | None = None) -> Graph:
    """Everyone listens to everyone: a transformer's encoder; with `senders`, cross-attention.

    Equation    N(i) = {0, ..., J - 1}
    Symbols     receivers = I, senders = J (None: I)
    Errors      a number that is not whole, or negative

    >>> from edgewise.graphs import draw
    >>> print(draw(complete(2, 3)))
    ###
    ###
    """
    receivers = whole_number(receivers, "receivers")
    return Graph(Complete(), receivers, receivers if senders is None else whole_number(senders, "senders"))


def blocks(
    sizes: int | Sequence[int] | Tensor, size: int | None = None, senders: Sequence[int] | Tensor | None = None
) -> Graph:
    """Nodes in blocks; each listens to all of its block and to nothing outside.

    Equation    N(i) = {j : block(j) = block(i)}
    Symbols     `blocks([3, 2])` gives the size of each block; `blocks(n, size)` cuts n nodes into blocks of one size,
                the last of which is smaller where size does not divide n; senders = other sizes on the senders' side
    Errors      a size that is not whole, or negative; not one size of senders for each block
    Edge cases  a block may be empty, on either side

    >>> from edgewise.graphs import draw
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


def _sizes(sizes: Sequence[int] | Tensor, name: str) -> tuple[int, ...]:
    listed = sizes.tolist() if isinstance(sizes, Tensor) else sizes
    if not isinstance(listed, Sequence) or isinstance(listed, str):
        raise GraphError(f"{name} must be a list of whole numbers, one for each block, not {sizes!r}")
    return tuple(whole_number(size, f"{name}[{b}]") for b, size in enumerate(listed))


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

    def edges_of(self, first: int, last: int, senders: int) -> int:
        on_left = max(0, min(last, self.left) - first)
        left = min(self.left, senders)
        return on_left * (min(self.left + self.right, senders) - left) + (last - first - on_left) * left


def bipartite(left: int, right: int) -> Graph:
    """The complete bipartite graph on left + right nodes: each side listens to all of the other side.

    Equation    N(i) = {j : left <= j} for i < left, and {j : j < left} for the others
    Errors      a number that is not whole, or negative

    >>> from edgewise.graphs import draw
    >>> print(draw(bipartite(1, 2)))
    .##
    #..
    #..
    """
    return Graph(Bipartite(whole_number(left, "left"), whole_number(right, "right")))
