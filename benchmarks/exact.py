"""The oracle: a case in float64, written out edge by edge and a few receivers at a time, apart from all kernels."""

from __future__ import annotations

import torch
from torch import Tensor

from benchmarks.inputs import Attention, Differentiated, Product, checked_rows
from edgewise.kernels import GatedAdditive, Score

CHUNK = 50_000  # edges at a time


def solve(inputs: Attention | Product) -> dict[str, Tensor]:
    """The checked rows of y, and the gradients of Σ y·g over these rows, in float64.

    Equation    y_i = Σ_j p_ij v_j or Σ_j w_ij x_j; the gradient g is that of the case on the checked rows, 0 elsewhere
    Shapes      "rows" [R], "y" [*, R, ...], and one tensor like each leaf of the case
    Cost        O(E) time over the checked rows' edges, O(chunk) memory
    """
    rows = checked_rows(inputs.graph)
    axis = inputs.node_axis
    gradient = inputs.gradient.double()
    leaves = {name: leaf.detach().double().requires_grad_() for name, leaf in inputs.leaves.items()}
    totals = {name: torch.zeros_like(leaf) for name, leaf in leaves.items()}
    offsets, senders = inputs.graph.offsets, inputs.graph.senders
    counts = inputs.graph.in_degrees()[rows]
    parts = []
    for chosen in _chunks(rows, counts):
        degree = offsets[chosen + 1] - offsets[chosen]
        place = torch.repeat_interleave(degree)  # the row within the chunk of every edge
        first = degree.cumsum(0) - degree
        edge = offsets[chosen][place] + torch.arange(len(place)) - first[place]
        y = _rows(inputs, leaves, chosen, place, edge, senders[edge])
        grads = torch.autograd.grad(y, list(leaves.values()), gradient.index_select(axis, chosen), allow_unused=True)
        for total, grad in zip(totals.values(), grads, strict=True):
            total += 0 if grad is None else grad
        parts.append(y.detach())
    return {"rows": rows, "y": torch.cat(parts, axis), **totals}


def errors(inputs: Differentiated, y: Tensor, grads: dict[str, Tensor], exact: dict[str, Tensor]) -> dict[str, float]:
    """The largest difference of each tensor, relative to the largest entry of the exact one."""
    found = {"y": y.detach().index_select(inputs.node_axis, exact["rows"])} | grads
    return {
        name: float((found[name].double() - exact[name]).abs().max() / exact[name].abs().max().clamp(min=1e-30))
        if found[name].numel()
        else 0.0
        for name in found
    }


def checked_gradient(inputs: Differentiated) -> Tensor:
    """The case's gradient on the checked rows, 0 elsewhere."""
    rows, axis = checked_rows(inputs.graph).to(inputs.gradient.device), inputs.node_axis
    kept = inputs.gradient.index_select(axis, rows)
    return torch.zeros_like(inputs.gradient).index_copy(axis, rows, kept)


def _chunks(rows: Tensor, counts: Tensor) -> list[Tensor]:
    number = (counts.cumsum(0) - counts) // CHUNK
    return list(rows.split(number.unique_consecutive(return_counts=True)[1].tolist()))


def _rows(
    inputs: Attention | Product, leaves: dict[str, Tensor], rows: Tensor, place: Tensor, edge: Tensor, j: Tensor
) -> Tensor:
    if isinstance(inputs, Product):
        m_ij = inputs.weight[edge].double()[:, None] * leaves["x"][j]
        return m_ij.new_zeros(len(rows), m_ij.shape[-1]).index_add(0, place, m_ij)
    k, v = leaves["k"], leaves.get("v", leaves["k"])
    s_ij = _score(inputs.score, leaves).pairwise(leaves["q"][..., rows[place], :, :], k[..., j, :, :])
    w_ij = (s_ij - s_ij.detach().amax(-2, keepdim=True)).clamp(min=-700).exp() if s_ij.numel() else s_ij
    shape = (*s_ij.shape[:-2], len(rows), s_ij.shape[-1])
    total = w_ij.new_zeros(shape).index_add(-2, place, w_ij)
    y = v.new_zeros(*shape, v.shape[-1]).index_add(-3, place, w_ij[..., None] * v[..., j, :, :])
    return y / torch.where(total == 0, 1, total)[..., None]


def _score(score: Score, leaves: dict[str, Tensor]) -> Score:
    return GatedAdditive(leaves["a"], score.slope) if isinstance(score, GatedAdditive) else score
