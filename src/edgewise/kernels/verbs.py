"""The three verbs: `attend` with learned weights, `aggregate` with fixed weights, `collect` for messages on edges."""

from dataclasses import fields, is_dataclass, replace
from typing import Any, Literal, TypeVar, cast, overload

import torch
from torch import Tensor

from edgewise.errors import ShapeError
from edgewise.graphs import Graph, Partition
from edgewise.graphs.checks import shown
from edgewise.kernels.call import (
    Aggregate,
    Attend,
    Call,
    Collect,
    check_aggregate,
    check_attend,
    check_collect,
    check_graph,
    check_reduction,
    check_score,
)
from edgewise.kernels.gates import gated_call, gates
from edgewise.kernels.messages import Message
from edgewise.kernels.planning import dispatch
from edgewise.kernels.planning.planner import Plan, explain
from edgewise.kernels.planning.recording import Recorded, RecordedMessages, recording, recording_messages
from edgewise.kernels.scores import Dot, Score, Uniform

X = TypeVar("X", Tensor, Tensor | None)
M = TypeVar("M")
Result = TypeVar("Result", bound=Tensor | tuple[Tensor, ...])


@overload
def attend(
    graph: Graph, q: Tensor | None, k: Tensor | None, v: Tensor, score: Score = ..., *,
    dropout: float = ..., return_weights: Literal[False] = ..., backend: str | None = ...,
) -> Tensor: ...  # fmt: skip
@overload
def attend(
    graph: Graph, q: Tensor | None, k: Tensor | None, v: Tensor, score: Score = ..., *,
    dropout: float = ..., return_weights: Literal[True], backend: str | None = ...,
) -> tuple[Tensor, Tensor]: ...  # fmt: skip
def attend(
    graph: Graph,
    q: Tensor | None,
    k: Tensor | None,
    v: Tensor,
    score: Score = Dot(),  # noqa: B008 (immutable)
    *,
    dropout: float = 0.0,
    return_weights: bool = False,
    backend: str | None = None,
) -> Tensor | tuple[Tensor, Tensor]:
    """Let every receiver average its senders' values, with weights that it learns from the scores.

    Equation    y_i = Σ_{j ∈ N(i)} p_ij v_j,  p_ij = exp(s_ij) / Σ_{j' ∈ N(i)} exp(s_ij'),  s_ij = score(q_i, k_j)
    Symbols     graph = N, q = queries, k = keys, v = values; dropout = probability that a weight is zeroed
    Shapes      q [*, I, H, C], k [*, J, G, C], v [*, J, G, D] -> [*, I, H, D]; G divides H (grouped queries);
                with return_weights also p [*, E, H] in the graph's edge order, before dropout
    Errors      ShapeError where a tensor does not fit; BackendRefusal where the named backend cannot
    Edge cases  a receiver without senders gives 0; parallel edges count once each; under torch.autocast q, k
                and v take its dtype, as those of scaled_dot_product_attention do
    Cost        that of the backend chosen: print `plan(graph, ...)`
    Reference   Vaswani et al. 2017, eq. 1; Veličković et al. 2018, eqs. 2–4
    Example
        >>> import torch
        >>> from edgewise import Dot, attend, causal
        >>> v = torch.tensor([1.0, 2.0, 6.0]).view(3, 1, 1)
        >>> q = torch.zeros(3, 1, 4)  # equal scores: every token averages its past
        >>> attend(causal(3), q, q, v, Dot()).flatten().tolist()
        [1.0, 1.5, 3.0]
    """
    check_graph(graph, q, k, v)
    check_score(score)
    if torch.is_autocast_enabled(graph.device.type):
        q, k, v = _lowered(q), _lowered(k), _lowered(v)
    if not score.needs_ends and isinstance(v, Tensor) and _is_whole(v):
        v = v.to(torch.get_default_dtype())  # its average is real
    call = Attend(graph, q, k, v, score, dropout, return_weights)
    check_attend(call)
    if (given := gates()) is not None and (weighed := gated_call(call, given)) is not None:
        return weighed if return_weights else weighed[0]
    seen = recording()
    if seen is not None and not return_weights:
        return attend(graph, q, k, v, score, dropout=dropout, return_weights=True, backend=backend)[0]
    if isinstance(score, Uniform) and not (score.biases or score.vectors or dropout or return_weights or backend):
        return aggregate(graph, v.flatten(-2), reduce="mean").reshape(*v.shape[:-3], graph.num_receivers, *v.shape[-2:])
    result = dispatch.run(call, backend)
    if isinstance(result, Tensor):
        return result
    y, p = result
    if seen is not None:
        seen.append(Recorded(graph, p.detach()))
    return y, p


