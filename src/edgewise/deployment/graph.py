"""A graph while a model is exported: its numbers of nodes and edges are symbols, its edges in the caller's order."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass
from typing import Any, Self, TypeVar, cast

import torch
from torch import Tensor

from edgewise.errors import ExportError
from edgewise.graphs import Graph
from edgewise.graphs import forms as lowering
from edgewise.graphs.rule import Complete, Either, Itself, Rule

T = TypeVar("T")
Forms = Mapping[str, Callable[..., Any]]


@dataclass(frozen=True, eq=False)
class Members(Rule):
    """Receivers listen to the senders of their own member of a batch, or by a rule to some of them.

    Symbols     receivers [I], senders [J] = the member that each is of; inside = the rule, on `places` in the member,
                of receivers and of senders
    """

    receivers: Tensor
    senders: Tensor
    inside: Rule | None = None
    places: tuple[Tensor, Tensor] | None = None

    def listens(self, i: Tensor, j: Tensor) -> Tensor:
        together = self.receivers[i] == self.senders[j]
        if self.inside is None or self.places is None:
            return together
        return together & self.inside.listens(self.places[0][i], self.places[1][j])


def members_of(sizes: Tensor, nodes: int) -> Tensor:
    """The member that each node is of [N], from the members' sizes [G].

    Cost        O(N + G)

    >>> members_of(torch.tensor([2, 0, 1]), 3).tolist()
    [0, 0, 2]
    """
    starts = sizes.cumsum(0) - sizes
    marks = torch.zeros(nodes + 1, dtype=torch.int64, device=sizes.device)
    return marks.index_add(0, starts, torch.ones_like(starts))[:-1].cumsum(0) - 1


def places_in(sizes: Tensor, member: Tensor) -> Tensor:
    """Where each node is in its member [N].

    >>> places_in(torch.tensor([2, 0, 1]), torch.tensor([0, 0, 2])).tolist()
    [0, 1, 0]
    """
    return torch.arange(member.shape[0], device=member.device) - (sizes.cumsum(0) - sizes).index_select(0, member)


class TracedGraph(Graph):
    """A graph of which an exporter sees tensors alone: in place of what is computed of it elsewhere stand `forms`.

    Symbols     forms = by a cached function's name, what computes the same by standard operators
    Edge cases  edges are in the caller's order: `sort_edges` changes nothing; a rule lists its edges by receiver
    """

    forms: Forms

    @classmethod
    def of_edges(
        cls,
        senders: Tensor,
        receivers: Tensor,
        nodes: tuple[int, int],
        forms: Forms,
        sizes: Tensor | None = None,
        is_square: bool = True,
    ) -> Self:
        """The graph of edges from senders [E] to receivers [E]; nodes = the numbers of receivers and of senders."""
        parts: dict[str, Any] = {"senders": senders, "receivers": receivers, "num_edges": senders.shape[0]}
        return cls._traced(nodes, senders.device, forms, sizes, is_square, **parts)

    @classmethod
    def of_rule(
        cls,
        rule: Rule,
        nodes: tuple[int, int],
        device: torch.device,
        forms: Forms,
        sizes: Tensor | None = None,
        is_square: bool = True,
        offset: int = 0,
    ) -> Self:
        """The graph of a rule; nodes = the numbers of receivers and of senders; offset = the first receiver's place."""
        return cls._traced(nodes, device, forms, sizes, is_square, offset, rule=rule)

    @classmethod
    def _traced(
        cls,
        nodes: tuple[int, int],
        device: torch.device,
        forms: Forms,
        sizes: Tensor | None,
        is_square: bool,
        offset: int = 0,
        rule: Rule | None = None,
        **parts: Any,
    ) -> Self:
        graph = cls.__new__(cls)
        one = torch.full((1,), nodes[0], dtype=torch.int64, device=device)
        fields = {"num_receivers": nodes[0], "num_senders": nodes[1], "offset": offset, "device": device, "rule": rule}
        fields |= {"is_complete": isinstance(rule, Complete), "is_square": is_square, "_order": None, "forms": forms}
        graph.__dict__.update(
            fields, **parts, sizes=one if sizes is None else sizes, _definition=(), _memo={}, _versions=[]
        )
        return graph

    def another(
        self, senders: Tensor, receivers: Tensor, nodes: tuple[int, int], sizes: Tensor | None, is_square: bool
    ) -> Self:
        """A graph of other edges, in the same program."""
        return self.of_edges(senders, receivers, nodes, self.forms, sizes, is_square)

    @property
    def is_single(self) -> bool:
        """Whether it is no batch."""
        return isinstance(self.sizes.shape[0], int) and self.sizes.shape[0] == 1

    def memo(self, key: Hashable, build: Callable[[], T]) -> T:
        if key not in self._memo:
            name, *arguments = cast(tuple[str, ...], key)
            self._memo[key] = self.forms[name](self, *arguments) if name in self.forms else build()
        return cast(T, self._memo[key])

    # What `derived` would compute of ranges, of sorted edges or of numbers: here of edges as they are.

    @property
    def _pairs(self) -> tuple[Tensor, Tensor]:
        """Receivers and senders of all edges of a rule, listed once."""
        if "_listed" not in self.__dict__:
            if self.is_complete:
                i = torch.arange(self.num_receivers, device=self.device)[:, None].expand(-1, self.num_senders)
                j = torch.arange(self.num_senders, device=self.device).expand(self.num_receivers, -1)
                self.__dict__["_listed"] = i.flatten(), j.flatten()
            else:
                self.__dict__["_listed"] = self.dense_mask().nonzero().unbind(1)
        return cast(tuple[Tensor, Tensor], self.__dict__["_listed"])

    @property
    def receivers(self) -> Tensor:
        return cast(Tensor, self.__dict__["receivers"]) if self.rule is None else self._pairs[0]

    @property
    def senders(self) -> Tensor:
        return cast(Tensor, self.__dict__["senders"]) if self.rule is None else self._pairs[1]

    @property
    def num_edges(self) -> int:
        if self.is_complete:
            return self.num_receivers * self.num_senders
        return self.senders.shape[0]

    @property
    def offsets(self) -> Tensor:
        raise ExportError("it reads the edges receiver by receiver, which an exported model has in any order")

    def in_degrees(self) -> Tensor:
        if self.is_complete:
            return torch.full((self.num_receivers,), self.num_senders, dtype=torch.int64, device=self.device)
        return lowering.counts(self.receivers, self.num_receivers)

    def out_degrees(self) -> Tensor:
        return lowering.counts(self.senders, self.num_senders)

    def sort_edges(self, t: Tensor) -> Tensor:
        return t

    def dense_mask(self) -> Tensor:
        i = torch.arange(self.num_receivers, device=self.device) + self.offset
        j = torch.arange(self.num_senders, device=self.device)
        if self.rule is not None:
            return self.rule.listens(i[:, None], j)
        return self.multiplicity() > 0

    @property
    def has_self_loops(self) -> bool:
        raise ExportError("it asks whether every node listens to itself, which differs from graph to graph")

    def add_self_loops(self) -> Self:
        """Once in a program, whose layers share what is computed of the edges."""
        if "_looped" not in self.__dict__:
            self.__dict__["_looped"] = self._with_self_loops()
        return cast(Self, self.__dict__["_looped"])

    def _with_self_loops(self) -> Self:
        self.require_square("add_self_loops")
        nodes, sizes = (self.num_senders, self.num_senders), None if self.is_single else self.sizes
        if self.rule is not None:
            rule = self.rule if self.is_complete else Either(self.rule, Itself())
            return self.of_rule(rule, nodes, self.device, self.forms, sizes)
        missing = without_loop(self)
        ends = torch.cat([self.senders, missing]), torch.cat([self.receivers, missing])
        return self.another(*ends, nodes, sizes, True)

    def transpose(self) -> tuple[Self, Tensor]:
        order = torch.arange(self.num_edges, device=self.device)
        return self.another(self.receivers, self.senders, (self.num_senders, self.num_receivers), None, False), order

    def membership(self) -> Self:
        nodes, device = self.num_receivers, self.device
        if self.is_single:
            return self.of_rule(Complete(), (1, nodes), device, self.forms, is_square=False)
        member = members_of(self.sizes, nodes)
        graphs = self.sizes.shape[0]
        return self.another(torch.arange(nodes, device=device), member, (graphs, nodes), None, False)


def without_loop(graph: TracedGraph) -> Tensor:
    """The nodes that do not listen to themselves, found once in a program."""
    if "_without_loop" not in graph.__dict__:
        loops = (graph.senders == graph.receivers).to(torch.int64)
        zeros = torch.zeros(graph.num_senders, dtype=torch.int64, device=graph.device)
        alone = (zeros.index_add(0, graph.receivers, loops) == 0).nonzero().flatten()
        graph.__dict__["_without_loop"] = alone
    return cast(Tensor, graph.__dict__["_without_loop"])
