"""What `dense` does without a mask, and that it does no more work than it must."""

from unittest import mock

import pytest
import torch

from edgewise import (
    Additive,
    BackendRefusal,
    Dot,
    EdgeBias,
    Graph,
    Kernel,
    RelativeBias,
    Uniform,
    attend,
    blocks,
    causal,
    complete,
    window,
)
from edgewise.kernels.backends.torch import dense


def masks_used(graph: Graph, score: Dot | None = None) -> list[tuple[object, bool]]:
    """(mask, is_causal) of every call that reaches PyTorch."""
    q, k = torch.randn(graph.num_receivers, 2, 4), torch.randn(graph.num_senders, 2, 4)
    seen = []
    real = torch.nn.functional.scaled_dot_product_attention

    def spy(q, k, v, attn_mask=None, dropout_p=0.0, is_causal=False, **options):
        seen.append((attn_mask, is_causal))
        return real(q, k, v, attn_mask, dropout_p, is_causal, **options)

    with mock.patch.object(dense, "scaled_dot_product_attention", spy):
        attend(graph, q, k, k, score or Dot(), backend="dense")
    return seen


def test_complete_causal_and_the_last_row_need_no_mask():
    assert masks_used(complete(4, 5)) == [(None, False)]
    assert masks_used(causal(4)) == [(None, True)]
    assert masks_used(causal(5).rows(4, 5)) == [(None, False)]


def test_blocks_are_grouped_by_size_without_padding():
    assert masks_used(blocks([3, 1, 3, 2, 1, 3])) == [(None, False)] * 3


def by_sequence(seen):
    """Variable-length attention from its definition, in the place of PyTorch's, which runs on a GPU alone."""

    def attention(q, k, v, q_bounds, k_bounds, q_most, k_most, scale, dropout):
        seen.append((q_bounds.tolist(), k_bounds.tolist(), q_most, k_most))
        assert q_bounds.dtype == k_bounds.dtype == torch.int32
        assert q.shape[-1] == k.shape[-1] == v.shape[-1] and q.shape[-1] % 8 == 0
        assert q_bounds[-1] == len(q) and k_bounds[-1] == len(k) == len(v)
        parts = []
        for n in range(len(q_bounds) - 1):
            ends = zip((q, k, v), (q_bounds, k_bounds, k_bounds), strict=True)
            rows = [x[bounds[n] : bounds[n + 1]].transpose(0, 1) for x, bounds in ends]
            parts.append(
                torch.nn.functional.scaled_dot_product_attention(*rows, dropout_p=dropout, scale=scale, enable_gqa=True)
            )
        return torch.cat([part.transpose(0, 1) for part in parts])

    return attention


@pytest.mark.parametrize("batch", [(), (2,)])
@pytest.mark.parametrize(("channels", "values"), [(8, 8), (5, 12), (16, 3)])
def test_blocks_are_one_call_of_variable_length_attention_where_there_is_one(batch, channels, values):
    graph = blocks([3, 1, 0, 2], senders=[2, 1, 0, 4])
    q, k, v = (
        torch.randn(*batch, 6, 4, channels),
        torch.randn(*batch, 7, 2, channels),
        torch.randn(*batch, 7, 2, values),
    )
    seen = []
    with (
        mock.patch.object(dense, "_runs_flash", return_value=True),
        mock.patch.object(dense, "_flash_attention", by_sequence(seen)),
    ):
        y = attend(graph, q, k, v, Dot(0.7), backend="dense")
    torch.testing.assert_close(y, attend(graph, q, k, v, Dot(0.7), backend="reference"))
    bounds = [0, 3, 4, 4, 6], [0, 2, 3, 3, 7]
    if batch:
        bounds = [0, 3, 4, 4, 6, 9, 10, 10, 12], [0, 2, 3, 3, 7, 9, 10, 10, 14]
    assert seen == [(*bounds, 3, 4)]


def test_pytorch_has_that_call_and_its_gradient():
    q = torch.empty(6, 4, 16, dtype=torch.bfloat16, device="meta", requires_grad=True)
    k = torch.empty(7, 2, 16, dtype=torch.bfloat16, device="meta", requires_grad=True)
    bounds = torch.empty(4, dtype=torch.int32, device="meta")
    y = dense._flash_attention(q, k, k, bounds, bounds, 3, 4, 0.5, 0.1)
    assert y.shape == q.shape
    dq, dk = torch.autograd.grad(y.sum(), (q, k))
    assert dq.shape == q.shape and dk.shape == k.shape


