"""Masks that are written as the lowest number, of whole rows too."""

from dataclasses import replace

import pytest
import torch

from edgewise import (
    Additive,
    BackendRefusal,
    Dot,
    EdgeBias,
    GatedAdditive,
    Graph,
    Uniform,
    attend,
    blocks,
    causal,
    strided,
)

GRAPHS = {
    "edges": Graph.from_edge_index(torch.randint(40, (2, 300), generator=torch.Generator().manual_seed(1)), 40),
    "causal": causal(40),
    "blocks": blocks([20, 20]),
    "strided": strided(40, 5),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("score", [Dot(), Additive(), GatedAdditive(torch.ones(2, 1)), Uniform()])
@pytest.mark.parametrize("kind", GRAPHS)
def test_masks_of_the_lowest_number_agree(kind, score, dtype):
    graph, generator = GRAPHS[kind], torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, 40, 2, 1, generator=generator, dtype=torch.float64) for _ in "qk")
    v = torch.randn(2, 40, 2, 8, generator=generator, dtype=torch.float64)
    bias = torch.randn(graph.num_edges, 2, generator=generator, dtype=torch.float64)
    masked = (graph.receivers % 3 == 0)[:, None] | (torch.rand(bias.shape, generator=generator) < 0.3)
    bias = bias.masked_fill(masked, torch.finfo(dtype).min).masked_fill(graph.receivers[:, None] % 7 == 0, -torch.inf)

    def results(backend, dtype):
        ends = [x.to(dtype).requires_grad_() for x in ((q, k) if score.needs_ends else ())]
        leaves = [*ends, v.to(dtype).requires_grad_(), bias.to(dtype).requires_grad_()]
        a = {"a": score.a.to(dtype)} if isinstance(score, GatedAdditive) else {}
        own = replace(score, **a) + EdgeBias(leaves[-1])
        y = attend(graph, *(ends or (None, None)), leaves[-2], own, backend=backend)
        return [y, *torch.autograd.grad((y * y.detach().cos()).sum(), leaves)]

    right, ran = results("reference", torch.float64), 0
    for backend in (None, "native", "tiled", "dense", "segment", "reference"):
        try:
            found = results(backend, dtype)
        except BackendRefusal:
            continue
        ran += 1
        close = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 0.1}[dtype]
        for one, wanted in zip(found, right, strict=True):
            torch.testing.assert_close(one.double(), wanted, rtol=close, atol=close)
    assert ran >= 4


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("score", [Dot(), Additive(), Uniform()])
@pytest.mark.parametrize("kind", GRAPHS)
def test_gradients_of_rows_far_below_zero_keep_their_digits(kind, score, dtype):
    graph, generator = GRAPHS[kind], torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, 40, 2, 1, generator=generator, dtype=torch.float64) for _ in "qk")
    v = torch.randn(2, 40, 2, 8, generator=generator, dtype=torch.float64)
    lows = torch.tensor([0.0, -1e4, -1e6, -1e8, torch.finfo(dtype).min], dtype=dtype)
    bias = lows[graph.receivers % 5, None].expand(-1, 2)

    def gradients(backend, dtype):
        ends = [x.to(dtype).requires_grad_() for x in ((q, k) if score.needs_ends else ())]
        leaves = [*ends, v.to(dtype).requires_grad_(), bias.to(dtype).requires_grad_()]
        y = attend(graph, *(ends or (None, None)), leaves[-2], score + EdgeBias(leaves[-1]), backend=backend)
        weight = torch.randn(y.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
        return torch.autograd.grad((y * weight.to(dtype)).sum(), leaves)

    close = {torch.float32: 1e-5, torch.float64: 1e-7}[dtype]  # the reference adds a score to its bias in float64
    for backend in ("native", "tiled"):
        try:
            found = gradients(backend, dtype)
        except BackendRefusal:
            continue
        for one, wanted in zip(found, gradients("reference", torch.float64), strict=True):
            torch.testing.assert_close(one.double(), wanted, rtol=close, atol=close)
