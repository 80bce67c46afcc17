"""The shape of a graph: Laplacian eigenvectors and kernels, shortest paths."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy
import torch
from numpy.typing import NDArray
from torch import Tensor

from edgewise.errors import GraphError
from edgewise.graphs.checks import whole_number
from edgewise.graphs.graph import Graph
from edgewise.graphs.patterns import blocks
from edgewise.memory import check_fits

Floats = NDArray[numpy.float64]

DENSE = 2000  # nodes of a component up to which all eigenvectors are computed, by a dense solver
SAME = 1e-7  # eigenvalues this close are one
RESIDUAL = 1e-6  # the largest |L v - λ v| that is returned
PATIENCE = 40  # restarts of Lanczos before the matrix is factorised instead
TOGETHER = 2048  # nodes to which distances are computed at once, a bit for each: what suits the caches of an AMD EPYC
PADDING = 2.0  # in place of the eigenvalues that a small graph does not have: the largest that any graph has


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The smallest eigenvalues of each part of a graph and their eigenvectors.

    Shapes      values [P, k] ascending, vectors [N, k], float64; part [N] = the part that each node belongs to. Where a
                part has fewer than k nodes, the values end with 2 and the vectors with 0
    """

    values: Tensor
    vectors: Tensor
    part: Tensor

    def __getitem__(self, rows: slice) -> Self:
        """The same of some nodes alone."""
        return replace(self, vectors=self.vectors[rows], part=self.part[rows])

    def projections(self) -> Tensor:
        """Σ_l v_l(i)² over the eigenvectors l of one eigenvalue, [N, k]: unlike v it is one whatever their choice."""
        same = ((self.values[:, :, None] - self.values[:, None]).abs() <= 10 * SAME).double()
        return (self.vectors.square().unsqueeze(-2) @ same[self.part]).squeeze(-2)


def component_spectra(graph: Graph, count: int) -> Spectrum:
    """The `count` smallest eigenvalues of each connected component's normalised Laplacian, each as often as it occurs.

    Equation    L v = λ v,  L = I - D^-½ A D^-½,  d_i = Σ_j a_ij,  0 = λ_1 < λ_2 <= ... <= 2
    Symbols     A = a component without directions and self-loops, edges counted once; count = k
    Shapes      -> `Spectrum`: values [components, k], vectors [N, k], those of a component of length 1 and orthogonal
    Errors      GraphError for a graph whose receivers are not its senders, a count below 1, or an eigenvector whose
                residual |L v - λ v| stays above 1e-6
    Edge cases  λ_1 is 0 exactly, with the eigenvector D^½ 1; an isolated node is a component. The sign is that which
                makes the largest entry, or the first of several, positive, so that solvers agree; the choice among the
                vectors of a repeated eigenvalue is arbitrary
    Cost        each component alone. Up to 2,000 nodes: O(n³), dense. More: shift and invert where some order of the
                nodes keeps edges near the diagonal (grids, neighbours in the plane), or else Lanczos, O(k E) a step;
                repeated on what is left, until no eigenvalue is missed. 20,000 nodes, eight eigenvectors: 1 to 2 s
                on an AMD EPYC
    Reference   Belkin & Niyogi, 2002; Dwivedi & Bresson, 2021; Rampášek et al., 2022, §3; Baggag & Saad, §5.5

    >>> path_and_pair = Graph.from_edge_index([[0, 1, 1, 2, 3, 4], [1, 0, 2, 1, 4, 3]], num_nodes=5)
    >>> component_spectra(path_and_pair, 3).values
    tensor([[0.0000, 1.0000, 2.0000],
            [0.0000, 2.0000, 2.0000]], dtype=torch.float64)
    """
    graph.require_square("a Laplacian")
    count = whole_number(count, "count", least=1)
    parts = []
    for first, a in _adjacencies(graph):
        parts += [(first + nodes, *found) for nodes, found in _components(a, count)]
    return _spectrum(graph, count, parts)


def _spectrum(graph: Graph, count: int, parts: list[tuple[Any, Floats, Floats]]) -> Spectrum:
    """Of the nodes, values [m] and vectors [n, m] of each part, m <= count."""
    values = torch.full((len(parts), count), PADDING, dtype=torch.float64)
    vectors = torch.zeros(graph.num_receivers, count, dtype=torch.float64)
    part = torch.zeros(graph.num_receivers, dtype=torch.int64)
    for number, (nodes, lowest, basis) in enumerate(parts):
        values[number, : len(lowest)] = torch.from_numpy(lowest)
        vectors[nodes, : len(lowest)] = torch.from_numpy(basis * _signs(basis))
        part[nodes] = number
    return Spectrum(values.to(graph.device), vectors.to(graph.device), part.to(graph.device))


