"""C++ kernels on the CPU, edge by edge: fused attention and sparse products that never hold E·H·C numbers.

Cost        time O(E·H·C), memory O(N·H·C + E·H), forward and backward; the same bits at any number of threads
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.kernels.backend import Attention, Backend, Cost, Messages, Probe, Sums, Takes, random_graph
from edgewise.kernels.backends.cpu import KERNELS, edges
from edgewise.kernels.call import Aggregate, Attend, Call
from edgewise.kernels.operator import products
from edgewise.kernels.operator.dropout import seed_for
from edgewise.kernels.operator.layout import operands_of, unflat
from edgewise.kernels.operator.operator import DTYPES
from edgewise.kernels.scores import Additive, Dot, GatedAdditive, Uniform
from edgewise.native import say_if_missing

MOST_AT_ONCE = 8  # heads that the kernels walk an edge for
SOFTMAX, FOUND = 20, 80  # products: of an edge's exponential, and to find a sender for a group of heads; fitted
ROW = 3200  # operations: to start and finish a receiver's row for a group of heads; fitted
NUMBER, TERM, SUM_ROW = 5 / 2, 12, 240  # operations of a sum: for a number, an edge and a receiver; measured likewise
LISTED = 24  # bytes for each edge of a rule, which has to be listed before it can be walked along; counted
CALL, SUM = 4, 2  # launches of attention and of a sum; fitted

KINDS = {Dot: edges.DOT, Additive: edges.ADDITIVE, GatedAdditive: edges.GATED, Uniform: edges.NONE}


def cost(call: Call) -> Cost:
    """Every edge reads the rows of its sender, once."""
    graph = call.graph
    count = graph.num_edges
    listing = 0 if graph.rule is None else LISTED * count
    if isinstance(call, Attend):
        calls, size = call.v.shape[:-3].numel(), call.v.element_size()
        batch, groups = calls * call.heads, calls * call.heads // math.gcd(call.heads, MOST_AT_ONCE)
        width = call.v.shape[-1] + (0 if call.q is None else call.q.shape[-1])
        return Cost(
            edges=2 * count * (batch * (width + SOFTMAX) + groups * FOUND) + ROW * groups * graph.num_receivers,
            rows=size * batch * count * width,
            held=size * batch * graph.num_senders * width,
            bytes=listing,
            launches=CALL,
        )
    if isinstance(call, Aggregate):
        numbers = count * call.x.numel() // max(1, graph.num_senders)
        size = call.x.element_size()
        work = int(NUMBER * numbers) + TERM * count + SUM_ROW * graph.num_receivers
        return Cost(edges=work, rows=size * numbers, held=size * call.x.numel(), bytes=listing, launches=SUM)
    return Cost(edges=call.m_ij.numel(), bytes=call.m_ij.element_size() * call.m_ij.numel(), launches=SUM)


def run(call: Call) -> Tensor:
    """Compute the call on the graph's edges."""
    if isinstance(call, Attend):
        return _attend(call.with_equal_heads())
    return products.run(call, _product)


BACKEND = Backend(
    name="native",
    summary="C++ on the CPU, edge by edge: fused attention and sparse products on any graph",
    takes=Takes(
        dtypes=tuple(DTYPES),
        attend=Attention(scores=tuple(KINDS)),
        aggregate=Sums(),
        collect=(Messages(),),
        nodes=edges.MOST,
        edges=edges.MOST,
    ),
    devices=("cpu",),
    need=replace(KERNELS, warn=say_if_missing),
    cost=cost,
    run=run,
    probes=(
        Probe("cpu", "edges", lambda device: random_graph(1000, 60_000, device)),
        Probe("cpu", "rows", lambda device: random_graph(50_000, 500_000, device)),
    ),
)


def _attend(call: Attend) -> Tensor:
    graph, own = call.graph, operands_of(call)
    v, bias = products.rows_contiguous(own.v), own.bias
    q = k = None
    if own.q is not None and own.k is not None:
        q, k = products.rows_contiguous(own.q), v if own.k is own.v else products.rows_contiguous(own.k)
    a = None if own.a is None else own.a.to(edges.wide(v.dtype)).contiguous()
    if bias is not None:
        bias = bias.to(edges.wide(v.dtype)).expand(*bias.shape[:-1], call.heads).contiguous()
    differentiable = [x for x in (q, k, v, a, bias) if x is not None and x.requires_grad]
    reverse = edges.reverse_of(graph) if differentiable and torch.is_grad_enabled() else ()
    seed = seed_for(graph, call.dropout)
    y = edges.attend(
        q, k, v, a, bias, *edges.structure_of(graph), reverse, KINDS[type(call.score)], own.scale, own.slope,
        call.dropout, seed,
    )[0]  # fmt: skip
    return unflat(y, call)


def _product(graph: Graph, x: Tensor, weight: Tensor | None, reduce: int, messages: bool) -> Tensor:
    """The product on the graph's edges, or on the graph from messages to their receivers."""
    offsets, index = edges.structure_of(graph)
    if messages:
        index = graph.memo("edge numbers", lambda: torch.arange(graph.num_edges, dtype=torch.int32))
    reverse: tuple[Tensor, ...] = ()
    if products.differentiated(x, weight):
        reverse = (
            graph.memo("native messages", lambda: _messages_reversed(graph))
            if messages
            else edges.reverse_of(graph)[:3]
        )
    empty = graph.memo("no numbers", lambda: torch.empty(0, dtype=torch.int32))
    y: Tensor = edges.product(x, weight, (offsets, index, empty), reverse, reduce)
    return y


def _messages_reversed(graph: Graph) -> tuple[Tensor, Tensor, Tensor]:
    """The transpose of the graph from messages to receivers: message e has one edge, to its receiver."""
    count = graph.num_edges
    return (
        torch.arange(count + 1),
        graph.receivers.to(torch.int32),
        torch.arange(count, dtype=torch.int32),
    )
