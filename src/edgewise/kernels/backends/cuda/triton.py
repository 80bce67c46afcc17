"""Triton's kernels on a GPU, edge by edge: fused attention and sparse products that never hold E·H·C numbers.

Cost        time O(E·H·C), memory O(N·H·C + E·H), forward and backward; no atomics, the same bits every time
"""

from __future__ import annotations

import torch

from edgewise.kernels.backends.cuda import attention as triton_attention
from edgewise.kernels.backends.cuda import products as triton_products
from edgewise.kernels.backends.cuda import programs as gpu
from edgewise.kernels.call import Attend, Call
from edgewise.kernels.choose.planner import Cost
from edgewise.kernels.scores import Additive, Dot, GatedAdditive, Uniform

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
SCORES = (Dot, Additive, GatedAdditive, Uniform)
MOST = 2**31 - 64  # nodes and edges are numbered in 32 bits, in which a program may count beyond its last edge
WIDEST = 1024  # channels of a head: a row must fit the registers of a program


def refuses(call: Call) -> str | None:
    """Other devices and dtypes, scores that it does not know, and returned weights."""
    if not isinstance(call, Attend):
        return triton_products.refuses(call)
    graph, score = call.graph, call.score
    if call.v.dtype not in DTYPES:
        return f"its kernels compute in float32, bfloat16 and float16, not in {call.v.dtype}: take segment or dense"
    if not isinstance(score, SCORES):
        return f"it has no {type(score).__name__} score"
    if isinstance(score, Dot) and score.cap is not None:
        return "it has no soft cap"
    if call.return_weights:
        return "it does not return its weights"
    if max(call.v.shape[-1], 0 if call.q is None else call.q.shape[-1]) > WIDEST:
        return f"a head has more than {WIDEST} channels"
    if max(graph.num_senders, graph.num_receivers, graph.num_edges) > MOST:
        return f"it numbers nodes and edges in 32 bits, and there are more than {MOST}"
    return gpu.refusal(graph.device)


def cost(call: Call) -> Cost:
    """Every edge reads the rows of its sender, once."""
    if not isinstance(call, Attend):
        return triton_products.cost(call)
    batch, size = call.v.shape[:-3].numel() * call.heads, call.v.element_size()
    width = call.v.shape[-1] + (0 if call.q is None else call.q.shape[-1])
    return Cost(
        edges=2 * batch * call.graph.num_edges * width,
        rows=size * batch * call.graph.num_edges * width,
        held=size * batch * call.graph.num_senders * width,
        # A rule's edges have to be listed before they can be walked along.
        bytes=(0 if call.graph.rule is None else 24 * call.graph.num_edges)
        + size * batch * call.graph.num_receivers * width,
        launches=8,
    )


def run(call: Call) -> torch.Tensor:
    """Compute the call on the graph's edges."""
    if not isinstance(call, Attend):
        return triton_products.run(call)
    return triton_attention.run(call.with_equal_heads())
