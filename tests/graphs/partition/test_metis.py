"""Nodes arranged part by part, as METIS says; runs on several ranks: tests/training/test_distributed.py."""

import sys

import pymetis
import pytest
import torch

from edgewise.errors import GraphError
from edgewise.graphs import Graph
from edgewise.graphs.partition import arranged
from edgewise.tasks import Batch


def square() -> Graph:
    return Graph.from_edge_index([[0, 2, 1, 3, 0, 3, 3], [2, 0, 3, 1, 1, 3, 1]], num_nodes=4)


@pytest.fixture
def metis(monkeypatch):
    """In place of pymetis: even numbers are a part, odd ones another, and the third is empty."""
    seen = {}

    def part_graph(parts, adjacency):
        seen.update(parts=parts, starts=adjacency.adj_starts.tolist(), adjacent=adjacency.adjacent.tolist())
        return 1, [node % 2 for node in range(len(adjacency.adj_starts) - 1)]

    monkeypatch.setattr(pymetis, "part_graph", part_graph)
    return seen


def test_nodes_are_numbered_part_by_part_and_edges_follow(metis):
    graph = square()
    by = arranged(graph, 3)
    assert by.order.tolist() == [0, 2, 1, 3]
    assert by.bounds == (0, 2, 4, 4)
    assert torch.equal(by.graph.dense_mask(), graph.dense_mask()[by.order][:, by.order])
    assert torch.equal(by.order[by.graph.senders], graph.senders[by.edges])
    assert torch.equal(by.order[by.graph.receivers], graph.receivers[by.edges])
    assert arranged(graph, 3) is by


def test_a_batch_is_arranged_with_its_features_and_targets(metis):
    graph = square()
    x, e = torch.arange(4.0)[:, None], torch.arange(7.0)[:, None]
    batch = Batch(graph, x, torch.tensor([10, 30]), torch.tensor([1, 3]), e)
    again, bounds = batch.arranged(2)
    assert bounds == (0, 2, 4)
    assert again.x[again.rows].flatten().tolist() == [1, 3]
    assert torch.equal(again.target, batch.target)
    pairs = zip(again.x[again.graph.senders], again.x[again.graph.receivers], again.e, strict=True)
    before = zip(graph.senders, graph.receivers, e, strict=True)
    assert sorted(tuple(map(float, row)) for row in pairs) == sorted(tuple(map(float, row)) for row in before)


@pytest.mark.parametrize("parts", [2, 3, 4])
def test_metis_finds_communities_that_blocks_cut(parts):
    size, generator = 30, torch.Generator().manual_seed(0)
    community = torch.randperm(size * parts, generator=generator) % parts
    ends = torch.randint(size * parts, (2, 4000), generator=generator)
    ends = ends[:, community[ends[0]] == community[ends[1]]]
    bridges = torch.randint(size * parts, (2, parts), generator=generator)
    graph = Graph.from_edge_index(torch.cat([ends, bridges], 1).unique(dim=1), num_nodes=size * parts)
    by = arranged(graph, parts)
    assert by.bounds == tuple(size * part for part in range(parts + 1))
    rank = torch.arange(size * parts) // size
    crossing = rank[by.graph.senders] != rank[by.graph.receivers]
    assert crossing.sum() <= parts
    assert (rank[graph.senders] != rank[graph.receivers]).sum() > graph.num_edges / 3


def test_without_pymetis_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "pymetis", None)
    with pytest.raises(GraphError, match=r"needs pymetis, .* pip install 'edgewise\[metis\]', or"):
        arranged(square(), 2)
