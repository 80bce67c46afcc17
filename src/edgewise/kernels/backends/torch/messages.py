"""Records of messages spelt out: networks by PyTorch, all edges at once; sums by the calling backend."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.kernels.backend import Cost
from edgewise.kernels.call import Aggregate, Call, Collect
from edgewise.kernels.messages import EdgeNetwork, Filter, Message, Network, TensorProduct, edges_as_senders

# Of a network: passes over the numbers of a layer; bytes for an edge; what part of each product counts; and launches.
# All fitted
PASSES, EDGE, PRODUCT, CALL = 2.7, 900, 0.65, 8.4

Run = Callable[[Call], Any]
Ways = Sequence[str | None]


def run(call: Collect, own: Run) -> Tensor | tuple[Tensor, ...]:
    """A record by `own`, which runs an `Aggregate`, and a `Collect` of tensors or of a network."""
    graph, message = call.graph, call.message
    if isinstance(message, Network):
        return written_out(graph, message, call.reduce, lambda graph, m_ij, how: own(Collect(graph, m_ij, how)))
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


def written_out(
    graph: Graph, message: Message[Any], reduce: str | None, combine: Callable[[Graph, Tensor, str], Tensor]
) -> Tensor | tuple[Tensor, ...]:
    """A record as its equation has it, all edges at once; combine(graph, m_ij, reduce) = the messages by receiver."""
    if isinstance(message, Filter) and message.both_ways:
        ways = message.directions(graph, message.weights(graph))
        there, back = (combine(way, one.on_edges(way)[0], "sum") for way, one in ways)
        return there + back
    parts = zip(message.on_edges(graph), message.reductions(reduce), strict=False)
    results = tuple(m if how is None else combine(graph, m, how) for m, how in parts)
    return results if message.several else results[0]


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
    return Cost(
        flops=int(2 * PRODUCT * edges * network.products),
        gathered=int(edges * (PASSES * size * sum(network.widths) + EDGE)),
        largest=size * edges * max(network.widths),
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


def at_once(graph: Graph, message: Network[Any], ways: Ways, own: Run) -> tuple[Tensor, ...]:
    """The results of a network, all edges together, by differentiable operations; ways = how each is combined."""
    parts = zip(message.on_edges(graph), ways, strict=True)
    return tuple(m if how is None else own(Collect(graph, m, how)) for m, how in parts)
