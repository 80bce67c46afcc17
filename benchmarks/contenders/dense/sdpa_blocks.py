"""scaled_dot_product_attention on a window, cut by hand: blocks of receivers on the senders that they can reach."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention

from benchmarks.inputs import Attention, Inputs
from edgewise.graphs.rule import Window


def refuses(inputs: Inputs) -> str | None:
    """Takes windows to both sides that the blocks divide."""
    rule = inputs.graph.rule if isinstance(inputs, Attention) else None
    if not isinstance(rule, Window):
        return "takes windows"
    assert isinstance(inputs, Attention)
    nodes, block = inputs.graph.num_receivers, rule.radius
    return None if nodes % block == 0 and nodes >= 3 * block else f"takes multiples of {block} nodes from {3 * block}"


def prepare(inputs: Inputs) -> Callable[[], Any]:
    """Blocks as long as the radius: inner ones share a mask and one call, the two at the ends have theirs."""
    assert isinstance(inputs, Attention) and isinstance(inputs.graph.rule, Window)
    block, nodes = inputs.graph.rule.radius, inputs.graph.num_receivers
    heads, channels = inputs.v.shape[-2:]
    inner = nodes // block - 2
    distance = torch.arange(block)[:, None] + block - torch.arange(3 * block)
    mask = torch.zeros(block, 3 * block).masked_fill(distance.abs() > block, float("-inf"))
    first, last = mask[:, block:], mask[:, : 2 * block]

    def one(x: Tensor, start: int, stop: int) -> Tensor:
        return x[start:stop].transpose(0, 1).unsqueeze(0)

    def run() -> Tensor:
        q, k, v = inputs.q, inputs.k, inputs.v
        middle = q[block:-block].view(inner, block, heads, channels).transpose(1, 2)
        k_middle, v_middle = (x.unfold(0, 3 * block, block).permute(0, 1, 3, 2) for x in (k, v))
        y = scaled_dot_product_attention(middle, k_middle, v_middle, mask).transpose(1, 2).flatten(0, 1)
        ends = [
            scaled_dot_product_attention(one(q, *rows), one(k, *reach), one(v, *reach), hidden)[0].transpose(0, 1)
            for rows, reach, hidden in (
                ((0, block), (0, 2 * block), first),
                ((nodes - block, nodes), (nodes - 2 * block, nodes), last),
            )
        ]
        return torch.cat([ends[0], y, ends[1]])

    return run