def aggregate(
    graph: Graph, x: Tensor, weight: Tensor | None = None, reduce: str = "sum", *, backend: str | None = None
) -> Tensor:
    """Combine every receiver's senders with fixed weights.

    Equation    y_i = ⊕_{j ∈ N(i)} w_ij x_j with ⊕ one of sum, mean, max, min; the sum is the matrix product A X
    Shapes      x [*, J, C], weight None or [E] -> [*, I, C];
                x [*, J, H, C], weight [*, E, H] (one set of weights for each head) -> [*, I, H, C];
                weights in the graph's edge order (`graph.sort_edges`)
    Errors      ShapeError where a tensor does not fit; BackendRefusal where the named backend cannot
    Edge cases  a receiver without senders gives 0; sums and means count bools, and add up whole numbers as int64;
                features and weights of two dtypes are computed in the wider, as `torch.promote_types` has it; the mean
                divides by the number of senders, not by Σ_j w_ij
    Cost        O(E·C) time; O((I + J)·C + E) memory for sums and means of float32 and float64
    Reference   Gilmer et al. 2017, eqs. 1–2
    Example
        >>> import torch
        >>> from edgewise import Graph, aggregate
        >>> graph = Graph.from_edge_index([[0, 1, 2], [2, 2, 0]], num_nodes=3)  # 0 → 2, 1 → 2, 2 → 0
        >>> aggregate(graph, torch.tensor([[1.0], [10.0], [100.0]])).flatten().tolist()
        [100.0, 0.0, 11.0]
    """
    check_graph(graph, x, weight)
    x = _counted(x, reduce)
    call = Aggregate(graph, x, weight, reduce)
    check_aggregate(call)
    if weight is not None and weight.dtype != x.dtype:
        wide = torch.promote_types(x.dtype, weight.dtype)
        call = Aggregate(graph, x.to(wide), weight.to(wide), reduce)
    if (given := gates()) is not None and (y := gated_call(call, given)) is not None:
        return _tensor(y)
    return _tensor(dispatch.run(call, backend))


@overload
def collect(
    graph: Graph, message: Message[Result], reduce: str | None = ..., *, backend: str | None = ...
) -> Result: ...
@overload
def collect(graph: Graph, message: Tensor, reduce: str = ..., *, backend: str | None = ...) -> Tensor: ...
def collect(
    graph: Graph, message: Tensor | Message[Any], reduce: str | None = "sum", *, backend: str | None = None
) -> Any:
    """Combine the messages that arrive at every receiver.

    Equation    y_i = ⊕_{j ∈ N(i)} m_ij with ⊕ one of sum, mean, max, min; None: m_ij themselves
    Symbols     message = m, a tensor, or a record that a kernel can read: `EdgeNetwork`, `EdgeReadout`, `Filter` or
                `TensorProduct`
    Shapes      m_ij [*, E, C] in the graph's edge order -> [*, I, C]; a record says what it returns
    Errors      ShapeError where a tensor does not fit; BackendRefusal where the named backend cannot
    Edge cases  a receiver without senders gives 0; under torch.autocast a record's linear maps take its dtype
    Cost        O(E·C), and that of the record
    Reference   Gilmer et al. 2017, eq. 1
    Example
        >>> import torch
        >>> from edgewise import Graph, collect
        >>> graph = Graph.from_edge_index([[0, 1, 2], [2, 2, 0]], num_nodes=3)
        >>> m_ij = graph.sort_edges(torch.tensor([[5.0], [7.0], [1.0]]))
        >>> collect(graph, m_ij, "max").flatten().tolist()
        [1.0, 0.0, 7.0]
    """
    check_graph(graph, message)
    device = graph.device.type
    if isinstance(message, Message) and torch.is_autocast_enabled(device):
        message = message.lowered(torch.get_autocast_dtype(device))
    message = _counted(message, reduce)
    call = Collect(graph, message, reduce)
    check_collect(call)
    if (given := gates()) is not None and (y := gated_call(call, given)) is not None:
        return y
    seen = recording_messages()
    if seen is not None and isinstance(message, Message):
        seen.append(RecordedMessages(graph, tuple(m.detach() for m in message.on_edges(graph))))
    return dispatch.run(call, backend)


