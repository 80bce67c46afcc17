"""Triton's attention as operators: what its kernels are launched with, and its gradients.

Tensors arrive with the batch written out: nodes [B, N, H, C], biases [B or 1, E, H or 1], vectors [B or 1, E, H, C].
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.kernels.backends.cuda.programs.rows import work
from edgewise.kernels.backends.cuda.programs.tiles import Heads, Tile, attention_bytes, power_of_two, vector
from edgewise.kernels.backends.cuda.programs.tiles import run as with_best_tile
from edgewise.kernels.call import Attend
from edgewise.kernels.operator.dropout import seed_for
from edgewise.kernels.operator.layout import batched, operands_of, unflat
from edgewise.kernels.operator.operator import Operator
from edgewise.kernels.operator.second_derivatives import attend_again, differentiated_again
from edgewise.kernels.scores import Additive, Dot, EdgeVectors, GatedAdditive, Score, Uniform

DOT, ADDITIVE, GATED, NONE = range(4)
KINDS = {Dot: DOT, Additive: ADDITIVE, GatedAdditive: GATED, Uniform: NONE}
PARTS = 2048  # programs among which the sum over all edges is shared that is the gradient of a

Structure = tuple[Tensor, Tensor, Tensor, Tensor]  # offsets [I + 1], senders [E] int32, items and hubs of `work`
Reverse = tuple[Tensor, Tensor, Tensor, Tensor]  # of the transpose: senders, its edges' numbers here, items, hubs


def structure_of(graph: Graph) -> Structure:
    """The graph's edges as the kernels read them, kept with the graph."""

    def build() -> Structure:
        offsets = graph.offsets.contiguous()
        return offsets, graph.senders.to(torch.int32), *work(offsets, graph.num_edges)

    return graph.memo("triton edges", build)


def reverse_of(graph: Graph) -> Reverse:
    """The transpose as the kernels read it, kept with the graph."""

    def build() -> Reverse:
        transpose, order = graph.transpose()
        _, index, items, hubs = structure_of(transpose)
        return index, order.to(torch.int32), items, hubs

    return graph.memo("triton transpose", build)


def run(call: Attend) -> Tensor:
    """Compute a call with equal heads."""
    graph, own, vectors = call.graph, operands_of(call), call.score.vectors or EdgeVectors()
    keys, values = batched(vectors.keys, call, 3), batched(vectors.values, call, 3)
    inputs = (own.q, own.k, own.v, own.a, own.bias, keys, values)
    differentiable = torch.is_grad_enabled() and any(x is not None and x.requires_grad for x in inputs)
    reverse = reverse_of(graph) if differentiable else ()
    seed = seed_for(graph, call.dropout)
    y = attend(
        *inputs, *structure_of(graph), reverse, KINDS[type(call.score)], own.scale, own.slope, call.dropout, seed
    )[0]
    return unflat(y, call)


# What the kernels are launched with


def _rows(x: Tensor | None) -> Tensor | None:
    """The same numbers, where needed copied so that each row is contiguous and can be read 16 bytes at a time."""
    if x is None:
        return None
    step = vector(x.shape[3], x.element_size())
    rows = x.stride(3) == 1 and (x.stride(2) == x.shape[3] or x.shape[2] == 1) and x.stride(1) % step == 0
    whole = x.shape[0] == 1 or x.stride(0) == x.shape[1] * x.stride(1)
    return x if rows and whole and x.data_ptr() % 16 == 0 else x.clone(memory_format=torch.contiguous_format)


def _stride(x: Tensor | None) -> int:
    """From row to row, in the units in which they are read."""
    return 0 if x is None else x.stride(1) // vector(x.shape[3], x.element_size())


