"""Records of messages spelt out: networks by PyTorch, all edges at once or in blocks; sums by the calling backend.

On a CPU, many edges have their messages made, collected and dropped a block at a time, and recomputed in the backward
pass: memory of a block, beside the tensors given and returned.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.graphs.tracing import is_traced
from edgewise.kernels.backend import Cost
from edgewise.kernels.call import Aggregate, Call, Collect
from edgewise.kernels.messages import EdgeNetwork, Filter, Message, Network, TensorProduct, edges_as_senders
from edgewise.kernels.operator.gradients import by_operations, gradients, in_own_dtypes

BLOCK = 8192  # edges at a time: enough that starting an operation costs little
# Bytes of all layers together beyond which blocks, which compute twice, are as fast: measured with 20,000 to 640,000
# edges of two and four layers of 64 channels, on one core of the machine of docs/performance.md.
AT_ONCE = 32e6
# Of a network: passes over the numbers of a layer, at once and by blocks; bytes for an edge; what part of each product
# counts; and launches. All fitted
PASSES, BLOCK_PASSES, EDGE, PRODUCT, CALL = 2.7, 13, 900, 0.65, 8.4

Run = Callable[[Call], Any]
Ways = Sequence[str | None]
Tensors = Sequence[Tensor | None]


def run(call: Collect, own: Run) -> Tensor | tuple[Tensor, ...]:
    """A record by `own`, which runs an `Aggregate`, and a `Collect` of tensors or of a network."""
    graph, message = call.graph, call.message
    if isinstance(message, Network):
        results = _network(graph, message, message.reductions(call.reduce), own)
        return results if message.several else results[0]
    assert isinstance(message, Filter | TensorProduct)
    weight = own(Collect(graph, message.weight, None)) if isinstance(message.weight, EdgeNetwork) else message.weight
    if isinstance(message, TensorProduct):
        return message.on_edges(graph) if call.reduce is None else tensor_product(graph, message, weight, own)
    if message.both_ways:
        there, back = (own(Collect(way, one, "sum")) for way, one in message.directions(graph, weight))
        y: Tensor = there + back
        return y
    if call.reduce is None:
        return replace(message, weight=weight).on_edges(graph)[0]
    y = _weighted(graph, message.senders.unsqueeze(-1), weight, call.reduce, own).squeeze(-1)
    return y if message.normalised is None else y / (own(Collect(graph, weight, "sum")) + message.normalised)


def cost(
    call: Collect, own: Callable[[Call], Cost], of_network: Callable[[Graph, Network[Any]], Cost] | None = None
) -> Cost:
    """That of `run`: the network's, and what `own` predicts for sums."""
    graph, message = call.graph, call.message
    assert isinstance(message, Message)
    network, dtype = message.network, message.dtype

    def assumed(*shape: int) -> Tensor:
        return torch.empty(shape, dtype=dtype, device="meta")

    def weighted(width: int, reduce: str = "sum") -> Cost:
        return own(Aggregate(graph, assumed(graph.num_senders, width, 1), assumed(graph.num_edges, width), reduce))

    total = Cost() if network is None else (of_network or _cost_of_network)(graph, network)
    if isinstance(message, Network):
        rows = message.batch.numel() * graph.num_edges
        return total + own(Collect(graph, assumed(rows, message.channels), call.reduce)) if call.reduce else total
    if isinstance(message, Filter):
        y = weighted(message.channels, call.reduce or "sum")
        if message.normalised is not None:
            total = total + own(Collect(graph, assumed(graph.num_edges, message.width), "sum"))
        return total + y + y if message.both_ways else total + y
    assert isinstance(message, TensorProduct)
    for ((k, J), outs), C in zip(message.paths, message.coefficients, strict=True):
        width = (2 * k + 1) * len(outs) * message.senders.shape[-1]
        mixing = 2 * graph.num_receivers * message.senders.shape[-1] * C.numel()
        products = 3 * dtype.itemsize * graph.num_edges * width if J else 0
        total = total + weighted((2 * J + 1) * width) + Cost(flops=mixing, bytes=products, launches=10)
    return total


