"""Twins of the layers that attend to neighbours: GAT, GATv2 and the graph transformer."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.interop.dropout import leaving
from edgewise.interop.geometric.edges import callers, graph_of, has_rows, looped, looped_rows, refusal, rows_of, sides
from edgewise.interop.geometric.features import mapped, multiplies
from edgewise.interop.twin import Twin
from edgewise.kernels import Additive, Dot, EdgeInput, EdgeVectors, GatedAdditive, Score, attend

FEW = 1  # edges for each node, up to which their own rows are fewer products than those of queries and sums


def flat_sides(layer: Any, x: Any, edge_index: Any, size: Any = None) -> tuple[Tensor, Tensor] | None:
    """`sides` of a single graph: these layers refuse an axis in front, several signals on one graph."""
    both = sides(layer, x, edge_index, size)
    return None if both is None or any(t.dim() != 2 for t in both) else both


@leaving
def gat(
    layer: Any, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None, return_attention_weights: Any = None
) -> Any:
    """GATConv: s_ij = LeakyReLU(a_dst · W x_i + a_src · W x_j + a_edge · W_e e_ij)."""
    both = flat_sides(layer, x, edge_index, size)
    if both is None or _is_dropped(layer, return_attention_weights) or not _reads(layer, edge_index, edge_attr):
        return NotImplemented
    heads, x_j, x_i = (-1, layer.heads, layer.out_channels), *both
    if layer.lin is not None:
        v = mapped(layer.lin, x_j).view(heads)
        q = v if x_i is x_j else mapped(layer.lin, x_i).view(heads)
    else:
        v, q = mapped(layer.lin_src, x_j).view(heads), mapped(layer.lin_dst, x_i).view(heads)
    graph, e = _edges(layer, edge_index, v, q, edge_attr)
    a_i, a_j, k = layer.att_dst[0], layer.att_src[0], v
    score: Score = Additive(layer.negative_slope, a_i, a_j)
    if e is not None:
        q, k, score = Additive(layer.negative_slope, a_i, a_j).as_sums(q, k)
        W_e = layer.lin_edge.weight.unflatten(0, heads[1:]) * layer.att_edge[0].unsqueeze(-1)
        score = score + EdgeVectors(EdgeInput((W_e.sum(1), None), e))
    y = _finished(layer, graph, (q, k, v), score, x_i, edge_index, return_attention_weights)
    return _promoted(y, a_j)


@leaving
def gatv2(layer: Any, x: Any, edge_index: Any, edge_attr: Any = None, return_attention_weights: Any = None) -> Any:
    """GATv2Conv: s_ij = a · LeakyReLU(W_r x_i + W_l x_j + W_e e_ij)."""
    both = flat_sides(layer, x, edge_index)
    if both is None or _is_dropped(layer, return_attention_weights) or not _reads(layer, edge_index, edge_attr):
        return NotImplemented
    if edge_attr is not None and layer.lin_edge is None:  # which GATConv ignores, and GATv2Conv refuses
        return NotImplemented
    (x_j, x_i), heads = both, (-1, layer.heads, layer.out_channels)
    k = mapped(layer.lin_l, x_j).view(heads)
    q = k if layer.share_weights and x_i is x_j else mapped(layer.lin_r, x_i).view(heads)
    graph, e = _edges(layer, edge_index, k, q, edge_attr)
    score: Score = GatedAdditive(layer.att[0], layer.negative_slope)
    if e is not None:
        score = score + EdgeVectors(EdgeInput((layer.lin_edge.weight, None), e))
    y = _finished(layer, graph, (q, k, k), score, x_i, edge_index, return_attention_weights)
    return _promoted(y, layer.att)


def _edges(layer: Any, edge_index: Tensor, v: Tensor, q: Tensor, e: Tensor | None) -> tuple[Graph, Tensor | None]:
    """The graph, with self-loops where the layer adds them, and its edges' features, where the layer reads them."""
    nodes = v.size(0), q.size(0)
    graph = (looped if layer.add_self_loops else graph_of)(edge_index, *nodes)
    if e is None or layer.lin_edge is None:
        return graph, None
    e = e.view(-1, 1) if e.dim() == 1 else e
    return graph, looped_rows(graph, e, edge_index, layer.fill_value) if layer.add_self_loops else rows_of(graph, e)


