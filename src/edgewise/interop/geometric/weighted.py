"""Twins of the layers whose messages are w_ij x_j: their own forward passes, or their maps first where they narrow."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from edgewise.graphs import Graph
from edgewise.graphs.tracing import is_traced
from edgewise.interop.geometric.edges import REDUCTIONS, graph_of, is_watched, refusal, rows_of
from edgewise.interop.geometric.features import is_linear, mapped, multiplies, product
from edgewise.interop.geometric.sums import normalised
from edgewise.interop.twin import Twin, is_plain
from edgewise.kernels import aggregate

Edges = Callable[[Any, Tensor, Tensor, Any], tuple[Graph, Tensor | None]]


@dataclass(frozen=True, eq=False)
class _Known:
    """The edges that a layer read last."""

    edge_index: Tensor
    version: int
    graph: Graph

    def is_of(self, edge_index: Tensor, senders: int, receivers: int) -> bool:
        own, graph = self.edge_index, self.graph
        if own.device != edge_index.device or own._version != self.version:
            return False
        return (graph.num_senders, graph.num_receivers) == (senders, receivers) and torch.equal(own, edge_index)


_last: WeakKeyDictionary[nn.Module, _Known] = WeakKeyDictionary()


def weighted(layer: Any, edge_index: Any, size: Any = None, *, x: Any = None, **given: Any) -> Any:
    """propagate: y_i = ⊕_j w_ij x_j, or ⊕_j x_j."""
    (name, weight) = next(iter(given.items()), ("edge_weight", None))
    x_j, x_i = x if isinstance(x, tuple | list) and len(x) == 2 else (x, None)
    tensors = [t for t in (edge_index, x_j, x_i, weight) if t is not None]
    if is_traced() or is_watched(layer) or len(given) > 1 or name not in ("edge_weight", "norm") or x_j is None:
        return NotImplemented
    if not is_plain(*tensors) or not x_j.is_floating_point() or x_j.dim() < 2 or edge_index.dim() != 2:
        return NotImplemented
    if weight is not None and (weight.dtype != x_j.dtype or weight.numel() != edge_index.size(1)):
        return NotImplemented
    senders = x_j.size(-2)
    receivers = senders if x_i is None else x_i.size(-2)
    if size is not None and tuple(size) != (senders, receivers):
        if x_i is not None or size[0] != senders or size[1] is None:
            return NotImplemented
        receivers = int(size[1])
    graph = _graph(layer, edge_index, senders, receivers)
    return aggregate(graph, x_j, None if weight is None else rows_of(graph, weight.flatten()), REDUCTIONS[layer.aggr])


def _graph(layer: nn.Module, edge_index: Tensor, senders: int, receivers: int) -> Graph:
    """That of an edge_index, which layers that normalise their edges make anew at every call: mostly the same ones."""
    graph = graph_of.found(edge_index, senders, receivers)
    if graph is not None:
        return graph
    for before in {id(known.graph): known for known in list(_last.values())}.values():
        if before.is_of(edge_index, senders, receivers):
            graph_of.put(before.graph, edge_index, senders, receivers)
            _last[layer] = before
            return before.graph
    graph = graph_of(edge_index, senders, receivers)
    if not edge_index.is_inference():
        _last[layer] = _Known(edge_index, edge_index._version, graph)
    return graph


def graph_conv(layer: Any, x: Any, edge_index: Any, edge_weight: Any = None, size: Any = None) -> Any:
    """GraphConv: y = W_1 ⊕_j w_ij x_j + b + W_2 x_i; sums and means run over W_1 x where that is the narrower."""
    found = messages(layer, x, edge_index, edge_weight, size)
    if found is None:
        return NotImplemented
    y, x_i = found
    return y if x_i is None else y + mapped(layer.lin_root, x_i)


def messages(
    layer: Any, x: Any, edge_index: Any, edge_weight: Any = None, size: Any = None
) -> tuple[Tensor, Tensor | None] | None:
    """What GraphConv adds to the map of its receivers, and these; None for a call that is left to it."""
    x_j, x_i = (x, x) if isinstance(x, Tensor) else x
    W = layer.lin_rel
    if not is_plain(x_j) or torch.is_autocast_enabled(x_j.device.type):
        return None
    first = REDUCTIONS[layer.aggr] in ("sum", "mean") and is_linear(W) and W.weight.shape[0] < W.weight.shape[1]
    rows = mapped(W, x_j, biased=False) if first else x_j
    y = weighted(layer, edge_index, size, x=(rows, x_i), edge_weight=edge_weight)
    if y is NotImplemented:
        return None
    y = W(y) if not first else y if W.bias is None else y + W.bias
    return y, x_i


def moving(layer: Any, x: Any, edge_index: Any, edge_weight: Any, edges: Edges = normalised) -> Any:
    """A as a function of rows of nodes.

    Symbols     edges = makes of the layer's arguments the graph and the weights that are A
    Edge cases  None for a call that is left to PyTorch Geometric
    """
    tensors = (x, edge_index) if edge_weight is None else (x, edge_index, edge_weight)
    if is_traced() or is_watched(layer) or not is_plain(*tensors) or not x.is_floating_point() or x.dim() < 2:
        return None
    if torch.is_autocast_enabled(x.device.type) or (edge_weight is not None and edge_weight.dtype != x.dtype):
        return None
    if edge_weight is not None and edge_weight.numel() != edge_index.size(1):
        return None
    graph, weight = edges(layer, x, edge_index, edge_weight)
    return lambda y: aggregate(graph, y, weight, REDUCTIONS[layer.aggr])


def appnp(layer: Any, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
    """APPNP: x ← (1 - α) A x + α h, K times from x = h; the weights are scaled once."""

    def edges(*given: Any) -> tuple[Graph, Tensor | None]:
        graph, weight = normalised(*given)
        return graph, None if weight is None else (1 - layer.alpha) * weight

    drops = layer.training and layer.dropout > 0
    if drops or not (layer.normalize or edge_weight is not None) or REDUCTIONS[layer.aggr] not in ("sum", "mean"):
        return NotImplemented
    A = moving(layer, x, edge_index, edge_weight, edges)
    if A is None:
        return NotImplemented
    h = layer.alpha * x
    for _ in range(layer.K):
        x = A(x).add_(h)
    return x


def light(layer: Any, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
    """LGConv: y = A x."""
    A = moving(layer, x, edge_index, edge_weight)
    return NotImplemented if A is None else A(x)


def narrowed(
    layer: Any,
    x: Any,
    edge_index: Any,
    edge_weight: Any,
    maps: Iterable[Any],
    edges: Edges = normalised,
    simple: Callable[[Any], bool] = multiplies,
) -> tuple[Any, ...] | None:
    """X W_k of each map, and A, for a layer that is Σ_k p_k(A) X W_k; None where X is no wider, and as `moving`.

    Symbols     simple = says which maps may be nothing but W_k here; a bias of theirs is left to the caller
    """
    maps = list(maps)
    if not all(map(simple, maps)) or REDUCTIONS[layer.aggr] not in ("sum", "mean") or not is_plain(x):
        return None
    widths = [len(W.weight) for W in maps]
    if sum(widths) > x.size(-1) or (A := moving(layer, x, edge_index, edge_weight, edges)) is None:
        return None
    return product(torch.cat([W.weight for W in maps]), x).split(widths, -1), A


def adaptive(layer: Any, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
    """TAGConv: y = Σ_k A^k X W_k + b = X W_0 + A (X W_1 + A (X W_2 + ...)) + b."""
    found = narrowed(layer, x, edge_index, edge_weight, layer.lins)
    if found is None:
        return NotImplemented
    (*terms, y), A = found
    for term in reversed(terms):
        y = A(y).add_(term)
    return y if layer.bias is None else y + layer.bias


def simple(layer: Any, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
    """SGConv: y = A^K X W + b, from the right."""
    found = None if layer.cached else narrowed(layer, x, edge_index, edge_weight, [layer.lin], simple=is_linear)
    if found is None:
        return NotImplemented
    (y,), A = found
    for _ in range(layer.K):
        y = A(y)
    return y if layer.lin.bias is None else y + layer.lin.bias


def spectral(layer: Any, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
    """SSGConv: y = (α + (1 - α) / K Σ_k A^k) Z + b = α Z + A (z + A (z + ...)) + b, Z = X W and z = (1 - α) Z / K."""
    found = (
        None
        if layer.cached or layer.K < 1
        else narrowed(layer, x, edge_index, edge_weight, [layer.lin], simple=is_linear)
    )
    if found is None:
        return NotImplemented
    (Z,), A = found
    y = z = Z * ((1 - layer.alpha) / layer.K)
    for _ in range(layer.K - 1):
        y = A(y).add_(z)
    y = A(y).add_(Z * layer.alpha)
    return y if layer.lin.bias is None else y + layer.lin.bias


def mixed(layer: Any, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
    """MixHopConv: y = ‖_p A^p X W_p + b; the columns of a power leave when they have it."""
    powers = sorted(set(layer.powers))
    found = narrowed(layer, x, edge_index, edge_weight, [layer.lins[p] for p in powers])
    if found is None:
        return NotImplemented
    columns, A = found
    done = dict(zip(powers, columns, strict=True))
    for step in range(1, powers[-1] + 1):
        left = [p for p in powers if p >= step]
        moved = A(torch.cat([done[p] for p in left], -1)).chunk(len(left), -1)
        done |= dict(zip(left, moved, strict=True))
    y = torch.cat([done[p] for p in layer.powers], -1)
    return y if layer.bias is None else y + layer.bias


def chebyshev(
    layer: Any, x: Any, edge_index: Any, edge_weight: Any = None, batch: Any = None, lambda_max: Any = None
) -> Any:
    """ChebConv: y = Σ_k T_k(L) X W_k + b, by Clenshaw's recurrence b_k = X W_k + 2 L b_{k+1} - b_{k+2}."""

    def edges(layer: Any, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> tuple[Graph, Tensor]:
        options = layer.normalization, lambda_max, x.dtype, batch
        edge_index, weight = layer.__norm__(edge_index, x.size(-2), edge_weight, *options)
        graph = _graph(layer, edge_index, x.size(-2), x.size(-2))
        return graph, rows_of(graph, weight)

    found = narrowed(layer, x, edge_index, edge_weight, layer.lins, edges)
    if found is None:
        return NotImplemented
    (y, *terms), L = found
    b, after = None, None
    for term in reversed(terms):
        now = term if b is None else term + 2 * L(b)
        b, after = (now if after is None else now - after), b
    if b is not None:
        y = y + L(b)
    if after is not None:
        y = y - after
    return y if layer.bias is None else y + layer.bias


def _own(layer: Any, *_: Any, **__: Any) -> Any:
    """PyTorch Geometric's forward pass, which calls `propagate`."""
    return NotImplemented


def _refusal(layer: Any) -> str | None:
    return f"node_dim={layer.node_dim}" if layer.node_dim != -2 else refusal(layer, *REDUCTIONS)


TWINS = {
    "APPNP": Twin(appnp, _refusal, propagate=weighted),
    "ChebConv": Twin(chebyshev, _refusal, propagate=weighted),
    "GraphConv": Twin(graph_conv, _refusal, propagate=weighted),
    "LGConv": Twin(light, _refusal, propagate=weighted),
    "MixHopConv": Twin(mixed, _refusal, propagate=weighted),
    "SGConv": Twin(simple, _refusal, propagate=weighted),
    "SSGConv": Twin(spectral, _refusal, propagate=weighted),
    "TAGConv": Twin(adaptive, _refusal, propagate=weighted),
    **{
        name: Twin(_own, _refusal, propagate=weighted)
        for name in (
            "ARMAConv", "ClusterGCNConv", "GCN2Conv", "LabelPropagation", "MFConv",
            "PDNConv", "SignedConv",
        )
    },
}  # fmt: skip
