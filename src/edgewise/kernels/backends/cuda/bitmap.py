"""Attention on tensor cores for graphs that are dense in places: sixteen receivers share what they gather.

Worth it where a window of sixteen receivers hears few distinct senders for its edges: on meshes and grids in a good
order, in communities, on windows and clusters. Each distinct sender of a window costs one gathered row of k and v, and
sixteen dot products on tensor cores. Memory O(N·H·C + E).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.kernels.backend import Attention, Backend, Cost, Takes
from edgewise.kernels.backends.cpu import edges
from edgewise.kernels.backends.cuda import programs as gpu
from edgewise.kernels.backends.cuda.programs.building import WINDOW, windows
from edgewise.kernels.call import Attend, Call
from edgewise.kernels.operator.layout import flat
from edgewise.kernels.operator.operator import Operator
from edgewise.kernels.operator.products import rows_contiguous
from edgewise.kernels.operator.second_derivatives import differentiated_again, gradients_again
from edgewise.kernels.scores import Dot

CALL = 4  # launches; assumed
LISTED, COLUMN = 24, 8  # bytes: of an edge of a rule, which has to be listed first, and of a distinct sender; counted
SAMPLE, FEW = 64, 2**18  # windows, and edges of a rule, that are counted to predict all

Structure = list[Tensor]


def cost(call: Call) -> Cost:
    """Every window gathers each of its distinct senders once, and multiplies it with all sixteen receivers."""
    assert isinstance(call, Attend)
    graph, size = call.graph, call.v.element_size()
    columns = graph.memo("columns of windows", lambda: _columns(graph))
    listing = 0 if graph.rule is None else LISTED * graph.num_edges
    batch, width = call.v.shape[:-3].numel(), call.heads * (call.v.shape[-1] + call.ends()[0].shape[-1])
    return Cost(
        tiles=2 * WINDOW * batch * columns * width,
        rows=size * batch * columns * width,
        held=size * batch * graph.num_senders * width,
        bytes=listing + COLUMN * columns * call.heads + size * batch * graph.num_receivers * width,
        launches=CALL,
    )


def _columns(graph: Graph) -> int:
    """Distinct senders of all windows, predicted from some."""
    edges, count = graph.num_edges, -(-graph.num_receivers // WINDOW)
    if edges == 0:
        return 0
    if graph.rule is None and graph.ranges() is None:
        window = torch.div(graph.receivers, WINDOW, rounding_mode="floor")
        kept = window % max(1, count // SAMPLE) == 0
        pairs = window[kept] * graph.num_senders + graph.senders[kept]
        distinct, listed = torch.unique(pairs).shape[0], pairs.shape[0]
    else:  # whose edges are many, and perhaps never listed
        step = max(1, count // max(1, min(SAMPLE, FEW * count // edges)))
        some = [
            graph.rows(WINDOW * w, min(WINDOW * (w + 1), graph.num_receivers)) for w in range(step // 2, count, step)
        ]
        distinct, listed = (sum(n) for n in zip(*((len(g.senders.unique()), g.num_edges) for g in some), strict=True))
    return edges * distinct // listed if listed else edges


def run(call: Call) -> Tensor:
    """Compute the call window by window."""
    assert isinstance(call, Attend)
    call = call.with_equal_heads()
    q, k, v = (rows_contiguous(flat(x, 3)) for x in (*call.ends(), call.v))
    assert isinstance(call.score, Dot)
    scale = call.score.factor(q.shape[-1])
    if isinstance(scale, Tensor):
        q, scale = q * scale.reshape(-1, 1).to(q.dtype), 1.0
    needed = torch.is_grad_enabled() and any(x.requires_grad for x in (q, k, v))
    reverse = structure_of(call.graph.transpose()[0]) if needed else []
    offsets, index = edges.structure_of(call.graph)
    y = ATTEND(q, k, v, offsets, index, structure_of(call.graph), reverse, scale)[0]
    return y.squeeze(0) if call.v.ndim == 3 else y.reshape(*call.v.shape[:-3], *y.shape[1:])


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
    cost=cost,
    run=run,
)


def structure_of(graph: Graph) -> Structure:
    """The graph's edges by windows of receivers, kept with the graph."""
    return graph.memo("windows", lambda: windows(graph.offsets, graph.senders, graph.num_senders))


def _attend(
    q: Tensor, k: Tensor, v: Tensor, offsets: Tensor, index: Tensor, structure: Sequence[Tensor],
    reverse: Sequence[Tensor], scale: float,
) -> tuple[Tensor, Tensor]:  # fmt: skip
    from edgewise.kernels.backends.cuda.programs import bitmap as kernels

    return kernels.forward(q, k, v, structure, scale)


def _shape(q: Tensor, k: Tensor, v: Tensor, *_: Any) -> tuple[Tensor, Tensor]:
    return v.new_empty(*q.shape[:3], v.shape[3]), v.new_empty(q.shape[:3], dtype=torch.float32)


def _save(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
    q, k, v, offsets, index, structure, reverse, ctx.scale = inputs
    y, lse = output
    ctx.mark_non_differentiable(lse)
    ctx.set_materialize_grads(False)
    ctx.length = len(structure)
    ctx.save_for_backward(q, k, v, y, lse, offsets, index, *structure, *reverse)


def _gradient(ctx: Any, dy: Tensor | None, _: Tensor | None) -> tuple[Tensor | None, ...]:
    if dy is None:
        return (None,) * 8
    q, k, v, y, lse, offsets, index, *saved = ctx.saved_tensors
    if differentiated_again(dy, q, k, v):
        from edgewise.kernels.backends.torch import segment

        q, k, v = inputs = [x.view_as(x) for x in (q, k, v)]  # one tensor used twice has two gradients
        graph = Graph.from_csr(offsets, index.long(), k.shape[1])
        again = segment.run(Attend(graph, q, k, v, Dot(ctx.scale)))
        assert isinstance(again, Tensor)
        return *gradients_again(again, inputs, dy), *[None] * 5
    structure, reverse = saved[: ctx.length], saved[ctx.length :]
    found = GRADIENT(rows_contiguous(dy), q, k, v, y, lse, structure, reverse, ctx.scale)
    return *found, *[None] * 5


def _attend_gradient(dy: Tensor, *inputs: Any) -> tuple[Tensor, Tensor, Tensor]:
    from edgewise.kernels.backends.cuda.programs import bitmap as kernels

    return kernels.backward(dy, *inputs)


_STRUCTURES = "Tensor[] structure, Tensor[] reverse, float scale"

GRADIENT = Operator(
    "attend_windows_gradient",
    f"(Tensor dy, Tensor q, Tensor k, Tensor v, Tensor y, Tensor lse, {_STRUCTURES}) -> (Tensor, Tensor, Tensor)",
    _attend_gradient,
    lambda dy, q, k, v, *_: (q.new_empty(q.shape), k.new_empty(k.shape), v.new_empty(v.shape)),
)
ATTEND = Operator(
    "attend_windows",
    f"(Tensor q, Tensor k, Tensor v, Tensor offsets, Tensor index, {_STRUCTURES}) -> (Tensor, Tensor)",
    _attend,
    _shape,
    _save,
    _gradient,
)
