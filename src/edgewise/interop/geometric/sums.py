"""Twins of the layers that sum, average or maximise over neighbours: GCN, SAGE, GIN, GINE, PNA and gated networks."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.graphs import Graph
from edgewise.graphs.derived import per_tensor
from edgewise.graphs.tracing import is_traced
from edgewise.interop.dropout import leaving, unwatched
from edgewise.interop.geometric.batches import affine, convolved, fits, heard, sums_first
from edgewise.interop.geometric.edges import (
    REDUCTIONS,
    graph_of,
    has_rows,
    is_watched,
    looped,
    refusal,
    rows_of,
    sides,
)
from edgewise.interop.geometric.features import is_linear, kept, known, mapped, multiplies
from edgewise.interop.later.pairs import table
from edgewise.interop.later.tensor import ordinary
from edgewise.interop.twin import Twin, is_plain
from edgewise.kernels import EdgeInput, EdgeNetwork, aggregate, collect


@leaving
def gcn(layer: Any, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Any:
    """GCNConv: y = D̃^-½ Ã D̃^-½ X W + b, the product with the fewer columns last."""
    if isinstance(x, tuple | list) or sides(layer, x, edge_index) is None:
        return NotImplemented
    if edge_weight is not None and edge_weight.dtype != x.dtype:  # PyTorch Geometric's result has the wider one
        return NotImplemented
    if edge_weight is not None and edge_weight.numel() != edge_index.size(1):
        return NotImplemented
    graph, weight = normalised(layer, x, edge_index, edge_weight)
    reduce = REDUCTIONS[layer.aggr]
    if reduce in ("sum", "mean") and 0 < layer.in_channels < layer.out_channels and multiplies(layer.lin):
        sums = kept(graph, edge_index, x, reduce, weight)
        y = layer.lin(aggregate(graph, x, weight, reduce) if sums is None else sums)
        y = y if weight is None else y.to(torch.promote_types(y.dtype, weight.dtype))  # under autocast it is narrower
    else:
        y = aggregate(graph, mapped(layer.lin, x), weight, reduce)
    if reduce in ("sum", "mean"):
        return table(y, layer.bias)
    return y if layer.bias is None else y + layer.bias


def normalised(layer: Any, x: Tensor, edge_index: Tensor, weight: Tensor | None) -> tuple[Graph, Tensor | None]:
    """The graph that the options of a layer like GCNConv make of its edges, and the weights of its edges."""
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    nodes, loops = x.size(-2), getattr(layer, "add_self_loops", False)
    if not getattr(layer, "normalize", True):
        graph = graph_of(edge_index, nodes, nodes)
        return graph, None if weight is None else rows_of(graph, weight.flatten()).to(x.dtype)
    options = (nodes, getattr(layer, "improved", False), loops)
    if getattr(layer, "cached", False):
        if layer._cached_edge_index is None:
            layer._cached_edge_index = gcn_norm(edge_index, weight, *options, layer.flow, x.dtype)
        edge_index, weight = layer._cached_edge_index
        graph = graph_of(edge_index, nodes, nodes)
        return graph, rows_of(graph, weight.flatten())
    graph = (looped if loops else graph_of)(edge_index, nodes, nodes)
    constant = weight is None or not weight.requires_grad
    return graph, (_kept_entries if constant else _entries)(edge_index, weight, x.dtype, *options)


def _entries(
    edge_index: Tensor, weight: Tensor | None, dtype: torch.dtype, nodes: int, two: bool, loops: bool
) -> Tensor:
    from torch_geometric.nn.conv.gcn_conv import gcn_norm

    entries = gcn_norm(edge_index, weight, nodes, two, loops, "source_to_target", dtype)[1]
    return (looped if loops else graph_of)(edge_index, nodes, nodes).sort_edges(entries.flatten()).to(dtype)


_kept_entries = per_tensor(_entries)


@leaving
def sage(layer: Any, x: Any, edge_index: Any, size: Any = None) -> Any:
    """SAGEConv: y = W_l ⊕_j x_j + b + W_r x_i, where sums and means run over the narrower of x and W_l x."""
    both = sides(layer, x, edge_index, size)
    if both is None or _is_unknown(layer.lin_l):
        return NotImplemented
    x_j, x_i = both
    graph = graph_of(edge_index, x_j.size(-2), x_i.size(-2))
    x_j = layer.lin(x_j).relu() if layer.project else x_j
    y = _sage(layer, graph, edge_index, x_j, x_i)
    return functional.normalize(y, p=2.0, dim=-1) if layer.normalize else y


def _sage(layer: Any, graph: Graph, edge_index: Tensor, x_j: Tensor, x_i: Tensor) -> Tensor:
    W, reduce = layer.lin_l, REDUCTIONS[layer.aggr]
    R: Any = layer.lin_r if layer.root_weight else None
    narrowed = _narrows(layer)
    if _at_once(W, R, x_j, x_i):
        if (sums := kept(graph, edge_index, x_j, reduce)) is not None:
            return affine(ordinary(x_i), R.weight, W.bias, W.weight, sums[: heard(graph).num_receivers])
        narrowed = narrowed and (x_j.requires_grad or not sums_first(graph, x_j, W.weight.shape[0]))
        if x_i is x_j and reduce in ("sum", "mean"):
            return convolved(graph, reduce, not narrowed, x_j, W.weight, W.bias, R.weight)
        x_j, x_i = ordinary(x_j), ordinary(x_i)
        if not narrowed:
            return affine(x_i, R.weight, W.bias, W.weight, aggregate(heard(graph), x_j, reduce=reduce))
        return affine(x_i, R.weight, W.bias) + aggregate(graph, affine(x_j, W.weight, None), reduce=reduce)
    y = _summed(layer, graph, ordinary(x_j), narrowed)
    return y if R is None else y + mapped(R, ordinary(x_i))


def messages(layer: Any, x: Any, edge_index: Any, size: Any = None) -> tuple[Tensor, Tensor] | None:
    """What SAGEConv adds to the map of its receivers, and these; None for a call that is left to it."""
    both = sides(layer, x, edge_index, size)
    if both is None or _is_unknown(layer.lin_l):
        return None
    x_j, x_i = map(ordinary, both)
    graph, W, reduce = graph_of(edge_index, x_j.size(-2), x_i.size(-2)), layer.lin_l, REDUCTIONS[layer.aggr]
    x_j = layer.lin(x_j).relu() if layer.project else x_j
    narrowed = _narrows(layer)
    if is_linear(W) and fits(x_j, W.weight) and not x_j.requires_grad and known(x_j) is None:
        if (sums := kept(graph, edge_index, x_j, reduce)) is not None:
            return functional.linear(sums, W.weight, W.bias), x_i
        narrowed = narrowed and not sums_first(graph, x_j, W.weight.shape[0])
    return _summed(layer, graph, x_j, narrowed), x_i


def _narrows(layer: Any) -> bool:
    """Whether the map of the messages has fewer outputs than inputs, and may come before their sum."""
    W = layer.lin_l
    return REDUCTIONS[layer.aggr] in ("sum", "mean") and is_linear(W) and W.weight.shape[0] < W.weight.shape[1]


def _summed(layer: Any, graph: Graph, x_j: Tensor, narrowed: bool) -> Tensor:
    """W ⊕_j x_j + b, or ⊕_j W x_j + b."""
    W, reduce = layer.lin_l, REDUCTIONS[layer.aggr]
    if not narrowed:
        y: Tensor = W(aggregate(graph, x_j, reduce=reduce))
        return y
    y = aggregate(graph, mapped(W, x_j, biased=False), reduce=reduce)
    return y if W.bias is None else y + W.bias.to(y.dtype)


def _is_unknown(linear: Any) -> bool:
    return isinstance(getattr(linear, "weight", None), nn.parameter.UninitializedParameter)


def _at_once(W: Any, R: Any, *sides: Tensor) -> bool:
    """Whether both maps of a SAGEConv do nothing but multiply, and their features are dense."""
    if R is None or not is_linear(W) or not multiplies(R):
        return False
    return fits(*sides, W.weight, R.weight) and all(known(x) is None for x in dict.fromkeys(sides))


def gin(layer: Any, x: Any, edge_index: Any, size: Any = None) -> Any:
    """GINConv: y = MLP((1 + ε) x_i + Σ_j x_j)."""
    s = unwatched(_gin, layer, x, edge_index, size)
    return s if s is NotImplemented else layer.nn(s)


def _gin(layer: Any, x: Any, edge_index: Any, size: Any) -> Any:
    both = sides(layer, x, edge_index, size)
    if both is None:
        return NotImplemented
    x_j, x_i = both
    graph, reduce = graph_of(edge_index, x_j.size(-2), x_i.size(-2)), REDUCTIONS[layer.aggr]
    return aggregate(graph, x_j, reduce=reduce) + (1 + layer.eps) * x_i


def gine(layer: Any, x: Any, edge_index: Any, edge_attr: Any = None, size: Any = None) -> Any:
    """GINEConv: y = MLP((1 + ε) x_i + Σ_j ReLU(x_j + W e_ij + b))."""
    s = unwatched(_gine, layer, x, edge_index, edge_attr, size)
    return s if s is NotImplemented else layer.nn(s)


def _gine(layer: Any, x: Any, edge_index: Any, edge_attr: Any, size: Any) -> Any:
    both = sides(layer, x, edge_index, size)
    if both is None or not is_plain(edge_attr) or edge_attr.dim() != 2 or not has_rows(edge_index, edge_attr):
        return NotImplemented
    x_j, x_i = both
    read = edge_attr.size(-1) == x_j.size(-1) if layer.lin is None else is_linear(layer.lin)
    if not read:
        return NotImplemented
    graph = graph_of(edge_index, x_j.size(-2), x_i.size(-2))
    reduce, edge = REDUCTIONS[layer.aggr], None if layer.lin is None else (layer.lin.weight, layer.lin.bias)
    e = rows_of(graph, edge_attr)
    if edge is None:
        m_ij: Any = functional.relu(x_j.index_select(-2, graph.senders) + e)
    else:
        m_ij = EdgeNetwork((), functional.relu, senders=x_j, edges=EdgeInput(edge, e), activated=True)
    return collect(graph, m_ij, reduce) + (1 + layer.eps) * x_i


def gated(layer: Any, x: Any, edge_index: Any, edge_weight: Tensor | None = None) -> Any:
    """GatedGraphConv: x_i ← GRU(Σ_j w_ij W_t x_j, x_i), for t = 1, ..., T."""
    if sides(layer, x, edge_index) is None or x.size(-1) > layer.out_channels:
        return NotImplemented
    if edge_weight is not None and edge_weight.numel() != edge_index.size(1):
        return NotImplemented
    graph = graph_of(edge_index, x.size(0), x.size(0))
    weight = None if edge_weight is None else rows_of(graph, edge_weight.flatten()).to(x.dtype)
    x = functional.pad(x, (0, layer.out_channels - x.size(-1)))
    for W in layer.weight:
        x = layer.rnn(aggregate(graph, x @ W, weight, REDUCTIONS[layer.aggr]), x)
    return x


@leaving
def pna(layer: Any, x: Any, edge_index: Any, edge_attr: Any = None) -> Any:
    """PNAConv: W (x_i ‖ s_1 r_i ‖ s_2 r_i ‖ ...) of each tower, r_i several reductions of A x_i + B x_j + C e_ij.

    Nodes are mapped before they are reduced, for a reduction of a_i + b_j is a_i and that of b_j; the scales s, which
    follow from the degree, come after W.
    """
    F, T = layer.F_in, layer.towers
    tensors = (x, edge_index) if edge_attr is None else (x, edge_index, edge_attr)
    pre, post = ([tower[0] for tower in towers] for towers in (layer.pre_nns, layer.post_nns))
    if is_traced() or is_watched(layer) or not is_plain(*tensors) or not x.is_floating_point() or x.dim() != 2:
        return NotImplemented
    if not all(map(_is_affine, (*pre, *post))) or torch.is_autocast_enabled(x.device.type):
        return NotImplemented
    if edge_attr is not None and (edge_attr.dim() != 2 or layer.edge_dim is None or not _is_affine(layer.edge_encoder)):
        return NotImplemented
    if edge_attr is not None and not has_rows(edge_index, edge_attr):
        return NotImplemented
    graph = graph_of(edge_index, len(x), len(x))
    W = torch.stack([first.weight for first in pre])  # [T, F, 2 F or 3 F]
    x = x.unflatten(-1, (T, F)).transpose(0, 1) if layer.divide_input else x
    a, b = (x @ torch.cat([W[..., :F], W[..., F : 2 * F]], 1).mT).split(F, -1)  # [T, N, F]
    a, m = a + torch.stack([first.bias for first in pre]).unsqueeze(1), b.transpose(0, 1).flatten(1)
    if edge_attr is not None:
        C = W[..., 2 * F :].flatten(0, 1)
        c = functional.linear(rows_of(graph, edge_attr), C @ layer.edge_encoder.weight, C @ layer.edge_encoder.bias)
        m = m.index_select(0, graph.senders) + c
    degrees = graph.in_degrees().to(x.dtype).unsqueeze(-1)

    def reduced(values: Tensor, how: str) -> Tensor:
        r = aggregate(graph, values, reduce=how) if edge_attr is None else collect(graph, values, how)
        return r.unflatten(-1, (T, F)).transpose(0, 1)

    def one(how: str) -> Tensor:
        if how not in ("var", "std"):
            return reduced(m, how) + a * (degrees if how == "sum" else degrees.clamp(max=1))
        variance = reduced(m * m, "mean") - reduced(m, "mean").square()
        if how == "var":
            return variance
        deviation = variance.clamp(min=1e-5).sqrt()
        return deviation.masked_fill(deviation <= math.sqrt(1e-5), 0.0)

    scaling = layer.aggr_module
    r = torch.cat([one(_name(part)) for part in scaling.aggr.aggrs], -1)
    s = [_SCALES[name](degrees, scaling) for name in scaling.scaler]
    V = torch.stack([first.weight for first in post])  # [T, outputs, F + scales · reductions · F]
    y = x @ V[..., :F].mT + torch.stack([first.bias for first in post]).unsqueeze(1)
    each = V[..., F:].unflatten(-1, (len(s), -1)).transpose(1, 2).flatten(1, 2)
    for part, scale in zip((r @ each.mT).chunk(len(s), -1), s, strict=True):
        y = y + (part if scale is None else part * scale)
    return layer.lin(torch.cat([tower[1:](own) for tower, own in zip(layer.post_nns, y, strict=True)], -1))


def _is_affine(layer: Any) -> bool:
    return is_linear(layer) and layer.bias is not None


_SCALES: dict[str, Any] = {
    "identity": lambda degrees, scaling: None,
    "amplification": lambda degrees, scaling: (degrees + 1).log() / scaling.avg_deg_log,
    "attenuation": lambda degrees, scaling: scaling.avg_deg_log / (degrees.clamp(min=1) + 1).log(),
    "linear": lambda degrees, scaling: degrees / scaling.avg_deg_lin,
    "inverse_linear": lambda degrees, scaling: scaling.avg_deg_lin / degrees.clamp(min=1),
}


def _name(aggregation: Any) -> str:
    return type(aggregation).__name__.removesuffix("Aggregation").lower()


def _refusal_of_pna(layer: Any) -> str | None:
    known_ones, scaling = {"sum", "mean", "max", "min", "var", "std"}, layer.aggr_module
    if layer.flow != "source_to_target":
        return f"flow={layer.flow!r}"
    if any(len(tower) > 1 for tower in layer.pre_nns):
        return f"pre_layers={(len(layer.pre_nns[0]) + 1) // 2}"
    names = [_name(part) for part in getattr(scaling.aggr, "aggrs", ())]
    if not names or not known_ones.issuperset(names) or scaling.aggr.mode != "cat":
        return f"aggregators={names}"
    if any(getattr(getattr(part, "var_aggr", part), "semi_grad", False) for part in scaling.aggr.aggrs):
        return "semi_grad=True"
    return None


def _refusal(layer: Any) -> str | None:
    return refusal(layer, *REDUCTIONS)


TWINS = {
    "GCNConv": Twin(gcn, _refusal),
    "SAGEConv": Twin(sage, _refusal, later=True),
    "GINConv": Twin(gin, _refusal),
    "GINEConv": Twin(gine, _refusal),
    "GatedGraphConv": Twin(gated, _refusal),
    "PNAConv": Twin(pna, _refusal_of_pna),
}
