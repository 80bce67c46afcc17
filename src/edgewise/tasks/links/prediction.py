"""Link prediction: node embeddings whose inner products say which nodes are linked; graph auto-encoders."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Literal, cast

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from edgewise.data.splits import SPLITS, Split
from edgewise.errors import ConfigError, DataError
from edgewise.graphs import Graph, Neighborhood, Sample, complete, sample_neighbors
from edgewise.graphs.derived import cached
from edgewise.graphs.make.links import LinkCut, cut_links, sample_non_links
from edgewise.layers.plain.linear import SparseFeatures
from edgewise.models.signature import Features
from edgewise.tasks.core.abilities import Predicts
from edgewise.tasks.core.batch import Batch, batch_of
from edgewise.tasks.core.measures import Answers
from edgewise.tasks.core.subject import Subject, captured
from edgewise.tasks.core.task import Device, Parts, Pattern, given
from edgewise.tasks.nodes.citation import citation
from edgewise.tasks.nodes.classification import fanouts_of, number_below

VALID, TEST = 0.05, 0.1


@dataclass
class PairBatch(Batch):
    """The training graph, whole or a sample of it around the pairs {i, j} [2, M] whose links the loss reads: two rows
    of the model's output each. `target` is 1 where they are linked and 0 where not."""

    graph: Graph | Sample | Neighborhood
    pairs: Tensor = field(default_factory=lambda: torch.zeros(2, 0, dtype=torch.int64))

    divisible = False


def inner_product(z: Tensor, pairs: Tensor) -> Tensor:
    """The decoder of a graph auto-encoder: how likely a link is, as the logit z_i · z_j.

    Equation    p(A_ij = 1 | z_i, z_j) = σ(z_iᵀ z_j)
    Shapes      z [N, C], pairs [2, M] -> [M]
    Reference   Kipf & Welling, "Variational graph auto-encoders", 2016, (2)

    Example
        >>> inner_product(torch.tensor([[1.0, 2.0], [3.0, 4.0]]), torch.tensor([[0], [1]]))
        tensor([11.])
    """
    return (z[pairs[0]] * z[pairs[1]]).sum(-1)


def divergence(mean: Tensor, log_deviation: Tensor) -> Tensor:
    """How far each node's distribution is from a standard normal one.

    Equation    KL[N(μ, σ²) ‖ N(0, 1)] = -1/2 Σ_c (1 + 2 log σ_c - μ_c² - σ_c²)
    Shapes      [N, C] -> [N]

    Example
        >>> divergence(torch.tensor([[2.0]]), torch.tensor([[0.0]]))
        tensor([2.])
    """
    return -0.5 * (1 + 2 * log_deviation - mean.square() - (2 * log_deviation).exp()).sum(-1)


