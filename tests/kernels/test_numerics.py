"""Errors of every score are at most twice those of plain PyTorch in the same dtype; threads and runs change no bit."""

import random
from collections import Counter

import pytest
import torch
from torch import Tensor

from edgewise import (
    Additive,
    Dot,
    EdgeBias,
    GatedAdditive,
    Gaussian,
    Graph,
    Uniform,
    attend,
    complete,
    plans,
)
from kernels.random_calls import random_graph

KINDS = ("dot", "additive", "gated", "gaussian", "uniform", "dot with a bias")


def case(seed: int) -> tuple[Graph, str, dict[str, Tensor]]:
    """A graph with edges, a score, and float32 numbers at any offset and scale."""
    draw = random.Random(seed)
    graph = random_graph(draw)
    while not graph.num_edges:
        graph = random_graph(draw)
    kind, heads = draw.choice(KINDS), draw.choice((1, 2, 4))
    width, values = 1 if kind == "additive" else draw.choice((1, 3, 8, 16, 32)), draw.choice((1, 4, 16, 33))
    generator = torch.Generator().manual_seed(seed)
    scale = draw.choice((0.01, 1.0, 1.0, 3.0))
    offset = draw.choice((0.0, 1.0, 1e3)) if kind == "gaussian" else draw.choice((0.0, 1.0))
    shapes = {
        "q": (graph.num_receivers, heads, width),
        "k": (graph.num_senders, heads, width),
        "v": (graph.num_senders, heads, values),
        "a": (heads, width),
        "bias": (graph.num_edges, heads),
    }
    drawn = {name: torch.randn(shape, generator=generator) for name, shape in shapes.items()}
    for name in ("q", "k"):
        drawn[name] = drawn[name] * scale + offset
    drawn["v"] = drawn["v"] + draw.choice((0.0, 1.0, 100.0))
    return graph, kind, drawn


def ours(graph: Graph, kind: str, x: dict[str, Tensor]) -> Tensor:
    if kind == "uniform":
        return attend(graph, None, None, x["v"], Uniform())
    scores = {
        "dot": Dot(), "additive": Additive(), "gated": GatedAdditive(x["a"]), "gaussian": Gaussian(),
        "dot with a bias": Dot() + EdgeBias(x["bias"]),
    }  # fmt: skip
    return attend(graph, x["q"], x["k"], x["v"], scores[kind])


def plain(graph: Graph, kind: str, x: dict[str, Tensor]) -> Tensor:
    """The equation, edge by edge, in the dtype of its inputs."""
    i, j = graph.receivers, graph.senders
    q, k, v = x["q"][i], x["k"][j], x["v"][j]
    if kind == "uniform":
        s = v.new_zeros(v.shape[:2])
    elif kind == "gaussian":
        s = (q - k).square().sum(-1) / -2
    elif kind == "additive":
        s = torch.nn.functional.leaky_relu((q + k).squeeze(-1), 0.2)
    elif kind == "gated":
        s = (x["a"] * torch.nn.functional.leaky_relu(q + k, 0.2)).sum(-1)
    else:
        s = (q * k).sum(-1) * q.shape[-1] ** -0.5
    s = s + x["bias"] if kind == "dot with a bias" else s
    top = s.detach().new_full((graph.num_receivers, s.shape[1]), float("-inf"))
    top = top.scatter_reduce(0, i[:, None].expand_as(s), s.detach(), "amax")
    w = (s - top[i]).exp()
    total = torch.zeros_like(top).index_add(0, i, w)
    p = w / total[i]
    return v.new_zeros(graph.num_receivers, *v.shape[1:]).index_add(0, i, p.unsqueeze(-1) * v)


def results(function, graph, kind, drawn, dtype) -> list[Tensor]:
    leaves = {name: x.to(dtype, copy=True).requires_grad_() for name, x in drawn.items()}
    y = function(graph, kind, leaves)
    dy = torch.randn(y.shape, generator=torch.Generator().manual_seed(0)).to(dtype)
    (y * dy).sum().backward()
    return [y.detach(), *(x.grad for x in leaves.values() if x.grad is not None)]


def errors(seed: int) -> tuple[str, list[tuple[float, float]]]:
    """A case's largest errors in y and in each gradient, ours and plain PyTorch's, relative to the largest number."""
    graph, kind, drawn = case(seed)
    exact = results(plain, graph, kind, drawn, torch.float64)
    found, written_out = (results(function, graph, kind, drawn, torch.float32) for function in (ours, plain))
    largest = {name: float(x.abs().max()) for name, x in drawn.items()}
    # Where everything cancels, an error is a rounding of what was added up.
    count = drawn["v"].shape[-1] * graph.num_edges
    terms = largest["v"] * max(1, largest["q"], largest["k"]) * max(1, largest["a"]) * count**0.5
    pairs = []
    for a, b, c in zip(found, written_out, exact, strict=True):
        error, peer, size = float((a - c).abs().max()), float((b - c).abs().max()), float(c.abs().max())
        assert error <= 2 * peer + 2**-22 * max(size, terms), f"{seed}: {graph} {kind}: {error:.1e}, plain {peer:.1e}"
        if error > 0 < peer:
            pairs.append((error / size, peer / size))
    return kind, pairs


def check(seeds: range) -> None:
    """Each error within twice plain PyTorch's, or a rounding; the median of each score within twice its own."""
    of_kind: dict[tuple[str, bool], list[tuple[float, float]]] = {}
    for seed in seeds:
        kind, pairs = errors(seed)
        for n, pair in enumerate(pairs):
            of_kind.setdefault((kind, n == 0), []).append(pair)
    for key, pairs in of_kind.items():
        typical, peer = (sorted(side)[len(pairs) // 2] for side in zip(*pairs, strict=True))
        assert typical <= 2 * peer, f"{key}: the median error is {typical:.1e}, plain PyTorch's {peer:.1e}"


def test_errors_are_at_most_twice_those_of_plain_pytorch():
    check(range(200))


def test_threads_and_runs_change_no_bit():
    before, compared = torch.get_num_threads(), Counter[str]()
    try:
        for seed in range(40):
            graph, kind, drawn = case(seed)
            with plans() as made:
                ours(graph, kind, drawn)
            compared[made[0].choice] += 1
            bits = []
            for threads in (1, 3):
                torch.set_num_threads(threads)
                bits.append(results(ours, graph, kind, drawn, torch.float32))
            for other in bits[1:]:
                assert all(torch.equal(a, b) for a, b in zip(bits[0], other, strict=True)), (seed, graph, kind)
    finally:
        torch.set_num_threads(before)
    assert compared.keys() >= {"native", "tiled"}, compared


@pytest.mark.parametrize(
    ("backend", "dtype"),
    [(backend, torch.bfloat16) for backend in ("reference", "segment", "native", "tiled", "dense")]
    + [(backend, torch.float16) for backend in ("reference", "segment", "dense")],  # no kernel of ours computes in it
)
def test_a_bias_may_be_wider_than_the_values(backend, dtype):
    graph, (q, k, v), bias = complete(5), torch.randn(3, 5, 2, 4).to(dtype), torch.randn(25, 2)
    y = attend(graph, q, k, v, Dot() + EdgeBias(bias), backend=backend)
    right = attend(graph, q.double(), k.double(), v.double(), Dot() + EdgeBias(bias.double()), backend="reference")
    assert y.dtype == dtype
    torch.testing.assert_close(y.double(), right, rtol=0.03, atol=0.03)
