"""Gates: a factor for every edge of a call, by which one learns what an edge is worth. All verbs take them here."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.kernels.call import Aggregate, Attend, Call, Collect
from edgewise.kernels.messages import Filter, Message
from edgewise.kernels.planning import dispatch
from edgewise.kernels.planning.recording import Recorded, as_written, listed_plans, recording
from edgewise.kernels.scores import EdgeBias


@dataclass(frozen=True)
class Gates:
    """What scales the messages of the calls inside `gated`.

    Equation    attend: y_i = Σ_j m_ij p_ij v_j;  aggregate: y_i = ⊕_j m_ij w_ij x_j;  collect: y_i = ⊕_j m_ij μ_ij
                removing: the verb on the edges with m_ij > 0 alone, whose p_ij and means are over these
    Symbols     factor(call) = m, or None where a call is left as it is
    Shapes      m [E], of attend also [*, E, H], in the order of the call's graph; removing: [E]
    """

    factor: Callable[[Call], Tensor | None]
    removing: bool = False

    def of(self, call: Call) -> Tensor | None:
        """The factors of a call. Messages that are returned and not combined are scaled where they are combined."""
        return None if isinstance(call, Collect) and call.reduce is None else self.factor(call)


_gates: ContextVar[Gates | None] = ContextVar("gates", default=None)


@contextmanager
def gated(gates: Gates | None) -> Iterator[None]:
    """Scale the messages of every verb inside the block; None: leave them as they are.

    Edge cases  functions compiled by torch.compile run as they were written
    Cost        attention holds its weights, O(E·H) memory; networks of messages hold these, O(E·C)

    Example
        >>> from edgewise.graphs import Graph
        >>> from edgewise.kernels import aggregate
        >>> pair = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
        >>> with gated(Gates(lambda call: torch.tensor([0.5, 1.0]))):
        ...     aggregate(pair, torch.tensor([[2.0], [4.0]])).flatten().tolist()
        [2.0, 2.0]
    """
    token = _gates.set(gates)
    try:
        with as_written():
            yield
    finally:
        _gates.reset(token)


def gates() -> Gates | None:
    """Those of an enclosing `gated`, or None."""
    return None if torch.compiler.is_compiling() else _gates.get()


def is_watched() -> bool:
    """Whether an enclosing context scales, records, lists or chooses calls, which then must be ours."""
    mine = (gates(), recording(), listed_plans.get(), dispatch.forced_backend())
    return mine != (None, None, None, None)


def unscaled() -> AbstractContextManager[None]:
    """Inside, an edge of an enclosing `gated` is removed or whole: for what messages are divided by, as a mean is by
    the number of its senders."""
    given = gates()
    return nullcontext() if given is None or given.removing else gated(None)


def gated_call(call: Call, given: Gates) -> Any:
    """What a verb computes under gates; attention with its weights. None: the gates leave this call as it is."""
    if isinstance(call, Collect) and isinstance(call.message, Filter) and call.message.both_ways:
        weights = call.message.weights(call.graph)  # both ways are two graphs, each with factors of its own
        ways = [Collect(graph, way, "sum") for graph, way in call.message.directions(call.graph, weights)]
        factors = [given.of(way) for way in ways]
        if all(m is None for m in factors):
            return None
        ones = torch.ones(call.graph.num_edges, device=call.graph.device)
        return sum(_gated(way, ones if m is None else m, given.removing) for way, m in zip(ways, factors, strict=True))
    m = given.of(call)
    return None if m is None else _gated(call, m, given.removing)


def _gated(call: Call, m: Tensor, removing: bool) -> Any:
    if isinstance(call, Attend):
        return _attend(call, m, removing)
    if removing:
        return _remaining(call, m > 0)
    if isinstance(call, Collect):
        return _collect(call, lambda m_ij, reduce: Collect(call.graph, m_ij * _beside(m[:, None], m_ij), reduce))
    weight = call.weight
    scaled = _beside(m, call.x) if weight is None else weight * (m if weight.ndim == 1 else m[:, None])
    x = call.x if call.x.is_floating_point() or call.x.is_complex() else call.x.to(scaled.dtype)
    return dispatch.run(replace(call, x=x, weight=scaled))


def _beside(m: Tensor, x: Tensor) -> Tensor:
    """Factors in the precision of what they scale; beside whole numbers as they are."""
    return m.to(x.dtype) if x.is_floating_point() or x.is_complex() else m


def _attend(call: Attend, m: Tensor, removing: bool) -> tuple[Tensor, Tensor]:
    spelt = replace(call.with_equal_heads().with_own_senders(), dropout=0.0, return_weights=True)
    if removing:
        absent = torch.where(m > 0, 0.0, -torch.inf).to(spelt.v.real.dtype)
        spelt = replace(spelt, score=spelt.score + EdgeBias(absent[:, None]))
    p = dispatch.run(spelt)[1]
    weight = p if removing else p * (m[:, None] if m.ndim == 1 else m).to(p.dtype)
    if (seen := recording()) is not None:
        seen.append(Recorded(call.graph, p.detach()))
    y = dispatch.run(Aggregate(spelt.graph, spelt.v, functional.dropout(weight, call.dropout), "sum"))
    assert isinstance(y, Tensor)
    return y.to(call.dtype), p


def _remaining(call: Aggregate | Collect, kept: Tensor) -> Any:
    """The same call on the edges that remain."""
    graph, numbers = call.graph.keep_edges(kept), kept.nonzero()[:, 0]
    if isinstance(call, Collect):
        if isinstance(call.message, Filter) and call.message.normalised is not None:  # shares are of what remains
            remaining = torch.where(kept[:, None], call.message.weights(call.graph), 0)
            call = replace(call, message=replace(call.message, weight=remaining))
        return _collect(call, lambda m_ij, reduce: Collect(graph, m_ij.index_select(-2, numbers), reduce))
    edge_axis = -1 if call.weight is None or call.weight.ndim == 1 else -2
    weight = None if call.weight is None else call.weight.index_select(edge_axis, numbers)
    return dispatch.run(replace(call, graph=graph, weight=weight))


def _collect(call: Collect, made: Callable[[Tensor, str | None], Collect]) -> Any:
    """A collection for each result of a message."""
    message: Any = call.message
    if not isinstance(message, Message):
        return dispatch.run(made(message, call.reduce))
    pairs = zip(message.on_edges(call.graph), message.reductions(call.reduce), strict=False)
    results = tuple(dispatch.run(made(m_ij, reduce)) for m_ij, reduce in pairs)
    return results if message.several else results[0]
