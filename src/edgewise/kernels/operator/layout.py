"""How kernels read tensors: the batch as one axis in front, the numbers of a row side by side."""

from __future__ import annotations

import torch
from torch import Tensor

from edgewise.kernels.call import Attend


def batched(x: Tensor | None, call: Attend, last: int) -> Tensor | None:
    """Tensors of edges, [E, ...] or [*, E, ...], with the batch as one axis in front of the `last` ones."""
    if x is None:
        return None
    return flat(x if x.ndim == last else x.expand(*call.v.shape[:-3], *x.shape[-last:]), last)


def flat(x: Tensor, last: int) -> Tensor:
    """The leading batch as one axis in front of the `last` ones."""
    leading = x.ndim - last
    return x if leading == 1 else x.unsqueeze(0) if leading == 0 else x.flatten(0, leading - 1)


def unflat(y: Tensor, call: Attend) -> Tensor:
    """A result [B, I, H, D] with the call's own batch."""
    return y.squeeze(0) if call.v.ndim == 3 else y.reshape(*call.v.shape[:-3], *y.shape[1:])


def heads_first(x: Tensor) -> Tensor:
    """[*, N, H, C] -> [B, H, N, C], as PyTorch's attention reads it."""
    return flat(x, 3).transpose(1, 2)


def rows_contiguous(x: Tensor) -> Tensor:
    """The same numbers, where needed copied so that those of a row follow each other."""
    return x if x.ndim == 4 and x.stride(3) == 1 and (x.stride(2) == x.shape[3] or x.shape[2] == 1) else x.contiguous()


def empty_like(x: Tensor) -> Tensor:
    """As many numbers, not filled in, one after the other whatever the strides of x."""
    return torch.empty_like(x, memory_format=torch.contiguous_format)