def _cost_of_network(graph: Graph, network: Network[Any]) -> Cost:
    edges, size = network.batch.numel() * graph.num_edges, network.dtype.itemsize
    by_blocks = _fills_memory(graph, network)
    return Cost(
        flops=int(2 * PRODUCT * edges * network.products),
        gathered=int(edges * ((BLOCK_PASSES if by_blocks else PASSES) * size * sum(network.widths) + EDGE)),
        largest=size * (BLOCK if by_blocks else edges) * max(network.widths),
        launches=CALL,
    )


def _weighted(graph: Graph, x: Tensor, weight: Tensor, reduce: str, own: Run) -> Tensor:
    """⊕_j w_ij x_j in the wider of both dtypes."""
    dtype = torch.promote_types(x.dtype, weight.dtype)
    y: Tensor = own(Aggregate(graph, x.to(dtype), weight.to(dtype), reduce))
    return y


def tensor_product(graph: Graph, message: TensorProduct, R_ij: Tensor, own: Run) -> tuple[Tensor, ...]:
    """Σ_m C_m Σ_j Y_Jm(x_ij) (R ∘ h_j^k): `aggregate` with harmonics as weights; what mixes components meets nodes."""
    h = message.senders

    def alone(k: int, R: Tensor) -> Tensor:
        rows = h[..., k * k : (k + 1) ** 2, :].unsqueeze(-1).unbind(-3)
        return torch.stack([_weighted(graph, row, R, "sum", own).squeeze(-1) for row in rows], -2)

    def spread(J: int, z_ij: Tensor) -> Tensor:
        components, order = _components(graph, 2 * J + 1)
        Y = message.harmonics[..., J * J : (J + 1) ** 2].flatten(-2).index_select(-1, order)
        y = _weighted(components, z_ij.unsqueeze(-2), Y.unsqueeze(-1).to(z_ij.dtype), "sum", own)
        return y.squeeze(-2).unflatten(-2, (graph.num_receivers, 2 * J + 1))

    return message.coupled(graph, R_ij, spread, alone)


@cached
def _components(graph: Graph, count: int) -> tuple[Graph, Tensor]:
    """The graph in which each receiver stands `count` times and listens to its own edges; its weights' order."""
    apart = edges_as_senders(graph, count)
    return apart, apart.senders * count + apart.receivers % count


def _network(graph: Graph, message: Network[Any], ways: Ways, own: Run) -> tuple[Tensor, ...]:
    if not _suits_blocks(graph, message, ways):
        return at_once(graph, message, ways, own)
    tensors = message.tensors()
    if torch.is_grad_enabled() and any(t is not None and t.requires_grad for t in tensors):
        results: tuple[Tensor, ...] = _Blocks.apply(graph, message, ways, own, *tensors)  # type: ignore[no-untyped-call]
        return results
    return _by_blocks(graph, message, ways, own)


def at_once(graph: Graph, message: Network[Any], ways: Ways, own: Run) -> tuple[Tensor, ...]:
    """The results of a network, all edges together, by differentiable operations; ways = how each is combined."""
    parts = zip(message.on_edges(graph), ways, strict=True)
    return tuple(m if how is None else own(Collect(graph, m, how)) for m, how in parts)


def _suits_blocks(graph: Graph, message: Network[Any], ways: Ways) -> bool:
    """Whether blocks pay and give the same results: a block has no maximum of all edges, nor its dropout twice."""
    if is_traced() or message.dropout > 0 or not {"max", "min"}.isdisjoint(ways):
        return False
    return _fills_memory(graph, message) and not message.batch


def _fills_memory(graph: Graph, message: Network[Any]) -> bool:
    written = message.dtype.itemsize * graph.num_edges * sum(message.widths)
    return graph.device.type == "cpu" and graph.num_edges >= 2 * BLOCK and written > AT_ONCE


class _Block(NamedTuple):
    """Receivers from `start` on, as a graph, with the edges `edge`."""

    graph: Graph
    start: int
    edge: slice


@cached
def _blocks(graph: Graph, size: int) -> list[_Block]:
    number = graph.offsets[:-1] // size  # a receiver's edges stay together
    counts = number.unique_consecutive(return_counts=True)[1]
    bounds = [0, *counts.cumsum(0).tolist()]
    edge = graph.offsets[bounds].tolist()
    rows = zip(bounds, bounds[1:], edge, edge[1:], strict=False)
    return [_Block(graph.rows(start, stop), start, slice(first, last)) for start, stop, first, last in rows]


