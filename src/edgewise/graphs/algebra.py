"""Graphs from graphs: transposes, unions, loops, subgraphs, batches. A rule stays a rule where the answer is one."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs import checks
from edgewise.graphs import forms as lowering
from edgewise.graphs.rule import Blocks, Both, Complete, Either, Itself, Others, Rule

if TYPE_CHECKING:
    from edgewise.graphs.graph import Graph

Forms = dict[str, Any]  # what `Graph._of` takes: rule, _ranges, or offsets and senders; sizes, _order


def transpose(graph: Graph) -> tuple[Graph, Tensor]:
    shape = graph.num_receivers, graph.num_senders
    offsets, receivers, by_sender = lowering.transposed_edges(graph.senders, graph.receivers, shape)
    forms: Forms = {"offsets": offsets, "senders": receivers}
    if graph.rule is not None and graph.offset == 0:
        forms["rule"] = graph.rule.transposed()
    if graph._order is not None:
        forms["_order"] = graph._order[by_sender]
    if graph.is_square:
        forms["sizes"] = graph.sizes
    return graph._of(graph.num_senders, graph.num_receivers, device=graph.device, **forms), by_sender


def add_self_loops(graph: Graph) -> Graph:
    _needs_square(graph, "add_self_loops")
    if graph.rule is not None:
        return _with_rule(graph, _either(graph.rule, Itself()), graph.sizes)
    looped = lowering.counts(graph.senders[graph.senders == graph.receivers], graph.num_senders)
    missing = (looped == 0).nonzero().flatten()
    receivers, senders = torch.cat([graph.receivers, missing]), torch.cat([graph.senders, missing])
    return _with_edges(graph, receivers, senders, graph.sizes)


def remove_self_loops(graph: Graph) -> Graph:
    _needs_square(graph, "remove_self_loops")
    if graph.rule is not None:
        return _with_rule(graph, _both(graph.rule, Others()), graph.sizes)
    kept = graph.receivers != graph.senders
    return graph if bool(kept.all()) else keep_edges(graph, kept)


def symmetrise(graph: Graph) -> Graph:
    _needs_square(graph, "symmetrise")
    reverse = graph.rule.transposed() if graph.rule is not None else None
    if graph.rule is not None and reverse is not None:
        return _with_rule(graph, _either(graph.rule, reverse), graph.sizes)
    receivers, senders = torch.cat([graph.receivers, graph.senders]), torch.cat([graph.senders, graph.receivers])
    return coalesce(_with_edges(graph, receivers, senders, graph.sizes))


def coalesce(graph: Graph) -> Graph:
    if not graph.has_duplicates:
        return graph
    distinct = lowering.distinct_edges(graph.offsets, graph.senders)
    if distinct is not None:
        return _of(graph, graph.sizes, offsets=distinct[0], senders=distinct[1])
    first = torch.ones_like(graph.senders, dtype=torch.bool)
    first[1:] = (graph.senders[1:] != graph.senders[:-1]) | (graph.receivers[1:] != graph.receivers[:-1])
    return keep_edges(graph, first)


def union(graph: Graph, other: Graph) -> Graph:
    sizes = _common_sizes(graph, other, "union")
    if graph.is_complete or other.is_complete:
        return _with_rule(graph, Complete(), sizes)
    if graph.rule is not None and other.rule is not None:
        return _with_rule(graph, _either(graph.rule, other.rule), sizes)
    receivers = torch.cat([graph.receivers, other.receivers])
    return coalesce(_with_edges(graph, receivers, torch.cat([graph.senders, other.senders]), sizes))


def intersection(graph: Graph, other: Graph) -> Graph:
    sizes = _common_sizes(graph, other, "intersection")
    if graph.rule is not None and other.rule is not None:
        return _with_rule(graph, _both(graph.rule, other.rule), sizes)
    graph, other = coalesce(graph), coalesce(other)
    receivers = torch.cat([graph.receivers, other.receivers])
    together = _with_edges(graph, receivers, torch.cat([graph.senders, other.senders]), sizes)
    again = torch.zeros_like(together.senders, dtype=torch.bool)  # the second of two equal edges: in both graphs
    again[1:] = (together.senders[1:] == together.senders[:-1]) & (together.receivers[1:] == together.receivers[:-1])
    return keep_edges(together, again)


def permute(graph: Graph, perm: Any) -> Graph:
    _needs_square(graph, "permute")
    nodes = checks.node_list(perm, graph.num_receivers)
    if len(nodes) != graph.num_receivers:
        raise GraphError(f"a permutation must list all {graph.num_receivers} nodes, not {len(nodes)} of them")
    return subgraph(graph, nodes)


def subgraph(graph: Graph, nodes: Any) -> Graph:
    _needs_square(graph, "subgraph")
    nodes = checks.node_list(nodes, graph.num_receivers).to(graph.device)
    if graph.is_complete and len(graph.sizes) == 1:
        return graph._of(len(nodes), len(nodes), device=graph.device, rule=Complete())
    place = torch.full((graph.num_receivers,), -1, device=graph.device)
    place[nodes] = torch.arange(len(nodes), device=graph.device)
    receivers, senders = place[graph.receivers], place[graph.senders]
    inside = (receivers >= 0) & (senders >= 0)
    offsets, senders, _ = lowering.sorted_edges(receivers[inside], senders[inside], (len(nodes), len(nodes)))
    forms: Forms = {"offsets": offsets, "senders": senders}
    members = torch.repeat_interleave(graph.sizes)[nodes]
    if bool((members.diff() >= 0).all()):
        forms["sizes"] = lowering.counts(members, len(graph.sizes))
    return graph._of(len(nodes), len(nodes), device=graph.device, **forms)


def rows(graph: Graph, start: int, stop: int) -> Graph:
    start, stop = checks.whole_number(start, "start"), checks.whole_number(stop, "stop")
    if not start <= stop <= graph.num_receivers:
        raise GraphError(f"rows {start} to {stop} are out of range: the graph has {graph.num_receivers} receivers")
    forms: Forms = {"rule": graph.rule}
    if graph.rule is None and graph._ranges is not None:
        forms["_ranges"] = tuple(bounds[start:stop] for bounds in graph._ranges)
    elif graph.rule is None:
        offsets = graph.offsets[start : stop + 1]
        forms |= {"offsets": offsets - offsets[0], "senders": graph.senders[int(offsets[0]) : int(offsets[-1])]}
    return graph._of(stop - start, graph.num_senders, graph.offset + start, graph.device, **forms)


def batch(graphs: list[Graph]) -> Graph:
    if not graphs:
        raise GraphError("a batch needs at least one graph")
    device = graphs[0].device
    for number, graph in enumerate(graphs):
        if graph.offset:
            raise GraphError(f"graph {number} of the batch has offset {graph.offset}: only offset 0 can be batched")
        if graph.device != device:
            raise GraphError(f"graph {number} of the batch is on {graph.device}, but graph 0 is on {device}")
    receivers, senders = sum(g.num_receivers for g in graphs), sum(g.num_senders for g in graphs)
    forms = _batch_of_blocks(graphs) or _batch_of_ranges(graphs) or _batch_of_edges(graphs)
    return graphs[0]._of(receivers, senders, device=device, sizes=torch.cat([g.sizes for g in graphs]), **forms)


def _batch_of_blocks(graphs: list[Graph]) -> Forms | None:
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


def _batch_of_ranges(graphs: list[Graph]) -> Forms | None:
    ranges = [r for r in (graph.ranges() for graph in graphs) if r is not None]
    if len(ranges) < len(graphs):
        return None
    most, shift = max(starts.shape[1] for starts, _ in ranges), 0
    rows = []
    for graph, (starts, stops) in zip(graphs, ranges, strict=True):
        missing = most - starts.shape[1]
        end = stops[:, -1:].expand(-1, missing) if starts.shape[1] else stops.new_zeros(stops.shape[0], missing)
        rows.append((torch.cat([starts, end], 1) + shift, torch.cat([stops, end], 1) + shift))
        shift += graph.num_senders
    all_starts, all_stops = zip(*rows, strict=True)
    return {"_ranges": (torch.cat(all_starts), torch.cat(all_stops))}


def _batch_of_edges(graphs: list[Graph]) -> Forms:
    sizes = torch.tensor([[g.num_senders, g.num_edges] for g in graphs], device=graphs[0].device)
    first_sender, first_edge = (sizes.cumsum(0) - sizes).repeat_interleave(sizes[:, 1], dim=0).T
    forms: Forms = {
        "offsets": lowering.offsets_of(torch.cat([g.in_degrees() for g in graphs])),
        "senders": torch.cat([g.senders for g in graphs]) + first_sender,
    }
    orders = [g._order for g in graphs if g._order is not None]
    if len(orders) == len(graphs):
        forms["_order"] = torch.cat(orders) + first_edge
    return forms


def _either(first: Rule, second: Rule) -> Rule:
    if first == second or isinstance(first, Complete):
        return first
    return second if isinstance(second, Complete) else Either(first, second)


def _both(first: Rule, second: Rule) -> Rule:
    if first == second or isinstance(second, Complete):
        return first
    return second if isinstance(first, Complete) else Both(first, second)


def _with_rule(graph: Graph, rule: Rule, sizes: Tensor | None) -> Graph:
    """The graph of another rule on the same nodes."""
    if rule == graph.rule and sizes is not None:
        return graph
    return _of(graph, sizes, rule=rule)


def _with_edges(graph: Graph, receivers: Tensor, senders: Tensor, sizes: Tensor | None) -> Graph:
    """The graph of other edges, in any order, on the same nodes."""
    shape = graph.num_receivers, graph.num_senders
    offsets, senders, _ = lowering.sorted_edges(receivers, senders, shape)
    return _of(graph, sizes, offsets=offsets, senders=senders)


def keep_edges(graph: Graph, kept: Tensor) -> Graph:
    """The graph of those edges that a mask [E] keeps: they are in order already."""
    degrees = lowering.counts(graph.receivers[kept], graph.num_receivers)
    return _of(graph, graph.sizes, offsets=lowering.offsets_of(degrees), senders=graph.senders[kept])


def _of(graph: Graph, sizes: Tensor | None, **forms: Any) -> Graph:
    if sizes is not None:
        forms["sizes"] = sizes
    return graph._of(graph.num_receivers, graph.num_senders, graph.offset, graph.device, **forms)


def _common_sizes(graph: Graph, other: Graph, verb: str) -> Tensor | None:
    """The sizes of both graphs, if those agree; the graphs must be on the same nodes."""
    mine, theirs = (
        f"{g.num_receivers} receivers at offset {g.offset} and {g.num_senders} senders on {g.device}"
        for g in (graph, other)
    )
    if mine != theirs:
        raise GraphError(f"{verb} needs graphs on the same nodes: one has {mine}, the other {theirs}")
    return graph.sizes if torch.equal(graph.sizes, other.sizes) else None


def _needs_square(graph: Graph, verb: str) -> None:
    if not graph.is_square:
        nodes = f"{graph.num_receivers} receivers at offset {graph.offset} and {graph.num_senders} senders"
        raise GraphError(f"{verb} needs receivers and senders to be the same nodes: this graph has {nodes}")
