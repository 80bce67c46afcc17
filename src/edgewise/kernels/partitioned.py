"""What every verb does on a partition: it fetches the rows of senders that a rank lacks, and calls on its own edges."""

from __future__ import annotations

from dataclasses import replace
from typing import TypeVar

from edgewise.errors import GraphError
from edgewise.graphs import Partition
from edgewise.graphs.partition.partition import check_partitioned
from edgewise.kernels.call import Aggregate, Attend, Call, Collect
from edgewise.kernels.messages import Filter, Message
from edgewise.kernels.scores import RelativeBias, Score, SenderBias

C = TypeVar("C", bound=Call)


def with_senders(call: C) -> C:
    """A call on a partition as one on this rank's edges, with the senders' rows of other ranks; any other as it is.

    Errors      GraphError for distances of senders that lie scattered, for a filter of both directions, and within
                `partitioned` for a graph of this rank's nodes alone
    """
    part = call.graph
    if not isinstance(part, Partition):
        check_partitioned(part)
        return call
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
