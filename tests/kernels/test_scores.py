"""Each score against its equation, and the algebra between scores."""

import pytest
import torch

from edgewise import (
    Additive,
    Dot,
    EdgeBias,
    EdgeVectors,
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
    collect,
    complete,
)
from edgewise.errors import BackendRefusal


def normal(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def softmax_by_hand(s_ij: torch.Tensor, v: torch.Tensor) -> torch.Tensor:
    """Σ_j softmax_j(s_ij) v_j for s [I, J, H] and v [J, H, D]."""
    return torch.einsum("ijh,jhd->ihd", s_ij.softmax(1), v)


def test_dot_scale_and_cap():
    q, k, v = normal(3, 2, 5), normal(4, 2, 5), normal(4, 2, 6)
    s_ij = 1.5 * torch.tanh(0.3 * torch.einsum("ihc,jhc->ijh", q, k) / 1.5)
    torch.testing.assert_close(attend(complete(3, 4), q, k, v, Dot(scale=0.3, cap=1.5)), softmax_by_hand(s_ij, v))
    s_ij = torch.einsum("ihc,jhc->ijh", q, k) / 5**0.5
    torch.testing.assert_close(attend(complete(3, 4), q, k, v), softmax_by_hand(s_ij, v))


@pytest.mark.parametrize("backend", ["reference", "segment", "native", None])
@pytest.mark.parametrize("alike", [True, False])
def test_additive_with_a_is_the_leaky_product_with_both_ends(backend, alike):
    """Forward, and the gradient of everything, against (3) of the paper written out pair by pair."""
    a, q, v = normal(2 * 5, 2).requires_grad_(), normal(4, 2, 5).requires_grad_(), normal(4, 2, 6)
    k = q if alike else normal(4, 2, 5).requires_grad_()
    a_receiver, a_sender = a.T.split(5, -1)
    y = attend(complete(4), q, k, v, Additive(0.1, a_receiver, a_sender), backend=backend)
    pairs = torch.cat([q[:, None].expand(4, 4, 2, 5), k[None].expand(4, 4, 2, 5)], -1)
    z_ij = torch.einsum("ijhc,ch->ijh", pairs, a)
    expected = softmax_by_hand(torch.where(z_ij > 0, z_ij, 0.1 * z_ij), v)
    torch.testing.assert_close(y, expected)
    leaves = [a, q] if alike else [a, q, k]
    ours, theirs = (torch.autograd.grad(x.square().sum(), leaves, retain_graph=True) for x in (y, expected))
    torch.testing.assert_close(ours, theirs)


def test_additive_with_a_takes_vectors_of_edges_and_shared_keys():
    graph, a = causal(4), (normal(2, 5), normal(2, 5))
    q, k, v = normal(4, 2, 5), normal(4, 1, 5), normal(4, 1, 6)
    vectors = EdgeVectors(keys=normal(graph.num_edges, 2, 5))
    y = attend(graph, q, k, v, Additive(0.2, *a) + vectors)
    k_ij = k.expand(4, 2, 5)[graph.senders] + vectors.keys
    s_ij = torch.nn.functional.leaky_relu((q[graph.receivers] * a[0] + k_ij * a[1]).sum(-1), 0.2)
    expected = attend(graph, None, None, v.expand(4, 2, 6), Uniform() + EdgeBias(s_ij))
    torch.testing.assert_close(y, expected)


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Additive(0.2, normal(2, 5)), "give both, or neither"),
        (lambda: Additive(0.2, normal(2, 4), normal(2, 5)), r"a_receiver is \[2, 4\], but must be \[H, C\] = \[2, 5\]"),
        (lambda: GatedAdditive(normal(5)), r"GatedAdditive: a is \[5\]"),
        (Additive, "reads 1 channel of each end"),
    ],
)
def test_vectors_of_a_score_must_fit_the_heads(build, message):
    q = normal(3, 2, 5)
    with pytest.raises(ShapeError, match=message):
        attend(complete(3), q, q, q, build())


