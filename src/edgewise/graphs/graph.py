"""Graph: for every receiver i, the senders N(i) that it listens to. It holds no features."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from functools import cached_property
from typing import Any, TypeVar

import torch
from torch import Tensor

from edgewise.errors import GraphError, ShapeError
from edgewise.graphs import algebra, checks, lowering
from edgewise.graphs.rule import Complete, Intervals, Rule

T = TypeVar("T")


class Graph:
    """Who listens to whom; immutable, checked once when it is built.

    Three exact forms, each lowered to the next on demand and kept: a rule (a predicate on positions), ranges (a few
    sender intervals per receiver) and edges (CSR: receiver by receiver, senders ascending; parallel edges in the
    caller's order).

    Symbols     I = num_receivers, J = num_senders, E = num_edges; receiver i sits at position i + offset
    Errors      GraphError names the edge and the bound
    Edge cases  isolated nodes, no nodes, no edges, self-loops and parallel edges are all legal
    Cost        a rule costs nothing until it is lowered; ranges O(I * R), edges O(E)

    >>> graph = Graph.from_edge_index([[0, 2, 1], [1, 1, 0]], num_nodes=3)  # 1 listens to 0 and 2; 0 listens to 1
    >>> graph.offsets.tolist(), graph.senders.tolist()
    ([0, 1, 3, 3], [1, 0, 2])
    """

    num_receivers: int
    num_senders: int
    offset: int
    device: torch.device
    rule: Rule | None

    def __init__(self, rule: Rule, receivers: int | None = None, senders: int | None = None, offset: int = 0) -> None:
        if not isinstance(rule, Rule):
            raise GraphError(
                f"Graph(rule) takes a rule, not {type(rule).__name__}: for edges there are Graph.from_edge_index and "
                "Graph.from_csr, for patterns edgewise.graphs.PATTERNS"
            )
        extent = rule.extent
        if receivers is None and extent is None:
            raise GraphError(f"{rule} fits any number of nodes: say how many receivers")
        offset = checks.whole_number(offset, "offset")
        if receivers is None and extent is not None:
            receivers = extent[0] - offset
        receivers = checks.whole_number(receivers, "receivers")
        if senders is None:
            senders = extent[1] if extent else offset + receivers
        senders = checks.whole_number(senders, "senders")
        if extent and (offset + receivers > extent[0] or senders > extent[1]):
            raise GraphError(
                f"{rule} covers {extent[0]} receivers and {extent[1]} senders: "
                f"{receivers} receivers at offset {offset} and {senders} senders do not fit"
            )
        self._define(receivers, senders, offset, rule=rule)

    def _define(
        self, num_receivers: int, num_senders: int, offset: int = 0, device: Any = "cpu", **forms: Any
    ) -> None:
        """Write the fields that define this graph; the derived ones (cached properties) follow on demand."""
        shape = {"num_receivers": num_receivers, "num_senders": num_senders, "offset": offset}
        fields = shape | {"device": torch.device(device), "rule": None, "_order": None} | forms
        self.__dict__.update(fields, _definition=tuple(fields), _memo={})

    @classmethod
    def _of(cls, num_receivers: int, num_senders: int, offset: int = 0, device: Any = "cpu", **forms: Any) -> Graph:
        graph = cls.__new__(cls)
        graph._define(num_receivers, num_senders, offset, device, **forms)
        return graph

    @classmethod
    def from_rule(cls, rule: Rule, receivers: int | None = None, senders: int | None = None, offset: int = 0) -> Graph:
        """The graph of a rule: receivers at positions offset .. offset + receivers - 1, senders at 0 .. senders - 1."""
        return cls(rule, receivers, senders, offset)

    @classmethod
    def from_ranges(cls, starts: Any, stops: Any, num_senders: int) -> Graph:
        """Receiver i listens to starts[i, r] <= j < stops[i, r], for all r: starts, stops [I, R], disjoint, ascending.

        An interval with start = stop is empty, wherever it is.

        >>> Graph.from_ranges([[0, 3]], [[2, 4]], num_senders=4).senders.tolist()
        [0, 1, 3]
        """
        num_senders = checks.whole_number(num_senders, "num_senders")
        starts, stops = checks.ranges(starts, stops, num_senders)
        return cls._of(starts.shape[0], num_senders, device=starts.device, _ranges=(starts, stops))

    @classmethod
    def from_csr(cls, offsets: Any, senders: Any, num_senders: int) -> Graph:
        """Receiver i listens to senders[offsets[i]], ..., senders[offsets[i + 1] - 1]: offsets [I + 1], senders [E].

        >>> Graph.from_csr([0, 2, 2], [4, 1], num_senders=5).senders.tolist()
        [1, 4]
        """
        num_senders = checks.whole_number(num_senders, "num_senders")
        offsets, senders = checks.csr(offsets, senders, num_senders)
        return cls._from_edges(lowering.receivers_of(offsets), senders, offsets.shape[0] - 1, num_senders)

    @classmethod
    def from_edge_index(cls, edge_index: Any, num_nodes: int, num_receivers: int | None = None) -> Graph:
        """The ecosystem's [2, E]: row 0 the senders, row 1 the receivers.

        Shapes      edge_index [2, E] int64 -> num_nodes receivers and senders; with num_receivers, num_nodes senders
        Errors      a wrong shape or dtype; an index out of range, with the edge's number
        Edge cases  edges come in any order; `sort_edges` brings the caller's edge tensors into the graph's order

        >>> graph = Graph.from_edge_index([[1, 0], [2, 0]], num_nodes=3)
        >>> graph.sort_edges(torch.tensor([10.0, 20.0]))  # 0 -> 0 comes first
        tensor([20., 10.])
        """
        num_senders = checks.whole_number(num_nodes, "num_nodes")
        receivers = num_senders if num_receivers is None else checks.whole_number(num_receivers, "num_receivers")
        index = checks.edge_index(edge_index, receivers, num_senders, square=num_receivers is None)
        return cls._from_edges(index[1], index[0], receivers, num_senders)

    @classmethod
    def _from_edges(cls, receivers: Tensor, senders: Tensor, num_receivers: int, num_senders: int) -> Graph:
        offsets, senders, order = lowering.sorted_edges(receivers, senders, num_receivers)
        return cls._of(num_receivers, num_senders, 0, senders.device, offsets=offsets, senders=senders, _order=order)

    # Forms: a field given at construction is in __dict__ already and hides the property that would derive it.

    def _chunks(self) -> Iterator[Intervals]:
        if self._ranges is not None:
            return iter([self._ranges])
        assert self.rule is not None
        at = lowering.positions(self.num_receivers, self.offset, self.device)
        return lowering.interval_chunks(self.rule, at, self.num_senders)

    @cached_property
    def _ranges(self) -> Intervals | None:
        if self.rule is None:
            return None
        at = lowering.positions(self.num_receivers, self.offset, self.device)
        return lowering.few_intervals(self.rule, at, self.num_senders)

    @cached_property
    def offsets(self) -> Tensor:
        """Row offsets [I + 1]: the edges of receiver i are offsets[i] .. offsets[i + 1] - 1."""
        return lowering.offsets_of(self._in_degrees)

    @cached_property
    def senders(self) -> Tensor:
        """The sender of each edge [E], ascending inside a receiver's row."""
        return torch.cat([lowering.senders_of(starts, stops) for starts, stops in self._chunks()])

    @cached_property
    def receivers(self) -> Tensor:
        """The receiver of each edge [E]."""
        return lowering.receivers_of(self.offsets)

    @cached_property
    def num_edges(self) -> int:
        if self.is_complete:
            return self.num_receivers * self.num_senders
        return self.senders.shape[0] if "senders" in self.__dict__ else int(self._in_degrees.sum())

    @cached_property
    def _in_degrees(self) -> Tensor:
        if "offsets" in self.__dict__:
            return self.offsets.diff()
        return torch.cat([(stops - starts).sum(1) for starts, stops in self._chunks()])

    @cached_property
    def is_complete(self) -> bool:
        """The rule says that everyone listens to everyone."""
        return isinstance(self.rule, Complete)

    @cached_property
    def is_square(self) -> bool:
        """Receivers and senders are the same nodes."""
        return self.num_receivers == self.num_senders and self.offset == 0

    def ranges(self) -> Intervals | None:
        """Sender intervals (starts, stops) [I, R] in ascending order, or None where there is no form with few of them."""
        return self._ranges

    def edge_index(self) -> Tensor:
        """[2, E] in the graph's own order: row 0 senders, row 1 receivers."""
        return torch.stack([self.senders, self.receivers])

    def sort_edges(self, t: Tensor) -> Tensor:
        """Bring an edge tensor [E, ...] from the order in which the caller gave the edges into the graph's order."""
        if self._order is None:
            raise GraphError(
                "this graph has no caller's edge order: only from_edge_index and from_csr remember one (and to and "
                "transpose keep it); its edges are in the order of edge_index()"
            )
        if t.dim() == 0 or t.shape[0] != self.num_edges:
            raise ShapeError(f"an edge tensor of this graph has shape [{self.num_edges}, ...], not {list(t.shape)}")
        return t.index_select(0, self._order)

    def in_degrees(self) -> Tensor:
        """How many senders each receiver listens to [I]."""
        return self._in_degrees

    @cached_property
    def _out_degrees(self) -> Tensor:
        return lowering.counts(self.senders, self.num_senders)

    def out_degrees(self) -> Tensor:
        """How many receivers listen to each sender [J]."""
        return self._out_degrees

    @cached_property
    def density(self) -> float:
        """E / (I * J); 0 for a graph without pairs."""
        pairs = self.num_receivers * self.num_senders
        return self.num_edges / pairs if pairs else 0.0

    def dense_mask(self) -> Tensor:
        """bool [I, J]: does i listen to j? O(I * J) memory."""
        if self.rule is not None:
            i = lowering.positions(self.num_receivers, self.offset, self.device)[:, None]
            j = torch.arange(self.num_senders, device=self.device)[None, :]
            return self.rule.listens(i, j)
        return self.multiplicity() > 0

    def multiplicity(self) -> Tensor:
        """int64 [I, J]: how many edges lead from j to i."""
        shape = self.num_receivers, self.num_senders
        return lowering.counts(self.receivers * shape[1] + self.senders, shape[0] * shape[1]).view(shape)

    def block_counts(self, block: int) -> Tensor:
        """Edges in each tile of block x block pairs: int64 [ceil(I / block), ceil(J / block)]."""
        block = checks.whole_number(block, "block", least=1)
        shape = self.num_receivers, self.num_senders
        if self.rule is None and self._ranges is None:
            return lowering.block_counts_of_edges(self.receivers, self.senders, shape, block)
        return lowering.block_counts_of_ranges(self._chunks(), shape, block)

    @cached_property
    def has_duplicates(self) -> bool:
        """Some i listens to some j more than once."""
        if self.rule is not None or self._ranges is not None:
            return False
        same = (self.senders[1:] == self.senders[:-1]) & (self.receivers[1:] == self.receivers[:-1])
        return bool(same.any())

    @cached_property
    def has_self_loops(self) -> bool:
        """Every node listens to itself (False where receivers and senders are not the same nodes)."""
        if not self.is_square:
            return False
        if self.rule is not None:
            at = lowering.positions(self.num_receivers, 0, self.device)
            return bool(self.rule.listens(at, at).all())
        loops = self.receivers[self.receivers == self.senders]
        return bool((lowering.counts(loops, self.num_receivers) > 0).all())

    @cached_property
    def _transposed(self) -> tuple[Graph, Tensor]:
        return algebra.transpose(self)

    def transpose(self) -> tuple[Graph, Tensor]:
        """The graph with every edge reversed, and perm [E]: its edge e is edge perm[e] of this graph. Kept."""
        return self._transposed

    @cached_property
    def sizes(self) -> Tensor:
        """Nodes of each member graph: int64 [G]; [I] for a graph which is not a batch."""
        return torch.tensor([self.num_receivers], device=self.device)

    @cached_property
    def _membership(self) -> Graph:
        if self.sizes.shape[0] == 1:
            return Graph._of(1, self.num_receivers, 0, self.device, rule=Complete())
        stops = self.sizes.cumsum(0)[:, None]
        ranges = (stops - self.sizes[:, None], stops)
        return Graph._of(self.sizes.shape[0], self.num_receivers, 0, self.device, _ranges=ranges)

    def membership(self) -> Graph:
        """Each member graph listens to its own nodes: a readout is an `aggregate` over this graph."""
        return self._membership

    def memo(self, key: Hashable, build: Callable[[], T]) -> T:
        """A value derived from this graph, built once: `graph.memo("gcn", lambda: weights(graph))`."""
        if key not in self._memo:
            self._memo[key] = build()
        return self._memo[key]  # type: ignore[no-any-return]

    # Graphs from this graph

    def union(self, other: Graph) -> Graph:
        """i listens to j in either graph; no parallel edges."""
        return algebra.union(self, other)

    def intersection(self, other: Graph) -> Graph:
        """i listens to j in both graphs; no parallel edges."""
        return algebra.intersection(self, other)

    def coalesce(self) -> Graph:
        """One edge for each set of parallel edges."""
        return algebra.coalesce(self)

    @cached_property
    def _looped(self) -> Graph:
        return algebra.add_self_loops(self)

    def add_self_loops(self) -> Graph:
        """Every node listens to itself too; a node that does already gets no second loop. Kept."""
        return self if self.has_self_loops else self._looped

    def remove_self_loops(self) -> Graph:
        """No node listens to itself."""
        return algebra.remove_self_loops(self)

    def symmetrise(self) -> Graph:
        """i listens to j wherever j listens to i; no parallel edges."""
        return algebra.symmetrise(self)

    def permute(self, perm: Any) -> Graph:
        """Node k of the result is node perm[k] of this graph: features follow as x[perm].

        A batch stays one where perm keeps the member graphs apart and in order; else the result is a single graph.
        """
        return algebra.permute(self, perm)

    def subgraph(self, nodes: Any) -> Graph:
        """The induced graph on distinct nodes (indices, or a bool mask [N]): features follow as x[nodes]."""
        return algebra.subgraph(self, nodes)

    def rows(self, start: int, stop: int) -> Graph:
        """The same graph for receivers start .. stop - 1 only, which keep their positions: x_receivers[start:stop]."""
        return algebra.rows(self, start, stop)

    @staticmethod
    def batch(graphs: Sequence[Graph]) -> Graph:
        """One disjoint graph: nodes and edges of the members one after the other, none in between.

        Edge cases  complete members stay symbolic (`Blocks`); members with ranges give ranges; sort_edges takes the
                    members' edge tensors, concatenated, where every member remembers its caller's order
        """
        return algebra.batch(graphs)

    def to(self, device: torch.device | str) -> Graph:
        """This graph on a device, with every form that it has by now; this very graph if it is there already."""
        device = torch.empty(0, device=device).device  # names the number of the current device: cuda -> cuda:0
        if device == self.device:
            return self
        moved = {key: _moved(value, device) for key, value in self.__dict__.items()}
        graph = Graph.__new__(Graph)
        graph.__dict__.update(moved, device=device, _memo={})
        return graph

    def __setattr__(self, name: str, value: Any) -> None:
        raise GraphError(f"a Graph is immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise GraphError(f"a Graph is immutable: {name} cannot be deleted")

    def __getstate__(self) -> dict[str, Any]:
        # Only what defines the graph travels: derived values are cheaper to make again than to send to a worker.
        return {key: self.__dict__[key] for key in (*self._definition, "_definition")} | {"_memo": {}}

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Graph):
            return NotImplemented
        if (self.num_receivers, self.num_senders, self.offset) != (other.num_receivers, other.num_senders, other.offset):
            return False
        if self.rule is not None and self.rule == other.rule:
            return True
        if self.num_edges != other.num_edges:
            return False
        other = other.to(self.device)
        return torch.equal(self.offsets, other.offsets) and torch.equal(self.senders, other.senders)

    def __hash__(self) -> int:
        return hash((self.num_receivers, self.num_senders, self.offset))  # equal for equal graphs, and reads no edge

    def __repr__(self) -> str:
        what = str(self.rule) if self.rule is not None else f"{self.num_edges} edges"
        at = f" at offset {self.offset}" if self.offset else ""
        return f"Graph({self.num_receivers} receivers{at}, {self.num_senders} senders, {what})"


def _moved(value: Any, device: torch.device) -> Any:
    if isinstance(value, Tensor | Graph):
        return value.to(device)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(_moved(part, device) for part in value)
    return value
