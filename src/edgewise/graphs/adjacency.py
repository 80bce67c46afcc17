"""Adjacency: the exact forms of a graph (rule, ranges, edges), what is counted on them and cached with them."""

from collections.abc import Callable, Hashable, Iterable, Iterator
from typing import Any, Self, TypeVar, cast

import torch
from torch import Tensor

from edgewise.errors import GraphError, ShapeError
from edgewise.graphs import checks
from edgewise.graphs import forms as lowering
from edgewise.graphs.derived import derived, per_tensor
from edgewise.graphs.rule import Complete, Intervals, Rule
from edgewise.graphs.tracing import PLAIN, lasting, lastingly, plain, untransformed
from edgewise.memory import check_fits

T = TypeVar("T")

LISTED = 24  # bytes of an edge that is listed, and of a store's node: sender, receiver, one again on the way; counted


class Adjacency:
    """The three exact forms of a `Graph`, each lowered to the next on demand."""

    num_receivers: int
    num_senders: int
    offset: int
    device: torch.device
    rule: Rule | None
    is_complete: bool  # the rule says that everyone listens to everyone
    is_square: bool  # receivers and senders are the same nodes
    _compact: tuple[Tensor, Tensor]  # (offsets, senders) of a store, mapped; the senders in as many bits as they need
    _order: Tensor | None  # edge e is edge _order[e] of the caller's
    _attributes: tuple[Tensor, Tensor] | None = None  # features of edges as they were given, and the row of each edge
    _beside: tuple[Tensor, ...] = ()  # what else the caller holds of the edges, in their order
    _definition: tuple[str, ...]  # the names of the fields that were not derived
    _memo: dict[Hashable, Any]
    _versions: list[tuple[str, Tensor, int]]  # of its tensors: PyTorch counts the times that one is written in place

    def __init__(self, rule: Rule, receivers: int | None = None, senders: int | None = None, offset: int = 0) -> None:
        """The graph of a rule: receivers at positions offset, offset + 1, ..., senders at 0, 1, ...

        Sizes which are not given are those that the rule covers; else there is a sender for every receiver's position.

        >>> from edgewise.graphs import Graph
        >>> from edgewise.graphs.rule import Causal
        >>> Graph(Causal(), receivers=2, offset=3)
        Graph(2 receivers at offset 3, 5 senders, Causal())
        """
        if not isinstance(rule, Rule):
            what = type(rule).__name__
            raise GraphError(f"Graph takes a rule, not {what}: for edges there are from_edge_index and from_csr")
        offset, extent = checks.whole_number(offset, "offset"), rule.extent
        if receivers is None:
            if extent is None:
                raise GraphError(f"{rule} fits any number of nodes: say how many receivers")
            receivers = extent[0] - offset
        receivers = checks.whole_number(receivers, "receivers")
        checks.whole_number(offset + receivers, "offset + receivers")
        if senders is None:
            senders = extent[1] if extent else offset + receivers
        senders = checks.whole_number(senders, "senders")
        if extent and (offset + receivers > extent[0] or senders > extent[1]):
            needed = f"{receivers} receivers at offset {offset} and {senders} senders"
            raise GraphError(f"{rule} covers {extent[0]} receivers and {extent[1]} senders, too few for {needed}")
        self._define(receivers, senders, offset, rule=rule)

    @classmethod
    def from_ranges(cls, starts: Any, stops: Any, num_senders: int) -> Self:
        """Receiver i listens to the j with starts[i, r] <= j < stops[i, r] for one r.

        Shapes      starts, stops [I, R] integers
        Errors      a range out of bounds, reversed, or not after the one in front of it: receiver and range are named
        Edge cases  a range with start = stop is empty, wherever it is

        >>> from edgewise.graphs import Graph
        >>> Graph.from_ranges([[0, 3]], [[2, 4]], num_senders=4).senders.tolist()
        [0, 1, 3]
        """
        num_senders = checks.whole_number(num_senders, "num_senders")
        starts, stops = checks.ranges(starts, stops, num_senders)
        return cls._of(starts.shape[0], num_senders, device=starts.device, _ranges=(starts, stops))

    @classmethod
    def from_csr(cls, offsets: Any, senders: Any, num_senders: int) -> Self:
        """Receiver i listens to senders[offsets[i]], ..., senders[offsets[i + 1] - 1].

        Shapes      offsets [I + 1], senders [E] integers
        Errors      offsets that do not start at 0, fall, or do not end at E; a sender out of range
        Edge cases  senders need not ascend; `sort_edges` then brings edge tensors into the graph's order

        >>> from edgewise.graphs import Graph
        >>> Graph.from_csr([0, 2, 2], [4, 1], num_senders=5).senders.tolist()
        [1, 4]
        """
        num_senders = checks.whole_number(num_senders, "num_senders")
        offsets, senders = checks.csr(offsets, senders, num_senders)
        receivers = lowering.receivers_of(offsets, senders.shape[0])
        return cls._of_edges(receivers, senders, offsets.shape[0] - 1, num_senders)

    @classmethod
    def from_edge_index(
        cls, edge_index: Any, num_nodes: int, num_receivers: int | None = None, *, edge_attr: Tensor | None = None
    ) -> Self:
        """The ecosystem's [2, E]: row 0 the senders, row 1 the receivers, in any order.

        Shapes      edge_index [2, E] integers -> num_nodes senders, and as many receivers or num_receivers; edge_attr
                    [E, ...] in the order of edge_index
        Errors      a wrong shape or dtype; an index out of range: the edge and the bound are named
        Edge cases  `graph.edge_attr` has the caller's features of edges in the graph's order, and layers that are given
                    none read it; `sort_edges` brings further edge tensors there, without which they are misread

        >>> from edgewise.graphs import Graph
        >>> graph = Graph.from_edge_index([[1, 0], [2, 0]], num_nodes=3)
        >>> graph.sort_edges(torch.tensor([10.0, 20.0]))  # the edge from 0 to 0 comes first
        tensor([20., 10.])
        """
        num_senders = checks.whole_number(num_nodes, "num_nodes")
        receivers = num_senders if num_receivers is None else checks.whole_number(num_receivers, "num_receivers")
        of_senders, of_receivers = checks.edge_index(edge_index)
        graph = cls._of_edges(of_receivers, of_senders, receivers, num_senders)
        if edge_attr is None:
            return graph
        graph._check_edges(edge_attr)
        checks.same_device("edge_attr", edge_attr, graph.device)
        return graph._carrying(edge_attr, graph._order)

    @classmethod
    def _of_edges(cls, receivers: Tensor, senders: Tensor, num_receivers: int, num_senders: int) -> Self:
        edges = receivers, senders = plain((receivers, senders))
        with untransformed(edges):
            offsets, senders, order, listed = lowering.sorted_edges(receivers, senders, (num_receivers, num_senders))
        forms = {"offsets": offsets, "senders": senders, "_order": order, "num_edges": order.shape[0]}
        return cls._of(num_receivers, num_senders, 0, senders.device, **forms)._listing(listed)

    def _listing(self, receivers: Tensor | None) -> Self:
        """This graph, which nobody has yet, with the receivers of its edges, where they are known."""
        if receivers is not None:
            self.__dict__["receivers"] = lasting(receivers)
            self.watch({"receivers": self.receivers})
        return self

    def _carrying(self, given: Tensor, rows: Any) -> Self:
        """This graph, which nobody has yet, with features of its edges: edge e has row rows[e] of those given."""
        self.__dict__.update(_attributes=(given, rows), _definition=(*self._definition, "_attributes"))
        return self

    def _remember(self, beside: Iterable[Any]) -> None:
        """Which other tensors of edges the caller holds: in the caller's order they are refused."""
        self.__dict__["_beside"] = tuple(t for t in beside if type(t) is Tensor and t.shape[:1] == (self.num_edges,))

    def _taken(self, graph: Self, edges: Tensor | slice) -> Self:
        """A new graph with the features of some of this graph's edges: its edge e is edge edges[e] of this one."""
        if self._attributes is None:
            return graph
        given, rows = self._attributes
        return graph._carrying(given, rows[edges])

    @property
    def edge_attr(self) -> Tensor | None:
        """The features of edges that the graph was made with, [E, ...] in its own order; None where there were none.

        >>> from edgewise.graphs import Graph
        >>> graph = Graph.from_edge_index([[1, 0], [2, 0]], num_nodes=3, edge_attr=torch.tensor([[10.0], [20.0]]))
        >>> graph.edge_attr.tolist(), graph.transpose()[0].edge_attr.tolist(), graph.subgraph([1, 2]).edge_attr.tolist()
        ([[20.0], [10.0]], [[20.0], [10.0]], [[10.0]])
        """
        return None if self._attributes is None else self._attributes[0].index_select(0, self._attributes[1])

    def check_sorted(self, name: str, e: Tensor) -> None:
        """Raise ShapeError for the very values that the graph was made with, in another order than its own."""
        none = self._attributes is None and not self._beside
        if none or torch.compiler.is_dynamo_compiling() or type(e) not in PLAIN or not e.numel():
            return
        known = [] if self._attributes is None else [(*self._attributes, "graph.edge_attr")]
        known += [(given, cast(Tensor, self._order), "graph.sort_edges(...) of them") for given in self._beside]
        for given, rows, right in known:
            if e.untyped_storage().data_ptr() == given.untyped_storage().data_ptr() and not _in_order(given, rows):
                what = "these values came with the graph, in the caller's order of edges, which is not the graph's"
                raise ShapeError(f"{name}: {what}: give {right}")

    @classmethod
    def _of(
        cls, num_receivers: int, num_senders: int, offset: int = 0, device: torch.device | str = "cpu", **forms: Any
    ) -> Self:
        """A graph of forms that are right: `rule`, `_ranges`, `offsets` with `senders` or `_compact`, and more."""
        graph = cls.__new__(cls)
        graph._define(num_receivers, num_senders, offset, device, **forms)
        return graph

    def _define(
        self, num_receivers: int, num_senders: int, offset: int, device: torch.device | str = "cpu", **forms: Any
    ) -> None:
        fields = {"num_receivers": num_receivers, "num_senders": num_senders, "offset": offset}
        fields |= {"device": torch.device(device), "rule": None, "_order": None} | {k: lasting(forms[k]) for k in forms}
        fields["is_complete"] = isinstance(fields["rule"], Complete)
        fields["is_square"] = num_receivers == num_senders and offset == 0 and "sender_sizes" not in forms
        self.__dict__.update(fields, _definition=tuple(fields), _memo={}, _versions=[])
        self.watch(fields)

    # Forms. One that was given at construction is an attribute already and hides the property that would derive it.

    @derived
    def _ranges(self) -> Intervals | None:
        return None if self.rule is None else lowering.few_intervals(self.rule, *self._extent())

    def _intervals(self) -> Iterator[Intervals]:
        if self._ranges is not None:
            return iter([self._ranges])
        return lowering.interval_chunks(cast(Rule, self.rule), *self._extent())

    def _extent(self) -> tuple[int, int, int, torch.device]:
        return self.num_receivers, self.offset, self.num_senders, self.device

    def _positions(self) -> Tensor:
        return lowering.positions(self.num_receivers, self.offset, self.device)

    def _has_edges(self) -> bool:
        return "senders" in self.__dict__

    @property
    def is_list(self) -> bool:
        """Whether its one form is a list of edges, in memory."""
        return self.rule is None and self._has_edges() and self.__dict__.get("_ranges") is None

    @property
    def is_mapped(self) -> bool:
        """Whether its edges lie in a store, where `sample_neighbors` and `rows` read them."""
        return "_compact" in self.__dict__

    def _check_listing(self) -> None:
        more = " of a store of {:,} nodes, whose rows `sample_neighbors` and `rows` read," if self.is_mapped else ""
        rows = self.num_receivers if more else 0
        check_fits(LISTED * (self.num_edges + rows), "listing {:,} edges" + more, self.num_edges, rows)

    @derived
    def offsets(self) -> Tensor:
        """Row offsets [I + 1]: the edges of receiver i are offsets[i], ..., offsets[i + 1] - 1."""
        return lowering.offsets_of(self.in_degrees())

    @derived
    def senders(self) -> Tensor:
        """The sender of each edge [E], ascending inside a receiver's row."""
        self._check_listing()
        if self.is_mapped:
            checks.stored(self)
            return self._compact[1].to(torch.int64)
        if self._ranges is not None:
            return lowering.senders_of(*self._ranges, self.num_edges)
        return torch.cat([lowering.senders_of(starts, stops) for starts, stops in self._intervals()])

    @derived
    def receivers(self) -> Tensor:
        """The receiver of each edge [E]."""
        if not self._has_edges():
            self._check_listing()
        return torch.repeat_interleave(self.in_degrees(), output_size=self.num_edges)

    @derived
    def num_edges(self) -> int:
        """E, counted from the rule or the ranges where there are no edges yet."""
        if self.is_complete:
            return self.num_receivers * self.num_senders
        if self._has_edges():
            return int(self.senders.shape[0])
        if self.is_mapped:
            return int(self._compact[1].shape[0])
        if self.rule is not None:
            return lowering.count_edges(self.rule, self.num_receivers, self.num_senders, self.offset)
        return int(self.in_degrees().sum())

    def ranges(self) -> Intervals | None:
        """Ascending sender intervals (starts, stops) [I, R]; None where there is no form with few of them."""
        return self._ranges

    def edge_index(self) -> Tensor:
        """[2, E] in the graph's own order: row 0 the senders, row 1 the receivers."""
        self.check_unwritten()
        return torch.stack([self.senders, self.receivers])

    def sort_edges(self, t: Tensor) -> Tensor:
        """Bring an edge tensor [E, ...] from the order in which the caller gave the edges into the graph's order."""
        if self._order is None:
            only = "only graphs made from a list of edges have one, and what to, transpose and batch make of those"
            raise GraphError(f"this graph has no caller's edge order: {only}; here edge_index() is the order")
        self._check_edges(t)
        return t.index_select(0, self._order)

    def _check_edges(self, t: Any) -> None:
        if not isinstance(t, Tensor) or t.dim() == 0 or t.shape[0] != self.num_edges:
            raise ShapeError(f"an edge tensor of this graph has shape [{self.num_edges}, ...], not {checks.shown(t)}")

    @derived
    def _in_degrees(self) -> Tensor:
        if "offsets" in self.__dict__:
            return checks.degrees(self)
        return torch.cat([(stops - starts).sum(1) for starts, stops in self._intervals()])

    def in_degrees(self) -> Tensor:
        """How many edges each receiver has [I]."""
        return self._in_degrees

    @derived
    def _out_degrees(self) -> Tensor:
        return lowering.counts(self.senders, self.num_senders)

    def out_degrees(self) -> Tensor:
        """How many edges each sender has [J]."""
        return self._out_degrees

    @derived
    def density(self) -> float:
        """E / (I * J), and 0 for a graph without pairs."""
        return self.num_edges / max(1, self.num_receivers * self.num_senders)

    @derived
    def has_duplicates(self) -> bool:
        """Some i listens to some j more than once."""
        if self.rule is not None or self._ranges is not None:
            return False
        return lowering.repeats_an_edge(self.offsets, self.senders)

    @derived
    def has_self_loops(self) -> bool:
        """Every node listens to itself; False where receivers and senders are not the same nodes."""
        if not self.is_square:
            return False
        if self.rule is not None:
            return bool(self.rule.listens(self._positions(), self._positions()).all())
        return len(self.unlooped) == 0

    @derived
    def unlooped(self) -> Tensor:
        """The receivers that do not listen to themselves, ascending."""
        at = self.receivers + self.offset if self.offset else self.receivers
        own = self.receivers[at == self.senders]
        alone = torch.ones(self.num_receivers, dtype=torch.bool, device=self.device).index_fill_(0, own, False)
        return alone.nonzero()[:, 0]

    def dense_mask(self) -> Tensor:
        """bool [I, J]: does i listen to j? Refused where it would not fit in memory.

        >>> from edgewise.graphs import Graph
        >>> Graph.from_csr([0, 1, 1], [2], num_senders=3).dense_mask().int().tolist()
        [[0, 0, 1], [0, 0, 0]]
        """
        if self.rule is None:
            return self.multiplicity() > 0
        receivers, senders = self.num_receivers, self.num_senders
        check_fits(receivers * senders, "a mask of {:,} × {:,} pairs", receivers, senders)
        return self.rule.listens(self._positions()[:, None], torch.arange(senders, device=self.device))

    def multiplicity(self) -> Tensor:
        """int64 [I, J]: how many edges lead from j to i. Refused where it would not fit in memory."""
        receivers, senders = self.num_receivers, self.num_senders
        check_fits(8 * receivers * senders, "a mask of {:,} × {:,} pairs", receivers, senders)
        pairs = self.receivers * senders + self.senders
        return lowering.counts(pairs, receivers * senders).view(receivers, senders)

    @derived
    def sizes(self) -> Tensor:
        """Nodes of each member of a batch, int64 [G]; [I] for a single graph. Where I and J differ: receivers."""
        return torch.tensor([self.num_receivers], device=self.device)

    @derived
    def _membership(self) -> Self:
        if self.sizes.shape[0] == 1:
            return self._of(1, self.num_receivers, device=self.device, rule=Complete())
        stops, nodes = self.sizes.cumsum(0)[:, None], self.num_receivers  # of which each is a member of one graph
        ranges = stops - self.sizes[:, None], stops
        return self._of(self.sizes.shape[0], nodes, device=self.device, _ranges=ranges, num_edges=nodes)

    def membership(self) -> Self:
        """The graph in which each member of a batch listens to its own nodes: a readout is an `aggregate` over it."""
        return self._membership

    def memo(self, key: Hashable, build: Callable[[], T]) -> T:
        """A value that follows from this graph, built once; `cached` makes the key of the function that builds it."""
        if key not in self._memo:
            if torch.compiler.is_dynamo_compiling():
                with torch.inference_mode(False):  # as in `untransformed`, which the compiler cannot read
                    self._memo[key] = build()
            else:
                self.check_unwritten()
                self._memo[key] = lastingly(lambda _: build(), self)
        return cast(T, self._memo[key])

    def check_unwritten(self) -> None:
        """Raise GraphError where one of this graph's tensors was written: a kernel would follow it out of memory."""
        for name, tensor, version in () if torch.compiler.is_dynamo_compiling() else self._versions:
            if tensor._version != version:
                raise GraphError(
                    f"a Graph is immutable, but its {name.strip('_')} were written in place: make a new graph of a copy"
                )

    def watch(self, made: dict[str, Any]) -> None:
        """Remember how often tensors of this graph, by their names, were written before anybody else had them."""
        for name, value in () if torch.compiler.is_dynamo_compiling() else made.items():
            for tensor in value if type(value) is tuple else (value,):
                if type(tensor) is Tensor and not tensor.is_inference():
                    self._versions.append((name, tensor, tensor._version))

    def to(self, device: torch.device | str) -> Self:
        """This graph on a device, with every form it has by now; this very graph if it is there already."""
        device = checks.device_of(device)
        if device == self.device:
            return self
        self.check_unwritten()
        graph = type(self).__new__(type(self))
        moved = {name: _moved(value, device) for name, value in self.__dict__.copy().items()}
        graph.__dict__.update(moved, device=device, _memo={}, _versions=[])
        graph.watch(moved)
        return graph

    def require_square(self, what: str) -> None:
        if not self.is_square:
            nodes = f"{self.num_receivers} receivers at offset {self.offset} and {self.num_senders} senders"
            raise GraphError(f"{what} needs receivers and senders to be the same nodes: this graph has {nodes}")

    def __setattr__(self, name: str, value: Any) -> None:
        raise GraphError(f"a Graph is immutable: {name} cannot be set")

    def __delattr__(self, name: str) -> None:
        raise GraphError(f"a Graph is immutable: {name} cannot be deleted")

    def __getstate__(self) -> dict[str, Any]:
        # What defines the graph, and no more: a data-loader worker derives the rest faster than it would receive it.
        state = {name: self.__dict__[name] for name in (*self._definition, "_definition")}
        return state | {"_memo": {}, "_versions": []}

    def _nodes(self) -> tuple[int, int, int]:
        return self.num_receivers, self.num_senders, self.offset

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Adjacency):
            return NotImplemented
        if self._nodes() != other._nodes():
            return False
        if self.rule is not None and self.rule == other.rule:
            return True
        other = other.to(self.device)
        return self.num_edges == other.num_edges and bool(
            torch.equal(self.offsets, other.offsets) and torch.equal(self.senders, other.senders)
        )

    def __hash__(self) -> int:
        return hash(self._nodes())  # the same for equal graphs; reads no edge

    def __repr__(self) -> str:
        at = f" at offset {self.offset}" if self.offset else ""
        what = f"{self.num_edges} edges" if self.rule is None else str(self.rule)
        return f"Graph({self.num_receivers} receivers{at}, {self.num_senders} senders, {what})"


@per_tensor
def _in_order(given: Tensor, rows: Tensor) -> bool:
    return torch.equal(given, given.index_select(0, rows))


def _moved(value: Any, device: torch.device) -> Any:
    if hasattr(value, "to"):  # also what a partition fetches rows by
        return lasting(value.to(device))
    return tuple(_moved(part, device) for part in value) if isinstance(value, tuple) else value
