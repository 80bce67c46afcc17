"""Graphs from graphs: unions, loops, subgraphs, batches. Rules stay rules where the answer is one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs import checks, lowering
from edgewise.graphs.rule import Blocks, Both, Complete, Either, Itself, Others, Rule

if TYPE_CHECKING:
    from edgewise.graphs.graph import Graph


def transpose(graph: Graph) -> tuple[Graph, Tensor]:
    by_sender = torch.sort(graph.senders, stable=True).indices
    forms: dict[str, Any] = {
        "offsets": lowering.offsets_of(graph.out_degrees()),
        "senders": graph.receivers[by_sender],
        "rule": graph.rule.transposed() if graph.rule is not None and graph.offset == 0 else None,
        "_order": None if graph._order is None else graph._order[by_sender],
    }
    if graph.is_square:
        forms["sizes"] = graph.sizes
    return graph._of(graph.num_senders, graph.num_receivers, 0, graph.device, **forms), by_sender


def union(graph: Graph, other: Graph) -> Graph:
    _same_nodes(graph, other, "union")
    if graph.rule is not None and other.rule is not None:
        return _by_rule(graph, _either(graph.rule, other.rule), _common_sizes(graph, other))
    if graph.is_complete or other.is_complete:
        return _by_rule(graph, Complete(), _common_sizes(graph, other))
    receivers = torch.cat([graph.receivers, other.receivers])
    return _distinct(graph, receivers, torch.cat([graph.senders, other.senders]), _common_sizes(graph, other))


def intersection(graph: Graph, other: Graph) -> Graph:
    _same_nodes(graph, other, "intersection")
    sizes = _common_sizes(graph, other)
    if graph.rule is not None and other.rule is not None:
        return _by_rule(graph, _both(graph.rule, other.rule), sizes)
    pairs = [coalesce(g).edge_index() for g in (graph, other)]
    senders, receivers = torch.cat(pairs, dim=1)
    merged = _distinct(graph, receivers, senders, sizes)
    twice = lowering.counts(
        torch.searchsorted(_keys(merged.receivers, merged.senders, graph), _keys(receivers, senders, graph)),
        merged.num_edges,
    )
    return _keep(merged, twice == 2)


def coalesce(graph: Graph) -> Graph:
    if not graph.has_duplicates:
        return graph
    first = torch.ones_like(graph.senders, dtype=torch.bool)
    first[1:] = (graph.senders[1:] != graph.senders[:-1]) | (graph.receivers[1:] != graph.receivers[:-1])
    return _keep(graph, first)


def add_self_loops(graph: Graph) -> Graph:
    _needs_square(graph, "add_self_loops")
    if graph.rule is not None:
        return _by_rule(graph, _either(graph.rule, Itself()), graph.sizes)
    looped = lowering.counts(graph.receivers[graph.receivers == graph.senders], graph.num_receivers) > 0
    missing = (~looped).nonzero().flatten()
    return _sorted(graph, torch.cat([graph.receivers, missing]), torch.cat([graph.senders, missing]), graph.sizes)


def remove_self_loops(graph: Graph) -> Graph:
    _needs_square(graph, "remove_self_loops")
    if graph.rule is not None:
        return _by_rule(graph, _both(graph.rule, Others()), graph.sizes)
    return _keep(graph, graph.receivers != graph.senders)


def symmetrise(graph: Graph) -> Graph:
    _needs_square(graph, "symmetrise")
    reverse = graph.rule.transposed() if graph.rule is not None else None
    if graph.rule is not None and reverse is not None:
        return _by_rule(graph, _either(graph.rule, reverse), graph.sizes)
    receivers = torch.cat([graph.receivers, graph.senders])
    return _distinct(graph, receivers, torch.cat([graph.senders, graph.receivers]), graph.sizes)


def permute(graph: Graph, perm: Any) -> Graph:
    _needs_square(graph, "permute")
    nodes = checks.node_list(perm, graph.num_receivers)
    if len(nodes) != graph.num_receivers:
        raise GraphError(f"a permutation of {graph.num_receivers} nodes lists each of them, this one lists {len(nodes)}")
    return subgraph(graph, nodes)


def subgraph(graph: Graph, nodes: Any) -> Graph:
    _needs_square(graph, "subgraph")
    nodes = checks.node_list(nodes, graph.num_receivers).to(graph.device)
    if graph.is_complete and len(graph.sizes) == 1:
        return graph._of(len(nodes), len(nodes), 0, graph.device, rule=Complete())
    new = torch.full((graph.num_receivers,), -1, device=graph.device)
    new[nodes] = torch.arange(len(nodes), device=graph.device)
    receivers, senders = new[graph.receivers], new[graph.senders]
    inside = (receivers >= 0) & (senders >= 0)
    offsets, senders, _ = lowering.sorted_edges(receivers[inside], senders[inside], len(nodes))
    forms: dict[str, Any] = {"offsets": offsets, "senders": senders}
    members = torch.repeat_interleave(torch.arange(len(graph.sizes), device=graph.device), graph.sizes)[nodes]
    if bool((members.diff() >= 0).all()):
        forms["sizes"] = lowering.counts(members, len(graph.sizes))
    return graph._of(len(nodes), len(nodes), 0, graph.device, **forms)


def rows(graph: Graph, start: int, stop: int) -> Graph:
    start, stop = checks.whole_number(start, "start"), checks.whole_number(stop, "stop")
    if not start <= stop <= graph.num_receivers:
        raise GraphError(f"rows {start}:{stop} are out of range: the graph has {graph.num_receivers} receivers")
    forms: dict[str, Any] = {"rule": graph.rule}
    if graph.rule is None and graph._ranges is not None:
        starts, stops = graph._ranges
        forms["_ranges"] = starts[start:stop], stops[start:stop]
    elif graph.rule is None:
        first, last = graph.offsets[start], graph.offsets[stop]
        forms |= {"offsets": graph.offsets[start : stop + 1] - first, "senders": graph.senders[first:last]}
    return graph._of(stop - start, graph.num_senders, graph.offset + start, graph.device, **forms)


def batch(graphs: Sequence[Graph]) -> Graph:
    if len(graphs) == 0:
        raise GraphError("a batch needs at least one graph")
    for number, graph in enumerate(graphs):
        if not hasattr(graph, "num_receivers"):
            raise GraphError(f"graph {number} of the batch is a {type(graph).__name__}, not a Graph")
        if graph.offset:
            raise GraphError(f"graph {number} of the batch has offset {graph.offset}: only offset 0 can be batched")
        if graph.device != graphs[0].device:
            raise GraphError(f"graph {number} of the batch is on {graph.device}, graph 0 on {graphs[0].device}")
    receivers, senders = [g.num_receivers for g in graphs], [g.num_senders for g in graphs]
    forms = _batched_blocks(graphs) or _batched_ranges(graphs) or _batched_edges(graphs)
    forms["sizes"] = torch.cat([g.sizes for g in graphs])
    return graphs[0]._of(sum(receivers), sum(senders), 0, graphs[0].device, **forms)


def _batched_blocks(graphs: Sequence[Graph]) -> dict[str, Any] | None:
    receivers: list[int] = []
    senders: list[int] = []
    for graph in graphs:
        if graph.is_complete:
            receivers.append(graph.num_receivers)
            senders.append(graph.num_senders)
        elif isinstance(graph.rule, Blocks) and graph.rule.extent == (graph.num_receivers, graph.num_senders):
            receivers.extend(graph.rule.receivers)
            senders.extend(graph.rule.senders)
        else:
            return None
    return {"rule": Blocks(tuple(receivers), tuple(senders))}


def _batched_ranges(graphs: Sequence[Graph]) -> dict[str, Any] | None:
    members = [g.ranges() for g in graphs]
    if any(member is None for member in members):
        return None
    most = max(starts.shape[1] for starts, _ in members)
    all_starts, all_stops, shift = [], [], 0
    for graph, (starts, stops) in zip(graphs, members, strict=True):
        end = stops[:, -1:].expand(-1, most - stops.shape[1]) if stops.shape[1] else stops.new_zeros(len(stops), most)
        all_starts.append(torch.cat([starts, end], 1) + shift)
        all_stops.append(torch.cat([stops, end], 1) + shift)
        shift += graph.num_senders
    return {"_ranges": (torch.cat(all_starts), torch.cat(all_stops))}


def _batched_edges(graphs: Sequence[Graph]) -> dict[str, Any]:
    senders, edges = torch.tensor([[g.num_senders, g.num_edges] for g in graphs], device=graphs[0].device).T
    shift = torch.repeat_interleave(senders.cumsum(0) - senders, edges)
    degrees = torch.cat([g.in_degrees() for g in graphs])
    forms: dict[str, Any] = {"offsets": lowering.offsets_of(degrees), "senders": torch.cat([g.senders for g in graphs]) + shift}
    orders = [g._order for g in graphs]
    if all(order is not None for order in orders):
        forms["_order"] = torch.cat(orders) + torch.repeat_interleave(edges.cumsum(0) - edges, edges)
    return forms


def _either(first: Rule, second: Rule) -> Rule:
    if first == second or isinstance(first, Complete):
        return first
    return second if isinstance(second, Complete) else Either(first, second)


def _both(first: Rule, second: Rule) -> Rule:
    if first == second or isinstance(second, Complete):
        return first
    return second if isinstance(first, Complete) else Both(first, second)


def _by_rule(graph: Graph, rule: Rule, sizes: Tensor | None) -> Graph:
    if rule == graph.rule and sizes is graph.sizes:
        return graph
    forms: dict[str, Any] = {"rule": rule} if sizes is None else {"rule": rule, "sizes": sizes}
    return graph._of(graph.num_receivers, graph.num_senders, graph.offset, graph.device, **forms)


def _keep(graph: Graph, kept: Tensor) -> Graph:
    """The graph of the edges in a mask [E]: already in order, so nothing to sort."""
    degrees = lowering.counts(graph.receivers[kept], graph.num_receivers)
    forms = {"offsets": lowering.offsets_of(degrees), "senders": graph.senders[kept], "sizes": graph.sizes}
    return graph._of(graph.num_receivers, graph.num_senders, graph.offset, graph.device, **forms)


def _sorted(graph: Graph, receivers: Tensor, senders: Tensor, sizes: Tensor | None) -> Graph:
    offsets, senders, _ = lowering.sorted_edges(receivers, senders, graph.num_receivers)
    forms = {"offsets": offsets, "senders": senders} | ({} if sizes is None else {"sizes": sizes})
    return graph._of(graph.num_receivers, graph.num_senders, graph.offset, graph.device, **forms)


def _distinct(graph: Graph, receivers: Tensor, senders: Tensor, sizes: Tensor | None) -> Graph:
    return coalesce(_sorted(graph, receivers, senders, sizes))


def _keys(receivers: Tensor, senders: Tensor, graph: Graph) -> Tensor:
    return receivers * graph.num_senders + senders


def _common_sizes(graph: Graph, other: Graph) -> Tensor | None:
    return graph.sizes if torch.equal(graph.sizes, other.sizes) else None


def _same_nodes(graph: Graph, other: Graph, verb: str) -> None:
    mine = graph.num_receivers, graph.num_senders, graph.offset, graph.device
    theirs = other.num_receivers, other.num_senders, other.offset, other.device
    if mine != theirs:
        raise GraphError(
            f"{verb} needs two graphs on the same nodes: {mine[0]} receivers, {mine[1]} senders, offset {mine[2]} on "
            f"{mine[3]}, not {theirs[0]}, {theirs[1]}, {theirs[2]} on {theirs[3]}"
        )


def _needs_square(graph: Graph, verb: str) -> None:
    if not graph.is_square:
        at = f" at offset {graph.offset}" if graph.offset else ""
        raise GraphError(
            f"{verb} needs receivers and senders to be the same nodes: this graph has {graph.num_receivers} "
            f"receivers{at} and {graph.num_senders} senders"
        )
