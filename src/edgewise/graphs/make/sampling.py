"""Nodes drawn at random, as neighbours hop by hop or for a whole layer at once: small graphs on which layers learn."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from types import ModuleType
from typing import Any, Self

import torch
from torch import Tensor

from edgewise import native
from edgewise.errors import GraphError
from edgewise.graphs import checks
from edgewise.graphs import forms as lowering
from edgewise.graphs.derived import cached
from edgewise.graphs.graph import Graph

MOST_NODES = 2**31 - 2  # of a graph that the C++ samples: it numbers nodes in 32 bits
WRONG = -(2**63)  # how the C++ says that a graph's offsets or senders are none
CPU = torch.device("cpu")
ANY = torch.Generator()  # where all neighbours are taken, nothing is drawn
READERS = 16  # threads that wait for the pages of a mapped graph at once: the queue that a disk works on


@dataclass(frozen=True, eq=False)
class Sample:
    """Some nodes of a graph, and for each layer of a network the graph that it runs on.

    Symbols     M = nodes in the sample, S = seeds, L = layers, E_l = edges of layer l's graph
    Shapes      nodes [M]: which nodes these are, the seeds first; graphs: L of them, in the order of the layers;
                edges: L tensors [E_l], which edges of the large graph those of graphs[l] are; seeds: of `sample_past`,
                [M], for which seed each node was drawn

    graphs[l] has as receivers the first of the nodes, and as senders some more of them: those that are the receivers of
    graphs[l - 1], or all M where l = 0. So x [M, C] goes in, each layer drops the nodes that only the one before
    reads, and y [S, C] comes out, in the order of the seeds. A node tensor follows as x[nodes], an edge tensor as
    e[edges[l]].
    """

    nodes: Tensor
    graphs: tuple[Graph, ...]
    edges: tuple[Tensor, ...]
    seeds: Tensor | None = None

    def to(self, device: torch.device | str) -> Self:
        """The same sample on a device."""
        graphs, edges = tuple(one.to(device) for one in self.graphs), tuple(one.to(device) for one in self.edges)
        seeds = None if self.seeds is None else self.seeds.to(device)
        return replace(self, nodes=self.nodes.to(device), graphs=graphs, edges=edges, seeds=seeds)

    def with_rows(self, e: Tensor | None) -> tuple[Self, Tensor | None]:
        """The rows of e [E, *] of the large graph's edges that the sample reads, and the sample that numbers them."""
        if e is None:
            return self, None
        numbers = torch.cat(self.edges)
        return replace(self, edges=torch.arange(len(numbers)).split([*map(len, self.edges)])), e[numbers]

    def without(self, missing: Tensor) -> Self:
        """The same nodes without some edges of the large graph, whose numbers ascend."""
        graphs, edges = list[Graph](), list[Tensor]()
        if not len(missing):
            return self
        for graph, numbers in zip(self.graphs, self.edges, strict=True):
            kept = missing[torch.searchsorted(missing, numbers).clamp(max=len(missing) - 1)] != numbers
            if not bool(kept.all()):
                offsets = lowering.offsets_of(lowering.counts(graph.receivers[kept], graph.num_receivers))
                senders = graph.senders[kept]
                graph = Graph._of(
                    graph.num_receivers, graph.num_senders, device=graph.device, offsets=offsets, senders=senders
                )
            graphs.append(graph)
            edges.append(numbers[kept])
        return replace(self, graphs=tuple(graphs), edges=tuple(edges))


