"""Graphs from content against their definitions, written out pair by pair."""

import pytest
import torch

from edgewise import Graph, GraphError, causal, complete, strided, window
from edgewise.graphs import alike, clusters, is_causal
from edgewise.graphs.make.content import Held
from edgewise.graphs.make.neighbors import k_nearest_in_members

GRAPHS = {
    "complete": complete(12),
    "causal": causal(12),
    "window": window(12, 3),
    "strided": strided(12, 4),
    "batch": Graph.batch([causal(5), causal(7)]),
    "blocks": Graph.batch([complete(5), complete(7)]),
}


def by_edges(graph: Graph) -> Graph:
    """The same graph, of which only the edges are known."""
    return Graph._of(
        graph.num_receivers, graph.num_senders, offsets=graph.offsets, senders=graph.senders, sizes=graph.sizes
    )


FORMS = {"as it is": lambda graph: graph, "by edges": by_edges}


@pytest.mark.parametrize(
    ("name", "chunk", "loops", "form"),
    [
        ("complete", 1, True, "as it is"),
        ("causal", 2, False, "by edges"),
        ("causal", 20, True, "as it is"),
        ("window", 2, True, "by edges"),
        ("strided", 1, False, "as it is"),
        ("batch", 2, True, "as it is"),
        ("blocks", 1, False, "by edges"),
    ],
)
def test_alike_is_its_definition(name, chunk, loops, form):
    graph, labels = GRAPHS[name], torch.randint(3, (2, 3, 12))  # two sequences, three rounds
    found = alike(FORMS[form](graph), labels, labels, chunk, loops).among_nodes(72, 72).dense_mask()
    member = torch.repeat_interleave(graph.sizes).tolist()
    mask = graph.dense_mask()
    expected = torch.zeros(72, 72, dtype=torch.bool)
    for s in range(2):
        for i in range(12):
            others = []
            for r in range(3):
                label = labels[s, r].tolist()
                ranks = [sum(label[b] == label[a] and member[b] == member[a] for b in range(a)) for a in range(12)]
                for j in range(12):
                    near = ranks[i] // chunk - ranks[j] // chunk in (0, 1)
                    if mask[i, j] and label[i] == label[j] and near and (loops or i != j):
                        others.append((r, j))
            if not others and mask[i, i]:
                others = [(r, i) for r in range(3)]
            for r, j in others:
                expected[(s * 3 + r) * 12 + i, (s * 3 + r) * 12 + j] = True
    assert torch.equal(found, expected)


@pytest.mark.parametrize("name", ["causal", "window"])
def test_rows_hear_what_they_hear_in_the_whole(name):
    graph, labels = GRAPHS[name], torch.randint(3, (1, 1, 12))
    whole = alike(graph, labels, labels, chunk=2).among_nodes(12, 12)
    rows = graph.rows(7, 12)
    part = alike(rows, labels[..., 7:], labels, chunk=2).among_nodes(5, 12)
    assert torch.equal(part.dense_mask(), whole.dense_mask()[7:])


def test_later_nodes_do_not_change_whom_earlier_ones_hear():
    labels = torch.randint(4, (1, 1, 40))
    other = torch.cat([labels[..., :25], torch.randint(4, (1, 1, 15))], -1)
    first, second = (alike(causal(40), x, x, chunk=3).among_nodes(40, 40).dense_mask() for x in (labels, other))
    assert torch.equal(first[:25], second[:25])
    assert not torch.equal(first[25:], second[25:])


@pytest.mark.parametrize(
    ("name", "size", "form"),
    [*(zip(GRAPHS, (1, 3, 6, 20, 3, 6), ("as it is", "by edges") * 3, strict=True)), ("causal", 20, "as it is")],
)
def test_clusters_are_their_definition(name, size, form):
    graph, near_i, near_j = GRAPHS[name], torch.randn(2, 3, 12), torch.randn(2, 3, 12)
    found = clusters(FORMS[form](graph), near_i, near_j, size)
    expected, mask = torch.zeros(24, 24, dtype=torch.bool), graph.dense_mask()
    for s in range(2):
        for c in range(3):
            for nodes in torch.arange(12).split(graph.sizes.tolist()):
                of_i, of_j = (nodes[near[s, c, nodes].argsort(descending=True)[:size]] for near in (near_i, near_j))
                for i in of_i.tolist():
                    for j in of_j.tolist():
                        expected[s * 12 + i, s * 12 + j] |= mask[i, j]
    assert torch.equal(found.among_nodes(24, 24).dense_mask(), expected)
    assert found.graph.num_receivers == 2 * 3 * sum(min(size, n) for n in graph.sizes.tolist())


