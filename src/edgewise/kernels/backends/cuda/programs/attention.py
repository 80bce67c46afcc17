"""Attention on the edges of a graph, fused: forward, then backward once by sender and once by receiver.

A program holds a few rows with several heads. Its lanes lie along channels, then heads, then rows (Triton gives the
earlier axes of a tile [heads, rows, edges, channels] to neighbouring lanes), so that a gathered row is one contiguous
read, and each thread walks along the edges of its row, several at a time: sums over edges stay within a thread.

Tensors are q [B, I, H, C], k [B, J, H, C], v [B, J, H, D], those on edges [B or 1, E, ...]; work items and hubs as
`building.work` makes them. Sums are in float32. Numbers that depend on the graph are never specialised
on.
"""

from __future__ import annotations

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"
import triton
import triton.language as tl

from edgewise.kernels.backends.cuda import programs as gpu

# mypy: disable-error-code="no-untyped-def, untyped-decorator, no-untyped-call"


@triton.jit
def survives(bits, place, threshold):
    """Whether the numbers at these places survive dropout: the hash of `edgewise.kernels.operator.dropout`."""
    bits = bits.to(tl.uint64)
    place = place.to(tl.uint64)
    upper = (bits >> 32).to(tl.uint32) ^ ((place >> 32).to(tl.uint32) * 0x9E3779B9)
    x = place.to(tl.uint32) ^ bits.to(tl.uint32)
    x = (x ^ (x >> 16)) * 0x7FEB352D
    x = (x ^ (x >> 15)) * 0x846CA68B
    x = x ^ (x >> 16) ^ upper
    x = (x ^ (x >> 16)) * 0x21F0AAAD
    x = (x ^ (x >> 15)) * 0xD35A2D97
    return (x ^ (x >> 15)) >= threshold.to(tl.uint32)


INTERPRETED = tl.constexpr(gpu.INTERPRETED)
INTEGERS = [
    "count", "chunks", "receivers", "senders", "edges", "q_stride", "k_stride", "v_stride", "dy_stride", "bias_batch",
    "keys_batch", "values_batch", "threshold", "programs",
]  # fmt: skip


@triton.jit
def bound(n):
    """A bound of a loop: the interpreter's numbers do not serve as such."""
    if INTERPRETED:
        return n.handle.data.item()
    return n


