"""What a model reads at once, and what its loss compares; many graphs are read side by side, without padding."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, fields, replace
from itertools import pairwise
from typing import Any, ClassVar, Self, TypeVar

import torch
from torch import Tensor

from edgewise.errors import ConfigError, ShapeError
from edgewise.graphs import EncoderDecoderGraph, Graph, LayerSample, Neighborhood, Sample
from edgewise.graphs.checks import shown
from edgewise.graphs.derived import cached
from edgewise.graphs.partition import Group, Partition, arranged, bounds_of, partition
from edgewise.layers.plain.linear import SparseFeatures

AnyGraph = Graph | EncoderDecoderGraph | Sample | LayerSample | Neighborhood


@dataclass
class Batch:
    """What a model reads at once, and what its loss compares.

    Args:
        graph: The graph of all examples.
        x: [*, N, C] features, [*, N] tokens, or sparse features [N, C]; of a `Neighborhood`, `StoredRows` of all nodes.
        target: What the outputs should be, one term of the mean loss per element.
        rows: Output rows that the loss reads, one per target: the batch is one graph whose other nodes are context.
            None: the loss reads every output, and the first axis of `x` and `target` holds independent examples.
        e: Features of the edges [E, D], in the graph's own order; None where there are none.
        u: Features of each graph as a whole [G, U]; None where there are none.
    """

    graph: AnyGraph
    x: Tensor | SparseFeatures
    target: Tensor
    rows: Tensor | None = None
    e: Tensor | None = None
    u: Tensor | None = None
    divisible: ClassVar[bool] = True  # whether a batch of this kind can be cut between examples
    shared: ClassVar[bool] = True  # whether `part` knows all that it holds; each subclass has to say so itself
    _moved: dict[torch.device, Any] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def inputs(self) -> tuple[Any, ...]:
        """What a model is called with, `model(*batch.inputs)`: (graph, x), with e or u also e, with u also u."""
        if self.u is not None:
            return self.graph, self.x, self.e, self.u
        return (self.graph, self.x) if self.e is None else (self.graph, self.x, self.e)

    @property
    def size(self) -> int:
        """The number of terms in the mean loss."""
        return self.target.numel()

    def read(self, outputs: Tensor, width: int | None = None) -> Tensor:
        """The outputs that the loss compares with `target`, one row per term: [size, classes].

        Errors      ShapeError for what a model returned that is no tensor of real numbers, has another width than the
                    task reads, or not a row for each target, or for each node where `rows` choose among these
        """
        return self.chosen(outputs, self.size, width)

    def chosen(self, outputs: Tensor, count: int, width: int | None = None) -> Tensor:
        """So many rows of a model's outputs, or `read`'s error."""
        check_outputs(outputs, width)
        read = outputs if self.rows is None else self._of_rows(outputs, self.rows)
        if read.numel() != count * outputs.shape[-1]:
            shapes = f"the model's outputs are {list(outputs.shape)} and the targets {list(self.target.shape)}"
            raise ShapeError(f"{shapes}; expected one output row per target")
        return read.reshape(count, outputs.shape[-1])

    def _of_rows(self, outputs: Tensor, rows: Tensor) -> Tensor:
        """Some of the outputs, of which there is one for each node or for each graph."""
        graph, wanted = self.graph, "each node"
        counts: tuple[int, ...] = outputs.shape[-2:-1]
        if isinstance(graph, Graph):
            wanted, counts = f"each of {graph.num_receivers} nodes", (graph.num_receivers, graph.sizes.shape[0])
        try:
            if outputs.ndim > 1 and outputs.shape[-2] in counts:
                return outputs[..., rows, :]
        except IndexError:  # one for each graph, and rows of nodes
            pass
        raise ShapeError(f"the model's outputs are {list(outputs.shape)}; expected a row for {wanted}")

    def to(self, device: torch.device | str) -> Self:
        """The same batch on a device. A whole graph is moved once and cached, with all that its graph caches."""
        device = torch.device(device)
        if device == self.x.device:
            return self
        if device in self._moved:
            return self._moved[device]
        parts = {part.name: getattr(self, part.name) for part in fields(self) if part.init}
        batch = type(self)(**{name: _moved(part, device) for name, part in parts.items()})
        if self.rows is not None:
            self._moved[device] = batch
        return batch

    def split(self, parts: int) -> list[Self]:
        """Cut into `parts` batches whose sizes differ by at most one example.

        A batch that cannot be cut so (one whole graph, or fewer examples than parts) is returned `parts` times: the
        mean of the parts' losses, weighted by their sizes, is the batch's loss either way. Of a subclass's own fields
        tensors with a row for each example are cut, and all others are kept.
        """
        if parts == 1:
            return [self]
        whole = not self.divisible or any(part is not None for part in (self.rows, self.e, self.u))
        if whole or isinstance(self.x, SparseFeatures) or len(self.x) < parts:
            return [self] * parts
        own = {name: value for name, value in self._own(Batch).items() if isinstance(value, Tensor) and value.ndim}
        cut = {"x": self.x, "target": self.target} | {n: rows for n, rows in own.items() if len(rows) == len(self.x)}
        pieces: dict[str, Any] = {name: rows.tensor_split(parts) for name, rows in cut.items()}
        return [replace(self, **{name: piece[number] for name, piece in pieces.items()}) for number in range(parts)]

    def _own(self, kind: type["Batch"]) -> dict[str, Any]:
        """The fields that a subclass adds to those of a kind of batches."""
        known = {part.name for part in fields(kind)}
        return {part.name: getattr(self, part.name) for part in fields(self) if part.init and part.name not in known}

    def arranged(self, parts: int) -> tuple[Self, tuple[int, ...]]:
        """The same batch with nodes numbered along communities, and the bounds of as many of these; blocks of rows of a
        graph that is a rule, or several graphs side by side, stay as they are, without bounds."""
        whole = self.graph
        if not isinstance(whole, Graph) or whole.rule is not None or self.rows is None or not self._shared():
            return self, ()
        by = arranged(whole, parts)
        x, e = self.x, None if self.e is None else self.e[by.edges]
        x = x[by.order] if not isinstance(x, Tensor) else x.index_select(-2 if x.is_floating_point() else -1, by.order)
        place = torch.empty_like(by.order)
        place[by.order] = torch.arange(len(place), device=place.device)
        return type(self)(by.graph, x, self.target, place[self.rows], e, self.u), by.bounds

    def part(self, group: Group = None, bounds: tuple[int, ...] = ()) -> Self:
        """This rank's part of a batch that several ranks share: its nodes' rows, and those targets that it reads.

        Symbols     bounds = where each rank's nodes begin, and their number; by default the blocks are equally long
        Errors      ConfigError for a batch that is more than one graph with features and targets
        Edge cases  a graph's own target is with the rank that has its first node; a rank may have none
        """
        whole = self.graph
        if not isinstance(whole, Graph) or self.u is not None or not self._shared():
            what = f"{type(self).__name__} of {type(whole).__name__}{'' if self.u is None else ', features of graphs'}"
            raise ConfigError(
                f"train.partition shares the nodes of a graph among ranks, not this ({what}): leave it out"
            )
        graph = partition(whole, group, bounds)
        first, last = graph.offset, graph.offset + graph.num_receivers
        x = self.x
        if isinstance(x, Tensor):
            x = x.narrow(-2 if x.is_floating_point() else -1, first, last - first)
        else:
            x = x[torch.arange(first, last, device=x.device)]
        e = None if self.e is None else self.e[int(whole.offsets[first]) : int(whole.offsets[last])]
        rows, target = self.rows, self.target
        if rows is not None:
            here = (rows >= first) & (rows < last)
            rows, target = rows[here] - first, target[here]
        else:
            target = self._targets(graph)
        return type(self)(graph, x, target, rows, e)

    def _shared(self) -> bool:
        return bool(vars(type(self)).get("shared", False))

    def _targets(self, graph: Partition) -> Tensor:
        """Those of this rank's nodes, or of its graphs."""
        lead = self.x.ndim - (2 if self.x.is_floating_point() else 1) if isinstance(self.x, Tensor) else 0
        if self.target.shape[lead : lead + 1] == (graph.bounds[-1],):
            return self.target.narrow(lead, graph.offset, graph.num_receivers)
        own = graph.membership()
        return self.target if own.num_receivers else self.target[:0]


