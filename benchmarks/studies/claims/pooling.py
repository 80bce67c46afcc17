"""Min-cut pooling against none, where the answer lies in how communities are linked: accuracy over their distance.

python -m benchmarks.studies.claims.pooling

Each graph is a ring of eight communities of 10 to 18 nodes, in any order; a community has a colour, and a node shows it
with probability 0.7, else any of the eight. Two colours lie d or d + 1 communities apart: which? Numbers of nodes, of
links and of colours say nothing about it. All networks have two layers on the nodes, then three on the eight clusters
or, without pooling, on the nodes; one without pooling has 15 layers. Clusters are learned (min-cut pooling, DiffPool),
or fixed: nodes at random, nodes that show the same colour; or half of the nodes are kept, by their features (Graph
U-Nets) or by a convolution (SAGPool). 1,500 steps of 16 of 6,000 graphs, three seeds, each with 1,000 graphs for its
test.
"""

import math
import time
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.studies.training import parameters
from edgewise import aggregate
from edgewise.graphs import Graph
from edgewise.kernels import ends
from edgewise.layers import GCN, READOUTS, ClusterAssignment, ProjectionScore, diff_pool, min_cut_pool, top_k_pool

DISTANCES, TRAINING, TESTED, SEEDS = (1, 2, 3), 6_000, 1_000, (10, 11, 12)
STEPS, BATCH, RATE, WIDTH = 1_500, 16, 0.003, 32
COMMUNITIES, SIZES, DEGREE, LINKS, SHOWN = 8, (10, 18), 4, 2, 0.7


@dataclass(frozen=True)
class Way:
    """How nodes are pooled, how much the losses of pooling weigh, and how many layers follow."""

    pooled: str
    penalty: float = 0.0
    after: int = 3


WAYS = {
    "min-cut pooling": Way("min-cut", penalty=1.0),
    "min-cut pooling without its losses": Way("min-cut"),
    "DiffPool": Way("diff", penalty=1.0),
    "half of the nodes, by features (Graph U-Nets)": Way("projection"),
    "half of the nodes, by a convolution (SAGPool)": Way("convolution"),
    "nodes of a colour pooled": Way("colour"),
    "random clusters": Way("random"),
    "no pooling": Way("none"),
    "no pooling, 15 layers": Way("none", after=13),
}


class Drawn(NamedTuple):
    """A graph, the colour that each node shows, and whether the two colours lie d + 1 apart."""

    graph: Graph
    colours: Tensor
    label: int


