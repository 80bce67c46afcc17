"""A partition on a group of one rank, and the bounds and refusals that need no other; several: tests/kernels."""

import pytest
import torch
import torch.distributed as dist

from edgewise import Dot, Filter, attend, collect, ends
from edgewise.errors import GraphError
from edgewise.graphs import Graph, Partition, causal, complete, window
from edgewise.graphs.partition import Halo, _local, _needed, partition, partitioned
from pretend import CARD, Card


@pytest.fixture(autouse=True, scope="module")
def alone():
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def pair() -> Graph:
    return Graph.from_edge_index([[0, 1, 1], [1, 0, 0]], num_nodes=3)


def test_on_one_rank_a_part_is_the_whole():
    graph = pair()
    part = Partition.of(graph)
    assert part.local.edge_index().tolist() == graph.edge_index().tolist()
    assert (part.num_receivers, part.num_senders, part.offset, part.num_edges) == (3, 3, 0, 3)
    assert part.is_square
    assert part.has_duplicates
    assert part.in_degrees().tolist() == [2, 1, 0]
    assert torch.equal(part.offsets, graph.offsets)
    assert torch.equal(part.receivers, graph.receivers)
    x = torch.randn(3, 2)
    assert all(torch.equal(mine, whole) for mine, whole in zip(ends(part, x), ends(graph, x), strict=True))
    assert repr(part) == "Partition(3 of 3 receivers, from 0 on: Graph(3 receivers, 3 senders, 3 edges))"
    assert Halo.sent == 0


def test_what_a_part_fetches_rows_by_moves_with_it():
    with Card():
        part = Partition.of(pair()).to("cuda")
        assert part.halo.read.device == part.local.senders.device == part.device == CARD


def test_a_part_is_made_once_for_a_graph():
    graph = pair()
    assert partition(graph) is partition(graph)


def test_missing_self_loops_are_added():
    looped = Partition.of(pair()).add_self_loops()
    assert looped.local.edge_index().tolist() == pair().add_self_loops().edge_index().tolist()
    assert looped.has_self_loops
    assert looped.add_self_loops() is looped
    assert Partition.of(causal(3)).has_self_loops
    assert not Partition.of(complete(2, 3)).has_self_loops


def test_edges_are_left_out():
    part = Partition.of(pair()).keep_edges(torch.tensor([True, False, True]))
    assert part.local.edge_index().tolist() == [[1, 0], [0, 1]]


def test_members_of_a_batch_have_their_rank_and_no_sizes():
    part = Partition.of(Graph.batch([pair(), causal(2)]))
    assert part.membership().local.dense_mask().int().tolist() == [[1, 1, 1, 0, 0], [0, 0, 0, 1, 1]]
    assert Partition.of(pair()).sizes.tolist() == [3]
    with pytest.raises(GraphError, match="a rank knows no sizes of them"):
        part.sizes  # noqa: B018


@pytest.mark.parametrize(
    ("graph", "rows", "needed", "local"),
    [
        (causal(6), (2, 4), [0, 1, 2, 3], causal(2, 4, offset=2)),
        (window(9, 1), (4, 6), [3, 4, 5, 6], Graph(window(9, 1).rule, 2, 4, offset=1)),
        (complete(4), (2, 3), [0, 1, 2, 3], Graph(complete(4).rule, 1, 4, offset=2)),
    ],
)
def test_of_a_rule_the_rows_that_it_needs_are_fetched_and_it_stays_a_rule(graph, rows, needed, local):
    part = graph.rows(*rows)
    mask = _needed(part)
    mask[rows[0] : rows[1]] = True
    assert mask.nonzero().flatten().tolist() == needed
    made = _local(part, mask, int(mask[: rows[0]].sum()), True)
    assert made == local
    assert made.rule == graph.rule


def test_edges_are_numbered_among_the_needed_senders():
    rows = Graph.from_edge_index([[5, 1, 3], [2, 2, 3]], num_nodes=6).rows(2, 4)
    mask = _needed(rows)
    mask[2:4] = True
    assert mask.nonzero().flatten().tolist() == [1, 2, 3, 5]
    assert _local(rows, mask, 1, False).edge_index().tolist() == [[0, 3, 2], [0, 0, 1]]


def test_what_would_read_other_ranks_numbers_is_refused():
    part = Partition.of(pair())
    for read in (
        lambda: part.senders,
        part.transpose,
        part.edge_index,
        part.dense_mask,
        part.symmetrise,
    ):
        with pytest.raises(GraphError, match="read both ends of an edge with `ends`"):
            read()
    with pytest.raises(GraphError, match="all rows of a graph, not of those from 2 on"):
        Partition.of(causal(5).rows(2, 4))
    with pytest.raises(GraphError, match="list both directions as edges"):
        collect(part, Filter(torch.ones(3, 1), torch.ones(3, 1), both_ways=True))


def test_a_graph_that_a_layer_makes_of_its_own_rows_is_refused():
    q, graph = torch.randn(3, 1, 2), pair()
    with partitioned(graph):
        attend(graph, q, q, q, Dot())
        attend(Partition.of(graph), q, q, q, Dot())
        with pytest.raises(GraphError, match="which it made of this rank's nodes alone: leave out"):
            attend(complete(3), q, q, q, Dot())
    attend(complete(3), q, q, q, Dot())
