"""Plain PyTorch, edge by edge: gather both ends, softmax over each receiver's segment, sum. Runs anywhere, any score.

Fixed-weight sums of float32 and float64 features run as one sparse matrix product. Cost O(E·H·C) time and memory.
"""

import warnings
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import Graph, complete
from edgewise.graphs.derived import cached
from edgewise.graphs.tracing import is_transformed
from edgewise.kernels.backend import EVERYTHING, Backend, Cost, Probe, is_few, listing
from edgewise.kernels.backends.torch import messages
from edgewise.kernels.call import Aggregate, Attend, Call, Collect
from edgewise.kernels.messages import EdgeInput, Message
from edgewise.kernels.operator import composed
from edgewise.kernels.operator.operator import in_own_dtypes

with warnings.catch_warnings():  # PyTorch announces once per process that its CSR layout is in beta
    warnings.simplefilter("ignore")
    torch.sparse_csr_tensor(torch.tensor([0, 1]), torch.tensor([0]), torch.tensor([1.0]), (1, 1))


SOFTMAX = 20  # products: what an edge's exponential costs; assumed
GATHERED, SCORES = 5, 200  # rows of a head's channels and numbers that are moved for an edge; fitted
SPELT = 3  # more rows where vectors of edges make keys and values of their own: counted
END = 6  # bytes for each number of a node; fitted
CALL, CARD_CALL = 10, 21  # launches of attention: fitted; on a GPU, by an H100's host
CARD_COLLECT, CARD_SUM = 4, 6  # and of sums there; counted
FEW_SUM = 3  # launches of a sum of few messages on a CPU; measured on a Zen 3
# Operations of a sum on a CPU: for each number of an edge, more where each head has a weight, and of an extreme; for an
# edge, and with a weight for an edge of each member of a batch; for a receiver; for each number of a node, and more of
# a mean; and launches. All fitted
SUM = (4.3, 82, 202, 9, 147, 500, 18, 16, 4.8)
# Bytes of messages on a CPU: for each number, more of an extreme, and in a batch; for an edge. Launches: and more of an
# extreme, and in a batch. All fitted
COLLECT = (5.25, 57, 4.2, 367, 0.6, 4.1, 0.9)


def cost(call: Call) -> Cost:
    """Every edge gathers both ends and writes what it makes of them."""
    edges = call.graph.num_edges
    if isinstance(call, Attend):
        width = call.v.shape[-1] + (2 * call.q.shape[-1] if call.q is not None else 0)
        numbers = call.v.shape[:-3].numel() * edges * call.heads
        vectors = call.score.vectors
        pair = () if vectors is None else (vectors.keys, vectors.values)
        ends = call.graph.num_receivers + call.graph.num_senders
        maps = sum(x.map[0].numel() for x in pair if isinstance(x, EdgeInput))
        return Cost(
            flops=numbers * (width + SOFTMAX) + 2 * edges * maps,
            gathered=4 * numbers * ((GATHERED + SPELT * (vectors is not None)) * width + SCORES),
            largest=4 * numbers * call.v.shape[-1],
            bytes=END * call.v.shape[:-3].numel() * call.heads * ends * width,
            launches=CARD_CALL if call.graph.device.type == "cuda" else CALL,
        )
    if isinstance(call, Collect) and isinstance(call.message, Message):
        return messages.cost(call, cost)
    if isinstance(call, Collect):
        return _cost_of_messages(call)
    own, size = call.x.numel() // max(1, call.graph.num_senders), call.x.element_size()
    numbers = edges * call.x.numel() // max(1, call.graph.num_senders)
    if call.graph.device.type != "cuda":
        number, heads, extreme, term, weighted, row, end, of_mean, launches = SUM
        if _is_gathered(call):
            return Cost(edges=int(number * numbers), bytes=listing(call.graph), launches=FEW_SUM)
        batch = call.x.shape[: call.node_axis].numel()
        number += extreme if call.reduce in ("max", "min") else 0
        if call.weight is not None:
            number += heads * (call.weight.ndim > 1)
            term += weighted * batch
        end += of_mean if call.reduce == "mean" else 0
        work = number * numbers + term * edges + row * batch * call.graph.num_receivers
        work += end * own * (call.graph.num_receivers + call.graph.num_senders)
        return Cost(
            edges=int(work),
            rows=size * numbers,
            held=size * call.x.numel(),
            bytes=listing(call.graph),
            launches=launches,
        )
    if not _is_matrix_product(call):
        return Cost(flops=numbers, gathered=4 * size * numbers, largest=size * numbers, launches=CARD_SUM)
    # cuSPARSE reads a sender of 64 bits and a weight for each edge.
    moved = (8 + size) * edges + size * own * call.graph.num_receivers
    return Cost(edges=2 * numbers, rows=size * numbers, held=size * call.x.numel(), bytes=moved, launches=CARD_SUM)


