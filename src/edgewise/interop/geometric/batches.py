"""Batches of sampled nodes, whose last nodes hear nobody and are read by nobody: products that leave them out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.graphs.tracing import PLAIN, is_traced

ROWS = 64  # that are looked at at first, from the end; then twice as many, and so on
READ = 0.25  # products of a number that cost what reading one of a neighbour does


@cached
def heard(graph: Graph) -> Graph:
    """The graph of the receivers up to the last one that has an edge."""
    count = int(torch.searchsorted(graph.offsets, graph.num_edges))
    if count == graph.num_receivers:
        return graph
    forms = {"offsets": graph.offsets[: count + 1].clone(), "senders": graph.senders}
    return Graph._of(count, graph.num_senders, 0, graph.device, **forms)


def sums_first(graph: Graph, x: Tensor, outputs: int) -> bool:
    """Whether W Σ_j x_j takes less than Σ_j W x_j for features x that nothing trains, its backward pass counted too."""
    spared = (graph.num_senders - heard(graph).num_receivers) * x.shape[-1] * outputs
    return spared * READ + 2 * graph.num_edges * outputs >= graph.num_edges * x.shape[-1]


def affine(x: Tensor, W: Tensor, b: Tensor | None, W_sum: Tensor | None = None, sums: Tensor | None = None) -> Tensor:
    """W x_i + b + W_sum sums_i, in which the last rows of `sums` may be left out: those that are 0.

    Shapes      x [N, C], W [C', C], sums [M, D] with M ≤ N, W_sum [C', D] -> [N, C']
    Edge cases  the backward pass leaves out the last rows of a gradient if they are 0, where plain products would give
                NaN for a row of x that is not finite
    Cost        time O(N C C' + M D C'), backward O(R C C') with R rows up to the last gradient that is not 0
    """
    y: Tensor = _Affine.apply(x, W, b, W_sum, sums)  # type: ignore[no-untyped-call]
    return y


def maps(x: Tensor, W: Tensor, R: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor]:
    """(W x_i, R x_i + b); the backward pass leaves out the last rows of each gradient if they are 0, as `affine`'s."""
    y: tuple[Tensor, Tensor] = _Maps.apply(x, W, R, b)  # type: ignore[no-untyped-call]
    return y


def fits(*tensors: Any) -> bool:
    """Whether `affine` computes these: plain matrices of one kind of numbers on the CPU, and nothing reads the code."""
    if is_traced() or torch.is_autocast_enabled("cpu"):
        return False
    dtype = tensors[0].dtype
    return all(type(t) in PLAIN and t.dtype == dtype and t.device.type == "cpu" and t.dim() == 2 for t in tensors)


def rows_read(g: Tensor) -> int:
    """How many rows there are up to the last one that is not 0."""
    stop, step = g.shape[0], ROWS
    while stop > 0:
        start, step = max(0, stop - step), 2 * step
        there = g[start:stop].any(1)
        if bool(there[-1]):
            return stop
        if bool(there.any()):
            return start + int(there.nonzero()[-1]) + 1
        stop = start
    return 0


class _Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, W: Tensor, b: Tensor | None, W_sum: Tensor | None, sums: Tensor | None) -> Tensor:
        ctx.save_for_backward(x, W, W_sum, sums)
        y = x.mm(W.t()) if b is None else torch.addmm(b, x, W.t())
        if sums is not None and W_sum is not None:
            y[: sums.shape[0]].addmm_(sums, W_sum.t())
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, W, W_sum, sums = ctx.saved_tensors
        of_x, of_W, of_b, of_W_sum, of_sums = ctx.needs_input_grad
        read = _read(g)
        dx = _below(read.mm(W), x.shape[0]) if of_x else None
        dW = read.t().mm(x[: read.shape[0]]) if of_W else None
        db = read.sum(0) if of_b else None
        dW_sum = dsums = None
        if sums is not None:
            read = read[: sums.shape[0]]
            dW_sum = read.t().mm(sums[: read.shape[0]]) if of_W_sum else None
            dsums = _below(read.mm(W_sum), sums.shape[0]) if of_sums else None
        return dx, dW, db, dW_sum, dsums


class _Maps(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, W: Tensor, R: Tensor, b: Tensor | None) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, W, R)
        return x.mm(W.t()), x.mm(R.t()) if b is None else torch.addmm(b, x, R.t())

    @staticmethod
    def backward(ctx: Any, g_W: Tensor, g_R: Tensor) -> tuple[Tensor | None, ...]:
        x, W, R = ctx.saved_tensors
        of_x, of_W, of_R, of_b = ctx.needs_input_grad
        by_W, by_R = _read(g_W), _read(g_R)
        dx = _sum_below(by_W.mm(W), by_R.mm(R), x.shape[0]) if of_x else None
        dW, dR = (read.t().mm(x[: read.shape[0]]) if wanted else None for read, wanted in ((by_W, of_W), (by_R, of_R)))
        return dx, dW, dR, by_R.sum(0) if of_b else None


def _read(g: Tensor) -> Tensor:
    """The rows of a gradient that the backward pass needs; all of them for a second derivative, which reads zeros."""
    return g if torch.is_grad_enabled() else g[: rows_read(g)]


def _sum_below(first: Tensor, second: Tensor, count: int) -> Tensor:
    """The sum of two tensors of at most `count` rows, with rows of zeros where they have none."""
    if torch.is_grad_enabled():
        return first + second
    fewer, more = sorted((first, second), key=len)
    more[: len(fewer)] += fewer
    return _below(more, count)


def _below(rows: Tensor, count: int) -> Tensor:
    """The same rows, and zeros up to a number of them."""
    missing = count - rows.shape[0]
    return torch.cat([rows, rows.new_zeros(missing, rows.shape[1])]) if missing else rows
