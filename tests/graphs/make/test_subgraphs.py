import networkx
import pytest
import torch

from edgewise import Graph, GraphError
from edgewise.graphs.make.subgraphs import marked_copies, pairs, rooted_copies
from layers.parity import messy_graph

SMALL = messy_graph().subgraph(torch.tensor([0, 1, 2]))
BATCH = Graph.batch([messy_graph(), SMALL])
NOTHING = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), 0)


def test_pairs_hold_every_link_of_a_member_and_none_between_members():
    every = pairs(BATCH)
    assert every.graph.num_edges == 7 * 7 + 3 * 3
    i, j = every.graph.receivers, every.graph.senders
    count = BATCH.multiplicity()
    assert torch.equal(every.links, torch.stack([count[i, j], count[j, i], (i == j).long()], -1))
    assert every.diagonal.tolist() == (i == j).nonzero().flatten().tolist()
    places = torch.cat([places for _, places in every.squares])
    assert [(n, len(places)) for n, places in every.squares] == [(3, 9), (7, 49)]
    assert places[every.back].tolist() == list(range(58))


def test_marked_copies_are_the_members_with_one_node_marked_in_each():
    copies = marked_copies(BATCH)
    assert copies.graph.sizes.tolist() == [7] * 7 + [3] * 3
    first = 0
    for member, start in ((messy_graph(), 0), (SMALL, 7)):
        for marked in range(member.num_receivers):
            rows = torch.arange(first, first + member.num_receivers)
            assert torch.equal(copies.graph.subgraph(rows).multiplicity(), member.multiplicity())
            assert copies.nodes[rows].tolist() == list(range(start, start + member.num_receivers))
            assert copies.marks[rows, 0].nonzero().flatten().tolist() == [marked]
            first += member.num_receivers


@pytest.mark.parametrize("hops", [1, 2, 3])
def test_rooted_copies_are_what_networkx_finds_around_a_root(hops):
    copies, first = rooted_copies(BATCH, hops), 0
    listens = networkx.MultiDiGraph(BATCH.to_networkx()).reverse()  # i -> j where i listens to j
    for i, j in zip(BATCH.receivers.tolist(), BATCH.senders.tolist(), strict=True):
        distances = networkx.single_source_shortest_path_length(listens, i, cutoff=hops)
        around = sorted(distances)
        rows = torch.arange(first, first + len(around))
        first += len(around)
        assert copies.nodes[rows].tolist() == around
        assert copies.marks[rows].tolist() == [[distances[node], int(node == j)] for node in around]
        nodes = torch.tensor(around)
        assert torch.equal(copies.graph.subgraph(rows).multiplicity(), BATCH.multiplicity()[nodes][:, nodes])
    assert first == copies.graph.num_receivers


def test_graphs_without_nodes_or_edges_have_empty_copies_and_a_bipartite_one_is_refused():
    lonely = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), 3)
    for graph in (NOTHING, lonely):
        assert rooted_copies(graph, 2).graph.num_receivers == 0
        assert marked_copies(graph).graph.num_receivers == graph.num_receivers**2
        assert pairs(graph).graph.num_edges == graph.num_receivers**2
    for made in (pairs, marked_copies, lambda graph: rooted_copies(graph, 1)):
        with pytest.raises(GraphError):
            made(Graph.from_edge_index([[0], [0]], 1, num_receivers=2))