def _numbers(
    tensors: Sequence[Tensor | None], receivers: int, edges: int, score: int, options: Sequence[float], seed: Tensor
) -> dict[str, Any]:
    """What the kernels of a call are launched with, by the names of their arguments."""
    scale, slope, dropout = options
    q, k, v = (_rows(x) for x in tensors[:3])
    a, bias, keys, values = (x if x is None else x.contiguous() for x in tensors[3:])
    assert v is not None
    width, size = v.shape[3], v.element_size()
    channels = width if q is None else q.shape[3]
    return {
        "q": q, "k": k, "v": v, "a": a if a is None else a.to(torch.float32), "bias": bias,
        "edge_k": keys, "edge_v": values, "seed": seed if dropout > 0 else None,
        "receivers": receivers, "senders": v.shape[1], "edges": edges,
        "q_stride": _stride(q), "k_stride": _stride(k), "v_stride": _stride(v),
        "bias_batch": 0 if bias is None or bias.shape[0] == 1 else edges * bias.shape[2],
        "keys_batch": 0 if keys is None or keys.shape[0] == 1 else edges,
        "values_batch": 0 if values is None or values.shape[0] == 1 else edges,
        "scale": float(scale), "slope": float(slope), "threshold": int(dropout * 2**32), "keep": 1 / (1 - dropout),
        "GATED": score in (ADDITIVE, GATED), "BIAS_HEADS": 0 if bias is None else bias.shape[2],
        "H": v.shape[2], "C": channels, "D": width, "VC": vector(channels, size), "VD": vector(width, size),
        "HEADS": Heads.of(v.shape[2], max(channels, width), size).heads,
        "CP": power_of_two(channels), "DP": power_of_two(width),
    }  # fmt: skip


def _start(kernel: Any, programs: int, warps: int, numbers: dict[str, Any]) -> None:
    """Launch a kernel with those of the numbers that it takes."""
    kernel[(programs,)](**{name: numbers[name] for name in kernel.arg_names}, num_warps=warps)


