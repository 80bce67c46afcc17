"""An `edge_index` as a graph, made once for each tensor; values of its edges in the graph's order."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.graphs.derived import cached, per_tensor
from edgewise.interop.geometric.members import members_of
from edgewise.interop.later.tensor import Later
from edgewise.interop.twin import is_plain
from edgewise.kernels.messages import has_hooks

REDUCTIONS = {"add": "sum", "sum": "sum", "mean": "mean", "max": "max", "min": "min"}
STEPS = ("propagate", "message", "aggregate", "message_and_aggregate", "edge_update")
HOOKS = tuple(f"_{step}_forward{when}_hooks" for step in STEPS for when in ("_pre", ""))
WATCHED = (*HOOKS, *STEPS, "update", "edge_updater")


@per_tensor
def graph_of(edge_index: Tensor, senders: int, receivers: int) -> Graph:
    """The graph of an edge_index [2, E]: row 0 the senders, row 1 the receivers."""
    members = members_of(edge_index)
    batch = members.graph() if members is not None and members.nodes.total == senders == receivers else None
    return Graph.from_edge_index(edge_index, senders, receivers) if batch is None else batch


@per_tensor
def looped(edge_index: Tensor, senders: int, receivers: int) -> Graph:
    """The same with one self-loop for each node that is on both sides: the other edges in their order, then the loops.

    Differs     none: PyTorch Geometric removes self-loops and appends new ones, which get their old weight or a fill
    """
    loops = torch.arange(min(senders, receivers), device=edge_index.device)
    others = edge_index[:, edge_index[0] != edge_index[1]]
    return Graph.from_edge_index(torch.cat([others, loops.expand(2, -1)], 1), senders, receivers)


@cached
def in_order(graph: Graph) -> bool:
    """Whether the caller's order of the edges is the graph's."""
    order = graph._order
    return order is None or torch.equal(order, torch.arange(len(order), device=order.device))


@per_tensor
def _sorted(e: Tensor, order: Tensor) -> Tensor:
    return e.detach().index_select(0, order)


def rows_of(graph: Graph, e: Tensor) -> Tensor:
    """The values of edges in the graph's order; those that nothing trains are sorted once."""
    if in_order(graph) or graph._order is None:
        return e
    return graph.sort_edges(e) if e.requires_grad else _sorted(e, graph._order)


def has_rows(edge_index: Tensor, e: Tensor) -> bool:
    """Whether e has one row for each edge; PyTorch Geometric repeats a single row, and refuses other numbers."""
    return e.shape[:1] == edge_index.shape[1:]


def callers(graph: Graph, t: Tensor) -> Tensor:
    """An edge tensor of the graph in the caller's order."""
    return t if graph._order is None else torch.empty_like(t).index_copy(0, graph._order, t)


def looped_rows(graph: Graph, e: Tensor, edge_index: Tensor, fill: Any) -> Tensor:
    """The values of the edges of a `looped` graph: those of loops are `fill`, a number, a tensor or a reduction."""
    if e.requires_grad or isinstance(fill, Tensor):
        return _with_loops(e, edge_index, graph.num_senders, graph.num_receivers, fill)
    return _kept_with_loops(e, edge_index, graph.num_senders, graph.num_receivers, fill)


def _with_loops(e: Tensor, edge_index: Tensor, senders: int, receivers: int, fill: Any) -> Tensor:
    from torch_geometric.utils import add_self_loops, remove_self_loops

    index, e = remove_self_loops(edge_index, e)
    _, e = add_self_loops(index, e, fill_value=fill, num_nodes=min(senders, receivers))
    return looped(edge_index, senders, receivers).sort_edges(e)


_kept_with_loops = per_tensor(_with_loops)


def is_watched(layer: Any) -> bool:
    """Whether somebody looks into the layer's message passing, or has put another method or aggregation in place."""
    own, aggregation = layer.__dict__, layer.aggr_module
    usual = REDUCTIONS.get(layer.aggr) if isinstance(layer.aggr, str) else None
    replaced = usual is not None and type(aggregation).__name__ != f"{usual.title()}Aggregation"
    return bool(layer.explain) or any(map(own.get, WATCHED)) or replaced or has_hooks(aggregation)


def sides(layer: Any, x: Any, edge_index: Any, size: Any = None) -> tuple[Tensor, Tensor] | None:
    """(x of the senders, x of the receivers); None for a call that is left to PyTorch Geometric."""
    both = (x, x) if isinstance(x, Tensor) else tuple(x)
    dense = (t for t in (edge_index, *both) if not isinstance(t, Later))
    if is_watched(layer) or not is_plain(*dense) or any(t.dim() < 2 for t in both):
        return None
    if any(layer.node_dim not in (-2, t.dim() - 2) for t in both):
        return None
    if size is not None and tuple(size) != (both[0].size(-2), both[1].size(-2)):
        return None
    return both[0], both[1]


def refusal(layer: Any, *reductions: str) -> str | None:
    """Why PyTorch Geometric's options for all layers leave no twin."""
    if layer.flow != "source_to_target":
        return f"flow={layer.flow!r}"
    if layer.aggr not in reductions:
        return f"aggr={layer.aggr if isinstance(layer.aggr, str) else type(layer.aggr_module).__name__}"
    return f"decomposed_layers={layer.decomposed_layers}" if layer.decomposed_layers > 1 else None
