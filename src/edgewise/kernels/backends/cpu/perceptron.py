"""A perceptron with one hidden layer as one operation: PyTorch's products of matrices, our passes between them.

Equation    y = σ(n(s W_1ᵀ + b_1)) W_2ᵀ + b_2 with s = x, or s_i = (1 + ε) x_i + Σ_{j ∈ N(i)} x_j; n = nothing, or
            PyTorch's batch normalisation
Cost        O(N (D K + K C) + E min(D, K)) for D inputs, K hidden and C outputs: where D > K the first map is taken
            before the sum. Stored for the backward pass are x, what the sum gave or was taken of, and σ's input, which
            of ReLU is its result
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.graphs.forms import receivers_of
from edgewise.kernels.backends.cpu.edges import product_reverse_of, product_structure_of
from edgewise.kernels.messages import Map
from edgewise.kernels.operator.gradients import by_operations, gradients, in_own_dtypes
from edgewise.kernels.operator.operator import DTYPES
from edgewise.native import library, threads

KINDS: dict[Callable[[Tensor], Tensor], int] = {functional.relu: 0, functional.gelu: 1}
READ = (torch.float32, torch.float64)
RELU = 0
WIDEST = 128  # numbers of a row, of each size, up to which normalisation between two maps is faster in one with them


class Norm(NamedTuple):
    """Batch normalisation: γ, β; what it counts in training, in place, and reads outside; and how."""

    weight: Tensor
    bias: Tensor
    mean: Tensor
    variance: Tensor
    training: bool
    momentum: float
    eps: float


Places = tuple[int, ...]  # what an `Adjacency` of the kernels is made of


class Sum(NamedTuple):
    """The edges of a sum and of its gradient: offsets, senders, and numbers that are ignored; and where both lie."""

    forward: tuple[Tensor, ...]
    backward: tuple[Tensor, ...]
    graph: Places
    transpose: Places  # none where there is no gradient

    @staticmethod
    @cached
    def over(graph: Graph, transposed: bool) -> Sum:
        """The sum over a graph's edges; with its gradient where that is needed."""
        forward, backward = product_structure_of(graph), product_reverse_of(graph) if transposed else ()
        return Sum(forward, backward, _places(*forward[:2]), _places(*backward[:2]) if transposed else ())


def _places(offsets: Tensor, index: Tensor) -> Places:
    return offsets.numel() - 1, index.numel(), offsets.data_ptr(), index.data_ptr(), 0


def perceptron(
    x: Tensor, up: Map, down: Map, activation: Callable[[Tensor], Tensor], graph: Graph | None, epsilon: Tensor | None,
    norm: Norm | None = None,
) -> Tensor:  # fmt: skip
    """The perceptron of rows x [N, D], of their sums over a graph where there is one."""
    edges, wide = None, graph is not None and x.shape[1] > up[0].shape[0]
    if graph is not None:
        edges = Sum.over(graph, torch.is_grad_enabled() and (x.requires_grad or (wide and up[0].requires_grad)))
    scale, shift, *rest = norm or (None, None)
    if norm is not None and norm.training and KINDS[activation] == RELU and not wide and _fits(x, up, down, norm):
        z: Tensor = _Normalised.apply(x, *up, *down, epsilon, scale, shift, rest, edges)  # type: ignore[no-untyped-call]
        return z
    y: Tensor = _Perceptron.apply(x, *up, *down, epsilon, scale, shift, rest, KINDS[activation], edges)  # type: ignore[no-untyped-call]
    return y


def _fits(x: Tensor, up: Map, down: Map, norm: Norm) -> bool:
    """Whether all shapes are those of rows that stay in a core's own cache, one after the other."""
    (W_1, b_1), (W_2, b_2), inputs = up, down, x.shape[1]
    if W_2.dim() != 2:
        return False
    outputs, hidden = W_2.shape
    if W_1.shape != (hidden, inputs) or max(inputs, hidden, outputs) > WIDEST:
        return False
    biased = (b_1 is None or b_1.shape == (hidden,)) and (b_2 is None or b_2.shape == (outputs,))
    return biased and all(t.shape == (hidden,) and t.is_contiguous() for t in norm[:4])


def summed(x: Tensor, own: float, edges: Places) -> Tensor:
    """own x_i + Σ_j x_j, x [N, C]."""
    x, call = _rows(x), library.Product()
    y = torch.empty_like(x)
    call.threads, call.channels, call.own, call.graph = threads(), x.shape[1], own, library.Adjacency(*edges)
    call.x, call.y = (library.Matrix(rows.data_ptr(), 0, rows.stride(0)) for rows in (x, y))
    library.product(DTYPES[x.dtype], call)
    return y


def _rows(x: Tensor) -> Tensor:
    return x if x.is_contiguous() else x.contiguous()


