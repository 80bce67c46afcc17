"""Sparse products and softmax over edges on the GPU: Triton kernels that never hold E·H·C numbers.

Cost        time O(E·H·C), memory O(N·H·C + E·H), forward and backward; the same bits on every run
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.errors import BackendRefusal
from edgewise.graphs import Graph
from edgewise.kernels.backends.cpu import edges
from edgewise.kernels.backends.cuda import programs as gpu
from edgewise.kernels.backends.cuda.programs.building import schedule
from edgewise.kernels.call import Aggregate, Attend, Call, Collect
from edgewise.kernels.choose.planner import Cost
from edgewise.kernels.operator import products
from edgewise.kernels.operator.layout import flat
from edgewise.kernels.operator.operator import Operator

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
NUMBER = 4  # bytes of an edge's sender

Structure = list[Tensor]  # offsets, index, edge, and how the rows are dealt out: see `gpu.building`


def refuses(call: Call) -> str | None:
    """Attention, other devices and dtypes, and graphs beyond 32-bit numbers."""
    graph = call.graph
    if isinstance(call, Attend):
        return "its products have fixed weights: attention has kernels of its own"
    x = call.x if isinstance(call, Aggregate) else call.m_ij
    if x.dtype not in DTYPES:
        return f"its kernels compute in float32, bfloat16 and float16, not in {x.dtype}: `segment` does"
    if isinstance(call, Aggregate) and call.weight is not None and call.weight.dtype != x.dtype:
        return f"weights in {call.weight.dtype} do not fit features in {x.dtype}"
    if max(graph.num_senders, graph.num_receivers, graph.num_edges) > edges.MOST:
        return f"it numbers nodes and edges in 32 bits, and there are more than {edges.MOST}"
    return gpu.refusal(graph.device)


def cost(call: Call) -> Cost:
    """Every edge reads its sender's row and its weight, once; every receiver's row is written once."""
    graph = call.graph
    count = graph.num_edges
    listing = 0 if graph.rule is None else 24 * count  # a rule's edges have to be listed first
    if isinstance(call, Aggregate):
        x, size = call.x, call.x.element_size()
        numbers = x.numel() // max(1, graph.num_senders)
        weights = 0 if call.weight is None else size * call.weight.numel()
        return Cost(
            edges=2 * count * numbers,
            rows=size * count * numbers,
            held=size * x.numel(),
            bytes=listing + NUMBER * count + weights + size * graph.num_receivers * numbers,
            launches=2,
        )
    assert not isinstance(call, Attend)
    size, numbers = call.m_ij.element_size(), call.m_ij.numel() // max(1, count)
    written = size * graph.num_receivers * numbers
    return Cost(edges=count * numbers, bytes=listing + NUMBER * count + size * count * numbers + written, launches=2)


def run(call: Call) -> Tensor:
    """Compute the call on the graph's edges."""
    return products.run(call, _of_graph)


def structure_of(graph: Graph) -> Structure:
    """The graph's edges as the kernels read them, kept with the graph."""

    def build() -> Structure:
        offsets, index = edges.structure_of(graph)
        return [offsets, index, index.new_empty(0), *schedule(offsets)]

    return graph.memo("edges of sums", build)


def reverse_of(graph: Graph) -> Structure:
    """The transpose as the kernels read it, with the number of each of its edges in the graph; kept with the graph."""

    def build() -> Structure:
        offsets, index, edge, _ = edges.reverse_of(graph)
        return [offsets, index, edge, *schedule(offsets)]

    return graph.memo("transpose of sums", build)


def messages_of(graph: Graph) -> tuple[Structure, Structure]:
    """The graph from messages on the edges to their receivers, and its transpose; kept with the graph."""

    def build() -> tuple[Structure, Structure]:
        offsets, _, none, *plan = structure_of(graph)
        numbers = torch.arange(graph.num_edges + 1, device=graph.device)
        receivers = graph.receivers.to(torch.int32)
        forward = [offsets, numbers[:-1].to(torch.int32), none, *plan]
        return forward, [numbers, receivers, forward[1]]

    return graph.memo("messages of sums", build)


