"""Twins of the layers for edges of several types: relational graph convolution, heterogeneous graph transformers."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.graphs import Graph
from edgewise.graphs.derived import per_tensor
from edgewise.interop.geometric.edges import graph_of, is_watched, refusal
from edgewise.interop.twin import Twin, is_plain
from edgewise.kernels import aggregate, attend


@per_tensor
def _by_relation(edge_index: Tensor, edge_type: Tensor, senders: int, receivers: int, relations: int) -> Graph:
    """The graph in which sender r J + j is node j as relation r has it."""
    index = torch.stack([edge_type * senders + edge_index[0], edge_index[1]])
    return Graph.from_edge_index(index, relations * senders, receivers)


@per_tensor
def _relations(edge_index: Tensor, edge_type: Tensor, senders: int, receivers: int) -> Tensor:
    """The relation of each edge in the order of the graph of all edges."""
    return graph_of(edge_index, senders, receivers).sort_edges(edge_type)


@per_tensor
def _shares(receivers: Tensor, relations: Tensor, count: int, dtype: torch.dtype) -> Tensor:
    """For each edge one over the number of edges of its relation that its receiver has."""
    pair = receivers * count + relations
    return torch.bincount(pair).to(dtype).reciprocal()[pair] if len(pair) else pair.to(dtype)


def rgcn(layer: Any, x: Any, edge_index: Any, edge_type: Any = None) -> Any:
    """RGCNConv: y_i = Σ_r ⊕_{j ∈ N_r(i)} W_r x_j + W x_i + b, one sum over the senders of all relations.

    With bases W_r = Σ_b c_rb V_b an edge sums the V_b x_j with its relation's weights c_r, as heads; no W_r is made.
    """
    x_j, x_i = x if isinstance(x, tuple) else (x, x)
    if x_j is None:
        x_j = torch.arange(layer.in_channels_l, device=layer.weight.device)
        x_i = x_j if x_i is None else x_i
    if is_watched(layer) or not is_plain(x_j, x_i, edge_index, edge_type):
        return NotImplemented
    senders, receivers, mean = x_j.size(0), x_i.size(0), layer.aggr == "mean"
    if layer.num_bases is not None:
        graph = graph_of(edge_index, senders, receivers)
        relations = _relations(edge_index, edge_type, senders, receivers)
        weight = layer.comp.index_select(0, relations)
        if mean:
            shares = _shares(graph.receivers, relations, layer.num_relations, weight.dtype)
            weight = weight * shares.unsqueeze(-1)
        y = aggregate(graph, _mapped(layer, x_j).transpose(0, 1), weight).sum(-2)
    else:
        graph = _by_relation(edge_index, edge_type, senders, receivers, layer.num_relations)
        relations = graph.senders // max(1, senders)
        Wx = _mapped(layer, x_j).flatten(0, 1)  # [relations * senders, outputs]
        y = aggregate(graph, Wx, _shares(graph.receivers, relations, layer.num_relations, Wx.dtype) if mean else None)
    if layer.root is not None:
        y = y + (x_i @ layer.root if x_i.is_floating_point() else layer.root[x_i])
    return y if layer.bias is None else y + layer.bias


def _mapped(layer: Any, x: Tensor) -> Tensor:
    """W_r x for every relation r, or V_b x for every base, [relations, nodes, outputs]; rows where x numbers nodes."""
    W = layer.weight
    if layer.num_blocks is not None:
        return torch.einsum("nbc,rbcd->rnbd", x.unflatten(-1, W.shape[1:3]), W).flatten(-2)
    return x @ W if x.is_floating_point() else W[:, x]


def _refusal_of_rgcn(layer: Any) -> str | None:
    return refusal(layer, "add", "sum", "mean")


@per_tensor
def _joined(first: Tensor, *rest: Any) -> Graph:
    """The graph of several edge_index tensors, of senders and receivers that begin at offsets."""
    places, senders, receivers = rest[-3:]
    parts = [index + torch.tensor(at)[:, None] for index, at in zip((first, *rest[:-3]), places, strict=True)]
    return Graph.from_edge_index(torch.cat(parts, 1), senders, receivers)


def hgt(layer: Any, x_dict: Any, edge_index_dict: Any) -> Any:
    """HGTConv: attention to the senders of all types of edges at once; the prior μ of a type multiplies its keys."""
    if is_watched(layer) or not edge_index_dict or not is_plain(*edge_index_dict.values()):
        return NotImplemented
    heads = (-1, layer.heads, layer.out_channels // layer.heads)
    of_types = {kind: x.tensor_split(3, 1) for kind, x in layer.kqv_lin(x_dict).items()}
    k_dict, q_dict, v_dict = ({kind: x[part].view(heads) for kind, x in of_types.items()} for part in range(3))
    q, first_receiver = layer._cat(q_dict)
    k, v, first_sender = layer._construct_src_node_feat(k_dict, v_dict, edge_index_dict)
    counts = torch.tensor([len(k_dict[kind[0]]) for kind in edge_index_dict])
    prior = torch.cat([layer.p_rel["__".join(kind)] for kind in edge_index_dict])
    places = tuple((first_sender[kind], first_receiver[kind[-1]]) for kind in edge_index_dict)
    graph = _joined(*edge_index_dict.values(), places, len(k), len(q))
    k = k * prior.repeat_interleave(counts.to(prior.device), 0, output_size=len(k)).unsqueeze(-1)
    y = functional.gelu(attend(graph, q, k, v).flatten(-2))
    ends = {kind: y[at : at + len(q_dict[kind])] for kind, at in first_receiver.items() if kind in layer.dst_node_types}
    result = layer.out_lin(ends)
    return {kind: _beside_input(layer, result[kind], x_dict[kind], kind) for kind in ends}


def _beside_input(layer: Any, y: Tensor, x: Tensor, kind: str) -> Tensor:
    if y.size(-1) != x.size(-1):
        return y
    alpha = layer.skip[kind].sigmoid()
    return alpha * y + (1 - alpha) * x


def _refusal_of_hgt(layer: Any) -> str | None:
    return refusal(layer, "add", "sum")


TWINS = {
    "RGCNConv": Twin(rgcn, _refusal_of_rgcn),
    "FastRGCNConv": Twin(rgcn, _refusal_of_rgcn),
    "HGTConv": Twin(hgt, _refusal_of_hgt),
}
