"""C++ kernels on the CPU, edge by edge: fused attention and sparse products that never hold E·H·C numbers.

Cost        time O(E·H·C), memory O(N·H·C + E·H), forward and backward; the same bits at any number of threads
"""

import math
from dataclasses import replace

from torch import Tensor

from edgewise.graphs.tracing import is_traced
from edgewise.kernels.backend import Attention, Backend, Cost, Messages, Probe, Sums, Takes, listing, random_graph
from edgewise.kernels.backends.cpu import KERNELS, edges, vectors
from edgewise.kernels.backends.cpu import receivers as receivers  # the operators of exported programs
from edgewise.kernels.backends.cpu.messages import networks
from edgewise.kernels.call import Aggregate, Attend, Call, Collect
from edgewise.kernels.messages import Message, TensorProduct
from edgewise.kernels.operator import products
from edgewise.kernels.operator.attention import KINDS, attention_of
from edgewise.kernels.operator.layout import apart, rows_contiguous, side_by_side, unflat, wide
from edgewise.kernels.operator.operator import DTYPES
from edgewise.native import say_if_missing

MOST_AT_ONCE = 8  # heads that the kernels walk an edge for
# Members of a batch share a walk over the edges, side by side in one row, where that saves so many visits of an edge,
# in attention and in sums. Of attention: channels of a head, queries and values, at most, and numbers of a row; a sum's
# row fills vectors then, and did not before, and is so wide at most. All measured
VISITS, CHANNELS, WIDEST, VECTOR = (5_000, 40_000), 128, (512, 64), 16
SIDE = 40  # operations for each number that is copied so, forward and backward; fitted
# Operations of attention, for an edge: of each number of a head, of a head, to look up its sender for a group of heads,
# of a head's bias, and of whether it is dropped; for a receiver and a group of heads; for each number of a node; and
# launches. All fitted
ATTEND = (2.1, 23, 250, 195, 45, 1870, 9.6, 4.1)
# Operations of a sum: for each number of an edge, more where each head has a weight, and of an extreme of these; for an
# edge, more with a weight; for a receiver; for each number of a node. Launches: of a sum, more where each head has a
# weight, and for the division of a mean's gradient. All fitted
SUM = (2.75, 2.7, 30, 28, 67, 460, 11, 3.45, 2.65, 0.77)
COLLECT = (10, 375, 4.8)  # operations for each number of messages and for an edge, and launches; fitted


def cost(call: Call) -> Cost:
    """Every edge reads the rows of its sender, once."""
    graph = call.graph
    count = graph.num_edges
    if isinstance(call, Attend):
        calls, size = call.v.shape[:-3].numel(), call.v.element_size()
        members = _members(call)
        batch, groups = calls * call.heads, calls * call.heads // math.gcd(members * call.heads, MOST_AT_ONCE)
        width = call.v.shape[-1] + (0 if call.q is None else call.q.shape[-1])
        number, head, lookup, bias, drop, row, end, launches = ATTEND
        end += SIDE if members > 1 else 0
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
        members = _members(call)
        batch = call.x.shape[: call.node_axis].numel() // members
        end += SIDE if members > 1 else 0
        launches += mean if call.reduce == "mean" else 0
        if weight is not None:
            term += weighted
            if weight.ndim > 1:
                launches += heads
                number += of_heads + (extreme if call.reduce in ("max", "min") else 0)
                batch *= call.x.shape[-2] if call.x.shape[-1] > 1 else 1  # each head walks the edges
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
    members = _members(call) if isinstance(call, Aggregate) else 1
    return products.run(call, edges.PRODUCTS, edges.product_structure_of, edges.product_reverse_of, members)


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
    small=("attend", "aggregate"),
    probes=(
        Probe("cpu", "edges", lambda device: random_graph(1000, 60_000, device)),
        Probe("cpu", "rows", lambda device: random_graph(50_000, 500_000, device)),
    ),
)


def _members(call: Attend | Aggregate) -> int:
    """How many members of a batch share one walk over the edges: in attention as heads, in sums as channels."""
    if is_traced():  # what is compiled serves batches of any size
        return 1
    graph = call.graph
    nodes, edges = max(graph.num_receivers, graph.num_senders), graph.num_edges
    if isinstance(call, Attend):
        batch, width = call.v.shape[:-3].numel(), call.v.shape[-1] + (0 if call.q is None else call.q.shape[-1])
        # What dropout leaves out follows from a weight's place.
        fits = call.heads in (1, 2) and width <= CHANNELS and not call.score.biases and call.dropout == 0
        counts = [n for n in (8, 4, 2) if n * call.heads <= min(MOST_AT_ONCE, WIDEST[0] // max(1, width))]
    else:
        batch, width = call.x.shape[: call.node_axis].numel(), call.x.shape[call.node_axis + 1 :].numel()
        shared = call.weight is None or call.weight.shape[:-2].numel() == 1
        fits = shared and 0 < width < VECTOR and width * nodes <= edges
        counts = [n for n in range(WIDEST[1] // max(1, width), 1, -1) if n * width >= VECTOR]
    members = next((n for n in counts if batch % n == 0), 1) if fits else 1
    return members if edges * (batch - batch // members) >= VISITS[isinstance(call, Aggregate)] else 1


def _attend(call: Attend) -> Tensor:
    graph, members = call.graph, _members(call)
    own = attention_of(call, edges.EdgesAttention, edges.structure_of(graph))
    shared, own.v = own.k is own.v, rows_contiguous(side_by_side(own.v, members, 2))
    if own.q is not None and own.k is not None:
        own.q = rows_contiguous(side_by_side(own.q, members, 2))
        own.k = None if shared else rows_contiguous(side_by_side(own.k, members, 2))
    if own.a is not None:
        own.a = own.a.to(wide(own.v.dtype)).repeat(members, 1)
    if own.bias is not None:
        bias = own.bias.to(wide(own.v.dtype))
        own.bias = bias.expand(*bias.shape[:-1], call.heads).contiguous()
    if edges.attend.differentiates(own):
        own.reverse = edges.reverse_of(graph)
    return unflat(apart(edges.attend(own)[0], members, 2), call)
