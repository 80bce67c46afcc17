"""Dot-product attention on tensor cores for graphs whose neighbours share neighbours, in Triton.

Sixteen receivers form a window; every sender of one of them is a column of it. A program takes one window (or a piece
of a long one) and one head, and walks along the columns tile by tile: it gathers their keys and values once for all
sixteen, multiplies tile by tile, and masks by one word of bits for each column. The gradient to the queries is a second
pass of that kind; those to keys and values are the same pass by windows of senders. Sums are in float32, no atomics,
the same bits on every run. Tensors are [B, N, H, C] with contiguous rows; sizes are in units of VEC numbers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from edgewise.kernels.backends.cuda.programs import INTERPRETED
from edgewise.kernels.backends.cuda.programs.attention import bound
from edgewise.kernels.backends.cuda.programs.building import WINDOW
from edgewise.kernels.backends.cuda.programs.products import aligned, reduce_into
from edgewise.kernels.backends.cuda.programs.tiles import power_of_two

_INTERPRETED = tl.constexpr(INTERPRETED)
_ROWS = tl.constexpr(WINDOW)
TILE_BYTES = 16384  # of the keys and values that a tile gathers
NARROW = 32  # channels of a key and a value up to which one warp is enough: more would repeat its work
WIDE = 1024  # bytes of a key and a value for which eight warps are needed, or their registers would spill

_SIZES = ["scale", "count", "rows", "heads", "width", "values", "items_of_batch"]
_STRIDES = [f"{name}_{what}" for name in "abcd" for what in ("batch", "row")]
_STRUCTURE = ["starts", "column", "bits", "items", "lse", "delta"]


def _jit(*sizes: str) -> Any:
    return triton.jit(do_not_specialize=[*_SIZES, *sizes], do_not_specialize_on_alignment=_STRUCTURE)


@triton.jit
def _dot(a, b, PRECISION: tl.constexpr):
    """a b in float32: the interpreter multiplies the bits of bfloat16."""
    if _INTERPRETED:
        a, b = a.to(tl.float32), b.to(tl.float32)
    return tl.dot(a, b, input_precision=PRECISION)


@triton.jit
def _window(starts, items, count, heads, LISTED: tl.constexpr):
    """This program's item, window, first and last column, head and batch."""
    program = tl.program_id(0)
    item = program % count
    head = (program // count) % heads
    if LISTED:
        window = tl.load(items + 3 * item)
        first = tl.load(items + 3 * item + 1)
        last = tl.load(items + 3 * item + 2)
    else:
        window = item
        first = tl.load(starts + item).to(tl.int32)
        last = tl.load(starts + item + 1).to(tl.int32)
    return item, window, first, last, head, (program // count // heads).to(tl.int64)


@_jit(*_STRIDES[:6])
def _forward(
    q, k, v, y, lse, starts, column, bits, items, scale,
    count, rows, heads, width, values, a_batch, a_row, b_batch, b_row, c_batch, c_row, items_of_batch,
    LISTED: tl.constexpr, PIECES: tl.constexpr, VEC: tl.constexpr, C: tl.constexpr, D: tl.constexpr, T: tl.constexpr,
    PRECISION: tl.constexpr,
):  # fmt: skip
    """y [B, items or windows, 16, H, D] and its log-sum-exp [B, items or windows, 16, H]."""
    item, window, first, last, head, batch = _window(starts, items, count, heads, LISTED)
    r, c, d, t = tl.arange(0, _ROWS), tl.arange(0, C), tl.arange(0, D), tl.arange(0, T)
    i = window * _ROWS + r
    at_c, at_d = head * (width * VEC) + c, head * (values * VEC) + d
    has_c, has_d = (c < width * VEC)[None, :], (d < values * VEC)[None, :]
    place = batch * a_batch * VEC + (i.to(tl.int64) * (a_row * VEC))[:, None] + at_c[None, :]
    q_i = tl.load(q + place, mask=(i < rows)[:, None] & has_c, other=0)
    k += batch * b_batch * VEC
    v += batch * c_batch * VEC
    top = tl.full((_ROWS,), float("-inf"), tl.float32)
    total = tl.zeros((_ROWS,), tl.float32)
    y_i = tl.zeros((_ROWS, D), tl.float32)
    for begin in range(bound(first), bound(last), T):
        live = begin + t < last
        j = tl.load(column + begin + t, mask=live, other=0).to(tl.int64)
        word = tl.load(bits + begin + t, mask=live, other=0)
        k_j = tl.load(k + (j * (b_row * VEC))[:, None] + at_c[None, :], mask=live[:, None] & has_c, other=0)
        v_j = tl.load(v + (j * (c_row * VEC))[:, None] + at_d[None, :], mask=live[:, None] & has_d, other=0)
        linked = ((word[None, :] >> r[:, None]) & 1) == 1
        s = tl.where(linked, _dot(q_i, tl.trans(k_j), PRECISION) * scale, float("-inf"))
        above = tl.maximum(top, tl.max(s, 1))
        shift = tl.where(above == float("-inf"), 0.0, above)
        p = tl.exp(s - shift[:, None])
        fade = tl.exp(top - shift)
        total = total * fade + tl.sum(p, 1)
        y_i = y_i * fade[:, None] + _dot(p.to(v_j.dtype), v_j, PRECISION)
        top = above
    y_i = y_i / tl.where(total > 0, total, 1.0)[:, None]
    to = batch * items_of_batch + (item if PIECES else window)
    row = (to * _ROWS + r).to(tl.int64) * heads
    tl.store(y + row[:, None] * (values * VEC) + at_d[None, :], y_i.to(y.dtype.element_ty), mask=has_d)
    tl.store(lse + row + head, tl.where(total > 0, top + tl.log(tl.where(total > 0, total, 1.0)), top))


@_jit(*_STRIDES, "stats_of_batch")
def _backward(
    a, b, c, d, lse, delta, da, db, starts, column, bits, items, scale,
    count, rows, heads, width, values, a_batch, a_row, b_batch, b_row, c_batch, c_row, d_batch, d_row, items_of_batch,
    stats_of_batch,
    BY_SENDER: tl.constexpr, LISTED: tl.constexpr, PIECES: tl.constexpr, VEC: tl.constexpr, C: tl.constexpr,
    D: tl.constexpr, T: tl.constexpr, PRECISION: tl.constexpr,
):  # fmt: skip
    """da = dQ with a, b, c, d = Q, K, dY, V by receiver; BY_SENDER da = dK and db = dV with K, Q, V, dY.

    A window's rows are those of a and c, its columns those of b and d; da, db are [B, items or windows, 16, H, C or D].
    """
    item, window, first, last, head, batch = _window(starts, items, count, heads, LISTED)
    r, ch, dh, t = tl.arange(0, _ROWS), tl.arange(0, C), tl.arange(0, D), tl.arange(0, T)
    i = window * _ROWS + r
    at_c, at_d = head * (width * VEC) + ch, head * (values * VEC) + dh
    has_c, has_d = (ch < width * VEC)[None, :], (dh < values * VEC)[None, :]
    inside = i < rows
    place = batch * a_batch * VEC + (i.to(tl.int64) * (a_row * VEC))[:, None] + at_c[None, :]
    a_i = tl.load(a + place, mask=inside[:, None] & has_c, other=0)
    place = batch * c_batch * VEC + (i.to(tl.int64) * (c_row * VEC))[:, None] + at_d[None, :]
    c_i = tl.load(c + place, mask=inside[:, None] & has_d, other=0)
    b += batch * b_batch * VEC
    d += batch * d_batch * VEC
    lse += batch * stats_of_batch + head
    delta += batch * stats_of_batch + head
    if not BY_SENDER:
        lse_i = tl.load(lse + i.to(tl.int64) * heads, mask=inside, other=0)[:, None]
        delta_i = tl.load(delta + i.to(tl.int64) * heads, mask=inside, other=0)[:, None]
    da_i = tl.zeros((_ROWS, C), tl.float32)
    db_i = tl.zeros((_ROWS, D), tl.float32)
    for begin in range(bound(first), bound(last), T):
        live = begin + t < last
        j = tl.load(column + begin + t, mask=live, other=0).to(tl.int64)
        word = tl.load(bits + begin + t, mask=live, other=0)
        b_j = tl.load(b + (j * (b_row * VEC))[:, None] + at_c[None, :], mask=live[:, None] & has_c, other=0)
        d_j = tl.load(d + (j * (d_row * VEC))[:, None] + at_d[None, :], mask=live[:, None] & has_d, other=0)
        if BY_SENDER:
            lse_i = tl.load(lse + j * heads, mask=live, other=0)[None, :]
            delta_i = tl.load(delta + j * heads, mask=live, other=0)[None, :]
        linked = ((word[None, :] >> r[:, None]) & 1) == 1
        s = _dot(a_i, tl.trans(b_j), PRECISION) * scale
        p = tl.exp(tl.where(linked, s - lse_i, float("-inf")))
        dp = _dot(c_i, tl.trans(d_j), PRECISION)
        ds = p * (dp - delta_i)
        da_i += _dot(ds.to(b_j.dtype), b_j, PRECISION)
        if BY_SENDER:
            db_i += _dot(p.to(d_j.dtype), d_j, PRECISION)
    to = batch * items_of_batch + (item if PIECES else window)
    row = ((to * _ROWS + r).to(tl.int64) * heads)[:, None]
    tl.store(da + row * (width * VEC) + at_c[None, :], (da_i * scale).to(da.dtype.element_ty), mask=has_c)
    if BY_SENDER:
        tl.store(db + row * (values * VEC) + at_d[None, :], db_i.to(db.dtype.element_ty), mask=has_d)


# Launching. A structure is what `building.windows` returns


def forward(q: Tensor, k: Tensor, v: Tensor, structure: Sequence[Tensor], scale: float) -> tuple[Tensor, Tensor]:
    """y [B, I, H, D] and its log-sum-exp, float32 [B, I, H]."""
    starts, _, _, *plan = structure
    batch, receivers, heads, _ = q.shape
    q, k, v = aligned(q), aligned(k), aligned(v)
    windows = starts.shape[0] - 1
    y = v.new_empty(batch, windows * WINDOW, heads, v.shape[3])
    lse = v.new_empty(batch, windows * WINDOW, heads, dtype=torch.float32)
    whole, cut, *merge = plan or (None, None)
    with torch.cuda.device_of(q):
        _launch(_forward, (q, k, v), (y, lse), structure, whole, False, scale)
        if cut is not None and len(cut):
            pieces = y.new_empty(batch, len(cut), WINDOW * heads, v.shape[3], dtype=torch.float32)
            partial = lse.new_empty(*pieces.shape[:3], 1)
            _launch(_forward, (q, k, v), (pieces, partial), structure, cut, True, scale)
            rows, total = cut[:, 0], lse.view(batch, windows, *partial.shape[2:])
            _merge(lse, partial, None, starts, merge, "max")
            top = total.index_select(1, rows).clamp_(min=torch.finfo(torch.float32).min)
            share = (partial - top).exp_()
            _merge(lse, share, None, starts, merge)
            sums = total.index_select(1, rows)
            _merge(y, pieces, share.div_(sums.clamp(min=1)).squeeze(3), starts, merge)
            total[:, rows] = sums.log_().add_(top)
    return y[:, :receivers].contiguous(), lse[:, :receivers].contiguous()


def backward(
    dy: Tensor, q: Tensor, k: Tensor, v: Tensor, y: Tensor, lse: Tensor,
    structure: Sequence[Tensor], reverse: Sequence[Tensor], scale: float,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """The gradients to q, k and v; reverse = the structure of the transpose."""
    dy, q, k, v = (aligned(x) for x in (dy, q, k, v))
    delta = torch.linalg.vecdot(dy.float(), y.float())
    with torch.cuda.device_of(q):
        dq, _ = _backward_of((q, k, dy, v), lse, delta, structure, scale, False)
        dk, dv = _backward_of((k, q, v, dy), lse, delta, reverse, scale, True)
    return dq, dk, dv


def _backward_of(
    nodes: Sequence[Tensor], lse: Tensor, delta: Tensor, structure: Sequence[Tensor], scale: float, by_sender: bool
) -> tuple[Tensor, Tensor]:
    a, _, c, _ = nodes
    starts, _, _, *plan = structure
    batch, rows, heads, _ = a.shape
    whole, cut, *merge = plan or (None, None)
    results = [x.new_empty(batch, (starts.shape[0] - 1) * WINDOW, heads, x.shape[3]) for x in (a, c)]
    more = {"stats_of_batch": lse.stride(0), "BY_SENDER": by_sender}
    _launch(_backward, nodes, (lse, delta, *results), structure, whole, False, scale, **more)
    if cut is not None and len(cut):
        shape = batch, len(cut), WINDOW * heads
        pieces = [x.new_empty(*shape, x.shape[3], dtype=torch.float32) for x in (a, c)]
        _launch(_backward, nodes, (lse, delta, *pieces), structure, cut, True, scale, **more)
        for y, parts in [*zip(results, pieces, strict=True)][: 1 + by_sender]:
            _merge(y, parts, None, starts, merge)
    da, db = (y[:, :rows].contiguous() for y in results)
    return da, db


def _merge(
    y: Tensor, pieces: Tensor, share: Tensor | None, starts: Tensor, plan: Sequence[Tensor], kind: str = "sum"
) -> None:
    """Sums or maxima of pieces [B, P, 16 H, D] into the rows [B, 16 W, H, D] of the windows that were cut."""
    numbers = torch.arange(pieces.shape[1], dtype=torch.int32, device=y.device)
    by_window = y.view(y.shape[0], -1, *pieces.shape[2:])
    reduce_into(by_window, kind, (pieces, None, None, share), (starts, numbers, numbers[:0], *plan), False)


def _constants(nodes: Sequence[Tensor], channels: int, values: int) -> dict[str, Any]:
    """How the numbers of a row are padded and loaded, and how many columns make a tile."""
    size = nodes[0].element_size()
    vec = 16 // size
    while any(n % vec for n in (channels, values, *(stride for x in nodes for stride in x.stride()[:2]))):
        vec //= 2
    c, d = (max(16, power_of_two(n)) for n in (channels, values))
    fit = max(16, TILE_BYTES // ((c + d) * size))
    tile = min(64, 2 * min(c, d), 1 << fit.bit_length() - 1)
    precision = "tf32x3" if size == 4 else "tf32"
    warps = 1 if c + d <= NARROW else 8 if (c + d) * size >= WIDE else 4
    return {"VEC": vec, "C": c, "D": d, "T": tile, "PRECISION": precision, "num_warps": warps}


def _launch(
    kernel: Any, nodes: Sequence[Tensor], others: Sequence[Tensor], structure: Sequence[Tensor],
    items: Tensor | None, pieces: bool, scale: float, **more: Any,
) -> None:  # fmt: skip
    """Run a kernel over the windows, or the items; nodes = what has rows of keys and, from the third on, values."""
    starts, column, bits = structure[:3]
    windows, (batch, rows, heads, channels), values = starts.shape[0] - 1, nodes[0].shape, nodes[2].shape[3]
    constants = _constants(nodes, channels, values)
    count, vec = windows if items is None else len(items), constants["VEC"]
    if count * heads * batch:
        strides = [stride // vec for x in nodes for stride in x.stride()[:2]]
        kernel[(count * heads * batch,)](
            *nodes, *others, starts, column, bits, starts if items is None else items, scale,
            count, rows, heads, channels // vec, values // vec, *strides, count if pieces else windows,
            LISTED=items is not None, PIECES=pieces, **more, **constants,
        )  # fmt: skip