def evenly(count: int, parts: int) -> Iterator[tuple[int, int]]:
    """Where each part of some examples in a row begins and ends; their numbers differ by at most one.

    >>> list(evenly(5, 2))
    [(0, 2), (2, 5)]
    """
    return pairwise(bounds_of(count, parts))


@dataclass
class DisjointBatch(Batch):
    """Some graphs side by side as one graph, without edges in between or padding: `members`, in the order of x, e, u
    and target."""

    graph: Graph
    x: Tensor
    members: tuple[Graph, ...] = ()
    shared = True
    per_node: ClassVar[bool] = False  # whether the target has a row for each node instead of each graph

    @classmethod
    def of(
        cls, members: tuple[Graph, ...], x: Tensor, target: Tensor, e: Tensor | None = None, u: Tensor | None = None
    ) -> Self:
        return cls(Graph.batch(members), x, target, e=e, u=u, members=members)

    def split(self, parts: int) -> list[Self]:
        """Cut between graphs: each part has whole ones, and their numbers differ by at most one.

        Of a subclass's own fields tensors with a row for each graph or node are cut, and all others are kept.
        """
        if parts == 1:
            return [self]
        if len(self.members) < parts:
            return [self] * parts
        made, node, edge = [], 0, 0
        for first, last in evenly(len(self.members), parts):
            members = self.members[first:last]
            nodes = sum(member.num_receivers for member in members)
            edges = sum(member.num_edges for member in members) if self.e is not None else 0
            mine, wanted = slice(node, node + nodes), slice(first, last)
            e = None if self.e is None else self.e[edge : edge + edges]
            u = None if self.u is None else self.u[wanted]
            target = self.target[mine if self.per_node else wanted]
            places = {len(self.x): mine, len(self.members): wanted}
            own = {name: _rows_of(value, places) for name, value in self._own(DisjointBatch).items()}
            graph = Graph.batch(members)
            made.append(replace(self, graph=graph, x=self.x[mine], target=target, e=e, u=u, members=members, **own))
            node, edge = node + nodes, edge + edges
        return made

    def _targets(self, graph: Partition) -> Tensor:
        own = graph.membership()
        return self.target[own.offset : own.offset + own.num_receivers]