def _of_graph(graph: Graph, x: Tensor, weight: Tensor | None, reduce: int, messages: bool) -> Tensor:
    needed = products.differentiated(x, weight)
    if messages:
        structure, reverse = messages_of(graph)
    else:
        structure, reverse = structure_of(graph), reverse_of(graph) if needed else []
    y: Tensor = PRODUCTS.product(x, weight, structure, reverse if needed else [], reduce)
    return y


def _product(
    x: Tensor, weight: Tensor | None, structure: Sequence[Tensor], reverse: Sequence[Tensor], reduce: int
) -> Tensor:
    from edgewise.kernels.backends.cuda.programs import products as kernels

    kind = {products.MAX: "max", products.MIN: "min"}.get(reduce, "sum")
    return kernels.reduce(kind, x, weight, structure, mean=reduce == products.MEAN)


def _product_gradient(dy: Tensor, x: Tensor, structure: Sequence[Tensor], weight_heads: int) -> Tensor:
    from edgewise.kernels.backends.cuda.programs import products as kernels

    return kernels.multiply(dy, x, structure, weight_heads)


def _extreme_share(dy: Tensor, x: Tensor, weight: Tensor | None, structure: Sequence[Tensor], y: Tensor) -> Tensor:
    from edgewise.kernels.backends.cuda.programs import products as kernels

    reached = kernels.reduce("count", x, weight, structure, own=y, dtype=torch.float32)
    return (dy / reached.clamp_(min=1)).to(dy.dtype).contiguous()  # as y is


def _extreme_gradient(
    share: Tensor, x: Tensor, weight: Tensor | None, structure: Sequence[Tensor], y: Tensor, reverse: Sequence[Tensor]
) -> tuple[Tensor, Tensor]:
    from edgewise.kernels.backends.cuda.programs import products as kernels

    dx = kernels.reduce("picked", y, weight, reverse, own=x, share=share)
    if weight is None:
        return dx, x.new_empty(0)
    return dx, kernels.multiply(share, x, structure, weight.shape[2], weight, y)


PRODUCTS = products.Products("triton_", _product, _product_gradient, _extreme_share, _extreme_gradient)


# Softmax over the edges of each receiver


def edge_softmax(graph: Graph, s: Tensor) -> Tensor:
    """p_e = exp(s_e) / Σ_e' exp(s_e') over the edges e' of e's receiver, of scores s [*, E, H] in the graph's order.

    Errors      BackendRefusal where its kernel cannot compute
    Edge cases  half precisions are summed in float32; a receiver whose edges are all masked by -∞ gives them 0
    Cost        O(E·H) time and memory
    """
    reason = refuses(Collect(graph, s, "sum"))
    if reason is not None:
        raise BackendRefusal(f"no softmax over these edges: {reason}")
    structure, reverse = messages_of(graph)
    p: Tensor = SOFTMAX(flat(s, 2).contiguous(), structure, reverse)
    return p.reshape(s.shape)


def _softmax(s: Tensor, structure: Sequence[Tensor], reverse: Sequence[Tensor]) -> Tensor:
    from edgewise.kernels.backends.cuda.programs import products as kernels

    total = kernels.log_sum_exp(s, structure)
    total = torch.where(total == float("-inf"), 0, total)
    return (s - total.index_select(1, reverse[1])).exp_().to(s.dtype)


def _softmax_save(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
    _, structure, reverse = inputs
    ctx.length = len(structure)
    ctx.save_for_backward(output, *structure, *reverse)


def _softmax_gradient(ctx: Any, dp: Tensor) -> tuple[Tensor, None, None]:
    p, *saved = ctx.saved_tensors
    structure, reverse = saved[: ctx.length], saved[ctx.length :]
    wide, dp = p.float(), dp.float()
    total = PRODUCTS.product((wide * dp).unsqueeze(3), None, structure, reverse, products.SUM).squeeze(3)
    return (wide * (dp - total.index_select(1, reverse[1]))).to(p.dtype), None, None


SOFTMAX = Operator(
    "triton_edge_softmax",
    "(Tensor s, Tensor[] structure, Tensor[] reverse) -> Tensor",
    _softmax,
    lambda s, structure, reverse: torch.empty_like(s),
    _softmax_save,
    _softmax_gradient,
)
