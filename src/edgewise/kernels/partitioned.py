"""What every verb does on a partition: it fetches the rows of senders that a rank lacks, and calls on its own edges.

Plain attention to all nodes goes around a ring instead, or shares the heads among the ranks: see `ring`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import TypeVar

from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs import Partition
from edgewise.kernels import ring
from edgewise.kernels.call import Aggregate, Attend, Call, Collect
from edgewise.kernels.messages import Filter, Message
from edgewise.kernels.scores import RelativeBias, Score, SenderBias

C = TypeVar("C", bound=Call)
Results = Tensor | tuple[Tensor, ...]


def run(call: Call, on_edges: Callable[[Call], Results], named: bool) -> Results:
    """A call on a partition.

    Symbols     on_edges = runs a call on an ordinary graph; named = whether its backend was asked for by name
    """
    part = call.graph
    if not named and isinstance(call, Attend) and ring.goes_around(call):
        assert isinstance(part, Partition)
        return ring.around(call) if part.unparted is None else ring.by_share_of_heads(call, on_edges)
    return on_edges(with_senders(call))


def with_senders(call: C) -> C:
    """A call on a partition as one on this rank's edges, with the senders' rows of other ranks.

    Errors      GraphError for distances of senders that lie scattered, and for a filter of both directions
    """
    part = call.graph
    assert isinstance(part, Partition)
    if isinstance(call, Attend):
        k = None if call.k is None else part.fetch(call.k, -3)
        v = k if k is not None and call.v is call.k else part.fetch(call.v, -3)
        return replace(call, graph=part.local, k=k, v=v, score=_score(part, call.score))
    if isinstance(call, Aggregate):
        return replace(call, graph=part.local, x=part.fetch(call.x, call.node_axis))
    assert isinstance(call, Collect)
    message = call.message
    if isinstance(message, Filter) and message.both_ways:
        raise GraphError("a filter of both directions reads edges of other ranks: list both directions as edges")
    message = message.fetched(part.fetch) if isinstance(message, Message) else message
    return replace(call, graph=part.local, message=message)


def _score(part: Partition, score: Score) -> Score:
    if not score.biases:
        return score
    if not part.is_contiguous and any(isinstance(bias, RelativeBias) for bias in score.biases):
        raise GraphError(
            "a bias by distance needs senders that follow one another: this rank's are scattered over the whole graph"
        )
    biases = [SenderBias(part.fetch(bias.values)) if isinstance(bias, SenderBias) else bias for bias in score.biases]
    return replace(score, biases=tuple(biases))
