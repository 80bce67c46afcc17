"""The equation, dense, in any dtype: what every test compares with"""

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.graphs import Graph
from edgewise.graphs.tracing import is_real
from edgewise.kernels.backend import ANY, EVERYTHING, Backend
from edgewise.kernels.backends.torch import messages
from edgewise.kernels.call import Aggregate, Attend, Call
from edgewise.kernels.messages import Message
from edgewise.kernels.scores import Kernel


def run(call: Call) -> Tensor | tuple[Tensor, ...]:
    """Compute the call from its definition."""
    if isinstance(call, Attend):
        return _attend(call.with_own_senders().with_equal_heads())
    if isinstance(call, Aggregate):
        x_j = call.x.index_select(call.node_axis, call.graph.senders)
        m_ij = x_j if call.weight is None else call.weight.unsqueeze(-1) * x_j
        return _collect(call.graph, m_ij, call.reduce, call.node_axis)
    if isinstance(call.message, Message):
        return messages.written_out(call.graph, call.message, call.reduce, _collect)
    return _collect(call.graph, call.m_ij, call.reduce)


BACKEND = Backend(
    name="reference",
    summary="The equation, dense, in any dtype: what every test compares with",
    takes=EVERYTHING,
    run=run,
    devices=(),
    by_name=ANY,
    lowered=False,
)


def _attend(call: Attend) -> Tensor | tuple[Tensor, Tensor]:
    graph, score = call.graph, call.score
    zero = call.v.new_zeros(())
    s_ij = (
        score.pairwise(call.q.unsqueeze(-3), call.k.unsqueeze(-4))
        if call.q is not None and call.k is not None
        else zero
    )
    bias_e = score.edge_bias(graph)  # [*, E, H]
    bias_e = call.v.new_zeros(graph.num_edges, call.heads) if bias_e is None else bias_e
    bias_e = bias_e.expand(*bias_e.shape[:-1], call.heads)
    # Parallel edges count together: exp(b_ij) = Σ_e exp(b_e), as a factor beside the largest of them.
    pair = graph.receivers * graph.num_senders + graph.senders
    top_ij = _largest(graph, bias_e.detach())
    if isinstance(score, Kernel):  # what is common to a receiver's weights cancels
        top_ij = top_ij.amax(-2, keepdim=True).expand_as(top_ij) if graph.num_senders else top_ij
    top_ij = top_ij.clamp(min=torch.finfo(top_ij.dtype).min)
    weight_e = (bias_e - top_ij.flatten(-3, -2).index_select(-2, pair)).exp()
    weight_ij = _scatter(graph, weight_e)  # [*, I, J, H]
    if isinstance(score, Kernel):
        w_ij = torch.where(weight_ij > 0, s_ij * weight_ij, 0)
    else:
        z_ij = torch.where(weight_ij > 0, s_ij + top_ij, float("-inf"))
        top = z_ij.detach().amax(-2, keepdim=True) if graph.num_senders else zero
        w_ij = (z_ij - top.clamp(min=torch.finfo(z_ij.dtype).min)).exp() * weight_ij
    total = w_ij.sum(-2, keepdim=True)
    p_ij = w_ij / torch.where(total == 0, 1, total)
    together = weight_ij.flatten(-3, -2).index_select(-2, pair)
    share = weight_e / torch.where(together == 0, 1, together)  # of a pair that is masked by −∞: none
    p_e = p_ij.flatten(-3, -2).index_select(-2, pair) * share  # [*, E, H]
    p_ij = _scatter(graph, functional.dropout(p_e, call.dropout))
    v = call.v.to(torch.promote_types(call.v.dtype, p_ij.dtype))  # a bias may be wider
    if not is_real(v) or v.isfinite().all():
        y = torch.einsum("...ijh,...jhc->...ihc", p_ij.to(v.dtype), v)
    else:  # without an edge, 0 · NaN would be NaN
        y = torch.where(weight_ij.unsqueeze(-1) > 0, p_ij.unsqueeze(-1) * v.unsqueeze(-4), 0).sum(-3)
    y = y.to(call.v.dtype)
    return (y, p_e.expand(*call.v.shape[:-3], *p_e.shape[-2:])) if call.return_weights else y


def _scatter(graph: Graph, values: Tensor) -> Tensor:
    """[*, E, H] summed into [*, I, J, H]."""
    pair = graph.receivers * graph.num_senders + graph.senders
    flat = values.new_zeros(*values.shape[:-2], graph.num_receivers * graph.num_senders, values.shape[-1])
    shape = (*values.shape[:-2], graph.num_receivers, graph.num_senders, values.shape[-1])
    return flat.index_add(-2, pair, values).reshape(shape)


def _largest(graph: Graph, values: Tensor) -> Tensor:
    """The largest of [*, E, H] for each pair, [*, I, J, H]; −∞ without an edge."""
    shape = (*values.shape[:-2], graph.num_receivers, graph.num_senders, values.shape[-1])
    flat = values.new_full(shape, float("-inf")).flatten(-3, -2)
    pair = graph.receivers * graph.num_senders + graph.senders
    return flat.scatter_reduce(-2, pair.unsqueeze(-1).expand_as(values), values, "amax").reshape(shape)


def _collect(graph: Graph, m_ij: Tensor, reduce: str | None, axis: int = -2) -> Tensor:
    sent = graph.receivers == torch.arange(graph.num_receivers, device=m_ij.device)[:, None]  # [I, E]
    m_ij = m_ij.movedim(axis, 0)
    pairs = sent.reshape(*sent.shape, *[1] * (m_ij.ndim - 1))
    if reduce in ("sum", "mean"):
        half = m_ij.dtype == torch.float16  # whose mean may fit where the sum does not
        y = torch.where(pairs, m_ij, 0).sum(1, dtype=torch.float32 if half else None)
        if reduce == "mean":
            y = y / sent.sum(1).clamp(min=1).reshape(-1, *[1] * (y.ndim - 1))
        y = y.half() if half else y
    elif m_ij.shape[0] == 0:
        y = m_ij.sum(0).expand(graph.num_receivers, *m_ij.shape[1:])
    else:
        worst = float("-inf") if reduce == "max" else float("inf")
        best = torch.where(pairs, m_ij, worst)
        best = best.amax(1) if reduce == "max" else best.amin(1)
        y = torch.where(sent.any(1).reshape(-1, *[1] * (best.ndim - 1)), best, 0).to(m_ij.dtype)
    return y.movedim(0, axis)