@dataclass
class NodeTargets(DisjointBatch):
    """Graphs side by side whose target has a row for each node, as tokens and forces have."""

    shared = True
    per_node: ClassVar[bool] = True

    def _targets(self, graph: Partition) -> Tensor:
        return self.target[graph.offset : graph.offset + graph.num_receivers]


def check_outputs(outputs: object, width: int | None = None) -> None:
    """Raise ShapeError for what a model returned that is no tensor of real numbers, or is of another width."""
    if not isinstance(outputs, Tensor):
        what = "a tuple" if isinstance(outputs, tuple) else shown(outputs)
        raise ShapeError(f"the model returned {what}, but the task reads one tensor of outputs")
    if not outputs.is_floating_point():
        kind = str(outputs.dtype).removeprefix("torch.")
        raise ShapeError(f"the model's outputs are {kind}, but must be real numbers, of which a loss has a gradient")
    if outputs.ndim == 0 or width not in (None, outputs.shape[-1]):
        wanted = "one or more" if width is None else str(width)
        raise ShapeError(f"the model's outputs are {list(outputs.shape)}, but the task reads {wanted} in each row")


def check_values(outputs: object, target: Tensor) -> None:
    """Raise ShapeError unless a model returned as many values as there are targets, in their places."""
    check_outputs(outputs)
    if isinstance(outputs, Tensor) and outputs.shape != target.shape:
        shapes = f"the model's outputs are {list(outputs.shape)} and the targets {list(target.shape)}"
        raise ShapeError(f"{shapes}; expected a value for each of them")


B = TypeVar("B", bound=Batch)


def batch_of(kind: type[B], batch: Batch) -> B:
    """A batch of the kind that a task makes; any other is a `ConfigError`.

    Example
        >>> from edgewise.graphs import complete
        >>> batch_of(DisjointBatch, Batch(complete(1), torch.zeros(1, 3), torch.zeros(1)))
        Traceback (most recent call last):
        edgewise.errors.ConfigError: this task reads batches of the kind DisjointBatch, not Batch
    """
    if not isinstance(batch, kind):
        raise ConfigError(f"this task reads batches of the kind {kind.__name__}, not {type(batch).__name__}")
    return batch


def _rows_of(value: Any, places: Mapping[int, slice]) -> Any:
    """The rows of a tensor in the places that are given for one of its length; anything else as it is."""
    wanted = places.get(len(value)) if isinstance(value, Tensor) and value.ndim else None
    return value if wanted is None else value[wanted]


def moved(graph: Graph, device: torch.device) -> Graph:
    """The graph on a device, the same object every time, so that what it caches there survives from step to step."""
    return graph if graph.device == device else _copied(graph, device)


@cached
def _copied(graph: Graph, device: torch.device) -> Graph:
    return graph.to(device)


def _moved(part: Any, device: torch.device) -> Any:
    if isinstance(part, Graph):
        return moved(part, device)
    return part.to(device) if isinstance(part, Tensor | SparseFeatures | AnyGraph) else part
