"""What `dense` does without a mask, and that it does no more work than it must."""

from unittest import mock

import pytest
import torch

from edgewise import Additive, BackendRefusal, Dot, Graph, RelativeBias, attend, blocks, causal, complete, window
from edgewise.kernels import dense


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


def test_other_graphs_build_one_mask_and_keep_it():
    graph = window(6, 1)
    (first, _), (second, _) = *masks_used(graph), *masks_used(graph)
    assert first is second and first.dtype == torch.bool
    assert masks_used(causal(6).rows(2, 4))[0][0].tolist() == [[True] * 3 + [False] * 3, [True] * 4 + [False] * 2]


def test_a_bias_becomes_the_mask():
    ((mask, is_causal),) = masks_used(causal(3), Dot() + RelativeBias(torch.arange(10.0).view(2, 5)))
    assert not is_causal
    assert mask[0].tolist() == [[2.0, -torch.inf, -torch.inf], [3.0, 2.0, -torch.inf], [4.0, 3.0, 2.0]]


@pytest.mark.parametrize(
    ("graph", "score", "options", "reason"),
    [
        (complete(3), Additive(), {}, "no Additive score"),
        (complete(3), Dot(cap=1.0), {}, "no soft cap"),
        (complete(3), Dot(), {"return_weights": True}, "does not return its weights"),
        (Graph.from_edge_index([[0, 0], [1, 1]], 3), Dot(), {}, "parallel edges"),
    ],
)
def test_refusals_name_their_reason(graph, score, options, reason):
    width = 1 if isinstance(score, Additive) else 4
    x = torch.zeros(3, 1, width)
    with pytest.raises(BackendRefusal, match=reason):
        attend(graph, x, x, x, score, backend="dense", **options)


def test_a_mask_too_large_for_memory_is_refused_before_it_is_built():
    n = 50_000
    graph = window(n, 2)
    x = torch.zeros(n, 1, 1)
    with pytest.raises(BackendRefusal, match="50000 × 50000 entries is too large"):
        attend(graph, x, x, x, backend="dense")
    assert attend(graph, x, x, x).shape == x.shape, "the planner takes another backend"