@dataclass(frozen=True, eq=False)
class Neighborhood:
    """Some nodes of a graph with all nodes that they listen to, for exact inference layer by layer.

    Symbols     nodes [M] = whose outputs are wanted; chunk = receivers that a layer reads at once; missing = numbers of
                edges that count as none, ascending
    Cost        a layer computes each node once that a later one reads, so that time is O(L (E + N)) and not Π degrees;
                memory is that of a chunk and of one layer's outputs
    Edge cases  features stay where they are; what is computed is on `device`

    Example
        >>> ring = Graph.from_edge_index([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]], num_nodes=5)  # i listens to i - 1
        >>> [rows.tolist() for rows in Neighborhood(ring, torch.tensor([3])).needed(2)]
        [[2, 3], [3]]
    """

    graph: Graph
    nodes: Tensor
    chunk: int = 1 << 14
    device: torch.device = CPU
    missing: Tensor | None = None

    def to(self, device: torch.device | str) -> Self:
        """The same nodes, to be computed on a device."""
        return replace(self, device=torch.device(device))

    def needed(self, layers: int) -> list[Tensor]:
        """For each layer, the nodes whose outputs are needed, ascending; of the last, `nodes`."""
        needed = [self.nodes.unique()]
        for _ in range(layers - 1):
            reached = [sample.nodes.unique() for _, sample in self.hops(needed[0])]
            needed.insert(0, torch.cat([needed[0], *reached]).unique())
        return needed

    def hops(self, receivers: Tensor) -> Iterator[tuple[int, Sample]]:
        """All senders of some receivers, in chunks: where each begins, and a sample of one hop."""
        for first in range(0, len(receivers), self.chunk):
            sample = sample_neighbors(self.graph, receivers[first : first + self.chunk], [-1], ANY)
            yield first, sample if self.missing is None else sample.without(self.missing)

    def degrees(self, nodes: Tensor) -> Tensor:
        """How many senders each of some nodes has, itself among them."""
        counts = [torch.empty(0, dtype=torch.int64)]
        for _, sample in self.hops(nodes):
            (hop,) = sample.graphs
            lacks_loop = torch.ones(hop.num_receivers, dtype=torch.int64)
            lacks_loop[hop.receivers[hop.receivers == hop.senders]] = 0
            counts.append(hop.in_degrees() + lacks_loop)
        return torch.cat(counts)


def sample_neighbors(
    graph: Graph,
    seeds: Any,
    fanouts: Sequence[int],
    generator: torch.Generator | None = None,
    weight: Tensor | None = None,
) -> Sample:
    """Some neighbours of the seeds, some neighbours of all those, and so on: a hop for each layer of a network.

    Equation    B_0 = the seeds;  B_h = B_{h-1} ∪ ⋃ {N_h(i) : i ∈ B_{h-1}}            (Alg. 2, lines 1 to 7)
                N_h(i) = min(fanouts[h], |N(i)|) of the edges of i, without replacement: each set of that size equally
                likely or, with `weight`, drawn one after the other, P(e) = w_e / Σ w over those that are left
    Symbols     fanouts = S_K, ..., S_1, from the seeds outwards (-1: all); seeds = B; a generator or, without one,
                torch.manual_seed decides the draw; weight = w_e in the graph's own order
    Shapes      seeds [S] integers, weight [E] -> `Sample`: nodes [M], L = len(fanouts) graphs, edges [E_l] of each
    Errors      a graph whose receivers are not its senders; a seed that is out of range or there twice; a fan-out below
                -1; a weight that is negative or not finite, once its receiver is reached: node, hop or edge is named
    Edge cases  a fan-out of the degree or more takes every neighbour once; a fan-out of 0, or no neighbours: no edge;
                parallel edges count as often as they are there; an edge of weight 0 is never drawn
    Cost        time O(Σ_l E_l), with `weight` O(all edges of the receivers); cached: 4 bytes for each edge and node;
                a graph from `Graph.open` is read where it lies, by 16 threads at once, and its edges are not copied
    Differs     in Algorithm 2 neighbours are drawn with replacement where a node has too few (§4.2): here it has fewer
    Reference   Hamilton, Ying & Leskovec, 2017; Efraimidis & Spirakis, 2006 (weights)

    A draw depends on (generator, hop, node) alone, so it is the same on any number of threads; it differs between the
    C++ and the plain PyTorch that runs where there is none.

    Example
        >>> ring = Graph.from_edge_index([[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]], num_nodes=5)  # i listens to i - 1
        >>> sample = sample_neighbors(ring, [3], fanouts=[1, 1])
        >>> sample.nodes.tolist(), sample.graphs
        ([3, 2, 1], (Graph(2 receivers, 3 senders, 2 edges), Graph(1 receivers, 2 senders, 1 edges)))
        >>> x = torch.arange(5.0)[sample.nodes]  # what the nodes know; then two layers x_i + Σ_j x_j
        >>> for layer in sample.graphs:
        ...     x = x[: layer.num_receivers] + torch.tensor(layer.to_scipy() @ x.numpy())
        >>> x.tolist()  # (3 + 2) + (2 + 1)
        [8.0]
    """
    checks.graph_first(graph)
    checks.check_generator(generator)
    graph.require_square("sample_neighbors")
    counts = _fanouts(fanouts)
    graph.check_unwritten()
    seeds = checks.index_tensor(seeds, "seeds", axes=1).to(graph.device).contiguous()
    weight = _weight(weight, graph)
    device = "cpu" if generator is None else generator.device
    seed = int(torch.randint(2**63 - 1, (), generator=generator, device=device))
    with torch.inference_mode(False):  # as in `derived`: the sample may serve a backward pass
        library = lowering.compiled(graph.offsets, seeds)
        if library is not None and graph.num_receivers <= MOST_NODES:
            return _sample_in_c(library, graph, seeds, counts, seed, weight)
        return _sample_in_torch(graph, seeds, counts, seed, weight)


