"""Attention on tensor cores for graphs that are dense in places: sixteen receivers share what they gather.

Worth it where a window of sixteen receivers has few distinct senders for its edges: on meshes and grids in a good
order, in communities, on windows and clusters. Each distinct sender of a window costs one gathered row of k and v, and
sixteen dot products on tensor cores. Memory O(N·H·C + E).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.kernels.backend import Attention, Backend, Cost, Takes, listing
from edgewise.kernels.backends.cpu import edges
from edgewise.kernels.backends.cuda import programs as gpu
from edgewise.kernels.backends.cuda import selfcheck
from edgewise.kernels.backends.cuda.programs.building import WINDOW, windows
from edgewise.kernels.call import Attend, Call
from edgewise.kernels.operator import composed
from edgewise.kernels.operator.layout import empty_like, flat, rows_contiguous, unflat
from edgewise.kernels.operator.operator import Arguments, Operator
from edgewise.kernels.scores import Dot

CALL = 15  # launches; by an H100's host
COLUMN = 8  # bytes of a distinct sender; counted
SAMPLE, FEW = 64, 2**18  # windows, and edges of a rule, that are counted to predict all

Structure = list[Tensor]


def cost(call: Call) -> Cost:
    """Every window gathers each of its distinct senders once, and multiplies it with all sixteen receivers."""
    assert isinstance(call, Attend)
    graph, size = call.graph, call.v.element_size()
    columns = columns_of(graph)
    batch, width = call.v.shape[:-3].numel(), call.heads * (call.v.shape[-1] + call.ends()[0].shape[-1])
    return Cost(
        tiles=2 * WINDOW * batch * columns * width,
        rows=size * batch * columns * width,
        held=size * batch * graph.num_senders * width,
        bytes=listing(graph) + COLUMN * columns * call.heads + size * batch * graph.num_receivers * width,
        launches=CALL,
        steps=columns // max(1, -(-graph.num_receivers // WINDOW)),
    )


@cached
def columns_of(graph: Graph) -> int:
    """Distinct senders of all windows, predicted from some."""
    edges, count = graph.num_edges, -(-graph.num_receivers // WINDOW)
    if edges == 0:
        return 0
    if graph.rule is None and graph.ranges() is None:
        window = torch.div(graph.receivers, WINDOW, rounding_mode="floor")
        sampled = window % max(1, count // SAMPLE) == 0
        pairs = window[sampled] * graph.num_senders + graph.senders[sampled]
        distinct, listed = torch.unique(pairs).shape[0], pairs.shape[0]
    else:  # whose edges are many, and perhaps never listed
        step = max(1, count // max(1, min(SAMPLE, FEW * count // edges)))
        starts = range(WINDOW * (step // 2), WINDOW * count, WINDOW * step)
        # On the host, as a card would be asked for each of them, and waited for.
        some = [graph.rows(start, min(start + WINDOW, graph.num_receivers)).to("cpu") for start in starts]
        distinct, listed = (sum(n) for n in zip(*((len(g.senders.unique()), g.num_edges) for g in some), strict=True))
    return edges * distinct // listed if listed else edges


def run(call: Call) -> Tensor:
    """Compute the call window by window."""
    assert isinstance(call, Attend) and isinstance(call.score, Dot)
    score, call = call.score, call.with_equal_heads()
    q, k = call.ends()
    q, scale = score.scaled(q)
    q, k, v = (rows_contiguous(flat(x, 3)) for x in (q, k, call.v))
    own = WindowsAttention(q, k, v, *edges.structure_of(call.graph), structure_of(call.graph), (), scale)
    if attend.differentiates(own):
        own.reverse = structure_of(call.graph.transpose()[0])
    return unflat(attend(own)[0], call)


BACKEND = Backend(
    name="bitmap",
    summary="Triton on a GPU's tensor cores: attention on graphs that are dense in places",
    takes=Takes(
        dtypes=gpu.DTYPES,
        attend=Attention(scores=(Dot,), biases=(), dropout=False, head_bytes=512),
        nodes=edges.MOST,
        edges=edges.MOST,
        parallel=False,
    ),
    devices=("cuda",),
    by_name=gpu.INTERPRETED_ON,
    need=gpu.TRITON,
    distrusted=partial(selfcheck.refusal, "bitmap"),
    cost=cost,
    run=run,
)


@cached
def structure_of(graph: Graph) -> Structure:
    """The graph's edges by windows of receivers."""
    return windows(graph.offsets, graph.senders, graph.num_senders)


@dataclass(slots=True)
class WindowsAttention(Arguments):
    """q [B, I, H, C], k [B, J, H, C], v [B, J, H, D]; offsets, index = the graph; both structures by windows."""

    q: Tensor
    k: Tensor
    v: Tensor
    offsets: Tensor
    index: Tensor
    structure: Sequence[Tensor]
    reverse: Sequence[Tensor]
    scale: float

    differentiable: ClassVar[tuple[str, ...]] = ("q", "k", "v")

    def empty(self) -> tuple[Tensor, Tensor]:
        shape = self.q.shape[:3]
        return self.v.new_empty(*shape, self.v.shape[3]), self.v.new_empty(shape, dtype=torch.float32)


@dataclass(slots=True)
class WindowsAttentionGradient(WindowsAttention):
    """Those of the call, its results, and which of its differentiable fields need a gradient."""

    y: Tensor
    lse: Tensor
    dy: Tensor
    needed: Sequence[bool]

    def empty(self) -> tuple[Tensor, Tensor, Tensor]:  # type: ignore[override]
        return empty_like(self.q), empty_like(self.k), empty_like(self.v)


def _attend(own: WindowsAttention) -> tuple[Tensor, Tensor]:
    from edgewise.kernels.backends.cuda.programs import bitmap as kernels

    return kernels.forward(own.q, own.k, own.v, own.structure, own.scale)


def _attend_gradient(own: WindowsAttentionGradient) -> tuple[Tensor, Tensor, Tensor]:
    from edgewise.kernels.backends.cuda.programs import bitmap as kernels

    ends = (own.q, own.k, own.v, own.y, own.lse)
    return kernels.backward(rows_contiguous(own.dy), *ends, own.structure, own.reverse, own.scale)


def _composed(own: WindowsAttention) -> Tensor:
    """The attention by differentiable operations."""
    graph = Graph.from_csr(own.offsets, own.index.long(), own.k.shape[1])
    return composed.attend(graph, own.q, own.k, own.v, Dot(own.scale))


attend_gradient = Operator("attend_windows_gradient", WindowsAttentionGradient, _attend_gradient)
attend = Operator("attend_windows", WindowsAttention, _attend, attend_gradient, _composed)
