"""Twins of relational graph convolutions: one sum over the senders of all relations."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs.derived import per_tensor
from edgewise.interop.geometric.edges import graph_of, refusal
from edgewise.interop.twin import Twin, is_plain
from edgewise.kernels import aggregate
from edgewise.layers.relational.types import Pairs, grouped, pairs, reads, shares


@per_tensor
def _relations(edge_index: Tensor, edge_type: Tensor, senders: int, receivers: int) -> Tensor:
    """The relation of each edge in the order of the graph of all edges."""
    return graph_of(edge_index, senders, receivers).sort_edges(edge_type)


def rgcn(layer: Any, x: Any, edge_index: Any, edge_type: Any = None) -> Any:
    """RGCNConv: y_i = Σ_r ⊕_{j ∈ N_r(i)} W_r x_j + W x_i + b; each pair of a relation and a sender is mapped once."""
    everyone = torch.arange(layer.in_channels_l, device=layer.weight.device)
    x_j, x_i = x if isinstance(x, tuple) else (x, everyone if x is None else x)
    x_j = everyone if x_j is None else x_j
    if not is_plain(x_j, x_i, edge_index, edge_type) or max(x_j.dim(), x_i.dim()) > 2 or not edge_index.numel():
        return NotImplemented
    if layer.num_blocks is not None and not x_j.is_floating_point():
        return NotImplemented
    graph = graph_of(edge_index, len(x_j), len(x_i))
    relations = _relations(edge_index, edge_type, len(x_j), len(x_i))
    sending = pairs(relations, graph.senders, len(x_j), layer.num_relations)
    Wx = _mapped(layer, x_j, sending)
    paths = reads(sending.place, graph.receivers, (len(Wx), len(x_i)))
    weight = None
    if layer.aggr == "mean":
        weight = paths.sort_edges(shares(relations, graph.receivers, layer.num_relations, Wx.dtype))
    y = aggregate(paths, Wx, weight)
    if type(layer).__name__ == "RGCNConv":
        y = y.to(torch.promote_types(y.dtype, torch.get_default_dtype()))  # to whose zeros it adds
    if layer.root is not None:
        y = y + (x_i @ layer.root if x_i.is_floating_point() else layer.root[x_i])
    return y if layer.bias is None else y + layer.bias


def _mapped(layer: Any, x: Tensor, sending: Pairs) -> Tensor:
    """W_r x_j of each pair; the rows of W_r where x numbers nodes."""
    W: Tensor = layer.weight
    if layer.num_bases is not None:
        W = torch.einsum("rb,bio->rio", layer.comp, W)
    nodes: Graph = sending.rows
    if not x.is_floating_point():
        of = torch.arange(len(W), device=x.device).repeat_interleave(torch.tensor(sending.counts, device=x.device))
        return W[of, x[nodes.senders]]
    rows = aggregate(nodes, x)
    return grouped(rows if W.dim() == 3 else rows.unflatten(-1, W.shape[1:3]), W.mT, sending.counts).flatten(1)


def _refusal(layer: Any) -> str | None:
    return refusal(layer, "add", "sum", "mean")


TWINS = {"RGCNConv": Twin(rgcn, _refusal), "FastRGCNConv": Twin(rgcn, _refusal)}
