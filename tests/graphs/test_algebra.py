"""Graphs from graphs, against the same operation on dense counts."""

from copy import deepcopy

import pytest
import torch

from edgewise.errors import GraphError
from edgewise.graphs import Graph, bipartite, blocks, causal, complete, grid, window
from edgewise.graphs.rule import Blocks, Complete
from graphs.examples import PATTERNED, random_edges, random_graphs

SQUARE = [*random_graphs(30), *(graph for graph in PATTERNED if graph.is_square)]


def test_self_loops() -> None:
    for graph in SQUARE:
        table, eye = graph.multiplicity(), torch.eye(graph.num_receivers, dtype=torch.int64)
        looped, bare = graph.add_self_loops(), graph.remove_self_loops()
        assert torch.equal(looped.multiplicity(), torch.where(eye > 0, table.clamp(min=1), table))
        assert torch.equal(bare.multiplicity(), table * (1 - eye))
        assert looped.has_self_loops
        assert looped.add_self_loops() is looped
        assert graph.add_self_loops() is looped
        assert bare.remove_self_loops() == bare
        assert (looped.rule is None) == (bare.rule is None) == (graph.rule is None)


def test_symmetrise_and_coalesce() -> None:
    for graph in SQUARE:
        mask = graph.dense_mask()
        assert torch.equal(graph.symmetrise().multiplicity(), (mask | mask.T).long())
        assert torch.equal(graph.coalesce().multiplicity(), mask.long())
        assert not graph.coalesce().has_duplicates
    assert window(5, 2).symmetrise().rule is not None
    assert grid(2, 2).symmetrise() == grid(2, 2)


@pytest.mark.parametrize("square", [True, False])
def test_union_and_intersection(square: bool) -> None:
    for seed in range(40):
        edges, senders, receivers = random_edges(seed, square)
        cut = edges.shape[1] // 2
        first, second = (Graph.from_edge_index(part, senders, receivers) for part in (edges[:, :cut], edges[:, cut:]))
        a, b = first.dense_mask(), second.dense_mask()
        assert torch.equal(first.union(second).multiplicity(), (a | b).long())
        assert torch.equal(first.intersection(second).multiplicity(), (a & b).long())
        everyone = complete(receivers, senders)
        assert first.union(everyone).is_complete
        assert everyone.union(first).is_complete
        assert first.intersection(everyone) == everyone.intersection(first) == first.coalesce()


def test_an_intersection_with_a_complete_graph_lists_no_pairs() -> None:
    everyone, few = complete(10**6), Graph.from_edge_index([[5, 5, 7], [0, 0, 10**6 - 1]], 10**6)
    assert everyone.intersection(few) == few.intersection(everyone) == few.coalesce()
    loop = Graph.from_edge_index([[0], [0]], 1)
    assert complete(2).intersection(Graph.batch([loop, loop])).sizes.tolist() == [2]
    for part in ("senders", "receivers"):
        with pytest.raises(GraphError, match="listing 1,000,000,000,000 edges takes"):
            getattr(everyone, part)


def test_union_of_a_rule_and_edges_at_an_offset() -> None:
    rule = causal(5).rows(2, 4)
    edges = Graph.from_edge_index([[4, 0, 0], [0, 2, 3]], 5).rows(2, 4)
    assert edges.offset == rule.offset == 2
    assert torch.equal(rule.union(edges).dense_mask(), rule.dense_mask() | edges.dense_mask())
    assert rule.union(edges).offset == 2
    assert rule.intersection(edges).dense_mask().int().tolist() == [[1, 0, 0, 0, 0], [1, 0, 0, 0, 0]]


def test_permute_moves_features_along() -> None:
    for seed, graph in enumerate(SQUARE):
        n = graph.num_receivers
        perm = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
        permuted = graph.permute(perm)
        assert torch.equal(permuted.multiplicity(), graph.multiplicity()[perm][:, perm])
        assert permuted.permute(perm.argsort()) == graph
        x = torch.arange(n, dtype=torch.float64)
        assert torch.equal(permuted.multiplicity().double() @ x[perm], (graph.multiplicity().double() @ x)[perm])


