"""Graphs from graphs: transposes, unions, loops, subgraphs, batches. A rule stays a rule where the result has one."""

from collections.abc import Iterable, Sequence
from typing import Any, Literal, Self, get_args

import torch
from torch import Tensor
from torch.nn import functional

from edgewise.errors import GraphError, a_kind
from edgewise.graphs import checks
from edgewise.graphs import forms as lowering
from edgewise.graphs.adjacency import Adjacency
from edgewise.graphs.derived import derived
from edgewise.graphs.rule import Blocks, Both, Complete, Either, Itself, Others, Rule

Reduction = Literal["sum", "mean", "max", "min"]
Forms = dict[str, Any]  # what `Adjacency._of` takes: rule, _ranges, or offsets and senders; sizes, _order


class Algebra(Adjacency):
    """The operations on a graph, or on several, whose result is a graph."""

    _batch: Self | None = None  # of rows of a batch: all of it, but its edges

    @derived
    def _transposed(self) -> tuple[Self, Tensor]:
        shape = self.num_receivers, self.num_senders
        offsets, receivers, by_sender = lowering.transposed_edges(self.senders, self.receivers, shape)
        forms: Forms = {"offsets": offsets, "senders": receivers}
        if self.rule is not None and self.offset == 0:
            forms["rule"] = self.rule.transposed()
        if self._order is not None:
            forms["_order"] = self._order[by_sender]
        if self.is_square:
            forms["sizes"] = self.sizes
        elif "sender_sizes" in self._definition:
            forms |= {"sizes": self.sender_sizes, "sender_sizes": self.sizes}
        graph = self._of(self.num_senders, self.num_receivers, device=self.device, **forms)
        return self._taken(graph, by_sender), by_sender

    def transpose(self) -> tuple[Self, Tensor]:
        """The graph with every edge reversed, and perm [E]: its edge e is edge perm[e] of this graph. Cached.

        >>> from edgewise.graphs import Graph
        >>> graph, perm = Graph.from_edge_index([[0, 0, 1], [1, 2, 2]], num_nodes=3).transpose()
        >>> graph.edge_index().tolist(), perm.tolist()
        ([[1, 2, 2], [0, 0, 1]], [0, 1, 2])
        """
        return self._transposed

    @derived
    def sender_sizes(self) -> Tensor:
        """Senders of each member of a batch, int64 [G]; [J] for a single graph. Where I and J are the same: `sizes`.

        >>> from edgewise.graphs import Graph, complete
        >>> batch = Graph.batch([complete(1, 2), complete(2, 1)])  # as many receivers as senders, but no member has
        >>> batch.sizes.tolist(), batch.sender_sizes.tolist(), batch.is_square
        ([1, 2], [2, 1], False)
        """
        if self.is_square:
            return self.sizes
        if self.sizes.shape[0] == 1:
            return torch.tensor([self.num_senders], device=self.device)
        raise GraphError(f"how many senders the members of {self} have is not known: attend in each graph by itself")

    @derived
    def _looped(self) -> Self:
        if self.rule is not None:
            return self._with_rule(_either(self.rule, Itself()), self.sizes)
        missing = self.unlooped
        receivers, senders = torch.cat([self.receivers, missing]), torch.cat([self.senders, missing])
        return self._with_edges(receivers, senders, self.sizes)

    def add_self_loops(self, fill: float | Tensor | None = None) -> Self:
        """Every node listens to itself too; one that does already gets no second loop. Cached.

        Symbols     fill = the features [...] of new loops; None: the result has no `edge_attr`
        """
        self.require_square("add_self_loops")
        if self.has_self_loops or self._attributes is None or fill is None:
            return self if self.has_self_loops else self._looped
        given, rows = self._attributes
        missing = self.unlooped
        new = torch.as_tensor(fill, dtype=given.dtype, device=self.device).expand(len(missing), *given.shape[1:])
        ends = torch.cat([self.receivers, missing]), torch.cat([self.senders, missing])
        return self._with_edges(*ends, self.sizes, torch.cat([given[rows], new]))

    def remove_self_loops(self) -> Self:
        """No node listens to itself."""
        self.require_square("remove_self_loops")
        if self.rule is not None:
            return self._with_rule(_both(self.rule, Others()), self.sizes)
        others = self.receivers != self.senders
        return self if bool(others.all()) else self.keep_edges(others)

    def symmetrise(self, reduce: Reduction | None = None) -> Self:
        """i listens to j wherever j listens to i; without parallel edges, whose features `reduce` joins: `coalesce`."""
        self.require_square("symmetrise")
        reverse = self.rule.transposed() if self.rule is not None else None
        if self.rule is not None and reverse is not None:
            return self._with_rule(_either(self.rule, reverse), self.sizes)
        receivers, senders = torch.cat([self.receivers, self.senders]), torch.cat([self.senders, self.receivers])
        e = self.edge_attr if reduce else None
        return self._with_edges(receivers, senders, self.sizes, None if e is None else torch.cat([e, e])).coalesce(
            reduce
        )

    def coalesce(self, reduce: Reduction | None = None) -> Self:
        """One edge for each set of parallel edges.

        Symbols     reduce = what their `edge_attr` becomes, "sum", "mean", "max" or "min"; None: the result has none

        >>> from edgewise.graphs import Graph
        >>> twice = Graph.from_edge_index([[0, 0], [1, 1]], num_nodes=2, edge_attr=torch.tensor([1.0, 3.0]))
        >>> twice.coalesce("mean").edge_attr.tolist(), twice.coalesce().edge_attr
        ([2.0], None)
        """
        if reduce not in (None, *get_args(Reduction)):
            raise GraphError(f"reduce must be one of {', '.join(get_args(Reduction))}, or None, not {reduce!r}")
        if not self.has_duplicates:
            return self
        self.check_unwritten()
        first = ~self._repeated()
        graph = self._with_edges_where(first)
        if self._attributes is None or reduce is None:
            return graph
        e, place = self._attributes[0][self._attributes[1]], first.cumsum(0) - 1
        how = {"max": "amax", "min": "amin"}.get(reduce, reduce)
        rows = place.view(-1, *[1] * (e.ndim - 1)).expand_as(e)
        joined = e.new_zeros(graph.num_edges, *e.shape[1:]).scatter_reduce(0, rows, e, how, include_self=False)
        return graph._carrying(joined, torch.arange(graph.num_edges, device=self.device))

    def union(self, other: Self) -> Self:
        """i listens to j in one graph or the other; without parallel edges."""
        sizes = _common_sizes(self, other, "union")
        if self.is_complete or other.is_complete:
            return self._with_rule(Complete(), sizes)
        if self.rule is not None and other.rule is not None:
            return self._with_rule(_either(self.rule, other.rule), sizes)
        return self._together_with(other, sizes).coalesce()

    def intersection(self, other: Self) -> Self:
        """i listens to j in both graphs; without parallel edges."""
        sizes = _common_sizes(self, other, "intersection")
        if self.rule is not None and other.rule is not None:
            return self._with_rule(_both(self.rule, other.rule), sizes)
        if self.is_complete or other.is_complete:
            graph = (other if self.is_complete else self).coalesce()
            return self._with(sizes, offsets=graph.offsets, senders=graph.senders)
        together = self.coalesce()._together_with(other.coalesce(), sizes)
        return together.keep_edges(together._repeated())  # the second of two equal edges is in both graphs

    def permute(self, perm: Any) -> Self:
        """Node k of the result is node perm[k] of this graph, so features follow as x[perm].

        A batch stays a batch where perm keeps its members whole and in order; else the result is one graph.
        """
        self.require_square("permute")
        nodes = checks.node_list(perm, self.num_receivers)
        if len(nodes) != self.num_receivers:
            raise GraphError(f"a permutation must list all {self.num_receivers} nodes, not {len(nodes)} of them")
        return self.subgraph(nodes)

    def subgraph(self, nodes: Any) -> Self:
        """The induced graph on distinct nodes (indices, or a bool mask [N]): features follow as x[nodes].

        A batch stays a batch, under the same condition as in `permute`.
        """
        self.require_square("subgraph")
        self.check_unwritten()
        nodes = checks.node_list(nodes, self.num_receivers).to(self.device)
        if self.is_complete and len(self.sizes) == 1:
            return self._of(len(nodes), len(nodes), device=self.device, rule=Complete())
        place = torch.full((self.num_receivers,), -1, device=self.device)
        place[nodes] = torch.arange(len(nodes), device=self.device)
        receivers, senders = place[self.receivers], place[self.senders]
        inside = (receivers >= 0) & (senders >= 0)
        offsets, senders, order, _ = lowering.sorted_edges(receivers[inside], senders[inside], (len(nodes), len(nodes)))
        forms: Forms = {"offsets": offsets, "senders": senders}
        members = torch.repeat_interleave(self.sizes)[nodes]
        if bool((members.diff() >= 0).all()):
            forms["sizes"] = lowering.counts(members, len(self.sizes))
        return self._taken(self._of(len(nodes), len(nodes), device=self.device, **forms), inside.nonzero()[order, 0])

    def rows(self, start: int, stop: int) -> Self:
        """The same graph for receivers start, ..., stop - 1 alone; they keep their positions.

        Edge cases  rows of a batch are a batch, too: its members have the nodes that are among the rows, or none

        >>> from edgewise.graphs import causal
        >>> causal(5).rows(3, 4)  # one step of cached decoding
        Graph(1 receivers at offset 3, 5 senders, Causal())
        """
        start, stop = checks.whole_number(start, "start"), checks.whole_number(stop, "stop")
        self.check_unwritten()
        if not start <= stop <= self.num_receivers:
            raise GraphError(f"rows {start} to {stop} are out of range: the graph has {self.num_receivers} receivers")
        forms: Forms = {"rule": self.rule}
        if self.rule is None and self._ranges is not None:
            forms["_ranges"] = tuple(bounds[start:stop] for bounds in self._ranges)
        elif self.rule is None:
            if self.is_mapped:
                checks.stored(self, start, stop)
            offsets = self.offsets[start : stop + 1]
            senders = self._compact[1] if self.is_mapped else self.senders
            here = senders[int(offsets[0]) : int(offsets[-1])].to(torch.int64)
            forms |= {"offsets": offsets - offsets[0], "senders": here}
        if len(self.sizes) > 1:
            bounds = functional.pad(self.sizes.cumsum(0), (1, 0)).clamp(start, stop)
            forms |= {"sizes": bounds.diff(), "_batch": self._edgeless() if self._batch is None else self._batch}
            forms |= {"sender_sizes": self.sender_sizes} if "sender_sizes" in self._definition else {}
        graph = self._of(stop - start, self.num_senders, self.offset + start, self.device, **forms)
        return graph if self._attributes is None else self._taken(graph, slice(*self.offsets[[start, stop]].tolist()))

    def _edgeless(self) -> Self:
        """The members of a batch, to be asked for their sizes alone."""
        return self._with(self.sizes, rule=self.rule if isinstance(self.rule, Blocks) else None)

    def keep_edges(self, mask: Tensor) -> Self:
        """The graph of those edges for which a bool mask [E], in the graph's order, is true.

        Errors      another shape or dtype
        """
        if not isinstance(mask, Tensor) or mask.shape != (self.num_edges,) or mask.dtype != torch.bool:
            given = f"{checks.shown(mask)} of {mask.dtype}" if isinstance(mask, Tensor) else checks.shown(mask)
            raise GraphError(f"mask is {given}, but must be bool [{self.num_edges}]")
        return self._taken(self._with_edges_where(mask), mask)

    def _with_edges_where(self, mask: Tensor) -> Self:
        """Those edges, without features."""
        degrees = lowering.counts(self.receivers[mask], self.num_receivers)
        return self._with(self.sizes, offsets=lowering.offsets_of(degrees), senders=self.senders[mask])

    @classmethod
    def batch(cls, graphs: Iterable[Self]) -> Self:
        """One disjoint graph: the members' nodes and edges one after the other, and no edge in between.

        Errors      no graphs; members with an offset, or on different devices
        Edge cases  complete members stay symbolic, members with ranges give ranges; where every member remembers its
                    caller's order, `sort_edges` takes their edge tensors, concatenated; where every member has
                    `edge_attr`, the batch has it

        >>> from edgewise.graphs import Graph, complete
        >>> Graph.batch([complete(2), complete(3)])
        Graph(5 receivers, 5 senders, Blocks(receivers=(2, 3), senders=(2, 3)))
        """
        if isinstance(graphs, Adjacency):
            raise GraphError("a batch takes a list of graphs, not one: Graph.batch([graph])")
        members = checks.several(graphs, "a batch takes a list of graphs")
        if not members:
            raise GraphError("a batch needs at least one graph")
        for number, graph in enumerate(members):
            if not isinstance(graph, Algebra):
                raise GraphError(f"graph {number} of the batch is {a_kind(graph)}, not a Graph")
            graph.check_unwritten()
            if graph.offset:
                raise GraphError(f"graph {number} of the batch has offset {graph.offset}: only offset 0 can be batched")
            if graph.device != members[0].device:
                device = members[0].device
                raise GraphError(f"graph {number} of the batch is on {graph.device}, but graph 0 is on {device}")
        receivers, senders = sum(g.num_receivers for g in members), sum(g.num_senders for g in members)
        forms = _batch_of_blocks(members) or _batch_of_ranges(members) or _batch_of_edges(members)
        forms["sizes"] = torch.cat([g.sizes for g in members])
        e = [one for one in (g.edge_attr for g in members) if one is not None]
        if not all(g.num_receivers == g.num_senders and "sender_sizes" not in g._definition for g in members):
            forms["sender_sizes"] = torch.cat([g.sender_sizes for g in members])
        made = cls._of(receivers, senders, device=members[0].device, **forms)
        if len(e) < len(members):
            return made
        return made._carrying(torch.cat(e), torch.arange(sum(map(len, e)), device=made.device))

    def _with(self, sizes: Tensor | None, **forms: Any) -> Self:
        """The graph of other forms on the same nodes; sizes = None where it is no batch any more."""
        self.check_unwritten()
        if sizes is not None:
            forms["sizes"] = sizes
            forms |= {name: getattr(self, name) for name in ("_batch", "sender_sizes") if name in self._definition}
        return self._of(self.num_receivers, self.num_senders, self.offset, self.device, **forms)

    def _with_rule(self, rule: Rule, sizes: Tensor | None) -> Self:
        return self if rule == self.rule and sizes is not None else self._with(sizes, rule=rule)

    def _with_edges(self, receivers: Tensor, senders: Tensor, sizes: Tensor | None, e: Tensor | None = None) -> Self:
        """Edges in any order, with features in the same."""
        self.check_unwritten()
        shape = self.num_receivers, self.num_senders
        offsets, senders, order, listed = lowering.sorted_edges(receivers, senders, shape)
        graph = self._with(sizes, offsets=offsets, senders=senders)._listing(listed)
        return graph if e is None else graph._carrying(e, order)

    def _together_with(self, other: Self, sizes: Tensor | None) -> Self:
        """The edges of both graphs, side by side."""
        receivers, senders = torch.cat([self.receivers, other.receivers]), torch.cat([self.senders, other.senders])
        return self._with_edges(receivers, senders, sizes)

    def _repeated(self) -> Tensor:
        """bool [E]: the edge is parallel to the one in front of it."""
        repeated = torch.zeros_like(self.senders, dtype=torch.bool)
        repeated[1:] = (self.senders[1:] == self.senders[:-1]) & (self.receivers[1:] == self.receivers[:-1])
        return repeated