def _activate(z: Tensor, kind: int) -> Tensor:
    """σ(z); of ReLU in the place of z."""
    h = z if kind == RELU else torch.empty_like(z)
    library.activate(DTYPES[z.dtype], threads(), kind, z.numel(), z.data_ptr(), h.data_ptr())
    return h


def _slope(z: Tensor, dh: Tensor, kind: int, h: Tensor | None) -> Tensor:
    """Put σ'(z) ∘ dh in the place of dh, and σ(z) in h; the sums of the first over all rows."""
    sums = dh.new_empty(dh.shape[1])
    place = 0 if h is None else h.data_ptr()
    library.activate_gradient(
        DTYPES[z.dtype], threads(), kind, *dh.shape, z.data_ptr(), dh.data_ptr(), sums.data_ptr(), place
    )
    return sums


class _Perceptron(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, W_1: Tensor, b_1: Tensor | None, W_2: Tensor, b_2: Tensor | None, epsilon: Tensor | None,
        scale: Tensor | None, shift: Tensor | None, norm: list[Any], kind: int, edges: Sum | None,
    ) -> Tensor:  # fmt: skip
        ctx.norm, ctx.kind, ctx.edges, ctx.own = norm, kind, edges, 1.0 if epsilon is None else 1 + epsilon.item()
        ctx.first = edges is not None and x.shape[1] > W_1.shape[0]  # whether the map is taken before the sum
        read = x
        if ctx.first:
            read = x.mm(W_1.t())
            z = summed(read, ctx.own, edges.graph)  # type: ignore[union-attr]
            z = z if b_1 is None else z.add_(b_1)
        else:
            s = x if edges is None else summed(x, ctx.own, edges.graph)
            z = s.mm(W_1.t()) if b_1 is None else torch.addmm(b_1, s, W_1.t())
        linear, seen = z, list[Tensor]()
        if norm:
            z, *seen = torch.native_batch_norm(linear, scale, shift, *norm)
        h = _activate(z, kind)
        y = h.mm(W_2.t()) if b_2 is None else torch.addmm(b_2, h, W_2.t())
        read = read if ctx.first or edges is None else s
        ctx.save_for_backward(x, W_1, b_1, W_2, b_2, epsilon, scale, shift, z, read, linear if norm else None, *seen)
        return y

    @staticmethod
    @in_own_dtypes
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        *leaves, z, read, linear = ctx.saved_tensors[:11]
        x, W_1, b_1, W_2, _, epsilon, scale, _ = leaves
        if by_operations(dy, *leaves):
            return *gradients(partial(_composed, ctx.norm, ctx.kind, ctx.edges), leaves, [dy]), None, None, None
        of_x, of_W_1, of_b_1, of_W_2, of_b_2, of_epsilon, *_ = ctx.needs_input_grad
        dy = _rows(dy)
        dz = dy.mm(W_2)
        h = z if ctx.kind == RELU else torch.empty_like(z)
        db_1: Tensor | None = _slope(z, dz, ctx.kind, None if ctx.kind == RELU else h)
        dscale = dshift = None
        if ctx.norm:
            mean, variance, training, _, eps = ctx.norm
            dz, dscale, dshift = torch.ops.aten.native_batch_norm_backward(
                dz, linear, scale, mean, variance, *ctx.saved_tensors[11:], training, eps, [True] * 3
            )
            db_1 = dz.sum(0) if of_b_1 else None
        dW_2 = dy.t().mm(h) if of_W_2 else None
        db_2 = dy.sum(0) if of_b_2 else None
        dx = dW_1 = depsilon = None
        if ctx.first:
            if of_epsilon:
                depsilon = _dot(dz, read, epsilon)
            dz = summed(dz, ctx.own, ctx.edges.transpose) if of_x or of_W_1 else dz
            dW_1 = dz.t().mm(x) if of_W_1 else None
            dx = dz.mm(W_1) if of_x else None
        else:
            dW_1 = dz.t().mm(read) if of_W_1 else None
            dx = dz.mm(W_1) if of_x or of_epsilon else None
            if dx is not None and of_epsilon:
                depsilon = _dot(dx, _rows(x), epsilon)
            if of_x and ctx.edges is not None:
                assert dx is not None
                dx = summed(dx, ctx.own, ctx.edges.transpose)
        db_1 = None if b_1 is None else db_1
        return dx if of_x else None, dW_1, db_1, dW_2, db_2, depsilon, dscale, dshift, None, None, None


