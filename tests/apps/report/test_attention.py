import numpy as np
import pytest
import torch

from edgewise.apps.report.attention import AROUND, WHOLE, dense, draw_attention, lay_out
from edgewise.graphs import Graph, causal
from edgewise.kernels import Recorded
from edgewise.models import GNN, GNNSettings, Transformer, TransformerSettings
from edgewise.tasks import NodeClassification, Nodes, Text


def test_weights_become_matrices_at_their_receivers_and_senders() -> None:
    graph = causal(3)
    matrix = dense(Recorded(graph, torch.arange(6.0)), torch.arange(6.0))
    np.testing.assert_array_equal(matrix, [[0, 0, 0], [1, 2, 0], [3, 4, 5]])


def test_weights_of_parallel_edges_add_up() -> None:
    graph = Graph.from_edge_index([[1, 1, 0], [0, 0, 1]], num_nodes=2)
    weights = torch.tensor([[0.25, 0.75, 1.0]])
    np.testing.assert_array_equal(dense(Recorded(graph, weights), weights), [[[0, 1], [1, 0]]])


@pytest.mark.parametrize("edges", [[(0, 1), (1, 2)], [(0, 1)], []])
def test_a_layout_gives_every_node_a_finite_place_of_its_own(edges: list[tuple[int, int]]) -> None:
    receivers = np.array([i for i, _ in edges], dtype=np.int64)
    senders = np.array([j for _, j in edges], dtype=np.int64)
    places = lay_out(4, receivers, senders)
    assert places.shape == (4, 2)
    assert np.isfinite(places).all()
    assert len({tuple(place) for place in places.round(6)}) == 4
    np.testing.assert_array_equal(places, lay_out(4, receivers, senders))


def test_one_node_is_in_the_middle() -> None:
    np.testing.assert_allclose(lay_out(1, np.array([], int), np.array([], int)), [[0, 0]])


@pytest.mark.parametrize("layer", ["gat", "gcn"])
def test_a_large_graph_is_drawn_around_one_of_its_nodes(layer: str) -> None:
    count = WHOLE + 50
    ring = torch.arange(count)
    edges = torch.stack([torch.cat([ring, ring]), torch.cat([(ring + 1) % count, (ring + 7) % count])])
    graph = Graph.from_edge_index(edges, count).symmetrise()
    rows = torch.arange(count)
    nodes = Nodes(graph, torch.randn(count, 4), rows % 3, ("a", "b", "c"), {"train": rows, "valid": rows, "test": rows})
    task = NodeClassification("ring", nodes)
    drawn = draw_attention(task, None, GNN(GNNSettings(layer), task.signature))
    assert drawn is not None
    assert f"and {AROUND - 1} of the nodes around it" in drawn.caption
    assert drawn.name == ("attention" if layer == "gat" else "graph")


def test_a_graph_without_edges_is_drawn() -> None:
    rows = torch.arange(3)
    graph = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), 3)
    nodes = Nodes(graph, torch.eye(3), rows, ("a", "b", "c"), {"train": rows, "valid": rows, "test": rows})
    task = NodeClassification("lonely", nodes)
    for layer in ("gat", "sage-mean"):
        assert draw_attention(task, None, GNN(GNNSettings(layer), task.signature)) is not None


@pytest.mark.parametrize(("attention", "drawn"), [("softmax", True), ("lsh", False), ("sinkhorn", False)])
def test_attention_among_copies_of_the_nodes_is_not_drawn_over_the_nodes(attention: str, drawn: bool) -> None:
    task = Text("abc", "abcabcabca" * 30, context=8)
    model = Transformer(TransformerSettings(width=8, depth=1, heads=2, attention=attention, stride=4), task.signature)
    assert (draw_attention(task, None, model) is not None) is drawn
