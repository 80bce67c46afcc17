"""C++ kernels on the CPU, edge by edge: fused attention and sparse products that never hold E·H·C numbers.

Cost        time O(E·H·C), memory O(N·H·C + E·H), forward and backward; the same bits at any number of threads
"""

import math
from dataclasses import replace

from torch import Tensor

from edgewise.kernels.backend import Attention, Backend, Cost, Messages, Probe, Sums, Takes, listing, random_graph
from edgewise.kernels.backends.cpu import KERNELS, edges, vectors
from edgewise.kernels.backends.cpu import receivers as receivers  # the operators of exported programs
from edgewise.kernels.backends.cpu.messages import networks
from edgewise.kernels.call import Aggregate, Attend, Call, Collect
from edgewise.kernels.messages import Message, TensorProduct
from edgewise.kernels.operator import products
from edgewise.kernels.operator.attention import KINDS, attention_of
from edgewise.kernels.operator.layout import rows_contiguous, unflat, wide
from edgewise.kernels.operator.operator import DTYPES
from edgewise.native import say_if_missing

MOST_AT_ONCE = 8  # heads that the kernels walk an edge for
# Operations of attention, for an edge: of each number of a head, of a head, to look up its sender for a group of heads,
# of a head's bias, and of whether it is dropped; for a receiver and a group of heads; for each number of a node; and
# launches. All fitted
ATTEND = (2.1, 23, 250, 195, 45, 1870, 9.6, 4.1)
# Operations of a sum: for each number of an edge, more where each head has a weight, and of an extreme of these; for an
# edge, more with a weight; for a receiver; for each number of a node. Launches: of a sum, more where each head has a
# weight, and for the division of a mean's gradient. All fitted
SUM = (2.75, 2.7, 30, 29, 67, 890, 11, 3.3, 1.9, 0.5)
COLLECT = (10, 300, 5.3)  # operations for each number of messages and for an edge, and launches; fitted


def cost(call: Call) -> Cost:
    """Every edge reads the rows of its sender, once."""
    graph = call.graph
    count = graph.num_edges
    if isinstance(call, Attend):
        calls, size = call.v.shape[:-3].numel(), call.v.element_size()
        batch, groups = calls * call.heads, calls * call.heads // math.gcd(call.heads, MOST_AT_ONCE)
        width = call.v.shape[-1] + (0 if call.q is None else call.q.shape[-1])
        number, head, lookup, bias, drop, row, end, launches = ATTEND
        ends = (graph.num_receivers + graph.num_senders) * width
        head += (bias if call.score.biases else 0) + (drop if call.dropout > 0 else 0)
        work = count * (batch * (number * width + head) + groups * lookup) + row * groups * graph.num_receivers
        plain = Cost(
            edges=int(work + end * batch * ends),
            rows=size * batch * count * width,
            held=size * batch * graph.num_senders * width,
            bytes=listing(graph),
            launches=launches,
        )
        return plain if call.score.vectors is None else plain + vectors.cost(call)
    if isinstance(call, Aggregate):
        number, of_heads, extreme, term, weighted, row, end, launches, heads, mean = SUM
        own, size, weight = call.x.numel() // max(1, graph.num_senders), call.x.element_size(), call.weight
        batch = call.x.shape[: call.node_axis].numel()
        launches += mean if call.reduce == "mean" else 0
        if weight is not None:
            term += weighted
            if weight.ndim > 1:
                launches += heads
                number += of_heads + (extreme if call.reduce in ("max", "min") else 0)
        work = count * (number * own + term * batch) + row * batch * graph.num_receivers
        work += end * own * (graph.num_receivers + graph.num_senders)
        held, rows = size * call.x.numel(), size * count * own
        return Cost(edges=int(work), rows=rows, held=held, bytes=listing(graph), launches=launches)
    if isinstance(call.message, Message):
        return networks.cost_of(call, cost)
    number, term, launches = COLLECT
    m_ij = call.m_ij
    return Cost(edges=number * m_ij.numel() + term * m_ij.shape[:-1].numel(), launches=launches)


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
        collect=(
            Messages(),
            Messages(TensorProduct, networks=networks.TAKEN_OF_PRODUCTS),
            Messages(Message, networks=networks.TAKEN),
        ),
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
