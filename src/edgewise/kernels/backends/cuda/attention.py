"""Triton's attention as operators: what its kernels are launched with, and its gradients."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.kernels.backends.cuda.programs.building import work
from edgewise.kernels.backends.cuda.programs.tiles import Heads, Tile, power_of_two, vector
from edgewise.kernels.backends.cuda.programs.tiles import run as with_best_tile
from edgewise.kernels.call import Attend
from edgewise.kernels.operator.attention import ADDITIVE, GATED, Attention, AttentionGradient, attention_of, composed
from edgewise.kernels.operator.layout import empty_like, unflat
from edgewise.kernels.operator.operator import Operator

PARTS = 2048  # programs among which the sum over all edges is shared that is the gradient of a

Structure = tuple[Tensor, Tensor, Tensor, Tensor]  # offsets [I + 1], senders [E] int32, items and hubs of `work`
Reverse = tuple[Tensor, Tensor, Tensor, Tensor]  # of the transpose: senders, its edges' numbers here, items, hubs


@cached
def structure_of(graph: Graph) -> Structure:
    """The graph's edges as the kernels read them."""
    offsets = graph.offsets.contiguous()
    return offsets, graph.senders.to(torch.int32), *work(offsets, graph.num_edges)


@cached
def reverse_of(graph: Graph) -> Reverse:
    """The transpose as the kernels read it."""
    transpose, order = graph.transpose()
    _, index, items, hubs = structure_of(transpose)
    return index, order.to(torch.int32), items, hubs


def run(call: Attend) -> Tensor:
    """Compute a call with equal heads."""
    own = attention_of(call, RowsAttention, structure_of(call.graph))
    if attend.differentiates(own):
        own.reverse = reverse_of(call.graph)
    return unflat(attend(own)[0], call)


class RowsAttention(Attention):
    __slots__ = ()

    def empty(self) -> tuple[Tensor, Tensor, Tensor]:
        """y [B, I, H, D]; log Σ_j exp s_ij [B, I, H], or +∞; for a gradient what rounding to 16 bits took off y."""
        v = self.v
        shape = (v.shape[0], self.receivers, *v.shape[2:])
        rounded = len(self.reverse) > 0 and v.dtype.itemsize < 4
        return v.new_empty(shape), v.new_empty(shape[:3], dtype=torch.float32), v.new_empty(shape if rounded else (0,))


class RowsAttentionGradient(AttentionGradient):
    __slots__ = ()

    def empty(self) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        """To q, k, v, a, to the scores of edges [B, E, H], and to their keys and values [B, E, H, *]."""
        q, k, v, a = self.q, self.k, self.v, self.a
        nothing, on_edges = (0,), (v.shape[0], self.edges, v.shape[2])
        *_, to_a, to_bias, to_keys, to_values = self.needed
        return (
            v.new_empty(nothing) if q is None else empty_like(q),
            v.new_empty(nothing) if k is None else empty_like(k),
            empty_like(v),
            v.new_empty(a.shape if to_a and a is not None else nothing, dtype=torch.float32),
            v.new_empty(on_edges if to_bias else nothing, dtype=torch.float32),
            v.new_empty((*on_edges, q.shape[3]) if to_keys and q is not None else nothing),
            v.new_empty((*on_edges, v.shape[3]) if to_values else nothing),
        )


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


