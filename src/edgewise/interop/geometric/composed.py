"""Twins of layers that are made of other layers: GPSConv and HeteroConv."""

from __future__ import annotations

from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.graphs import Graph
from edgewise.graphs.derived import per_tensor
from edgewise.graphs.tracing import is_traced
from edgewise.interop import modules
from edgewise.interop.dropout import unwatched
from edgewise.interop.geometric import sums, weighted
from edgewise.interop.geometric.edges import is_watched
from edgewise.interop.geometric.features import multiplies, product
from edgewise.interop.twin import Twin, is_plain, origin
from edgewise.kernels.messages import has_hooks

ROOTED: dict[tuple[str, str], Any] = {
    ("torch_geometric", "SAGEConv"): sums.messages,
    ("torch_geometric", "GraphConv"): weighted.messages,
}


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
    if is_traced() or not is_plain(x) or x.dim() != 2 or has_hooks(layer.attn):
        return NotImplemented
    if layer.attn.training and layer.attn.dropout >= 1:
        return NotImplemented
    if batch is not None and (not is_plain(batch) or len(batch) != len(x)):
        return NotImplemented
    graph = modules.all_pairs(len(x), len(x), x.device) if batch is None else pairs_of(batch)
    if graph is None:
        return NotImplemented
    h = _normalised(layer, layer.norm2, unwatched(modules.among, layer.attn, graph, x), x, batch)
    if layer.conv is not None:
        h = _normalised(layer, layer.norm1, layer.conv(x, edge_index, **named), x, batch) + h
    y = h + layer.mlp(h)
    return y if layer.norm3 is None else _call(layer, layer.norm3, y, batch)


def _normalised(layer: Any, norm: Any, h: Tensor, x: Tensor, batch: Any) -> Any:
    h = functional.dropout(h, layer.dropout, layer.training) + x
    return h if norm is None else _call(layer, norm, h, batch)


def _call(layer: Any, norm: Any, h: Tensor, batch: Any) -> Any:
    return norm(h, batch=batch) if layer.norm_with_batch else norm(h)


def _refusal(layer: Any) -> str | None:
    kind = getattr(type(layer.attn), "twin_of", type(layer.attn))
    if kind is not nn.MultiheadAttention:
        return f"attn_type={layer.attn_type!r}"
    return modules.TWINS["MultiheadAttention"].refusal(layer.attn)


def hetero(layer: Any, *given: Any, **named: Any) -> Any:
    """HeteroConv: Σ_r (M_r + R_r x_i) = Σ_r M_r + (Σ_r R_r) x_i, of messages and maps of receivers."""
    if is_traced() or layer.aggr not in ("sum", "mean"):
        return NotImplemented
    ends = Counter(end for (*_, end), conv in layer.convs.items() if _root(conv) is not None)
    shared = {end for end, count in ends.items() if count > 1}
    if not shared:
        return NotImplemented
    roots: dict[Any, list[tuple[Tensor, Tensor]]] = defaultdict(list)  # x_i and R_r of each kind of receivers
    calls = Counter[Any]()

    def part(end: Any, conv: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            calls[end] += 1
            root = _root(conv) if end in shared else None
            found = None if root is None else ROOTED[origin(type(conv).twin_of)](conv, *args, **options)
            if root is None or found is None or found[1] is None:
                return conv(*args, **options)
            roots[end].append((found[1], root.weight))
            return found[0]

        return call

    parts = {kind: part(kind[-1], conv) for kind, conv in layer.convs.items()}
    y: Any = type(layer).twin_of.forward(SimpleNamespace(convs=parts, aggr=layer.aggr), *given, **named)
    for end, own in roots.items():
        x_i, R = own[0][0], torch.stack([weight for _, weight in own]).sum(0)
        y[end] = y[end] + product(R / calls[end] if layer.aggr == "mean" else R, x_i)
    return y


def _root(conv: Any) -> Any:
    """The linear map of its receivers that a convolution adds to its messages; None without one, or if it is seen."""
    kind = getattr(type(conv), "twin_of", None)
    if kind is None or origin(kind) not in ROOTED or getattr(conv, "normalize", False):
        return None
    R = conv.lin_root if hasattr(conv, "lin_root") else getattr(conv, "lin_r", None)
    alone = R is not None and multiplies(R) and is_plain(R.weight)
    return R if alone and not is_watched(conv) and not has_hooks(conv) else None


TWINS = {"GPSConv": Twin(gps, _refusal), "HeteroConv": Twin(hetero)}
