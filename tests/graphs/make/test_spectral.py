"""Encodings against dense linear algebra on the whole matrix, and against what is known in closed form."""

import math
import time

import networkx
import numpy
import pytest
import torch

from edgewise import Graph, GraphError, complete, grid
from edgewise.graphs.make import spectral
from edgewise.graphs.make.spectral import component_spectra, hops, laplacian_spectrum, random_walk_returns


def dense_laplacian(graph):
    a = (graph.dense_mask() | graph.dense_mask().T).double()
    a.fill_diagonal_(0)
    d = a.sum(1).clamp(min=1).rsqrt()
    return torch.diag((a.sum(1) > 0).double()) - d[:, None] * a * d


def check(graph, spectrum):
    """Orthonormal vectors with small residuals."""
    lap, (values,), vectors = dense_laplacian(graph), spectrum.values, spectrum.vectors
    assert (lap @ vectors - vectors * values).abs().max() <= 1e-6
    assert torch.allclose(vectors.T @ vectors, torch.eye(len(values)).double(), atol=1e-8)
    assert torch.allclose(values, torch.linalg.eigvalsh(lap)[: len(values)], atol=1e-8)


def residual(graph, spectrum):
    """The largest |L v - λ v|, edge by edge; the graph has both directions of each edge once and no self-loops."""
    root = graph.in_degrees().double().sqrt()[:, None]
    vectors, scaled = spectrum.vectors, spectrum.vectors / root.clamp(min=1)
    heard = torch.zeros_like(vectors).index_add_(0, graph.receivers, scaled[graph.senders])
    values = spectrum.values[spectrum.part]
    return ((root > 0) * vectors - heard / root.clamp(min=1) - vectors * values).abs().max()


def test_zeros_count_components_on_a_thousand_random_graphs():
    generator = torch.Generator().manual_seed(0)
    members, components = [], []
    for seed in range(1000):
        nodes = int(torch.randint(1, 25, (1,), generator=generator))
        drawn = networkx.gnp_random_graph(nodes, float(torch.rand(1, generator=generator)) * 3 / nodes, seed=seed)
        members.append(Graph.from_networkx(drawn))
        components.append(networkx.number_connected_components(drawn))
    batch = Graph.batch(members)
    spectrum = laplacian_spectrum(batch, 25)
    assert (spectrum.values == 0).sum(1).tolist() == components
    assert spectrum.values[spectrum.values > 0].min() > 1e-4
    assert residual(batch, spectrum) <= 1e-6


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("count", [1, 4, 30])
def test_each_graph_has_the_spectrum_of_its_dense_matrix(seed, count):
    graph = Graph.from_networkx(networkx.gnp_random_graph(30, 0.06 + 0.05 * seed, seed=seed, directed=seed % 2 == 1))
    check(graph, laplacian_spectrum(graph, count))


@pytest.mark.parametrize(
    "drawn",
    [
        networkx.random_regular_graph(4, 300, seed=1),
        networkx.grid_2d_graph(17, 17),
        networkx.cycle_graph(250),
        networkx.hypercube_graph(8),
        networkx.disjoint_union(networkx.cycle_graph(120), networkx.cycle_graph(120)),
    ],
    ids=["random", "square grid", "cycle", "hypercube", "two cycles"],
)
def test_the_iterative_solver_finds_every_copy_of_a_repeated_eigenvalue(drawn, monkeypatch):
    """Every eigenvalue of a cycle is double, 8 of the hypercube's are 1/4."""
    monkeypatch.setattr(spectral, "DENSE", 10)
    graph = Graph.from_networkx(networkx.convert_node_labels_to_integers(drawn))
    check(graph, laplacian_spectrum(graph, 14))


