"""Receivers whose biases are all far below 0, as masks may write them: their log-sum-exp loses digits to the bias.

At finfo.min a row's log-sum-exp is its largest bias, to which the logarithm of the number of largest ones cannot be
added: its scores vanish beside the bias. Less far below, the largest bias can be taken off the whole row beforehand.
"""

from __future__ import annotations

import torch
from torch import Tensor

FAR = -(2**10)  # by which a float32 has lost 6e-5 of a weight; float64 has 2^29 times later
LOW = -(2**28)  # by which a float32 forgets scores up to 16


def _limit(least: int, dtype: torch.dtype) -> float:
    return least * torch.finfo(torch.float32).eps / torch.finfo(dtype).eps


def are_far(lse: Tensor) -> Tensor:
    """Which rows are far below 0, or low."""
    return lse < _limit(FAR, lse.dtype)


def are_low(lse: Tensor) -> Tensor:
    """Which rows are so low that their scores vanish."""
    return lse < _limit(LOW, lse.dtype)


def within_reach(bias: Tensor) -> Tensor:
    """Biases of the same weights that are finite in base 2 as well; −∞ stays. The same tensor where they are."""
    least = torch.finfo(bias.dtype).min / 2
    beyond = (bias < least) & bias.isfinite()
    return bias.masked_fill(beyond, least) if beyond.any() else bias


def lifted(bias: Tensor, first: Tensor, lengths: Tensor) -> Tensor:
    """Biases of the same weights, of which rows far below 0 end at 0, but for low ones. The same tensor without such.

    Symbols     first, lengths = of each receiver, the number of its first edge and how many follow each other [I]
    Shapes      bias [B or 1, E, H]
    Cost        O(E·H)
    """
    rows, edges = _edges_of_rows(first, lengths)
    of_row, top = _largest(bias, rows, edges, len(lengths))
    top = torch.where(are_far(top) & ~are_low(top), top, 0)
    if not top.any():
        return bias
    return bias.index_copy(1, edges, of_row - top.index_select(1, rows))


def times_counted(lse: Tensor, bias: Tensor, first: Tensor, lengths: Tensor) -> Tensor:
    """How often exp(score - lse) counts the weights of each row, [B, I, H]: 1 but for low rows.

    Symbols     as of `lifted`
    Shapes      lse [B, I, H], bias [B or 1, E, H]
    Cost        O(E·H)
    """
    rows, edges = _edges_of_rows(first, lengths)
    of_row, top = _largest(bias, rows, edges, len(lengths))
    count = torch.zeros_like(top).index_add(1, rows, (of_row == top.index_select(1, rows)).to(top.dtype))
    return torch.where(are_low(lse), count.clamp(min=1), 1)


def _edges_of_rows(first: Tensor, lengths: Tensor) -> tuple[Tensor, Tensor]:
    """The receiver and the number of every edge, one receiver after the other."""
    rows = torch.repeat_interleave(lengths)
    return rows, torch.arange(len(rows), device=rows.device) + (first - lengths.cumsum(0) + lengths)[rows]


def _largest(bias: Tensor, rows: Tensor, edges: Tensor, receivers: int) -> tuple[Tensor, Tensor]:
    """The biases in that order, and the largest of each row [B or 1, I, H], −∞ without any."""
    of_row = bias.index_select(1, edges)
    top = of_row.new_full((len(bias), receivers, bias.shape[2]), float("-inf"))
    return of_row, top.scatter_reduce(1, rows[:, None].expand_as(of_row), of_row, "amax")
