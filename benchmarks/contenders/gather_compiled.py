"""Gather, softmax and index_add by hand under torch.compile: what a user of plain PyTorch can reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.inputs import Attention, Inputs, Product
from edgewise.kernels import Additive, GatedAdditive


def refuses(inputs: Inputs) -> str | None:
    """Takes attention and products on flat nodes."""
    if not isinstance(inputs, Attention | Product):
        return "has nothing but attention and weighted sums"
    return "takes flat nodes" if isinstance(inputs, Attention) and inputs.v.ndim > 3 else None


def prepare(inputs: Inputs) -> Callable[[], Any]:
    """The division by the total happens at the nodes, so that nothing of size E is written for it."""
    assert isinstance(inputs, Attention | Product)
    i, j, rows = inputs.graph.receivers, inputs.graph.senders, inputs.graph.num_receivers
    if isinstance(inputs, Product):
        x, weight = inputs.x, inputs.weight

        def total(x: Tensor) -> Tensor:
            return x.new_zeros(rows, x.shape[-1]).index_add(0, i, weight[:, None] * x.index_select(0, j))

        multiply = torch.compile(total, fullgraph=True, dynamic=False)
        return lambda: multiply(x)
    score = inputs.score

    def attended(q: Tensor, k: Tensor, v: Tensor, a: Tensor | None) -> Tensor:
        q_i, k_j = q.index_select(0, i), k.index_select(0, j)
        v_j = k_j if v is k else v.index_select(0, j)
        if isinstance(score, Additive):
            s_ij = functional.leaky_relu(q_i + k_j, score.slope).squeeze(-1)
        elif isinstance(score, GatedAdditive):
            assert a is not None
            s_ij = (functional.leaky_relu(q_i + k_j, score.slope) * a).sum(-1)
        else:
            s_ij = (q_i * k_j).sum(-1) * q.shape[-1] ** -0.5
        index = i[:, None].expand_as(s_ij)
        top = s_ij.new_zeros(rows, s_ij.shape[1]).scatter_reduce(0, index, s_ij.detach(), "amax", include_self=False)
        w_ij = (s_ij - top.index_select(0, i)).exp()
        sums = w_ij.new_zeros(rows, w_ij.shape[1]).index_add(0, i, w_ij).clamp(min=1e-30)
        y = v.new_zeros(rows, *v.shape[1:]).index_add(0, i, w_ij.unsqueeze(-1) * v_j)
        return y / sums.unsqueeze(-1)

    run = torch.compile(attended, fullgraph=True, dynamic=False)
    a = score.a if isinstance(score, GatedAdditive) else None
    return lambda: run(inputs.q, inputs.k, inputs.v, a)
