"""The native backend is as precise as plain PyTorch, with numbers that are large or not finite too."""

import pytest
import torch

from edgewise import Graph, aggregate
from kernels.drawn import REDUCTIONS, SCORES, WEIGHTS, attention, messages, product, random_graph, results, same

# Precision


def precision_cases():
    for kind in SCORES:
        yield f"{kind} attention", lambda graph, kind=kind: attention(graph, kind, "edge", 4, 2, 24, 16)
    for reduce, weight in zip(REDUCTIONS, WEIGHTS, strict=True):
        yield (
            f"{weight} weighted {reduce}",
            lambda graph, reduce=reduce, weight=weight: product(graph, reduce, weight, 3, 20, equal=True),
        )
        yield f"{reduce} of messages", lambda graph, reduce=reduce: messages(graph, reduce, 20)
        yield (
            f"{reduce} with a weight for each column",
            lambda graph, reduce=reduce: product(graph, reduce, "heads", 20, 1, equal=True),
        )


def relative_error(found, expected):
    return float((found.double() - expected).norm() / expected.norm().clamp(min=1e-30))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("case", "make"), list(precision_cases()), ids=lambda x: x if isinstance(x, str) else "")
def test_the_error_is_at_most_twice_that_of_plain_pytorch(case, make, dtype):
    leaves, call = make(random_graph(200, 300, 6000))
    leaves = {name: leaf.to(dtype).double() for name, leaf in leaves.items()}
    exact = results(call, leaves, "segment")
    plain, found = (results(call, leaves, backend, dtype) for backend in ("segment", "native"))
    assert all(value.dtype == dtype for value in found.values())
    for name, value in exact.items():
        ours, theirs = relative_error(found[name], value), relative_error(plain[name], value)
        rounding = torch.finfo(dtype).eps / 8  # of a result that plain PyTorch happens to get right
        assert ours <= 2 * theirs + rounding, f"{name}: {ours:.1e}, and {theirs:.1e} in plain PyTorch"


def test_a_gradient_that_sums_over_every_edge_is_as_precise():
    leaves, call = attention(random_graph(2000, 2000, 200_000), "gated", "", 4, 4, 16, 2)
    leaves = {name: leaf.float().double() for name, leaf in leaves.items()}
    exact = results(call, leaves, "native")["gradient of a"]
    ours, theirs = (
        relative_error(results(call, leaves, backend, torch.float32)["gradient of a"], exact)
        for backend in ("native", "segment")
    )
    assert ours <= 2 * theirs, f"{ours:.1e}, and {theirs:.1e} in plain PyTorch"


# Numbers that are not finite, and large ones


def some_scores(graph, heads=3, channels=5):
    for kind in ("dot", "additive", "gated"):
        yield kind, *attention(graph, kind, "edge", heads, heads, channels, 4)


@pytest.mark.parametrize("bits", [0x7FC00000, 0x7FC00001, 0x7FFFFFFF, 0xFFC12345])
def test_a_nan_query_reaches_its_receiver_and_nobody_else(bits):
    graph = random_graph(9, 9, 200)
    nan = torch.tensor(bits, dtype=torch.int64).to(torch.int32).view(torch.float32)
    for kind, leaves, call in some_scores(graph):
        leaves = {name: leaf.float() for name, leaf in leaves.items()}
        clean = call(leaves, "native")
        leaves["q"][4, 1, 0] = nan
        y = call(leaves, "native")
        assert y[4, 1].isnan().all(), kind
        others = torch.ones(9, 3, dtype=torch.bool)
        others[4, 1] = False
        assert torch.equal(y[others], clean[others]), kind


@pytest.mark.parametrize(
    ("wrong", "dtype"),
    [
        (float("nan"), torch.float32),
        (float("inf"), torch.float32),
        (float("inf"), torch.float64),
        (float("nan"), torch.bfloat16),
    ],
)
def test_a_wrong_number_is_never_silently_lost(wrong, dtype):
    graph = random_graph(9, 9, 60)
    listens = torch.zeros(9, dtype=torch.bool)
    listens[graph.receivers[graph.senders == 4]] = True
    assert 0 < listens.sum() < 9
    for kind, leaves, call in some_scores(graph):
        for name in ("q", "k", "v"):
            given = {key: leaf.to(dtype, copy=True) for key, leaf in leaves.items()}
            given[name][4] = wrong
            found, expected = (results(call, given, backend, dtype) for backend in ("native", "segment"))
            for what, value in expected.items():
                if wrong != wrong or what == "output":
                    assert not (found[what].isfinite() & ~value.isfinite()).any(), (kind, name, what)
            if name != "q":
                assert found["output"][~listens].isfinite().all(), (kind, name)
    for reduce in REDUCTIONS:
        x = torch.randn(9, 5, dtype=torch.float64).to(dtype)
        x[4] = float("nan")
        y = aggregate(graph, x, reduce=reduce, backend="native")
        assert torch.equal(y.isnan(), listens[:, None].expand(9, 5)), reduce


@pytest.mark.parametrize("kind", ["dot", "additive", "gated", "uniform"])
def test_minus_infinity_masks_an_edge_and_a_masked_row_is_0(kind):
    graph = random_graph(8, 8, 150)
    leaves, call = attention(graph, kind, "edge", 2, 2, 5, 4)
    hidden = (torch.arange(graph.num_edges) % 3 == 0) | (graph.receivers == 5)
    leaves["bias"][hidden] = float("-inf")
    found = results(call, leaves, "native")
    kept = (~hidden).nonzero().flatten()
    smaller = Graph.from_edge_index(graph.edge_index()[:, kept], num_nodes=8)
    _, call = attention(smaller, kind, "edge", 2, 2, 5, 4)
    expected = results(call, leaves | {"bias": leaves["bias"][kept]}, "native")
    assert (found["gradient of bias"][hidden] == 0).all()
    found["gradient of bias"] = found["gradient of bias"][kept]
    same(found, expected, 1e-12)
    assert (found["output"][5] == 0).all()
    assert all(value.isfinite().all() for value in found.values())


@pytest.mark.parametrize("kind", ["dot", "additive"])
def test_large_scores_are_stable(kind):
    graph = random_graph(8, 8, 100)
    leaves, call = attention(graph, kind, "edge", 2, 2, 4, 4)
    leaves = {name: 1e4 * leaf if name == "bias" else leaf for name, leaf in leaves.items()}
    leaves = {name: leaf.float().double() for name, leaf in leaves.items()}
    exact, found = results(call, leaves, "native"), results(call, leaves, "native", torch.float32)
    assert all(value.isfinite().all() for value in found.values())
    same(found, exact, 1e-2)  # scores of 1e4 are known to 1e-3