@cached
def _idle_samplers(graph: Graph) -> list[Any]:
    """Samplers that no thread uses; each remembers the place of every node in the sample."""
    return []


def _sample_in_c(
    library: ModuleType, graph: Graph, seeds: Tensor, fanouts: list[int], seed: int, weight: Tensor | None
) -> Sample:
    idle = _idle_samplers(graph)
    try:  # no check before: another thread may take the last one in between
        sampler = idle.pop()
    except IndexError:
        sampler = library.Sampler(graph.num_receivers)
    if sampler.begin(seeds.data_ptr(), len(seeds)) >= 0:
        _check_seeds(graph, seeds)
    at = *(t.data_ptr() for t in lowering.compact_edges(graph)), 0 if weight is None else weight.data_ptr()
    size = graph.num_edges, READERS if graph.is_mapped else 0
    known, graphs, chosen = len(seeds), [], []
    for number, fanout in enumerate(fanouts):
        hop = library.Hop(native.threads(), *at, weight is not None and weight.dtype == torch.float64, fanout, *size)
        offsets = torch.empty(known + 1, dtype=torch.int64)
        count = sampler.count(hop, offsets.data_ptr())
        if count < 0:
            raise checks.damaged(graph) if weight is None or count == WRONG else _wrong_weight(weight, -1 - count)
        senders, edges = torch.empty(count, dtype=torch.int64), torch.empty(count, dtype=torch.int64)
        receivers = known
        known = sampler.draw(hop, seed, number, offsets.data_ptr(), senders.data_ptr(), edges.data_ptr())
        if known < 0:
            raise checks.damaged(graph)
        graphs.append(Graph._of(receivers, known, offsets=offsets, senders=senders))
        chosen.append(edges)
    nodes = torch.empty(known, dtype=torch.int64)
    sampler.nodes(nodes.data_ptr())
    idle.append(sampler)
    return Sample(nodes, tuple(reversed(graphs)), tuple(reversed(chosen)))


def _sample_in_torch(graph: Graph, seeds: Tensor, fanouts: list[int], seed: int, weight: Tensor | None) -> Sample:
    _check_seeds(graph, seeds)
    generator = torch.Generator(graph.device).manual_seed(seed)
    nodes, graphs, chosen = seeds.clone(), [], []
    place = torch.full((graph.num_receivers,), -1, device=graph.device)  # of a node in the sample
    place[nodes] = torch.arange(len(nodes), device=graph.device)
    for fanout in fanouts:
        receivers, edges = _draw(graph, nodes, fanout, generator, weight)
        senders, count = graph.senders[edges], len(nodes)
        nodes = torch.cat([nodes, senders[place[senders] < 0].unique()])
        place[nodes[count:]] = torch.arange(count, len(nodes), device=graph.device)
        offsets, senders, order, _ = lowering.sorted_edges(receivers, place[senders], (count, len(nodes)))
        graphs.append(Graph._of(count, len(nodes), device=graph.device, offsets=offsets, senders=senders))
        chosen.append(edges[order])
    return Sample(nodes, tuple(reversed(graphs)), tuple(reversed(chosen)))


def _draw(
    graph: Graph, nodes: Tensor, fanout: int, generator: torch.Generator, weight: Tensor | None
) -> tuple[Tensor, Tensor]:
    """(place of the receiver in `nodes`, edge) of those edges of the nodes that have the least -log(u_e) / w_e."""
    rows, edges = lowering.edges_of(graph.offsets, nodes)
    if weight is not None:
        wrong = edges[~((weight[edges] >= 0) & (weight[edges] < torch.inf))]
        if len(wrong):
            raise _wrong_weight(weight, int(wrong.min()))
        positive = weight[edges] > 0
        edges, rows = edges[positive], rows[positive]
    key = torch.empty(len(edges), dtype=torch.float64, device=edges.device).exponential_(generator=generator)
    if weight is not None:
        key = key / weight[edges]
    drawn = _least(rows, key, fanout, len(nodes))
    return rows[drawn], edges[drawn]