def _cost_of_messages(call: Collect) -> Cost:
    numbers, edges = call.m_ij.numel(), call.graph.num_edges
    if call.graph.device.type == "cuda":
        return Cost(flops=numbers, bytes=8 * numbers, launches=CARD_COLLECT)
    number, extreme, batched, term, launches, of_extreme, of_batch = COLLECT
    batch = call.m_ij.shape[:-2].numel()
    if call.reduce in ("max", "min"):
        number, launches = number + extreme, launches + of_extreme
    if batch > 1:
        number, launches = number + batched, launches + of_batch
    return Cost(bytes=int(number * numbers + term * batch * edges), launches=launches)


def run(call: Call) -> Tensor | tuple[Tensor, ...]:
    """Compute the call on the graph's edges."""
    if isinstance(call, Attend):
        return composed.attention(call.with_own_senders().with_equal_heads())
    if isinstance(call, Aggregate):
        return _aggregate(call)
    if isinstance(call.message, Message):
        return messages.run(call, run)
    return composed.reduced(call.graph, call.m_ij, call.reduce, -2)


BACKEND = Backend(
    name="segment",
    summary="Plain PyTorch, edge by edge: any graph, score and device",
    takes=EVERYTHING,
    cost=cost,
    run=run,
    small=("few",),
    probes=(Probe("cuda", "launch", lambda device: complete(8).to(device), heads=1, channels=16),),
)


def _aggregate(call: Aggregate) -> Tensor:
    graph, x, weight = call.graph, call.x, call.weight
    if _is_matrix_product(call):
        by_node = x.movedim(-2, 0)
        y = weighted_sum(graph, weight, by_node.reshape(graph.num_senders, by_node.shape[1:].numel()))
        y = y.reshape(graph.num_receivers, *by_node.shape[1:]).movedim(0, -2)
        return composed.divide_by_degree(graph, y, -2) if call.reduce == "mean" else y
    x_j = x.index_select(call.node_axis, graph.senders)
    return composed.reduced(graph, x_j if weight is None else weight.unsqueeze(-1) * x_j, call.reduce, call.node_axis)


def _is_gathered(call: Aggregate) -> bool:
    """Whether gathering few messages is faster; not where it is compiled, for that serves graphs of any size."""
    return not torch.compiler.is_compiling() and is_few(call)


def _is_matrix_product(call: Aggregate) -> bool:
    """Whether PyTorch's sparse matrix product computes it."""
    summed = call.reduce in ("sum", "mean") and call.node_axis == -2 and not is_transformed()
    return summed and call.x.dtype in (torch.float32, torch.float64) and not _is_gathered(call)


class WeightedSum(torch.autograd.Function):
    """A X for a sparse A [I, J] with one weight per edge; its gradient to X is Aᵀ G, on the cached transpose."""

    @staticmethod
    def forward(ctx: Any, graph: Graph, weight: Tensor | None, x: Tensor) -> Tensor:
        """x [J, F] -> [I, F]."""
        ctx.graph = graph
        ctx.save_for_backward(weight, x if weight is not None and weight.requires_grad else None)
        if weight is None:
            weight = _ones(graph, x.dtype)
        shape = (graph.num_receivers, graph.num_senders)
        return torch.sparse_csr_tensor(graph.offsets, graph.senders, weight.to(x.dtype), shape) @ x

    @staticmethod
    @in_own_dtypes
    def backward(ctx: Any, *grad: Tensor) -> tuple[None, Tensor | None, Tensor | None]:
        """Gradients to the weights and to x, themselves differentiable."""
        (y_grad,) = grad
        weight, x = ctx.saved_tensors
        weight_grad = x_grad = None
        if ctx.needs_input_grad[2]:
            transpose, order = ctx.graph.transpose()
            x_grad = weighted_sum(transpose, None if weight is None else weight.index_select(0, order), y_grad)
        if ctx.needs_input_grad[1]:
            y_i = y_grad.index_select(0, ctx.graph.receivers)
            weight_grad = (y_i * x.index_select(0, ctx.graph.senders)).sum(-1)
        return None, weight_grad, x_grad


def weighted_sum(graph: Graph, weight: Tensor | None, x: Tensor) -> Tensor:
    """A X by `WeightedSum`."""
    y: Tensor = WeightedSum.apply(graph, weight, x)  # type: ignore[no-untyped-call]
    return y


@cached
def _ones(graph: Graph, dtype: torch.dtype) -> Tensor:
    return torch.ones(graph.num_edges, dtype=dtype, device=graph.device)
