"""The twin of a layer that is made of other layers: GPSConv."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.graphs import Graph
from edgewise.graphs.derived import per_tensor
from edgewise.interop import modules
from edgewise.interop.twin import Twin, is_plain
from edgewise.kernels.messages import has_hooks


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


def _refusal(layer: Any) -> str | None:
    attn = layer.attn
    if getattr(type(attn), "twin_of", type(attn)) is not nn.MultiheadAttention:
        return f"attn_type={layer.attn_type!r}"
    if has_hooks(attn) or (attn.training and attn.dropout >= 1):
        return "hooks of its attention" if has_hooks(attn) else "dropout=1"
    return modules.TWINS["MultiheadAttention"].refusal(attn)


TWINS = {"GPSConv": Twin(gps, _refusal)}