def _finished(
    layer: Any, graph: Graph, ends: tuple[Tensor, Tensor, Tensor], score: Score, x_i: Tensor, edge_index: Tensor, p: Any
) -> Any:
    """Attention, its heads joined, residual and bias; with the weights where they are asked for."""
    dropout = layer.dropout if layer.training else 0.0
    alpha = None
    if p:
        y, alpha = attend(graph, *ends, score, return_weights=True)
    else:
        y = attend(graph, *ends, score, dropout=dropout)
    y = y.flatten(-2) if layer.concat else y.mean(-2)
    y = y if layer.res is None else y + layer.res(x_i)
    y = y if layer.bias is None else y + layer.bias
    if alpha is None:
        return y
    if layer.add_self_loops:
        from torch_geometric.utils import add_self_loops, remove_self_loops

        loops = min(graph.num_senders, graph.num_receivers)
        edge_index = add_self_loops(remove_self_loops(edge_index)[0], num_nodes=loops)[0]
    return y, (edge_index, callers(graph, alpha))


def _promoted(y: Any, a: Tensor) -> Any:
    """In the dtype that PyTorch's operations with the scores' vector give: under autocast, the wider one."""
    if isinstance(y, tuple):
        return _promoted(y[0], a), (y[1][0], _promoted(y[1][1], a))
    return y.to(torch.promote_types(y.dtype, a.dtype))


@leaving
def transformer(
    layer: Any, x: Any, edge_index: Any, edge_attr: Any = None, return_attention_weights: Any = None
) -> Any:
    """TransformerConv: s_ij = (W_q x_i) · (W_k x_j + W_e e_ij) / √C, summing W_v x_j + W_e e_ij."""
    both = flat_sides(layer, x, edge_index)
    if both is None or _is_dropped(layer, False) or (edge_attr is None) != (layer.lin_edge is None):
        return NotImplemented
    if not _reads(layer, edge_index, edge_attr):
        return NotImplemented
    (x_j, x_i), heads = both, (-1, layer.heads, layer.out_channels)
    q, k, v = (
        mapped(W, t).view(heads) for W, t in ((layer.lin_query, x_i), (layer.lin_key, x_j), (layer.lin_value, x_j))
    )
    graph, score = graph_of(edge_index, x_j.size(0), x_i.size(0)), Dot()
    if edge_attr is not None:
        e: Any = rows_of(graph, edge_attr)
        few = graph.num_edges <= FEW * (graph.num_receivers + graph.num_senders)
        e_ij = layer.lin_edge(e).view(heads) if few else EdgeInput((layer.lin_edge.weight, None), e)
        score = score + EdgeVectors(e_ij, e_ij)
    dropout, alpha = layer.dropout if layer.training else 0.0, None
    if isinstance(return_attention_weights, bool):
        y, alpha = attend(graph, q, k, v, score, dropout=dropout, return_weights=True)
        alpha = alpha.to(y.dtype)
    else:
        y = attend(graph, q, k, v, score, dropout=dropout)
    y = y.flatten(-2) if layer.concat else y.mean(-2)
    y = _beside_root(layer, y, x_i) if layer.root_weight else y
    return y if alpha is None else (y, (edge_index, callers(graph, alpha)))


def _beside_root(layer: Any, y: Tensor, x_i: Tensor) -> Tensor:
    root = mapped(layer.lin_skip, x_i)
    if layer.lin_beta is None:
        return y + root
    beta = layer.lin_beta(torch.cat([y, root, y - root], -1)).sigmoid()
    return beta * root + (1 - beta) * y


def _is_dropped(layer: Any, weights: Any) -> bool:
    """Whether dropout leaves nothing, or weights are asked for that it has changed: `attend` does neither."""
    return layer.training and (layer.dropout >= 1 or (bool(weights) and layer.dropout > 0))


def _reads(layer: Any, edge_index: Tensor, edge_attr: Any) -> bool:
    """Whether edges have a row of features each, whose map, if it is called, is nothing but its weight."""
    if edge_attr is None:
        return True
    return has_rows(edge_index, edge_attr) and (layer.lin_edge is None or multiplies(layer.lin_edge))


def _refusal(layer: Any) -> str | None:
    return refusal(layer, "add", "sum")


TWINS = {
    "GATConv": Twin(gat, _refusal),
    "GATv2Conv": Twin(gatv2, _refusal),
    "TransformerConv": Twin(transformer, _refusal),
}
