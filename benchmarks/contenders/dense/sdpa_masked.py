"""scaled_dot_product_attention with a mask that is made once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.contenders.dense.sdpa import heads_first
from benchmarks.inputs import Attention, Inputs

LIMIT = 2**29


def refuses(inputs: Inputs) -> str | None:
    """A mask must fit."""
    if not isinstance(inputs, Attention):
        return "takes attention"
    pairs = inputs.graph.num_receivers * inputs.graph.num_senders
    return None if pairs <= LIMIT else f"a mask of {pairs} entries is too large"


def prepare(inputs: Inputs) -> Callable[[], Any]:
    """The mask is added, as floats: PyTorch would otherwise convert it in every call."""
    assert isinstance(inputs, Attention)
    mask = torch.zeros(inputs.graph.num_receivers, inputs.graph.num_senders)
    mask.masked_fill_(~inputs.graph.dense_mask(), float("-inf"))

    def run() -> Tensor:
        q, k, v = heads_first(inputs.q), heads_first(inputs.k), heads_first(inputs.v)
        y = scaled_dot_product_attention(q, k, v, mask).transpose(1, 2)
        return y.squeeze(0) if inputs.v.ndim == 3 else y

    return run
