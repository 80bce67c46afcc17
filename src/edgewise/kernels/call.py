"""The three calls, one for each verb, checked once on their way in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Real
from typing import Any, ClassVar

import torch
from torch import Tensor

from edgewise.errors import GraphError, ShapeError
from edgewise.graphs import PATTERNS, Graph
from edgewise.graphs.checks import graph_first, same_device, shown
from edgewise.graphs.derived import cached
from edgewise.kernels.messages import EdgeInput, Message
from edgewise.kernels.scores import Additive, EdgeBias, Gaussian, RelativeBias, Score

REAL = (torch.float64, torch.float32, torch.bfloat16, torch.float16)
REDUCTIONS = ("sum", "mean", "max", "min")


@dataclass(slots=True)
class Attend:
    """y_i = Σ_j softmax_j(s_ij) v_j. q, k are None where the score reads no ends."""

    verb: ClassVar[str] = "attend"
    graph: Graph
    q: Tensor | None
    k: Tensor | None
    v: Tensor
    score: Score
    dropout: float = 0.0
    return_weights: bool = False
    written: Score | None = None  # as a user wrote it, of a call that has been lowered

    @property
    def dtype(self) -> torch.dtype:
        return self.v.dtype

    def __str__(self) -> str:
        return f"attend, {type(self.score).__name__}, {self.heads} heads × {self.v.shape[-1]}{_batch(self.v, 3)}"

    @property
    def heads(self) -> int:
        return self.v.shape[-2] if self.q is None else self.q.shape[-2]

    def ends(self) -> tuple[Tensor, Tensor]:
        """q and k, for a score that reads them."""
        assert self.q is not None and self.k is not None
        return self.q, self.k

    def signature(self) -> tuple[object, ...]:
        """What a choice of backend may depend on besides the graph: shapes, kinds, options."""
        ends = () if self.q is None or self.k is None else (self.q.shape, self.k.shape)
        kinds = (type(self.score), *map(type, self.score.biases), getattr(self.score, "cap", None) is None)
        vectors = None if self.score.vectors is None else self.score.vectors.signature()
        return (*ends, self.v.shape, self.v.dtype, self.v.device, kinds, vectors, self.dropout > 0, self.return_weights)

    def tensors(self) -> list[Tensor]:
        """What it computes from."""
        return [x for x in (self.q, self.k, self.v) if x is not None]

    def lowered(self) -> Attend:
        """The same call in the algebra's simplest terms: Gaussian becomes a dot product with a bias per sender, and
        Additive a sum of one number for each end."""
        if isinstance(self.score, Additive) and self.score.a_sender is not None:
            call = self.with_equal_heads()
            q, k, score = self.score.as_sums(*call.ends())
            return replace(call, q=q, k=k, score=score, written=self.score)
        if isinstance(self.score, Gaussian) and (self.score.vectors is None or self.score.vectors.keys is None):
            call = self.with_equal_heads()  # the bias of a sender then has a number for every query head
            dot = self.score.as_dot(*call.ends())
            return self if dot is None else replace(call, q=dot[0], k=dot[1], score=dot[2], written=self.score)
        return self

    def with_equal_heads(self) -> Attend:
        """Keys and values repeated so that every query head has its own (grouped-query attention spelt out)."""
        if self.k is None or self.k.shape[-2] == self.heads:
            return self
        groups = self.heads // self.k.shape[-2]
        return replace(self, k=self.k.repeat_interleave(groups, -2), v=self.v.repeat_interleave(groups, -2))

    def with_own_senders(self) -> Attend:
        """The vectors of edges spelt out: on a graph where every edge has a sender of its own, with equal heads."""
        vectors = self.score.vectors
        if vectors is None:
            return self
        call, graph = self.with_equal_heads(), self.graph
        own = _with_own_senders(graph)
        bias = self.score.edge_bias(graph)
        score = replace(self.score, biases=() if bias is None else (EdgeBias(bias),), vectors=None)
        k, v = (x if x is None else x.index_select(-3, graph.senders) for x in (call.k, call.v))
        assert v is not None
        keys, values = vectors.written(call.heads)
        k = k if k is None or keys is None else k + keys.to(k.dtype)
        v = v if values is None else v + values.to(v.dtype)
        return replace(call, graph=own, k=k, v=v, score=score)


@cached
def _with_own_senders(graph: Graph) -> Graph:
    senders = torch.arange(graph.num_edges, device=graph.device)
    return Graph._of(graph.num_receivers, graph.num_edges, 0, graph.device, offsets=graph.offsets, senders=senders)


@dataclass(slots=True)
class Aggregate:
    """y_i = ⊕_j w_ij x_j. x [*, J, C] with weight [E] or None; x [*, J, H, C] with weight [*, E, H]."""

    verb: ClassVar[str] = "aggregate"
    graph: Graph
    x: Tensor
    weight: Tensor | None
    reduce: str

    @property
    def dtype(self) -> torch.dtype:
        return self.x.dtype

    def __str__(self) -> str:
        channels = self.x.shape[self.node_axis + 1 :].numel()
        return f"aggregate ({self.reduce}), {channels} channels{_batch(self.x, -self.node_axis)}"

    @property
    def node_axis(self) -> int:
        return -2 if self.weight is None or self.weight.ndim == 1 else -3

    def signature(self) -> tuple[object, ...]:
        """What a choice of backend may depend on besides the graph."""
        weight = None if self.weight is None else (self.weight.shape, self.weight.dtype)
        return (self.x.shape, weight, self.x.dtype, self.x.device, self.reduce)

    def tensors(self) -> list[Tensor]:
        """What it computes from."""
        return [self.x]

    def lowered(self) -> Aggregate:
        """Already in simplest terms."""
        return self


@dataclass(slots=True)
class Collect:
    """y_i = ⊕_j m_ij for messages m [*, E, C] in the graph's edge order, or a record of them; m_ij where ⊕ is None."""

    verb: ClassVar[str] = "collect"
    graph: Graph
    message: Tensor | Message[Any]
    reduce: str | None

    @property
    def dtype(self) -> torch.dtype:
        return self.message.dtype

    def __str__(self) -> str:
        if isinstance(self.message, Message):
            return f"collect ({self.reduce or 'on edges'}), {self.message}"
        return f"collect ({self.reduce}), {self.m_ij.shape[-1]} channels{_batch(self.m_ij, 2)}"

    @property
    def m_ij(self) -> Tensor:
        """The messages of a call that has them as a tensor."""
        assert isinstance(self.message, Tensor)
        return self.message

    def signature(self) -> tuple[object, ...]:
        """What a choice of backend may depend on besides the graph."""
        if isinstance(self.message, Message):
            return (type(self.message), self.reduce, *self.message.signature())
        return (self.m_ij.shape, self.m_ij.dtype, self.m_ij.device, self.reduce)

    def tensors(self) -> list[Tensor]:
        """What it computes from."""
        message = self.message
        return [message] if isinstance(message, Tensor) else [x for x in message.tensors() if x is not None]

    def lowered(self) -> Collect:
        """Already in simplest terms."""
        return self