@triton.jit
def _place(block, count, ROWS: tl.constexpr, H: tl.constexpr, HEADS: tl.constexpr, programs):
    """A program's items in that block [ROWS], heads [HEADS] and batch."""
    groups: tl.constexpr = (H + HEADS - 1) // HEADS
    rest = tl.program_id(0) // programs
    return block * ROWS + tl.arange(0, ROWS), rest % groups * HEADS + tl.arange(0, HEADS), (rest // groups).to(tl.int64)


@triton.jit
def _items(items, block, count, ROWS: tl.constexpr, H: tl.constexpr, HEADS: tl.constexpr, programs):
    """A block's items, which of them exist, their rows, first and last edges [ROWS, 1], most edges, heads and batch."""
    item, head, b = _place(block, count, ROWS, H, HEADS, programs)
    live = item < count
    row, first = tl.load(items + item, live, 0), tl.load(items + count + item, live, 0)
    last = tl.load(items + 2 * count + item, live, 0)
    return item[:, None], live[:, None], row[:, None], first[:, None], last[:, None], tl.max(last - first, 0), head, b


@triton.jit
def _inside(head, H: tl.constexpr, HEADS: tl.constexpr, C: tl.constexpr, CP: tl.constexpr):
    """Where the numbers of a row lie in it, and which of them exist [HEADS, 1, 1, CP]."""
    channel = tl.arange(0, CP)[None, None, None, :]
    head = head[:, None, None, None]
    every: tl.constexpr = C == CP and H % HEADS == 0
    there = tl.full([HEADS, 1, 1, CP], 1, tl.int1) if every else (head < H) & (channel < C)
    return head * C + channel, there


@triton.jit
def _load(x, row, stride, live, inside, there, VEC: tl.constexpr):
    """Rows [HEADS, ROWS, EDGES, CP] of x as float32, by number [ROWS, EDGES]; the stride comes in units of VEC."""
    start = (row.to(tl.int64) * (stride * VEC))[None, :, :, None]
    return tl.load(x + (start + inside), live[None, :, :, None] & there, 0.0).to(tl.float32)


@triton.jit
def _store(x, row, width, live, inside, there, values):
    """Put rows [HEADS, ROWS, EDGES, CP] of that width to their numbers [ROWS, EDGES]."""
    start = (row.to(tl.int64) * width)[None, :, :, None]
    tl.store(x + (start + inside), values, live[None, :, :, None] & there)


@triton.jit
def _store_rest(x, rest, row, width, live, inside, there, values):
    """What rounding to the type of x takes away."""
    _store(rest, row, width, live, inside, there, values - values.to(x.dtype.element_ty).to(tl.float32))


@triton.jit
def _store_row(x, part, row, item, chunks, live, inside, there, values, width: tl.constexpr, b, rows):
    """Put [HEADS, ROWS, CP] to its row, or to its chunk's place where it is one."""
    values = values[:, :, None, :]
    whole = live
    if part is not None:
        _store(part, b * chunks + item, width, live & (item < chunks), inside, there, values)
        whole = live & (item >= chunks)
    _store(x, b * rows + row, width, whole, inside, there, values)


@triton.jit
def _scores(q_i, k_j, a_h, slope, s, GATED: tl.constexpr):
    """s_ij without its bias [HEADS, ROWS, EDGES], the s that is given where there are no queries; and ∂s_ij/∂k_j."""
    to_k = q_i
    if q_i is not None:
        if GATED:
            x = q_i + k_j
            to_k = tl.where(x > 0, 1.0, slope)
            if a_h is not None:
                to_k *= a_h
            s = tl.sum(x * to_k, 3)
        else:
            s = tl.sum(q_i * k_j, 3)
    return s, to_k


@triton.jit
def _softmax(s, top, total):
    """A step along the edges: exp(s - largest), the largest so far, what earlier sums shrink by, the sum so far."""
    above = tl.maximum(top, tl.max(s, 2))
    shift = tl.where(above == float("-inf"), 0.0, above)
    p, fade = tl.exp(s - shift[:, :, None]), tl.exp(top - shift)
    return p, above, fade, total * fade + tl.sum(p, 2)


@triton.jit
def _bias(bias, e, head, edge, b, bias_batch, H: tl.constexpr, BIAS_HEADS: tl.constexpr):
    at = (b * bias_batch + e.to(tl.int64) * BIAS_HEADS)[None]
    if BIAS_HEADS > 1:
        at += head
    return tl.load(bias + at, edge & (head < H), 0.0).to(tl.float32)


@triton.jit(do_not_specialize=INTEGERS)
def attend(
    q, k, v, a, bias, edge_k, edge_v, seed, index, items, y, rest, lse, part_y, part_lse,
    count: tl.int64, chunks: tl.int64, receivers: tl.int64, senders: tl.int64, edges: tl.int64,
    q_stride: tl.int64, k_stride: tl.int64, v_stride: tl.int64,
    bias_batch: tl.int64, keys_batch: tl.int64, values_batch: tl.int64,
    scale: tl.float32, slope: tl.float32, threshold: tl.int64, keep: tl.float32,
    GATED: tl.constexpr, BIAS_HEADS: tl.constexpr, H: tl.constexpr, C: tl.constexpr, D: tl.constexpr,
    VC: tl.constexpr, VD: tl.constexpr, HEADS: tl.constexpr, CP: tl.constexpr, DP: tl.constexpr,
    ROWS: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """y_i and log Σ_j exp s_ij; of a hub's chunk, both of the chunk."""
    programs = tl.cdiv(count, ROWS)
    item, live, row, first, last, steps, head, b = _items(
        items, tl.program_id(0) % programs, count, ROWS, H, HEADS, programs
    )
    inside_v, there_v = _inside(head, H, HEADS, D, DP)
    q_i, a_h = None, None
    if q is not None:
        inside, there = _inside(head, H, HEADS, C, CP)
        q_i = _load(q, b * receivers + row, q_stride, live, inside, there, VC)
        if not GATED:
            q_i *= scale
        elif a is not None:
            a_h = tl.load(a + inside, there, 0.0)
    if seed is not None:
        bits = tl.load(seed)
    head = head[:, None, None]
    top = tl.full([HEADS, ROWS], float("-inf"), tl.float32)
    total = tl.zeros([HEADS, ROWS], tl.float32)
    sums = tl.zeros([HEADS, ROWS, DP], tl.float32)
    e_next = first + tl.arange(0, EDGES)[None, :]
    j_next = tl.load(index + e_next, e_next < last, 0)
    for _ in range(0, bound(steps), EDGES):
        e, j = e_next, b * senders + j_next
        edge = e < last
        k_j = _load(k, j, k_stride, edge, inside, there, VC) if q is not None else None
        v_j = _load(v, j, v_stride, edge, inside_v, there_v, VD)
        if edge_k is not None:
            k_j += _load(edge_k, b * keys_batch + e, H * C // VC, edge, inside, there, VC)
        if edge_v is not None:
            v_j += _load(edge_v, b * values_batch + e, H * D // VD, edge, inside_v, there_v, VD)
        e_next += EDGES
        j_next = tl.load(index + e_next, e_next < last, 0)
        s, _ = _scores(q_i, k_j, a_h, slope, tl.zeros([HEADS, ROWS, EDGES], tl.float32), GATED)
        if bias is not None:
            s += _bias(bias, e, head, edge[None], b, bias_batch, H, BIAS_HEADS)
        p, top, fade, total = _softmax(tl.where(edge[None], s, float("-inf")), top, total)
        if seed is not None:
            p = tl.where(survives(bits, (b * edges + e)[None] * H + head, threshold), p, 0.0)
        sums = sums * fade[:, :, None] + tl.sum(p[:, :, :, None] * v_j, 2)
    divisor = tl.where(total == 0, 1.0, total)
    y_i = sums * (keep / divisor)[:, :, None]
    _store_row(y, part_y, row, item, chunks, live, inside_v, there_v, y_i, H * D, b, receivers)
    if rest is not None:
        whole = live & (item >= chunks)
        _store_rest(y, rest, b * receivers + row, H * D, whole, inside_v, there_v, y_i[:, :, None, :])
    log_sum = (top + tl.log(divisor))[:, :, None]
    whole, at = live[None] & (head < H), (b * receivers + row)[None] * H + head
    if part_lse is not None:
        tl.store(part_lse + ((b * chunks + item)[None] * H + head), log_sum, whole & (item < chunks)[None])
        whole &= (item >= chunks)[None]
    # Of nothing it is saved as +∞, so that exp(s_ij - lse_i) is 0.
    tl.store(lse + at, tl.where(total[:, :, None] == 0, float("inf"), log_sum), whole)


@triton.jit(do_not_specialize=INTEGERS)
def merge(
    part, part_lse, hubs, y, rest, lse, count: tl.int64, chunks: tl.int64, receivers: tl.int64,
    H: tl.constexpr, D: tl.constexpr, HEADS: tl.constexpr, DP: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """The chunks of a hub in their order: a softmax of parts where they have a log-sum-exp, else their sum."""
    _, live, row, first, last, steps, head, b = _items(hubs, tl.program_id(0) % count, count, 1, H, HEADS, count)
    inside, there = _inside(head, H, HEADS, D, DP)
    head = head[:, None, None]
    top = tl.full([HEADS, 1], float("-inf"), tl.float32)
    total = tl.zeros([HEADS, 1], tl.float32)
    sums = tl.zeros([HEADS, 1, DP], tl.float32)
    for start in range(0, bound(steps), EDGES):
        chunk = first + start + tl.arange(0, EDGES)[None, :]
        edge = chunk < last
        at = b * chunks + chunk
        part_c = _load(part, at, H * D, edge, inside, there, 1)
        if part_lse is not None:
            s = tl.load(part_lse + (at[None] * H + head), edge[None] & (head < H), float("-inf"))
            p, top, fade, total = _softmax(s, top, total)
            sums = sums * fade[:, :, None] + tl.sum(p[:, :, :, None] * part_c, 2)
        else:
            sums += tl.sum(part_c, 2)
    if part_lse is not None:
        divisor = tl.where(total == 0, 1.0, total)
        sums = sums / divisor[:, :, None]
        log_sum = tl.where(total == 0, float("inf"), top + tl.log(divisor))[:, :, None]
        tl.store(lse + ((b * receivers + row)[None] * H + head), log_sum, live[None] & (head < H))
    _store(y, b * receivers + row, H * D, live, inside, there, sums[:, :, None, :])
    if rest is not None:
        _store_rest(y, rest, b * receivers + row, H * D, live, inside, there, sums[:, :, None, :])


@triton.jit(do_not_specialize=INTEGERS)
def pair(
    dy, y, rest, lse, pairs, count: tl.int64, dy_stride: tl.int64,
    H: tl.constexpr, D: tl.constexpr, VD: tl.constexpr, HEADS: tl.constexpr, DP: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """The log-sum-exp and δ_i = Σ_c dy_ic y_ic of every receiver, side by side in pairs [B·I, 2, H]."""
    programs = tl.cdiv(count, ROWS)
    row, head, _ = _place(tl.program_id(0) % programs, count, ROWS, H, HEADS, programs)
    row = row[:, None].to(tl.int64)
    live = row < count
    inside, there = _inside(head, H, HEADS, D, DP)
    head = head[:, None, None]
    dy_i = _load(dy, row, dy_stride, live, inside, there, VD)
    y_i = _load(y, row, H * D // VD, live, inside, there, VD)
    if rest is not None:  # scores that agree have gradients that cancel: δ must be more precise than y
        y_i += _load(rest, row, H * D // VD, live, inside, there, VD)
    delta = tl.sum(dy_i * y_i, 3)
    at, live = row[None] * H + head, live[None] & (head < H)
    log_sum = tl.load(lse + at, live, 0.0)
    at += row[None] * H
    tl.store(pairs + at, log_sum, live)
    tl.store(pairs + at + H, delta, live)


@triton.jit(do_not_specialize=INTEGERS)
def by_sender(
    q, k, v, a, bias, edge_k, edge_v, seed, index, number, items, dy, pairs,
    dk, dv, part_dk, part_dv, ds, dedge_k, dedge_v,
    count: tl.int64, chunks: tl.int64, receivers: tl.int64, senders: tl.int64, edges: tl.int64,
    q_stride: tl.int64, k_stride: tl.int64, v_stride: tl.int64, dy_stride: tl.int64,
    bias_batch: tl.int64, keys_batch: tl.int64, values_batch: tl.int64,
    scale: tl.float32, slope: tl.float32, threshold: tl.int64, keep: tl.float32,
    GATED: tl.constexpr, BIAS_HEADS: tl.constexpr, H: tl.constexpr, C: tl.constexpr, D: tl.constexpr,
    VC: tl.constexpr, VD: tl.constexpr, HEADS: tl.constexpr, CP: tl.constexpr, DP: tl.constexpr,
    ROWS: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """dv_j = Σ_i p_ij dy_i and dk_j = Σ_i ds_ij ∂s_ij/∂k_j with ds_ij = p_ij (dy_i·v_j - δ_i), which it stores too."""
    programs = tl.cdiv(count, ROWS)
    item, live, row, first, last, steps, head, b = _items(
        items, tl.program_id(0) % programs, count, ROWS, H, HEADS, programs
    )
    inside_v, there_v = _inside(head, H, HEADS, D, DP)
    v_j = _load(v, b * senders + row, v_stride, live, inside_v, there_v, VD)
    dv_j = tl.zeros([HEADS, ROWS, DP], tl.float32)
    k_j, a_h = None, None
    if q is not None:
        inside, there = _inside(head, H, HEADS, C, CP)
        k_j = _load(k, b * senders + row, k_stride, live, inside, there, VC)
        dk_j = tl.zeros([HEADS, ROWS, CP], tl.float32)
        if not GATED:
            k_j *= scale
        elif a is not None:
            a_h = tl.load(a + inside, there, 0.0)
    if seed is not None:
        bits = tl.load(seed)
    head = head[:, None, None]
    place = first + tl.arange(0, EDGES)[None, :]
    i_next = tl.load(index + place, place < last, 0)
    e_next = tl.load(number + place, place < last, 0)
    for _ in range(0, bound(steps), EDGES):
        e, i = e_next, b * receivers + i_next
        edge = place < last
        dy_i = _load(dy, i, dy_stride, edge, inside_v, there_v, VD)
        q_i = _load(q, i, q_stride, edge, inside, there, VC) if q is not None else None
        there_h = edge[None] & (head < H)
        at = i[None] * (2 * H) + head
        log_sum = tl.load(pairs + at, there_h, float("inf"))  # p_ij = 0 where there is no edge
        delta = tl.load(pairs + at + H, there_h, 0.0)
        place += EDGES
        i_next = tl.load(index + place, place < last, 0)
        e_next = tl.load(number + place, place < last, 0)
        k_e, v_e = k_j, v_j
        if edge_k is not None:
            k_e = _load(edge_k, b * keys_batch + e, H * C // VC, edge, inside, there, VC)
            k_e = k_j + (k_e if GATED else k_e * scale)
        if edge_v is not None:
            v_e = v_j + _load(edge_v, b * values_batch + e, H * D // VD, edge, inside_v, there_v, VD)
        s, to_k = _scores(q_i, k_e, a_h, slope, tl.zeros([HEADS, ROWS, EDGES], tl.float32), GATED)
        if bias is not None:
            s += _bias(bias, e, head, edge[None], b, bias_batch, H, BIAS_HEADS)
        p = tl.exp(s - log_sum)
        dp = tl.sum(dy_i * v_e, 3)
        p_dropped = p
        if seed is not None:
            alive = survives(bits, (b * edges + e)[None] * H + head, threshold)
            p_dropped = tl.where(alive, p * keep, 0.0)
            dp = tl.where(alive, dp * keep, 0.0)
        dv_e = p_dropped[:, :, :, None] * dy_i
        dv_j += tl.sum(dv_e, 2)
        if dedge_v is not None:
            _store(dedge_v, b * edges + e, H * D, edge, inside_v, there_v, dv_e)
        if ds is not None:
            ds_e = p * (dp - delta)
            tl.store(ds + ((b * edges + e)[None] * H + head), ds_e, there_h)
            if q is not None:
                dk_e = ds_e[:, :, :, None] * to_k
                dk_j += tl.sum(dk_e, 2)
                if dedge_k is not None:
                    _store(dedge_k, b * edges + e, H * C, edge, inside, there, dk_e if GATED else dk_e * scale)
    _store_row(dv, part_dv, row, item, chunks, live, inside_v, there_v, dv_j, H * D, b, senders)
    if q is not None:
        if not GATED:
            dk_j *= scale
        _store_row(dk, part_dk, row, item, chunks, live, inside, there, dk_j, H * C, b, senders)


@triton.jit(do_not_specialize=INTEGERS)
def by_receiver(
    q, k, a, edge_k, ds, index, items, dq, part_dq, da,
    count: tl.int64, chunks: tl.int64, receivers: tl.int64, senders: tl.int64, edges: tl.int64, programs: tl.int64,
    q_stride: tl.int64, k_stride: tl.int64, keys_batch: tl.int64, scale: tl.float32, slope: tl.float32,
    GATED: tl.constexpr, H: tl.constexpr, C: tl.constexpr, VC: tl.constexpr, HEADS: tl.constexpr, CP: tl.constexpr,
    ROWS: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """dq_i = Σ_j ds_ij ∂s_ij/∂q_i; and each program's part of da = Σ_ij ds_ij ∂s_ij/∂a, in da [B, programs, H, C]."""
    da_h = tl.zeros([HEADS, 1, 1, CP], tl.float32)
    for block in range(bound(tl.program_id(0) % programs), bound(tl.cdiv(count, ROWS)), bound(programs)):
        item, live, row, first, last, steps, head, b = _items(items, block, count, ROWS, H, HEADS, programs)
        inside, there = _inside(head, H, HEADS, C, CP)
        if GATED:
            q_i = _load(q, b * receivers + row, q_stride, live, inside, there, VC)
            if a is not None:
                a_h = tl.load(a + inside, there, 0.0)
        dq_i = tl.zeros([HEADS, ROWS, CP], tl.float32)
        head = head[:, None, None]
        e_next = first + tl.arange(0, EDGES)[None, :]
        j_next = tl.load(index + e_next, e_next < last, 0)
        for _ in range(0, bound(steps), EDGES):
            e, j = e_next, b * senders + j_next
            edge = e < last
            k_j = _load(k, j, k_stride, edge, inside, there, VC)
            ds_e = tl.load(ds + ((b * edges + e)[None] * H + head), edge[None] & (head < H), 0.0)[:, :, :, None]
            if edge_k is not None:
                k_j += _load(edge_k, b * keys_batch + e, H * C // VC, edge, inside, there, VC)
            e_next += EDGES
            j_next = tl.load(index + e_next, e_next < last, 0)
            if GATED:
                x = q_i + k_j
                leak = tl.where(x > 0, 1.0, slope)
                if da is not None:
                    da_h += tl.sum(tl.sum(ds_e * (x * leak), 2), 1)[:, None, None, :]
                if a is not None:
                    leak *= a_h
                dq_i += tl.sum(ds_e * leak, 2)
            else:
                dq_i += tl.sum(ds_e * k_j, 2)
        if not GATED:
            dq_i *= scale
        _store_row(dq, part_dq, row, item, chunks, live, inside, there, dq_i, H * C, b, receivers)
    if da is not None:
        _, head, b = _place(0, count, ROWS, H, HEADS, programs)
        inside, there = _inside(head, H, HEADS, C, CP)
        tl.store(da + ((b * programs + tl.program_id(0) % programs) * (H * C) + inside), da_h, there)
