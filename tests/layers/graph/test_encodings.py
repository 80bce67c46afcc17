import functools

import networkx
import pytest
import torch

from edgewise import Graph, GraphError, complete
from edgewise.graphs.make.regular import clique_counts
from edgewise.graphs.make.spectral import component_spectra
from edgewise.layers import (
    CliqueEncoding,
    EigenspaceEncoding,
    LaplacianEncoding,
    RandomWalkEncoding,
    SignInvariantEncoding,
)
from edgewise.layers.graph import encodings
from edgewise.layers.graph.encodings import _lopsided, random_walk_returns

CUBE = Graph.from_networkx(networkx.convert_node_labels_to_integers(networkx.hypercube_graph(3)))
BATCH = Graph.batch([_lopsided(), CUBE, complete(2)])


def test_laplacian_encoding_is_the_equation():
    layer, x = LaplacianEncoding(4, count=3).double().eval(), torch.randn(16, 4, dtype=torch.float64)
    v = component_spectra(BATCH, 4).vectors[:, 1:]
    assert torch.allclose(layer(BATCH, x), x + v @ layer.linear.weight.T)


def test_signs_are_drawn_for_each_graph_and_vector_while_training_only():
    layer = LaplacianEncoding(3, count=3).double()
    with torch.no_grad():
        layer.linear.weight.copy_(torch.eye(3))
    nothing, v = torch.zeros(16, 3, dtype=torch.float64), component_spectra(BATCH, 4).vectors[:, 1:]
    seen = set()
    for _ in range(100):
        y = layer(BATCH, nothing)
        assert torch.allclose(y.abs(), v.abs())
        signs = [(part * of).sum(0).sign() for part, of in zip(y.split([6, 8, 2]), v.split([6, 8, 2]), strict=True)]
        seen.add(tuple(torch.cat(signs[:2]).tolist()))
    assert len(seen) > 30  # of 64
    assert torch.equal(layer.eval()(BATCH, nothing), v)


def test_a_sign_invariant_encoding_does_not_see_signs(monkeypatch):
    layer, x = SignInvariantEncoding(4, count=3).double(), torch.randn(16, 4, dtype=torch.float64)
    y, spectrum = layer(BATCH, x), component_spectra(BATCH, 4)
    flipped = type(spectrum)(spectrum.values, spectrum.vectors * torch.tensor([1, -1, 1, -1]), spectrum.part)
    monkeypatch.setattr("edgewise.layers.graph.encodings.spectra_of", lambda graph, count: flipped)
    assert torch.allclose(layer(BATCH, x), y, atol=1e-12)
    halved = type(spectrum)(spectrum.values, spectrum.vectors / 2, spectrum.part)
    monkeypatch.setattr("edgewise.layers.graph.encodings.spectra_of", lambda graph, count: halved)
    assert not torch.allclose(layer(BATCH, x), y, atol=1e-3)


@pytest.mark.parametrize("kind", [LaplacianEncoding, SignInvariantEncoding, EigenspaceEncoding, RandomWalkEncoding])
def test_every_component_of_a_graph_has_places_of_its_own(kind):
    """Ten paths in one graph: of its whole spectrum the first ten vectors are constants, one for each path."""
    layer = kind(4, 3).double().eval()
    graph = Graph.from_networkx(networkx.disjoint_union_all([networkx.path_graph(3 + n) for n in range(10)]))
    y = layer(graph, torch.zeros(graph.num_receivers, 4, dtype=torch.float64))
    first = 0
    for n in range(10):
        part = y[first : first + 3 + n]
        assert (part - part[0]).abs().max() > 1e-4
        first += 3 + n


@pytest.mark.parametrize("kind", [EigenspaceEncoding, RandomWalkEncoding, CliqueEncoding])
def test_relabelling_a_graph_of_repeated_eigenvalues_relabels_its_encoding(kind):
    layer, x = kind(4, 5).double(), torch.randn(8, 4, dtype=torch.float64)
    for _ in range(20):
        perm = torch.randperm(8)
        assert torch.allclose(layer(CUBE.permute(perm), x[perm]), layer(CUBE, x)[perm], atol=1e-9)


def test_an_eigenspace_that_is_not_whole_is_left_out():
    """The cube has 0, then 2/3 three times: three eigenvalues of four hold one whole space, four hold two."""
    x = torch.zeros(8, 4, dtype=torch.float64)
    layers = [EigenspaceEncoding(4, count) for count in (1, 3, 4)]
    for layer in layers:
        layer.load_state_dict(layers[0].state_dict())
    one, three, four = (layer.double()(CUBE, x) for layer in layers)
    assert torch.allclose(one, three)
    assert not torch.allclose(three, four)