def _batch_of_blocks(graphs: Sequence[Adjacency]) -> Forms | None:
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


def _batch_of_ranges(graphs: Sequence[Adjacency]) -> Forms | None:
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


def _batch_of_edges(graphs: Sequence[Adjacency]) -> Forms:
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


def _common_sizes(graph: Algebra, other: Algebra, verb: str) -> Tensor | None:
    """The sizes of both graphs, if those agree; the graphs must be on the same nodes."""
    if not isinstance(other, Algebra):
        raise GraphError(f"{verb} takes another Graph, not {checks.shown(other)}")
    other.check_unwritten()
    mine, theirs = (
        f"{g.num_receivers} receivers at offset {g.offset} and {g.num_senders} senders on {g.device}"
        for g in (graph, other)
    )
    if mine != theirs:
        raise GraphError(f"{verb} needs graphs on the same nodes: one has {mine}, the other {theirs}")
    single = graph.sizes.shape[0] == other.sizes.shape[0] == 1  # which a compiled function sees without the numbers
    return graph.sizes if single or (_alike(graph._batch, other._batch) and _alike(graph, other)) else None


def _alike(graph: Algebra | None, other: Algebra | None) -> bool:
    """Whether two batches, if they are some, have members of the same sizes."""
    if graph is None or other is None:
        return graph is other
    return torch.equal(graph.sizes, other.sizes) and torch.equal(_senders(graph), _senders(other))


def _senders(graph: Algebra) -> Tensor:
    """Senders of each member where they are known, or else its receivers."""
    return graph.sender_sizes if graph.is_square or "sender_sizes" in graph._definition else graph.sizes
