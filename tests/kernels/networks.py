"""Networks on random graphs for the tests of messages, and their results with gradients on any backend."""

from dataclasses import dataclass, replace

import torch
from torch import nn
from torch.nn import functional

from edgewise import Graph, collect
from edgewise.kernels import EdgeInput, EdgeNetwork, maps_of, shifted_softplus
from kernels.drawn import disjoint_graphs, number, pick, random_graph


@dataclass
class Case:
    """A record and its graph; calling it gives all results on a backend.

    Symbols     readout = the number of the last linear maps that read messages instead of making them, or None
    """

    graph: Graph
    network: EdgeNetwork
    readout: int | None
    reduce: str | None

    def message(self):
        """The record that is collected."""
        if self.readout is None:
            return self.network
        count = len(self.network.maps) - self.readout
        made = replace(self.network, maps=self.network.maps[:count], scale=None, activated=True)
        return made.then(self.network.maps[count:], self.network.scale)

    def __call__(self, backend=None):
        results = collect(self.graph, self.message(), self.reduce, backend=backend)
        return results if isinstance(results, tuple) else (results,)

    @property
    def leaves(self):
        return [t for t in self.network.tensors() if t is not None]

    def of(self, leaves):
        """The same case of other tensors."""
        rest = iter(leaves)
        tensors = [None if t is None else next(rest) for t in self.network.tensors()]
        return replace(self, network=self.network.with_tensors(tensors))

    def to(self, dtype):
        return self.of([t.detach().to(dtype).requires_grad_() for t in self.leaves])


def case(graph, widths, activation=functional.silu, edges=0, ends="ab", scale=0, reach=None, readout=None, **options):
    """Of float64; widths = those of z_0, z_1, ...; edges = what W_0 reads of an edge; ends = which of a, b exist."""
    a = torch.randn(graph.num_receivers, widths[0]) if "a" in ends else None
    b = torch.randn(graph.num_senders, widths[0]) if "b" in ends else None
    e = None
    if edges:
        values = torch.randn(graph.num_edges, edges) if reach is None else torch.rand(graph.num_edges, 1) * 2
        e = EdgeInput(maps_of([nn.Linear(edges, widths[0])])[0], values, reach)
    s = torch.randn(graph.num_edges, scale) if scale else None
    maps, reduce = maps_of(map(nn.Linear, widths, widths[1:])), options.pop("reduce", "sum")
    network = EdgeNetwork(maps, activation, receivers=a, senders=b, edges=e, scale=s, **options)
    return Case(graph, network, readout, reduce).to(torch.float64)


def drawn(activations=(functional.relu, functional.silu, shifted_softplus)):
    """A random network that the C++ kernel takes, on a random graph."""
    graph = pick([lambda: random_graph(number(1, 9), number(1, 9), number(0, 60)), lambda: disjoint_graphs(20)])()
    widths = [pick([1, 3, 4, 8, 9, 16, 33]) for _ in range(number(1, 4))]
    present = pick(["ab", "a", "b", ""])
    edges = number(0 if present else 2, 5)
    reach = 1.5 if edges > 1 and number(0, 1) else None
    if reach is not None:
        edges = pick([edges, 17, 24, 50])  # few Gaussians are all read, of many only the nearest
    scale = pick([0, 1, widths[-1], 3 if widths[-1] == 1 else 0])
    options = {"edges": edges, "ends": present, "scale": scale, "reach": reach}
    options["reduce"] = pick(["sum", "mean", "max", "min", None])
    options["readout"] = number(0, len(widths) - 1) or None
    options["activated"] = options["readout"] is None and bool(number(0, 1))
    return case(graph, widths, pick(activations), **options)


def with_gradients(call, backend=None):
    """The results, and the gradients of a fixed random projection of them to all tensors."""
    results = call(backend)
    generator = torch.Generator().manual_seed(7)
    shares = [torch.randn(y.shape, dtype=torch.float64, generator=generator).to(y.dtype) for y in results]
    grads = torch.autograd.grad(results, call.leaves, shares, allow_unused=True, materialize_grads=True)
    return [*results, *grads]