def _least(rows: Tensor, key: Tensor, fanout: int, count: int) -> Tensor:
    """Where the least keys of each of `count` rows are, which ascend; so many of a row, or all (-1)."""
    order = key.argsort(stable=True)
    order = order[rows[order].argsort(stable=True)]  # by row, then by key
    first = lowering.offsets_of(lowering.counts(rows, count))[rows]  # rows stay in place: they ascend already
    within = torch.arange(len(rows), device=rows.device) - first < fanout if fanout >= 0 else torch.ones_like(rows) > 0
    return order[within].sort().values  # edges ascend, so that parallel ones do


def sample_past(
    graph: Graph,
    seeds: Any,
    fanouts: Sequence[int],
    time: Tensor,
    until: Any,
    generator: torch.Generator | None = None,
    latest: bool = False,
) -> Sample:
    """Some neighbours of each seed along edges no later than its time, some of theirs as of the same time, and so on.

    Equation    N_h(i, s) = min(fanouts[h], n) of the n edges e of i with t_e ≤ until_s, each set of that size equally
                likely, or the latest ones
    Symbols     time = t_e in the graph's own order; until = the time of each seed, in the same unit; fanouts and
                generator as in `sample_neighbors`; latest = the latest edges rather than any, of equal ones the last
    Shapes      seeds [S], time [E], until [S] -> `Sample`, whose `seeds` [M] say for which seed a node was drawn
    Errors      those of `sample_neighbors`; a time that is no number; seeds and times of unlike number
    Edge cases  seeds share no node: one that two seeds reach is there twice, each time with what that seed may know, so
                that a node may be a seed at several times; to exclude the time itself, give one just before it
    Cost        time O(E log E) for the E edges of all receivers, in plain PyTorch; memory as much
    Reference   Rossi et al., "Temporal graph networks", 2020, §3.1

    Example
        >>> heard = Graph.from_edge_index([[1, 2, 3], [0, 0, 0]], num_nodes=4)  # node 0 hears 1, then 2, then 3
        >>> sample = sample_past(heard, [0, 0], [-1], torch.tensor([1.0, 2.0, 3.0]), [2.5, 1.0])
        >>> sample.nodes.tolist(), sample.seeds.tolist()
        ([0, 0, 1, 2, 1], [0, 1, 0, 0, 1])
    """
    checks.graph_first(graph, time)
    checks.check_generator(generator)
    graph.require_square("sample_past")
    counts = _fanouts(fanouts)
    time = checks.numbers_of(time, "time", graph)
    nodes = checks.index_tensor(seeds, "seeds", axes=1).to(graph.device)
    checks.in_range(nodes, graph.num_receivers, "seed", "node", f"the graph has {graph.num_receivers} nodes")
    until = torch.as_tensor(until, device=graph.device)
    if until.shape != nodes.shape:
        raise GraphError(f"until is {list(until.shape)}, but must be [{len(nodes)}], a time for each of the seeds")
    for what, times in (("edge", time), ("seed", until)):
        if len(wrong := times.isnan().nonzero()):
            raise GraphError(f"{what} {int(wrong[0])}: its time is no number (NaN)")
    device = "cpu" if generator is None else generator.device
    owners, graphs, chosen = torch.arange(len(nodes), device=graph.device), [], []
    for fanout in counts:
        rows, edges = lowering.edges_of(graph.offsets, nodes)
        past = time[edges] <= until[owners[rows]]
        rows, edges = rows[past], edges[past]
        if latest:
            key = -time[edges].argsort(stable=True).argsort()
        else:
            key = torch.rand(len(edges), device=device, generator=generator).to(graph.device)
        kept = _least(rows, key, fanout, len(nodes))
        rows, edges, count = rows[kept], edges[kept], len(nodes)
        own, reached = owners * graph.num_receivers + nodes, owners[rows] * graph.num_receivers + graph.senders[edges]
        known = torch.cat([own, reached[~torch.isin(reached, own)].unique()])
        order = known.argsort()
        places = order[torch.searchsorted(known, reached, sorter=order)]
        nodes, owners = known % graph.num_receivers, known // graph.num_receivers
        offsets, senders, order, _ = lowering.sorted_edges(rows, places, (count, len(nodes)))
        graphs.append(Graph._of(count, len(nodes), device=graph.device, offsets=offsets, senders=senders))
        chosen.append(edges[order])
    return Sample(nodes, tuple(reversed(graphs)), tuple(reversed(chosen)), owners)