def test_a_large_grid_has_its_repeated_eigenvalues():
    """On the torus of 141 × 141 nodes λ = 1 - (cos 2πa/141 + cos 2πb/141) / 2: one 0, then four alike, four, four."""
    side = 141
    i = torch.arange(side * side)
    row, column = i // side, i % side
    ends = [row * side + (column + 1) % side, (row + 1) % side * side + column]
    torus = Graph.from_edge_index(torch.stack([torch.cat([i, i]), torch.cat(ends)]), side * side)
    spectrum = laplacian_spectrum(torus, 16)
    waves = numpy.cos(2 * math.pi * numpy.arange(side) / side)
    expected = numpy.sort((1 - (waves[:, None] + waves) / 2).ravel())[:16]
    assert torch.allclose(spectrum.values[0], torch.from_numpy(expected), atol=1e-10)
    assert torch.allclose(spectrum.vectors.T @ spectrum.vectors, torch.eye(16).double(), atol=1e-8)


def eigenvalues_below(bound, side):
    """How many eigenvalues of a square grid's normalised Laplacian are below a bound, without any eigensolver for it.

    Row after row is eliminated; what is left of each row has as many negative eigenvalues as all rows together have
    eigenvalues below the bound (Sylvester's law of inertia, Haynsworth's additivity).
    """
    line = numpy.ones(side)
    line[[0, -1]] = 0
    below, schur, between = 0, None, line
    for row in range(side):
        d, next_d = (2 + line + (0 < r < side - 1) for r in (row, row + 1))
        within = -numpy.diag(1 / numpy.sqrt(d[1:] * d[:-1]), 1)
        block = numpy.eye(side) * (1 - bound) + within + within.T
        if schur is not None:
            block -= between[:, None] * numpy.linalg.inv(schur) * between
        below += int((numpy.linalg.eigvalsh(block) < 0).sum())
        schur, between = block, 1 / numpy.sqrt(d * next_d)
    return below


@pytest.mark.accuracy
@pytest.mark.timeout(3600)
def test_a_large_square_grid_misses_no_copy_of_an_eigenvalue():
    """141 × 141 nodes: mirrored at the diagonal, (a, b) and (b, a) waves are alike, so most eigenvalues are double."""
    side, count = 141, 16
    graph = grid(side, side, neighbors=4, loops=False)
    spectrum = laplacian_spectrum(graph, count)
    values, vectors = spectrum.values[0], spectrum.vectors
    assert residual(graph, spectrum) <= 1e-6
    assert torch.allclose(vectors.T @ vectors, torch.eye(count).double(), atol=1e-8)
    steps = values.diff() > 1e-8
    assert int((~steps).sum()) >= 5  # doubles
    for place in steps.nonzero().flatten().tolist():
        assert eigenvalues_below(float(values[place : place + 2].mean()), side) == place + 1


@pytest.mark.accuracy
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(
    "drawn",
    [
        networkx.random_regular_graph(6, 2000, seed=1),
        networkx.cycle_graph(2000),
        networkx.hypercube_graph(10),
        networkx.grid_2d_graph(44, 44, periodic=True),
        networkx.disjoint_union_all([networkx.cycle_graph(400)] * 4 + [networkx.path_graph(400)]),
    ],
    ids=["random", "cycle", "hypercube", "torus", "four cycles and a path"],
)
def test_up_to_2000_nodes_multiplicities_are_those_of_the_dense_matrix(drawn, monkeypatch):
    monkeypatch.setattr(spectral, "DENSE", 10)
    graph = Graph.from_networkx(networkx.convert_node_labels_to_integers(drawn))
    spectrum = laplacian_spectrum(graph, 16)
    check(graph, spectrum)
    expected = torch.linalg.eigvalsh(dense_laplacian(graph))[:16]
    groups = [(values[None] - values[:, None]).abs().le(1e-6).sum(1) for values in (spectrum.values[0], expected)]
    assert torch.equal(*groups)


