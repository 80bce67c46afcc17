"""Attention on small blocks, all to all: the pairs of a block and a head are one tile, which never leaves the chip.

A block is five numbers: its first receiver, sender and edge, and how many receivers and senders it has.
"""

# mypy: disable-error-code="no-untyped-def, no-untyped-call, untyped-decorator"
from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from edgewise.kernels.backends.cuda import programs as gpu
from edgewise.kernels.backends.cuda.programs.attention import survives
from edgewise.kernels.backends.cuda.programs.tiles import power_of_two

INTERPRETED = tl.constexpr(gpu.INTERPRETED)  # the interpreter multiplies bfloat16 numbers as if they were integers
NONE, EDGES, SENDERS = tl.constexpr(0), tl.constexpr(1), tl.constexpr(2)  # what the bias has a number for
PROGRAMS = 1024  # with fewer, a card of some hundred multiprocessors is not full
WARPS = {4: 1, 5: 2, 6: 4, 7: 8}  # of a tile of 2^n receivers: 16 rows for each
INTEGERS = (
    "q_batch", "q_row", "k_batch", "k_row", "v_batch", "v_row", "y_batch", "y_row", "bias_batch", "bias_row",
    "bias_head", "first_block", "count", "heads", "together", "receivers", "senders", "rows_of_bias", "members",
    "channels", "values", "threshold",
)  # fmt: skip