def test_subgraph_is_induced() -> None:
    for seed, graph in enumerate(SQUARE):
        n = graph.num_receivers
        kept = torch.randperm(n, generator=torch.Generator().manual_seed(seed))[: n // 2]
        table = graph.multiplicity()[kept][:, kept]
        assert torch.equal(graph.subgraph(kept).multiplicity(), table)
        assert graph.subgraph(kept.tolist()) == graph.subgraph(kept)
        mask = torch.zeros(n, dtype=torch.bool)
        mask[kept] = True
        assert graph.subgraph(mask) == graph.subgraph(kept.sort().values)
    assert complete(5).subgraph([3, 1]).rule == Complete()


def test_rows() -> None:
    for graph in [*PATTERNED, *random_graphs(20, square=False), Graph.from_ranges([[0], [1], [0]], [[2], [3], [0]], 3)]:
        table, mask, last = graph.multiplicity(), graph.dense_mask(), graph.num_receivers + 1
        cuts = range(last) if last <= 8 else (0, 1, 2, last // 2, last - 2, last - 1)
        for start in cuts:
            for stop in (cut for cut in cuts if cut >= start):
                part = graph.rows(start, stop)
                assert torch.equal(part.multiplicity(), table[start:stop])
                assert torch.equal(part.dense_mask(), mask[start:stop])
                assert part.offset == graph.offset + start
                assert part.rule == graph.rule
                assert (part.ranges() is None) == (graph.ranges() is None)
    assert causal(6).rows(2, 5).rows(1, 2) == causal(6).rows(3, 4)
    assert causal(6).rows(3, 4) == causal(1, senders=6, offset=3)
    batch = Graph.batch([complete(1, 2), complete(2, 1)])
    for part in (batch.rows(0, 3), batch.rows(1, 3)):
        assert (part.is_square, part.sender_sizes.tolist()) == (False, [2, 1])


def dense_batch(graphs: list[Graph]) -> torch.Tensor:
    return torch.block_diag(*(graph.multiplicity() for graph in graphs)).long()


@pytest.mark.parametrize(
    "members",
    [
        list(random_graphs(12)),
        list(random_graphs(12, square=False)),
        [complete(2), complete(0), complete(3, 1)],
        [complete(2), blocks([1, 2]), complete(1)],
        [blocks([2, 2]).rows(0, 3), complete(2)],
        [causal(3), window(4, 1), grid(2, 2), complete(2), bipartite(1, 2)],
        [causal(3), Graph.from_edge_index([[0], [1]], 2)],
        [window(30, 2, dilation=4), causal(2)],
        [Graph.from_ranges(torch.zeros(2, 0).long(), torch.zeros(2, 0).long(), 1), causal(2)],
        [complete(0), complete(0)],
        [causal(4)],
    ],
    ids=str,
)
def test_a_batch_is_block_diagonal(members: list[Graph]) -> None:
    batch = Graph.batch(members)
    assert torch.equal(batch.multiplicity(), dense_batch(members))
    assert batch.sizes.tolist() == [graph.num_receivers for graph in members]
    assert batch.num_edges == sum(graph.num_edges for graph in members)
    membership = batch.membership()
    assert (membership.num_receivers, membership.num_senders) == (len(members), batch.num_receivers)
    owner = torch.repeat_interleave(batch.sizes)
    assert torch.equal(membership.dense_mask(), torch.arange(len(members))[:, None] == owner)
    nested = Graph.batch([batch, members[0]])
    assert torch.equal(nested.multiplicity(), dense_batch([*members, members[0]]))
    assert nested.sizes.tolist() == [*batch.sizes.tolist(), members[0].num_receivers]


def test_a_batch_keeps_the_simplest_form() -> None:
    batch = Graph.batch([complete(2), complete(3), blocks(2, 1)])
    assert batch.rule == Blocks((2, 3, 1, 1), (2, 3, 1, 1))
    assert batch.sizes.tolist() == [2, 3, 2]  # blocks(2, 1) is one graph
    packed = Graph.batch([causal(2), causal(3)])
    assert packed.ranges() is not None
    assert "senders" not in vars(packed)
    assert Graph.batch([causal(2), Graph.from_edge_index([[0], [0]], 1)]).ranges() is None
    assert Graph.batch(complete(n) for n in (1, 2)).num_receivers == 3


def test_a_batch_sorts_its_members_edge_tensors() -> None:
    lists = [random_edges(seed) for seed in range(8)]
    members = [Graph.from_edge_index(edges, nodes) for edges, nodes, _ in lists]
    batch = Graph.batch(members)
    values = [torch.randn(edges.shape[1]) for edges, _, _ in lists]
    expected = [graph.sort_edges(value) for graph, value in zip(members, values, strict=True)]
    assert torch.equal(batch.sort_edges(torch.cat(values)), torch.cat(expected))


def test_sizes_are_carried_where_they_still_hold() -> None:
    members = [Graph.from_edge_index([[0, 0], [1, 1]], 2), Graph.from_edge_index([[2], [0]], 3)]
    batch = Graph.batch(members)
    for graph in (
        batch.add_self_loops(),
        batch.add_self_loops().remove_self_loops(),
        batch.coalesce(),
        batch.symmetrise(),
        batch.transpose()[0],
        batch.union(batch),
        batch.intersection(batch.add_self_loops()),
        batch.permute([1, 0, 4, 2, 3]),
    ):
        assert graph.sizes.tolist() == [2, 3]
    assert Graph.batch([complete(2), complete(3)]).remove_self_loops().sizes.tolist() == [2, 3]
    assert batch.permute([2, 0, 1, 3, 4]).sizes.tolist() == [5]
    assert batch.subgraph([1, 3, 4]).sizes.tolist() == [1, 2]
    assert batch.subgraph([2, 3]).sizes.tolist() == [0, 2]
    assert batch.union(complete(5)).sizes.tolist() == [5]
    assert batch.rows(1, 3).sizes.tolist() == [1, 1]
    assert batch.rows(1, 5).rows(2, 4).sizes.tolist() == [0, 2]
    assert batch.rows(1, 3).keep_edges(torch.tensor([True, False, True])).sizes.tolist() == [1, 1]
    assert batch.rows(0, 5).membership() == batch.membership()


def test_a_batch_of_pairs_knows_the_sizes_of_both_sides():
    batch = Graph.batch([complete(1, 2), Graph.from_edge_index([[0], [1]], num_nodes=1, num_receivers=2)])
    for graph in (batch, deepcopy(batch), batch.coalesce(), batch.keep_edges(batch.senders < 2)):
        assert (graph.sizes.tolist(), graph.sender_sizes.tolist(), graph.is_square) == ([1, 2], [2, 1], False)
    assert Graph.batch([batch, complete(3)]).sender_sizes.tolist() == [2, 1, 3]
    turned = batch.transpose()[0]
    assert (turned.sizes.tolist(), turned.sender_sizes.tolist()) == ([2, 1], [1, 2])
    assert batch.union(Graph.batch([complete(1), complete(2)])).sizes.tolist() == [3]
    with pytest.raises(GraphError, match="same nodes"):
        batch.add_self_loops()
