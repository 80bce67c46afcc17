"""PyTorch's own attention where most pairs count: as it is, masked, in blocks cut by hand, grouped by size, and Flex.

Each pair of functions is why a contender cannot take part, and its computation: a function of the inputs that returns a
function of nothing.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import scaled_dot_product_attention as sdpa

from benchmarks.inputs import Attention, Inputs
from edgewise.graphs.rule import Blocks, Causal, Window

LIMIT = 2**29  # entries of a mask


def heads_first(x: Tensor) -> Tensor:
    """[*, N, H, C] as a view [B, H, N, C]."""
    return (x.unsqueeze(0) if x.ndim == 3 else x).transpose(1, 2)


def called(inputs: Attention, attention: Callable[..., Any], **options: Any) -> Callable[[], Tensor]:
    """Attention on strided views of q, k and v, its heads moved back."""

    def run() -> Tensor:
        y = attention(*map(heads_first, (inputs.q, inputs.k, inputs.v)), **options).transpose(1, 2)
        return y.squeeze(0) if inputs.v.ndim == 3 else y

    return run


def plain_refuses(inputs: Inputs) -> str | None:
    if isinstance(inputs, Attention) and (inputs.graph.is_complete or isinstance(inputs.graph.rule, Causal)):
        return None
    return "takes complete and causal graphs"


def plain(inputs: Inputs) -> Callable[[], Any]:
    """No mask."""
    assert isinstance(inputs, Attention)
    return called(inputs, sdpa, is_causal=not inputs.graph.is_complete)


def masked_refuses(inputs: Inputs) -> str | None:
    if not isinstance(inputs, Attention):
        return "takes attention"
    pairs = inputs.graph.num_receivers * inputs.graph.num_senders
    return None if pairs <= LIMIT else f"a mask of {pairs} entries is too large"


def masked(inputs: Inputs) -> Callable[[], Any]:
    """The mask is made once and added, as floats: PyTorch would otherwise convert it in every call."""
    assert isinstance(inputs, Attention)
    hidden = ~inputs.graph.dense_mask()
    mask = torch.zeros(hidden.shape, dtype=inputs.q.dtype, device=inputs.q.device).masked_fill_(hidden, float("-inf"))
    return called(inputs, sdpa, attn_mask=mask)


def blocks_refuses(inputs: Inputs) -> str | None:
    rule = inputs.graph.rule if isinstance(inputs, Attention) else None
    if not isinstance(rule, Window):
        return "takes windows"
    assert isinstance(inputs, Attention)
    nodes, block = inputs.graph.num_receivers, rule.radius
    return None if nodes % block == 0 and nodes >= 3 * block else f"takes multiples of {block} nodes from {3 * block}"


def blocks(inputs: Inputs) -> Callable[[], Any]:
    """Blocks as long as the radius: inner ones share a mask and one call, the two at the ends have theirs."""
    assert isinstance(inputs, Attention) and isinstance(inputs.graph.rule, Window)
    block, nodes = inputs.graph.rule.radius, inputs.graph.num_receivers
    heads, channels = inputs.v.shape[-2:]
    inner = nodes // block - 2
    distance = torch.arange(block)[:, None] + block - torch.arange(3 * block)
    mask = torch.zeros(block, 3 * block).masked_fill(distance.abs() > block, float("-inf")).to(inputs.q)
    first, last = mask[:, block:], mask[:, : 2 * block]

    def one(x: Tensor, start: int, stop: int) -> Tensor:
        return x[start:stop].transpose(0, 1).unsqueeze(0)

    def run() -> Tensor:
        q, k, v = inputs.q, inputs.k, inputs.v
        middle = q[block:-block].view(inner, block, heads, channels).transpose(1, 2)
        k_middle, v_middle = (x.unfold(0, 3 * block, block).permute(0, 1, 3, 2) for x in (k, v))
        y = sdpa(middle, k_middle, v_middle, mask).transpose(1, 2).flatten(0, 1)
        start, stop = slice(0, 2 * block), slice(nodes - 2 * block, nodes)
        ends = [
            sdpa(one(q, *rows), one(k, reach.start, reach.stop), one(v, reach.start, reach.stop), hidden)[0]
            for rows, reach, hidden in (((0, block), start, first), ((nodes - block, nodes), stop, last))
        ]
        return torch.cat([ends[0].transpose(0, 1), y, ends[1].transpose(0, 1)])

    return run


def grouped_refuses(inputs: Inputs) -> str | None:
    return None if isinstance(inputs, Attention) and isinstance(inputs.graph.rule, Blocks) else "takes complete graphs"


def grouped(inputs: Inputs) -> Callable[[], Any]:
    """The order of the nodes by size is found once; a step gathers, attends size by size and puts back."""
    assert isinstance(inputs, Attention)
    sizes = inputs.graph.sizes.cpu()
    by_size = torch.argsort(sizes, stable=True)
    starts = sizes.cumsum(0) - sizes
    order = torch.cat([torch.arange(int(starts[g]), int(starts[g] + sizes[g])) for g in by_size]).to(inputs.q.device)
    back = torch.argsort(order)
    lengths, counts = (t.tolist() for t in sizes.unique(return_counts=True))
    pieces = [length * count for length, count in zip(lengths, counts, strict=True)]

    def run() -> Tensor:
        ends = [x.index_select(0, order).split(pieces) for x in (inputs.q, inputs.k, inputs.v)]
        found = []
        for length, count, *group in zip(lengths, counts, *ends, strict=True):
            q, k, v = (x.view(count, length, *x.shape[1:]).transpose(1, 2) for x in group)
            found.append(sdpa(q, k, v).transpose(1, 2).flatten(0, 1))
        return torch.cat(found).index_select(0, back)

    return run


def flex_refuses(inputs: Inputs) -> str | None:
    if isinstance(inputs, Attention) and isinstance(inputs.graph.rule, Causal | Window):
        return None
    return "takes windows and causal graphs"


def flex(inputs: Inputs) -> Callable[[], Any]:
    """The block mask is made once; on a CPU FlexAttention refuses to have a gradient."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    assert isinstance(inputs, Attention)
    rule, nodes, device = inputs.graph.rule, inputs.graph.num_receivers, inputs.q.device.type

    def listens(b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return (i - j).abs() <= rule.radius if isinstance(rule, Window) else j <= i

    mask = create_block_mask(listens, None, None, nodes, nodes, device=device)
    attention = torch.compile(flex_attention, dynamic=False)
    if device == "cpu":
        q, k, v = (x.detach() for x in (inputs.q, inputs.k, inputs.v))
        inputs = Attention(inputs.graph, q, k, v, inputs.score)
    return called(inputs, attention, block_mask=mask)
