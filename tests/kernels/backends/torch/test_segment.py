"""What `segment` promises beyond agreeing with `reference`: precision, second derivatives, sparse products."""

import pytest
import torch

from edgewise import (
    Additive,
    Dot,
    EdgeBias,
    GatedAdditive,
    Gaussian,
    Graph,
    Kernel,
    Uniform,
    aggregate,
    attend,
    collect,
)
from edgewise.kernels.backends.torch.segment import WeightedSum
from kernels.drawn import random_graph


@pytest.mark.parametrize("score", [Dot(), Dot(cap=2.0), Additive()])
def test_attention_has_first_and_second_derivatives(score):
    graph = random_graph(4, 3, 7)
    width = 1 if isinstance(score, Additive) else 2
    q, k, v = (
        torch.randn(n, 2, c, dtype=torch.float64, requires_grad=True) for n, c in ((4, width), (3, width), (3, 2))
    )

    def call(q, k, v):
        return attend(graph, q, k, v, score, backend="segment")

    assert torch.autograd.gradcheck(call, (q, k, v))
    assert torch.autograd.gradgradcheck(call, (q, k, v))


@pytest.mark.parametrize("weighted", [False, True])
def test_sums_have_first_and_second_derivatives(weighted):
    graph = random_graph(4, 3, 7)
    x = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(7, dtype=torch.float64, requires_grad=True) if weighted else None

    def call(*tensors):
        return aggregate(graph, *tensors, backend="segment")

    inputs = (x,) if weight is None else (x, weight)
    assert torch.autograd.gradcheck(call, inputs)
    assert torch.autograd.gradgradcheck(call, inputs)


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
def test_half_precision_loses_at_most_twice_what_rounding_the_result_loses(half):
    graph = random_graph(30, 40, 900)
    q, k, v = (torch.randn(n, 2, 16).to(half) for n in (30, 40, 40))
    exact = attend(graph, q.double(), k.double(), v.double(), backend="reference")
    y = attend(graph, q, k, v, backend="segment")
    assert y.dtype == half
    plain = attend(graph, q, k, v, backend="reference")
    assert (y - exact).abs().max() <= 2 * (plain - exact).abs().max()
    m_ij = torch.ones(900, 1, dtype=half)
    assert (collect(graph, m_ij, backend="segment").flatten() == graph.in_degrees()).all()


def test_float32_error_is_at_most_twice_that_of_the_plain_equation():
    graph = random_graph(50, 60, 2000)
    q, k, v = (4 * torch.randn(n, 4, 16) for n in (50, 60, 60))
    exact = attend(graph, q.double(), k.double(), v.double(), backend="reference")
    plain = (attend(graph, q, k, v, backend="reference") - exact).abs().max()
    assert (attend(graph, q, k, v, backend="segment") - exact).abs().max() <= 2 * plain


def test_a_weighted_sum_keeps_no_edge_sized_features():
    graph = random_graph(50, 50, 5000)
    x, weight = torch.randn(50, 64, requires_grad=True), torch.rand(5000)
    y = WeightedSum.apply(graph, weight, x)
    saved = [t for t in y.grad_fn.saved_tensors if t is not None]
    assert max(t.numel() for t in saved) == 5000, "only the weights are as long as the edges"


def test_integers_are_aggregated_exactly():
    graph = Graph.from_edge_index([[0, 1, 2], [2, 2, 0]], num_nodes=3)
    x = torch.tensor([[2**40 + 1], [3], [5]])
    assert aggregate(graph, x, backend="segment").flatten().tolist() == [5, 0, 2**40 + 4]


@pytest.mark.parametrize("reduce", ["max", "min"])
def test_an_extreme_of_0_passes_its_whole_gradient_on(reduce):
    graph = Graph.from_edge_index([[0, 1], [0, 0]], num_nodes=2)
    m_ij = torch.zeros(2, 1, requires_grad=True)
    y = collect(graph, m_ij, reduce, backend="segment")
    assert y.tolist() == [[0], [0]], "a receiver without senders gives 0"
    assert torch.autograd.grad(y.sum(), m_ij)[0].flatten().tolist() == [0.5, 0.5]


def test_a_receiver_whose_senders_are_all_masked_gives_0():
    graph = Graph.from_edge_index([[0, 1, 0], [0, 0, 1]], num_nodes=2)
    bias = torch.tensor([[float("-inf")], [float("-inf")], [0.0]], requires_grad=True)
    x = torch.randn(2, 1, 3, requires_grad=True)
    y = attend(graph, x, x, x, Dot() + EdgeBias(bias), backend="segment")
    assert (y[0] == 0).all()
    assert torch.equal(y[1], x[0])
    assert all(found.isfinite().all() for found in torch.autograd.grad(y.sum(), (x, bias)))


@pytest.mark.parametrize(
    "score", [Dot(), Dot(cap=20.0), Gaussian(300.0), GatedAdditive(torch.ones(2, 64)), Kernel(torch.relu)]
)
def test_scores_of_float16_are_finite_where_their_terms_add_up_to_more_than_it_holds(score):
    graph = random_graph(50, 50, 300)
    q, v = (60 * torch.randn(50, 2, 64)).half().requires_grad_(), torch.randn(50, 2, 8).half()
    y = attend(graph, q, q, v, score, backend="segment")
    exact = attend(graph, q.double(), q.double(), v.double(), score, backend="reference")
    torch.testing.assert_close(y.double(), exact, atol=5e-3, rtol=5e-3)
    assert torch.autograd.grad(y.float().sum(), q)[0].isfinite().all()


def test_a_mean_of_complex_values_comes_with_real_weights():
    graph, v = random_graph(4, 3, 7), torch.randn(3, 1, 2, dtype=torch.complex128)
    y, p = attend(graph, None, None, v, Uniform(), return_weights=True, backend="segment")
    assert torch.allclose(y, attend(graph, None, None, v, Uniform()))
    assert torch.allclose(p[:, 0], 1 / graph.in_degrees()[graph.receivers].double())
