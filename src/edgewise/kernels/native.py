"""C++ kernels on the CPU, edge by edge: fused attention and sparse products that never hold E·H·C numbers.

Cost        time O(E·H·C), memory O(N·H·C + E·H), forward and backward; the same bits at any number of threads
"""

from __future__ import annotations

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.kernels import edges
from edgewise.kernels.call import Aggregate, Attend, Call
from edgewise.kernels.operands import flat, operands_of, unflat
from edgewise.kernels.operators import DTYPES
from edgewise.kernels.planner import Cost
from edgewise.kernels.scores import Additive, Dot, GatedAdditive, Uniform
from edgewise.native import library

MISSING = "edgewise was installed without its C++ kernels"
SOFTMAX = 16  # an exponential, and finding the row, cost an edge about as much as so many products
ROW = 400  # starting and finishing a receiver's row, likewise
TERM, SUM_ROW = 24, 60  # the same of a sum: finding a term, and a row

KINDS = {Dot: edges.DOT, Additive: edges.ADDITIVE, GatedAdditive: edges.GATED, Uniform: edges.NONE}


def refuses(call: Call) -> str | None:
    """Other devices and dtypes, scores that it does not know, returned weights, and graphs beyond 32-bit numbers."""
    graph = call.graph
    if graph.device.type != "cpu":
        return f"its kernels run on the CPU, not on {graph.device.type}"
    x = call.v if isinstance(call, Attend) else call.x if isinstance(call, Aggregate) else call.m_ij
    if x.dtype not in DTYPES:
        return f"its kernels compute in float32, float64 and bfloat16, not in {x.dtype}"
    if isinstance(call, Attend):
        if type(call.score) not in KINDS:
            return f"it has no {type(call.score).__name__} score"
        if isinstance(call.score, Dot) and call.score.cap is not None:
            return "it has no soft cap"
        if call.return_weights:
            return "it does not return its weights"
    elif isinstance(call, Aggregate) and call.weight is not None and call.weight.dtype != x.dtype:
        return f"weights in {call.weight.dtype} do not fit features in {x.dtype}"
    if max(graph.num_senders, graph.num_receivers, graph.num_edges) > edges.MOST:
        return f"it numbers nodes and edges in 32 bits, and there are more than {edges.MOST}"
    return MISSING if library is None else None


def cost(call: Call) -> Cost:
    """Every edge reads the rows of its sender, once."""
    graph = call.graph
    count = graph.num_edges
    # A rule's edges have to be listed before they can be walked along.
    listing = 0 if graph.rule is None else 24 * count
    if isinstance(call, Attend):
        batch, size = call.v.shape[:-3].numel() * call.heads, call.v.element_size()
        width = call.v.shape[-1] + (0 if call.q is None else call.q.shape[-1])
        return Cost(
            edges=2 * batch * count * (width + SOFTMAX) + ROW * batch * graph.num_receivers,
            rows=size * batch * count * width,
            held=size * batch * graph.num_senders * width,
            bytes=listing,
            launches=16,
        )
    if isinstance(call, Aggregate):
        numbers = count * call.x.numel() // max(1, graph.num_senders)
        size = call.x.element_size()
        work = 2 * numbers + TERM * count + SUM_ROW * graph.num_receivers
        return Cost(edges=work, rows=size * numbers, held=size * call.x.numel(), bytes=listing, launches=2)
    return Cost(edges=call.m_ij.numel(), bytes=call.m_ij.element_size() * call.m_ij.numel(), launches=2)


def run(call: Call) -> Tensor:
    """Compute the call on the graph's edges."""
    if isinstance(call, Attend):
        return _attend(call.with_equal_heads())
    if isinstance(call, Aggregate):
        return _aggregate(call)
    m_ij = call.m_ij
    batched = edges.rows_contiguous(flat(m_ij, 2).unsqueeze(2))
    y = _product(call.graph, batched, None, call.reduce, messages=True)
    return y.reshape(*m_ij.shape[:-2], *y.shape[1:2], m_ij.shape[-1])


def _attend(call: Attend) -> Tensor:
    graph, own = call.graph, operands_of(call)
    q, k = (None, None) if own.q is None or own.k is None else map(edges.rows_contiguous, (own.q, own.k))
    v, bias = edges.rows_contiguous(own.v), own.bias
    a = None if own.a is None else own.a.to(edges.wide(v.dtype)).contiguous()
    if bias is not None:
        bias = bias.to(edges.wide(v.dtype)).expand(*bias.shape[:-1], call.heads).contiguous()
    differentiable = [x for x in (q, k, v, a, bias) if x is not None and x.requires_grad]
    reverse = edges.reverse_of(graph) if differentiable and torch.is_grad_enabled() else ()
    # Drawn from PyTorch's generator, so that torch.manual_seed holds.
    seed = torch.randint(2**62, (1,)) if call.dropout > 0 else _no_seed(graph)
    y = edges.attend(
        q, k, v, a, bias, *edges.structure_of(graph), reverse, KINDS[type(call.score)], own.scale, own.slope,
        call.dropout, seed,
    )[0]  # fmt: skip
    return unflat(y, call)


def _no_seed(graph: Graph) -> Tensor:
    return graph.memo("no seed", lambda: torch.zeros(1, dtype=torch.int64))


def _batched(x: Tensor) -> Tensor:
    """[*, N, H, C] -> [B, N, H, C], each row's numbers one after another."""
    return edges.rows_contiguous(flat(x, 3))


def _aggregate(call: Aggregate) -> Tensor:
    graph, x, weight = call.graph, call.x, call.weight
    if call.node_axis == -2:
        batched = edges.rows_contiguous(flat(x, 2).unsqueeze(2))
        y = _product(graph, batched, None if weight is None else weight.reshape(1, weight.shape[0], 1), call.reduce)
        return y.reshape(*x.shape[:-2], *y.shape[1:2], x.shape[-1])
    assert weight is not None
    if weight.ndim > 2 and weight.shape[:-2] != x.shape[:-3]:
        lead = torch.broadcast_shapes(weight.shape[:-2], x.shape[:-3])
        x, weight = x.expand(*lead, *x.shape[-3:]), weight.expand(*lead, *weight.shape[-2:])
    y = _product(graph, _batched(x), flat(weight, 2), call.reduce)
    return y.reshape(*x.shape[:-3], *y.shape[1:])


def _product(graph: Graph, x: Tensor, weight: Tensor | None, reduce: str, messages: bool = False) -> Tensor:
    """The product on the graph's edges, or on the graph from messages to their receivers."""
    offsets, index = edges.structure_of(graph)
    if messages:
        index = graph.memo("edge numbers", lambda: torch.arange(graph.num_edges, dtype=torch.int32))
    reverse: tuple[Tensor, ...] = ()
    if torch.is_grad_enabled() and (x.requires_grad or (weight is not None and weight.requires_grad)):
        reverse = (
            graph.memo("native messages", lambda: _messages_reversed(graph))
            if messages
            else edges.reverse_of(graph)[:3]
        )
    if weight is not None:
        weight = weight.contiguous()
    empty = graph.memo("no numbers", lambda: torch.empty(0, dtype=torch.int32))
    result: Tensor = edges.product(x, weight, offsets, index, empty, reverse, edges.REDUCTIONS[reduce])
    return result


def _messages_reversed(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """The transpose of the graph from messages to receivers: message e has one edge, to its receiver."""
    count = graph.num_edges
    return (
        torch.arange(count + 1),
        graph.receivers.to(torch.int32),
        torch.arange(count, dtype=torch.int32),
    )
