"""Leave-one-out on graphs without the edge, and masks that find what a model reads."""

import pytest
import torch
from torch import Tensor, nn

from edgewise import Dot, Graph, aggregate, attend, explain
from edgewise.explanations import Explained
from edgewise.explanations.removal import within_reach
from explanations.families import RING, family

PATH = Graph.from_edge_index([[0, 1, 2, 3], [1, 2, 3, 4]], num_nodes=5)


class Averages(nn.Module):
    """Attention and then a mean, on whose equations the number of senders acts."""

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        return aggregate(graph, attend(graph, x[:, None], x[:, None], x[:, None], Dot())[:, 0], reduce="mean")


def test_leaving_an_edge_out_is_the_model_on_the_graph_without_it() -> None:
    x = torch.randn(5, 3)
    why = explain(Averages(), RING, x, (2, 1), "leave-one-out")
    full = Averages()(RING, x)[2, 1]
    for edge in range(RING.num_edges):
        kept = torch.arange(RING.num_edges) != edge
        expected = full - Averages()(RING.keep_edges(kept), x)[2, 1]
        assert why.edges is not None and float(why.edges[edge]) == pytest.approx(float(expected), abs=1e-6)


def test_only_what_is_within_reach_is_left_out() -> None:
    explained = Explained(Averages(), (PATH, torch.randn(5, 2)), (3, 0))
    edges, nodes = within_reach(explained)
    assert edges.tolist() == [False, True, True, False]
    assert nodes.tolist() == [False, True, True, True, False]


def test_a_learned_mask_finds_the_edges_that_a_model_reads() -> None:
    class Reads(nn.Module):
        def forward(self, graph: Graph, x: Tensor) -> Tensor:
            return aggregate(graph, x)

    star = Graph.from_edge_index([[1, 2, 3, 4, 5], [0, 0, 0, 0, 0]], num_nodes=6)
    x = torch.tensor([[0.0], [1.0], [0.0], [1.0], [0.0], [0.0]])
    why = explain(Reads(), star, x, (0, 0), "learned-mask")
    assert why.edges is not None
    assert why.edges[[0, 2]].min() > 0.9 and why.edges[[1, 3, 4]].max() < 0.2
    assert why.nodes[[1, 3]].min() > 0.9 and why.nodes[[2, 4, 5]].max() < 0.2


def test_nothing_is_learned_where_nothing_changes() -> None:
    model, inputs, index = family("deep sets")
    why = explain(model, *inputs, index, "learned-mask")
    assert why.edges is None and why.nodes.shape == (5,)
