"""Receiver by receiver, in a Python loop: slow, and easy to follow."""

from __future__ import annotations

import torch
from torch import Tensor

from edgewise.kernels.backend import Attention, Backend, Cost, Takes
from edgewise.kernels.call import Attend, Call
from edgewise.kernels.scores import Dot

OPERATIONS = 6  # PyTorch operations for each receiver, counted below


def cost(call: Call) -> Cost:
    """Nothing but the fixed cost of its operations."""
    return Cost(launches=OPERATIONS * call.graph.num_receivers)


def run(call: Call) -> Tensor:
    """y_i = softmax(q_i K_iᵀ / √C) V_i with the rows of the senders N(i)."""
    assert isinstance(call, Attend)
    call = call.with_equal_heads()
    q, k = call.ends()
    rows = []
    for i in range(call.graph.num_receivers):
        senders = call.graph.senders[call.graph.offsets[i] : call.graph.offsets[i + 1]]
        s_i = call.score.pairwise(q[..., i : i + 1, :, :], k.index_select(-3, senders))  # [*, n, H]
        rows.append((s_i.softmax(-2).unsqueeze(-1) * call.v.index_select(-3, senders)).sum(-3))
    return torch.stack(rows, -3) if rows else call.v.new_zeros(*call.v.shape[:-3], 0, *call.v.shape[-2:])


BACKEND = Backend(
    name="loop",
    summary="A Python loop over the receivers: for reading, not for running.",
    takes=Takes(attend=Attention(scores=(Dot,), biases=(), dropout=False)),
    cost=cost,
    run=run,
)