Call = Attend | Aggregate | Collect


def check_graph(graph: Any, *others: Any) -> None:
    """Raise GraphError for something else in the place of a graph, and say how to make one of it."""
    if isinstance(graph, str) and graph in PATTERNS:
        what = "the first argument must be a Graph, not str: a pattern of edgewise.PATTERNS makes one"
        raise GraphError(f"{what}, as edgewise.{graph}(n), or Graph.from_edge_index")
    graph_first(graph, *others)
    if graph.device.type == "meta":
        raise GraphError("a graph on meta has no edges to compute along: leave it on its device")


def check_score(score: Any) -> None:
    """Raise ShapeError for something else in the place of a score, and say what would be one."""
    if isinstance(score, Score):
        return
    if isinstance(score, torch.Tensor):
        right = (
            "Graph.from_mask(mask) makes a graph of a mask"
            if score.dtype == torch.bool
            else "add it to one: Dot() + EdgeBias(values)"
        )
        raise ShapeError(f"the score is a tensor {list(score.shape)}, but must be a record such as Dot(): {right}")
    known = {kind.__name__.lower(): kind.__name__ for kind in Score.__subclasses__()}
    name = score.__name__ if isinstance(score, type) else str(score)
    named = next((known[word] for word in (name.lower(), name.lower().replace("_", "")) if word in known), "Dot")
    raise ShapeError(f"the score must be a record, not {score!r}: write {named}(...), from edgewise import {named}")


