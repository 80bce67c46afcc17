"""Twins of the layers for edges of several types: relational graph convolution, heterogeneous graph transformers."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.graphs import Graph
from edgewise.graphs.derived import per_tensor
from edgewise.graphs.tracing import is_traced
from edgewise.interop.dropout import leaving
from edgewise.interop.geometric.edges import graph_of, is_watched, refusal
from edgewise.interop.twin import Twin, is_plain
from edgewise.kernels import aggregate, attend
from edgewise.kernels.messages import has_hooks
from edgewise.layers.relational.types import Pairs, grouped, pairs, reads, shares

FEW = 0.7  # of all pairs of a relation and a sender, below which each has a row of its own; measured with 10 relations


@per_tensor
def _by_relation(edge_index: Tensor, edge_type: Tensor, senders: int, receivers: int, relations: int) -> Graph:
    """The graph in which sender r J + j is node j as relation r has it."""
    index = torch.stack([edge_type * senders + edge_index[0], edge_index[1]])
    return Graph.from_edge_index(index, relations * senders, receivers)


@per_tensor
def _relations(edge_index: Tensor, edge_type: Tensor, senders: int, receivers: int) -> Tensor:
    """The relation of each edge in the order of the graph of all edges."""
    return graph_of(edge_index, senders, receivers).sort_edges(edge_type)


@leaving
def rgcn(layer: Any, x: Any, edge_index: Any, edge_type: Any = None) -> Any:
    """RGCNConv: y_i = Σ_r ⊕_{j ∈ N_r(i)} W_r x_j + W x_i + b, one sum over the senders of all relations.

    With bases W_r = Σ_b c_rb V_b an edge sums the V_b x_j with its relation's weights c_r; no W_r is made.
    """
    x_j, x_i = x if isinstance(x, tuple) else (x, x)
    every, own = x_j is None, x_j is None and x_i is None  # the rows of the weights themselves, in their order
    if every:
        x_j = torch.arange(layer.in_channels_l, device=layer.weight.device)
        x_i = x_j if own else x_i
    if every and layer.num_blocks is not None:
        return NotImplemented
    if is_watched(layer) or not is_plain(x_j, x_i, edge_index, edge_type) or max(x_j.dim(), x_i.dim()) > 2:
        return NotImplemented
    senders, receivers, mean = x_j.size(0), x_i.size(0), layer.aggr == "mean"
    if layer.num_bases is not None:
        graph = graph_of(edge_index, senders, receivers)
        relations = _relations(edge_index, edge_type, senders, receivers)
        weight = layer.comp.index_select(0, relations)
        if mean:
            weight = weight * shares(relations, graph.receivers, layer.num_relations, weight.dtype).unsqueeze(-1)
        rows = _by_bases(layer.weight, None if every else x_j)
        y = aggregate(graph, rows, weight).sum(-2)
    elif (
        not every
        and x_j.is_floating_point()
        and (fewer := _few_pairs(layer, edge_index, edge_type, senders, receivers))
    ):
        y = _of_pairs(layer, x_j, *fewer, mean)
    else:
        graph = _by_relation(edge_index, edge_type, senders, receivers, layer.num_relations)
        relations = graph.senders // max(1, senders)
        Wx = _mapped(layer, None if every else x_j).flatten(0, 1)  # [relations * senders, outputs]
        y = aggregate(graph, Wx, shares(relations, graph.receivers, layer.num_relations, Wx.dtype) if mean else None)
    if type(layer).twin_of.__name__ == "RGCNConv":
        y = y.to(torch.promote_types(y.dtype, torch.get_default_dtype()))  # to whose zeros it adds
    if layer.root is not None:
        y = y + (layer.root if own else x_i @ layer.root if x_i.is_floating_point() else layer.root[x_i])
    return y if layer.bias is None else y + layer.bias


def _few_pairs(
    layer: Any, edge_index: Tensor, edge_type: Tensor, senders: int, receivers: int
) -> tuple[Graph, Tensor, Pairs] | None:
    """The graph, its edges' relations and the pairs of a relation and a sender, where edges have the fewer of these."""
    graph = graph_of(edge_index, senders, receivers)
    relations = _relations(edge_index, edge_type, senders, receivers)
    if is_traced() or layer.num_relations == 1 or not graph.num_edges:
        return None
    sending = pairs(relations, graph.senders, senders, layer.num_relations)
    return (graph, relations, sending) if sending.rows.num_receivers <= FEW * layer.num_relations * senders else None


def _of_pairs(layer: Any, x: Tensor, graph: Graph, relations: Tensor, sending: Pairs, mean: bool) -> Tensor:
    """Σ_r ⊕_{j ∈ N_r(i)} W_r x_j, each pair of a relation and a sender through its matrix or blocks, once."""
    W: Tensor = layer.weight
    rows = aggregate(sending.rows, x)
    blocks = rows if W.dim() == 3 else rows.unflatten(-1, W.shape[1:3])
    Wx = grouped(blocks, W.mT, sending.counts).flatten(1)
    paths = reads(sending.place, graph.receivers, (sending.rows.num_receivers, graph.num_receivers))
    if not mean:
        return aggregate(paths, Wx)
    return aggregate(paths, Wx, paths.sort_edges(shares(relations, graph.receivers, layer.num_relations, Wx.dtype)))


