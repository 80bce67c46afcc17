"""Link prediction on a graph on disk: of edges and features, what a batch needs is read where it lies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn

from edgewise.data.splits import Split
from edgewise.errors import ConfigError, DataError
from edgewise.graphs import (
    Graph,
    LinkCut,
    Neighborhood,
    Sample,
    Store,
    StoredRows,
    checks,
    edges_between,
    sample_neighbors,
)
from edgewise.graphs.forms import compact_edges, senders_of
from edgewise.memory import parse_size
from edgewise.tasks.core.batch import Batch
from edgewise.tasks.core.subject import Subject
from edgewise.tasks.core.task import Device, Pattern, check_range, given
from edgewise.tasks.links.prediction import TEST, VALID, LinkPrediction, PairBatch, inner_product, target_of
from edgewise.tasks.nodes.classification import MOST_WORKERS, SampledBatch, fanouts_of

ROUNDS = 100  # draws of pairs after which a graph is taken for one with too few pairs without a link


@dataclass
class StoredPairBatch(PairBatch, SampledBatch):
    """Pairs of a graph on disk."""

    graph: Sample | Neighborhood


class StoredLinks(LinkPrediction):
    """Link prediction on a store, which may be larger than memory.

    Equation    as `LinkPrediction`; a step draws its links among all edges of the store that are not held out, evenly.
                An evaluation is exact: all neighbours, layer by layer, of the nodes of its links
    Cost        a step reads the rows of its sample; an evaluation all nodes within as many hops as there are layers
    """

    def __init__(
        self, name: str, cut: LinkCut, rows: StoredRows, missing: Tensor, width: int, fanouts: tuple[int, ...]
    ) -> None:
        if not fanouts_of(fanouts):
            raise ConfigError("task.fanouts must be a number of neighbours for each layer: a store is not read at once")
        super().__init__(name, cut, cast(Tensor, rows), width, variational=False, fanouts=fanouts)
        self.rows, self.missing = rows, missing
        self.epoch_size = cut.graph.num_edges - len(missing)
        self.contents = f"{cut.graph.num_receivers:,} nodes on disk, {self.epoch_size:,} edges to train on"

    def describe(self) -> str:
        held = self.cut.valid.shape[1], self.cut.test.shape[1]
        return (
            f"{self.name}: {self.contents} ({held[0]:,} links held out to choose the weights by, {held[1]:,} to test)"
        )

    def graph(self, pattern: Pattern = None) -> Graph:
        if not given(pattern):
            raise ConfigError("a store has its own graph: the recipe's graph must be 'given'")
        return self.cut.graph

    def _drawn(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        links = _links(self.cut.graph, size, self.missing, generator)
        return links, _non_links(self.cut.graph, links.shape[1], self.missing, generator)

    def _sampled(self, links: Tensor, none: Tensor, pattern: Pattern, generator: torch.Generator) -> PairBatch:
        seeds, pairs = torch.cat([links, none], 1).unique(return_inverse=True)
        sample = sample_neighbors(self.graph(pattern), seeds, self.fanouts, generator).without(self.missing)
        return StoredPairBatch(sample, self.rows.read(sample.nodes), target_of(links, none), pairs=pairs)

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        """One batch: the links of a split, of the training links some, and as many pairs without a link."""
        if split == "train":
            drawn = torch.Generator().manual_seed(0)
            yield self._exact(*self._drawn(max(1, self.cut.valid.shape[1]), drawn), pattern)
        else:
            yield self._exact(self.splits[split].T, getattr(self.cut, f"{split}_none"), pattern)

    def _exact(self, links: Tensor, none: Tensor, pattern: Pattern) -> PairBatch:
        nodes, pairs = torch.cat([links, none], 1).unique(return_inverse=True)
        around = Neighborhood(self.graph(pattern), nodes, missing=self.missing)
        return StoredPairBatch(around, self.x, target_of(links, none), pairs=pairs)

    def measured(self) -> dict[str, float]:
        return self.rows.measured()

    @property
    def typical(self) -> str:
        return "0,1"

    @torch.no_grad()
    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """How likely two nodes are linked, as in "12,80"."""
        nodes = self._parse(request)
        if len(nodes) != 2:
            raise DataError(
                f"{request!r} names one node, and a store is not searched for its likeliest links: give two"
            )
        batch = self._exact(torch.tensor(nodes)[:, None], torch.zeros(2, 0, dtype=torch.int64), pattern).to(device)
        logit = inner_product(model.eval()(*batch.inputs).double(), batch.pairs)
        return {"nodes": nodes, "probability": logit.sigmoid().item(), "training link": self._linked(*nodes)}

    def _linked(self, i: int, j: int) -> bool:
        return bool(_are_linked(self.cut.graph, torch.tensor([[i], [j]]), self.missing))

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        raise DataError(f"{self.name}: a prediction is explained on a graph in memory, and this one is a store")


def _links(graph: Graph, count: int, missing: Tensor, generator: torch.Generator) -> Tensor:
    """The pairs of `count` edges, drawn evenly among those that are neither missing nor self-loops: [2, count].

    Errors      DataError where hardly any edge is one, and for one that leads out of the graph
    """
    offsets, senders = compact_edges(graph)

    def draw(wanted: int) -> Tensor:
        edges = torch.randint(graph.num_edges, (wanted,), generator=generator)
        receivers, ends = torch.searchsorted(offsets, edges, right=True) - 1, senders[edges].long()
        row = receivers.clamp(0, graph.num_receivers - 1)
        around = (offsets[row] <= edges) & (edges < offsets[row + 1]) & (ends >= 0) & (ends < graph.num_senders)
        if not bool(around.all()):
            raise checks.damaged(graph)
        pairs = torch.stack([receivers, ends])
        return pairs[:, ~torch.isin(edges, missing) & (pairs[0] != pairs[1])].sort(0).values

    few = f"nearly all of {graph.num_edges:,} edges are self-loops or held out: too few links to train on"
    return _until(count, draw, few)


def _non_links(graph: Graph, count: int, missing: Tensor, generator: torch.Generator) -> Tensor:
    """Pairs of different nodes without an edge that is not missing, drawn evenly: [2, count]."""

    def draw(wanted: int) -> Tensor:
        pairs = torch.randint(graph.num_receivers, (2, wanted), generator=generator).sort(0).values
        return pairs[:, (pairs[0] != pairs[1]) & ~_are_linked(graph, pairs, missing)]

    few = f"nearly all of {graph.num_receivers:,} nodes are linked: too few pairs without a link to train on"
    return _until(count, draw, few)


def _until(count: int, draw: Callable[[int], Tensor], few: str) -> Tensor:
    """Pairs [2, count], drawn until there are so many; a DataError where hardly any draw gives one."""
    found = torch.zeros(2, 0, dtype=torch.int64)
    for _ in range(ROUNDS):
        if found.shape[1] == count:
            return found
        found = torch.cat([found, draw(count - found.shape[1])], 1)
    raise DataError(few)


def _are_linked(graph: Graph, pairs: Tensor, missing: Tensor) -> Tensor:
    """Whether an edge that is not missing leads from one node to the other, either way: bool [M]."""
    linked = torch.zeros(pairs.shape[1], dtype=torch.bool)
    for receivers, senders in (pairs, pairs.flip(0)):
        first, stop = edges_between(graph, receivers, senders)
        linked |= (first < stop) & ~torch.isin(first, missing)  # parallel edges are missing together
    return linked


def hold_out(graph: Graph, held: int, each: int, generator: torch.Generator) -> tuple[LinkCut, Tensor]:
    """Links to choose the weights by and to test on, `held` of each at most, and the numbers of all of their edges.

    Symbols     each = edges of a link
    Errors      DataError for a graph with too few links
    """
    edges, none = graph.num_edges, torch.zeros(0, dtype=torch.int64)
    counts = min(held, int(VALID * edges / each)), min(held, int(TEST * edges / each))
    pairs = _links(graph, sum(counts), none, generator) if min(counts) else torch.zeros(2, 0, dtype=torch.int64)
    pairs = pairs.unique(dim=1)
    if pairs.shape[1] < 2:
        raise DataError(f"a graph of {edges:,} edges has too few links to hold some out and train on the others")
    pairs = pairs[:, torch.randperm(pairs.shape[1], generator=generator)]
    bounds = [edges_between(graph, *ends) for ends in (pairs, pairs.flip(0))]
    missing = torch.cat([senders_of(first, stop) for first, stop in bounds]).unique()
    valid, test = pairs.tensor_split([max(1, pairs.shape[1] * counts[0] // sum(counts))], 1)
    free = _non_links(graph, pairs.shape[1], none, generator)
    valid_none, test_none = free.tensor_split([valid.shape[1]], 1)
    train = torch.zeros(2, 0, dtype=torch.int64)  # all others, which are not listed
    return LinkCut(graph, train, valid, valid_none, test, test_none), missing


def link_store(
    store: str = "store",
    width: int = 16,
    fanouts: tuple[int, ...] = (10, 10),
    cache: str = "0",
    workers: int = 1,
    held: int = 10_000,
    fold: int = 0,
) -> LinkPrediction:
    """Guess which nodes of a graph on disk are linked, which `edgewise store build` makes, however large.

    Of the links, without regard to their direction, at most `held` choose the weights and as many test, 5 % and 10 % of
    a small graph; all others train. The edges of held-out links are in no graph that the model reads. Each held-out
    part has as many pairs of nodes without a link. Attributes of edges are not read.

    Args:
        store: The folder of the store.
        width: Channels of a node's embedding.
        fanouts: Neighbours to draw in each hop of training, one number per layer.
        cache: Memory for the features of nodes that recur, such as 2GB; 0: none.
        workers: Threads that read the batches of the next steps while this one trains; 0: each is read when it is
            needed. The batches are the same.
        held: Links to choose the weights by, and links to test on, at most.
        fold: Seed of the links that are held out: another number, other links.

    Errors      a store that is missing, damaged, lacks features or has too few links is a `DataError`
    """
    check_range(0, MOST_WORKERS, workers=workers)
    if held < 1:
        raise ConfigError(f"task.held must be at least 1 link, not {held}")
    opened = Store.open(Path(store).expanduser())
    if opened.x is None or len(opened.x.shape) != 2:
        raise DataError(f"{store}: it has no features: give them to `edgewise store build` with --nodes")
    each = 2 if opened.manifest.about.get("undirected") else 1
    cut, missing = hold_out(opened.graph, held, each, torch.Generator().manual_seed(fold))
    rows = StoredRows(opened.x, parse_size(cache))
    made = StoredLinks(f"links of {opened.path.name}", cut, rows, missing, width, fanouts)
    made.workers = workers
    return made
