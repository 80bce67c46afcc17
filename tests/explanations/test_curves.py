"""Curves of a model whose edges count is known by hand."""

import pytest
import torch
from torch import Tensor, nn

from edgewise import ExplanationError, Graph, aggregate, explain, fidelity
from edgewise.explanations.curves import Curve

STAR = Graph.from_edge_index([torch.arange(1, 11).tolist(), [0] * 10], num_nodes=11)
X = torch.cat([torch.zeros(1), torch.tensor([5.0, 3.0, 2.0]), torch.zeros(7)])[:, None]


class Reads(nn.Module):
    def forward(self, graph: Graph, x: Tensor) -> Tensor:
        return aggregate(graph, x)


@pytest.mark.parametrize("of", ["edges", "nodes"])
def test_what_counts_most_is_deleted_and_inserted_first(of: str) -> None:
    why = explain(Reads(), STAR, X, (0, 0), "gradient")
    made = fidelity(why, of)  # type: ignore[arg-type]
    assert made.method.deletion[:4].tolist() == [10.0, 5.0, 2.0, 0.0]
    assert made.method.insertion[:4].tolist() == [0.0, 5.0, 8.0, 10.0]
    assert made.count == (10 if of == "edges" else 11)
    assert made.margin > 0.5


def test_an_exact_order_beats_the_reverse() -> None:
    why = explain(Reads(), STAR, X, (0, 0), "leave-one-out")
    assert why.edges is not None
    worst = type(why)(why.method, why.graph, -why.edges, why.nodes, why.value, explained=why.explained)
    assert fidelity(worst).margin < 0 < fidelity(why).margin


def test_another_number_may_be_shown() -> None:
    why = explain(Reads(), STAR, X, (0, 0), "gradient")
    made = fidelity(why, shown=lambda y: 2 * y[0, 0])
    assert made.method.deletion[0] == 20.0 and made.method.insertion[-1] == 20.0


def test_the_area_is_that_between_insertion_and_deletion() -> None:
    assert Curve(torch.zeros(11), torch.ones(11)).area == 1.0
    assert Curve(torch.linspace(1, 0, 11), torch.linspace(0, 1, 11)).area == pytest.approx(0.0, abs=1e-6)


def test_edges_that_no_model_reads_cannot_be_deleted() -> None:
    class Alone(nn.Module):
        def forward(self, graph: Graph, x: Tensor) -> Tensor:
            return x

    why = explain(Alone(), STAR, X, (1, 0), "gradient")
    assert why.edges is None
    with pytest.raises(ExplanationError, match="reads no edges"):
        fidelity(why)
    assert fidelity(why, "nodes").count == 1


def test_the_degree_curve_deletes_the_highest_degree_first():
    """Node 0 listens to 1, of degree 1, and to 2, which also listens to 3 to 9: deleted first, it leaves 1's share."""
    graph = Graph.from_edge_index([[1, 2, *range(3, 10)], [0, 0, *[2] * 7]], num_nodes=10)
    x = torch.tensor([0.0, 1, 5, *[0] * 7])[:, None]
    found = fidelity(explain(Reads(), graph, x, (0, 0), "gradient"), "nodes").degree
    assert found.deletion[0] == 6 and found.deletion[5] == 1