@pytest.mark.accuracy
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("kind", ["random", "communities"])
def test_a_million_edges_take_at_most_a_minute(kind):
    """16 vectors, one thread, processor time: 100,000 nodes and 500,000 links, each of which is two edges.

    The links are drawn evenly among all nodes, or mostly within one of 25 communities.
    """
    nodes, links, generator = 100_000, 500_000, torch.Generator().manual_seed(0)
    ends = torch.randint(nodes, (2, links), generator=generator)
    if kind == "communities":
        near = ends[0] // 4000 * 4000 + torch.randint(4000, (links,), generator=generator)
        ends[1] = torch.where(torch.rand(links, generator=generator) < 0.95, near, ends[1])
    graph = Graph.from_edge_index(ends, nodes).remove_self_loops().symmetrise().coalesce()
    began = time.process_time()
    spectrum = laplacian_spectrum(graph, 16)
    seconds = time.process_time() - began
    assert residual(graph, spectrum) <= 1e-6
    assert torch.allclose(spectrum.vectors.T @ spectrum.vectors, torch.eye(16).double(), atol=1e-8)
    print(f"{kind}: {seconds:.1f} seconds for {graph.num_edges:,} edges")
    assert seconds <= 60


def test_inertia_counts_eigenvalues_of_a_small_grid():
    lap = dense_laplacian(grid(7, 7, neighbors=4, loops=False))
    for bound in (0.01, 0.1, 0.33, 0.77, 1.0001, 1.45):  # none of them an eigenvalue
        assert eigenvalues_below(bound, 7) == int((torch.linalg.eigvalsh(lap) < bound).sum())


def test_members_of_a_batch_are_alone_and_small_ones_are_padded():
    members = [Graph.from_networkx(networkx.path_graph(3)), Graph.from_networkx(networkx.cycle_graph(5))]
    spectrum = laplacian_spectrum(Graph.batch(members), 4)
    assert spectrum.values[0].tolist()[:3] == pytest.approx([0, 1, 2])
    assert spectrum.values[0, 3] == 2
    assert (spectrum.vectors[:3, 3] == 0).all()
    assert torch.equal(spectrum.vectors[3:], laplacian_spectrum(members[1], 4).vectors)


@pytest.mark.parametrize("seed", range(6))
def test_each_component_has_the_spectrum_that_it_has_alone(seed):
    drawn = [networkx.gnp_random_graph(20, 0.07, seed=2 * seed + number) for number in range(2)]
    batch = Graph.batch([Graph.from_networkx(one) for one in drawn])
    perm = torch.cat([torch.randperm(20), 20 + torch.randperm(20)])
    spectra = component_spectra(batch, 4)
    components = [
        [node + 20 * number for node in nodes]
        for number, one in enumerate(drawn)
        for nodes in networkx.connected_components(one)
    ]
    assert len(spectra.values) == len(components)
    assert residual(batch, spectra) <= 1e-6
    for nodes in components:
        part = spectra.part[nodes]
        assert (part == part[0]).all()
        lap = dense_laplacian(batch)[nodes][:, nodes]
        expected = torch.linalg.eigvalsh(lap)[:4]
        assert torch.allclose(spectra.values[part[0]][: len(expected)], expected, atol=1e-9)
        assert (spectra.values[part[0]][len(expected) :] == 2).all()
        vectors = spectra.vectors[nodes]
        kept = min(len(nodes), 4)
        assert torch.allclose(vectors.T @ vectors, torch.diag((torch.arange(4) < kept).double()), atol=1e-9)
    whole, other = component_spectra(batch, 20), component_spectra(batch.permute(perm), 20)
    assert torch.allclose(other.projections(), whole.projections()[perm], atol=1e-9)


def test_projections_do_not_depend_on_numbering():
    """Where eigenvalues repeat, the eigenvectors do; the squares of a whole space's do not."""
    graph = Graph.from_networkx(networkx.convert_node_labels_to_integers(networkx.hypercube_graph(4)))
    perm = torch.randperm(16)
    a, b = laplacian_spectrum(graph, 16), laplacian_spectrum(graph.permute(perm), 16)
    assert torch.allclose(b.projections(), a.projections()[perm], atol=1e-9)
    assert not torch.allclose(b.vectors.abs(), a.vectors[perm].abs(), atol=1e-3)


