"""C++ kernels on the CPU, edge by edge: fused attention and sparse products that never hold E·H·C numbers.

Cost        time O(E·H·C), memory O(N·H·C + E·H), forward and backward; the same bits at any number of threads
"""

import math
from dataclasses import replace

from torch import Tensor

from edgewise.kernels.backend import Attention, Backend, Cost, Messages, Probe, Sums, Takes, listing, random_graph
from edgewise.kernels.backends.cpu import KERNELS, edges, networks, vectors
from edgewise.kernels.backends.cpu import receivers as receivers  # the operators of exported programs
from edgewise.kernels.backends.torch import messages
from edgewise.kernels.call import Aggregate, Attend, Call, Collect
from edgewise.kernels.messages import Message
from edgewise.kernels.operator import products
from edgewise.kernels.operator.attention import KINDS, attention_of
from edgewise.kernels.operator.layout import rows_contiguous, unflat, wide
from edgewise.kernels.operator.operator import DTYPES
from edgewise.native import say_if_missing

MOST_AT_ONCE = 8  # heads that the kernels walk an edge for
SOFTMAX, LOOKUP = 20, 80  # products: of an edge's exponential, and to look up a sender for a group of heads; fitted
ROW = 3200  # operations: to start and finish a receiver's row for a group of heads; fitted
NUMBER, TERM, SUM_ROW = 5 / 2, 12, 240  # operations of a sum: for a number, an edge and a receiver; measured likewise
CALL, SUM = 2, 2  # launches of attention and of a sum; fitted


def cost(call: Call) -> Cost:
    """Every edge reads the rows of its sender, once."""
    graph = call.graph
    count = graph.num_edges
    if isinstance(call, Attend):
        calls, size = call.v.shape[:-3].numel(), call.v.element_size()
        batch, groups = calls * call.heads, calls * call.heads // math.gcd(call.heads, MOST_AT_ONCE)
        width = call.v.shape[-1] + (0 if call.q is None else call.q.shape[-1])
        plain = Cost(
            edges=2 * count * (batch * (width + SOFTMAX) + groups * LOOKUP) + ROW * groups * graph.num_receivers,
            rows=size * batch * count * width,
            held=size * batch * graph.num_senders * width,
            bytes=listing(graph),
            launches=CALL,
        )
        return plain if call.score.vectors is None else plain + vectors.cost(call)
    if isinstance(call, Aggregate):
        numbers = count * call.x.numel() // max(1, graph.num_senders)
        size = call.x.element_size()
        work = int(NUMBER * numbers) + TERM * count + SUM_ROW * graph.num_receivers
        return Cost(edges=work, rows=size * numbers, held=size * call.x.numel(), bytes=listing(graph), launches=SUM)
    if isinstance(call.message, Message):
        return messages.cost(call, cost, networks.cost)
    return Cost(edges=call.m_ij.numel(), bytes=call.m_ij.element_size() * call.m_ij.numel(), launches=SUM)


def run(call: Call) -> Tensor | tuple[Tensor, ...]:
    """Compute the call on the graph's edges."""
    if isinstance(call, Attend):
        return _attend(call.with_equal_heads()) if call.score.vectors is None else vectors.run(call.with_equal_heads())
    if isinstance(call, Collect) and isinstance(call.message, Message):
        return networks.run(call, run)
    return products.run(call, edges.PRODUCTS, edges.product_structure_of, edges.product_reverse_of)


BACKEND = Backend(
    name="native",
    summary="C++ on the CPU, edge by edge: fused attention and sparse products on any graph",
    takes=Takes(
        dtypes=tuple(DTYPES),
        attend=Attention(scores=tuple(KINDS), vectors=True),
        aggregate=Sums(),
        collect=(Messages(), Messages(Message, networks=networks.TAKEN)),
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
    graph = call.graph
    own = attention_of(call, edges.EdgesAttention, edges.structure_of(graph))
    shared, own.v = own.k is own.v, rows_contiguous(own.v)
    if own.q is not None and own.k is not None:
        own.q, own.k = rows_contiguous(own.q), None if shared else rows_contiguous(own.k)
    if own.a is not None:
        own.a = own.a.to(wide(own.v.dtype)).contiguous()
    if own.bias is not None:
        bias = own.bias.to(wide(own.v.dtype))
        own.bias = bias.expand(*bias.shape[:-1], call.heads).contiguous()
    if edges.attend.differentiates(own):
        own.reverse = edges.reverse_of(graph)
    return unflat(edges.attend(own)[0], call)
