"""What the verbs accept, refuse and promise, whichever backend runs."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch._dynamo.testing import CompileCounterWithBackend

from edgewise import (
    BackendRefusal,
    Dot,
    EdgeBias,
    Graph,
    ShapeError,
    Uniform,
    aggregate,
    attend,
    causal,
    collect,
    complete,
    ends,
    plan,
    record,
    use_backend,
    window,
)
from edgewise.kernels.backends import BACKENDS
from edgewise.native import library


def zeros(*shape: int) -> torch.Tensor:
    return torch.zeros(*shape)


GRAPH = complete(3, 4)
Q, K = zeros(3, 1, 2), zeros(4, 1, 2)
M = zeros(12, 2)
WRONG = [
    (lambda: attend(GRAPH, Q, K, zeros(3, 1, 2)), "v is .* with 4 rows"),
    (lambda: attend(GRAPH, zeros(3, 2), zeros(4, 2), zeros(4, 2)), r"must be \[\*, J, H, C\]"),
    (lambda: attend(GRAPH, [1.0], K, K), "must be a tensor"),
    (lambda: attend(GRAPH, Q, None, K, Uniform()), "pass None"),
    (lambda: attend(GRAPH, Q, zeros(4, 1, 3), K), "2 channels and keys 3"),
    (lambda: attend(GRAPH, zeros(3, 4, 2), zeros(4, 3, 2), zeros(4, 3, 2)), "must divide"),
    (lambda: attend(GRAPH, zeros(2, 3, 1, 2), K, K), "one leading batch"),
    (lambda: attend(GRAPH, Q, K.double(), K), "one dtype"),
    (lambda: attend(GRAPH, Q, K, K, dropout="0.1"), "probability"),
    (lambda: attend(GRAPH, *(x.to(torch.float8_e5m2) for x in (Q, K, K))), "must hold real numbers"),
    (lambda: attend(causal(3), *3 * [Q.long()]), "must hold real numbers"),  # weights were rounded to whole numbers
    (lambda: attend(GRAPH, Q, K, K.to("meta")), "v is on meta, where no tensor holds numbers"),
    (lambda: attend(GRAPH, Q, K, K, Dot() + zeros(12, 1)), r"write Dot\(\) \+ EdgeBias"),
    (lambda: attend(GRAPH, Q, K, K, Dot() + EdgeBias([0.0])), "EdgeBias holds a list, but must"),
    (lambda: attend(GRAPH, Q, K, K, Dot() + EdgeBias(zeros(3, 12, 1))), r"leading batch \[.*does not broadcast"),
    (lambda: attend(GRAPH, Q, K, K, Dot(scale=zeros(3))), r"Dot: scale is .*one number or \[H\] = \[1\]"),
    (lambda: aggregate(GRAPH, zeros(4, 2), [1.0] * 12), r"weight must be a tensor .* not \[1.0, "),
    (lambda: aggregate(GRAPH, zeros(4, 2), "mean"), "not 'mean': how to combine is reduce='mean'"),
    (lambda: aggregate(GRAPH, zeros(4, 2), zeros(12) + 0j), "weight is complex and x is not"),
    (lambda: aggregate(GRAPH, zeros(4, 2).to(torch.float8_e5m2)), "PyTorch does not add"),
    (lambda: aggregate(GRAPH, zeros(4, 2) + 0j, reduce="max"), "have no max"),
    (lambda: aggregate(GRAPH, zeros(4, 2), zeros(5)), "with E = 12 edges"),
    (lambda: aggregate(GRAPH, zeros(4, 2), torch.tensor(1.0)), "a single number"),
    (lambda: aggregate(GRAPH, zeros(4, 3, 2), M), "2 heads and x 3"),
    (lambda: aggregate(GRAPH, zeros(2, 4, 2, 5), zeros(3, 12, 2)), r"weight, \[3\], does not broadcast to that of x"),
    (lambda: aggregate(GRAPH, zeros(4, 2), reduce="median"), "choose one of sum"),
    (lambda: collect(GRAPH, zeros(4, 2)), "m_ij is .* with 12 rows"),
    (lambda: ends(GRAPH, [1.0, 2.0]), "x is a list"),
    (lambda: plan(GRAPH, heads=1.5), "in whole numbers, not 1.5"),
    (lambda: plan(GRAPH, dtype="float32"), "as torch.float32, not 'float32'"),
    (lambda: plan(GRAPH, "dot"), r"write Dot\(...\)"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_tensors_that_do_not_fit_are_refused_with_the_shape_that_would(call, message):
    with pytest.raises(ShapeError, match=message):
        call()


@pytest.mark.parametrize("backend", ["reference", "segment", None])
def test_truth_is_counted_as_a_sum_of_tensors_counts_it(backend):
    graph, known = Graph.from_edge_index([[0, 1, 2], [3, 3, 3]], 4), torch.tensor([[True], [True], [False], [False]])
    assert aggregate(graph, known, backend=backend).flatten().tolist() == [0, 0, 0, 2]
    assert collect(graph, known[:3], backend=backend).flatten().tolist() == [0, 0, 0, 2]
    best = aggregate(graph, known, reduce="max", backend=backend)
    assert best.dtype == torch.bool
    assert best.flatten().tolist() == [False, False, False, True]
    share = aggregate(graph, known, reduce="mean", backend=backend)
    assert torch.allclose(share.flatten(), torch.tensor([0, 0, 0, 2 / 3]))


@pytest.mark.parametrize("backend", ["reference", "segment"])
def test_weights_are_returned_on_edges_and_sum_to_one(backend):
    graph = Graph.from_edge_index([[0, 1, 1, 2], [0, 0, 2, 2]], num_nodes=3)
    q, k, v = torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 5), torch.randn(2, 3, 4, 6)
    y, weights = attend(graph, q, k, v, return_weights=True, backend=backend)
    assert weights.shape == (2, 4, 4)
    torch.testing.assert_close(collect(graph, weights)[:, [0, 2]], torch.ones(2, 2, 4))
    torch.testing.assert_close(aggregate(graph, v, weights), y)


@pytest.mark.parametrize("backend", ["reference", "segment", "dense"])
def test_dropout_keeps_the_mean_and_drops_the_asked_share(backend):
    n, p = 400, 0.25
    v = torch.ones(n, 1, 1)
    q = torch.zeros(n, 1, 4)
    y = attend(complete(n), q, q, v, dropout=p, backend=backend)  # each y_i is a binomial mean
    assert y.mean().item() == pytest.approx(1.0, abs=5 * (p / (1 - p)) ** 0.5 / n)
    assert y.var().item() == pytest.approx(p / (1 - p) / n, rel=0.3)
    assert attend(complete(n), q, q, v, backend=backend).flatten().tolist() == pytest.approx([1.0] * n)


def test_a_backend_asked_for_by_name_raises_its_reason():
    x = torch.zeros(3, 1, 4)
    with pytest.raises(BackendRefusal, match="backend 'factored' cannot run this call: it has no Dot score"):
        attend(complete(3), x, x, x, backend="factored")
    with pytest.raises(BackendRefusal, match="no backend 'desne': choose one of dense, factored, "):
        attend(complete(3), x, x, x, backend="desne")
    with use_backend("dense"), pytest.raises(BackendRefusal, match="it runs attend and aggregate, not collect"):
        collect(complete(3), torch.zeros(9, 2))


def test_use_backend_ends_with_its_block():
    with pytest.raises(ValueError, match="inside"), use_backend("factored"):
        raise ValueError("inside")
    attend(complete(3), *[torch.zeros(3, 1, 4)] * 3)


def test_record_sees_every_call_and_changes_no_result():
    x = torch.randn(4, 2, 3)
    plain = attend(causal(4), x, x, x)
    with record() as seen:
        recorded = attend(causal(4), x, x, x)
        attend(complete(4), None, None, x, Uniform())
    attend(causal(4), x, x, x)
    torch.testing.assert_close(recorded, plain)
    assert [one.weights.shape for one in seen] == [(10, 2), (16, 2)]
    assert seen[1].weights.unique().tolist() == [0.25]


def test_ends_of_a_bipartite_graph():
    graph = Graph.from_edge_index([[3, 0], [1, 0]], num_nodes=4, num_receivers=2)
    x_i, x_j = ends(graph, torch.tensor([[1.0], [2.0]]), torch.tensor([[10.0], [20.0], [30.0], [40.0]]))
    assert x_i.flatten().tolist() == [1.0, 2.0] and x_j.flatten().tolist() == [10.0, 40.0]


def drawn(n):
    return Graph.from_edge_index(torch.randint(n, (2, 4 * n)), n)


OTHERS = (complete, causal, partial(window, radius=3))


@pytest.mark.parametrize("graph_of", [drawn, *(pytest.param(one, marks=pytest.mark.compiled) for one in OTHERS)])
def test_what_is_compiled_for_two_graphs_serves_graphs_of_any_size(graph_of):
    def both(graph, x):
        return attend(graph, *3 * [x[:, None]])[:, 0] + aggregate(graph, x)

    counted = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(both, fullgraph=True, backend=counted)
    for n in range(50, 54):
        graph, x = graph_of(n), torch.randn(n, 8)
        torch.testing.assert_close(compiled(graph, x), both(graph, x))
    assert counted.frame_count <= 2


@pytest.mark.parametrize("backend", ["reference", "dense", "segment", "native"])
def test_an_edge_of_bias_minus_infinity_is_no_edge(backend):
    if backend == "native" and library is None:
        pytest.skip("built without the C++ kernels")
    masked = torch.tensor([False, True, False, True, True, True, False, False, False])  # row 1 as a whole
    bias = torch.randn(9, 2, dtype=torch.float64)
    q, k, v = (torch.randn(3, 2, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    open_edges = Graph.from_edge_index(torch.stack([complete(3).senders, complete(3).receivers])[:, ~masked], 3)
    expected = attend(open_edges, q, k, v, Dot() + EdgeBias(bias[~masked]), backend="segment")
    closed = bias.masked_fill(masked[:, None], -torch.inf)
    y = attend(complete(3), q, k, v, Dot() + EdgeBias(closed), backend=backend)
    assert torch.allclose(y, expected, atol=1e-12)
    for found, right in zip(*(torch.autograd.grad(x.square().sum(), (q, k, v)) for x in (y, expected)), strict=True):
        assert torch.allclose(found, right, atol=1e-12)


@pytest.mark.parametrize("size", [4, 512])  # the planner's choice differs
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.bool])
def test_whole_numbers_take_the_dtype_of_real_weights(size, dtype):
    """Weights of ½ were rounded to 0 on large dense graphs."""
    graph, x = complete(size), torch.ones(size, 3).to(dtype)
    halves = torch.full((graph.num_edges,), 0.5)
    for reduce, expected in (("sum", size / 2), ("mean", 0.5), ("max", 0.5)):
        y = aggregate(graph, x, halves, reduce)
        assert y.dtype == torch.float32
        assert y.unique().tolist() == [expected]


@pytest.mark.parametrize("kinds", [(torch.float32, torch.float64), (torch.float64, torch.float32)])
@pytest.mark.parametrize("graph", [Graph.from_edge_index([[0, 1, 2], [2, 2, 0]], 3), complete(3)])
def test_features_and_weights_of_two_dtypes_meet_in_the_wider(graph, kinds):
    x, weight = (
        torch.rand(n, dtype=kind, requires_grad=True) for n, kind in zip((3, graph.num_edges), kinds, strict=True)
    )
    for reduce in ("sum", "mean", "max"):
        expected = aggregate(graph, x.double()[:, None], weight.double(), reduce)
        wanted = torch.autograd.grad(expected.sum(), (x, weight), retain_graph=True)
        for backend in (None, "segment", "dense", "reference", "native"):
            if (backend, reduce) == ("dense", "max") or (backend == "native" and library is None):
                continue
            y = aggregate(graph, x[:, None], weight, reduce, backend=backend)
            torch.testing.assert_close(y, expected, rtol=1e-12, atol=0)
            torch.testing.assert_close(torch.autograd.grad(y.sum(), (x, weight)), wanted)


@pytest.mark.parametrize("graph", [Graph.from_edge_index([[0, 1], [2, 2]], 3), complete(3)])
def test_small_whole_numbers_are_added_up_as_large_ones(graph):
    x = torch.tensor([[200], [100], [0]], dtype=torch.uint8)
    for reduce, expected in (("sum", 300), ("mean", x.double()[graph.senders[graph.receivers == 2]].mean().item())):
        for y in (aggregate(graph, x, reduce=reduce), collect(graph, x[graph.senders], reduce)):
            assert y[2].item() == pytest.approx(expected)


@pytest.mark.parametrize("backend", [None, "segment", "dense", "reference", "factored"])
def test_a_mean_fits_float16_where_the_sum_does_not(backend):
    graph, x = complete(2, 1000), torch.full((1000, 3), 100.0).half().requires_grad_()
    y = aggregate(graph, x, reduce="mean", backend=backend)
    assert y.dtype == torch.float16
    assert (y == 100).all()
    assert torch.allclose(torch.autograd.grad(y.sum(), x)[0], torch.tensor(0.002).half())
    if backend in (None, "segment", "reference"):
        assert (collect(graph, x.detach().repeat(2, 1), "mean", backend=backend) == 100).all()


def test_uniform_attention_to_whole_numbers_is_their_average():
    graph, v = Graph.from_edge_index([[0, 1], [2, 2]], 3), torch.tensor([1, 2, 0]).view(3, 1, 1)
    for score in (Uniform(), Uniform() + EdgeBias(torch.zeros(2, 1))):
        assert attend(graph, None, None, v, score).flatten().tolist() == [0, 0, 1.5]
        y, p = attend(graph, None, None, v, score, return_weights=True)
        assert (y.flatten().tolist(), p.flatten().tolist()) == ([0, 0, 1.5], [0.5, 0.5])


@pytest.mark.parametrize("backend", [None, "dense"])  # which the planner chooses for so many edges
def test_complex_numbers_are_added_up_on_dense_graphs(backend):
    x = torch.randn(256, 16, dtype=torch.complex64)
    torch.testing.assert_close(aggregate(causal(256), x, backend=backend), x.cumsum(0))
    x[7] = torch.nan
    y = aggregate(causal(256), x, backend=backend)
    assert y[:7].isfinite().all() and y[7:].isnan().all()


def test_finite_numbers_whose_sum_is_beyond_float16_are_computed_once(monkeypatch):
    """All of them were computed again, edge by edge."""
    monkeypatch.setitem(BACKENDS, "segment", replace(BACKENDS["segment"], run=None))
    x = torch.full((64, 2, 32), 20.0).half()
    assert (attend(causal(64), x, x, x, backend="dense") == 20).all()