class _Normalised(torch.autograd.Function):
    """The same with batch normalisation in training and a ReLU, where what lies between the maps is never written."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, W_1: Tensor, b_1: Tensor | None, W_2: Tensor, b_2: Tensor | None, epsilon: Tensor | None,
        scale: Tensor, shift: Tensor, norm: list[Any], edges: Sum | None,
    ) -> Tensor:  # fmt: skip
        ctx.norm, ctx.edges, ctx.own = norm, edges, 1.0 if epsilon is None else 1 + epsilon.item()
        rows, inputs = x.shape
        width = library.perceptron_lanes(DTYPES[x.dtype])
        width *= -(-W_1.shape[0] // width)
        room = x.new_empty((rows + 2) * width + (0 if edges is None else rows * inputs))
        y, (mean, variance) = x.new_empty(rows, W_2.shape[0]), norm[:2]
        call, s, _held = _normalised(norm, x, W_1, b_1, W_2, b_2, scale, shift, room, width)
        if edges is not None:
            call.set_sum(*edges.graph, ctx.own, s)
        call.set_results(y.data_ptr(), mean.data_ptr(), variance.data_ptr())
        library.perceptron(DTYPES[x.dtype], call)
        ctx.width = width
        ctx.save_for_backward(x, W_1, b_1, W_2, b_2, epsilon, scale, shift, room)
        return y

    @staticmethod
    @in_own_dtypes
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        *leaves, room = ctx.saved_tensors
        x, W_1, b_1, W_2, b_2, epsilon, scale, shift = leaves
        if by_operations(dy, *leaves):
            return *gradients(partial(_composed, ctx.norm, RELU, ctx.edges), leaves, [dy]), None, None
        wanted, edges, dy, x = ctx.needs_input_grad, ctx.edges, _rows(dy), _rows(x)
        weights = (W_1, b_1, W_2, b_2)
        dx, *grads = [
            t.new_empty(t.shape) if use and t is not None else None
            for t, use in zip((x, *weights), wanted, strict=False)
        ]
        dscale, dshift = torch.empty_like(scale), torch.empty_like(shift)
        call, _, _held = _normalised(ctx.norm, x, *weights, scale, shift, room, ctx.width, s=edges is not None)
        ds = None
        if edges is not None and (wanted[0] or wanted[5]):
            ds = torch.empty_like(x)
            places = edges.transpose or edges.graph  # for ε alone nothing is summed back
            call.set_sum(*places, ctx.own, ds.data_ptr())
        call.set_gradients(dy.data_ptr(), *map(_place, (dx, *grads, dscale, dshift)))
        library.perceptron_gradient(DTYPES[x.dtype], call)
        depsilon = None if ds is None or not wanted[5] else _dot(ds, x, epsilon)
        return dx, *grads, depsilon, dscale, dshift, None, None


def _place(x: Tensor | None) -> int:
    return 0 if x is None else x.data_ptr()


def _normalised(
    norm: list[Any], x: Tensor, W_1: Tensor, b_1: Tensor | None, W_2: Tensor, b_2: Tensor | None, scale: Tensor,
    shift: Tensor, room: Tensor, width: int, s: bool = False,
) -> Any:  # fmt: skip
    """The arguments that both passes of the kernel read; where sums lie; and tensors that must live as long.

    Symbols     room = z [N, width], mean and variance [width], then the sums; s = whether those are what the map reads
    """
    momentum, eps = norm[3:]
    x, given = _rows(x), [None if t is None else _rows(t) for t in (W_1, b_1, W_2, b_2, scale, shift)]
    rows, inputs = x.shape
    z, row = room.data_ptr(), width * room.element_size()
    mean = z + rows * row
    sums = mean + 2 * row
    sizes, read = (rows, inputs, W_1.shape[0], W_2.shape[0]), sums if s else x.data_ptr()
    places = *map(_place, given), z, mean, mean + row
    call = library.Perceptron(threads(), *sizes, eps, momentum, read, *places)
    return call, sums, (x, given)


def _dot(x: Tensor, y: Tensor, like: Tensor) -> Tensor:
    """Σ x ∘ y, the same bits at any number of threads."""
    total = library.dot(DTYPES[x.dtype], threads(), x.numel(), x.data_ptr(), y.data_ptr())
    return torch.full_like(like, total)


def _composed(
    norm: list[Any], kind: int, edges: Sum | None,
    x: Tensor, W_1: Tensor, b_1: Tensor | None, W_2: Tensor, b_2: Tensor | None, epsilon: Tensor | None,
    scale: Tensor | None, shift: Tensor | None,
) -> Tensor:  # fmt: skip
    """The same by differentiable operations."""
    if edges is not None:
        offsets, senders = edges.forward[:2]
        receivers = receivers_of(offsets, senders.shape[0])
        own = x if epsilon is None else (1 + epsilon) * x
        x = own.index_add(0, receivers, x.index_select(0, senders))
    h = functional.linear(x, W_1, b_1)
    if norm:
        mean, variance, training, _, eps = norm
        if training:  # they were counted in the forward pass
            mean = variance = None
        h = functional.batch_norm(h, mean, variance, scale, shift, training, 0.0, eps)
    return functional.linear(functional.relu(h) if kind == RELU else functional.gelu(h), W_2, b_2)