@pytest.mark.parametrize("sigma", [0.5, torch.tensor([0.5, 2.0], dtype=torch.float64)])
def test_gaussian_is_a_kernel_regression_and_a_dot_product(sigma):
    q, k, v = normal(3, 2, 5), normal(4, 2, 5), normal(4, 2, 6)
    weight = torch.exp(-(q[:, None] - k[None]).square().sum(-1) / (2 * sigma**2))  # Nadaraya–Watson
    expected = torch.einsum("ijh,jhd->ihd", weight / weight.sum(1, keepdim=True), v)
    for backend in ("reference", "segment", "dense"):
        torch.testing.assert_close(attend(complete(3, 4), q, k, v, Gaussian(sigma), backend=backend), expected)


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


def test_relative_bias_counts_from_the_receiver_offset():
    table = torch.arange(7.0).view(1, 7)
    late = causal(1, senders=4, offset=3)
    assert RelativeBias(table).on_edges(late).flatten().tolist() == [6.0, 5.0, 4.0, 3.0]


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (lambda: Dot(cap=0.0), "cap must be positive"),
        (lambda: Gaussian(0.0), "sigma must be positive"),
        (lambda: RelativeBias(torch.zeros(2, 4)), "odd width"),
        (lambda: RelativeBias([[0.0]]), "odd width, not a list"),
        (lambda: Dot([1.0, 2.0]), r"scale must be a number or a tensor \[H\], not \[1.0, 2.0\]"),
        (lambda: Kernel(None), "feature_map must be a function such as torch.exp, not a NoneType"),
    ],
)
def test_impossible_scores_are_refused(build, message):
    with pytest.raises(ShapeError, match=message):
        build()


@pytest.mark.parametrize(
    ("score", "message"),
    [
        (Gaussian(torch.ones(3)), r"Gaussian: sigma is \[3\], but must be one number or \[H\] = \[2\]"),
        (Gaussian(torch.ones(2, device="meta")), "Gaussian: sigma is on meta"),
        (Additive(0.2, [[1.0] * 4] * 2, [[1.0] * 4] * 2), r"a_receiver is a list, but must be \[H, C\] = \[2, 4\]"),
        (GatedAdditive(None), r"a is a NoneType, but must be \[H, C\] = \[2, 4\]"),
        (Dot() + EdgeVectors([1.0]), r"EdgeVectors holds keys a list, but they must be \[\*, E, H, C\]"),
    ],
)
def test_parts_of_a_score_that_do_not_fit_the_heads_are_refused(score, message):
    x = torch.zeros(3, 2, 4)
    with pytest.raises(ShapeError, match=message):
        attend(complete(3), x, x, x, score)


@pytest.mark.parametrize("bias", [EdgeBias(torch.zeros(5, 2)), SenderBias(torch.zeros(4, 2)), EdgeBias(torch.zeros(9))])
def test_biases_of_the_wrong_size_say_what_would_fit(bias):
    x = torch.zeros(3, 2, 4)
    for backend in ("reference", "segment", "dense"):
        with pytest.raises(ShapeError, match=r"must be \[\*, [EJ], H\] with [EJ] = \d"):
            attend(complete(3), x, x, x, Dot() + bias, backend=backend)


# Vectors of edges


def with_vectors(graph):
    """q, k, v and both vectors, and attention with them as a function of these."""
    e = graph.num_edges
    q, k = normal(graph.num_receivers, 2, 3), normal(graph.num_senders, 2, 3)
    leaves = (q, k, normal(graph.num_senders, 2, 4), normal(e, 2, 3), normal(e, 2, 4))
    leaves = tuple(leaf.requires_grad_() for leaf in leaves)
    return leaves, lambda q, k, v, keys, values: attend(graph, q, k, v, Dot() + EdgeVectors(keys, values))