def _by_bases(V: Tensor, x: Tensor | None) -> Tensor:
    """V_b x for every base b, [nodes, bases, outputs]; rows where x numbers nodes, and None numbers all of them."""
    if x is None or not x.is_floating_point():
        return (V if x is None else V[:, x]).transpose(0, 1)
    return (x @ V.transpose(0, 1).flatten(1)).unflatten(-1, V.shape[::2])


def _mapped(layer: Any, x: Tensor | None) -> Tensor:
    """W_r x for every relation r, [relations, nodes, outputs]; rows where x numbers nodes; None numbers all of them."""
    W: Tensor = layer.weight
    if x is None:
        return W
    if layer.num_blocks is not None:
        return torch.einsum("nbc,rbcd->rnbd", x.unflatten(-1, W.shape[1:3]), W).flatten(-2)
    return x @ W if x.is_floating_point() else W[:, x]


def _refusal_of_rgcn(layer: Any) -> str | None:
    return refusal(layer, "add", "sum", "mean")


@per_tensor
def _joined(first: Tensor, *rest: Any) -> Graph:
    """The graph of several edge_index tensors, of senders and receivers that begin at offsets."""
    places, senders, receivers = rest[-3:]
    parts = [index + index.new_tensor(at)[:, None] for index, at in zip((first, *rest[:-3]), places, strict=True)]
    return Graph.from_edge_index(torch.cat(parts, 1), senders, receivers)


@leaving
def hgt(layer: Any, x_dict: Any, edge_index_dict: Any) -> Any:
    """HGTConv: attention to the senders of all types of edges at once; the prior μ of a type multiplies its keys."""
    if is_watched(layer) or not edge_index_dict or not is_plain(*edge_index_dict.values()):
        return NotImplemented
    if has_hooks(layer.k_rel) or has_hooks(layer.v_rel):
        return NotImplemented
    heads = (-1, layer.heads, layer.out_channels // layer.heads)
    of_types = {kind: x.chunk(3, 1) for kind, x in layer.kqv_lin(x_dict).items()}
    k_dict, q_dict, v_dict = ({kind: x[part].view(heads) for kind, x in of_types.items()} for part in range(3))
    q, first_receiver = layer._cat(q_dict)
    priors = {kind: layer.p_rel["__".join(kind)].view(-1, 1, 1) for kind in edge_index_dict}
    k = torch.cat([_of_edges(layer, layer.k_rel.weight, k_dict, kind, mu) for kind, mu in priors.items()])
    v = torch.cat([_of_edges(layer, layer.v_rel.weight, v_dict, kind) for kind in edge_index_dict])
    first_sender = list(accumulate((len(k_dict[kind[0]]) for kind in edge_index_dict), initial=0))
    places = tuple((at, first_receiver[kind[-1]]) for at, kind in zip(first_sender, edge_index_dict, strict=False))
    graph = _joined(*edge_index_dict.values(), places, len(k), len(q))
    y = functional.gelu(attend(graph, q, k, v).flatten(-2))
    parts = dict(zip(q_dict, y.split([len(q_k) for q_k in q_dict.values()]), strict=True))
    ends = {kind: part for kind, part in parts.items() if kind in layer.dst_node_types}
    result = layer.out_lin(ends)
    return {kind: _beside_input(layer, result[kind], x_dict[kind], kind) for kind in ends}


def _of_edges(layer: Any, weight: Tensor, of_nodes: Any, kind: Any, prior: Tensor | None = None) -> Tensor:
    """The senders' keys or values as edges of one type have them, W_type,h for each head: [J, H, C] -> [J, H, C]."""
    W = weight.unflatten(0, (layer.heads, -1))[:, layer.edge_types_map[kind]]  # [H, C, C]
    return (of_nodes[kind[0]].transpose(0, 1) @ (W if prior is None else W * prior)).transpose(0, 1)


def _beside_input(layer: Any, y: Tensor, x: Tensor, kind: str) -> Tensor:
    if y.size(-1) != x.size(-1):
        return y
    alpha = layer.skip[kind].sigmoid()
    return alpha * y + (1 - alpha) * x


def _refusal_of_hgt(layer: Any) -> str | None:
    for name in ("k_rel", "v_rel"):
        if getattr(getattr(layer, name), "bias", None) is not None:
            return f"{name} with a bias"
    return refusal(layer, "add", "sum")


TWINS = {
    "RGCNConv": Twin(rgcn, _refusal_of_rgcn),
    "FastRGCNConv": Twin(rgcn, _refusal_of_rgcn),
    "HGTConv": Twin(hgt, _refusal_of_hgt),
}
