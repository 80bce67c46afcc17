"""Graph classification and regression: many graphs, one output each; a batch of them is one disjoint graph."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, cast

import torch
from torch import Tensor, nn

from edgewise.data.splits import Split, check_apart, check_listed, check_splits, numbers_in
from edgewise.errors import ConfigError, DataError
from edgewise.graphs import Graph
from edgewise.graphs.derived import cached
from edgewise.models.signature import Clustering, Features
from edgewise.tasks.core.batch import Batch, DisjointBatch, batch_of
from edgewise.tasks.core.classification import Classification, Regression, class_probabilities, one_each
from edgewise.tasks.core.drawing import Drawing, Networks, Section
from edgewise.tasks.core.task import Device, NumberedExamples, Parts, Pattern, given, lay

DRAWN, COLUMNS, LARGEST = 6, 3, 60  # graphs in a report, in a row of it, and nodes of one that is drawn


@dataclass(frozen=True)
class Graphs:
    """The data of a task on whole graphs.

    Args:
        members: The G graphs, one by one.
        x: The features of their nodes [N, C], the members' nodes one after the other.
        targets: Of each graph, its class or its value [G]; or several [G, T].
        splits: For "train", "valid" and "test" the graphs that it reads, a tensor or a list, each graph in one of them,
            but for "valid" that is all of "train"; empty: they are only predicted.
        classes: The classes' names; none where the targets are values.
        names: The graphs' names where they have any, as the SMILES of molecules.
        e: The features of their edges [E, D], the members' one after the other, each in its graph's own order.
        u: The features of each graph as a whole [G, U].
    """

    members: tuple[Graph, ...]
    x: Tensor
    targets: Tensor
    splits: Mapping[Split, Tensor]
    classes: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    e: Tensor | None = None
    u: Tensor | None = None

    def __post_init__(self) -> None:
        splits = {split: numbers_in(self.splits, split, "graph") for split in self.splits}
        object.__setattr__(self, "splits", splits)
        if self.classes and not self.targets.is_floating_point():
            object.__setattr__(self, "targets", self.targets.long())


def check_parts(graphs: Graphs) -> None:
    """Refuse features, targets and splits that do not fit the graphs, which a task may make later, with a DataError."""
    members = graphs.members
    nodes = sum(member.num_receivers for member in members)
    edges = 0 if graphs.e is None else sum(member.num_edges for member in members)
    one = len(members), "graphs"
    counts = {"x": (nodes, "nodes"), "targets": one, "e": (edges, "edges"), "u": one}
    for name, (count, what) in counts.items() if members else ():
        rows = getattr(graphs, name)
        if rows is not None and len(rows) != count:
            raise DataError(f"{name} has {len(rows):,} rows, and there are {count:,} {what}")
    check_listed(graphs.splits, len(graphs.targets), "graph", ("train", "valid") if graphs.splits else ())
    parts = {**graphs.splits}
    if "train" in parts and torch.equal(parts["train"], parts["valid"]):  # no graph can be spared to validate
        del parts["valid"]
    check_apart(parts, "graph")
    classes, targets = len(graphs.classes), graphs.targets
    if classes and (targets.is_floating_point() or not bool((targets < classes).all())):
        raise DataError(f"targets must be whole numbers below {classes}, one for each class, or -1")


class Member(NamedTuple):
    """One graph to predict for: as in `Graphs`, with one row u [1, U], and what is known of it; None: no target."""

    graph: Graph
    x: Tensor
    e: Tensor | None
    u: Tensor | None
    target: Tensor | None
    known: dict[str, Any]


class GraphClassification(NumberedExamples, Classification):
    """Each graph is one example, of any size: a batch is their disjoint union, read by a model with a readout.

    Equation    Ỹ = MLP(readout(GNN(G, X))), one row per graph of the block-diagonal batch    (5.5), (5.6)
    Errors      no graphs to train or to choose the weights by, or one of a split without a target, is a `DataError`;
                edge features on a pattern's graph are a `ConfigError`
    Cost        a batch costs O(nodes + edges of its members): nothing is padded
    Reference   Baggag & Saad, §5.2
    """

    unit = "graphs"
    replacement = False
    stored = True
    kind = DisjointBatch

    @property
    def varies(self) -> bool:
        """Whether an example of training is drawn anew each time."""
        return False

    def __init__(self, name: str, graphs: Graphs) -> None:
        check_parts(graphs)
        check_splits(graphs.splits, graphs.targets, bool(graphs.classes), "graph")
        self.name, self.graphs, self.classes, self.splits = name, graphs, graphs.classes, graphs.splits
        self.contents = f"{len(graphs.members):,} graphs of {len(graphs.x):,} nodes"
        self.epoch_size, tests = (len(graphs.splits.get(split, ())) for split in ("train", "test"))
        self.has_test = tests > 0
        edges, whole = (0 if known is None else known.shape[-1] for known in (graphs.e, graphs.u))
        outputs = len(graphs.classes) or 1  # a value, where there are no classes
        self.signature = Features(
            graphs.x.shape[-1], outputs, whole_graph=True, edges=edges, whole=whole, classes=bool(graphs.classes)
        )
        self._e = None if graphs.e is None else graphs.e.split([member.num_edges for member in graphs.members])
        self._x = graphs.x.split([member.num_receivers for member in graphs.members])

    @cached
    def members(self, pattern: Pattern = None) -> tuple[Graph, ...]:
        """The data's own graphs, or a pattern over the nodes of each, in their order."""
        if given(pattern):
            return self.graphs.members
        if self._e is not None:
            raise ConfigError(
                f"the features of {self.name}'s edges belong to its own graphs: the recipe's graph must be 'given'"
            )
        sizes = [member.num_receivers for member in self.graphs.members]
        laid = {size: lay(pattern, size) for size in set(sizes)}
        return tuple(laid[size] for size in sizes)

    def batch(self, numbers: Tensor, pattern: Pattern, generator: torch.Generator | None = None) -> DisjointBatch:
        members, chosen = self.members(pattern), numbers.tolist()
        x = torch.cat([self._x[number] for number in chosen])
        e = None if self._e is None else torch.cat([self._e[number] for number in chosen])
        u = None if self.graphs.u is None else self.graphs.u[numbers]
        return self.kind.of(tuple(members[number] for number in chosen), x, self.graphs.targets[numbers], e, u)

    def train_parts(
        self, size: int, generator: torch.Generator, pattern: Pattern, parts: Parts
    ) -> tuple[int, list[Batch]]:
        if self.varies:
            return super().train_parts(size, generator, pattern, parts)
        drawn = self._drawn(size, generator)
        if len(drawn) < parts.count:
            return parts.of_one(self.batch(drawn, pattern))
        pieces = drawn.tensor_split(parts.count)
        return len(drawn), [self.batch(pieces[number], pattern) for number in parts.mine]

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        if isinstance(model, Clustering) and self.has_test:
            yield Section("Clusters", lambda: self.clusters(model, pattern))
        yield from super().draw(model, pattern, scores)

    def clusters(self, model: Clustering, pattern: Pattern) -> list[Drawing]:
        """Some test graphs, each node in the colour of the cluster to which it belongs most."""
        batch = batch_of(DisjointBatch, next(self.batches("test", 100, pattern)))
        parts = model.clusters(batch.graph, batch.x)
        label = parts.argmax(-1).split([member.num_receivers for member in batch.members])
        small = [g for g, member in enumerate(batch.members) if 3 <= member.num_receivers <= LARGEST][:DRAWN]
        titles = [self.classes[int(batch.target[g])] if self.classes else "" for g in small]
        networks = Networks([(batch.members[g], label[g].numpy()) for g in small], titles, COLUMNS)
        used = len(torch.cat(label).unique())
        caption = (
            "Test graphs, each node in the colour of the cluster to which it belongs most: "
            f"{used} of {parts.shape[-1]} clusters are used here."
        )
        return [Drawing("clusters", networks, caption)] if small else []

    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """The prediction for one graph of the data, by a split and a number in it: "test:7"."""
        return self.predictions(model, pattern, [request], device)[0]

    @torch.no_grad()
    def predictions(
        self, model: nn.Module, pattern: Pattern, requests: Sequence[str], device: Device
    ) -> list[dict[str, Any]]:
        read = [self.member(request, pattern) for request in requests]
        e, u = (
            None if read[0][part] is None else torch.cat([cast(Tensor, one[part]) for one in read]) for part in (2, 3)
        )
        members, zeros = tuple(one.graph for one in read), torch.zeros(len(read))
        batch = DisjointBatch.of(members, torch.cat([one.x for one in read]), zeros, e, u).to(device)
        outputs = batch.read(model.eval()(*batch.inputs)).cpu()
        return [one.known | self._named(output, one.target) for one, output in zip(read, outputs, strict=True)]

    def name_of(self, number: int) -> str:
        return self.graphs.names[number] if self.graphs.names else str(number)

    def member(self, request: str, pattern: Pattern) -> Member:
        """What a request names: a graph of the data, by a split and a number in it."""
        return self.numbered(int(self.example(request)), pattern)

    def numbered(self, number: int, pattern: Pattern) -> Member:
        """A graph of the data."""
        graphs = self.graphs
        known = {"graph": number} | ({"name": graphs.names[number]} if graphs.names else {})
        e, u = None if self._e is None else self._e[number], None if graphs.u is None else graphs.u[number][None]
        return Member(self.members(pattern)[number], self._x[number], e, u, graphs.targets[number], known)

    def _named(self, output: Tensor, target: Tensor | None) -> dict[str, Any]:
        probabilities = class_probabilities(output, self.graphs.classes)
        label = None if target is None else self.graphs.classes[int(target)]
        return {"class": next(iter(probabilities)), "label": label, "probabilities": probabilities}


class GraphRegression(Regression, GraphClassification):
    """Each graph has a value: the mean squared error trains, its root in the data's own unit is reported.

    Equation    loss = 1/G Σ_g (y_g - (μ + σ f(g)))² / σ², with μ, σ the mean and deviation of the training values;
                rmse = √(1/G Σ_g (y_g - ŷ_g)²) over a split, mae = 1/G Σ_g |y_g - ŷ_g|, in the unit of y
    Edge cases  training values that are all the same: σ = 1
    """

    def __init__(self, name: str, graphs: Graphs) -> None:
        super().__init__(name, replace(graphs, targets=one_each(graphs.targets)))
        graphs = self.graphs
        self.fit(graphs.targets[graphs.splits["train"]])

    def _named(self, output: Tensor, target: Tensor | None) -> dict[str, Any]:
        return {"value": self.value(output), "measured": None if target is None else float(target)}
