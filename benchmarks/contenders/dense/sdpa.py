"""scaled_dot_product_attention, called by hand on strided views of the same q, k and v."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.inputs import Attention, Inputs
from edgewise.graphs.rule import Causal


def refuses(inputs: Inputs) -> str | None:
    """Takes complete and causal graphs."""
    if isinstance(inputs, Attention) and (inputs.graph.is_complete or isinstance(inputs.graph.rule, Causal)):
        return None
    return "takes complete and causal graphs"


def heads_first(x: Tensor) -> Tensor:
    """[*, N, H, C] as a view [B, H, N, C]."""
    return (x.unsqueeze(0) if x.ndim == 3 else x).transpose(1, 2)


def prepare(inputs: Inputs) -> Callable[[], Any]:
    """No mask."""
    assert isinstance(inputs, Attention)
    causal = not inputs.graph.is_complete

    def run() -> Tensor:
        q, k, v = heads_first(inputs.q), heads_first(inputs.k), heads_first(inputs.v)
        y = scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2)
        return y.squeeze(0) if inputs.v.ndim == 3 else y

    return run