@pytest.mark.parametrize("count", [3, 4, 6])
def test_an_eigenspace_encoding_reads_the_eigenvalue_2_and_no_padding(count):
    """A ring of four nodes has 0, 1 twice and 2, of which every node has a quarter; then there is nothing."""
    layer, x = EigenspaceEncoding(4, count).double(), torch.zeros(4, 4, dtype=torch.float64)
    ring = Graph.from_networkx(networkx.cycle_graph(4))
    shares = [[0.0, 0.25], [1.0, 0.5], [1.0, 0.5], [2.0, 0.25]][:count]
    expected = layer.rho(layer.phi(torch.tensor(shares, dtype=torch.float64)).sum(0))
    assert torch.allclose(layer(ring, x), expected.expand(4, -1))


def test_random_walk_encoding_is_the_equation():
    layer, x = RandomWalkEncoding(4, steps=5).double(), torch.randn(16, 4, dtype=torch.float64)
    expected = x + random_walk_returns(BATCH, 5) @ layer.linear.weight.T + layer.linear.bias
    assert torch.allclose(layer(BATCH, x), expected)


@pytest.mark.parametrize("sparse", [0, 3, 1e9])  # every power is sparse, some are, none is
@pytest.mark.parametrize(("dense", "tolerance"), [(2000, 1e-12), (5, 1e-6)])
@pytest.mark.parametrize("directed", [False, True])
def test_random_walks_return_as_powers_of_the_matrix_say(sparse, dense, tolerance, directed, monkeypatch):
    for name, value in {"FEW": 5, "MANY": 2, "SPARSE": sparse, "DENSE": dense}.items():
        monkeypatch.setattr(encodings, name, value)
    for graphs in (1, 2):
        drawn = networkx.gnp_random_graph(9, 0.3, seed=graphs, directed=directed)
        graph = Graph.batch([Graph.from_networkx(drawn), complete(3)][:graphs])
        graph = Graph.from_edge_index(torch.cat([graph.edge_index()] * 2, 1)[:, 1:], 12) if graphs == 1 else graph
        a = graph.multiplicity().double()
        walk = a / a.sum(1, keepdim=True).clamp(min=1)
        expected = torch.stack([torch.linalg.matrix_power(walk, t).diagonal() for t in range(1, 6)], 1)
        assert torch.allclose(random_walk_returns(graph, 5), expected, rtol=0, atol=tolerance)


def test_walks_on_a_large_graph_are_within_a_millionth(monkeypatch):
    graph = Graph.from_networkx(networkx.barabasi_albert_graph(60, 3, seed=0))
    exact = random_walk_returns(graph, 16)
    monkeypatch.setattr(encodings, "DENSE", 10)
    error = (random_walk_returns(graph, 16) - exact).abs().max()
    assert 0 < error < 1e-6


def test_what_takes_too_long_is_announced_or_refused_after_its_first_part(monkeypatch):
    monkeypatch.setattr(encodings, "MANY", 2)
    monkeypatch.setattr(encodings, "LONG", 0)
    with pytest.warns(RuntimeWarning, match="5 steps of all random walks would take about"):
        random_walk_returns(complete(9), 5)
    monkeypatch.setattr(encodings, "TOO_LONG", 0)
    with pytest.raises(GraphError, match="ask for fewer steps"):
        random_walk_returns(complete(9), 5)


@pytest.mark.parametrize("compute", [component_spectra, random_walk_returns])
def test_what_takes_long_is_read_from_the_disk_by_the_next_process(compute, monkeypatch, tmp_path):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(encodings, "DENSE", 5)
    monkeypatch.setattr(encodings, "SLOW", 0.0)
    computed = []

    @functools.wraps(compute)
    def counted(graph, count):
        computed.append(count)
        return compute(graph, count)

    drawn = [networkx.barabasi_albert_graph(20, 2, seed=seed) for seed in (0, 1, 0)]
    first, other, again = (encodings.on_disk(counted)(Graph.from_networkx(one), 3) for one in drawn)
    assert computed == [3, 3]
    values = [found if compute is random_walk_returns else found.vectors for found in (first, other, again)]
    assert torch.equal(values[2], values[0]) and not torch.equal(values[1], values[0])
    encodings.on_disk(counted)(Graph.from_networkx(drawn[0]), 4)
    assert computed == [3, 3, 4]


def test_no_nodes_no_edges_and_two_kinds_of_nodes():
    assert random_walk_returns(Graph.from_edge_index([[], []], num_nodes=0), 2).shape == (0, 2)
    assert random_walk_returns(Graph.from_edge_index([[], []], num_nodes=3), 2).tolist() == [[0, 0]] * 3
    with pytest.raises(GraphError):
        random_walk_returns(complete(2, 3), 2)


@pytest.mark.parametrize("seed", range(4))
def test_cliques_are_counted_as_subsets_are(seed):
    from itertools import combinations

    drawn = networkx.gnp_random_graph(9, 0.6, seed=seed)
    expected = torch.zeros(9, 3, dtype=torch.float64)
    for size in (3, 4, 5):
        for nodes in combinations(range(9), size):
            if all(drawn.has_edge(*pair) for pair in combinations(nodes, 2)):
                expected[list(nodes), size - 3] += 1
    assert expected.any()
    assert torch.equal(clique_counts(Graph.from_networkx(drawn), 5), expected)