@pytest.mark.parametrize("seed", range(4))
def test_random_walks_come_back_as_powers_of_the_matrix_say(seed):
    drawn = networkx.gnp_random_graph(9, 0.3, seed=seed, directed=seed % 2 == 1)
    graph = Graph.batch([Graph.from_networkx(drawn), complete(3)])
    a = graph.multiplicity().double()
    walk = a / a.sum(1, keepdim=True).clamp(min=1)
    expected = torch.stack([torch.linalg.matrix_power(walk, t).diagonal() for t in range(1, 6)], 1)
    assert torch.allclose(random_walk_returns(graph, 5), expected, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_hops_are_networkx_shortest_paths(seed):
    drawn = networkx.gnp_random_graph(10, 0.15, seed=seed, directed=True)
    pairs, found = hops(Graph.batch([complete(2), Graph.from_networkx(drawn)]), most=3)
    length = dict(networkx.all_pairs_shortest_path_length(drawn))
    expected = [[min(length[j].get(i, 9), 4) for j in range(10)] for i in range(10)]
    assert found[:4].tolist() == [0, 1, 1, 0]
    assert found[4:].view(10, 10).tolist() == expected
    assert pairs == Graph.batch([complete(2), complete(10)])


def test_no_nodes_and_no_edges():
    empty, apart = (Graph.from_edge_index([[], []], num_nodes=n) for n in (0, 3))
    assert laplacian_spectrum(empty, 2).vectors.shape == (0, 2)
    assert laplacian_spectrum(apart, 3).values.tolist() == [[0, 0, 0]]
    assert component_spectra(empty, 2).vectors.shape == (0, 2)
    assert component_spectra(apart, 3).values.tolist() == [[0, 2, 2]] * 3
    assert random_walk_returns(apart, 2).tolist() == [[0, 0]] * 3
    assert hops(empty, 2)[1].tolist() == []


def test_what_has_no_spectrum_is_refused():
    for function in (laplacian_spectrum, component_spectra, random_walk_returns, hops):
        with pytest.raises(GraphError):
            function(complete(2, 3), 2)
    with pytest.raises(GraphError, match="count"):
        laplacian_spectrum(grid(2, 2), 0)


def test_eigenvectors_that_did_not_converge_are_refused(monkeypatch):
    monkeypatch.setattr(spectral, "RESIDUAL", 1e-30)
    with pytest.raises(GraphError, match=r"did not converge: the residual is \d\.\de-1\d"):
        laplacian_spectrum(grid(3, 4), 4)


def test_the_largest_entry_of_a_vector_is_positive_whatever_the_order_of_the_nodes():
    drawn = networkx.gnp_random_graph(12, 0.4, seed=3)
    graph, order = Graph.from_networkx(drawn), torch.randperm(12, generator=torch.Generator().manual_seed(0))
    spectrum = laplacian_spectrum(graph, 12)
    assert spectrum.values.diff().min() > 1e-3  # no eigenvalue repeats, so that a vector is known but for its sign
    size = spectrum.vectors.abs().sort(0).values
    clear = size[-1] - size[-2] > 1e-3  # one entry alone is the largest
    assert clear.sum() >= 8
    assert (spectrum.vectors.gather(0, spectrum.vectors.abs().argmax(0)[None]) > 0)[0, clear].all()
    place = order.argsort()
    relabelled = Graph.from_edge_index(place[graph.edge_index()], 12)
    again = laplacian_spectrum(relabelled, 12).vectors[place]
    assert torch.allclose(again[:, clear], spectrum.vectors[:, clear], atol=1e-8)


def test_of_two_largest_entries_the_first_is_positive():
    path = Graph.from_edge_index([[0, 1, 1, 2], [1, 0, 2, 1]], num_nodes=3)
    assert laplacian_spectrum(path, 2).vectors[:, 1].tolist() == pytest.approx([0.5**0.5, 0, -(0.5**0.5)])
    assert component_spectra(Graph.from_edge_index([[], []], num_nodes=0), 2).vectors.shape == (0, 2)