@pytest.mark.parametrize("graph", [causal(3), strided(3, 1), Graph.from_edge_index([[0], [1]], num_nodes=3)])
def test_every_receiver_attends_to_the_sink(graph):
    labels = torch.tensor([[[0, 1, 0]]])
    among = alike(graph, labels, labels, chunk=5)
    mask = among.with_sink().dense_mask()
    assert mask[:, -1].all()
    assert torch.equal(mask[:, :-1], among.graph.dense_mask())


def test_content_keeps_to_ranges_where_the_graph_has_them():
    labels = torch.randint(8, (1, 2, 4096))
    graph = alike(causal(4096), labels, labels, chunk=16, loops=False).graph
    assert graph.ranges() is not None
    assert graph.num_edges <= 2 * 4096 * 32


@pytest.mark.parametrize(
    ("graph", "expected"),
    [
        (causal(4), True),
        (complete(4), False),
        (complete(1), True),
        (causal(5).rows(2, 4), True),
        (strided(20, 2), True),
        (window(4, 1), False),
        (Graph.from_edge_index([[0, 3], [1, 2]], num_nodes=4), False),
        (Graph.from_edge_index([[0, 2], [1, 3]], num_nodes=4), True),
        (Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), num_nodes=0), True),
    ],
)
def test_which_graphs_are_causal(graph, expected):
    assert is_causal(graph) is expected


@pytest.mark.parametrize("shape", [(1, 1, 4), (1, 5), (1, 2, 5)])
def test_labels_that_do_not_fit_are_refused(shape):
    labels, other = torch.zeros(1, 1, 5, dtype=torch.int64), torch.zeros(shape, dtype=torch.int64)
    for first, second in ((labels, other), (other, labels)):
        with pytest.raises(GraphError, match=r"must have \[S, R, 5\]"):
            alike(causal(5), first, second, chunk=2)
    with pytest.raises(GraphError, match="chunk"):
        alike(causal(5), labels, labels, chunk=0)
    with pytest.raises(GraphError, match="size"):
        clusters(causal(5), labels.double(), labels.double(), size=0)


def test_a_chunk_keeps_to_its_group_where_there_are_fewer_senders():
    """Positions behind the last sender were counted into the next group, whose chunk then hid all senders."""
    graph = causal(8, senders=3)
    found = alike(graph, torch.zeros(1, 1, 8).long(), torch.tensor([0, 1, 1]).view(1, 1, 3), chunk=1)
    assert found.among_nodes(8, 3).dense_mask().tolist() == [[True, False, False]] * 8


POINTS, SIZES = torch.tensor([[0.0], [1.0], [5.0]]), torch.tensor([3])
OTHERS = torch.tensor([[0.0], [4.0], [5.0]])


def test_later_blocks_have_the_graphs_of_the_first_in_turn() -> None:
    held = Held()
    labels = torch.tensor([0, 1, 0]).view(1, 1, 3)
    with held:
        first = k_nearest_in_members(POINTS, SIZES, 2), alike(complete(3), labels, labels, 5)
    with held:
        second = k_nearest_in_members(OTHERS, SIZES, 2), alike(complete(3), 0 * labels, 0 * labels, 5)
        assert k_nearest_in_members(OTHERS, SIZES, 1).num_edges == 3  # one more than in the first block
    assert first[0] is second[0] and first[1] is second[1]


def test_outside_a_block_the_content_chooses() -> None:
    with Held():
        k_nearest_in_members(POINTS, SIZES, 2)
    assert k_nearest_in_members(OTHERS, SIZES, 2).senders.tolist() == [0, 1, 1, 2, 1, 2]
