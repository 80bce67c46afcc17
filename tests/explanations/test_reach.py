"""Of a large graph only what is near the explained node is read, and the scores are those of the whole."""

import pytest
import torch
from torch import Tensor, nn

from edgewise import Graph, explain, fidelity
from edgewise.explanations import Explained
from edgewise.explanations.reach import around
from edgewise.layers import GAT, GCN, SparseFeatures

LINKS = torch.arange(299)
LONG = Graph.from_edge_index(torch.stack([LINKS, LINKS + 1]), num_nodes=300).symmetrise()


class Two(nn.Module):
    def __init__(self, layer: type[nn.Module]) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = nn.ModuleList([layer(4, 6), layer(6, 3)])

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = torch.tanh(layer(graph, x))
        return x


class Global(Two):
    """Each node also reads the mean of all."""

    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        return super().forward(graph, x) + x.mean()


@pytest.mark.parametrize("layer", [GCN, GAT])
@pytest.mark.parametrize("method", ["gradient", "leave-one-out", "integrated-gradients"])
def test_the_scores_are_those_of_the_whole_graph(layer: type[nn.Module], method: str) -> None:
    model, x = Two(layer).eval(), torch.randn(300, 4)
    near = explain(model, LONG, x, (150, 1), method)
    assert near.explained.num_nodes == 300 and around(near.explained) is not None
    whole = explain(model, LONG, x[None], (0, 150, 1), method, node=150)  # a leading batch is read whole
    assert around(whole.explained) is None
    assert near.edges is not None and whole.edges is not None
    torch.testing.assert_close(near.edges, whole.edges, atol=1e-3, rtol=1e-3)
    torch.testing.assert_close(near.nodes, whole.nodes, atol=1e-3, rtol=1e-3)


def test_the_small_graph_has_one_node_more_on_each_side_than_there_are_layers() -> None:
    small = around(Explained(Two(GCN), (LONG, torch.randn(300, 4)), (150, 1)))
    assert small is not None and small.nodes.tolist() == list(range(147, 154))


def test_sparse_features_are_cut_too() -> None:
    words = torch.randint(0, 2, (300, 4)).float()
    rows = words.nonzero()
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), words.sum(1).long().cumsum(0)])
    sparse = SparseFeatures(Graph.from_csr(offsets, rows[:, 1], 4), torch.ones(len(rows)))
    model = Two(GCN).eval()
    near, dense = (explain(model, LONG, x, (150, 1), "gradient") for x in (sparse, words))
    torch.testing.assert_close(near.nodes, dense.nodes)


def test_a_model_that_reads_more_than_its_edges_is_read_whole() -> None:
    assert around(Explained(Global(GCN), (LONG, torch.randn(300, 4)), (150, 1))) is None


class Further(nn.Module):
    """One layer, beside what further features of nodes, of edges or of the whole graph add."""

    def __init__(self, where: str) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layer, self.where = GCN(4, 3), where

    def forward(self, graph: Graph, x: Tensor, u: Tensor) -> Tensor:
        y = self.layer(graph, x)
        return y.index_add(0, graph.receivers, u) if self.where == "edges" else y + u


CYCLE = Graph.from_edge_index(torch.stack([torch.arange(300), torch.arange(1, 301) % 300]), num_nodes=300)


@pytest.mark.parametrize(
    ("graph", "where", "count", "is_cut"),
    [
        (LONG, "nodes", 300, True),
        (LONG, "edges", 598, True),
        (LONG, "graph", 1, False),
        (CYCLE, "nodes", 300, False),
    ],
)
def test_further_features_are_those_of_nodes_or_of_edges(graph: Graph, where: str, count: int, is_cut: bool) -> None:
    explained = Explained(Further(where), (graph, torch.randn(300, 4), torch.randn(count, 3)), (295, 1))
    small = around(explained)
    assert (small is not None) == is_cut
    if small is not None:
        assert small.explained.value == pytest.approx(explained.value, rel=1e-4)


def test_outputs_that_are_not_of_nodes_are_read_whole() -> None:
    class Pair(Two):
        def forward(self, graph: Graph, x: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[override]
            y = super().forward(graph, x)
            return y, y.sum(0)

    explained = Explained(Pair(GCN), (LONG, torch.randn(300, 4)), lambda outputs: outputs[0][150, 1], node=150)
    assert around(explained) is None


@pytest.mark.parametrize("of", ["edges", "nodes"])
def test_curves_show_the_number_of_the_explained_node(of: str) -> None:
    why = explain(Two(GCN).eval(), LONG, torch.randn(300, 4), (150, 1))
    shown = fidelity(why, of, lambda y: 2 * y[150, 1], orders=1)  # type: ignore[arg-type]
    assert float(shown.method.deletion[0]) == pytest.approx(2 * why.value, rel=1e-4)
    assert float(shown.method.insertion[-1]) == pytest.approx(2 * why.value, rel=1e-4)