def _signs(basis: Floats) -> Floats:
    """±1 for each column: its entry that is largest, but for rounding the first such one, becomes positive."""
    if not basis.size:
        return numpy.ones(basis.shape[1])
    size = numpy.abs(basis)
    largest = (size >= (1 - 1e-6) * size.max(0)).argmax(0)
    signs: Floats = numpy.where(basis[largest, range(basis.shape[1])] < 0, -1.0, 1.0)
    return signs


def hops(graph: Graph, most: int) -> tuple[Graph, Tensor]:
    """How many edges lead from every node to every other of its graph, and the graph of those pairs.

    Equation    h_ij = the least number of edges from j to i; most + 1 where it is more, or where there is no path
    Shapes      -> the complete graph on each member, and h [E'] in that graph's edge order, int8, or int32 for `most`
                above 126
    Errors      GraphError for a graph whose receivers are not its senders, or distances that do not fit in memory
    Cost        O(most n E / 64) time for all members, of which the largest has n nodes, and O(N n) memory. 20,000 nodes
                and 100,000 edges, up to 8: 1.5 s on an AMD EPYC, 0.4 GB

    >>> path = Graph.from_edge_index([[0, 1], [1, 2]], num_nodes=3)  # 0 → 1 → 2
    >>> pairs, distance = hops(path, most=5)
    >>> pairs.dense_mask().all().item(), distance.view(3, 3).tolist()
    (True, [[0, 6, 6], [1, 0, 6], [2, 1, 0]])
    """
    graph.require_square("a search for paths")
    most, sizes = whole_number(most, "most"), graph.sizes.cpu().numpy()
    n, widest = graph.num_receivers, int(sizes.max(initial=0))
    dtype = numpy.dtype(numpy.int8 if most < 127 else numpy.int32)
    check_fits(n * widest * dtype.itemsize, "the table of distances between {:,} nodes", n)
    place, ranked = _neighbors_by_rank(graph)
    number = numpy.arange(n) - numpy.repeat(sizes.cumsum() - sizes, sizes)  # of each node in its member
    apart = numpy.empty((n, widest), dtype)
    for first in range(0, widest, TOGETHER):
        width = min(TOGETHER, widest - first)
        inside, column = (number >= first) & (number < first + width), number - first
        own = numpy.zeros((n, -(-width // 64)), numpy.uint64)
        own.view(numpy.uint8)[place[inside], column[inside] // 8] = 1 << column[inside] % 8
        bits = _distance_bits(ranked, own, most)
        for start in range(0, n, 128):  # rows that stay in the processor's cache
            rows = place[start : start + 128]
            apart[start : start + 128, first : first + width] = sum(
                numpy.unpackbits(bit[rows].view(numpy.uint8), 1, width, "little").astype(dtype) * (1 << k)
                for k, bit in enumerate(bits)
            )
    listed = apart.ravel() if len(sizes) == 1 else apart[numpy.arange(widest) < numpy.repeat(sizes, sizes)[:, None]]
    return blocks(sizes.tolist()).to(graph.device), torch.from_numpy(listed).to(graph.device)


def _neighbors_by_rank(graph: Graph) -> tuple[Any, list[Any]]:
    """Each node's place among all by falling degree; and for k = 0, 1, ... the places of the k-th sender of the nodes
    with more than k, which are the first of all."""
    offsets, senders, degrees = (t.cpu().numpy() for t in (graph.offsets, graph.senders, graph.in_degrees()))
    order = numpy.argsort(-degrees, kind="stable")
    place = numpy.argsort(order)
    counts = len(degrees) - numpy.bincount(degrees).cumsum()
    return place, [place[senders[offsets[order[:count]] + k]] for k, count in enumerate(counts[:-1])]


def _distance_bits(ranked: list[Any], reached: Any, most: int) -> list[Any]:
    """The binary digits of all distances, the lowest first, each one bit at the place where `reached` has it.

    Symbols     reached [N, words] = whether j is i, a bit for each of 64 j in a word; it is overwritten
    """
    bits = [numpy.zeros_like(reached) for _ in range((most + 1).bit_length())]
    for step in range(1, most + 1):
        new = numpy.zeros_like(reached)
        for senders in ranked:
            new[: len(senders)] |= numpy.take(reached, senders, axis=0)
        new &= ~reached
        if not new.any():
            break
        reached |= new
        _add(bits, step, new)
    _add(bits, most + 1, ~reached)
    return bits


def _add(bits: list[Any], number: int, where: Any) -> None:
    for k, bit in enumerate(bits):
        if number >> k & 1:
            bit |= where


def path_edges(graph: Graph, most: int) -> Tensor:
    """The edges of one shortest path from every node j to every other i of its graph, those next to i first.

    Shapes      -> [E', most] int64, numbers of the graph's edges in the order of the pairs of `hops`; -1 after a path's
                end, and everywhere where it has more than `most` edges or there is none
    Errors      GraphError for a graph whose receivers are not its senders
    Edge cases  where several paths are shortest, one of them; of parallel edges, the first
    Cost        O(Σ n E + most n²) time and O(most Σ n²) memory over the members
    """
    from scipy.sparse.csgraph import shortest_path

    most, paths = whole_number(most, "most"), []
    pairs = int(graph.sizes.square().sum())
    check_fits(8 * most * pairs, "the shortest paths between {:,} pairs of nodes", pairs)
    number = _edge_numbers(graph)
    for first, a in _adjacencies(graph, symmetric=False):
        n = a.shape[0]
        distance, before = shortest_path(a, unweighted=True, return_predecessors=True)
        i, at = numpy.repeat(numpy.arange(n), n), numpy.tile(numpy.arange(n), n)
        length = numpy.where(distance <= most, distance, 0).astype(numpy.int64).ravel()
        edges = numpy.full((n * n, most), -1, dtype=numpy.int64)
        for step in range(int(length.max(initial=0)), 0, -1):
            rows = numpy.flatnonzero(length >= step)
            previous = before[i[rows], at[rows]]
            edges[rows, step - 1] = number[first + previous, first + at[rows]]
            at[rows] = previous
        paths.append(torch.from_numpy(edges))
    return torch.cat([torch.zeros(0, most, dtype=torch.int64), *paths]).to(graph.device)


def laplacian_kernel(graph: Graph, beta: float, steps: int = 0) -> Tensor:
    """A kernel on the nodes of each graph, from its normalised Laplacian L.

    Equation    exp(-β L), or (I - β L)^p for p = steps above 0
    Shapes      -> [E'], float64, in the order of the pairs of `hops`
    Errors      GraphError for a graph whose receivers are not its senders
    Edge cases  an isolated node has L = 0, so it is 1 to itself and 0 to others
    Cost        O(Σ n³) time and O(Σ n²) memory over the members
    Reference   Smola & Kondor, "Kernels and regularization on graphs", 2003
    """
    kernels = [torch.zeros(0, dtype=torch.float64)]
    for _, sparse in _adjacencies(graph):
        a = torch.from_numpy(sparse.toarray())
        d = a.sum(1)
        lap = torch.diag((d > 0).double()) - a * d.clamp(min=1).rsqrt() * d.clamp(min=1).rsqrt()[:, None]
        step = torch.eye(len(a), dtype=torch.float64) - beta * lap
        kernels.append((torch.linalg.matrix_power(step, steps) if steps else torch.matrix_exp(-beta * lap)).flatten())
    return torch.cat(kernels).to(graph.device)


def _edge_numbers(graph: Graph) -> Any:
    """The number of the (first) edge from j to i, at [i, j]."""
    from scipy.sparse import csr_array

    receivers, senders = graph.receivers.cpu(), graph.senders.cpu()
    first = torch.ones_like(senders, dtype=torch.bool)
    first[1:] = (receivers[1:] != receivers[:-1]) | (senders[1:] != senders[:-1])
    edges = (first.nonzero().flatten().numpy(), (receivers[first].numpy(), senders[first].numpy()))
    return csr_array(edges, shape=(graph.num_receivers, graph.num_senders))


def _members(graph: Graph) -> Iterator[tuple[int, int]]:
    first = 0
    for size in graph.sizes.tolist():
        yield first, size
        first += size


def _adjacencies(graph: Graph, symmetric: bool = True) -> Iterator[tuple[int, Any]]:
    """Each member's first node and its adjacency of zeros and ones, row = receiver."""
    graph.require_square("a search for paths")
    if symmetric:
        graph = graph.symmetrise().remove_self_loops()
    graph = graph.coalesce()
    whole = graph.to_scipy(torch.ones(graph.num_edges, dtype=torch.float64))
    for first, size in _members(graph):
        yield first, whole[first : first + size, first : first + size]


def _components(a: Any, count: int) -> Iterator[tuple[Any, tuple[Floats, Floats]]]:
    """The nodes of each component of one graph, and its smallest eigenvalues and their vectors."""
    from scipy.sparse.csgraph import connected_components

    n = a.shape[0]
    a = a.toarray() if n <= DENSE else a
    parts, member = connected_components(a, directed=False)
    order = numpy.argsort(member, kind="stable")
    for nodes in numpy.split(order, numpy.cumsum(numpy.bincount(member, minlength=parts))[:-1]) if n else []:
        yield nodes, _component_spectrum(a[nodes][:, nodes] if parts > 1 else a, count)


def _component_spectrum(a: Any, count: int) -> tuple[Floats, Floats]:
    """The smallest eigenvalues of a connected graph, of which exactly one is 0."""
    from scipy.sparse import diags_array

    n = a.shape[0]
    if n <= DENSE and not isinstance(a, numpy.ndarray):
        a = a.toarray()
    root = numpy.sqrt(numpy.maximum(a.sum(1), 1))
    null = (root / numpy.linalg.norm(root))[:, None]
    if n == 1 or count == 1:
        return numpy.zeros(1), null
    if isinstance(a, numpy.ndarray):
        scaled: Any = a / root / root[:, None]
        values, vectors = numpy.linalg.eigh(numpy.eye(n) - scaled)
        values, vectors = values[:count], vectors[:, :count]
    else:
        scaled = (diags_array(1 / root) @ a @ diags_array(1 / root)).tocsr()
        values, vectors = _iterative(scaled, null, count - 1)
        values, vectors = numpy.concatenate([[0.0], values]), numpy.hstack([null, vectors])
    values[0], vectors[:, :1] = 0.0, null
    worst = numpy.abs(vectors - scaled @ vectors - vectors * values).max()
    if not worst <= RESIDUAL:
        raise GraphError(f"the Laplacian's eigenvectors did not converge: the residual is {worst:.1e}")
    return values, vectors


def _iterative(scaled: Any, null: Floats, count: int) -> tuple[Floats, Floats]:
    """The smallest eigenpairs orthogonal to `null`, by Lanczos or, where that is slow, by shift and invert."""
    from scipy.sparse import eye_array
    from scipy.sparse.linalg import ArpackNoConvergence, splu

    if not _is_narrow(scaled):
        with suppress(ArpackNoConvergence):
            return _complete(lambda x: scaled @ x + x, lambda mu: 2 - mu, scaled, null, count, PATIENCE)
    shift = 1e-4
    factor = splu(((1 + shift) * eye_array(scaled.shape[0]) - scaled).tocsc())
    return _complete(factor.solve, lambda mu: 1 / mu - shift, scaled, null, count, 10 * PATIENCE)


def _is_narrow(a: Any) -> bool:
    """Whether edges stay near the diagonal in some order, as in a path or a grid: a factor then has few entries, while
    the eigenvalues lie so close to 0 that Lanczos takes thousands of steps."""
    from scipy.sparse.csgraph import reverse_cuthill_mckee

    place = reverse_cuthill_mckee(a, symmetric_mode=True).argsort()
    receivers, senders = a.nonzero()
    return bool(numpy.abs(place[receivers] - place[senders]).mean() <= 2 * len(place) ** 0.5)


def _complete(
    operator: Callable[[Floats], Floats],
    eigenvalue: Callable[[Floats], Floats],
    scaled: Any,
    null: Floats,
    count: int,
    restarts: int,
) -> tuple[Floats, Floats]:
    """Lanczos on what is orthogonal to the vectors known so far, until its best is no better than the worst of them.

    One run may miss copies of a repeated eigenvalue; what is left orthogonal to the copy known still holds the others.
    """
    from scipy.sparse.linalg import LinearOperator, eigsh

    known, n = null, len(null)
    generator = numpy.random.default_rng(0)

    def orthogonal(x: Floats) -> Floats:
        x = x - known @ (known.T @ x)
        return x - known @ (known.T @ x)

    requested, values = count, numpy.full(0, numpy.inf)
    while True:
        batch = min(requested, n - known.shape[1] - 1)
        if batch < 1:
            break
        deflated = LinearOperator((n, n), matvec=lambda x: orthogonal(operator(x)), dtype=numpy.float64)
        start = orthogonal(generator.standard_normal(n))
        room = min(n - 1, max(2 * batch + 20, 60))
        mu, vectors = eigsh(deflated, k=batch, which="LA", v0=start, ncv=room, maxiter=restarts, tol=RESIDUAL / 10)
        missed = len(values) < count or eigenvalue(mu.max()) < numpy.sort(values)[count - 1] - SAME
        if not missed:
            break
        basis, _ = numpy.linalg.qr(numpy.hstack([known[:, 1:], orthogonal(vectors)]))
        values, turned = numpy.linalg.eigh(basis.T @ (basis - scaled @ basis))
        known, requested = numpy.hstack([null, basis @ turned]), 2
    return values[:count], known[:, 1 : count + 1]
