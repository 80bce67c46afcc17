"""Integrated gradients add up for a model of every family; gradients are those of the equation."""

import pytest
import torch
from torch import Tensor, nn

from edgewise import Graph, aggregate, explain
from edgewise.errors import ExplanationError
from edgewise.explanations import Explained
from edgewise.layers import GCN
from explanations.families import EVERY, FAMILIES, baseline_of, family

# No verb runs along their edges, but along those of places, blocks, members or not at all.
WITHOUT_EDGES = (
    *("deep sets", "perceptron", "randomised perceptron", "recurrent", "group cnn", "hopfield pooling"),
    *("gnn sage-lstm", "text lsh", "text routing", "text sinkhorn"),
)
PATH = Graph.from_edge_index([[0, 1], [1, 2]], num_nodes=3)


@pytest.mark.parametrize("name", EVERY)
def test_integrated_gradients_add_up(name: str) -> None:
    model, inputs, index = family(name)
    baseline = baseline_of(name)
    calls: list[int] = []
    hook = model.register_forward_hook(lambda *_: calls.append(1))
    why = explain(model, *inputs, index, "integrated-gradients", baseline=baseline)
    hook.remove()
    assert len(calls) <= (600 if name == "deep sets" else 200)  # that one has some 60 kinks on the way
    explained = Explained(model, inputs, index, baseline=baseline)
    with torch.no_grad():
        without_nodes = float(explained(torch.zeros(explained.num_nodes)))
        without_edges = float(explained(None, torch.zeros(explained.edges.num_edges)))
    if baseline is not None:
        assert float(why.nodes.sum()) == pytest.approx(why.value - without_nodes, abs=1e-3)
    if why.edges is not None:
        assert float(why.edges.sum()) == pytest.approx(why.value - without_edges, abs=1e-3)
    assert why.missed is not None and why.missed < 1e-3
    assert (why.edges is None) == (name in WITHOUT_EDGES)
    assert why.nodes.abs().sum() > 0


@pytest.mark.parametrize("name", ["deep sets", "gnn gated-gcn"])
def test_integrated_gradients_are_those_of_a_fine_grid(name: str) -> None:
    model, inputs, index = family(name)
    why, explained = explain(model, *inputs, index), Explained(model, inputs, index)
    total, points = torch.zeros(explained.num_nodes), (torch.arange(300) + 0.5) / 300
    for place in points.tolist():
        gate = torch.full((explained.num_nodes,), place, requires_grad=True)
        total += torch.autograd.grad(explained(gate), gate)[0] / len(points)
    torch.testing.assert_close(why.nodes, total, atol=5e-3, rtol=0)


def test_one_interval_is_exact_for_a_kink_between_its_points() -> None:
    pair, calls = Graph.from_edge_index([[0], [1]], num_nodes=2), []

    class Kink(nn.Module):
        def forward(self, graph: Graph, x: Tensor) -> Tensor:
            calls.append(1)
            return torch.relu(x[:1] + x[1:2] - 0.6) + 0.3 * x[:1]

    why = explain(Kink(), pair, torch.tensor([[0.75], [0.25]]), (0, 0))  # F = relu(α - 0.6) + 0.225 α
    torch.testing.assert_close(why.nodes, torch.tensor([0.75 * 0.4 + 0.225, 0.25 * 0.4]))
    assert len(calls) < 40


def test_a_model_that_jumps_costs_a_bounded_number_of_evaluations() -> None:
    calls = []

    class Jumps(nn.Module):
        def forward(self, graph: Graph, x: Tensor) -> Tensor:
            calls.append(1)
            return (40 * x).floor() / 40 + 0 * x + x * aggregate(graph, x).square()

    why = explain(Jumps(), PATH, torch.rand(3, 1) + 1, (1, 0))
    assert why.missed is not None and why.missed > 0.1
    assert len(calls) <= 2 * (398 + 200) + 10


@pytest.mark.parametrize("name", FAMILIES)
def test_gradients_are_those_of_finite_differences(name: str) -> None:
    model, inputs, index = family(name)
    baseline = baseline_of(name)
    model = model.double()
    inputs = tuple(x.double() if isinstance(x, Tensor) and x.is_floating_point() else x for x in inputs)
    why = explain(model, *inputs, index, "gradient", baseline=baseline)
    explained, step = Explained(model, inputs, index, baseline=baseline), 1e-4
    with torch.no_grad():
        for count, scores, of_edges in (
            (explained.num_nodes, why.nodes, False),
            (explained.edges.num_edges, why.edges, True),
        ):
            if scores is None or (baseline is None and not of_edges):
                continue
            for number in range(0, count, 6):
                at = torch.ones(2, count, dtype=torch.float64)
                at[0, number], at[1, number] = 1 + step, 1 - step
                up, down = (float(explained(None, g) if of_edges else explained(g)) for g in at)
                assert float(scores[number]) == pytest.approx((up - down) / (2 * step), abs=1e-4)


def test_gradient_times_input_is_the_sum_over_channels() -> None:
    torch.manual_seed(0)
    layer, x = GCN(4, 2), torch.randn(3, 4, requires_grad=True)
    (slope,) = torch.autograd.grad(layer(PATH, x).tanh()[2, 0], x)
    why = explain(layer, PATH, x.detach(), lambda y: y.tanh()[2, 0], "gradient", node=2)
    torch.testing.assert_close(why.nodes, (slope * x).sum(-1).detach())


def test_a_gradient_that_is_not_finite_is_refused() -> None:
    class Root(nn.Module):
        def forward(self, graph: Graph, x: Tensor) -> Tensor:
            return torch.where(x[:, :1] > 0.5, x[:, :1], torch.nan * x[:, :1])

    with pytest.raises(ExplanationError, match=r"finite number"):
        explain(Root(), PATH, torch.ones(3, 1), (1, 0))


def test_an_edge_that_is_read_twice_counts_with_both() -> None:
    class Twice(nn.Module):
        def forward(self, graph: Graph, x: Tensor) -> Tensor:
            return aggregate(graph, aggregate(graph, x))

    two = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)  # F = m₀ m₁ x
    why = explain(Twice(), two, torch.tensor([[3.0], [0.0]]), (0, 0))
    assert why.edges is not None
    assert why.edges.tolist() == pytest.approx([1.5, 1.5], abs=1e-3)
    assert why.nodes.tolist() == pytest.approx([3.0, 0.0], abs=1e-3)
