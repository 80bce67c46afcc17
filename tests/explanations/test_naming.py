"""Scores of features add up to those of their nodes, and are told by the names of columns, with what they add up to."""

import pytest
import torch
from torch import Tensor, nn

from apps.markup import Page
from edgewise import Graph, aggregate, explain
from edgewise.errors import ExplanationError
from edgewise.explanations import Explained, Feature, Names, scores
from edgewise.layers import GCN

PAIR = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
X, E = torch.tensor([[2.0, -1.0], [0.5, 4.0]]), torch.tensor([[3.0], [5.0]])


class Weighed(nn.Module):
    """All features of nodes by 1 and 10, those of edges by 100, and a product of both kinds."""

    def forward(self, graph: Graph, x: Tensor, e: Tensor) -> Tensor:
        plain = (x @ torch.tensor([[1.0], [10.0]])).sum(0) + 100 * e.sum(0)
        return (plain + x[0, :1] * e[0])[None]


def test_features_of_nodes_and_edges_add_up_to_the_output_together() -> None:
    why = explain(Weighed(), PAIR, X, (0, 0), features=(E,), features_baseline=0.0)
    assert why.features[0].tolist() == [[pytest.approx(2 + 3), pytest.approx(-10)], [0.5, pytest.approx(40)]]
    assert why.features[1].flatten().tolist() == [pytest.approx(300 + 3), pytest.approx(500)]
    (features,) = why.sums()
    assert features.baseline == 0 and features.parts == pytest.approx(why.value) and abs(features.remainder) < 1e-3
    torch.testing.assert_close(why.features[0].sum(-1), why.nodes)


def test_further_features_stay_where_they_have_no_baseline() -> None:
    why = explain(Weighed(), PAIR, X, (0, 0), features=(E,))
    assert len(why.features) == 1 and why.features[0].tolist() == [[pytest.approx(8), -10], [0.5, 40]]
    assert why.sums()[0].baseline == 800
    with pytest.raises(ExplanationError, match="goes with a baseline of x"):
        explain(Weighed(), PAIR, X, (0, 0), features=(E,), baseline=None, features_baseline=0.0)


@pytest.mark.parametrize("method", ["integrated-gradients", "gradient"])
def test_of_a_large_graph_features_lie_where_their_nodes_do(method: str) -> None:
    steps = torch.arange(199)
    path = Graph.from_edge_index(torch.stack([steps, steps + 1]), num_nodes=200)
    torch.manual_seed(0)
    why = explain(nn_of_two(), path, torch.randn(200, 3), (150, 1), method)
    assert why.features[0].shape == (200, 3)
    torch.testing.assert_close(why.features[0].sum(-1), why.nodes)
    assert why.features[0].abs().sum(-1).nonzero().flatten().tolist() == [148, 149, 150]


def nn_of_two() -> nn.Module:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second = GCN(3, 4), GCN(4, 2)

        def forward(self, graph: Graph, x: Tensor) -> Tensor:
            return self.second(graph, torch.relu(self.first(graph, x)))

    return Two()


def test_tables_name_columns_cells_and_the_baseline() -> None:
    category = Feature("pet", 2, lambda x: "cat" if x[0] else "dog", "none")
    names = Names("the size", "m", ["anna", "ben"], [Feature("age", at="40"), category])

    class Sizes(nn.Module):
        def forward(self, graph: Graph, x: Tensor) -> Tensor:
            return x @ torch.tensor([[1.0], [2.0], [4.0]]) + aggregate(graph, x[:, :1])

    x = torch.tensor([[0.5, 1.0, 0.0], [3.0, 0.0, 1.0]])
    why = scores(Explained(Sizes(), (PAIR, x), (0, 0)), "integrated-gradients", names=names)
    tables = {one.title: one for one in why.listings()}
    columns = dict(zip((row[0] for row in tables["Features"].cells), tables["Features"].scores, strict=True))
    assert columns == {"age": pytest.approx(3.5), "pet": pytest.approx(2)}
    assert tables["Features"].rows[0] == ["age", "+0.5", "+3", "+3.5"]  # in all, of anna's own and of others'
    assert tables["Entries"].cells[:2] == [["ben", "age", "3", "40"], ["anna", "pet", "cat", "none"]]
    told = names.told(why.value, why.sums()[0])
    assert "add up to +5.5 m: the output is 5.5 m, at the baseline (age 40, pet none) 0" in told


def test_a_table_that_is_cut_says_what_the_rest_adds_up_to() -> None:
    class Mean(nn.Module):
        def forward(self, graph: Graph, x: Tensor) -> Tensor:
            return x.sum(0)[None]

    graph = Graph.from_edge_index([[0], [1]], num_nodes=30)
    why = explain(Mean(), graph, torch.arange(30.0)[:, None], (0, 0))
    nodes = why.listings()[-1]
    assert len(nodes.cells) == 11 and nodes.cells[-1] == ["19 more"]
    assert sum(nodes.scores) == pytest.approx(why.value) == 435


def test_a_notebook_shows_it_escaped_and_without_a_request() -> None:
    bad = "<script src='http://x.org'>alert(1)</script>"
    names = Names(bad, bad, [bad, bad], [Feature(bad, says=lambda x: bad, at=bad), Feature("b")], baseline=bad)
    why = scores(Explained(GCN(2, 1), (PAIR, X), (0, 0)), "integrated-gradients", names=names)
    shown = Page(why._repr_html_())
    assert not shown.tags & {"script", "img", "link", "iframe", "style"}
    assert not shown.attributes & {"src", "href", "onload"} and "remainder" in why._repr_html_()


def test_methods_without_parts_have_no_sums() -> None:
    for method in ("learned-mask", "leave-one-out"):
        why = explain(GCN(2, 1), PAIR, X, (0, 0), method)
        assert bool(why.sums()) == why.signed and not why.features
