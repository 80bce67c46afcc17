"""An `edge_index` as a graph, made once for each tensor; values of its edges in the graph's order."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from edgewise.errors import GraphError
from edgewise.graphs import Graph
from edgewise.graphs.derived import cached, per_tensor
from edgewise.interop.twin import is_plain, origin
from edgewise.kernels.messages import has_hooks

REDUCTIONS = {"add": "sum", "sum": "sum", "mean": "mean", "max": "max", "min": "min"}
LINEAR = {("torch", "Linear"), ("torch_geometric", "Linear")}
STEPS = ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
HOOKS = tuple(f"_{step}_forward{when}_hooks" for step in STEPS for when in ("_pre", ""))
WATCHED = (*HOOKS, *STEPS, "update", "edge_updater")


@per_tensor
def graph_of(edge_index: Tensor, senders: int, receivers: int) -> Graph:
    """The graph of an edge_index [2, E]: row 0 the senders, row 1 the receivers."""
    return Graph.from_edge_index(edge_index, senders, receivers)


_last: WeakKeyDictionary[nn.Module, Tensor] = WeakKeyDictionary()


def graph_again(layer: nn.Module, edge_index: Tensor, senders: int, receivers: int) -> Graph:
    """The same, also of equal edges in a new tensor, such as layers make that normalise their edges at every call."""
    last = _last.get(layer)
    if last is None or not (last is edge_index or (last.device == edge_index.device and torch.equal(last, edge_index))):
        last = edge_index
        if not edge_index.is_inference():
            _last[layer] = edge_index
    return graph_of(last, senders, receivers)


@per_tensor
def looped(edge_index: Tensor, senders: int, receivers: int) -> Graph:
    """The same with one self-loop for each node that is on both sides: the other edges in their order, then the loops.

    Differs     none: PyTorch Geometric removes self-loops and appends new ones, which get their old weight or a fill
    """
    loops = torch.arange(min(senders, receivers), device=edge_index.device)
    others = edge_index[:, edge_index[0] != edge_index[1]]
    with columns_of(edge_index, senders, receivers):
        return Graph.from_edge_index(torch.cat([others, loops.expand(2, -1)], 1), senders, receivers)


@contextmanager
def columns_of(edge_index: Tensor, senders: int, receivers: int) -> Iterator[None]:
    """Within it edges are made of the caller's: one out of range is named by its column there."""
    try:
        yield
    except (RuntimeError, IndexError, GraphError):
        Graph.from_edge_index(edge_index, senders, receivers)
        raise


@cached
def _in_order(graph: Graph) -> bool:
    """Whether the caller's order of the edges is the graph's."""
    order = graph._order
    return order is None or torch.equal(order, torch.arange(len(order), device=order.device))


@per_tensor
def _sorted(e: Tensor, order: Tensor) -> Tensor:
    return e.detach().index_select(0, order)


def rows_of(graph: Graph, e: Tensor) -> Tensor:
    """The values of edges in the graph's order; those that nothing trains are sorted once."""
    if graph._order is None or _in_order(graph):
        return e
    return graph.sort_edges(e) if e.requires_grad else _sorted(e, graph._order)


def has_rows(edge_index: Tensor, e: Tensor) -> bool:
    """Whether e has one row for each edge; PyTorch Geometric repeats a single row, and refuses other numbers."""
    return e.shape[:1] == edge_index.shape[1:]


def looped_rows(e: Tensor, edge_index: Tensor, senders: int, receivers: int, fill: Any) -> Tensor:
    """The values of the edges of a `looped` graph: those of loops are `fill`, a number, a tensor or a reduction."""
    from torch_geometric.utils import add_self_loops, remove_self_loops, scatter

    graph, loops = looped(edge_index, senders, receivers), min(senders, receivers)
    index, e = remove_self_loops(edge_index, e)
    if isinstance(fill, str):  # which receivers without a loop take no part in
        fill = scatter(e, index[1], 0, receivers, fill)[:loops]
    else:
        fill = add_self_loops(index[:, :0], e[:0], fill, loops)[1]
    return graph.sort_edges(torch.cat([e, fill]))


constant_looped_rows = per_tensor(looped_rows)


def is_linear(layer: Any) -> bool:
    """Whether calling a layer does nothing but x Wᵀ + b."""
    plain = origin(type(layer)) in LINEAR and not has_hooks(layer)
    return plain and not isinstance(layer.weight, nn.parameter.UninitializedParameter)


def ends(layer: Any, x: Any, edge_index: Any, size: Any = None) -> tuple[Tensor, Tensor] | None:
    """(x of the senders, x of the receivers), flat; None for a call that is left to PyTorch Geometric."""
    both = (x, x) if isinstance(x, Tensor) else tuple(x)
    if len(both) != 2 or not is_plain(edge_index, *both) or not edge_index.dim() == both[0].dim() == both[1].dim() == 2:
        return None
    return both if size is None or tuple(size) == (both[0].size(0), both[1].size(0)) else None


def refusal(layer: Any, reductions: tuple[str, ...]) -> str | None:
    """Why a layer of PyTorch Geometric is left to its own code: its options, or somebody who looks at its messages."""
    if layer.flow != "source_to_target":
        return f"flow={layer.flow!r}"
    if layer.aggr not in reductions:
        return f"aggr={layer.aggr if isinstance(layer.aggr, str) else type(layer.aggr_module).__name__}"
    if layer.decomposed_layers > 1:
        return f"decomposed_layers={layer.decomposed_layers}"
    replaced = type(layer.aggr_module).__name__ != f"{REDUCTIONS.get(layer.aggr, layer.aggr).title()}Aggregation"
    return "an aggregation of its own" if replaced else watched(layer)


def watched(layer: Any) -> str | None:
    """Who looks into a layer's message passing, or has put a method of their own there."""
    if layer.explain:
        return "an explainer"
    if any(map(layer.__dict__.get, WATCHED)):
        return f"a {next(filter(layer.__dict__.get, WATCHED))} of its own"
    return "hooks of its aggregation" if has_hooks(layer.aggr_module) else None