def check_attend(call: Attend) -> None:
    """Raise ShapeError with the shape that would be right, unless q, k, v fit the graph and one another."""
    graph, q, k, v, score = call.graph, call.q, call.k, call.v, call.score
    _check_rows("v", v, -3, graph, "senders", "[*, J, H, C]")
    for bias in score.biases:
        bias.check(graph, call.heads)
    if score.vectors is not None:
        score.vectors.check(graph, call.heads, None if k is None else k.shape[-1], v.shape[-1])
    if score.biases or score.vectors is not None:
        _check_batch(score, v.shape[:-3])
    if not isinstance(call.dropout, Real) or not 0.0 <= call.dropout < 1.0:
        raise ShapeError(f"dropout is a probability in [0, 1), not {call.dropout!r}")
    if not score.needs_ends:
        if q is not None or k is not None:
            raise ShapeError(f"{type(score).__name__} reads neither queries nor keys: pass None for q and k")
        return
    if q is None or k is None:
        raise ShapeError(f"{type(score).__name__} needs queries and keys, but q or k is None")
    _check_rows("q", q, -3, graph, "receivers", "[*, I, H, C]")
    _check_rows("k", k, -3, graph, "senders", "[*, J, H, C]")
    # Each read of a shape makes a new object: 0.1 µs on the machine of docs/performance.md.
    (*lead, _, heads, width), (*k_lead, _, k_heads, k_width), (*v_lead, _, v_heads, _) = q.shape, k.shape, v.shape
    if not lead == k_lead == v_lead:
        raise ShapeError(f"q, k and v share one leading batch, but have {lead}, {k_lead} and {v_lead}")
    if width != k_width:
        raise ShapeError(f"queries have {width} channels and keys {k_width}: they must agree")
    if score.end_width not in (None, width):
        what = f"{type(score).__name__} reads {score.end_width} channel of each end"
        raise ShapeError(f"{what}, but queries and keys have {width} channels")
    for name in score.weights if score.end_width is None else ():
        a = getattr(score, name)
        if not isinstance(a, Tensor) or a.shape != (heads, width):
            what = f"{type(score).__name__}: {name} is {shown(a)}"
            raise ShapeError(f"{what}, but must be [H, C] = [{heads}, {width}]")
        same_device(f"{name} of the score", a, graph.device)
    for name in score.numbers:
        number, what = getattr(score, name), f"{type(score).__name__}: {name}"
        if isinstance(number, Tensor):
            if number.shape not in ((), (1,), (heads,)):
                raise ShapeError(f"{what} is {list(number.shape)}, but must be one number or [H] = [{heads}]")
            if number.ndim or number.device.type != "cpu":  # PyTorch takes one number of the CPU on any device
                same_device(what, number, graph.device)
    if k_heads != v_heads or k_heads == 0 or heads % k_heads:
        raise ShapeError(
            f"{heads} query heads, {k_heads} key heads and {v_heads} value heads: "
            "keys and values need the same number, and it must divide the number of query heads"
        )
    if not q.dtype == k.dtype == v.dtype:
        raise ShapeError(f"q, k and v must have one dtype, not {q.dtype}, {k.dtype} and {v.dtype}")
    if q.dtype not in REAL:
        raise ShapeError(f"q, k and v must hold real numbers, as float32 does, not {q.dtype}")


def _check_batch(score: Score, lead: Sequence[int]) -> None:
    """Raise ShapeError unless what a score adds broadcasts to a call's leading batch."""
    vectors = () if score.vectors is None else (score.vectors.keys, score.vectors.values)
    added = [bias.values.shape[:-2] for bias in score.biases if not isinstance(bias, RelativeBias)]
    added += [x.values.shape[:-2] if isinstance(x, EdgeInput) else x.shape[:-3] for x in vectors if x is not None]
    for batch in added:
        if len(batch) > len(lead) or any(n not in (1, m) for n, m in zip(batch[::-1], lead[::-1], strict=False)):
            what = f"a bias or vectors of edges have the leading batch {list(batch)}"
            raise ShapeError(f"{what}, which does not broadcast to that of the values, {list(lead)}")


