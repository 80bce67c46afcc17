"""Graph auto-encoding: each node becomes a few numbers, from which it is decoded which nodes are linked."""

from collections.abc import Iterator, Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.data.splits import Split
from edgewise.errors import ConfigError, DataError
from edgewise.graphs import Graph, links_of
from edgewise.graphs.derived import cached
from edgewise.models.signature import Features
from edgewise.tasks.core.abilities import Predicts
from edgewise.tasks.core.batch import Batch, batch_of
from edgewise.tasks.core.subject import Subject, captured
from edgewise.tasks.core.task import Device, Pattern, given
from edgewise.tasks.graphs.generation import draw_splits, family_named
from edgewise.tasks.links.prediction import PairBatch

SURE = 10.0  # the logit of two nodes at one place


def distance_logit(z: Tensor, pairs: Tensor) -> Tensor:
    """The decoder: two nodes are the likelier linked the nearer they are.

    Equation    p(A_ij = 1 | z_i, z_j) = σ(b - ‖z_i - z_j‖²),  b = 10
    Shapes      z [N, D], pairs [2, M] -> [M]
    Differs     the paper learns b, and a factor for the distance; here the encoder learns how far is far
    Reference   Satorras, Hoogeboom & Welling, 2021, §5.2

    Example
        >>> distance_logit(torch.tensor([[0.0], [3.0]]), torch.tensor([[0], [1]]))
        tensor([1.])
    """
    return SURE - (z[pairs[0]] - z[pairs[1]]).square().sum(-1)


class GraphReconstruction(Predicts):
    """The model gives each node of a graph a place, from which alone all links of the graph are to be predicted.

    Equation    loss = mean over all pairs i < j of a graph of -log p(A_ij | z_i, z_j);  f1 = 2 TP / (2 TP + FP + FN), a
                pair being called linked where p > 1/2, over all pairs of a split together
    Symbols     the model's input = noise [N, D], drawn anew for every training batch; its output = z [N, D]
    Cost        a batch costs what its members' pairs cost: nothing is padded
    Reference   Satorras, Hoogeboom & Welling, "E(n) equivariant graph neural networks", 2021, §5.2
    """

    metric = "f1"
    unit = "graphs"
    maximise = True

    def __init__(self, name: str, splits: dict[Split, list[Graph]], width: int) -> None:
        if width < 1:
            raise ConfigError(f"task.width must be at least 1, not {width}")
        self.name, self.width = name, width
        self.splits: dict[Split, list[Graph]] = splits
        self.epoch_size = len(splits["train"])
        self.signature = Features(width, width, classes=False)

    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> Batch:
        """`size` different training graphs, or all of them where there are fewer."""
        chosen = torch.randperm(self.epoch_size, generator=generator)[:size].tolist()
        graphs = [self.splits["train"][number] for number in chosen]
        return self._batch(graphs, self._noise(graphs, generator), pattern)

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        """Every graph of a split once, with noise that stays the same, whatever the size."""
        yield from self._noisy(split, size, pattern)

    @cached
    def _noisy(self, split: Split, size: int, pattern: Pattern) -> list[Batch]:
        graphs = self.splits[split]
        noise = self._noise(graphs, torch.Generator().manual_seed(0)).split([g.num_receivers for g in graphs])
        parts = (slice(first, first + size) for first in range(0, len(graphs), size))
        return [self._batch(graphs[part], torch.cat(noise[part]), pattern) for part in parts]

    def _noise(self, graphs: Sequence[Graph], generator: torch.Generator) -> Tensor:
        return torch.randn(sum(graph.num_receivers for graph in graphs), self.width, generator=generator)

    def _batch(self, graphs: Sequence[Graph], x: Tensor, pattern: Pattern) -> Batch:
        if not given(pattern):
            raise ConfigError(
                f"{self.name} has graphs of its own, which are to be reconstructed: choose the graph 'given'"
            )
        together = Graph.batch(graphs)
        first = (together.sizes.cumsum(0) - together.sizes).tolist()
        corners = [torch.triu_indices(graph.num_receivers, graph.num_receivers, 1) for graph in graphs]
        pairs = torch.cat([corner + start for corner, start in zip(corners, first, strict=True)], 1)
        n, links = together.num_receivers, links_of(together)
        target = torch.isin(pairs[0] * n + pairs[1], links[0] * n + links[1]).float()
        return PairBatch(together, x, target, pairs=pairs)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        logits = distance_logit(outputs, batch_of(PairBatch, batch).pairs)
        return functional.binary_cross_entropy_with_logits(logits, batch.target.to(logits.dtype))

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        logits, linked = distance_logit(outputs.detach().double(), batch_of(PairBatch, batch).pairs), batch.target > 0
        called = logits > 0
        return {
            "loss": functional.binary_cross_entropy_with_logits(logits, batch.target.double(), reduction="sum"),
            "right": (called & linked).sum().double(),
            "wrong": (called & ~linked).sum().double(),
            "missed": (~called & linked).sum().double(),
            "count": torch.tensor(float(batch.size), dtype=torch.float64, device=logits.device),
        }

    def finish(self, means: dict[str, float]) -> dict[str, float]:
        """F1 is no mean over pairs, but follows from three of them; accuracy, from two."""
        right, wrong, missed = (means.pop(name) for name in ("right", "wrong", "missed"))
        f1 = 2 * right / (2 * right + wrong + missed) if right else 0.0
        return means | {"f1": f1, "accuracy": 1 - wrong - missed}

    @torch.no_grad()
    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """A graph of the data, by a split and a number in it ("test:7"): its links, and the predicted ones."""
        graph = self.example(request)
        noise = self._noise([graph], torch.Generator().manual_seed(0))
        batch = self._batch([graph], noise, pattern).to(device)
        z, pairs = model.eval()(batch.graph, batch.x), batch_of(PairBatch, batch).pairs
        predicted = pairs[:, distance_logit(z, pairs) > 0]
        return {"graph": request, "links": links_of(graph).T.tolist(), "predicted": predicted.T.tolist()}

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """How likely the first link of a graph is in its reconstruction."""
        inputs = captured(model, lambda: self.predict(model, pattern, request, "cpu"))
        links = links_of(self.example(request))
        if not links.shape[1]:
            raise DataError(f"{request}: the graph has no link whose reconstruction could be explained")
        pair = links[:, :1]

        def logit(outputs: Tensor) -> Tensor:
            return distance_logit(outputs, pair)

        what = f"the link of {int(pair[0])} and {int(pair[1])}"
        return Subject(inputs, number=logit, shown=lambda outputs: logit(outputs).sigmoid(), what=what)


def graph_reconstruction(
    family: Literal["communities", "grids"] = "communities",
    width: int = 8,
    train: int = 3000,
    test: int = 1000,
    seed: int = 0,
) -> GraphReconstruction:
    """Keep small graphs in the places of their nodes: two communities, or grids, as in `graph-generation`.

    All graphs are drawn at random, so that those of the test split are unseen. A tenth as many as train choose the
    weights.

    Args:
        family: "communities" or "grids".
        width: Numbers for each node, D; a community graph has 12 to 20 nodes.
        train: Number of training graphs.
        test: Number of test graphs.
        seed: Chooses all that is random in the data.

    Example
        >>> task = graph_reconstruction(train=20, test=10)
        >>> task.epoch_size, task.signature.inputs
        (20, 8)
    """
    splits = draw_splits(family_named(family), train, test, torch.Generator().manual_seed(seed))
    return GraphReconstruction(f"{family}, reconstructed", splits, width)
