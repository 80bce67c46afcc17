"""Who listens to whom in an encoder-decoder: three graphs, over source and target positions."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Self

import torch

from edgewise.errors import GraphError
from edgewise.graphs.checks import several, whole_number
from edgewise.graphs.graph import Graph
from edgewise.graphs.patterns.blocks import complete
from edgewise.graphs.patterns.line import causal


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
