"""Links of a graph: cut without leaks, and pairs without a link drawn evenly."""

import itertools

import pytest
import torch

from edgewise.errors import GraphError
from edgewise.graphs import Graph, complete, cut_links, edges_between, links_of, sample_non_links, window


def pairs(t: torch.Tensor) -> set[tuple[int, int]]:
    found = [tuple(pair) for pair in t.T.tolist()]
    assert len(found) == len(set(found))
    assert all(i < j for i, j in found)
    return set(found)


def random_graph(nodes: int, edges: int, seed: int = 0) -> Graph:
    return Graph.from_edge_index(torch.randint(nodes, (2, edges), generator=torch.Generator().manual_seed(seed)), nodes)


def test_links_are_what_networkx_calls_the_edges_of_an_undirected_graph() -> None:
    import networkx

    graph = random_graph(30, 200)
    peer = networkx.Graph(graph.edge_index().T.tolist())
    peer.remove_edges_from(list(networkx.selfloop_edges(peer)))
    assert pairs(links_of(graph)) == {tuple(sorted(edge)) for edge in peer.edges}


@pytest.mark.parametrize(("nodes", "edges"), [(20, 60), (2000, 6000)])  # listed, and drawn
def test_non_links_are_distinct_pairs_without_a_link(nodes: int, edges: int) -> None:
    graph = random_graph(nodes, edges)
    linked, found = pairs(links_of(graph)), pairs(sample_non_links(graph, 100))
    assert len(found) == 100
    assert not linked & found


@pytest.mark.parametrize("nodes", [6, 300])  # listed, and drawn
def test_every_pair_without_a_link_is_equally_likely(nodes: int) -> None:
    """χ² of how often each pair is drawn; each draw takes several pairs."""
    links = torch.triu_indices(nodes, nodes, 1)
    free = 12
    kept = links[:, : links.shape[1] - free] if nodes == 6 else torch.tensor([[0, 0, 1], [1, 2, 2]])
    graph = Graph.from_edge_index(kept, nodes)
    generator = torch.Generator().manual_seed(0)
    if nodes == 6:
        counts = dict.fromkeys(pairs(links) - pairs(kept), 0)
        for _ in range(2000):
            for pair in pairs(sample_non_links(graph, 4, generator)):
                counts[pair] += 1
        expected = 2000 * 4 / free
        chi = sum((count - expected) ** 2 / (expected * (1 - 4 / free)) for count in counts.values())
        assert chi < 31.3  # 11 degrees of freedom, p = 0.001
    else:
        drawn = torch.cat([sample_non_links(graph, 200, generator) for _ in range(100)], 1)
        counts = torch.bincount(drawn.flatten(), minlength=nodes).double()
        expected = drawn.numel() / nodes
        assert ((counts - expected) ** 2 / expected).sum() < 380  # 299 degrees of freedom, p = 0.001


def test_all_pairs_without_a_link_can_be_had_and_no_more() -> None:
    graph = window(5, 1)
    everyone = set(itertools.combinations(range(5), 2))
    assert pairs(sample_non_links(graph, 6)) == everyone - pairs(links_of(graph))
    with pytest.raises(GraphError, match="7 pairs without a link were requested, but this graph has 6"):
        sample_non_links(graph, 7)
    assert sample_non_links(complete(4), 0).shape == (2, 0)


@pytest.mark.parametrize("seed", range(5))
def test_a_cut_leaks_nothing(seed: int) -> None:
    graph = random_graph(200, 800, seed)
    cut = cut_links(graph, 0.1, 0.2, torch.Generator().manual_seed(seed))
    train, valid, test = pairs(cut.train), pairs(cut.valid), pairs(cut.test)
    none = pairs(cut.valid_none) | pairs(cut.test_none)
    linked = pairs(links_of(graph))
    assert train | valid | test == linked
    assert len(train) + len(valid) + len(test) == len(linked)
    assert (len(valid), len(test)) == (int(0.1 * len(linked)), int(0.2 * len(linked)))
    assert len(none) == len(valid) + len(test)
    assert not none & linked
    heard = {tuple(edge) for edge in cut.graph.edge_index().T.tolist()}
    assert heard == train | {(j, i) for i, j in train}  # neither direction of what is held out


@pytest.mark.parametrize("shares", [(0.6, 0.5), (-0.1, 0.1), (0.5, 0.5)])
def test_shares_that_leave_no_training_link_are_refused(shares: tuple[float, float]) -> None:
    with pytest.raises(GraphError, match="leave none to train on"):
        cut_links(window(11, 1), *shares)


def test_receivers_that_are_not_the_senders_are_refused() -> None:
    with pytest.raises(GraphError, match="same nodes"):
        links_of(complete(2, 3))


def test_edges_from_senders_beyond_32_bits_are_found():
    """Their numbers were cut to 32 bits."""
    graph = Graph.from_edge_index([[7, 3_000_000_000], [0, 0]], num_nodes=4_000_000_000, num_receivers=1)
    found = edges_between(graph, torch.tensor([0, 0]), torch.tensor([3_000_000_000, 7]))
    assert [bound.tolist() for bound in found] == [[1, 0], [2, 1]]