def _numbers(own: Attention) -> dict[str, Any]:
    """What the kernels of a call are launched with, by the names of their arguments."""
    q, k, v = (_rows(x) for x in (own.q, own.k, own.v))
    a, bias, keys, values = (x if x is None else x.contiguous() for x in (own.a, own.bias, own.keys, own.values))
    assert v is not None
    edges, width, size = own.edges, v.shape[3], v.element_size()
    channels = width if q is None else q.shape[3]
    return {
        "q": q, "k": k, "v": v, "a": a if a is None else a.to(torch.float32), "bias": bias,
        "edge_k": keys, "edge_v": values, "seed": own.seed if own.dropout > 0 else None,
        "receivers": own.receivers, "senders": v.shape[1], "edges": edges,
        "q_stride": _stride(q), "k_stride": _stride(k), "v_stride": _stride(v),
        "bias_batch": 0 if bias is None or bias.shape[0] == 1 else edges * bias.shape[2],
        "keys_batch": 0 if keys is None or keys.shape[0] == 1 else edges,
        "values_batch": 0 if values is None or values.shape[0] == 1 else edges,
        "scale": float(own.scale), "slope": float(own.slope),
        "threshold": int(own.dropout * 2**32), "keep": 1 / (1 - own.dropout),
        "GATED": own.score in (ADDITIVE, GATED), "BIAS_HEADS": 0 if bias is None else bias.shape[2],
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
    """Run a kernel over the items, merge the chunks of hubs, and return what each program adds to da, if there is one.

    Symbols     rows = how many there are; results [B, rows, H, *] by the names of the kernel's arguments
    """
    from edgewise.kernels.backends.cuda.programs import attention as kernels

    v, needed = numbers["v"], {name: x for name, x in results.items() if x is not None}
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
    moved = v.shape[0] * numbers["edges"] * numbers["H"] * (numbers["C"] + numbers["D"]) * v.element_size()
    options = [
        word for word in ("GATED", "bias", "edge_k", "seed") if numbers[word] is not None and numbers[word] is not False
    ]
    degree = (numbers["edges"] // max(1, rows)).bit_length()
    key = f"{kind} {v.dtype} {heads.heads}x{numbers['CP']}x{numbers['DP']} 2^{degree} {' '.join(options)}"
    da = with_best_tile(key, heads.candidates(v.element_size()), moved, v.device, launch)
    for name, whole in needed.items() if chunks else ():
        merged = {"part": numbers[f"part_{name}"], "y": whole, "hubs": hubs, "count": hubs.shape[1], "receivers": rows}
        merged |= {"rest": numbers["rest"] if numbers["lse"] is not None else None}
        merged |= {"D": whole.shape[3], "DP": power_of_two(whole.shape[3]), "EDGES": 8}
        _start(kernels.merge, hubs.shape[1] * copies, 4, numbers | merged)
    return da


def _attend(own: RowsAttention) -> tuple[Tensor, Tensor, Tensor]:
    from edgewise.kernels.backends.cuda.programs import attention as kernels

    y, lse, rest = results = own.empty()
    if y.numel():
        _, index, items, hubs = own.structure
        with _device(own.v):
            numbers = _numbers(own)
            numbers |= {"index": index, "lse": lse, "rest": rest if rest.numel() else None, "to_a": False}
            _walk(kernels.attend, numbers, items, hubs, own.receivers, {"y": y})
    return results


def _attend_gradient(own: RowsAttentionGradient) -> tuple[Tensor, ...]:
    from edgewise.kernels.backends.cuda.programs import attention as kernels

    dq, dk, dv, da, ds, dkeys, dvalues = results = own.empty()
    if not own.dy.numel():
        for x in results:
            x.zero_()
        return results
    numbers, receivers, has_ends = _numbers(own), own.receivers, own.q is not None
    *_, to_a, to_bias, to_keys, to_values = own.needed
    batch, _, heads, width = own.v.shape
    dy_rows, rest = _rows(own.dy), own.rest
    if has_ends and not to_bias:
        ds = own.v.new_empty(batch, own.edges, heads, dtype=torch.float32)
    numbers |= {
        "dy": dy_rows, "dy_stride": _stride(dy_rows), "y": own.y, "rest": rest if rest.numel() else None,
        "pairs": own.v.new_empty(batch, receivers, 2, heads, dtype=torch.float32), "lse": None, "to_a": False,
        "ds": ds if has_ends or to_bias else None,
        "dedge_k": dkeys if to_keys else None, "dedge_v": dvalues if to_values else None,
    }  # fmt: skip
    with _device(own.v):
        layout = Heads.of(heads, width, own.v.element_size())
        beside = layout.rows(Tile(1, 4))
        one = {"lse": own.lse, "count": batch * receivers, "HEADS": layout.heads, "ROWS": beside}
        _start(kernels.pair, -(-batch * receivers // beside) * layout.groups, 4, numbers | one)
        index, number, items, hubs = own.reverse
        by_sender = numbers | {"index": index, "number": number}
        _walk(kernels.by_sender, by_sender, items, hubs, own.v.shape[1], {"dk": dk if has_ends else None, "dv": dv})
        if has_ends:
            _, index, items, hubs = own.structure
            parts = _walk(
                kernels.by_receiver, numbers | {"index": index, "to_a": to_a}, items, hubs, receivers, {"dq": dq}
            )
            if parts is not None:
                torch.sum(parts, (0, 1), out=da)
    return results


def _device(x: Tensor) -> AbstractContextManager[object]:
    """Where Triton launches: on the current device."""
    return torch.cuda.device_of(x) if x.is_cuda else nullcontext()


attend_gradient = Operator("attend_rows_gradient", RowsAttentionGradient, _attend_gradient)
attend = Operator("attend_rows", RowsAttention, _attend, attend_gradient, composed)
