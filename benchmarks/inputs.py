"""What the contenders of a case read: seeded, and identical in every process that makes it."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from edgewise.graphs import Graph
from edgewise.kernels import GatedAdditive, Score

CHECKED_EDGES = 400_000  # a larger case is checked on the rows that hold about so many edges


@dataclass(frozen=True)
class Attention:
    """y_i = Σ_j softmax_j(s_ij) v_j, differentiated with respect to q, k, v and the score's own weights."""

    graph: Graph
    q: Tensor
    k: Tensor
    v: Tensor
    score: Score

    @cached_property
    def leaves(self) -> dict[str, Tensor]:
        """The tensors that every contender differentiates; a tensor that plays two parts is there once."""
        found = {"q": self.q, "k": self.k}
        if self.v is not self.k:
            found["v"] = self.v
        if isinstance(self.score, GatedAdditive):
            found["a"] = self.score.a
        return found

    @cached_property
    def gradient(self) -> Tensor:
        """dL/dy, the same in every contender."""
        shape = (*self.v.shape[:-3], self.graph.num_receivers, *self.v.shape[-2:])
        return torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(self.v)

    @property
    def node_axis(self) -> int:
        """Where y counts receivers."""
        return -3

    def to(self, device: str, dtype: torch.dtype) -> Attention:
        """The same on a device, in a dtype; for scores without weights of their own."""
        q, k, v = (x.detach().to(device, dtype).requires_grad_() for x in (self.q, self.k, self.v))
        v = k if self.v is self.k else v
        return Attention(self.graph.to(device), q, k, v, self.score)


@dataclass(frozen=True)
class Product:
    """y = A X with a fixed weight for every edge, differentiated with respect to X."""

    graph: Graph
    x: Tensor
    weight: Tensor

    @property
    def leaves(self) -> dict[str, Tensor]:
        """The features."""
        return {"x": self.x}

    @cached_property
    def gradient(self) -> Tensor:
        """dL/dy, the same in every contender."""
        shape = (self.graph.num_receivers, self.x.shape[-1])
        return torch.randn(shape, generator=torch.Generator().manual_seed(3)).to(self.x)

    @property
    def node_axis(self) -> int:
        """Where y counts receivers."""
        return -2

    def to(self, device: str, dtype: torch.dtype) -> Product:
        """The same on a device, in a dtype."""
        x = self.x.detach().to(device, dtype).requires_grad_()
        return Product(self.graph.to(device), x, self.weight.to(device, dtype))


@dataclass(frozen=True)
class Epoch:
    """A training epoch of a paper's model on Cora: forward, backward, Adam and an evaluation."""

    layer: str


@dataclass(frozen=True)
class Sampling:
    """Neighbours of the seeds, and of those, drawn uniformly without replacement."""

    graph: Graph
    seeds: Tensor
    fanouts: tuple[int, ...]


@dataclass(frozen=True)
class SmallGPT:
    """A training step of a GPT with 4 layers, 4 heads, width 128, context 64 and 12 texts."""


Differentiated = Attention | Product
Inputs = Differentiated | Epoch | Sampling | SmallGPT


def attention(graph: Graph, heads: int, channels: int, score: Score, batch: tuple[int, ...] = ()) -> Attention:
    """Normal queries, keys and values for a graph and a score; Additive has one channel of q and k, GATv2 k = v."""
    generator = torch.Generator().manual_seed(1)
    kind = type(score).__name__
    width = 1 if kind == "Additive" else channels
    q = torch.randn(*batch, graph.num_receivers, heads, width, generator=generator)
    k = torch.randn(*batch, graph.num_senders, heads, width, generator=generator)
    v = k if kind == "GatedAdditive" else torch.randn(*batch, graph.num_senders, heads, channels, generator=generator)
    inputs = Attention(graph, q, k, v, score)
    for leaf in inputs.leaves.values():
        leaf.requires_grad_()
    return inputs


def product(graph: Graph, channels: int) -> Product:
    """Normal features, and positive weights in the graph's edge order."""
    generator = torch.Generator().manual_seed(1)
    x = torch.randn(graph.num_senders, channels, generator=generator).requires_grad_()
    return Product(graph, x, torch.rand(graph.num_edges, generator=generator))


def power_law(nodes: int, edges: int) -> Graph:
    """A Chung–Lu graph: both ends of every edge drawn with weights rank^(−1/1.5), ranks permuted for each end.

    Symbols     nodes = N receivers and senders, edges = E; parallel edges are kept
    Cost        O(E log N)
    """
    generator = np.random.default_rng(0)
    total = np.cumsum(np.arange(1, nodes + 1) ** (-1 / 1.5))
    ends = [
        generator.permutation(nodes)[np.searchsorted(total, generator.random(edges) * total[-1]).clip(max=nodes - 1)]
        for _ in range(2)
    ]
    return Graph.from_edge_index(torch.from_numpy(np.stack(ends)), num_nodes=nodes)


def uniform(nodes: int, edges: int) -> Graph:
    """Edges with both ends drawn uniformly."""
    generator = torch.Generator().manual_seed(0)
    return Graph.from_edge_index(torch.randint(nodes, (2, edges), generator=generator), num_nodes=nodes)


def molecule_sizes(count: int) -> list[int]:
    """10 to 40 atoms each."""
    return np.random.default_rng(0).integers(10, 41, count).tolist()


def molecules(count: int) -> Graph:
    """Molecules as graphs of bonds: a random tree of degree at most 4, and one ring closed for every ten atoms."""
    generator = np.random.default_rng(1)
    graphs = []
    for size in molecule_sizes(count):
        degree, bonds = np.zeros(size, dtype=int), []
        for atom in range(1, size):
            open_ends = np.flatnonzero(degree[:atom] < 4)
            partner = int(open_ends[-1 - min(int(generator.geometric(0.6)) - 1, len(open_ends) - 1)])
            bonds.append((partner, atom))
            degree[[partner, atom]] += 1
        for start in generator.integers(0, size - 5, size // 10).tolist():
            if max(degree[start], degree[start + 5]) < 4:
                bonds.append((start, start + 5))
                degree[[start, start + 5]] += 1
        both = torch.tensor(bonds).T
        graphs.append(Graph.from_edge_index(torch.cat([both, both.flip(0)], 1), num_nodes=size))
    return Graph.batch(graphs)


def checked_rows(graph: Graph) -> Tensor:
    """The receivers on which a case is checked, ascending: all, or the largest, both ends and some of the others."""
    if graph.num_edges <= CHECKED_EDGES:
        return torch.arange(graph.num_receivers)
    degrees = graph.in_degrees().cpu()
    order = torch.randperm(graph.num_receivers, generator=torch.Generator().manual_seed(4))
    first = torch.tensor([int(degrees.argmax()), 0, graph.num_receivers - 1])
    order = torch.cat([first, order])
    kept = order[degrees[order].cumsum(0) <= CHECKED_EDGES]
    return torch.cat([first, kept]).unique()