def _fanouts(fanouts: Sequence[int]) -> list[int]:
    if isinstance(fanouts, int) or not hasattr(fanouts, "__iter__"):
        raise GraphError(f"fanouts must list how many neighbours to draw in each hop, as [10, 10], not {fanouts!r}")
    counts = [checks.whole_number(fanout, f"fanouts[{hop}]", least=-(2**63)) for hop, fanout in enumerate(fanouts)]
    for hop, fanout in enumerate(counts):
        if fanout < -1:
            raise GraphError(f"fanouts[{hop}] must be a number of neighbours, or -1 for all of them, not {fanout}")
    return [min(fanout, MOST_NODES) for fanout in counts]


def _weight(weight: Any, graph: Graph) -> Tensor | None:
    """Contiguous, in float32 or float64: what the C++ reads."""
    if weight is None:
        return None
    numbers = checks.numbers_of(weight, "weight", graph)
    dtype = numbers.dtype if numbers.dtype in (torch.float32, torch.float64) else torch.float64
    return numbers.to(dtype).contiguous()


def _check_seeds(graph: Graph, seeds: Tensor) -> None:
    checks.in_range(seeds, graph.num_receivers, "seed", "node", f"the graph has {graph.num_receivers} nodes")
    order = seeds.argsort(stable=True)
    repeated = order[1:][seeds[order[1:]] == seeds[order[:-1]]]
    if len(repeated):
        place = int(repeated.min())
        raise GraphError(f"seed {place}: node {int(seeds[place])} is a seed already: seeds must be distinct")


def _wrong_weight(weight: Any, edge: int) -> GraphError:
    return GraphError(f"edge {edge}: weight {float(weight[edge]):g} must be finite and at least 0")


@dataclass(frozen=True, eq=False)
class LayerSample:
    """For each layer of a network some senders for some receivers, and what each edge counts.

    Symbols     M = nodes whose features the first layer reads; graphs[l], weights[l] = what layer l runs on
    Shapes      nodes [M]; graphs: L of them, in the order of the layers; weights: L tensors [E_l]

    The receivers of graphs[l] are the senders of graphs[l + 1]; those of the last are the seeds. Unlike in a `Sample`,
    a receiver is not among its senders unless it was drawn itself.
    """

    nodes: Tensor
    graphs: tuple[Graph, ...]
    weights: tuple[Tensor, ...]

    def to(self, device: torch.device | str) -> Self:
        """The same sample on a device."""
        graphs = tuple(graph.to(device) for graph in self.graphs)
        return type(self)(self.nodes.to(device), graphs, tuple(part.to(device) for part in self.weights))


def importance(graph: Graph, weight: Tensor, power: float = 2.0) -> Tensor:
    """How likely to draw each sender: the more, the more it counts for all receivers together.

    Equation    q(u) = c_u^p / Σ_u' c_u'^p,  c_u = (Σ_v Â(v, u)²)^½, the norm of column u
    Symbols     weight = Â on the edges; power = p: 2 is the paper's; 1 gives the least variance for features of one
                length; 0 draws evenly among the nodes that anyone listens to
    Shapes      weight [E] -> [J], in float64
    Errors      a weight that is not one finite number per edge; a graph in which no edge counts
    Cost        O(E)
    Reference   Chen, Ma & Xiao, "FastGCN", 2018, (10) and Algorithm 2

    Example
        >>> star = Graph.from_edge_index([[0, 0, 1], [0, 1, 2]], num_nodes=3)
        >>> importance(star, torch.ones(3)).tolist()  # two listen to 0, one to 1, none to 2
        [0.6666666666666666, 0.3333333333333333, 0.0]
    """
    checks.graph_first(graph, weight)
    power, squares = checks.real_number(power, "power"), checks.numbers_of(weight, "weight", graph).double().square()
    column = squares.new_zeros(graph.num_senders).index_add(0, graph.senders, squares)
    chance = torch.where(column > 0, column ** (power / 2), 0)
    total = float(chance.sum())
    if not (0 < total < torch.inf and bool(squares.isfinite().all())):
        raise GraphError("no sender can be drawn: the weights are all 0, or not finite")
    return chance / total


