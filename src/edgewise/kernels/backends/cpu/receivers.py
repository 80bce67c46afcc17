"""The operators of exported programs: the kernels on edges for a graph that is sorted anew in every call.

`native/operators.cpp` has the same, by the same schemas, for processes without Edgewise.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgewise import native
from edgewise.errors import ShapeError
from edgewise.kernels.backends.cpu import edges
from edgewise.kernels.operator.layout import check_rows, expect, remember_edges
from edgewise.kernels.operator.operator import LIBRARY
from edgewise.kernels.operator.products import Product

Maybe = Tensor | None


def edges_by_receiver(
    senders: Tensor, receivers: Tensor, num_receivers: int, num_senders: int, numbered: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Edges in any order as the kernels read them: offsets [I + 1], senders [E], and where each came from [E] (or [0]).

    Errors      ShapeError for an edge out of bounds
    Cost        O(E), sorting included
    """
    check_rows("senders", senders, (None,), torch.int64, strided=True)
    check_rows("receivers", receivers, tuple(senders.shape), torch.int64, strided=True)
    expect(min(num_receivers, num_senders) >= 0, f"there cannot be {min(num_receivers, num_senders)} nodes")
    senders, receivers = senders.contiguous(), receivers.contiguous()
    with torch.inference_mode(False):  # tensors that count writes, so that they are known to be right
        offsets = receivers.new_empty(num_receivers + 1)
        index = senders.new_empty(senders.shape, dtype=torch.int32)
        order = torch.empty_like(index) if numbered else index.new_empty(0)
    inside = native.library.by_receiver(
        native.threads(), senders.shape[0], num_receivers, num_senders, receivers.data_ptr(), senders.data_ptr(),
        *(offsets.data_ptr(), index.data_ptr(), order.data_ptr() if numbered else 0),
    )  # fmt: skip
    if not inside:
        raise ShapeError(_outside(senders, receivers, num_receivers, num_senders))
    remember_edges(num_senders, offsets, index)
    return offsets, index, order


def _outside(senders: Tensor, receivers: Tensor, num_receivers: int, num_senders: int) -> str:
    for name, ends, bound in (("senders", senders, num_senders), ("receivers", receivers, num_receivers)):
        low, high = map(int, ends.aminmax()) if ends.numel() else (0, -1)
        if low < 0 or high >= bound:
            return f"{name} must lie in 0, ..., {bound - 1}: {low} to {high}"
    return f"32 bits cannot number {senders.shape[0]} edges or {max(num_senders, num_receivers)} nodes"


def attend_by_receiver(
    q: Maybe, k: Maybe, v: Tensor, a: Maybe, bias: Maybe, offsets: Tensor, index: Tensor, score: int, scale: float,
    slope: float,
) -> Tensor:  # fmt: skip
    """Attention on edges without a gradient, y [B, I, H, D]: `attend_edges` says what it reads."""
    if not v.numel() or offsets.shape[0] < 2:
        return attend_by_receiver_fake(q, k, v, a, bias, offsets, index, score, scale, slope).zero_()
    call = (q, k, v, a, bias, None, None, (offsets, index), (), score, scale, slope, 0.0, offsets[:1])
    own = edges.EdgesAttention(*call)
    own.check()
    return edges.attend.compute(own)[0]


def sum_by_receiver(x: Tensor, weight: Maybe, offsets: Tensor, index: Tensor, edge: Maybe, reduce: int) -> Tensor:
    """A sum, mean, maximum or minimum over senders without a gradient, y [B, I, H, C]: `product` says what it reads."""
    if not x.numel() or offsets.shape[0] < 2:
        return sum_by_receiver_fake(x, weight, offsets, index, edge, reduce).zero_()
    own = Product(x, weight, (offsets, index, index[:0] if edge is None else edge), (), reduce)
    own.check()
    return edges.product.compute(own)


def edges_by_receiver_fake(
    senders: Tensor, receivers: Tensor, num_receivers: int, num_senders: int, numbered: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """Of those shapes."""
    index = senders.new_empty(senders.shape, dtype=torch.int32)
    order = torch.empty_like(index) if numbered else index.new_empty(0)
    return receivers.new_empty(num_receivers + 1), index, order


def attend_by_receiver_fake(
    q: Maybe, k: Maybe, v: Tensor, a: Maybe, bias: Maybe, offsets: Tensor, index: Tensor, score: int, scale: float,
    slope: float,
) -> Tensor:  # fmt: skip
    """Of that shape."""
    return v.new_empty(v.shape[0], offsets.shape[0] - 1, v.shape[2], v.shape[3])


def sum_by_receiver_fake(x: Tensor, weight: Maybe, offsets: Tensor, index: Tensor, edge: Maybe, reduce: int) -> Tensor:
    """Of that shape."""
    return x.new_empty(x.shape[0], offsets.shape[0] - 1, x.shape[2], x.shape[3])


OPERATORS: dict[str, tuple[Any, Any]] = {
    "edges_by_receiver(Tensor senders, Tensor receivers, SymInt num_receivers, SymInt num_senders,"
    " bool numbered) -> (Tensor, Tensor, Tensor)": (edges_by_receiver, edges_by_receiver_fake),
    "attend_by_receiver(Tensor? q, Tensor? k, Tensor v, Tensor? a, Tensor? bias, Tensor offsets, Tensor index,"
    " int score, float scale, float slope) -> Tensor": (attend_by_receiver, attend_by_receiver_fake),
    "sum_by_receiver(Tensor x, Tensor? weight, Tensor offsets, Tensor index, Tensor? edge, int reduce) -> Tensor": (
        sum_by_receiver,
        sum_by_receiver_fake,
    ),
}
for _schema, (_compute, _fake) in OPERATORS.items():
    LIBRARY.define(_schema)
    LIBRARY.impl(_compute.__name__, _compute, "CPU")
    torch.library.register_fake(f"edgewise::{_compute.__name__}", _fake, lib=LIBRARY)
