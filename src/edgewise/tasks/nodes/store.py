"""Node classification on a graph on disk: of edges and features, what a batch needs is read where it lies."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import cast

import torch
from torch import Tensor, nn

from edgewise.data.splits import SPLITS, Split, Splits, shuffled
from edgewise.errors import ConfigError, DataError
from edgewise.graphs import Neighborhood, Store, StoredRows
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.memory import parse_size
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.classification import Classification
from edgewise.tasks.core.drawing import Section
from edgewise.tasks.core.subject import Subject
from edgewise.tasks.core.task import Device, Pattern, given
from edgewise.tasks.nodes.classification import Nodes, SampledBatch, SampledNodes, fanouts_of

MOST_DRAWN = 20_000  # test nodes: more are not predicted anew for a report's confusion matrix


class StoredNodes(SampledNodes):
    """Node classification on a store, which may be larger than memory.

    Equation    as `SampledNodes`; an evaluation is exact: all neighbours, layer by layer, of `evaluation.batch` nodes
    Cost        a step reads the rows of its sample; an evaluation all nodes within as many hops as there are layers:
                the larger `evaluation.batch`, the fewer are read more than once
    """

    def __init__(self, name: str, nodes: Nodes, rows: StoredRows, fanouts: tuple[int, ...], workers: int = 0) -> None:
        if not (fanouts := fanouts_of(fanouts)):
            raise ConfigError("task.fanouts must be a number of neighbours for each layer: a store is not read at once")
        super().__init__(name, nodes, fanouts, inductive=False, workers=workers)
        self.rows = rows

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        """Every node of a split with all of its neighbours."""
        for nodes in self.splits[split].split(size):
            yield self._exact(nodes, pattern)

    def _exact(self, nodes: Tensor, pattern: Pattern) -> Batch:
        if not given(pattern):
            raise ConfigError("a store has its own graph: the recipe's graph must be 'given'")
        return SampledBatch(Neighborhood(self.nodes.graph, nodes), self.nodes.x, self.nodes.labels[nodes].long())

    def _features(self, x: Tensor | SparseFeatures, nodes: Tensor) -> Tensor:
        return self.rows.read(nodes)

    def measured(self) -> dict[str, float]:
        return self.rows.measured()

    def draw(self, model: nn.Module, pattern: Pattern, scores: Mapping[str, float]) -> Iterator[Section]:
        if len(self.splits["test"]) <= MOST_DRAWN:
            yield from Classification.draw(self, model, pattern, scores)

    def _outputs(self, model: nn.Module, pattern: Pattern, chosen: list[int], device: Device) -> tuple[Tensor, Tensor]:
        batch = self._exact(torch.tensor(chosen), pattern).to(device)
        return model.eval()(*batch.inputs).cpu(), batch.target.cpu()

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        raise DataError(f"{self.name}: a prediction is explained on a graph in memory, and this one is a store")


def node_store(
    store: str = "store",
    fanouts: tuple[int, ...] = (10, 10),
    cache: str = "0",
    workers: int = 1,
    fold: int = 0,
) -> StoredNodes:
    """Guess the classes of the nodes of a graph on disk, which `edgewise store build` makes, however large.

    Without parts in the store, the labelled nodes are cut at random into 60 % to train, 20 % to choose the weights by
    and 20 % to test. Attributes of edges are not read.

    Args:
        store: The folder of the store.
        fanouts: Neighbours to draw in each hop of training, one number per layer.
        cache: Memory for the features of nodes that recur, such as 2GB; 0: none.
        workers: Threads that read the batches of the next steps while this one trains; 0: each is read when it is
            needed. The batches are the same.
        fold: Seed of the random cut: another number, another cut.

    Errors      a store that is missing, damaged or lacks features or labels is a `DataError`
    """
    opened = Store.open(Path(store).expanduser())
    x, labels, classes = opened.x, opened.labels(), opened.manifest.classes
    if x is None or len(x.shape) != 2 or labels is None or not classes:
        raise DataError(f"{store}: it has no features or no labels: give them to `edgewise store build` with --nodes")
    parts = {split: opened.nodes_of(split) for split in SPLITS}
    splits: Splits = {split: rows for split, rows in parts.items() if rows is not None}
    if not splits:
        known = (labels >= 0).nonzero()[:, 0]
        splits = {split: known[rows] for split, rows in shuffled(len(known), fold, (0.6, 0.8)).items()}
    for split in SPLITS:
        rows = splits[split]
        if len(rows) == 0:
            raise DataError(f"{store}: no node is in the {split} split")
        if len(wrong := rows[(labels[rows] < 0) | (labels[rows] >= len(classes))]):
            raise DataError(f"{store}: node {int(wrong[0])} of the {split} split has no label")
    kept = StoredRows(x, parse_size(cache))
    nodes = Nodes(opened.graph, cast(Tensor, kept), labels, classes, splits)
    return StoredNodes(opened.path.name, nodes, kept, fanouts, workers)