def _gathered(graph: Graph, edge: slice, tensors: Tensors) -> Iterator[Tensor | None]:
    """The rows of a block's edges, of a, b, e and s; the weights as they are."""
    for t, ends in zip(tensors, (graph.receivers, graph.senders), strict=False):
        yield None if t is None else t.index_select(0, ends[edge])
    yield from (None if t is None else t[edge] for t in tensors[2:4])
    yield from tensors[4:]


def _by_blocks(graph: Graph, message: Network[Any], ways: Ways, own: Run) -> tuple[Tensor, ...]:
    """The results without a gradient, a block after the other."""
    results: list[Tensor] = []
    for block in _blocks(graph, BLOCK):
        parts = message.with_tensors([*_gathered(graph, block.edge, message.tensors())]).results()
        for number, (m, how) in enumerate(zip(parts, ways, strict=True)):
            if len(results) == number:
                results.append(m.new_empty(graph.num_edges if how is None else graph.num_receivers, m.shape[-1]))
            start = block.edge.start if how is None else block.start
            y = m if how is None else own(Collect(block.graph, m, how))
            results[number][start : start + len(y)] = y
    return tuple(results)


class _Blocks(torch.autograd.Function):
    """`_by_blocks` with its gradient, which recomputes the messages."""

    @staticmethod
    def forward(
        ctx: Any, graph: Graph, message: Network[Any], ways: Ways, own: Run, *tensors: Tensor | None
    ) -> tuple[Tensor, ...]:
        ctx.call = graph, message.without_tensors(), ways, own
        ctx.save_for_backward(*tensors)
        ctx.set_materialize_grads(False)
        return _by_blocks(graph, message, ways, own)

    @staticmethod
    @in_own_dtypes
    def backward(ctx: Any, *dy: Tensor | None) -> tuple[Tensor | None, ...]:
        (graph, message, ways, own), tensors, wanted = ctx.call, ctx.saved_tensors, ctx.needs_input_grad[4:]
        if by_operations(*dy, *tensors):
            differentiable = gradients(
                lambda *fresh: at_once(graph, message.with_tensors(fresh), ways, own), tensors, dy
            )
            return None, None, None, None, *differentiable
        return None, None, None, None, *_gradients(graph, message, ways, tensors, wanted, dy)


def _gradients(
    graph: Graph, message: Network[Any], ways: Ways, tensors: Tensors, wanted: Sequence[bool], dy: Tensors
) -> list[Tensor | None]:
    """Gradients to the wanted tensors, a block after the other."""
    degree = graph.in_degrees().clamp(min=1).unsqueeze(-1) if "mean" in ways else None
    dy = [d / degree if d is not None and how == "mean" else d for d, how in zip(dy, ways, strict=True)]  # type: ignore[operator]
    totals = [torch.zeros_like(t) if t is not None and want else None for t, want in zip(tensors, wanted, strict=True)]
    for block in _blocks(graph, BLOCK):
        edge, ends = block.edge, (graph.receivers[block.edge], graph.senders[block.edge])
        rows = _gathered(graph, edge, tensors)
        leaves = [None if t is None else t.detach().requires_grad_(w) for t, w in zip(rows, wanted, strict=True)]
        with torch.enable_grad():
            parts = message.with_tensors(leaves).results()
        made = [(m, d, how) for m, d, how in zip(parts, dy, ways, strict=True) if d is not None and m.requires_grad]
        dm = [d[edge] if how is None else d.index_select(0, ends[0]) for _, d, how in made]
        inputs = [(number, t) for number, t in enumerate(leaves) if wanted[number] and t is not None]
        grads = torch.autograd.grad([m for m, *_ in made], [t for _, t in inputs], dm, allow_unused=True)
        for (number, _), grad in zip(inputs, grads, strict=True):
            total = totals[number]
            if grad is None or total is None:
                continue
            if number < 2:
                total.index_add_(0, ends[number], grad)
            elif number < 4:
                total[edge] = grad
            else:
                total += grad
    return totals