class LinkPrediction(Predicts):
    """The model embeds the nodes of the training graph, and the embeddings of two nodes say whether they are linked.

    Equation    L = 1/2 (mean of -log σ(z_iᵀ z_j) over links + mean of -log σ(-z_iᵀ z_j) over as many pairs without)
                variational: z = μ + σ ⊙ ε, ε ~ N(0, 1) while training, z = μ else; L + 1/N² Σ_i KL[q(z_i) ‖ N(0, 1)]
    Symbols     the model's output = z [N, C], or [μ ‖ log σ] [N, 2C]; fanouts = neighbours to draw in each hop around
                the pairs of a step; empty: it reads the whole graph. An evaluation always does
    Scores      auc, the chance that a link has a higher score than a pair without; ap, average precision;
                mrr, mean of 1 / rank of each link among all pairs without; hits@20, the share of links that rank 20th
                or better there; pairs without a link that score the same rank first
    Differs     the paper compares all N² pairs in each step, and weighs links up to half of the loss; here the other
                half is a sample of the pairs, drawn anew for each step among all that are no *training* link: pairs
                that are held out are not spared, which would give them away
    Reference   Kipf & Welling, 2016
    """

    metric = "auc"
    unit = "links"

    def __init__(
        self,
        name: str,
        cut: LinkCut,
        x: Tensor | SparseFeatures,
        width: int,
        variational: bool,
        fanouts: tuple[int, ...] = (),
    ) -> None:
        if width < 1:
            raise ConfigError(f"task.width must be at least 1, not {width}")
        self.name, self.cut, self.x, self.variational, self.fanouts = name, cut, x, variational, fanouts_of(fanouts)
        self.epoch_size, self.has_test = cut.train.shape[1], cut.test.shape[1] > 0
        weighted, outputs = cut.e is not None, width * (1 + variational)
        self.signature = Features(x.shape[-1], outputs, edges=int(weighted), classes=False, weighted=weighted)
        self.splits: dict[Split, Tensor] = {split: getattr(cut, split).T for split in SPLITS}
        self.contents = f"{cut.graph.num_receivers:,} nodes and their links"

    def graph(self, pattern: Pattern = None) -> Graph:
        """The training links in both directions, or a pattern over the nodes in their order."""
        own = self.cut.graph
        if self.cut.e is not None and not given(pattern):
            raise ConfigError(f"the weights of {self.name} belong to its own graph: the recipe's graph must be 'given'")
        return own if given(pattern) else self.laid(pattern, complete, own.num_receivers)

    def train_batch(self, size: int, generator: torch.Generator, pattern: Pattern = None) -> Batch:
        """`size` training links, or all where there are fewer, and as many pairs that are none."""
        return self.train_parts(size, generator, pattern, Parts(1, range(1)))[1][0]

    def train_parts(
        self, size: int, generator: torch.Generator, pattern: Pattern, parts: Parts
    ) -> tuple[int, list[Batch]]:
        links, none = self._drawn(size, generator)
        if not self.fanouts:
            return parts.of_one(self._batch(links, none, pattern))
        if self.variational or links.shape[1] < parts.count:  # z is drawn once for each node, whatever its pairs
            return parts.of_one(self._sampled(links, none, pattern, generator))
        state, pieces = generator.get_state(), [pairs.tensor_split(parts.count, 1) for pairs in (links, none)]
        alike = [torch.Generator().set_state(state) for _ in parts.mine]
        mine = zip(parts.mine, alike, strict=True)
        return 2 * links.shape[1], [self._sampled(pieces[0][n], pieces[1][n], pattern, own) for n, own in mine]

    def _drawn(self, size: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Training links of a step, and as many pairs that are none."""
        links = self.cut.train
        if size < self.epoch_size:
            links = links[:, torch.randperm(self.epoch_size, generator=generator)[:size]]
        return links, sample_non_links(self.cut.graph, links.shape[1], generator)

    def batches(self, split: Split, size: int, pattern: Pattern = None) -> Iterator[Batch]:
        """One batch: all links of a split, and as many pairs without a link, the same every time."""
        yield self._whole(split, pattern)

    @cached
    def _whole(self, split: Split, pattern: Pattern) -> Batch:
        links = self.splits[split].T
        if split == "train":
            none = sample_non_links(self.cut.graph, links.shape[1], torch.Generator().manual_seed(0))
        else:
            none = getattr(self.cut, f"{split}_none")
        return self._batch(links, none, pattern)

    def _batch(self, links: Tensor, none: Tensor, pattern: Pattern) -> PairBatch:
        pairs = torch.cat([links, none], 1)
        return PairBatch(self.graph(pattern), self.x, target_of(links, none), e=self.cut.e, pairs=pairs)

    def _sampled(self, links: Tensor, none: Tensor, pattern: Pattern, generator: torch.Generator) -> PairBatch:
        """The ends of the pairs with some of their neighbours: the model gives a row for each end."""
        whole = self._batch(links, none, pattern)
        seeds, rows = whole.pairs.unique(return_inverse=True)
        sample, e = sample_neighbors(cast(Graph, whole.graph), seeds, self.fanouts, generator).with_rows(whole.e)
        return PairBatch(sample, self.x[sample.nodes], whole.target, e=e, pairs=rows)

    def loss(self, outputs: Tensor, batch: Batch) -> Tensor:
        if not self.variational:
            return self._reconstruction(outputs, batch)
        mean, log_deviation = outputs.chunk(2, -1)
        z = mean + log_deviation.exp() * torch.randn_like(mean)
        nodes = self.cut.graph.num_receivers
        return self._reconstruction(z, batch) + divergence(mean, log_deviation).mean() / nodes

    def _reconstruction(self, z: Tensor, batch: Batch) -> Tensor:
        logits = inner_product(z, batch_of(PairBatch, batch).pairs)
        return functional.binary_cross_entropy_with_logits(logits, batch.target.to(logits.dtype))

    def embeddings(self, outputs: Tensor) -> Tensor:
        """z [N, C] of a model's outputs: the means, where there are also deviations."""
        return outputs.chunk(2, -1)[0] if self.variational else outputs

    def score(self, outputs: Tensor, batch: Batch) -> dict[str, Tensor]:
        z = self.embeddings(outputs.detach()).double()
        logits, linked = inner_product(z, batch_of(PairBatch, batch).pairs), batch.target > 0
        scores = ranking_scores(logits[linked], logits[~linked]) | {"loss": self._reconstruction(z, batch)}
        count = torch.tensor(float(batch.size), dtype=torch.float64, device=z.device)
        return {name: value * count for name, value in scores.items()} | {"count": count}

    def answers(self, outputs: Tensor, batch: Batch) -> list[Answers]:
        """The probability of each pair's link; and of each link the place among the pairs without."""
        z, linked = self.embeddings(outputs.detach()).double(), (batch.target > 0).cpu()
        logits = inner_product(z, batch_of(PairBatch, batch).pairs).cpu()
        ranks = ranks_of(logits[linked], logits[~linked])
        p = torch.stack([(-logits).sigmoid(), logits.sigmoid()], -1)
        figures = {"mrr": 1 / ranks} | {f"hits@{k}": ranks <= k for k in (1, 10, 20)}
        return [Answers(p, linked, ("no link", "link")), Answers(figures=figures)]

    def simple(self) -> Iterator[tuple[str, Callable[[Split], dict[str, float]]]]:
        """Rankings of pairs by their neighbours in the training graph."""
        edges = self.cut.graph.to_scipy()
        degree = np.asarray(edges.sum(1)).ravel()
        weights = {"common neighbours": np.ones(len(degree))}
        weights["common neighbours, each by 1 / log of its degree"] = 1 / np.log(np.maximum(degree, 2))
        for name, weight in weights.items():
            yield name, partial(self._ranked, partial(_shared, edges, edges.multiply(weight).tocsr()))
        yield "the product of both degrees", partial(self._ranked, lambda i, j: degree[i] * degree[j])

    def _ranked(self, score: Callable[[Any, Any], Any], split: Split) -> dict[str, float]:
        """The scores of a split whose pairs are ranked so."""
        batch = batch_of(PairBatch, self._whole(split, None))
        found = torch.from_numpy(np.asarray(score(*batch.pairs.numpy()), dtype=np.float64)).flatten()
        scores = ranking_scores(found[batch.target > 0], found[batch.target == 0])
        return {name: value.item() for name, value in scores.items()}

    @property
    def typical(self) -> str:
        return str(self.shown(0))

    @torch.no_grad()
    def predict(self, model: nn.Module, pattern: Pattern, request: str, device: Device) -> dict[str, Any]:
        """How likely two nodes are linked, as in "12,80"; of one node, as in "12", its ten likeliest new links."""
        nodes = self._parse(request)
        z = self.embeddings(model.eval()(*self._whole("valid", pattern).to(device).inputs)).double().cpu()
        if len(nodes) == 2:
            chance = inner_product(z, torch.tensor(nodes)[:, None]).sigmoid().item()
            linked = self._linked(nodes[0], nodes[1])
            return {"nodes": [self.shown(node) for node in nodes], "probability": chance, "training link": linked}
        chances = (z @ z[nodes[0]]).sigmoid()
        new = [j for j in chances.argsort(descending=True).tolist() if j != nodes[0] and not self._linked(nodes[0], j)]
        links = [{"node": self.shown(j), "probability": chances[j].item()} for j in new[:10]]
        return {"node": self.shown(nodes[0]), "links": links}

    def shown(self, node: int) -> int | str:
        """How a prediction names a node: by its number, where it has no name of its own."""
        return node

    def subject(self, model: nn.Module, pattern: Pattern, request: str) -> Subject:
        """How likely two nodes are linked: the logit z_iᵀ z_j."""
        nodes = self._parse(request)
        if len(nodes) != 2:
            raise DataError(f"{request!r} names one node: a link has two, as in '12,80'")
        inputs = captured(model, lambda: self.predict(model, pattern, request, "cpu"))
        pair = torch.tensor(nodes)[:, None]

        def logit(outputs: Tensor) -> Tensor:
            return inner_product(self.embeddings(outputs), pair)

        what = f"the link of {self.shown(nodes[0])} and {self.shown(nodes[1])}"
        chance = lambda outputs: logit(outputs).sigmoid()  # noqa: E731
        return Subject(inputs, number=logit, shown=chance, what=what, unit="log-odds")

    def _linked(self, i: int, j: int) -> bool:
        graph = self.cut.graph
        return bool((graph.senders[graph.offsets[i] : graph.offsets[i + 1]] == j).any())

    def _parse(self, request: str) -> list[int]:
        count = self.cut.graph.num_receivers
        nodes = [number_below(part, count) for part in request.split(",")]
        if None in nodes or len(nodes) > 2:
            raise DataError(f"no nodes {request!r} in {self.name}: give one or two numbers 0 to {count - 1}")
        return [node for node in nodes if node is not None]


def target_of(links: Tensor, none: Tensor) -> Tensor:
    """1 for each link, and 0 for each pair without one."""
    return torch.cat([torch.ones(links.shape[1]), torch.zeros(none.shape[1])])


def ranks_of(links: Tensor, none: Tensor) -> Tensor:
    """The place of each link's score among those of pairs without a link, from 1; equal ones come first."""
    return 1 + len(none) - torch.searchsorted(none.sort().values, links, right=False).double()


def ranking_scores(links: Tensor, none: Tensor, k: int = 20) -> dict[str, Tensor]:
    """How well scores distinguish links from pairs without a link.

    Equation    auc = P(s_link > s_none) + P(s_link = s_none) / 2;  ap = Σ_n (R_n - R_{n-1}) P_n over the thresholds
                rank of a link = 1 + number of pairs without a link that score as high or higher
    Shapes      scores links [P], none [M] -> four numbers
    Cost        O((P + M) log (P + M))

    Example
        >>> scores = ranking_scores(torch.tensor([3.0, 1.0]), torch.tensor([2.0, 0.0]), k=1)
        >>> {name: round(value.item(), 4) for name, value in scores.items()}  # the ranks are 1 and 2
        {'auc': 0.75, 'ap': 0.8333, 'mrr': 0.75, 'hits@1': 0.5}
    """
    ascending = none.sort().values
    below = torch.searchsorted(ascending, links, right=False)
    up_to = torch.searchsorted(ascending, links, right=True)
    higher = len(none) - below  # or as high
    links_up = len(links) - torch.searchsorted(links.sort().values, links, right=False)
    ranks = ranks_of(links, none)
    return {
        "auc": (below + up_to).double().mean() / (2 * len(none)),
        "ap": (links_up / (links_up + higher).double()).mean(),
        "mrr": (1 / ranks).mean(),
        f"hits@{k}": (ranks <= k).double().mean(),
    }


def _shared(edges: Any, weighted: Any, i: Any, j: Any) -> Any:
    """The sum of the weights of the neighbours that two nodes have in common, of each pair."""
    return np.asarray(edges[i].multiply(weighted[j]).sum(1))


def citation_links(
    dataset: Literal["cora", "citeseer", "pubmed"] = "cora",
    width: int = 16,
    variational: bool = True,
    fold: int = 0,
    folder: str | None = None,
    download: bool = False,
    fanouts: tuple[int, ...] = (),
) -> LinkPrediction:
    """Guess which papers cite one another, from their words and the citations that are not held out.

    Of the citations, without regard to their direction, 85 % train, 5 % choose the weights and 10 % test; each held-out
    part has as many pairs of papers without a citation. The held-out citations are in no graph that the model reads. A
    word is there (1) or not (0).

    Reference   Kipf & Welling 2016 (the shares and the scores)

    Args:
        dataset: "cora", "citeseer" or "pubmed".
        width: Channels of a paper's embedding.
        variational: Learn a normal distribution for each paper, not a point: the model gives 2 x width channels.
        fold: Seed of the random cut: another number, another cut.
        folder: Where the files ind.NAME.x etc. lie (default: planetoid in $EDGEWISE_DATA, then the cache).
        download: Fetch what is missing from the planetoid repository, over TLS and verified by its hash.
        fanouts: Neighbours to draw in each hop of training, one number per layer. Empty: the whole graph at once.
    """
    nodes = citation(dataset, folder, download, normalise=False).nodes
    cut = cut_links(nodes.graph, VALID, TEST, torch.Generator().manual_seed(fold))
    return LinkPrediction(f"{dataset} links", cut, nodes.x, width, variational, fanouts)
