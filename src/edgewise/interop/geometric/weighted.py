"""Twins of the layers whose messages are w_ij x_j, computed inside PyTorch Geometric's own forward passes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from edgewise.graphs import Graph
from edgewise.graphs.tracing import is_traced
from edgewise.interop.geometric.edges import REDUCTIONS, graph_of, is_watched, refusal, rows_of
from edgewise.interop.geometric.features import is_linear, mapped
from edgewise.interop.geometric.sums import normalised
from edgewise.interop.twin import Twin, is_plain
from edgewise.kernels import aggregate


@dataclass(frozen=True, eq=False)
class _Known:
    """The edges that a layer read last."""

    edge_index: Tensor
    version: int
    graph: Graph

    def is_of(self, edge_index: Tensor, senders: int, receivers: int) -> bool:
        own, graph = self.edge_index, self.graph
        same = own.device == edge_index.device and own._version == self.version
        return (
            same and (graph.num_senders, graph.num_receivers) == (senders, receivers) and torch.equal(own, edge_index)
        )


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
    x = (x, x) if isinstance(x, Tensor) else x
    W, R = layer.lin_rel, layer.lin_root
    if layer.aggr == "max" or layer.aggr == "min" or not is_linear(W) or W.weight.shape[0] >= W.weight.shape[1]:
        return NotImplemented
    if not is_plain(x[0]) or torch.is_autocast_enabled(x[0].device.type):
        return NotImplemented
    y = weighted(layer, edge_index, size, x=(mapped(W, x[0], biased=False), x[1]), edge_weight=edge_weight)
    if y is NotImplemented:
        return y
    y = y if W.bias is None else y + W.bias
    return y if x[1] is None else y + mapped(R, x[1])


def appnp(layer: Any, x: Any, edge_index: Any, edge_weight: Any = None) -> Any:
    """APPNP: x ← (1 - α) ⊕_j w_ij x_j + α h, K times from x = h; the weights are scaled once."""
    if is_traced() or not is_plain(x, edge_index, *(() if edge_weight is None else (edge_weight,))) or x.dim() < 2:
        return NotImplemented
    reduce = REDUCTIONS[layer.aggr]
    if is_watched(layer) or not x.is_floating_point() or (layer.training and layer.dropout > 0):
        return NotImplemented
    if reduce not in ("sum", "mean"):
        return NotImplemented
    graph, weight = normalised(layer, x, edge_index, edge_weight)
    if weight is None or weight.dtype != x.dtype or torch.is_autocast_enabled(x.device.type):
        return NotImplemented
    weight, h = (1 - layer.alpha) * weight, layer.alpha * x
    for _ in range(layer.K):
        x = aggregate(graph, x, weight, reduce).add_(h)
    return x


def _own(layer: Any, *_: Any, **__: Any) -> Any:
    """PyTorch Geometric's forward pass, which calls `propagate`."""
    return NotImplemented


def _refusal(layer: Any) -> str | None:
    return f"node_dim={layer.node_dim}" if layer.node_dim != -2 else refusal(layer, *REDUCTIONS)


TWINS = {
    "APPNP": Twin(appnp, _refusal, propagate=weighted),
    "GraphConv": Twin(graph_conv, _refusal, propagate=weighted),
    **{
        name: Twin(_own, _refusal, propagate=weighted)
        for name in (
            "ARMAConv", "ChebConv", "ClusterGCNConv", "GCN2Conv", "LabelPropagation", "LGConv", "MFConv",
            "MixHopConv", "PDNConv", "SGConv", "SSGConv", "SignedConv", "TAGConv",
        )
    },
}  # fmt: skip
