"""Patterns of blocks that listen to themselves as a whole, or to each other."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import torch
from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs.checks import several, whole_number
from edgewise.graphs.graph import Graph
from edgewise.graphs.patterns.line import causal
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


@dataclass(frozen=True)
class EncoderDecoderGraph:
    """Source positions that listen to each other, and target positions that listen to their past and to the source.

    Symbols     encoder = who of the S source positions listens to whom of them; decoder = the same of the T target
                positions; cross = who of the T target positions listens to whom of the source positions
    Errors      a GraphError where the three are not over the same S and T positions
    Edge cases  an empty source: the target attends only to itself

    Example
        >>> pair = EncoderDecoderGraph.of([2, 1], [1, 2])  # two pairs side by side, no edge in between, no padding
        >>> from edgewise.graphs import draw
        >>> print(draw(pair.cross))
        ##.
        ..#
        ..#
        >>> pair.decoder.dense_mask().int().tolist()
        [[1, 0, 0], [0, 1, 0], [0, 1, 1]]
    """

    encoder: Graph
    decoder: Graph
    cross: Graph

    def __post_init__(self) -> None:
        sources, targets = self.encoder.num_receivers, self.decoder.num_receivers
        shape = self.cross.num_receivers, self.cross.num_senders
        if not (self.encoder.is_square and self.decoder.is_square and shape == (targets, sources)):
            raise GraphError(
                f"the encoder is {self.encoder}, the decoder {self.decoder}: cross must have {targets} receivers and "
                f"{sources} senders, not {shape[0]} and {shape[1]}, and the other two as many senders as receivers"
            )

    @classmethod
    def of(cls, sources: Sequence[int], targets: Sequence[int], pattern: Callable[[int], Graph] = complete) -> Self:
        """Pairs side by side, by the lengths of their sources and targets.

        Symbols     pattern(n) = the encoder's graph over a source of n positions
        Errors      no pair, or not one target for each source
        """
        sources, targets = (
            [whole_number(n, f"a length of {name}") for n in several(lengths, f"{name} must be lengths")]
            for name, lengths in (("sources", sources), ("targets", targets))
        )
        if len(sources) != len(targets) or not sources:
            raise GraphError(f"{len(sources)} sources and {len(targets)} targets: give one or more, as many of each")
        laid = {n: pattern(n) for n in set(sources)}
        encoder = Graph.batch([laid[n] for n in sources])
        decoder = Graph.batch([_past(n) for n in targets])
        return cls(encoder, decoder, Graph.batch(list(map(complete, targets, sources))))

    def to(self, device: torch.device | str) -> Self:
        """The same three graphs on a device."""
        return type(self)(*(graph.to(device) for graph in (self.encoder, self.decoder, self.cross)))


@lru_cache(maxsize=1024)
def _past(n: int) -> Graph:
    """The causal graph of n positions, the same object every time, with its cached ranges."""
    return causal(n)
