"""The twin of HeteroConv: convolutions of several kinds of edges that end in one kind of node map its features once."""

from __future__ import annotations

from collections import Counter, defaultdict
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

from edgewise.graphs.tracing import is_traced
from edgewise.interop.geometric.edges import is_watched
from edgewise.interop.geometric.features import is_linear, product
from edgewise.interop.geometric.sums import messages
from edgewise.interop.twin import Twin, is_plain, origin
from edgewise.layers.plain.linear import has_hooks

SAGE = ("torch_geometric", "SAGEConv")


def hetero(layer: Any, *given: Any, **named: Any) -> Any:
    """HeteroConv: Σ_r (M_r + R_r x_i) = Σ_r M_r + (Σ_r R_r) x_i, of SAGE's messages and maps of receivers."""
    if is_traced() or layer.aggr not in ("sum", "mean"):
        return NotImplemented
    ends = Counter(end for (*_, end), conv in layer.convs.items() if _has_root(conv))
    shared = {end for end, count in ends.items() if count > 1}
    if not shared:
        return NotImplemented
    roots: dict[Any, list[tuple[Tensor, Tensor]]] = defaultdict(list)  # x_i and R_r of each kind of receivers
    calls = Counter[Any]()

    def part(end: Any, conv: Any) -> Any:
        def call(*args: Any, **options: Any) -> Any:
            calls[end] += 1
            if end not in shared or not _has_root(conv) or (found := messages(conv, *args, **options)) is None:
                return conv(*args, **options)
            y, x_i = found
            roots[end].append((x_i, conv.lin_r.weight))
            return y

        return call

    parts = {kind: part(kind[-1], conv) for kind, conv in layer.convs.items()}
    y: Any = type(layer).twin_of.forward(SimpleNamespace(convs=parts, aggr=layer.aggr), *given, **named)
    for end, own in roots.items():
        x_i, R = own[0][0], torch.stack([weight for _, weight in own]).sum(0)
        y[end] = y[end] + product(R / calls[end] if layer.aggr == "mean" else R, x_i)
    return y


def _has_root(conv: Any) -> bool:
    """Whether a convolution is a SAGEConv that adds a linear map of its receivers, which nobody looks at."""
    kind = getattr(type(conv), "twin_of", None)
    if kind is None or origin(kind) != SAGE or not conv.root_weight or conv.normalize:
        return False
    R = conv.lin_r
    return not is_watched(conv) and not has_hooks(conv) and R.bias is None and is_linear(R) and is_plain(R.weight)


TWINS = {"HeteroConv": Twin(hetero)}