def _walk(
    kernel: Any, numbers: dict[str, Any], items: Tensor, hubs: Tensor, rows: int, results: dict[str, Tensor | None]
) -> Tensor | None:
    """Run a kernel over the items, merge the chunks of hubs, and return what each program adds to da, if asked for.

    Symbols     rows = how many there are; results [B, rows, H, *] by the names of the kernel's arguments
    """
    from edgewise.kernels.backends.cuda.programs import attention as kernels

    v, wanted = numbers["v"], {name: x for name, x in results.items() if x is not None}
    heads = Heads.of(numbers["H"], max(numbers["C"], numbers["D"]), v.element_size())
    copies, count = heads.groups * v.shape[0], items.shape[1]
    chunks = count - rows + hubs.shape[1]

    def parts(x: Tensor | None) -> Tensor | None:
        return x.new_empty(x.shape[0], chunks, *x.shape[2:], dtype=torch.float32) if x is not None and chunks else None

    numbers = numbers | {"items": items, "count": count, "chunks": chunks, "part_lse": parts(numbers["lse"])}
    numbers |= results | {f"part_{name}": parts(x) for name, x in results.items()}

    def launch(tile: Tile) -> Tensor | None:
        beside = heads.rows(tile)
        programs = -(-count // beside)
        da = None
        if numbers["to_a"]:
            programs = min(programs, PARTS)
            da = v.new_empty(v.shape[0], programs, numbers["H"], numbers["C"], dtype=torch.float32)
        more = {"ROWS": beside, "EDGES": tile.edges, "programs": programs, "da": da}
        _start(kernel, programs * copies, tile.warps, numbers | more)
        return da

    kind = kernel.fn.__name__
    moved = attention_bytes(
        numbers["receivers"], numbers["senders"], numbers["edges"], v.shape[0] * v.shape[2],
        (numbers["C"], numbers["D"]), v.element_size(),
    )[kind]  # fmt: skip
    options = [
        word for word in ("GATED", "bias", "edge_k", "seed") if numbers[word] is not None and numbers[word] is not False
    ]
    degree = (numbers["edges"] // max(1, rows)).bit_length()
    key = f"{kind} {v.dtype} {heads.heads}x{numbers['CP']}x{numbers['DP']} 2^{degree} {' '.join(options)}"
    da = with_best_tile(key, heads.candidates(v.element_size()), moved, v.device, launch)
    for name, whole in wanted.items() if chunks else ():
        merged = {"part": numbers[f"part_{name}"], "y": whole, "hubs": hubs, "count": hubs.shape[1], "receivers": rows}
        merged |= {"rest": numbers["rest"] if numbers["lse"] is not None else None}
        merged |= {"D": whole.shape[3], "DP": power_of_two(whole.shape[3]), "EDGES": 8}
        _start(kernels.merge, hubs.shape[1] * copies, 4, numbers | merged)
    return da


# The operators


def _attend(
    q: Tensor | None, k: Tensor | None, v: Tensor, a: Tensor | None, bias: Tensor | None,
    keys: Tensor | None, values: Tensor | None,
    offsets: Tensor, index: Tensor, items: Tensor, hubs: Tensor, reverse: Sequence[Tensor],
    score: int, scale: float, slope: float, dropout: float, seed: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    from edgewise.kernels.backends.cuda.programs import attention as kernels

    y, lse, rest = _attend_shape(
        q, k, v, a, bias, keys, values, offsets, index, items, hubs, reverse, score, scale, slope, dropout, seed
    )
    if y.numel():
        with _device(v):
            receivers = offsets.shape[0] - 1
            numbers = _numbers(
                (q, k, v, a, bias, keys, values), receivers, index.shape[0], score, (scale, slope, dropout), seed
            )
            numbers |= {"index": index, "lse": lse, "rest": rest if rest.numel() else None, "to_a": False}
            _walk(kernels.attend, numbers, items, hubs, receivers, {"y": y})
    return y, lse, rest


def _attend_shape(
    q: Tensor | None, k: Tensor | None, v: Tensor, a: Tensor | None, bias: Tensor | None,
    keys: Tensor | None, values: Tensor | None,
    offsets: Tensor, index: Tensor, items: Tensor, hubs: Tensor, reverse: Sequence[Tensor],
    score: int, scale: float, slope: float, dropout: float, seed: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """y [B, I, H, D]; log Σ_j exp s_ij [B, I, H], +∞ of nothing; for a gradient what rounding to 16 bits took off y."""
    batch, _, heads, width = v.shape
    shape = (batch, offsets.shape[0] - 1, heads, width)
    rounded = len(reverse) > 0 and v.dtype.itemsize < 4
    return v.new_empty(shape), v.new_empty(shape[:3], dtype=torch.float32), v.new_empty(shape if rounded else (0,))


def _attend_save(ctx: Any, inputs: Sequence[Any], output: Any) -> None:
    *tensors, reverse, score, scale, slope, dropout, seed = inputs
    ctx.options, ctx.score = (scale, slope, dropout), score
    y, lse, rest = output
    ctx.mark_non_differentiable(lse, rest)
    ctx.set_materialize_grads(False)
    ctx.save_for_backward(*tensors, *reverse, seed, y, lse, rest)


def _attend_backward(ctx: Any, *grads: Tensor | None) -> tuple[Tensor | None, ...]:
    dy = grads[0]
    if dy is None:
        return (None,) * 17
    q, k, v, a, bias, keys, values, offsets, index, items, hubs, *reverse, seed, y, lse, rest = ctx.saved_tensors
    inputs = (q, k, v, a, bias, keys, values)
    scale, slope, dropout = ctx.options
    if differentiated_again(dy, *inputs):
        graph = Graph.from_csr(offsets, index.long(), v.shape[1])
        score: Score = {DOT: Dot(scale), ADDITIVE: Additive(slope), NONE: Uniform()}.get(ctx.score) or GatedAdditive(
            a, slope
        )
        vectors = None if keys is None and values is None else EdgeVectors(keys, values)
        found = attend_again(dy, Attend(graph, q, k, v, score, dropout), a, bias, vectors, seed)
    else:
        wanted = [x is not None and need for x, need in zip(inputs, ctx.needs_input_grad, strict=False)]
        found = attend_gradient(
            dy,
            *inputs,
            offsets,
            index,
            items,
            hubs,
            reverse,
            ctx.score,
            *ctx.options,
            seed,
            y,
            lse,
            rest,
            *wanted[3:],
        )
    return *(_like(x, given, need) for x, given, need in zip(found, inputs, ctx.needs_input_grad, strict=False)), *[
        None
    ] * 10


def _like(found: Tensor | None, given: Tensor | None, needed: bool) -> Tensor | None:
    """The gradient to numbers that the whole batch, or every head, shares."""
    if found is None or given is None or not needed:
        return None
    for axis in range(given.ndim):
        if given.shape[axis] < found.shape[axis]:
            found = found.sum(axis, keepdim=True)
    return found.to(given.dtype)


def _attend_gradient(
    dy: Tensor, q: Tensor | None, k: Tensor | None, v: Tensor, a: Tensor | None, bias: Tensor | None,
    keys: Tensor | None, values: Tensor | None,
    offsets: Tensor, index: Tensor, items: Tensor, hubs: Tensor, reverse: Sequence[Tensor],
    score: int, scale: float, slope: float, dropout: float, seed: Tensor,
    y: Tensor, lse: Tensor, rest: Tensor,
    to_a: bool, to_bias: bool, to_keys: bool, to_values: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    from edgewise.kernels.backends.cuda.programs import attention as kernels

    dq, dk, dv, da, ds, dkeys, dvalues = found = _attend_gradient_shape(
        dy, q, k, v, a, bias, keys, values, offsets, index, items, hubs, reverse, score, scale, slope, dropout, seed,
        y, lse, rest, to_a, to_bias, to_keys, to_values,
    )  # fmt: skip
    if not dy.numel():
        for x in found:
            x.zero_()
        return found
    receivers, edges = offsets.shape[0] - 1, index.shape[0]
    numbers = _numbers((q, k, v, a, bias, keys, values), receivers, edges, score, (scale, slope, dropout), seed)
    batch, _, heads, width = v.shape
    dy_rows = _rows(dy)
    if q is not None and not to_bias:
        ds = v.new_empty(batch, edges, heads, dtype=torch.float32)
    numbers |= {
        "dy": dy_rows, "dy_stride": _stride(dy_rows), "y": y, "rest": rest if rest.numel() else None,
        "pairs": v.new_empty(batch, receivers, 2, heads, dtype=torch.float32), "lse": None, "to_a": False,
        "ds": ds if q is not None or to_bias else None,
        "dedge_k": dkeys if to_keys else None, "dedge_v": dvalues if to_values else None,
    }  # fmt: skip
    with _device(v):
        layout = Heads.of(heads, width, v.element_size())
        beside = layout.rows(Tile(1, 4))
        one = {"lse": lse, "count": batch * receivers, "HEADS": layout.heads, "ROWS": beside}
        _start(kernels.pair, -(-batch * receivers // beside) * layout.groups, 4, numbers | one)
        back_index, back_number, back_items, back_hubs = reverse
        by_sender = numbers | {"index": back_index, "number": back_number}
        _walk(
            kernels.by_sender, by_sender, back_items, back_hubs, v.shape[1], {"dk": None if q is None else dk, "dv": dv}
        )
        if q is not None:
            by_receiver = numbers | {"index": index, "to_a": to_a}
            parts = _walk(kernels.by_receiver, by_receiver, items, hubs, receivers, {"dq": dq})
            if parts is not None:
                torch.sum(parts, (0, 1), out=da)
    return found


def _attend_gradient_shape(
    dy: Tensor, q: Tensor | None, k: Tensor | None, v: Tensor, a: Tensor | None, bias: Tensor | None,
    keys: Tensor | None, values: Tensor | None,
    offsets: Tensor, index: Tensor, items: Tensor, hubs: Tensor, reverse: Sequence[Tensor],
    score: int, scale: float, slope: float, dropout: float, seed: Tensor,
    y: Tensor, lse: Tensor, rest: Tensor,
    to_a: bool, to_bias: bool, to_keys: bool, to_values: bool,
) -> tuple[Tensor, ...]:  # fmt: skip
    """Gradients to q, k, v, a, to the scores of edges [B, E, H], and to their keys and values [B, E, H, *]."""
    nothing, on_edges = (0,), (v.shape[0], index.shape[0], v.shape[2])
    return (
        v.new_empty(nothing if q is None else q.shape),
        v.new_empty(nothing if k is None else k.shape),
        v.new_empty(v.shape),
        v.new_empty(a.shape if to_a and a is not None else nothing, dtype=torch.float32),
        v.new_empty(on_edges if to_bias else nothing, dtype=torch.float32),
        v.new_empty((*on_edges, q.shape[3]) if to_keys and q is not None else nothing),
        v.new_empty((*on_edges, v.shape[3]) if to_values else nothing),
    )


def _device(x: Tensor) -> AbstractContextManager[object]:
    """Where Triton launches: on the current device."""
    return torch.cuda.device_of(x) if x.is_cuda else nullcontext()


_TENSORS = "Tensor? q, Tensor? k, Tensor v, Tensor? a, Tensor? bias, Tensor? keys, Tensor? values"
_GRAPH = "Tensor offsets, Tensor index, Tensor items, Tensor hubs, Tensor[] reverse"
_OPTIONS = "int score, float scale, float slope, float dropout, Tensor seed"

attend_gradient = Operator(
    "attend_rows_gradient",
    f"(Tensor dy, {_TENSORS}, {_GRAPH}, {_OPTIONS}, Tensor y, Tensor lse, Tensor rest,"
    " bool to_a, bool to_bias, bool to_keys, bool to_values)"
    " -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
    _attend_gradient,
    _attend_gradient_shape,
)
attend = Operator(
    "attend_rows",
    f"({_TENSORS}, {_GRAPH}, {_OPTIONS}) -> (Tensor, Tensor, Tensor)",
    _attend,
    _attend_shape,
    _attend_save,
    _attend_backward,
)