def test_vectors_of_edges_are_added_to_the_keys_and_values_of_their_senders():
    graph = Graph.from_edge_index([[0, 1, 1, 2, 0], [1, 0, 2, 2, 2]], num_nodes=4)
    leaves, call = with_vectors(graph)
    q, k, v, keys, values = leaves
    expected = torch.zeros(4, 2, 4, dtype=torch.float64)
    for i in range(4):
        edges = [e for e in range(5) if graph.receivers[e] == i]
        for h in range(2):
            k_j = [k[graph.senders[e], h] + keys[e, h] for e in edges]
            p = torch.stack([q[i, h] @ k_e / 3**0.5 for k_e in k_j]).softmax(0) if edges else []
            for p_e, e in zip(p, edges, strict=True):
                expected[i, h] += p_e * (v[graph.senders[e], h] + values[e, h])
    torch.testing.assert_close(call(*leaves), expected)
    assert torch.autograd.gradcheck(call, leaves)


@pytest.mark.parametrize("score", [Dot(cap=2.0), GatedAdditive(normal(2, 3)), Gaussian(1.5), Kernel(torch.exp)])
def test_segment_and_reference_agree_on_vectors_of_edges(score):
    graph = Graph.from_edge_index(torch.randint(4, (2, 9)), num_nodes=4)
    (q, k, v, keys, values), _ = with_vectors(graph)
    score = score + EdgeVectors(keys, values) + EdgeBias(normal(9, 2))
    found, expected = (attend(graph, q, k, v, score, backend=name) for name in (None, "reference"))
    torch.testing.assert_close(found, expected)


def test_vectors_of_values_alone_leave_the_weights_as_they_are():
    graph = Graph.from_edge_index(torch.randint(4, (2, 9)), num_nodes=4)
    (_, _, v, _, values), _ = with_vectors(graph)
    found = attend(graph, None, None, v, Uniform() + EdgeVectors(values=values))
    torch.testing.assert_close(found, collect(graph, (v[graph.senders] + values).flatten(1), "mean").view(4, 2, 4))


def test_vectors_of_edges_that_do_not_fit_are_refused():
    graph = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
    x, wrong = normal(2, 2, 3), normal(2, 2, 5)
    with pytest.raises(
        ShapeError, match=r"holds keys \[2, 2, 5\], but they must be \[\*, E, H, C\] with E = 2, H = 2 and C = 3"
    ):
        attend(graph, x, x, x, Dot() + EdgeVectors(keys=wrong))
    with pytest.raises(ShapeError, match="the score reads none: give values only"):
        attend(graph, None, None, x, Uniform() + EdgeVectors(keys=x))
    with pytest.raises(ShapeError, match="Dot has vectors of edges already"):
        Dot() + EdgeVectors(x) + EdgeVectors(x)
    with pytest.raises(BackendRefusal, match="'tiled' cannot run this call: it adds no vectors of edges"):
        attend(graph, x, x, x, Dot() + EdgeVectors(x), backend="tiled")


def test_the_graph_transformer_of_torch_geometric_is_attention_with_vectors_of_edges():
    geometric = pytest.importorskip("torch_geometric.nn")
    layer = geometric.TransformerConv(5, 4, heads=3, edge_dim=2, root_weight=False).double()
    edge_index = torch.randint(6, (2, 20))
    graph = Graph.from_edge_index(edge_index, num_nodes=6)
    x, features = normal(6, 5), normal(20, 2)
    q, k, v = (linear(x).view(6, 3, 4) for linear in (layer.lin_query, layer.lin_key, layer.lin_value))
    e_ij = layer.lin_edge(graph.sort_edges(features)).view(20, 3, 4)
    y = attend(graph, q, k, v, Dot() + EdgeVectors(e_ij, e_ij))
    torch.testing.assert_close(y.flatten(1), layer(x, edge_index, features))
