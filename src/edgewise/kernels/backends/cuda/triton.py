"""Triton's kernels on a GPU, edge by edge: fused attention and sparse products that never hold E·H·C numbers.

Cost        time O(E·H·C), memory O(N·H·C + E·H), forward and backward; no atomics, the same bits every time
"""

from functools import partial

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.kernels.backend import Attention, Backend, Cost, Messages, Probe, Sums, Takes, listing, random_graph
from edgewise.kernels.backends.cpu import edges
from edgewise.kernels.backends.cuda import attention, selfcheck
from edgewise.kernels.backends.cuda import programs as gpu
from edgewise.kernels.backends.cuda.programs.building import schedule
from edgewise.kernels.backends.torch import messages
from edgewise.kernels.call import Aggregate, Attend, Call, Collect
from edgewise.kernels.messages import Message
from edgewise.kernels.operator import products
from edgewise.kernels.operator.attention import KINDS
from edgewise.kernels.operator.products import ExtremeGradient, ExtremeShare, Product, ProductGradient

MOST = 2**31 - 64  # nodes and edges are numbered in 32 bits, in which a program may count beyond its last edge
CALL = 18  # launches of attention; by an H100's host
SUM = 2  # and of a sum; assumed
NUMBER = 4  # bytes of an edge's sender; counted
WIDEST = 1024  # channels of a head: a row must fit the registers of a program


def cost(call: Call) -> Cost:
    """Every edge reads the rows of its sender, once."""
    if isinstance(call, Collect) and isinstance(call.message, Message):
        return messages.cost(call, cost)
    if not isinstance(call, Attend):
        return _cost_of_sum(call)
    batch, size = call.v.shape[:-3].numel() * call.heads, call.v.element_size()
    width = call.v.shape[-1] + (0 if call.q is None else call.q.shape[-1])
    return Cost(
        edges=2 * batch * call.graph.num_edges * width,
        rows=size * batch * call.graph.num_edges * width,
        held=size * batch * call.graph.num_senders * width,
        bytes=listing(call.graph) + size * batch * call.graph.num_receivers * width,
        launches=CALL,
    )


def _cost_of_sum(call: Aggregate | Collect) -> Cost:
    """Every edge reads its sender's row and its weight, once; every receiver's row is written once."""
    graph = call.graph
    count = graph.num_edges
    read = listing(graph) + NUMBER * count
    if isinstance(call, Aggregate):
        x, size = call.x, call.x.element_size()
        numbers = x.numel() // max(1, graph.num_senders)
        weights = 0 if call.weight is None else size * call.weight.numel()
        return Cost(
            edges=2 * count * numbers,
            rows=size * count * numbers,
            held=size * x.numel(),
            bytes=read + weights + size * graph.num_receivers * numbers,
            launches=SUM,
        )
    size, numbers = call.m_ij.element_size(), call.m_ij.numel() // max(1, count)
    written = size * graph.num_receivers * numbers
    return Cost(edges=count * numbers, bytes=read + size * count * numbers + written, launches=SUM)


def run(call: Call) -> Tensor | tuple[Tensor, ...]:
    """Compute the call on the graph's edges."""
    if isinstance(call, Collect) and isinstance(call.message, Message):
        return messages.run(call, run)
    if not isinstance(call, Attend):
        return products.run(call, PRODUCTS, structure_of, reverse_of)
    return attention.run(call.with_equal_heads())


Structure = list[Tensor]  # offsets, index, edge, and how the rows are dealt out: see `programs.building`


@cached
def structure_of(graph: Graph) -> Structure:
    """The graph's edges as the kernels read them."""
    offsets, index = edges.structure_of(graph)
    return [offsets, index, index.new_empty(0), *schedule(offsets)]


@cached
def reverse_of(graph: Graph) -> Structure:
    """The transpose as the kernels read it, with the number of each of its edges in the graph."""
    offsets, index, edge, _ = edges.reverse_of(graph)
    return [offsets, index, edge, *schedule(offsets)]


def _product(own: Product) -> Tensor:
    from edgewise.kernels.backends.cuda.programs import products as kernels

    kind = {products.MAX: "max", products.MIN: "min"}.get(own.reduce, "sum")
    return kernels.reduce(kind, own.x, own.weight, own.structure, mean=own.reduce == products.MEAN)


def _product_gradient(own: ProductGradient) -> Tensor:
    from edgewise.kernels.backends.cuda.programs import products as kernels

    return kernels.multiply(own.dy, own.x, own.structure, own.weight_heads)


def _extreme_share(own: ExtremeShare) -> Tensor:
    from edgewise.kernels.backends.cuda.programs import products as kernels

    reached = kernels.reduce("count", own.x, own.weight, own.structure, own=own.y, dtype=torch.float32)
    return (own.dy / reached.clamp_(min=1)).to(own.dy.dtype).contiguous()  # as y is


def _extreme_gradient(own: ExtremeGradient) -> tuple[Tensor, Tensor]:
    from edgewise.kernels.backends.cuda.programs import products as kernels

    x, weight, share = own.x, own.weight, own.share
    dx, dweight = x.new_empty(0), x.new_empty(0)
    of_x, of_weight = own.needed
    if of_x:
        dx = kernels.reduce("picked", own.y, weight, own.reverse, own=x, share=share)
    if weight is not None and of_weight:
        dweight = kernels.multiply(share, x, own.structure, weight.shape[2], weight, own.y)
    return dx, dweight


PRODUCTS = products.Products("triton_", _product, _product_gradient, _extreme_share, _extreme_gradient)


BACKEND = Backend(
    name="triton",
    summary="Triton on a GPU, edge by edge: fused attention and sparse products on any graph",
    takes=Takes(
        dtypes=gpu.DTYPES,
        attend=Attention(scores=tuple(KINDS), vectors=True, most=WIDEST),
        aggregate=Sums(),
        collect=(Messages(), Messages(Message)),
        nodes=MOST,
        edges=MOST,
    ),
    devices=("cuda",),
    by_name=gpu.INTERPRETED_ON,
    need=gpu.TRITON,
    distrusted=partial(selfcheck.refusal, "triton"),
    cost=cost,
    run=run,
    probes=(
        Probe("cuda", "edges", lambda device: random_graph(10_000, 2_000_000, device)),
        Probe("cuda", "rows", lambda device: random_graph(400_000, 8_000_000, device)),
    ),
)
