"""Batches of sampled nodes, whose last nodes hear nobody and are read by nobody: products that leave them out."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.graphs.tracing import PLAIN, is_traced
from edgewise.interop.later.rows import begun, first_rows, known_rows, pays, read_rows
from edgewise.interop.later.tensor import Later, ordinary
from edgewise.kernels import aggregate

LONG, NARROW, BLOCK = 2048, 48, 1024  # numbers of a row, of results; rows: measured, where one takes 0.7 of the other
READ = 0.25  # products of a number that cost what reading one of a neighbour does


@cached
def heard(graph: Graph) -> Graph:
    """The graph of the receivers up to the last one that has an edge."""
    count = int(torch.searchsorted(graph.offsets, graph.num_edges))
    if count == graph.num_receivers:
        return graph
    forms = {"offsets": graph.offsets[: count + 1].clone(), "senders": graph.senders}
    return Graph._of(count, graph.num_senders, 0, graph.device, **forms)


@cached
def first(graph: Graph, receivers: int, senders: int) -> Graph:
    """The graph of the first receivers, which hear the first senders alone."""
    edges = graph.senders[: int(graph.offsets[receivers])]
    return Graph._of(receivers, senders, 0, graph.device, offsets=graph.offsets[: receivers + 1].clone(), senders=edges)


@cached
def within(graph: Graph, senders: int) -> int:
    """How many of the first receivers are among the first senders and hear no others, up to the last that hears."""
    count = min(heard(graph).num_receivers, senders)
    beyond = graph.senders >= senders
    if senders >= graph.num_senders or not bool(beyond.any()):
        return count
    return min(count, int(torch.searchsorted(graph.offsets, int(beyond.int().argmax()), right=True)) - 1)


def convolved(graph: Graph, reduce: str, summed: bool, x: Tensor, *weights: Tensor | None) -> Tensor:
    """W ⊕_j x_j + b + R x_i, for weights W, b and R; of rows that are not read, only the first at once.

    Symbols     summed = whether the rows are summed before the product with W
    """
    W, _, R = weights
    assert W is not None and R is not None
    senders = known_rows(x)
    count = within(graph, senders)
    if not pays(count, x, W, R):
        return _convolved(graph, reduce, summed, ordinary(x), *weights)

    def rest(x: Tensor, W: Tensor, b: Tensor | None, R: Tensor) -> Tensor:
        if count == heard(graph).num_receivers:
            return affine(x[count:], R, b)
        return _convolved(graph, reduce, summed, x, W, b, R)[count:]

    y = _convolved(first(graph, count, senders), reduce, summed, first_rows(x, senders), *weights)
    return begun(y, len(x), rest, x, *weights)


def _convolved(graph: Graph, reduce: str, summed: bool, x: Tensor, *weights: Tensor | None) -> Tensor:
    W, b, R = weights
    assert W is not None and R is not None
    if summed:
        return affine(x, R, b, W, aggregate(heard(graph), x, reduce=reduce), graph.num_receivers)
    Wx, Rx = maps(x, W, R, b, graph.num_receivers)
    return Rx + aggregate(graph, Wx, reduce=reduce)


def sums_first(graph: Graph, x: Tensor, outputs: int) -> bool:
    """Whether W Σ_j x_j takes less than Σ_j W x_j for features x that nothing trains, its backward pass counted too."""
    spared = (graph.num_senders - heard(graph).num_receivers) * x.shape[-1] * outputs
    return spared * READ + 2 * graph.num_edges * outputs >= graph.num_edges * x.shape[-1]


def affine(
    x: Tensor,
    W: Tensor,
    b: Tensor | None,
    W_sum: Tensor | None = None,
    sums: Tensor | None = None,
    count: int | None = None,
) -> Tensor:
    """W x_i + b + W_sum sums_i, in which the last rows of `sums` may be left out: those that are 0.

    Shapes      x [N, C], W [C', C], sums [M, D] with M ≤ N, W_sum [C', D] -> [N, C'], or only the first `count` rows
    Edge cases  the backward pass leaves out the last rows of a gradient if they are 0, where plain products would give
                NaN for a row of x that is not finite
    Cost        time O(N C C' + M D C'), backward O(R C C') with R rows up to the last gradient that is not 0; room for
                N rows, of which those after `count` are not written
    """
    y: Tensor = _Affine.apply(x, W, b, W_sum, sums, count)  # type: ignore[no-untyped-call]
    return y


def maps(x: Tensor, W: Tensor, R: Tensor, b: Tensor | None, count: int | None = None) -> tuple[Tensor, Tensor]:
    """(W x_i, R x_i + b), the second for the first `count` rows alone; the backward pass leaves out the last rows of
    each gradient if they are 0, as `affine`'s."""
    y: tuple[Tensor, Tensor] = _Maps.apply(x, W, R, b, count)  # type: ignore[no-untyped-call]
    return y


def fits(*tensors: Any) -> bool:
    """Whether `affine` computes these: plain matrices of one kind of numbers on the CPU, and nothing reads the code."""
    if is_traced() or torch.is_autocast_enabled("cpu"):
        return False
    dtype = tensors[0].dtype
    dense = all(type(t) in PLAIN or isinstance(t, Later) for t in tensors)
    return dense and all(t.dtype == dtype and t.device.type == "cpu" and t.dim() == 2 for t in tensors)


class _Affine(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, W: Tensor, b: Tensor | None, W_sum: Any, sums: Any, count: int | None) -> Tensor:
        ctx.save_for_backward(x, W, W_sum, sums)
        y = x.new_empty(len(x), len(W))
        if count is not None:  # no view, which must not be written in place
            y = x.new_empty(0).set_(y.untyped_storage(), 0, (count, len(W)), (len(W), 1))
        if is_long(W):
            y.zero_() if b is None else y.copy_(b.expand_as(y))
            _add_product(y, x, W)
        else:
            torch.mm(x[:count], W.t(), out=y) if b is None else torch.addmm(b, x[:count], W.t(), out=y)
        if sums is not None and W_sum is not None:
            _add_product(y[: sums.shape[0]], sums, W_sum)
        return y

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor | None, ...]:
        x, W, W_sum, sums = ctx.saved_tensors
        of_x, of_W, of_b, of_W_sum, of_sums, _ = ctx.needs_input_grad
        read = _read(g)
        dx = _below(read.mm(W), x.shape[0]) if of_x else None
        dW = _across(read, x[: read.shape[0]], W) if of_W else None
        db = read.sum(0) if of_b else None
        dW_sum = dsums = None
        if sums is not None:
            read = read[: sums.shape[0]]
            dW_sum = read.t().mm(sums[: read.shape[0]]) if of_W_sum else None
            dsums = _below(read.mm(W_sum), sums.shape[0]) if of_sums else None
        return dx, dW, db, dW_sum, dsums, None


def _across(g: Tensor, x: Tensor, W: Tensor) -> Tensor:
    """gᵀ x, in the order of the two that takes the library less time."""
    return x.t().mm(g).t().contiguous() if is_long(W) else g.t().mm(x)


def is_long(W: Tensor) -> bool:
    """Whether the library's product of rows with a matrix takes longer than that of the matrix with columns."""
    return W.shape[1] >= LONG and NARROW <= W.shape[0] <= 3 * NARROW


def _add_product(y: Tensor, x: Tensor, W: Tensor) -> None:
    """y += x Wᵀ for as many rows as y has."""
    if not is_long(W):
        y.addmm_(x[: len(y)], W.t())
        return
    for start in range(0, len(y), BLOCK):
        rows = y[start : start + BLOCK]
        rows += W.mm(x[start : start + len(rows)].t()).t()


class _Maps(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, W: Tensor, R: Tensor, b: Tensor | None, count: int | None
    ) -> tuple[Tensor, Tensor]:
        ctx.save_for_backward(x, W, R)
        return x.mm(W.t()), x[:count].mm(R.t()) if b is None else torch.addmm(b, x[:count], R.t())

    @staticmethod
    def backward(ctx: Any, g_W: Tensor, g_R: Tensor) -> tuple[Tensor | None, ...]:
        x, W, R = ctx.saved_tensors
        of_x, of_W, of_R, of_b, _ = ctx.needs_input_grad
        by_W, by_R = _read(g_W), _read(g_R)
        dx = _sum_below(by_W.mm(W), by_R.mm(R), x.shape[0]) if of_x else None
        dW, dR = (read.t().mm(x[: read.shape[0]]) if wanted else None for read, wanted in ((by_W, of_W), (by_R, of_R)))
        return dx, dW, dR, by_R.sum(0) if of_b else None, None


def _read(g: Tensor) -> Tensor:
    """The rows of a gradient that the backward pass needs; all of them for a second derivative, which reads zeros."""
    return ordinary(g) if torch.is_grad_enabled() else g[: read_rows(g)]


def _sum_below(first: Tensor, second: Tensor, count: int) -> Tensor:
    """The sum of two tensors of at most `count` rows, with rows of zeros where they have none."""
    if torch.is_grad_enabled():
        return _below(first, count) + _below(second, count)
    fewer, more = sorted((first, second), key=len)
    more[: len(fewer)] += fewer
    return _below(more, count)


def _below(rows: Tensor, count: int) -> Tensor:
    """The same rows, and zeros up to a number of them."""
    missing = count - rows.shape[0]
    return torch.cat([rows, rows.new_zeros(missing, rows.shape[1])]) if missing else rows
