"""Leave-one-out on graphs without the edge, and masks that find what a model reads."""

import pytest
import torch
from torch import Tensor, nn

from edgewise import Dot, Graph, aggregate, attend, explain
from edgewise.explanations import Explained
from edgewise.explanations.removal import within_reach
from edgewise.layers import HGT, RGAT, RGCN
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


RELATIONAL = {
    "RGAT": lambda: RGAT(3, 2, relations=2, heads=2),
    "HGT": lambda: HGT(3, 4, relations=2, heads=2),
    "RGCN": lambda: RGCN(3, 2, relations=2),
    "RGCN with bases": lambda: RGCN(3, 2, relations=2, bases=1),
}


@pytest.mark.parametrize("size", [6, 80], ids=["whole", "what is near"])
@pytest.mark.parametrize("name", RELATIONAL)
def test_a_relational_layer_has_scores_of_its_edges(name: str, size: int) -> None:
    steps = torch.tensor([1, 2, 3, 3])  # of the last two edges, which are parallel, one is of each relation
    senders = torch.arange(size).repeat(4)
    receivers = (senders + steps.repeat_interleave(size)) % size
    graph = Graph.from_edge_index(torch.stack([senders, receivers]), size)
    e, x = graph.sort_edges(torch.tensor([0, 0, 0, 1]).repeat_interleave(size)), torch.randn(size, 3)
    layer = RELATIONAL[name]().eval()
    why = explain(layer, graph, x, (4, 1), "leave-one-out", features=(e,))
    full = layer(graph, x, e)[4, 1].item()
    assert why.edges is not None and int(why.edges.count_nonzero()) == 4 and int(why.nodes.count_nonzero()) >= 3
    for edge in (graph.receivers == 4).nonzero()[:, 0].tolist():
        kept = torch.arange(graph.num_edges) != edge
        expected = full - layer(graph.keep_edges(kept), x, e[kept])[4, 1].item()
        assert float(why.edges[edge]) == pytest.approx(expected, abs=1e-6)
    for node in (1, 2, 3):
        expected = full - layer(graph, x.index_fill(0, torch.tensor(node), 0.0), e)[4, 1].item()
        assert float(why.nodes[node]) == pytest.approx(expected, abs=1e-6)
    parts = explain(layer, graph, x, (4, 1), features=(e,))
    assert parts.missed is not None and parts.missed < 1e-3


def test_only_what_is_within_reach_is_left_out() -> None:
    explained = Explained(Averages(), (PATH, torch.randn(5, 2)), (3, 0))
    edges, nodes = within_reach(explained)
    assert edges.tolist() == [False, True, True, False]
    assert nodes.tolist() == [False, True, True, True, False]


@pytest.mark.parametrize("of", ["nodes", "edges"])
def test_what_reads_further_than_along_its_edges_is_left_out_of_everything(of: str) -> None:
    class Listens(nn.Module):
        def forward(self, graph: Graph, x: Tensor) -> Tensor:
            y = aggregate(graph, x)
            return y + (x.mean(-2) if of == "nodes" else aggregate(graph, y.mean(-2).expand_as(x)))

    x = torch.randn(5, 2)
    explained = Explained(Listens(), (PATH, x), (1, 0))
    assert all(bool(reach.all()) for reach in within_reach(explained))
    why = explain(Listens(), PATH, x, (1, 0), "leave-one-out")
    for node in range(5):
        without = Listens()(PATH, x.index_fill(0, torch.tensor(node), 0.0))[1, 0]
        assert float(why.nodes[node]) == pytest.approx(explained.value - float(without), abs=1e-6)


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
