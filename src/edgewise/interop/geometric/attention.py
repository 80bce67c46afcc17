"""Twins of the layers that attend to neighbours: GAT, GATv2, transformers, HGT, and GPS, which holds one that does."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.graphs import Graph
from edgewise.graphs.derived import per_tensor
from edgewise.interop import modules
from edgewise.interop.geometric.edges import (
    constant_looped_rows,
    ends,
    graph_again,
    graph_of,
    has_rows,
    is_linear,
    looped,
    looped_rows,
    refusal,
    rows_of,
)
from edgewise.interop.twin import Twin, is_plain
from edgewise.kernels import Additive, Dot, EdgeBias, EdgeInput, EdgeVectors, GatedAdditive, Score, Uniform, attend
from edgewise.kernels.messages import has_hooks


def gat(
    layer: Any, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None, return_attention_weights: Any = None
) -> Any:
    """GATConv: s_ij = LeakyReLU(a_dst · W x_i + a_src · W x_j + a_edge · W_e e_ij)."""
    both = ends(layer, x, edge_index, size)
    if both is None or not _reads(layer, edge_index, edge_attr, return_attention_weights):
        return NotImplemented
    heads, (x_j, x_i) = (-1, layer.heads, layer.out_channels), both
    if layer.lin is not None:
        v = layer.lin(x_j).view(heads)
        q = v if x_i is x_j else layer.lin(x_i).view(heads)
    else:
        v, q = layer.lin_src(x_j).view(heads), layer.lin_dst(x_i).view(heads)
    graph, e = _edges(layer, edge_index, v, q, edge_attr)
    a_i, a_j, k = layer.att_dst[0], layer.att_src[0], v
    score: Score = Additive(layer.negative_slope, a_i, a_j)
    if e is not None:
        q, k, score = Additive(layer.negative_slope, a_i, a_j).as_sums(q, k)
        W_e = layer.lin_edge.weight.unflatten(0, heads[1:]) * layer.att_edge[0].unsqueeze(-1)
        score = score + EdgeVectors(EdgeInput((W_e.sum(1), None), e))
    y = _finished(layer, graph, (q, k, v), score, x_i)
    return _weighed(y, return_attention_weights, layer, x, edge_index, edge_attr, size)


def gatv2(layer: Any, x: Any, edge_index: Any, edge_attr: Any = None, return_attention_weights: Any = None) -> Any:
    """GATv2Conv: s_ij = a · LeakyReLU(W_r x_i + W_l x_j + W_e e_ij)."""
    both = ends(layer, x, edge_index)
    if both is None or not _reads(layer, edge_index, edge_attr, return_attention_weights):
        return NotImplemented
    if edge_attr is not None and layer.lin_edge is None:  # which GATConv ignores, and GATv2Conv refuses
        return NotImplemented
    (x_j, x_i), heads = both, (-1, layer.heads, layer.out_channels)
    k = layer.lin_l(x_j).view(heads)
    q = k if layer.share_weights and x_i is x_j else layer.lin_r(x_i).view(heads)
    graph, e = _edges(layer, edge_index, k, q, edge_attr)
    score: Score = GatedAdditive(layer.att[0], layer.negative_slope)
    if e is not None:
        score = score + EdgeVectors(EdgeInput((layer.lin_edge.weight, None), e))
    y = _finished(layer, graph, (q, k, k), score, x_i)
    return _weighed(y, return_attention_weights, layer, x, edge_index, edge_attr)


def _edges(layer: Any, edge_index: Tensor, v: Tensor, q: Tensor, e: Tensor | None) -> tuple[Graph, Tensor | None]:
    """The graph, with self-loops where the layer adds them, and its edges' features, where the layer reads them."""
    nodes, fill = (v.size(0), q.size(0)), layer.fill_value
    graph = (looped if layer.add_self_loops else graph_of)(edge_index, *nodes)
    if e is None or layer.lin_edge is None:
        return graph, None
    e = e.view(-1, 1) if e.dim() == 1 else e
    if not layer.add_self_loops:
        return graph, rows_of(graph, e)
    varies = e.requires_grad or isinstance(fill, Tensor)
    return graph, (looped_rows if varies else constant_looped_rows)(e, edge_index, *nodes, fill)


