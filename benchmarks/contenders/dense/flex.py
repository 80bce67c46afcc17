"""FlexAttention under torch.compile, on a window or a causal graph; on a CPU it runs forward only."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from benchmarks.contenders.dense.sdpa import heads_first
from benchmarks.inputs import Attention, Inputs
from edgewise.graphs.rule import Causal, Window


def refuses(inputs: Inputs) -> str | None:
    """Takes windows and causal graphs."""
    if isinstance(inputs, Attention) and isinstance(inputs.graph.rule, Causal | Window):
        return None
    return "takes windows and causal graphs"


def prepare(inputs: Inputs) -> Callable[[], Any]:
    """The block mask is made once."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    assert isinstance(inputs, Attention)
    rule, nodes = inputs.graph.rule, inputs.graph.num_receivers

    def listens(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i - j).abs() <= rule.radius if isinstance(rule, Window) else j <= i

    mask = create_block_mask(listens, None, None, nodes, nodes, device="cpu")
    attention = torch.compile(flex_attention, dynamic=False)
    q, k, v = (heads_first(x.detach()) for x in (inputs.q, inputs.k, inputs.v))  # it refuses to have a gradient

    def run() -> Tensor:
        y = attention(q, k, v, block_mask=mask)
        assert isinstance(y, Tensor)
        y = y.transpose(1, 2)
        return y.squeeze(0) if inputs.v.ndim == 3 else y

    return run