@triton.jit
def rows(x, first, count, row, width, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Some rows of a matrix as a tile, zeros around them."""
    r, c = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    at = x + first * row + r[:, None] * row + c[None, :]
    tile = tl.load(at, mask=(r < count)[:, None] & (c < width)[None, :], other=0.0)
    return tile.to(tl.float32) if INTERPRETED else tile


@triton.jit
def put_rows(x, tile, first, count, row, width, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """A tile's rows, back in a matrix."""
    r, c = tl.arange(0, ROWS), tl.arange(0, WIDTH)
    at = x + first * row + r[:, None] * row + c[None, :]
    tl.store(at, tile.to(x.dtype.element_ty), mask=(r < count)[:, None] & (c < width)[None, :])


@triton.jit
def at_edges(x, stride, block, row, ROWS: tl.constexpr, SIZE: tl.constexpr):
    """Where each pair of some receivers with all senders has its number in x, and whether it has one."""
    _, _, e_0, n_i, n_j = block
    i, j = row + tl.arange(0, ROWS), tl.arange(0, SIZE)
    return x + e_0 * stride + (i[:, None] * n_j + j[None, :]) * stride, (i < n_i)[:, None] & (j < n_j)[None, :]


@triton.jit
def attention(
    q_i, k_j, bias, bias_row, block, row, scale, ROWS: tl.constexpr, SIZE: tl.constexpr, BIAS: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """p_ij of some receivers of a block in float32: 0 around it, and for a receiver without senders."""
    _, j_0, _, _, n_j = block
    j = tl.arange(0, SIZE)
    at, inside = at_edges(bias, bias_row, block, row, ROWS, SIZE)
    s_ij = tl.dot(q_i, tl.trans(k_j), input_precision=PRECISION) * scale
    if BIAS == EDGES:
        s_ij += tl.load(at, mask=inside, other=0.0).to(tl.float32)
    if BIAS == SENDERS:
        s_ij += tl.load(bias + j_0 * bias_row + j * bias_row, mask=j < n_j, other=0.0).to(tl.float32)[None, :]
    s_ij = tl.where(inside, s_ij, float("-inf"))
    top = tl.max(s_ij, 1)
    top = tl.where(top == float("-inf"), 0.0, top)  # of receivers without senders
    w_ij = tl.exp(s_ij - top[:, None])
    total = tl.sum(w_ij, 1)
    return w_ij / tl.where(total == 0.0, 1.0, total)[:, None]


@triton.jit
def dropped(x, alive, keep, DROPOUT: tl.constexpr):
    """x after dropout."""
    return tl.where(alive, x * keep, 0.0) if DROPOUT else x


@triton.jit
def attend_block(
    tensors, gradients, strides, block, some, sizes, ROWS: tl.constexpr, SIZE: tl.constexpr, C: tl.constexpr,
    D: tl.constexpr, BIAS: tl.constexpr, DROPOUT: tl.constexpr, PRECISION: tl.constexpr, GRADIENT: tl.constexpr,
    TO_BIAS: tl.constexpr,
):  # fmt: skip
    """y_i of some heads of a block with at most SIZE receivers and senders, ROWS receivers at a time.

    Or its gradients, for which the weights are recomputed and y holds dy.
    """
    q, k, v, bias, y, bits = tensors
    dq, dk, dv, dbias = gradients
    q_row, k_row, v_row, bias_row, bias_head, y_row, heads = strides
    i_0, j_0, _, n_i, n_j = block
    head, last, batch = some
    channels, values, members, scale, threshold, keep = sizes
    j = tl.arange(0, SIZE)
    while head < last:  # a range of tensors is beyond the interpreter
        k_j = rows(k + head * channels, j_0, n_j, k_row, channels, SIZE, C)
        v_j = rows(v + head * values, j_0, n_j, v_row, values, SIZE, D)
        if GRADIENT:
            dk_j, dv_j = tl.zeros([SIZE, C], tl.float32), tl.zeros([SIZE, D], tl.float32)
            to_sender = tl.zeros([SIZE], tl.float32)
        row = 0
        while row < n_i:
            q_i = rows(q + head * channels, i_0 + row, n_i - row, q_row, channels, ROWS, C)
            p_ij = attention(
                q_i, k_j, bias + head * bias_head, bias_row, block, row, scale, ROWS, SIZE, BIAS, PRECISION
            )
            alive = 0
            if DROPOUT:
                edge, _inside = at_edges(0, 1, block, row, ROWS, SIZE)
                alive = survives(bits, (edge * heads + head) * members + batch, threshold)
            w_ij = dropped(p_ij, alive, keep, DROPOUT).to(y.dtype.element_ty).to(v_j.dtype)
            if GRADIENT:
                dy_i = rows(y + head * values, i_0 + row, n_i - row, y_row, values, ROWS, D)
                dv_j = tl.dot(tl.trans(w_ij), dy_i, dv_j, input_precision=PRECISION)
                dp_ij = tl.dot(dy_i, tl.trans(v_j), input_precision=PRECISION)
                dp_ij = dropped(dp_ij, alive, keep, DROPOUT)
                ds_ij = p_ij * (dp_ij - tl.sum(p_ij * dp_ij, 1)[:, None])
                if TO_BIAS and BIAS == EDGES:
                    at, inside = at_edges(dbias + head, heads, block, row, ROWS, SIZE)
                    tl.store(at, ds_ij.to(dbias.dtype.element_ty), mask=inside)
                if TO_BIAS and BIAS == SENDERS:
                    to_sender += tl.sum(ds_ij, 0)
                ds_ij = (ds_ij * scale).to(q.dtype.element_ty).to(q_i.dtype)
                dq_i = tl.dot(ds_ij, k_j, input_precision=PRECISION)
                put_rows(dq + head * channels, dq_i, i_0 + row, n_i - row, heads * channels, channels, ROWS, C)
                dk_j = tl.dot(tl.trans(ds_ij), q_i, dk_j, input_precision=PRECISION)
            else:
                y_i = tl.dot(w_ij, v_j, input_precision=PRECISION)
                put_rows(y + head * values, y_i, i_0 + row, n_i - row, y_row, values, ROWS, D)
            row += ROWS
        if GRADIENT:
            put_rows(dk + head * channels, dk_j, j_0, n_j, heads * channels, channels, SIZE, C)
            put_rows(dv + head * values, dv_j, j_0, n_j, heads * values, values, SIZE, D)
        if TO_BIAS and BIAS == SENDERS:
            at = dbias + j_0 * heads + head + j * heads
            tl.store(at, to_sender.to(dbias.dtype.element_ty), mask=j < n_j)
        head += 1


@triton.jit
def block_of(blocks, first_block, count):
    """The block of this program, and its member of the batch."""
    at = blocks + 5 * (first_block + tl.program_id(0) % count)
    block = (
        tl.load(at), tl.load(at + 1), tl.load(at + 2), tl.load(at + 3).to(tl.int32), tl.load(at + 4).to(tl.int32),
    )  # fmt: skip
    return block, (tl.program_id(0) // count).to(tl.int64)


@triton.jit
def fits(block, LOG: tl.constexpr, LEAST: tl.constexpr):
    """Whether tiles of 2^LOG are the smallest that hold the block."""
    _, _, _, n_i, n_j = block
    size = tl.maximum(n_i, n_j)
    return (size <= 2**LOG) & ((size > 2 ** (LOG - 1)) | (LOG == LEAST))


@triton.jit(do_not_specialize=INTEGERS)
def attend_kernel(
    q, k, v, bias, blocks, seed, y, dq, dk, dv, dbias,
    q_batch, q_row, k_batch, k_row, v_batch, v_row, y_batch, y_row, bias_batch, bias_row, bias_head,
    first_block, count, heads, together, receivers, senders, rows_of_bias, members, channels, values, scale,
    threshold: tl.int64, keep,
    LEAST: tl.constexpr, MOST: tl.constexpr, C: tl.constexpr, D: tl.constexpr, BIAS: tl.constexpr,
    DROPOUT: tl.constexpr, UNIT: tl.constexpr, PRECISION: tl.constexpr, GRADIENT: tl.constexpr, TO_BIAS: tl.constexpr,
):  # fmt: skip
    """A program is `together` heads of a block of at most 2^MOST nodes, of which it alone writes."""
    # In units, so that the compiler sees that rows can be read 16 bytes at a time.
    q_row, k_row, v_row, y_row = q_row * UNIT, k_row * UNIT, v_row * UNIT, y_row * UNIT
    channels, values = channels * UNIT, values * UNIT
    block, batch = block_of(blocks, first_block, count)
    units = batch * UNIT  # in 64 bits, as members of a batch may lie that far apart
    first = tl.program_id(1) * together
    some = first, tl.minimum(first + together, heads), batch
    tensors = (
        q + units * q_batch, k + units * k_batch, v + units * v_batch, bias + batch * bias_batch, y + units * y_batch,
        tl.load(seed),
    )  # fmt: skip
    gradients = (
        dq + batch * receivers * heads * channels, dk + batch * senders * heads * channels,
        dv + batch * senders * heads * values, dbias + batch * rows_of_bias * heads,
    )  # fmt: skip
    strides = q_row, k_row, v_row, bias_row, bias_head, y_row, heads
    sizes = channels, values, members, scale, threshold, keep
    for LOG in tl.static_range(LEAST, MOST + 1):
        if fits(block, LOG, LEAST):
            attend_block(
                tensors, gradients, strides, block, some, sizes, min(2**LOG, 64), 2**LOG, C, D, BIAS, DROPOUT,
                PRECISION, GRADIENT, TO_BIAS,
            )  # fmt: skip


def attend(own: Any, q: Tensor, k: Tensor, v: Tensor, y: Tensor, gradients: Sequence[Tensor] = ()) -> None:
    """Fill y [B, I, H, D] from q [B, I, H, C], k [B, J, H, C], v [B, J, H, D] with contiguous heads.

    Or, where y is the gradient to it, contiguous dq, dk and dv, and dbias [B, E or J, H] unless it is empty.

    Symbols     own = the other arguments of the operator
    """
    bias, (batch, receivers, heads, _) = own.bias, q.shape
    numbers = [*(stride for x in (q, k, v, y) for stride in x.stride()[:2]), q.shape[3], v.shape[3]]
    unit = 8 if all(number % 8 == 0 for number in numbers) else 1
    *strides, channels, values = (number // unit for number in numbers)
    if bias is None:
        strides += (0, 0, 0)
    else:  # a number which all members of the batch, or all heads, share lies at the same place for each
        strides += (stride if size > 1 else 0 for size, stride in zip(bias.shape, bias.stride(), strict=True))
    kind = NONE if bias is None else SENDERS if own.by_sender else EDGES
    to_bias = bool(gradients) and gradients[3].numel() > 0
    dq, dk, dv, dbias = gradients or (y, y, y, y)
    for first, count, least, most in ((0, own.small, 4, own.most), (own.small, own.large, 7, 7)):
        if not count * batch * heads:
            continue
        # The biases of an edge lie side by side: a program of several heads finds those after the first in its cache.
        together = min(heads, max(1, count * batch * heads // PROGRAMS)) if kind is EDGES else 1
        with torch.cuda.device_of(q):
            attend_kernel[(count * batch, -(-heads // together))](
                q, k, v, v if bias is None else bias, own.blocks, own.seed, y, dq, dk, dv, dbias if to_bias else dv,
                *strides, first, count, heads, together, receivers, k.shape[1], 0 if bias is None else bias.shape[1],
                batch, channels, values, own.scale, int(own.dropout * 2**32), 1 / (1 - own.dropout),
                C=max(16, power_of_two(q.shape[3])), D=max(16, power_of_two(v.shape[3])), BIAS=kind.value,
                DROPOUT=own.dropout > 0, UNIT=unit, PRECISION="tf32x3" if q.dtype == torch.float32 else None,
                LEAST=least, MOST=most, num_warps=WARPS[most], num_stages=1, GRADIENT=bool(gradients), TO_BIAS=to_bias,
            )  # fmt: skip