def ring(distance: int, generator: torch.Generator) -> Drawn:
    """A ring of communities whose colours 0 and 1 lie `distance` or one more apart."""

    def below(limit: int, *shape: int) -> Tensor:
        return torch.randint(limit, shape, generator=generator)

    label, colours = int(below(2)), torch.full((COMMUNITIES,), -1)
    apart, first = (distance + label) * (1 if below(2) else -1), int(below(COMMUNITIES))
    colours[first], colours[(first + apart) % COMMUNITIES] = 0, 1
    colours[colours < 0] = 2 + torch.randperm(COMMUNITIES - 2, generator=generator)
    sizes = SIZES[0] + below(SIZES[1] - SIZES[0] + 1, COMMUNITIES)
    starts, pairs = sizes.cumsum(0) - sizes, []
    for number, (start, size) in enumerate(zip(starts.tolist(), sizes.tolist(), strict=True)):
        path = torch.randperm(size, generator=generator)  # which links the community; more links at random
        following = (number + 1) % COMMUNITIES
        beyond = starts[following] + below(int(sizes[following]), LINKS)
        pairs += [
            start + torch.stack([path[:-1], path[1:]]),
            start + below(size, 2, size * (DEGREE - 2) // 2),
            torch.stack([start + below(size, LINKS), beyond]),
        ]
    ends_ = torch.cat(pairs, 1)
    ends_ = ends_[:, ends_[0] != ends_[1]]
    nodes, shown = int(sizes.sum()), colours.repeat_interleave(sizes)
    hidden = torch.rand(nodes, generator=generator) >= SHOWN
    order = torch.randperm(nodes, generator=generator)
    edges = order[torch.cat([ends_, ends_.flip(0)], 1).unique(dim=1)]
    seen = torch.where(hidden, below(COMMUNITIES, nodes), shown)
    return Drawn(
        Graph.from_edge_index(edges, num_nodes=nodes), torch.empty_like(seen).index_copy(0, order, seen), label
    )


@lru_cache(maxsize=2)
def rings(distance: int, count: int, seed: int) -> tuple[Drawn, ...]:
    generator = torch.Generator().manual_seed(seed)
    return tuple(ring(distance, generator) for _ in range(count))


class Convolution(nn.Module):
    """x + W relu(W_own z + W_other Σ_j a_ij z_j + b), z = LN(x)."""

    def __init__(self) -> None:
        super().__init__()
        self.norm, self.own, self.last = nn.LayerNorm(WIDTH), nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        self.other = nn.Linear(WIDTH, WIDTH, bias=False)

    def forward(self, graph: Graph, x: Tensor, weight: Tensor) -> Tensor:
        z = self.norm(x)
        return x + self.last((self.own(z) + self.other(aggregate(graph, z, weight))).relu())


class Network(nn.Module):
    """Two layers on the nodes, the others on clusters or on nodes, a mean, a linear map; with the losses of pooling."""

    def __init__(self, way: Way) -> None:
        super().__init__()
        self.way, self.read = way, nn.Embedding(COMMUNITIES, WIDTH)
        self.before = nn.ModuleList(Convolution() for _ in range(2))
        self.after = nn.ModuleList(Convolution() for _ in range(way.after))
        self.between, self.norm = nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.readout, self.say = READOUTS["mean"](WIDTH), nn.Linear(WIDTH, 2)
        self.score: nn.Module | None = None
        if way.pooled in ("projection", "convolution"):
            self.score = ProjectionScore(WIDTH) if way.pooled == "projection" else GCN(WIDTH, 1)
        self.assign = ClusterAssignment(WIDTH, COMMUNITIES) if way.pooled in ("min-cut", "diff") else None

    def forward(self, graph: Graph, colours: Tensor) -> tuple[Tensor, Tensor]:
        h, weight, losses = self.read(colours), normalised(graph), torch.zeros(())
        for layer in self.before:
            h = layer(graph, h, weight)
        if self.score is not None:
            graph, h, _ = top_k_pool(graph, h, self.score(graph, h))
            weight = normalised(graph)
        elif self.way.pooled == "diff":
            graph, h, weight, link, entropy = diff_pool(graph, h, self.clusters(graph, h, colours))
            weight = normalised(graph, weight)
            losses = self.way.penalty * (link + entropy).mean()
        elif self.way.pooled != "none":
            graph, h, weight, cut, orthogonality = min_cut_pool(graph, h, self.clusters(graph, h, colours))
            losses = self.way.penalty * (cut + orthogonality).mean()
        h = self.between(h)
        for layer in self.after:
            h = layer(graph, h, weight)
        return self.say(self.readout(graph, self.norm(h))), losses

    def clusters(self, graph: Graph, h: Tensor, colours: Tensor) -> Tensor:
        """To how large a part each node belongs to each cluster."""
        if self.assign is not None:
            return self.assign(graph, h)
        # Nodes are numbered at random: every eighth is a random cluster.
        own = colours if self.way.pooled == "colour" else torch.arange(len(colours)) % COMMUNITIES
        return functional.one_hot(own, COMMUNITIES).to(h.dtype)


def normalised(graph: Graph, weight: Tensor | None = None) -> Tensor:
    """The entries of D^-½ A D^-½, as A_pool of min-cut pooling has them."""
    weight = torch.ones(graph.num_edges) if weight is None else weight
    degrees = aggregate(graph, torch.ones(graph.num_senders, 1), weight).clamp(min=1e-12)
    receivers, senders = ends(graph, degrees, degrees)
    return weight * (receivers * senders).squeeze(-1).rsqrt()


def together(part: list[Drawn]) -> tuple[Graph, Tensor, Tensor]:
    graphs, colours, labels = zip(*part, strict=True)
    return Graph.batch(list(graphs)), torch.cat(colours), torch.tensor(labels)


def trained(way: Way, distance: int, seed: int, steps: int, training: int) -> Network:
    torch.manual_seed(seed)
    model, generator = Network(way), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), RATE)
    examples = rings(distance, training, 1)
    for step in range(steps):
        for group in optimizer.param_groups:
            group["lr"] = RATE * min(1.0, (step + 1) / 20) * 0.5 * (1 + math.cos(math.pi * step / steps))
        chosen = torch.randint(len(examples), (BATCH,), generator=generator).tolist()
        graph, colours, labels = together([examples[number] for number in chosen])
        outputs, losses = model(graph, colours)
        optimizer.zero_grad()
        (functional.cross_entropy(outputs, labels) + losses).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
    return model


@torch.no_grad()
def accuracy(model: Network, drawn: tuple[Drawn, ...]) -> float:
    right = 0
    for start in range(0, len(drawn), 100):
        graph, colours, labels = together(list(drawn[start : start + 100]))
        right += int((model(graph, colours)[0].argmax(-1) == labels).sum())
    return right / len(drawn)


def one(
    way: Way,
    distance: int,
    seeds: tuple[int, ...] = SEEDS,
    steps: int = STEPS,
    sizes: tuple[int, int] = (TRAINING, TESTED),
) -> dict[str, float]:
    found, count, seconds = [], 0, 0.0
    for seed in seeds:
        rings(distance, sizes[0], 1)
        began = time.process_time()
        model = trained(way, distance, seed, steps, sizes[0])
        seconds, count = seconds + time.process_time() - began, parameters(model)
        found.append(accuracy(model, rings(distance, sizes[1], 100 + seed)))
    mean = sum(found) / len(found)
    return {"accuracy": mean, "least": min(found), "most": max(found), "seconds": seconds, "parameters": count}


Table = dict[str, list[dict[str, float]]]


def measure(
    distances: tuple[int, ...] = DISTANCES,
    seeds: tuple[int, ...] = SEEDS,
    steps: int = STEPS,
    sizes: tuple[int, int] = (TRAINING, TESTED),
) -> Table:
    found = {
        (name, distance): one(way, distance, seeds, steps, sizes)
        for distance in distances  # so that the graphs of a distance are drawn once
        for name, way in WAYS.items()
    }
    heads = [f"{distance} or {distance + 1} apart" for distance in distances]
    print(f"| network | weights | {' | '.join(heads)} | seconds |\n|---{'|---' * (len(heads) + 2)}|")
    table: Table = {}
    for name in WAYS:
        table[name] = own = [found[name, distance] for distance in distances]
        cells = " | ".join(
            f"{100 * c['accuracy']:.1f} % ({100 * c['least']:.1f} to {100 * c['most']:.1f})" for c in own
        )
        print(f"| {name} | {own[0]['parameters']:,.0f} | {cells} | {sum(c['seconds'] for c in own):.0f} |", flush=True)
    return table


def main() -> None:
    torch.set_num_threads(1)
    measure()


if __name__ == "__main__":
    main()
