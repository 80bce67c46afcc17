import networkx
import pytest
import torch

from edgewise import Graph
from edgewise.graphs.comparison import isomorphism_classes
from edgewise.tasks.graphs.generation import GraphTokens, breadth_first, most_linked

BRIDGED = Graph.from_networkx(networkx.barbell_graph(4, 2))


@pytest.mark.parametrize("seed", range(10))
def test_the_order_is_that_of_a_search(seed):
    """Distances from the first node never fall, and nodes come in the order of their earliest neighbours."""
    order = breadth_first(BRIDGED, torch.Generator().manual_seed(seed))
    assert sorted(order) == list(range(10))
    network = BRIDGED.to_networkx().to_undirected()
    distance = networkx.single_source_shortest_path_length(network, order[0])
    assert [distance[node] for node in order] == sorted(distance.values())
    place = {node: k for k, node in enumerate(order)}
    parents = [min(place[j] for j in network[node]) for node in order[1:]]
    assert parents == sorted(parents)


@pytest.mark.parametrize("seed", range(10))
def test_the_next_node_has_the_most_links_to_those_before(seed):
    graph = Graph.from_networkx(networkx.gnp_random_graph(12, 0.3, seed=seed))
    order = most_linked(graph, torch.Generator().manual_seed(seed))
    assert sorted(order) == list(range(12))
    linked = graph.dense_mask()[order][:, order]
    for k in range(1, 12):
        assert linked[k:, :k].sum(1).argmax() == 0  # the first of the greatest


@pytest.mark.parametrize("seed", range(10))
def test_a_sequence_holds_its_graph(seed):
    tokens, generator = GraphTokens(most=12), torch.Generator().manual_seed(seed)
    graph = Graph.from_networkx(networkx.gnp_random_graph(12, 0.3, seed=seed))
    order = breadth_first(graph, generator)
    sequence = tokens.encode(graph, order)
    assert len(sequence) == 2 + 12 + graph.num_edges // 2
    assert max(sequence) < tokens.size
    found = tokens.decode(torch.tensor([*sequence, 5, 5]))
    assert torch.equal(found.dense_mask(), graph.dense_mask()[order][:, order])
    assert isomorphism_classes([found, graph]) == [0, 0]


@pytest.mark.parametrize(
    "broken",
    [
        [0, 1, 2, 5],  # no end
        [1, 2, 0],  # no beginning
        [0, 0],  # no node
        [0, 2, 0],  # the second node first
        [0, 5, 1, 0],  # a link of no node
        [0, 1, 5, 0],  # a link to itself
        [0, 1, 2, 6, 0],  # to itself again
        [0, 1, 2, 7, 0],  # to a later node
        [0, 1, 2, 5, 5, 0],  # twice
        [0, 1, 2, 3, 6, 5, 0],  # in the wrong order
        [0, 1, 1, 0],  # the first node twice
    ],
)
def test_a_sequence_that_breaks_the_rules_is_no_graph(broken):
    assert GraphTokens(most=4).decode(broken) is None


def test_allowed_tokens_are_those_that_keep_the_rules():
    tokens, generator = GraphTokens(most=7), torch.Generator().manual_seed(0)
    graphs = [Graph.from_networkx(networkx.gnp_random_graph(7, 0.4, seed=seed)) for seed in range(3)]
    sequences = [tokens.encode(graph, breadth_first(graph, generator)) for graph in graphs]
    for sequence in sequences:
        allowed = tokens.allowed(torch.tensor(sequence))
        for place in range(len(sequence) - 1):
            assert allowed[place, sequence[place + 1]]
            for token in range(1, tokens.size):
                keeps = tokens.decode([*sequence[: place + 1], token, 0]) is not None
                assert bool(allowed[place, token]) == keeps
            assert bool(allowed[place, 0]) == (place > 0)
        assert allowed[-1].nonzero().tolist() == [[1]]  # another graph
    one_after_another = torch.tensor([token for sequence in sequences for token in sequence[:-1]])
    alone = torch.cat([tokens.allowed(torch.tensor(sequence[:-1])) for sequence in sequences])
    assert torch.equal(tokens.allowed(one_after_another), alone)
    assert torch.equal(tokens.allowed(one_after_another.expand(2, -1))[1], alone)
