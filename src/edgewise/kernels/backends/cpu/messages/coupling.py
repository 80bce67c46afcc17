"""The native kernel of tensor products summed over neighbours: nothing has a number for each edge, row and channel."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs.tracing import is_traced
from edgewise.kernels.backend import Cost
from edgewise.kernels.backends.cpu.edges import adjacency, product_reverse_of, structure_of
from edgewise.kernels.backends.torch import messages
from edgewise.kernels.call import Call
from edgewise.kernels.messages import TensorProduct
from edgewise.kernels.operator.operator import DTYPES, by_operations, gradients, in_own_dtypes
from edgewise.native import library, threads

Run = Callable[[Call], Any]

MOST_ROWS, MOST_HARMONICS = 16, 49  # of a node and of an edge, which the kernel has room for
# Operations for each product of a harmonic, a row and a channel, and for an edge; launches. All fitted
PRODUCT, EDGE, LAUNCHES = 4.5, 60, 4


class Plan(NamedTuple):
    """The paths as the kernel reads them [P, 8], coefficients, and how many rows of results and sums there are."""

    paths: Tensor
    coefficients: Tensor
    outputs: int
    sums: int


def plan_of(message: TensorProduct) -> Plan | None:
    """What the kernel needs to know of a tensor product; None where it does not take it."""
    if is_traced() or message.dtypes not in ([torch.float32], [torch.float64]):
        return None
    if (message.types + 1) ** 2 > MOST_ROWS or message.harmonics.shape[-1] > MOST_HARMONICS or not message.channels:
        return None
    if torch.is_grad_enabled() and any(C.requires_grad for C in message.coefficients):  # the kernel has them as numbers
        return None
    versions = tuple([-1 if C.is_inference() else C._version for C in message.coefficients])
    return _plan(message.paths, message.coefficients, versions, message.dtype)


@lru_cache
def _plan(
    paths: tuple[tuple[tuple[int, int], tuple[int, ...]], ...],
    coefficients: tuple[Tensor, ...],
    versions: tuple[int, ...],
    dtype: torch.dtype,
) -> Plan | None:
    """The paths into a type lie side by side in each of its rows; versions = how often coefficients were written."""
    into = [out for _, outs in paths for out in outs]
    counts = [into.count(out) for out in range(max(into) + 1)]
    start = [sum((2 * one + 1) * counts[one] for one in range(out)) for out in range(len(counts))]
    rows: list[list[int]] = []
    blocks: list[Tensor] = []
    sums, read, taken = 0, 0, [0] * len(counts)
    for ((k, J), outs), C in zip(paths, coefficients, strict=True):
        known = C.detach().to("cpu", torch.float64)
        if J == 0:  # the type stays
            known = torch.eye(2 * k + 1, dtype=torch.float64)
        block = known.unflatten(-1, (2 * J + 1, len(outs), 2 * k + 1))
        for number, (out, own) in enumerate(zip(outs, block.split([2 * out + 1 for out in outs]), strict=True)):
            if own.count_nonzero() != own[:, :, number].count_nonzero():
                return None  # a path reads another's weights
            rows.append([k, J, out, len(rows), start[out] + taken[out], counts[out], sums, read])
            blocks.append(own[:, :, number].flatten())
            taken[out] += 1
            sums, read = sums + (2 * J + 1) * (2 * k + 1), read + blocks[-1].numel()
    outputs = sum((2 * out + 1) * count for out, count in enumerate(counts))
    return Plan(torch.tensor(rows, dtype=torch.int32), torch.cat(blocks).to(dtype), outputs, sums)


def cost(graph: Graph, message: TensorProduct, plan: Plan) -> Cost:
    """Products of harmonics and rows; rows of senders; weights and harmonics."""
    copies, size, channels = message.batch.numel(), message.dtype.itemsize, message.senders.shape[-1]
    edges = copies * graph.num_edges
    read = message.width + message.harmonics.shape[-1]
    rows = (message.types + 1) ** 2 * channels
    return Cost(
        edges=int(edges * (PRODUCT * plan.sums * channels + EDGE)),
        rows=size * edges * rows,
        held=size * copies * graph.num_senders * rows,
        bytes=size * edges * read,
        launches=LAUNCHES,
    )


def coupled(graph: Graph, message: TensorProduct, plan: Plan, own: Run) -> tuple[Tensor, ...]:
    """The sums of a tensor product with weights as a tensor, without a batch; `own` runs an `Aggregate`."""
    leaves = message.senders, message.weights(graph), message.harmonics
    if torch.is_grad_enabled() and any(t.requires_grad for t in leaves):
        y: Tensor = _Coupled.apply(graph, message, plan, own, *leaves)  # type: ignore[no-untyped-call]
    else:
        y = _sums(graph, plan, leaves)
    counts = [sum(out in outs for _, outs in message.paths) for out in range(message.types + 1)]
    parts = y.split([(2 * out + 1) * count for out, count in enumerate(counts)], -2)
    return tuple(part.flatten(-2) for part in parts)


def _call(graph: Graph, plan: Plan, h: Tensor, weight: Tensor, harmonics: Tensor) -> Any:
    call = library.Coupled()
    call.threads, call.rows, call.channels = threads(), *h.shape[1:]
    call.paths = call.weights = len(plan.paths)
    call.harmonic, call.outputs, call.sums = harmonics.shape[1], plan.outputs, plan.sums
    call.path, call.coefficients = plan.paths.data_ptr(), plan.coefficients.data_ptr()
    call.graph = adjacency(*structure_of(graph))
    call.h, call.weight, call.harmonics = (t.data_ptr() for t in (h, weight, harmonics))
    return call


def _sums(graph: Graph, plan: Plan, leaves: Sequence[Tensor]) -> Tensor:
    """[I, rows of all types and paths, C]."""
    h, weight, harmonics = (t.contiguous() for t in leaves)
    call = _call(graph, plan, h, weight, harmonics)
    y = h.new_empty(graph.num_receivers, plan.outputs, h.shape[-1])
    call.y = y.data_ptr()
    library.couple(DTYPES[h.dtype], call)
    return y


class _Coupled(torch.autograd.Function):
    """The kernel with its gradient; the gradient's own gradient by differentiable operations."""

    @staticmethod
    def forward(ctx: Any, graph: Graph, message: TensorProduct, plan: Plan, own: Run, *leaves: Tensor) -> Tensor:
        ctx.call = graph, message.paths, message.coefficients, plan, own
        ctx.save_for_backward(*leaves)
        return _sums(graph, plan, leaves)

    @staticmethod
    @in_own_dtypes
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        graph, paths, coefficients, plan, own = ctx.call
        leaves, wanted = ctx.saved_tensors, ctx.needs_input_grad[4:]
        if by_operations(dy, *leaves):

            def composed(h: Tensor, weight: Tensor, harmonics: Tensor) -> Tensor:
                core = TensorProduct(weight, h, harmonics, paths, coefficients)
                return torch.cat(messages.tensor_product(graph, core, weight, own), -1).view(dy.shape)

            return None, None, None, None, *gradients(composed, leaves, [dy])
        h, weight, harmonics = (t.contiguous() for t in leaves)
        call, dy = _call(graph, plan, h, weight, harmonics), dy.contiguous()
        dsums = dy.new_empty(graph.num_receivers, plan.sums, dy.shape[-1])
        pairs = zip((h, weight, harmonics), wanted, strict=True)
        results = [torch.empty_like(t) if want else None for t, want in pairs]
        call.transpose, call.dy, call.dsums = adjacency(*product_reverse_of(graph)), dy.data_ptr(), dsums.data_ptr()
        call.dh, call.dweight, call.dharmonics = (0 if t is None else t.data_ptr() for t in results)
        library.couple_gradient(DTYPES[dy.dtype], call)
        return None, None, None, None, *results
