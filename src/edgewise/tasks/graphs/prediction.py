"""Graph classification and regression: many graphs, one output each; a batch of them is one disjoint graph."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.errors import ConfigError, DataError
from edgewise.graphs import Graph
from edgewise.models.capabilities import Clustering
from edgewise.models.signature import Features
from edgewise.tasks.core.batch import Batch, DisjointBatch
from edgewise.tasks.core.classification import Classification, class_probabilities
from edgewise.tasks.core.drawing import Drawing, Networks, Section
from edgewise.tasks.core.splits import Split, sizes
from edgewise.tasks.core.task import Pattern, given, lay

DRAWN, COLUMNS, LARGEST = 6, 3, 60  # graphs in a report, in a row of it, and nodes of one that is drawn


@dataclass(frozen=True)
class Graphs:
    """The data of a task on whole graphs.

    Args:
        members: The G graphs, one by one.
        x: The features of their nodes [N, C], the members' nodes one after the other.
        targets: Of each graph, its class or its value [G].
        splits: For "train", "valid" and "test" the graphs that it reads.
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


class GraphClassification(Classification):
    """Each graph is one example, of any size: a batch is their disjoint union, read by a model with a readout.

    Equation    Ỹ = MLP(readout(GNN(G, X))), one row per graph of the block-diagonal batch    (5.5), (5.6)
    Errors      a split without graphs is a `DataError`; edge features on a pattern's graph are a `ConfigError`
    Cost        a batch costs O(nodes + edges of its members): nothing is padded
    Reference   Baggag & Saad, §5.2
    """

    unit = "graphs"

    def __init__(self, name: str, graphs: Graphs) -> None:
        for split in ("train", "valid"):
            if len(graphs.splits[split]) == 0:
                raise DataError(f"{name} has no graphs in its {split} split")
        self.name = name
        self.graphs, self.classes = graphs, graphs.classes
        self.epoch_size = len(graphs.splits["train"])
        self.has_test = len(graphs.splits["test"]) > 0
        edges, whole = (0 if known is None else known.shape[-1] for known in (graphs.e, graphs.u))
        self.signature = Features(graphs.x.shape[-1], self.outputs, whole_graph=True, edges=edges, whole=whole)
        self._e = None if graphs.e is None else graphs.e.split([member.num_edges for member in graphs.members])
        self._x = graphs.x.split([member.num_receivers for member in graphs.members])
        self._members: dict[Pattern, tuple[Graph, ...]] = {}
        self._whole: dict[tuple[Split, int, Pattern], list[DisjointBatch]] = {}

    @property
    def outputs(self) -> int:
        """Width of the model's output for a graph."""
        return len(self.graphs.classes)

    def members(self, pattern: Pattern = None) -> tuple[Graph, ...]:
        """The data's own graphs, or a pattern over the nodes of each, in their order."""
        if pattern is None or given(pattern):
            return self.graphs.members
        if self._e is not None:
            raise ConfigError(
                f"the features of {self.name}'s edges belong to its own graphs: the recipe's graph must be 'given'"
            )
        if pattern not in self._members:
            sizes = [member.num_receivers for member in self.graphs.members]
            laid = {size: lay(pattern, size) for size in set(sizes)}
            self._members[pattern] = tuple(laid[size] for size in sizes)
        return self._members[pattern]

    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> DisjointBatch:
        """`size` different training graphs, or all of them where there are fewer."""
        chosen = torch.randperm(self.epoch_size, generator=generator)[:size]
        return self._batch(self.graphs.splits["train"][chosen], pattern)

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[DisjointBatch]:
        """Every graph of a split once, in the data's order; put together once, for all evaluations."""
        key = (split, size, pattern)
        if key not in self._whole:
            self._whole[key] = [self._batch(chosen, pattern) for chosen in self.graphs.splits[split].split(size)]
        yield from self._whole[key]

    def _batch(self, chosen: Tensor, pattern: Pattern) -> DisjointBatch:
        members, numbers = self.members(pattern), chosen.tolist()
        x = torch.cat([self._x[number] for number in numbers])
        e = None if self._e is None else torch.cat([self._e[number] for number in numbers])
        u = None if self.graphs.u is None else self.graphs.u[chosen]
        return DisjointBatch.of(tuple(members[number] for number in numbers), x, self.graphs.targets[chosen], e, u)

    def describe(self) -> str:
        count, nodes = len(self.graphs.members), len(self.graphs.x)
        return f"{self.name}: {count:,} graphs of {nodes:,} nodes ({sizes(self.graphs.splits)})"

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        if isinstance(model, Clustering) and self.has_test:
            yield Section("Clusters", lambda: self.clusters(model, pattern))
        yield from super().draw(model, pattern, scores)

    def clusters(self, model: Clustering, pattern: Pattern) -> list[Drawing]:
        """Some test graphs, each node in the colour of the cluster to which it belongs most."""
        batch = next(self.batches("test", 100, pattern))
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

    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: torch.device | str) -> dict[str, Any]:
        """The prediction for one graph of the data, by a split and a number in it: "test:7"."""
        number = int(self.example(request, self.graphs.splits))
        named = {"name": self.graphs.names[number]} if self.graphs.names else {}
        return {"graph": number} | named | self._predicted(model, pattern, number, device)

    @torch.no_grad()
    def _predicted(self, model: nn.Module, pattern: Pattern, number: int, device: torch.device | str) -> dict[str, Any]:
        batch = self._batch(torch.tensor([number]), pattern).to(device)
        output = batch.read(model.eval()(*batch.inputs))[0].cpu()
        return self._named(output, self.graphs.targets[number])

    def _named(self, output: Tensor, target: Tensor) -> dict[str, Any]:
        probabilities = class_probabilities(output, self.graphs.classes)
        label = self.graphs.classes[int(target)]
        return {"class": next(iter(probabilities)), "label": label, "probabilities": probabilities}


class GraphRegression(GraphClassification):
    """Each graph has a value: the mean squared error trains, its root in the data's own unit is reported.

    Equation    loss = 1/G Σ_g (y_g - (μ + σ f(g)))² / σ², with μ, σ the mean and deviation of the training values;
                rmse = √(1/G Σ_g (y_g - ŷ_g)²) over a split, mae = 1/G Σ_g |y_g - ŷ_g|, in the unit of y
    Edge cases  training values that are all the same: σ = 1
    """

    metric = "rmse"
    maximise = False

    def __init__(self, name: str, graphs: Graphs) -> None:
        super().__init__(name, graphs)
        values = graphs.targets[graphs.splits["train"]].double()
        self.mean, deviation = float(values.mean()), float(values.std(correction=0))
        self.deviation = deviation or 1.0

    @property
    def outputs(self) -> int:
        return 1

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        wanted = (batch.target - self.mean) / self.deviation
        return functional.mse_loss(batch.read(outputs).squeeze(-1), wanted)

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        error = (self.mean + self.deviation * batch.read(outputs.detach()).double().squeeze(-1)) - batch.target.double()
        squares = error.square().sum()
        count = torch.tensor(float(batch.size), dtype=torch.float64, device=error.device)
        return {"loss": squares / self.deviation**2, "rmse": squares, "mae": error.abs().sum(), "count": count}

    def finish(self, means: dict[str, float]) -> dict[str, float]:
        """The root is taken of the mean over the whole split, not batch by batch."""
        return means | {"rmse": means["rmse"] ** 0.5}

    def _named(self, output: Tensor, target: Tensor) -> dict[str, Any]:
        return {"value": self.mean + self.deviation * float(output[0]), "measured": float(target)}
