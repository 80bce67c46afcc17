"""Twins of the layers that reduce over neighbours: mostly `propagate` alone, inside the layer's own forward pass."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.graphs import Graph
from edgewise.graphs.derived import per_tensor
from edgewise.interop.geometric.edges import (
    REDUCTIONS,
    columns_of,
    ends,
    graph_again,
    graph_of,
    has_rows,
    is_linear,
    refusal,
    rows_of,
    watched,
)
from edgewise.interop.twin import Twin, is_plain
from edgewise.kernels import EdgeInput, EdgeNetwork, Filter, aggregate, collect
from edgewise.kernels.messages import has_hooks
from edgewise.kernels.messages.network import as_function
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
    graph = graph_of(edge_index, x_j.size(0), x_i.size(0))
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


def weighted(layer: Any, edge_index: Any, size: Any = None, *, x: Any = None, **given: Any) -> Any:
    """propagate: y_i = ⊕_j w_ij x_j, or ⊕_j x_j."""
    name, weight = next(iter(given.items()), ("edge_weight", None))
    x_j, x_i = x if isinstance(x, tuple | list) and len(x) == 2 else (x, None)
    tensors = [t for t in (edge_index, x_j, x_i, weight) if t is not None]
    if len(given) > 1 or name not in ("edge_weight", "norm") or x_j is None or not is_plain(*tensors):
        return NotImplemented
    if not x_j.is_floating_point() or x_j.dim() < 2 or edge_index.dim() != 2:
        return NotImplemented
    if layer.node_dim not in (-2, x_j.dim() - 2):
        return NotImplemented
    if weight is not None and (weight.dtype != x_j.dtype or weight.numel() != edge_index.size(1)):
        return NotImplemented
    senders = x_j.size(-2)
    receivers = senders if x_i is None else x_i.size(-2)
    if size is not None and tuple(size) != (senders, receivers):
        if x_i is not None or size[0] != senders or size[1] is None:
            return NotImplemented
        receivers = int(size[1])
    graph = graph_again(layer, edge_index, senders, receivers)
    return aggregate(graph, x_j, None if weight is None else rows_of(graph, weight.flatten()), REDUCTIONS[layer.aggr])


def gcn(layer: Any, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Any:
    """GCNConv: y = D̃^-½ Ã D̃^-½ X W + b, whose weights are computed once for an edge_index and constant edge weights."""
    constant = edge_weight is None or not edge_weight.requires_grad
    if layer.cached or not layer.normalize or not constant or ends(layer, x, edge_index) is None:
        return NotImplemented
    if edge_weight is not None and (edge_weight.dtype != x.dtype or edge_weight.numel() != edge_index.size(1)):
        return NotImplemented
    graph, weight = _normalised(edge_index, edge_weight, len(x), layer.improved, layer.add_self_loops, x.dtype)
    y = aggregate(graph, layer.lin(x), weight, REDUCTIONS[layer.aggr])
    return y if layer.bias is None else y + layer.bias


@per_tensor
def _normalised(
    edge_index: Tensor, weight: Tensor | None, nodes: int, improved: bool, loops: bool, dtype: torch.dtype
) -> tuple[Graph, Tensor]:
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    with columns_of(edge_index, nodes, nodes):
        index, entries = gcn_norm(edge_index, weight, nodes, improved, loops, "source_to_target", dtype)
    graph = Graph.from_edge_index(index, nodes, nodes)
    return graph, graph.sort_edges(entries.flatten()).to(dtype)


def sage(layer: Any, x: Any, edge_index: Any, size: Any = None) -> Any:
    """SAGEConv: y = W_l ⊕_j x_j + b + W_r x_i, or ⊕_j W_l x_j + b + W_r x_i where that moves fewer numbers."""
    W, both = layer.lin_l, ends(layer, x, edge_index, size)
    if both is None or not is_linear(W):
        return NotImplemented
    x_j, x_i = both
    x_j = layer.lin(x_j).relu() if layer.project else x_j
    graph, how = graph_of(edge_index, x_j.size(0), x_i.size(0)), REDUCTIONS[layer.aggr]
    # Features without a gradient are summed in the forward pass alone.
    passes = 1 if x_j.requires_grad or not (torch.is_grad_enabled() and W.weight.requires_grad) else 2
    if how in ("sum", "mean") and W.weight.size(0) * passes < W.weight.size(1):
        y = aggregate(graph, functional.linear(x_j, W.weight), reduce=how)
        y = y if W.bias is None else y + W.bias.to(y.dtype)
    else:
        y = functional.linear(aggregate(graph, x_j, reduce=how), W.weight, W.bias)
    y = y + layer.lin_r(x_i) if layer.root_weight else y
    return functional.normalize(y, p=2.0, dim=-1) if layer.normalize else y


def gine(layer: Any, edge_index: Any, size: Any = None, *, x: Any, edge_attr: Any) -> Any:
    """propagate of GINEConv: ⊕_j ReLU(x_j + W e_ij + b)."""
    read = _read(layer, edge_index, size, x, edge_attr)
    if read is None or edge_attr is None:
        return NotImplemented
    graph, x_j, _ = read
    if edge_attr.size(-1) != x_j.size(-1) if layer.lin is None else not is_linear(layer.lin):
        return NotImplemented
    e = rows_of(graph, edge_attr)
    if layer.lin is None:
        m_ij: Any = functional.relu(x_j.index_select(0, graph.senders) + e)
    else:
        edge = (layer.lin.weight, layer.lin.bias)
        m_ij = EdgeNetwork((), functional.relu, senders=x_j, edges=EdgeInput(edge, e), activated=True)
    return collect(graph, m_ij, REDUCTIONS[layer.aggr])


def _read(layer: Any, edge_index: Any, size: Any, x: Any, e: Any) -> tuple[Graph, Tensor, Tensor] | None:
    """The graph, x of the senders and of the receivers; None for a call that is left to PyTorch Geometric."""
    both = ends(layer, x, edge_index, size)
    if both is None or not (e is None or (is_plain(e) and e.dim() == 2 and has_rows(edge_index, e))):
        return None
    return graph_of(edge_index, both[0].size(0), both[1].size(0)), *both


def gen(layer: Any, edge_index: Any, size: Any = None, *, x: Any, edge_attr: Any) -> Any:
    """propagate of GENConv: ⊕_j m_ij for m_ij = ReLU(x_j + W e_ij) + ε, or Σ_j m_ij exp(t m_ij) / Σ_j exp(t m_ij)."""
    read = _read(layer, edge_index, size, x, edge_attr)
    if read is None:
        return NotImplemented
    graph, x_j, _ = read
    m_ij = x_j.index_select(0, graph.senders)
    if edge_attr is not None:
        e = rows_of(graph, edge_attr)
        m_ij = m_ij + (layer.lin_edge(e) if hasattr(layer, "lin_edge") else e)
    m_ij = m_ij.relu() + layer.eps
    if layer.aggr != "softmax":
        return collect(graph, m_ij, REDUCTIONS[layer.aggr])
    softmax = layer.aggr_module
    s_ij = m_ij * softmax.t
    s_ij = s_ij.detach() if softmax.semi_grad else s_ij
    top = collect(graph, s_ij.detach(), "max").index_select(0, graph.receivers)
    w_ij = (s_ij - top).exp()
    return collect(graph, w_ij * m_ij) / (collect(graph, w_ij) + 1e-16)


def cg(layer: Any, edge_index: Any, size: Any = None, *, x: Any, edge_attr: Any) -> Any:
    """propagate of CGConv: ⊕_j σ(W_f z_ij + b_f) softplus(W_s z_ij + b_s), z_ij = x_i ‖ x_j ‖ e_ij; nodes are mapped
    before edges read them."""
    read, maps = _read(layer, edge_index, size, x, edge_attr), (layer.lin_f, layer.lin_s)
    if read is None or not all(map(is_linear, maps)):
        return NotImplemented
    graph, x_j, x_i = read
    W = torch.cat([lin.weight for lin in maps]).split([x_i.size(1), x_j.size(1), layer.dim], 1)
    b = None if layer.lin_f.bias is None else torch.cat([lin.bias for lin in maps])
    a_i, a_j = functional.linear(x_i, W[0], b), functional.linear(x_j, W[1])
    z_ij = a_i.index_select(0, graph.receivers) + a_j.index_select(0, graph.senders)
    z_ij = z_ij if edge_attr is None else z_ij + functional.linear(rows_of(graph, edge_attr), W[2])
    f, s = z_ij.chunk(2, -1)
    return collect(graph, f.sigmoid() * functional.softplus(s), REDUCTIONS[layer.aggr])


def gated(layer: Any, edge_index: Any, size: Any = None, *, k: Any, q: Any, v: Any, edge_attr: Any) -> Any:
    """propagate of ResGatedGraphConv: ⊕_j σ(k_i + q_j) v_j, maps of x and e_ij apart where there are e_ij."""
    read, maps = _read(layer, edge_index, size, (q, k), edge_attr), (layer.lin_key, layer.lin_query, layer.lin_value)
    if read is None or not is_plain(v) or (edge_attr is None) != (layer.edge_dim is None):
        return NotImplemented
    (graph, q, k), how, act = read, REDUCTIONS[layer.aggr], as_function(layer.act)
    if edge_attr is None and act is not layer.act:
        return collect(graph, Filter(EdgeNetwork((), act, receivers=k, senders=q, activated=True), v), how)
    e_ij: Any = (0.0, 0.0)
    if edge_attr is not None:
        if not all(map(is_linear, maps)):
            return NotImplemented
        key, query, value = (lin.weight[:, -layer.edge_dim :] for lin in maps)
        e_ij = functional.linear(rows_of(graph, edge_attr), torch.cat([key + query, value])).chunk(2, -1)
        k, q, v = (
            functional.linear(x, lin.weight[:, : x.size(1)], lin.bias) for x, lin in zip((k, q, v), maps, strict=True)
        )
    z_ij = k.index_select(0, graph.receivers) + q.index_select(0, graph.senders) + e_ij[0]
    return collect(graph, layer.act(z_ij) * (v.index_select(0, graph.senders) + e_ij[1]), how)


def edge_conditioned(layer: Any, edge_index: Any, size: Any = None, *, x: Any, edge_attr: Any) -> Any:
    """propagate of NNConv: ⊕_j x_j W(e_ij), with W(e_ij) = Σ_k h_k(e_ij) W_k: Σ_k (⊕_j h_k(e_ij) x_j) W_k."""
    read = _read(layer, edge_index, size, x, edge_attr)
    parts: list[Any] = list(layer.nn) if type(layer.nn) is nn.Sequential else [layer.nn]
    if read is None or edge_attr is None or not parts or not is_linear(parts[-1]) or has_hooks(layer.nn):
        return NotImplemented
    (graph, x_j, _), h, last = read, edge_attr, parts.pop()
    if torch.is_autocast_enabled(h.device.type) or len(last.weight) != x_j.size(1) * layer.out_channels:
        return NotImplemented
    for part in parts:
        h = part(h)
    W = last.weight if last.bias is None else torch.cat([last.weight, last.bias.unsqueeze(1)], 1)
    h = h if last.bias is None else functional.pad(h, (0, 1), value=1.0)
    hx = aggregate(graph, x_j.unsqueeze(1).expand(-1, h.size(1), -1), graph.sort_edges(h), REDUCTIONS[layer.aggr])
    return hx.flatten(1) @ W.view(x_j.size(1), layer.out_channels, -1).permute(2, 0, 1).flatten(0, 1)


def pna(layer: Any, edge_index: Any, *, x: Any, edge_attr: Any = None) -> Any:
    """propagate of PNAConv: s_1 r_i ‖ s_2 r_i ‖ ... of each tower, r_i several reductions of A x_i + B x_j + C e_ij.

    Nodes are mapped before they are reduced, for a reduction of a_i + b_j is a_i and that of b_j.
    """
    F, T = layer.F_in, layer.towers
    pre = [tower[0] for tower in layer.pre_nns]
    tensors = (x, edge_index) if edge_attr is None else (x, edge_index, edge_attr)
    if not is_plain(*tensors) or x.dim() != 3 or not all(map(_is_affine, pre)):
        return NotImplemented
    if torch.is_autocast_enabled(x.device.type):
        return NotImplemented
    if edge_attr is not None and not (
        edge_attr.dim() == 2 and has_rows(edge_index, edge_attr) and layer.edge_dim and _is_affine(layer.edge_encoder)
    ):
        return NotImplemented
    graph = graph_of(edge_index, len(x), len(x))
    W = torch.stack([first.weight for first in pre])  # [T, F, 2 F or 3 F]
    a, b = torch.einsum("ntf,tgf->ntg", x, torch.cat([W[..., :F], W[..., F : 2 * F]], 1)).split(F, -1)  # [N, T, F]
    a, m = a + torch.stack([first.bias for first in pre]), b.flatten(1)
    if edge_attr is not None:
        e_ij = layer.edge_encoder(rows_of(graph, edge_attr))
        m = m.index_select(0, graph.senders) + functional.linear(e_ij, W[..., 2 * F :].flatten(0, 1))
    degrees = graph.in_degrees().to(x.dtype).view(-1, 1, 1)

    def reduced(values: Tensor, how: str) -> Tensor:
        r = aggregate(graph, values, reduce=how) if edge_attr is None else collect(graph, values, how)
        return r.unflatten(-1, (T, F))

    def one(how: str) -> Tensor:
        if how not in ("var", "std"):
            return reduced(m, how) + a * (degrees if how == "sum" else degrees.clamp(max=1))
        variance = reduced(m * m, "mean") - reduced(m, "mean").square()
        if how == "var":
            return variance
        deviation = variance.clamp(min=1e-5).sqrt()
        return deviation.masked_fill(deviation <= 1e-5**0.5, 0.0)

    scaling = layer.aggr_module
    r = torch.cat([one(_name(part)) for part in scaling.aggr.aggrs], -1)
    return torch.cat([r if name == "identity" else r * _SCALES[name](degrees, scaling) for name in scaling.scaler], -1)


def _is_affine(layer: Any) -> bool:
    return is_linear(layer) and layer.bias is not None


_SCALES: dict[str, Any] = {
    "amplification": lambda degrees, scaling: (degrees + 1).log() / scaling.avg_deg_log,
    "attenuation": lambda degrees, scaling: scaling.avg_deg_log / (degrees.clamp(min=1) + 1).log(),
    "linear": lambda degrees, scaling: degrees / scaling.avg_deg_lin,
    "inverse_linear": lambda degrees, scaling: scaling.avg_deg_lin / degrees.clamp(min=1),
}


def _name(aggregation: Any) -> str:
    return type(aggregation).__name__.removesuffix("Aggregation").lower()


def _refusal_of_pna(layer: Any) -> str | None:
    known, scaling = {"sum", "mean", "max", "min", "var", "std"}, layer.aggr_module
    if layer.flow != "source_to_target":
        return f"flow={layer.flow!r}"
    if any(len(tower) > 1 for tower in layer.pre_nns):
        return f"pre_layers={(len(layer.pre_nns[0]) + 1) // 2}"
    names = [_name(part) for part in getattr(getattr(scaling, "aggr", None), "aggrs", ())]
    if not names or not known.issuperset(names) or scaling.aggr.mode != "cat":
        return f"aggregators={names}"
    if any(getattr(getattr(part, "var_aggr", part), "semi_grad", False) for part in scaling.aggr.aggrs):
        return "semi_grad=True"
    return watched(layer)


_any, _sums = partial(refusal, reductions=tuple(REDUCTIONS)), partial(refusal, reductions=("add", "sum", "mean"))
_softmax = partial(refusal, reductions=(*REDUCTIONS, "softmax"))
PROPAGATED = (
    "APPNP", "ARMAConv", "ChebConv", "ClusterGCNConv", "GatedGraphConv", "GCN2Conv", "GINConv", "GraphConv",
    "LabelPropagation", "LGConv", "MFConv", "MixHopConv", "PDNConv", "SGConv", "SignedConv", "SSGConv", "TAGConv",
)  # fmt: skip
# With the number of edges from which on a twin is the faster where they are new at each step, forward and backward: on
# one core of an AMD EPYC (Zen 3), 4 edges a node, 64 → 32 channels.
TWINS = {
    **{name: Twin(None, _any, weighted, least=6_000) for name in PROPAGATED},
    "GCNConv": Twin(gcn, _any, weighted, least=3_000),
    "SAGEConv": Twin(sage, _any, weighted, least=6_000),
    "GINEConv": Twin(None, _any, gine, least=10_000),
    "GENConv": Twin(None, _softmax, gen, least=8_000),
    "CGConv": Twin(None, _any, cg, least=4_000),
    "ResGatedGraphConv": Twin(None, _any, gated, least=8_000),
    "NNConv": Twin(None, _sums, edge_conditioned, least=300),
    "PNAConv": Twin(None, _refusal_of_pna, pna, least=1_000),
    **{name: Twin(rgcn, _sums, least=10_000) for name in ("RGCNConv", "FastRGCNConv")},
}