def check_aggregate(call: Aggregate) -> None:
    """Raise ShapeError unless x and the weights fit the graph."""
    check_reduction(call.reduce)
    if call.weight is not None and not isinstance(call.weight, Tensor):
        what = f"weight must be a tensor [E] or [*, E, H], not {call.weight!r}"
        is_reduction = isinstance(call.weight, str) and call.weight in REDUCTIONS
        raise ShapeError(f"{what}: how to combine is reduce={call.weight!r}" if is_reduction else what)
    if call.weight is not None and call.weight.ndim == 0:
        raise ShapeError("weight is a single number, but must be [E] or [*, E, H]")
    shape = "[*, J, C]" if call.node_axis == -2 else "[*, J, H, C] because the weight has heads"
    _check_rows("x", call.x, call.node_axis, call.graph, "senders", shape)
    _check_order("x", call.x, call.reduce)
    weight = call.weight
    if weight is None:
        return
    if weight.is_complex() and not call.x.is_complex():
        raise ShapeError(f"weight is complex and x is not: hand over x.to({weight.dtype})")
    edge_axis = -1 if weight.ndim == 1 else -2
    if weight.shape[edge_axis] != call.graph.num_edges:
        raise ShapeError(
            f"weight is {list(weight.shape)}, but must be [E] or [*, E, H] with E = {call.graph.num_edges} edges"
        )
    same_device("weight", weight, call.graph.device)
    call.graph.check_sorted("weight", weight)
    _check_order("weight", weight, call.reduce)
    if weight.ndim > 1 and weight.shape[-1] not in (1, call.x.shape[-2]):
        raise ShapeError(f"weight has {weight.shape[-1]} heads and x {call.x.shape[-2]}: they must agree")
    own, lead = list(weight.shape[:-2]), list(call.x.shape[:-3])
    if any(n != m and 1 not in (n, m) for n, m in zip(own[::-1], lead[::-1], strict=False)):
        raise ShapeError(f"the leading batch of weight, {own}, does not broadcast to that of x, {lead}")


def check_collect(call: Collect) -> None:
    """Raise ShapeError unless there is one message per edge, or the record of them fits."""
    if isinstance(call.message, Message):
        if call.reduce is not None:
            check_reduction(call.reduce)
        call.message.check(call.graph, call.reduce)
        for x in call.message.tensors():
            if x is not None:
                same_device("a tensor of the message", x, call.graph.device)
        return
    check_reduction(call.reduce)
    _check_rows("m_ij", call.message, -2, call.graph, "edges", "[*, E, C]")
    call.graph.check_sorted("m_ij", call.message)
    _check_order("m_ij", call.message, call.reduce)


def check_reduction(reduce: str | None) -> None:
    """Raise ShapeError for a reduction that does not exist."""
    if not isinstance(reduce, str) or reduce not in REDUCTIONS:
        raise ShapeError(f"unknown reduction {reduce!r}: choose one of {', '.join(REDUCTIONS)}")


def _check_order(name: str, x: Tensor, reduce: str | None) -> None:
    """Raise ShapeError for numbers that PyTorch does not add, or that have no largest one."""
    if x.is_floating_point() and x.itemsize == 1:
        raise ShapeError(f"{name} is {_kind(x)}, which PyTorch does not add: hand over {name}.float()")
    if reduce in ("max", "min") and x.is_complex():
        raise ShapeError(f"{name} is {_kind(x)}: complex numbers have no {reduce}")


def _kind(x: Tensor) -> str:
    return str(x.dtype).removeprefix("torch.")


def _batch(x: Tensor, last: int) -> str:
    return f", batch {list(x.shape[:-last])}" if x.ndim > last else ""


def _check_rows(name: str, x: Tensor, axis: int, graph: Graph, what: str, shape: str) -> None:
    """what = "receivers", "senders" or "edges", for each of which x has a row."""
    if not isinstance(x, torch.Tensor):
        raise ShapeError(f"{name} must be a tensor {shape}, not {type(x).__name__}")
    count = getattr(graph, f"num_{what}")
    if x.ndim < -axis or x.shape[axis] != count:
        raise ShapeError(
            f"{name} is {list(x.shape)}, but must be {shape} with {count} rows, one for each of the graph's {what}"
        )
    same_device(name, x, graph.device)