@pytest.mark.skipif(not torch.cuda.is_available(), reason="flash attention needs a GPU")
@pytest.mark.parametrize("groups", [1, 4])
def test_on_the_gpu_it_computes_what_the_equation_says(groups):
    graph = blocks([30, 1, 0, 150], senders=[20, 1, 0, 70]).to("cuda")
    q, k, v = (torch.randn(n, h, 20, device="cuda") for n, h in ((181, 4), (91, groups), (91, groups)))

    def results(backend, dtype):
        leaves = [x.to(dtype).detach().requires_grad_() for x in (q, k, v)]
        y = attend(graph, *leaves, backend=backend)
        return [y, *torch.autograd.grad(y.square().sum(), leaves)]

    exact = results("reference", torch.float64)
    with mock.patch.object(dense, "_flash_attention", wraps=dense._flash_attention) as flash:
        found = results("dense", torch.bfloat16)
    assert flash.call_count == 1
    for ours, theirs, value in zip(found, results("segment", torch.bfloat16), exact, strict=True):
        error, plain = ((x.double() - value).norm() / value.norm() for x in (ours, theirs))
        assert error <= 2 * plain


def test_other_graphs_build_one_mask_and_keep_it():
    graph = window(6, 1)
    (first, _), (second, _) = *masks_used(graph), *masks_used(graph)
    assert first is second and first.dtype == torch.bool
    assert masks_used(causal(6).rows(2, 4))[0][0].tolist() == [[True] * 3 + [False] * 3, [True] * 4 + [False] * 2]


def test_a_bias_becomes_the_mask():
    ((mask, is_causal),) = masks_used(causal(3), Dot() + RelativeBias(torch.arange(10.0).view(2, 5)))
    assert not is_causal
    assert mask[0].tolist() == [[2.0, -torch.inf, -torch.inf], [3.0, 2.0, -torch.inf], [4.0, 3.0, 2.0]]


def test_a_mask_too_large_for_memory_is_refused_before_it_is_built():
    n = 50_000
    graph = window(n, 2)
    x = torch.zeros(n, 1, 1)
    with pytest.raises(BackendRefusal, match="50000 × 50000 entries is too large"):
        attend(graph, x, x, x, backend="dense")
    assert attend(graph, x, x, x).shape == x.shape, "the planner takes another backend"


@pytest.mark.parametrize("graph", [complete(3, 5), causal(5), window(5, 1)], ids=str)
@pytest.mark.parametrize("kind", ["cap", "dot", "additive", "kernel", "uniform"])
@pytest.mark.parametrize("bias", ["none", "edges", "masking"])
def test_what_pytorch_has_no_kernel_for_is_written_and_agrees_with_the_equation(graph, kind, bias):
    heads, groups, channels = 4, 2, 1 if kind == "additive" else 3
    sizes = [
        (graph.num_receivers, heads, channels),
        (graph.num_senders, groups, channels),
        (graph.num_senders, groups, 2),
    ]
    q, k, v = (torch.randn(2, *size, dtype=torch.float64, requires_grad=True) for size in sizes)
    slopes = torch.rand(heads, dtype=torch.float64)
    scores = {"cap": Dot(slopes, 1.5), "dot": Dot(), "additive": Additive(), "kernel": Kernel(torch.exp)}
    score = scores.get(kind, Uniform())
    if kind == "uniform":
        q = k = None
        v = v.detach().repeat_interleave(2, -2).requires_grad_()
    values = torch.randn(graph.num_edges, heads, dtype=torch.float64)
    if bias != "none":
        score = score + EdgeBias(values if bias == "edges" else torch.where(values > 0, 0.0, -torch.inf).double())
    leaves = [x for x in (q, k, v) if x is not None]

    def results(backend):
        y, p = attend(graph, q, k, v, score, return_weights=True, backend=backend)
        return [y, p, *torch.autograd.grad(y.square().sum() + (p * values).sum(), leaves)]

    torch.testing.assert_close(results("dense"), results("reference"))
