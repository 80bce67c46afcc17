"""Each score against its equation, and the algebra between scores."""

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
    RelativeBias,
    SenderBias,
    ShapeError,
    Uniform,
    attend,
    causal,
    complete,
)


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def softmax_by_hand(s_ij: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Σ_j softmax_j(s_ij) v_j for s [I, J, H] and v [J, H, D]."""
    return torch.einsum("ijh,jhd->ihd", s_ij.softmax(1), v)


def test_dot_is_scaled_by_the_root_of_the_channels():
    q, k, v = normal(3, 2, 5), normal(4, 2, 5), normal(4, 2, 6)
    s_ij = torch.einsum("ihc,jhc->ijh", q, k) / 5**0.5
    torch.testing.assert_close(attend(complete(3, 4), q, k, v), softmax_by_hand(s_ij, v))


def test_dot_scale_and_cap():
    q, k, v = normal(3, 2, 5), normal(4, 2, 5), normal(4, 2, 6)
    s_ij = 1.5 * torch.tanh(0.3 * torch.einsum("ihc,jhc->ijh", q, k) / 1.5)
    torch.testing.assert_close(attend(complete(3, 4), q, k, v, Dot(scale=0.3, cap=1.5)), softmax_by_hand(s_ij, v))


def test_additive_is_a_leaky_sum_of_ends():
    q, k, v = normal(3, 2, 1), normal(4, 2, 1), normal(4, 2, 6)
    z_ij = (q[:, None] + k[None]).squeeze(-1)
    s_ij = torch.where(z_ij > 0, z_ij, 0.1 * z_ij)
    torch.testing.assert_close(attend(complete(3, 4), q, k, v, Additive(slope=0.1)), softmax_by_hand(s_ij, v))


def test_gated_additive_has_the_nonlinearity_inside():
    a, q, k, v = normal(2, 5), normal(3, 2, 5), normal(4, 2, 5), normal(4, 2, 6)
    z_ij = q[:, None] + k[None]
    s_ij = (torch.where(z_ij > 0, z_ij, 0.2 * z_ij) * a).sum(-1)
    torch.testing.assert_close(attend(complete(3, 4), q, k, v, GatedAdditive(a)), softmax_by_hand(s_ij, v))


@pytest.mark.parametrize("sigma", [0.5, torch.tensor([0.5, 2.0], dtype=torch.float64)])
def test_gaussian_is_a_kernel_regression_and_a_dot_product(sigma):
    q, k, v = normal(3, 2, 5), normal(4, 2, 5), normal(4, 2, 6)
    weight = torch.exp(-(q[:, None] - k[None]).square().sum(-1) / (2 * sigma**2))  # Nadaraya–Watson
    expected = torch.einsum("ijh,jhd->ihd", weight / weight.sum(1, keepdim=True), v)
    for backend in ("reference", "segment", "dense"):
        torch.testing.assert_close(attend(complete(3, 4), q, k, v, Gaussian(sigma), backend=backend), expected)


def test_uniform_is_the_mean_of_the_senders():
    v = normal(5, 2, 3)
    expected = v.cumsum(0) / torch.arange(1, 6).view(-1, 1, 1)
    torch.testing.assert_close(attend(causal(5), None, None, v, Uniform()), expected)
    torch.testing.assert_close(attend(causal(5), None, None, v, Uniform(), backend="segment"), expected)


def test_kernel_normalises_its_own_weights():
    def features(x: torch.Tensor) -> torch.Tensor:
        return x.exp()

    q, k, v = normal(3, 2, 5), normal(4, 2, 5), normal(4, 2, 6)
    weight = torch.einsum("ihc,jhc->ijh", q.exp(), k.exp())
    expected = torch.einsum("ijh,jhd->ihd", weight / weight.sum(1, keepdim=True), v)
    torch.testing.assert_close(attend(complete(3, 4), q, k, v, Kernel(features)), expected)


def test_biases_add_up_after_the_score():
    graph = Graph.from_edge_index([[0, 1, 2, 0], [0, 0, 1, 1]], num_nodes=3)
    q, k, v = normal(3, 2, 5), normal(3, 2, 5), normal(3, 2, 4)
    edge, table, sender = normal(4, 2), normal(2, 3), normal(3, 2)
    s_ij = torch.full((3, 3, 2), float("-inf"), dtype=torch.float64)
    for e, (j, i) in enumerate(graph.edge_index().t().tolist()):
        distance = max(-1, min(1, i - j))
        s_ij[i, j] = (q[i] * k[j]).sum(-1) / 5**0.5 + edge[e] + table[:, distance + 1] + sender[j]
    score = Dot() + EdgeBias(edge) + RelativeBias(table) + SenderBias(sender)
    for backend in ("reference", "segment", "dense"):
        y = attend(graph, q, k, v, score, backend=backend)
        torch.testing.assert_close(y[:2], softmax_by_hand(s_ij[:2], v))
        assert (y[2] == 0).all(), "node 2 listens to nobody"


def test_adding_a_bias_leaves_the_score_as_it_was():
    score = Dot(cap=3.0)
    biased = score + SenderBias(normal(4, 1))
    assert score.biases == () and len(biased.biases) == 1 and biased.cap == 3.0


def test_relative_bias_counts_from_the_receiver_offset():
    table = torch.arange(7.0).view(1, 7)
    late = causal(1, senders=4, offset=3)
    assert RelativeBias(table).on_edges(late).flatten().tolist() == [6.0, 5.0, 4.0, 3.0]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Dot(cap=0.0), "cap must be positive"),
        (lambda: Dot(cap=-1.0), "cap must be positive"),
        (lambda: Gaussian(0.0), "sigma must be positive"),
        (lambda: Gaussian(-2), "sigma must be positive"),
        (lambda: RelativeBias(torch.zeros(2, 4)), "odd width"),
        (lambda: RelativeBias(torch.zeros(3)), "odd width"),
    ],
)
def test_impossible_scores_are_refused(build, message):
    with pytest.raises(ShapeError, match=message):
        build()


@pytest.mark.parametrize("bias", [EdgeBias(torch.zeros(5, 2)), SenderBias(torch.zeros(4, 2)), EdgeBias(torch.zeros(9))])
def test_biases_of_the_wrong_size_say_what_would_fit(bias):
    x = torch.zeros(3, 2, 4)
    for backend in ("reference", "segment", "dense"):
        with pytest.raises(ShapeError, match=r"must be \[\*, [EJ], H\] with [EJ] = \d"):
            attend(complete(3), x, x, x, Dot() + bias, backend=backend)