def _finished(layer: Any, graph: Graph, qkv: tuple[Tensor, Tensor, Tensor], score: Score, x_i: Tensor) -> Tensor:
    """Attention, its heads joined, residual and bias."""
    y = attend(graph, *qkv, score, dropout=layer.dropout if layer.training else 0.0)
    y = y.flatten(-2) if layer.concat else y.mean(-2)
    y = y if layer.res is None else y + layer.res(x_i)
    y = y if layer.bias is None else y + layer.bias
    return y.to(torch.promote_types(y.dtype, next(layer.parameters()).dtype))  # as products with a vector have it


def transformer(
    layer: Any, x: Any, edge_index: Any, edge_attr: Any = None, return_attention_weights: Any = None
) -> Any:
    """TransformerConv: s_ij = (W_q x_i) · (W_k x_j + W_e e_ij) / √C, summing W_v x_j + W_e e_ij."""
    both = ends(layer, x, edge_index)
    if both is None or not _reads(layer, edge_index, edge_attr, return_attention_weights):
        return NotImplemented
    if (edge_attr is None) != (layer.lin_edge is None):
        return NotImplemented
    (x_j, x_i), heads = both, (-1, layer.heads, layer.out_channels)
    q, k, v = layer.lin_query(x_i).view(heads), layer.lin_key(x_j).view(heads), layer.lin_value(x_j).view(heads)
    graph, score = graph_of(edge_index, x_j.size(0), x_i.size(0)), Dot()
    if edge_attr is not None:
        e_ij = EdgeInput((layer.lin_edge.weight, None), rows_of(graph, edge_attr))
        score = score + EdgeVectors(e_ij, e_ij)
    y = attend(graph, q, k, v, score, dropout=layer.dropout if layer.training else 0.0)
    y = y.flatten(-2) if layer.concat else y.mean(-2)
    if layer.root_weight and layer.lin_beta is None:
        y = y + layer.lin_skip(x_i)
    elif layer.root_weight:
        root = layer.lin_skip(x_i)
        beta = layer.lin_beta(torch.cat([y, root, y - root], -1)).sigmoid()
        y = beta * root + (1 - beta) * y
    return _weighed(y, return_attention_weights, layer, x, edge_index, edge_attr)


def _weighed(y: Tensor, asked: Any, layer: Any, *given: Any) -> Any:
    """What a layer returns: where a call asks for attention weights, also those of its own code."""
    own = None if asked is None else type(layer).twin_of.forward(layer, *given, return_attention_weights=asked)
    return (y, own[1]) if isinstance(own, tuple) else y


def hgt(layer: Any, edge_index: Any, *, k: Any, q: Any, v: Any, edge_attr: Any) -> Any:
    """propagate of HGTConv: attention over all types of edges at once.

    A sender has a row for each type of its edges, so the prior μ of a type is one of rows, and multiplies their keys.
    """
    if not is_plain(edge_index, k, q, v, edge_attr):
        return NotImplemented
    count = k.new_ones(edge_index.size(1)).new_zeros(len(k)).index_add(0, edge_index[0], k.new_ones(edge_index.size(1)))
    mu = edge_attr.new_zeros(len(k), edge_attr.size(1)).index_add(0, edge_index[0], edge_attr)
    graph = graph_again(layer, edge_index, len(k), len(q))
    return attend(graph, q, k * (mu / count.clamp(min=1).unsqueeze(-1)).unsqueeze(-1), v).flatten(-2)


