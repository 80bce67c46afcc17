"""Sparse products by rows in Triton: sums, means and extremes of messages, their gradients, and softmax over a row.

One program takes a tile of lanes × channels. A lane is one head of one row (or of one piece of a long row); it walks
along the row's edges, four at a time, and adds up in float32. Nothing is shared between programs: no atomics, and the
same bits on every run. Tensors are [B, N, H, C] with contiguous rows. Sizes and strides arrive in units of VEC numbers,
as many as one load takes, so that the compiler sees that they divide.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
import triton
import triton.language as tl
from torch import Tensor

from edgewise.kernels.backends.cuda.programs.building import in_order
from edgewise.kernels.backends.cuda.programs.tiles import power_of_two

UNROLLED = 4  # edges in flight for each lane
WARPS = 4  # a program's; each thread loads VEC numbers at once, 16 bytes where they divide
LANES = 128  # the most that share a program, of narrow rows

_SIZES = [
    "count", "row_tiles", "head_tiles", "heads", "width", "batch_stride", "row_stride", "own_batch_stride",
    "own_row_stride", "y_batch_stride", "weight_batch_stride", "per",
]  # fmt: skip
_jit = triton.jit(do_not_specialize=_SIZES, do_not_specialize_on_alignment=["offsets", "index", "edge", "items"])


@triton.jit
def _lanes(
    items, offsets, count, row_tiles, head_tiles, heads,
    LISTED: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr,
):  # fmt: skip
    """This program's lanes: their items, rows, heads, first edges and lengths; and the rest of the program's number."""
    program = tl.program_id(0)
    lane = tl.arange(0, ROWS * HEADS)
    item = (program % row_tiles) * ROWS + lane // HEADS
    rest = program // row_tiles
    head = (rest % head_tiles) * HEADS + lane % HEADS
    inside = (item < count) & (head < heads)
    if LISTED:
        row = tl.load(items + 3 * item.to(tl.int64), mask=inside, other=0)
        start = tl.load(items + 3 * item.to(tl.int64) + 1, mask=inside, other=0)
        stop = tl.load(items + 3 * item.to(tl.int64) + 2, mask=inside, other=0)
    else:
        row = item
        start = tl.load(offsets + item, mask=inside, other=0).to(tl.int32)
        stop = tl.load(offsets + item + 1, mask=inside, other=0).to(tl.int32)
    return item, row, head, inside, start, stop - start, rest // head_tiles


@_jit
def _reduce(
    x, own, share, weight, y, offsets, index, edge, items,
    count, row_tiles, head_tiles, heads, width, batch_stride, row_stride, own_batch_stride, own_row_stride,
    y_batch_stride, weight_batch_stride, per,
    KIND: tl.constexpr, WEIGHTS: tl.constexpr, NUMBERED: tl.constexpr, LISTED: tl.constexpr, PIECES: tl.constexpr,
    MEAN: tl.constexpr, VEC: tl.constexpr, ROWS: tl.constexpr, HEADS: tl.constexpr, CHANNELS: tl.constexpr,
    EDGES: tl.constexpr,
):  # fmt: skip
    """y[row] = ⊕_e message(e), where KIND is the kind of message: see `reduce`."""
    item, row, head, inside, start, length, rest = _lanes(
        items, offsets, count, row_tiles, head_tiles, heads, LISTED, ROWS, HEADS
    )
    channel_tiles = (width * VEC + CHANNELS - 1) // CHANNELS
    batch = (rest // channel_tiles).to(tl.int64)
    channel = (rest % channel_tiles) * CHANNELS + tl.arange(0, CHANNELS)
    column = (head * (width * VEC))[:, None] + channel[None, :]
    shown = (channel < width * VEC)[None, :]
    x += batch * batch_stride * VEC
    share += batch * batch_stride * VEC
    weight += batch * weight_batch_stride
    if KIND == "count" or KIND == "picked":
        place = batch * own_batch_stride * VEC + (row.to(tl.int64) * (own_row_stride * VEC))[:, None] + column
        mine = tl.load(own + place, mask=inside[:, None] & shown, other=0).to(tl.float32)
    if KIND == "max":
        total = tl.full((ROWS * HEADS, CHANNELS), float("-inf"), tl.float32)
    elif KIND == "min":
        total = tl.full((ROWS * HEADS, CHANNELS), float("inf"), tl.float32)
    else:
        total = tl.zeros((ROWS * HEADS, CHANNELS), tl.float32)
    longest, first = tl.max(length), 0
    while first < longest:
        loaded, weights, shares = (), (), ()  # all loaded before the first is used
        for ahead in tl.static_range(EDGES):
            live = first + ahead < length
            e = start + first + ahead
            j = tl.load(index + e, mask=live, other=0).to(tl.int64)
            place = (j * (row_stride * VEC))[:, None] + column
            loaded += (tl.load(x + place, mask=live[:, None] & shown, other=0),)
            if KIND == "picked":
                shares += (tl.load(share + place, mask=live[:, None] & shown, other=0),)
            if WEIGHTS != "none":
                number = (tl.load(edge + e, mask=live, other=0) if NUMBERED else e).to(tl.int64)
                if WEIGHTS == "one":
                    weights += (tl.load(weight + number * per + head, mask=live, other=0)[:, None],)
                else:
                    place = (number * (width * VEC))[:, None] + column
                    weights += (tl.load(weight + place, mask=live[:, None] & shown, other=0),)
        for ahead in tl.static_range(EDGES):
            live = (first + ahead < length)[:, None]
            m = loaded[ahead].to(tl.float32)
            if KIND == "picked":
                # x is the extreme of the row that edge e leads to; this row's message may be the one that made it.
                sent, part = mine, shares[ahead].to(tl.float32)
                if WEIGHTS != "none":
                    w = weights[ahead].to(tl.float32)
                    sent, part = (w * mine).to(x.dtype.element_ty).to(tl.float32), w * part
                total += tl.where(live & (sent == m), part, 0.0)
            else:
                if WEIGHTS != "none":
                    m *= weights[ahead].to(tl.float32)
                if KIND == "sum":
                    total += m
                elif KIND == "count":
                    total += tl.where(live & (m.to(x.dtype.element_ty).to(tl.float32) == mine), 1.0, 0.0)
                elif KIND == "max":
                    total = tl.maximum(total, tl.where(live, m, float("-inf")), propagate_nan=tl.PropagateNan.ALL)
                else:
                    total = tl.minimum(total, tl.where(live, m, float("inf")), propagate_nan=tl.PropagateNan.ALL)
        first += EDGES
    if KIND == "max" or KIND == "min":
        total = tl.where((length > 0)[:, None], total, 0.0)
    if MEAN:
        degree = tl.load(offsets + row + 1, mask=inside, other=1) - tl.load(offsets + row, mask=inside, other=0)
        total = total / tl.maximum(degree, 1).to(tl.float32)[:, None]
    to = item if PIECES else row
    place = batch * y_batch_stride * VEC + to.to(tl.int64)[:, None] * (heads * width * VEC) + column
    tl.store(y + place, total.to(y.dtype.element_ty), mask=inside[:, None] & shown)


@_jit
def _multiply(
    x, dy, y, weight, out, offsets, index, edge, items,
    count, row_tiles, head_tiles, heads, width, batch_stride, row_stride, own_batch_stride, own_row_stride,
    y_batch_stride, weight_batch_stride, per,
    EXTREME: tl.constexpr, WEIGHTS: tl.constexpr, NUMBERED: tl.constexpr, VEC: tl.constexpr,
    ROWS: tl.constexpr, HEADS: tl.constexpr, CHANNELS: tl.constexpr, TILES: tl.constexpr, EDGES: tl.constexpr,
):  # fmt: skip
    """out[e] = Σ_c dy_ic x_jc; where EXTREME only over those c whose message made the extreme y_ic."""
    _, row, head, inside, start, length, rest = _lanes(
        items, offsets, count, row_tiles, head_tiles, heads, True, ROWS, HEADS
    )
    batch = rest.to(tl.int64)
    x += batch * batch_stride * VEC
    weight += batch * weight_batch_stride
    out += batch * y_batch_stride
    own = batch * own_batch_stride * VEC + (row.to(tl.int64) * (own_row_stride * VEC))[:, None]
    own += (head * (width * VEC))[:, None] + tl.arange(0, CHANNELS)[None, :]
    shown = inside[:, None] & (tl.arange(0, CHANNELS) < width * VEC)[None, :]
    dy_i = tl.load(dy + own, mask=shown, other=0).to(tl.float32)
    if EXTREME:
        y_i = tl.load(y + own, mask=shown, other=0).to(tl.float32)
    longest, first = tl.max(length), 0
    while first < longest:
        for ahead in tl.static_range(EDGES):
            live = first + ahead < length
            e = start + first + ahead
            j = tl.load(index + e, mask=live, other=0).to(tl.int64)
            number = tl.load(edge + e, mask=live, other=0) if NUMBERED else e
            number = number.to(tl.int64)
            dot = tl.zeros((ROWS * HEADS,), tl.float32)
            for tile in tl.static_range(TILES):
                channel = tile * CHANNELS + tl.arange(0, CHANNELS)
                column = (head * (width * VEC))[:, None] + channel[None, :]
                seen = live[:, None] & (channel < width * VEC)[None, :]
                x_j = tl.load(x + (j * (row_stride * VEC))[:, None] + column, mask=seen, other=0).to(tl.float32)
                if TILES > 1:
                    dy_i = tl.load(dy + own + tile * CHANNELS, mask=seen, other=0).to(tl.float32)
                part = dy_i * x_j
                to = (number * (width * VEC))[:, None] + column
                if EXTREME:
                    if TILES > 1:
                        y_i = tl.load(y + own + tile * CHANNELS, mask=seen, other=0).to(tl.float32)
                    if WEIGHTS == "one":
                        w = tl.load(weight + number * per + head, mask=live, other=0).to(tl.float32)[:, None]
                    else:
                        w = tl.load(weight + to, mask=seen, other=0).to(tl.float32)
                    m = (w * x_j).to(x.dtype.element_ty).to(tl.float32)
                    part = tl.where(seen & (m == y_i), part, 0.0)
                if WEIGHTS == "each":
                    tl.store(out + to, part.to(out.dtype.element_ty), mask=seen)
                else:
                    dot += tl.sum(part, 1)
            if WEIGHTS == "one":
                tl.store(out + number * per + head, dot.to(out.dtype.element_ty), mask=live)

        first += EDGES


# Launching. A structure is [offsets [I + 1] int64, index [E] int32, edge [E or 0] int32, *building.schedule(offsets)]


@dataclass(frozen=True, slots=True)
class Shape:
    """How the numbers of a row lie in a program's tile."""

    batch: int
    heads: int
    channels: int
    weights: str  # "none", "one" for each edge (and head), or "each" channel's own
    per: int  # weights of an edge
    vec: int
    most: int  # numbers of a tile

    @classmethod
    def of(cls, weight: Tensor | None, *nodes: Tensor) -> Shape:
        """The shape for rows [B, N, H, C] of one dtype, whose strides may differ."""
        batch, _, heads, channels = nodes[0].shape
        per = 0 if weight is None else weight.shape[2]
        weights = "none" if per == 0 else "each" if per > 1 and channels == 1 else "one"
        if weights != "one" or per == 1:
            heads, channels = 1, heads * channels  # heads that share one weight are as good as one head
        size = nodes[0].element_size()
        vec = 16 // size
        while any(number % vec for number in (channels, *(stride for t in nodes for stride in t.stride()[:2]))):
            vec //= 2
        return cls(batch, heads, channels, weights, per, vec, 32 * WARPS * max(vec, 2))

    def tile(self) -> tuple[int, int, int]:
        """Rows, heads and channels of a tile, powers of two."""
        channels = min(power_of_two(self.channels), self.most)
        lanes = min(LANES, self.most // channels)
        heads = min(power_of_two(self.heads), lanes)
        return lanes // heads, heads, channels

    def strides(self, x: Tensor | None) -> tuple[int, int]:
        """From one member of the batch and from one row to the next, in units of `vec`."""
        return (0, 0) if x is None else (x.stride(0) // self.vec, x.stride(1) // self.vec)


def reduce(
    kind: str,
    x: Tensor,
    weight: Tensor | None,
    structure: Sequence[Tensor],
    own: Tensor | None = None,
    share: Tensor | None = None,
    mean: bool = False,
    dtype: torch.dtype | None = None,
) -> Tensor:
    """y_i = ⊕_e message(e) over the edges e of row i, [B, I, H, C] in `dtype`.

    Symbols     kind = "sum", "max" or "min" of w_e x_j; "count", how many w_e x_j equal own_i; "picked", the sum of
                w_e share_j over those edges where w_e own_i equals x_j: the gradient of an extreme, on the transpose,
                with x and share contiguous
    """
    y = x.new_empty(x.shape[0], structure[0].shape[0] - 1, *x.shape[2:], dtype=dtype or x.dtype)
    inputs = [None if t is None else aligned(t) for t in (x, own, share, weight)]
    with torch.cuda.device_of(x):
        reduce_into(y, kind, inputs, structure, mean)
    return y


def reduce_into(y: Tensor, kind: str, inputs: Sequence[Tensor | None], structure: Sequence[Tensor], mean: bool) -> None:
    """`reduce` of (x, own, share, weight) into the rows of y that the structure lists."""
    offsets, _, edge, *plan = structure
    whole, cut, *merge = plan or (None, None)
    pieces = None
    if cut is not None and len(cut):  # the longest first
        pieces = y.new_empty(y.shape[0], len(cut), *y.shape[2:], dtype=torch.float32)
        _launch_reduce(pieces, kind, inputs, structure, cut, False, True)
    _launch_reduce(y, kind, inputs, structure, whole, mean, False)
    if pieces is not None:
        numbers = torch.arange(pieces.shape[1], dtype=torch.int32, device=y.device)
        kind = "sum" if kind in ("count", "picked") else kind
        reduce_into(y, kind, (pieces, None, None, None), (offsets, numbers, edge[:0], *merge), mean)


def _launch_reduce(
    y: Tensor, kind: str, inputs: Sequence[Tensor | None], structure: Sequence[Tensor], items: Tensor | None,
    mean: bool, pieces: bool,
) -> None:  # fmt: skip
    x, own, share, weight = inputs
    assert x is not None
    offsets, index, edge = structure[:3]
    shape = Shape.of(weight, *(t for t in (x, own, y) if t is not None))
    rows, heads, channels = shape.tile()
    count = y.shape[1] if items is None else len(items)
    row_tiles, head_tiles = -(-count // rows), -(-shape.heads // heads)
    programs = row_tiles * head_tiles * -(-shape.channels // channels) * shape.batch
    if programs == 0:
        return
    _reduce[(programs,)](
        x, _or(own, x), _or(share, x), _or(weight, x), y, offsets, index, edge, _or(items, index),
        count, row_tiles, head_tiles, shape.heads, shape.channels // shape.vec, *shape.strides(x), *shape.strides(own),
        y.stride(0) // shape.vec, _batch_stride(weight), shape.per,
        KIND=kind, WEIGHTS=shape.weights, NUMBERED=edge.numel() > 0, LISTED=items is not None, PIECES=pieces, MEAN=mean,
        VEC=shape.vec, ROWS=rows, HEADS=heads, CHANNELS=channels, EDGES=UNROLLED, num_warps=WARPS,
    )  # fmt: skip


def multiply(
    dy: Tensor, x: Tensor, structure: Sequence[Tensor], weight_heads: int,
    weight: Tensor | None = None, y: Tensor | None = None,
) -> Tensor:  # fmt: skip
    """The gradient to the weights, [B, E, weight_heads]: Σ_c dy_i x_j for every edge.

    Given the weights and y, an extreme, only over those channels whose message w_e x_j is y_i; dy and y are contiguous.
    """
    offsets, index, edge, *plan = structure
    out = x.new_empty(x.shape[0], index.shape[0], weight_heads)
    dy, x = aligned(dy), aligned(x)
    weight, y = (None if t is None else aligned(t) for t in (weight, y))
    shape = Shape.of(out, x, dy)
    rows, heads, channels = shape.tile()
    head_tiles, tiles = -(-shape.heads // heads), -(-shape.channels // channels)
    # Always listed: Triton 3.6 fails to compile this kernel with bounds that are read from `offsets`.
    for items in plan[:2] or [in_order(offsets)]:
        row_tiles = -(-len(items) // rows)
        programs = row_tiles * head_tiles * shape.batch
        if programs == 0:
            continue
        with torch.cuda.device_of(x):
            _multiply[(programs,)](
                x, dy, _or(y, dy), _or(weight, x), out, offsets, index, edge, items,
                len(items), row_tiles, head_tiles, shape.heads, shape.channels // shape.vec, *shape.strides(x),
                *shape.strides(dy), out.stride(0), _batch_stride(weight), weight_heads,
                EXTREME=y is not None, WEIGHTS=shape.weights, NUMBERED=edge.numel() > 0, VEC=shape.vec,
                ROWS=rows, HEADS=heads, CHANNELS=channels, TILES=tiles, EDGES=UNROLLED, num_warps=WARPS,
            )  # fmt: skip
    return out


def aligned(x: Tensor) -> Tensor:
    """The same numbers at an address that 16 divides, as those of a tensor of its own are."""
    return x if x.data_ptr() % 16 == 0 else x.clone()


def _or(x: Tensor | None, other: Tensor) -> Tensor:
    """x, or any tensor in its place where it is not read."""
    return other if x is None else x


def _batch_stride(weight: Tensor | None) -> int:
    return 0 if weight is None or weight.shape[0] == 1 else weight.stride(0)
