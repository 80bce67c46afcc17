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


BACKENDS = (None, "native", "tiled", "dense", "segment", "reference")


def check(kind, score, bias, dtype, backends, close):
    """Results and gradients are those of the reference in float64, on as many backends as take the call."""
    graph, generator = GRAPHS[kind], torch.Generator().manual_seed(0)
    q, k = (torch.randn(2, 40, 2, 1, generator=generator, dtype=torch.float64) for _ in "qk")
    v = torch.randn(2, 40, 2, 8, generator=generator, dtype=torch.float64)

    def results(backend, dtype):
        ends = [x.to(dtype).requires_grad_() for x in ((q, k) if score.needs_ends else ())]
        leaves = [*ends, v.to(dtype).requires_grad_(), bias.to(dtype).requires_grad_()]
        a = {"a": score.a.to(dtype)} if isinstance(score, GatedAdditive) else {}
        own = replace(score, **a) + EdgeBias(leaves[-1])
        y = attend(graph, *(ends or (None, None)), leaves[-2], own, backend=backend)
        return [y, *torch.autograd.grad((y * v.cos().to(dtype)).sum(), leaves)]

    right, ran = results("reference", torch.float64), 0
    for backend in backends:
        try:
            found = results(backend, dtype)
        except BackendRefusal:
            continue
        ran += 1
        for one, wanted in zip(found, right, strict=True):
            torch.testing.assert_close(one.double(), wanted, rtol=close, atol=close)
    assert ran >= len(backends) - 2


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("score", [Dot(), Additive(), GatedAdditive(torch.ones(2, 1)), Uniform()])
@pytest.mark.parametrize("kind", GRAPHS)
def test_masks_of_the_lowest_number_agree(kind, score, dtype):
    graph, generator = GRAPHS[kind], torch.Generator().manual_seed(1)
    bias = torch.randn(graph.num_edges, 2, generator=generator, dtype=torch.float64)
    masked = (graph.receivers % 3 == 0)[:, None] | (torch.rand(bias.shape, generator=generator) < 0.3)
    bias = bias.masked_fill(masked, torch.finfo(dtype).min).masked_fill(graph.receivers[:, None] % 7 == 0, -torch.inf)
    check(kind, score, bias, dtype, BACKENDS, {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 0.1}[dtype])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("score", [Dot(), Additive(), Uniform()])
@pytest.mark.parametrize("kind", GRAPHS)
def test_gradients_of_rows_far_below_zero_keep_their_digits(kind, score, dtype):
    lows = torch.tensor([0.0, -1e4, -1e6, -1e8, torch.finfo(dtype).min], dtype=dtype)
    bias = lows[GRAPHS[kind].receivers % 5, None].expand(-1, 2)
    # The reference adds a score to its bias in float64.
    check(kind, score, bias, dtype, ("native", "tiled"), {torch.float32: 1e-5, torch.float64: 1e-7}[dtype])
