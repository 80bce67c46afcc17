"""Receivers whose biases are all as low as finfo.min, as masks write it: their scores vanish beside the bias.

A row's log-sum-exp is then its largest bias, to which the logarithm of the number of largest ones cannot be added.
"""

from __future__ import annotations

import torch
from torch import Tensor

LOW = -(2**28)  # by which a float32 forgets scores up to 16; float64 does 2^29 times later


def are_low(lse: Tensor) -> Tensor:
    """Which rows are such."""
    return lse < LOW * torch.finfo(torch.float32).eps / torch.finfo(lse.dtype).eps


def within_reach(bias: Tensor) -> Tensor:
    """Biases of the same weights that are finite in base 2 as well; −∞ stays. The same tensor where they are."""
    least = torch.finfo(bias.dtype).min / 2
    beyond = (bias < least) & bias.isfinite()
    return bias.masked_fill(beyond, least) if beyond.any() else bias


def times_counted(lse: Tensor, bias: Tensor, first: Tensor, lengths: Tensor) -> Tensor:
    """How often exp(score - lse) counts the weights of each row, [B, I, H]: 1 but for such rows.

    Symbols     first, lengths = of each receiver, the number of its first edge and how many follow each other [I]
    Shapes      lse [B, I, H], bias [B or 1, E, H]
    Cost        O(E·H)
    """
    rows = torch.repeat_interleave(lengths)
    edges = torch.arange(len(rows), device=rows.device) + (first - lengths.cumsum(0) + lengths)[rows]
    of_row = bias.index_select(1, edges)
    shape = (len(bias), *lse.shape[1:])
    index = rows[:, None].expand_as(of_row)
    top = of_row.new_full(shape, float("-inf")).scatter_reduce(1, index, of_row, "amax")
    count = of_row.new_zeros(shape).index_add(1, rows, (of_row == top.index_select(1, rows)).to(of_row.dtype))
    return torch.where(are_low(lse), count.clamp(min=1), 1)