def sample_layers(
    graph: Graph,
    weight: Tensor,
    chance: Tensor,
    seeds: Any,
    sizes: Sequence[int],
    generator: torch.Generator | None = None,
) -> LayerSample:
    """Senders for each layer, drawn from all nodes at once and shared by all receivers of that layer.

    Equation    Σ_u Â(v, u) x_u  ≈  1/t Σ_{j=1..t} Â(v, u_j) / q(u_j) x_{u_j},  u_j ~ q independently    (8)
    Symbols     weight = Â on the edges; chance = q [J], as from `importance`; sizes = t of each layer, from the seeds
                inwards; a sender that is drawn k times counts k times, as one edge
    Shapes      seeds [S] integers -> `LayerSample` with len(sizes) graphs; the last has the seeds as receivers
    Errors      a graph whose receivers are not its senders; a seed out of range; a size below 1; a wrong `chance`
    Edge cases  unbiased wherever q(u) > 0 for every u with a weight; a receiver none of whose senders were drawn gets 0
                weights that are whole numbers give fractions, in PyTorch's default dtype
    Cost        O(J + edges of the receivers) for each layer
    Differs     the estimate of each layer is unbiased; what follows a nonlinearity is consistent only, as in the paper
    Reference   Chen, Ma & Xiao, "FastGCN", 2018

    Example
        >>> ring = Graph.from_edge_index([[0, 1, 2], [1, 2, 0]], num_nodes=3)
        >>> sample = sample_layers(ring, torch.ones(3), torch.ones(3) / 3, [1], sizes=[64])
        >>> x, hop = torch.tensor([5.0, 0.0, 0.0]), sample.graphs[0]
        >>> bool((hop.to_scipy(sample.weights[0]) @ x[sample.nodes].numpy()) > 2)  # 5 on average
        True
    """
    checks.graph_first(graph, weight)
    checks.check_generator(generator)
    graph.require_square("sample_layers")
    checks.numbers_of(weight, "weight", graph)
    checks.numbers_of(chance, "chance", graph, "sender")
    listed = checks.several(sizes, "sizes must list how many senders to draw for each layer, as [64, 64]")
    counts = [checks.whole_number(size, f"sizes[{layer}]", least=1) for layer, size in enumerate(listed)]
    nodes = checks.index_tensor(seeds, "seeds", axes=1).to(graph.device)
    checks.in_range(nodes, graph.num_receivers, "seed", "node", f"the graph has {graph.num_receivers} nodes")
    cumulative = chance.double().cumsum(0)
    if not bool((chance >= 0).all()) or not 0 < float(chance.double().sum()) < torch.inf:
        raise GraphError("chance must hold numbers of at least 0, one of them above it")
    graphs, weights = [], []
    dtype = weight.dtype if weight.is_floating_point() else torch.get_default_dtype()
    device = "cpu" if generator is None else generator.device
    for count in counts:
        even = torch.rand(count, dtype=torch.float64, device=device, generator=generator).to(graph.device)
        drawn, times = torch.searchsorted(cumulative, even * cumulative[-1], right=True).unique(return_counts=True)
        hop, edges = _between(graph, nodes, drawn)
        factor = times / (count * chance.double()[drawn] / cumulative[-1])
        graphs.append(hop)
        weights.append((weight[edges] * factor[hop.senders]).to(dtype))
        nodes = drawn
    return LayerSample(nodes, tuple(reversed(graphs)), tuple(reversed(weights)))


def _between(graph: Graph, receivers: Tensor, senders: Tensor) -> tuple[Graph, Tensor]:
    """The graph of the edges from some senders, which ascend, to some receivers; and which edges those are."""
    rows, edges = lowering.edges_of(graph.offsets, receivers)
    place = torch.full((graph.num_senders,), -1, device=graph.device)
    place[senders] = torch.arange(len(senders), device=graph.device)
    inside = place[graph.senders[edges]] >= 0
    edges, rows = edges[inside], rows[inside]
    offsets = lowering.offsets_of(lowering.counts(rows, len(receivers)))
    return Graph.from_csr(offsets, place[graph.senders[edges]], len(senders)), edges