def supergat(layer: Any, edge_index: Any, size: Any = None, *, x: Any) -> Any:
    """propagate of SuperGATConv: s_ij = LeakyReLU((a_l · x_j + a_r · x_i) σ(x_i · x_j)), or of x_i · x_j / √C."""
    if not is_plain(edge_index, x) or size is not None or (layer.training and layer.dropout >= 1):
        return NotImplemented
    graph = graph_again(layer, edge_index, len(x), len(x))
    s_ij = (x.index_select(0, graph.receivers) * x.index_select(0, graph.senders)).sum(-1)
    if layer.attention_type == "MX":
        a_i, a_j = ((x * a).sum(-1) for a in (layer.att_r, layer.att_l))
        s_ij = s_ij.sigmoid() * (a_i.index_select(0, graph.receivers) + a_j.index_select(0, graph.senders))
    else:
        s_ij = s_ij / layer.out_channels**0.5
    score = Uniform() + EdgeBias(functional.leaky_relu(s_ij, layer.negative_slope))
    return attend(graph, None, None, x, score, dropout=layer.dropout if layer.training else 0.0)


def _reads(layer: Any, edge_index: Tensor, edge_attr: Any, asked: Any) -> bool:
    """Whether edges have a row of features each, whose map, if it is called, is nothing but its weight; and whether
    dropout leaves anything, and draws nothing where a call asks for the weights."""
    if layer.training and layer.dropout and (asked is not None or layer.dropout >= 1):
        return False
    if edge_attr is None:
        return True
    plain = layer.lin_edge is None or (is_linear(layer.lin_edge) and layer.lin_edge.bias is None)
    return plain and is_plain(edge_attr) and has_rows(edge_index, edge_attr)


@per_tensor
def pairs_of(batch: Tensor) -> Graph | None:
    """The graph in which the nodes of each graph attend to one another; None where these do not lie together.

    Shapes      batch [N] integers, the number of each node's graph
    """
    if batch.dim() != 1 or batch.dtype is not torch.int64 or bool((batch.diff() < 0).any()):
        return None
    sizes = batch.unique_consecutive(return_counts=True)[1]
    stops = sizes.cumsum(0)
    starts, stops = (t.repeat_interleave(sizes)[:, None] for t in (stops - sizes, stops))
    return Graph.from_ranges(starts, stops, len(batch))


def gps(layer: Any, x: Any, edge_index: Any, batch: Any = None, **named: Any) -> Any:
    """GPSConv: y = n_3(h + MLP(h)) with h = n_1(x + MPNN(x)) + n_2(x + ATT(x)), ATT among the nodes of each graph."""
    if not is_plain(x) or x.dim() != 2 or (batch is not None and (not is_plain(batch) or len(batch) != len(x))):
        return NotImplemented
    graph = modules.all_pairs(len(x), len(x), x.device) if batch is None else pairs_of(batch)
    if graph is None:
        return NotImplemented
    h = _normalised(layer, layer.norm2, modules.among(layer.attn, graph, x), x, batch)
    if layer.conv is not None:
        h = _normalised(layer, layer.norm1, layer.conv(x, edge_index, **named), x, batch) + h
    y = h + layer.mlp(h)
    return y if layer.norm3 is None else _call(layer, layer.norm3, y, batch)


def _normalised(layer: Any, norm: Any, h: Tensor, x: Tensor, batch: Any) -> Any:
    h = functional.dropout(h, layer.dropout, layer.training) + x
    return h if norm is None else _call(layer, norm, h, batch)


def _call(layer: Any, norm: Any, h: Tensor, batch: Any) -> Any:
    return norm(h, batch=batch) if layer.norm_with_batch else norm(h)


def _refusal_of_gps(layer: Any) -> str | None:
    attn = layer.attn
    if getattr(type(attn), "twin_of", type(attn)) is not nn.MultiheadAttention:
        return f"attn_type={layer.attn_type!r}"
    if has_hooks(attn) or (attn.training and attn.dropout >= 1):
        return "hooks of its attention" if has_hooks(attn) else "dropout=1"
    return modules.TWINS["MultiheadAttention"].refusal(attn)


_refusal = partial(refusal, reductions=("add", "sum"))
TWINS = {
    "GATConv": Twin(gat, _refusal, least=1_500),
    "GATv2Conv": Twin(gatv2, _refusal, least=1_000),
    "TransformerConv": Twin(transformer, _refusal, least=1_000),
    "SuperGATConv": Twin(None, _refusal, supergat, least=4_000),
    "HGTConv": Twin(None, _refusal, hgt),
    "GPSConv": Twin(gps, _refusal_of_gps),
}