def ends(graph: Graph, x: Tensor, senders: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """Both ends of every edge: x_i of its receiver and x_j of its sender.

    Shapes      x [*, I, C] of the receivers, senders [*, J, C'] (the same nodes unless given)
                -> x_i [*, E, C], x_j [*, E, C'] in the graph's edge order
    Errors      ShapeError where a tensor does not fit
    Cost        O(E·C) time and memory
    Example
        >>> import torch
        >>> from edgewise import Graph, ends
        >>> graph = Graph.from_edge_index([[0, 1], [2, 2]], num_nodes=3)
        >>> x_i, x_j = ends(graph, torch.tensor([[1.0], [10.0], [100.0]]))
        >>> (x_i - x_j).flatten().tolist()
        [99.0, 90.0]
    """
    check_graph(graph, x, senders)
    x_senders = x if senders is None else senders
    for name, rows, count, what in (
        ("x", x, graph.num_receivers, "receivers"),
        ("senders", x_senders, graph.num_senders, "senders"),
    ):
        if not isinstance(rows, Tensor) or rows.ndim < 2 or rows.shape[-2] != count:
            raise ShapeError(
                f"{name} is {shown(rows)}, but must be [*, N, C] with {count} rows, one for each of the {what}"
            )
    x_i, local = x.index_select(-2, graph.receivers), graph
    if isinstance(graph, Partition):
        local, x_senders = graph.local, graph.fetch(x_senders)
    return x_i, x_senders.index_select(-2, local.senders)


def plan(
    graph: Graph,
    what: Score | Message[Any] | None = None,
    *,
    verb: str = "attend",
    heads: int = 1,
    channels: int = 64,
    batch: tuple[int, ...] = (),
    dtype: torch.dtype = torch.float32,
    reduce: str = "sum",
) -> Plan:
    """What would run, and why: every backend's predicted time or its refusal, without computing anything.

    Symbols     what = a score of `attend` (default `Dot()`), or a record of messages that `collect` combines by
                `reduce`; verb = "attend", "aggregate" or "collect", of tensors that are assumed; C = channels
    Shapes      tensors of [*batch, N, heads, channels] are assumed, [*batch, N, channels] for aggregate and collect; a
                record has its own
    Errors      ShapeError for a verb, reduction or size that does not exist
    Cost        microseconds; no tensor is filled
    Example
        >>> from edgewise import causal, plan
        >>> plan(causal(1024), heads=8, channels=16).choice
        'tiled'
    """
    check_graph(graph)
    if not isinstance(what, Message) and what is not None:
        check_score(what)
    if not isinstance(dtype, torch.dtype):
        raise ShapeError(f"dtype must be one of PyTorch's, as torch.float32, not {dtype!r}")
    if not isinstance(batch, tuple | list):
        raise ShapeError(f"batch lists the sizes of leading axes, as ({batch!r},), not {batch!r}")
    if not all(isinstance(n, int) and n >= 1 for n in (heads, channels, *batch)):
        raise ShapeError(
            f"heads, channels and batch must be at least 1, in whole numbers, not {heads}, {channels} and {batch}"
        )

    def assumed(*shape: int) -> Tensor:
        return torch.empty(*batch, *shape, dtype=dtype, device="meta")

    call: Call
    if isinstance(what, Message):
        call = Collect(graph, what, reduce)
        check_collect(call)
    elif verb == "attend":
        score = Dot() if what is None else what
        held = {name: getattr(score, name) for name in (*score.weights, *score.numbers, "vectors")}
        score = replace(score, **{name: _assumed(x) for name, x in held.items()})
        width = score.end_width or channels
        q, k = assumed(graph.num_receivers, heads, width), assumed(graph.num_senders, heads, width)
        v = assumed(graph.num_senders, heads, channels)
        call = Attend(graph, q, k, v, score) if score.needs_ends else Attend(graph, None, None, v, score)
    elif verb in ("aggregate", "collect"):
        check_reduction(reduce)
        x = assumed(graph.num_senders if verb == "aggregate" else graph.num_edges, channels * heads)
        call = Aggregate(graph, x, None, reduce) if verb == "aggregate" else Collect(graph, x, reduce)
    else:
        raise ShapeError(f"there is no verb {verb!r}: choose attend, aggregate or collect")
    return explain(call)


def _assumed(x: Any) -> Any:
    """The same without numbers: tensors on meta, also those that records hold."""
    if isinstance(x, tuple):
        return tuple(_assumed(part) for part in x)
    if is_dataclass(x) and not isinstance(x, type):
        return replace(x, **{part.name: _assumed(getattr(x, part.name)) for part in fields(x)})
    return x.to("meta") if isinstance(x, Tensor) else x


def _lowered(x: X) -> X:
    """In the dtype of the autocast in force, as scaled_dot_product_attention takes its ends."""
    if isinstance(x, Tensor) and x.is_floating_point() and x.dtype != torch.float64:
        return x.to(torch.get_autocast_dtype(x.device.type))
    return x


def _counted(x: M, reduce: str | None) -> M:
    """Truth and whole numbers as int64 where they are added up, as Tensor.sum counts them."""
    if isinstance(x, Tensor) and _is_whole(x) and x.dtype != torch.int64 and reduce in ("sum", "mean"):
        return cast(M, x.long())
    return x


def _is_whole(x: Tensor) -> bool:
    return not (x.is_floating_point() or x.is_complex())


def _tensor(result: Tensor | tuple[Tensor, ...]) -> Tensor:
    assert isinstance(result, Tensor)
    return result
