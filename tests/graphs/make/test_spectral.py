"""Encodings against dense linear algebra on the whole matrix, and against what is known in closed form."""

import math

import networkx
import numpy
import pytest
import torch

from edgewise import Graph, GraphError, complete, grid
from edgewise.graphs.make import spectral
from edgewise.graphs.make.spectral import component_spectra, hops, path_edges


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


@pytest.mark.parametrize(
    "drawn",
    [
        networkx.random_regular_graph(4, 300, seed=1),
        networkx.grid_2d_graph(17, 17),
        networkx.cycle_graph(250),
        networkx.hypercube_graph(8),
    ],
    ids=["random", "square grid", "cycle", "hypercube"],
)
def test_the_iterative_solver_finds_every_copy_of_a_repeated_eigenvalue(drawn, monkeypatch):
    """Every eigenvalue of a cycle is double, 8 of the hypercube's are 1/4."""
    monkeypatch.setattr(spectral, "DENSE", 10)
    graph = Graph.from_networkx(networkx.convert_node_labels_to_integers(drawn))
    check(graph, component_spectra(graph, 14))


def test_a_large_grid_has_its_repeated_eigenvalues():
    """On the torus of 61 × 61 nodes λ = 1 - (cos 2πa/61 + cos 2πb/61) / 2: one 0, then four alike, four, four."""
    side = 61
    i = torch.arange(side * side)
    row, column = i // side, i % side
    ends = [row * side + (column + 1) % side, (row + 1) % side * side + column]
    torus = Graph.from_edge_index(torch.stack([torch.cat([i, i]), torch.cat(ends)]), side * side)
    spectrum = component_spectra(torus, 16)
    waves = numpy.cos(2 * math.pi * numpy.arange(side) / side)
    expected = numpy.sort((1 - (waves[:, None] + waves) / 2).ravel())[:16]
    assert torch.allclose(spectrum.values[0], torch.from_numpy(expected), atol=1e-10)
    assert torch.allclose(spectrum.vectors.T @ spectrum.vectors, torch.eye(16).double(), atol=1e-8)


@pytest.mark.parametrize("seed", range(2))
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
    a, b = component_spectra(graph, 16), component_spectra(graph.permute(perm), 16)
    assert torch.allclose(b.projections(), a.projections()[perm], atol=1e-9)
    assert not torch.allclose(b.vectors.abs(), a.vectors[perm].abs(), atol=1e-3)


@pytest.mark.parametrize("seed", range(2))
def test_hops_are_networkx_shortest_paths(seed):
    drawn = networkx.gnp_random_graph(10, 0.15, seed=seed, directed=True)
    pairs, found = hops(Graph.batch([complete(2), Graph.from_networkx(drawn)]), most=3)
    length = dict(networkx.all_pairs_shortest_path_length(drawn))
    expected = [[min(length[j].get(i, 9), 4) for j in range(10)] for i in range(10)]
    assert found[:4].tolist() == [0, 1, 1, 0]
    assert found[4:].view(10, 10).tolist() == expected
    assert pairs == Graph.batch([complete(2), complete(10)])


@pytest.mark.parametrize("most", [3, 126, 150])
def test_hops_of_blocks_of_nodes_and_of_long_paths(most, monkeypatch):
    """Several blocks of columns, members of unequal size, and distances that need more than seven bits."""
    monkeypatch.setattr(spectral, "TOGETHER", 64)
    drawn = [networkx.path_graph(140), networkx.star_graph(70), networkx.empty_graph(1)]
    found = hops(Graph.batch([Graph.from_networkx(one) for one in drawn]), most)[1]
    expected = [torch.from_numpy(networkx.floyd_warshall_numpy(one)).flatten() for one in drawn]
    assert torch.equal(found.double(), torch.cat(expected).clamp(max=most + 1))


def test_distances_that_do_not_fit_in_memory_are_refused_before_they_are_computed(monkeypatch):
    monkeypatch.setattr("edgewise.memory.machine", lambda: 10_000)
    with pytest.raises(GraphError, match="distances between 100 nodes takes"):
        hops(grid(10, 10), 8)
    with pytest.raises(GraphError, match="paths between 10,000 pairs of nodes takes"):
        path_edges(grid(10, 10), 8)


def test_no_nodes_and_no_edges():
    empty, apart = (Graph.from_edge_index([[], []], num_nodes=n) for n in (0, 3))
    assert component_spectra(empty, 2).vectors.shape == (0, 2)
    assert component_spectra(apart, 3).values.tolist() == [[0, 2, 2]] * 3
    assert hops(empty, 2)[1].tolist() == []


def test_what_has_no_spectrum_is_refused():
    for function in (component_spectra, hops):
        with pytest.raises(GraphError):
            function(complete(2, 3), 2)
    with pytest.raises(GraphError, match="count"):
        component_spectra(grid(2, 2), 0)


def test_the_largest_entry_of_a_vector_is_positive_whatever_the_order_of_the_nodes():
    drawn = networkx.gnp_random_graph(12, 0.4, seed=3)
    graph, order = Graph.from_networkx(drawn), torch.randperm(12, generator=torch.Generator().manual_seed(0))
    spectrum = component_spectra(graph, 12)
    assert spectrum.values.diff().min() > 1e-3  # no eigenvalue repeats, so that a vector is known but for its sign
    size = spectrum.vectors.abs().sort(0).values
    clear = size[-1] - size[-2] > 1e-3  # one entry alone is the largest
    assert clear.sum() >= 8
    assert (spectrum.vectors.gather(0, spectrum.vectors.abs().argmax(0)[None]) > 0)[0, clear].all()
    place = order.argsort()
    relabelled = Graph.from_edge_index(place[graph.edge_index()], 12)
    again = component_spectra(relabelled, 12).vectors[place]
    assert torch.allclose(again[:, clear], spectrum.vectors[:, clear], atol=1e-8)
