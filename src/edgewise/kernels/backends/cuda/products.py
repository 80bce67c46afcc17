"""Sparse products on the GPU: Triton kernels that never hold E·H·C numbers.

Cost        time O(E·H·C), memory O(N·H·C + E·H), forward and backward; the same bits on every run
"""

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.kernels.backend import Cost, listing
from edgewise.kernels.backends.cpu import edges
from edgewise.kernels.backends.cuda.programs.building import schedule
from edgewise.kernels.call import Aggregate, Attend, Call
from edgewise.kernels.operator import products
from edgewise.kernels.operator.products import ExtremeGradient, ExtremeShare, Product, ProductGradient

NUMBER = 4  # bytes of an edge's sender; counted
CALL = 2  # launches; assumed

Structure = list[Tensor]  # offsets, index, edge, and how the rows are dealt out: see `programs.building`


def cost(call: Call) -> Cost:
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
            launches=CALL,
        )
    assert not isinstance(call, Attend)
    size, numbers = call.m_ij.element_size(), call.m_ij.numel() // max(1, count)
    written = size * graph.num_receivers * numbers
    return Cost(edges=count * numbers, bytes=read + size * count * numbers + written, launches=CALL)


def run(call: Call) -> Tensor:
    """Compute the call on the graph's edges."""
    return products.run(call, PRODUCTS, structure_of, reverse_of)


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
