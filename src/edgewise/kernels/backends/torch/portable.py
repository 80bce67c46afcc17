"""PyTorch's standard operators alone, as exporters translate them: no sorting, no kernel, no size made a number.

Graphs by rule run as scaled_dot_product_attention with the rule as a mask, all others edge by edge, in any order.
"""

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from edgewise.graphs import Graph
from edgewise.kernels.backend import ANY, CAUSAL, EVERYTHING, Backend
from edgewise.kernels.backends.torch import messages
from edgewise.kernels.call import Aggregate, Attend, Call
from edgewise.kernels.messages import Message
from edgewise.kernels.operator.composed import attention, reduced
from edgewise.kernels.operator.layout import heads_first, unflat
from edgewise.kernels.scores import Additive, Bias, Dot, EdgeBias, Kernel, Uniform


def run(call: Call) -> Tensor | tuple[Tensor, ...]:
    """Compute the call by standard operators."""
    if isinstance(call, Attend):
        return _attend(call)
    if isinstance(call, Aggregate):
        return _aggregate(call.graph, call.x, call.weight, call.reduce, call.node_axis)
    if isinstance(call.message, Message):
        return messages.written_out(call.graph, call.message, call.reduce, reduced)
    return reduced(call.graph, call.m_ij, call.reduce)


BACKEND = Backend(
    name="portable",
    summary="Standard operators of PyTorch, as files for other programs have them",
    takes=EVERYTHING,
    run=run,
    devices=(),
    by_name=ANY,
    lowered=False,
)


def _attend(call: Attend) -> Tensor | tuple[Tensor, ...]:
    call = call.with_own_senders().with_equal_heads()
    score = call.score
    if isinstance(score, Additive) and call.q is not None and call.k is not None:
        q, k, score = score.as_sums(call.q, call.k.expand(call.k.shape))  # another object than q: one product for each
        call = Attend(call.graph, q, k, call.v, score, call.dropout, call.return_weights)
    if not _is_dense(call):
        return attention(call)
    return _by_features(call, score) if isinstance(score, Kernel) else _by_pairs(call)


def _is_dense(call: Attend) -> bool:
    """Whether all pairs are compared at once, those without an edge masked."""
    graph, score = call.graph, call.score
    if graph.rule is None or call.return_weights or call.dropout:
        return False
    if isinstance(score, Kernel):
        return not score.biases
    plain = isinstance(score, Uniform) or (isinstance(score, Dot) and score.cap is None)
    return plain and (graph.is_complete or not any(isinstance(bias, EdgeBias) for bias in score.biases))


def _by_pairs(call: Attend) -> Tensor:
    graph, score, v = call.graph, call.score, call.v
    q, k = call.ends() if score.needs_ends else (v.new_zeros(*v.shape[:-3], graph.num_receivers, *v.shape[-2:]), v * 0)
    q, scale = score.scaled(q) if isinstance(score, Dot) else (q, None)
    q, k, v = (heads_first(x) for x in (q, k, v))  # [B, H, N, C]
    causal = graph.is_square and CAUSAL.holds(graph) and not score.biases
    listens = None if causal or graph.is_complete else graph.dense_mask()
    mask = listens
    if score.biases:
        mask = sum((_bias_of_pairs(graph, bias) for bias in score.biases[1:]), _bias_of_pairs(graph, score.biases[0]))
        mask = mask if listens is None else mask.masked_fill(~listens, float("-inf"))
        mask = mask.to(v.dtype)
    y = scaled_dot_product_attention(q, k, v, mask, is_causal=causal, scale=scale)
    if listens is not None:  # a receiver without senders
        y = torch.where(listens.any(-1, keepdim=True), y, 0.0)
    return unflat(y.transpose(1, 2), call)


def _by_features(call: Attend, score: Kernel) -> Tensor:
    """Products of features, which factorise where all listen to all; else they are a matrix [I, J]."""
    graph, (q, k) = call.graph, call.ends()
    phi_q, phi_k, v = (heads_first(x) for x in (score.feature_map(q), score.feature_map(k), call.v))
    if graph.is_complete:
        y, total = phi_q @ (phi_k.mT @ v), phi_q @ phi_k.sum(-2, keepdim=True).mT
    else:
        w = torch.where(graph.dense_mask(), phi_q @ phi_k.mT, 0.0)
        y, total = w @ v, w.sum(-1, keepdim=True)
    return unflat((y / torch.where(total == 0, 1.0, total)).transpose(1, 2), call)


def _bias_of_pairs(graph: Graph, bias: Bias) -> Tensor:
    """A bias as [*, H, I or 1, J]; one of edges is that of a complete graph's, in their order."""
    if isinstance(bias, EdgeBias):
        return bias.values.unflatten(-2, (graph.num_receivers, graph.num_senders)).movedim(-1, -3)
    return bias.on_pairs(graph)


def _aggregate(graph: Graph, x: Tensor, weight: Tensor | None, reduce: str, axis: int) -> Tensor:
    if weight is not None or not graph.is_complete:
        x_j = x.index_select(axis, graph.senders)
        return reduced(graph, x_j if weight is None else weight.unsqueeze(-1) * x_j, reduce, axis)
    if reduce in ("sum", "mean"):
        y = x.sum(-2, keepdim=True) if reduce == "sum" else x.sum(-2, keepdim=True) / max(1, graph.num_senders)
    else:
        y = x.amax(-2, keepdim=True) if reduce == "max" else x.amin(-2, keepdim=True)
    return y.expand(*y.shape[:-2], graph.num_receivers, y.shape[-1])
