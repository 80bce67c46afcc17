"""A call of `attend` as the kernels on edges read it: one batch axis, one number for the scale, heads spelt out."""

from __future__ import annotations

from dataclasses import dataclass

from torch import Tensor

from edgewise.kernels.call import Attend
from edgewise.kernels.scores import Additive, Dot, GatedAdditive


@dataclass(slots=True)
class Operands:
    """q [B, I, H, C], k [B, J, H, C], v [B, J, H, D], a [H, C], bias [B or 1, E, H or 1]."""

    q: Tensor | None
    k: Tensor | None
    v: Tensor
    a: Tensor | None
    bias: Tensor | None
    scale: float
    slope: float


def operands_of(call: Attend) -> Operands:
    """Those of a call with equal heads whose score is Dot, Additive, GatedAdditive or Uniform."""
    score, v = call.score, flat(call.v, 3)
    q = k = None
    if call.q is not None and call.k is not None:
        q, k = flat(call.q, 3), v if call.k is call.v else flat(call.k, 3)  # keys that are the values stay one tensor
    a, scale, slope = None, 1.0, 0.0
    if isinstance(score, Dot):
        assert q is not None
        factor = score.factor(q.shape[-1])
        if isinstance(factor, Tensor):
            q = q * factor.reshape(-1, 1).to(q.dtype)
        else:
            scale = factor
    elif isinstance(score, Additive):
        slope = score.slope
    elif isinstance(score, GatedAdditive):
        assert q is not None
        slope, a = score.slope, score.a.expand(call.heads, q.shape[-1])
    return Operands(q, k, v, a, batched(score.edge_bias(call.graph), call, 2), scale, slope)


def batched(x: Tensor | None, call: Attend, last: int) -> Tensor | None:
    """What the edges hold, [E, ...] or [*, E, ...], with the batch as one axis in front of the `last` ones."""
    if x is None:
        return None
    return flat(x if x.ndim == last else x.expand(*call.v.shape[:-3], *x.shape[-last:]), last)


def flat(x: Tensor, last: int) -> Tensor:
    """The leading batch as one axis in front of the `last` ones."""
    return x.unsqueeze(0) if x.ndim == last else x.flatten(0, x.ndim - last - 1)


def unflat(y: Tensor, call: Attend) -> Tensor:
    """A result [B, I, H, D] with the call's own batch."""
    return y.squeeze(0) if call.v.ndim == 3 else y.reshape(*call.v.shape[:-3], *y.shape[1:])
