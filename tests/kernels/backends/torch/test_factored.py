"""Kernel scores in linear cost: the same numbers as edge by edge, without an n × n matrix."""

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from edgewise import BackendRefusal, EdgeBias, Graph, Kernel, SenderBias, aggregate, attend, causal, complete, window


def features(x: torch.Tensor) -> torch.Tensor:
    return torch.nn.functional.elu(x) + 1


class LargestTensor(TorchDispatchMode):
    """Remembers the number of entries of the largest tensor that any operation makes."""

    entries = 0

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        if isinstance(result, torch.Tensor):
            self.entries = max(self.entries, result.numel())
        return result


BATCH = Graph.batch([complete(3), complete(0), complete(5)])


@pytest.mark.parametrize("graph", [*(causal(n) for n in (1, 63, 64, 65, 200)), BATCH])
def test_chunks_join_without_a_seam_and_a_batch_factorises_block_by_block(graph):
    q, k, v = (torch.randn(2, graph.num_senders, 3, 4, dtype=torch.float64, requires_grad=True) for _ in range(3))
    results = [attend(graph, q, k, v, Kernel(features), backend=name) for name in ("factored", "reference")]
    torch.testing.assert_close(*results)
    torch.testing.assert_close(*(torch.autograd.grad(y.sin().sum(), (q, k, v)) for y in results))


@pytest.mark.parametrize("pattern", [complete, causal])
def test_memory_grows_linearly(pattern):
    def largest(n: int) -> int:
        x = torch.randn(n, 2, 8, requires_grad=True)
        with LargestTensor() as mode:
            attend(pattern(n), x, x, x, Kernel(features), backend="factored").sum().backward()
        return mode.entries

    assert largest(4096) <= 4.1 * largest(1024)
    assert largest(4096) < 4096 * 4096 / 8


def test_what_does_not_factorise_is_refused():
    x = torch.randn(5, 2, 4, dtype=torch.float64)
    for bias in (EdgeBias(torch.zeros(25, 2)), SenderBias(torch.zeros(5, 2))):
        with pytest.raises(BackendRefusal, match=f"it adds no {type(bias).__name__}"):
            attend(complete(5), x, x, x, Kernel(features) + bias, backend="factored")
    with pytest.raises(BackendRefusal, match="it runs on complete graphs, causal graphs and"):
        attend(window(5, 1), x, x, x, Kernel(features), backend="factored")
    with pytest.raises(BackendRefusal, match="and batches of complete graphs only"):
        attend(BATCH.rows(2, 8), torch.randn(6, 3, 4), *torch.randn(2, 8, 3, 4), Kernel(features), backend="factored")


def test_sums_over_everybody_are_one_vector():
    x = torch.randn(2, 6, 3)
    y = aggregate(complete(4, 6), x, reduce="mean", backend="factored")
    torch.testing.assert_close(y, x.mean(1, keepdim=True).expand(2, 4, 3))
    with pytest.raises(BackendRefusal, match="it has no max: it takes sum and mean"):
        aggregate(complete(4, 6), x, reduce="max", backend="factored")


@pytest.mark.parametrize("backend", [None, "factored"])
def test_a_receivers_sum_over_everybody_can_be_written_alone(backend):
    """All receivers' sums were one row in memory."""
    x = torch.ones(3, 2)
    for reduce, expected in (("sum", 3.0), ("mean", 1.0)):
        y = aggregate(complete(3), x, reduce=reduce, backend=backend)
        y[0] = 7
        y.add_(1)
        assert y.tolist() == [[8, 8], [expected + 1] * 2, [expected + 1] * 2]


@pytest.mark.parametrize("half", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("graph", [complete(2000), causal(2000), Graph.batch([complete(1500), complete(500)])])
def test_half_precisions_lose_no_more_than_the_rounding_of_what_they_read(graph, half):
    q, k, v = (torch.randn(2000, 2, 64).to(half).requires_grad_() for _ in range(3))
    y = attend(graph, q, k, v, Kernel(features), backend="factored")
    exact = attend(graph, q.double(), k.double(), v.double(), Kernel(features), backend="factored")
    assert y.dtype == half
    error = torch.finfo(half).eps * exact.abs().max()
    assert (y - exact).abs().max() <= error
    ours, theirs = (torch.autograd.grad(one.float().sin().sum(), v)[0] for one in (y, exact))
    assert (ours - theirs).abs().max() <= 2 * torch.finfo(half).eps * theirs.abs().max()


def test_weights_that_sum_to_zero_give_zero():
    x = torch.randn(4, 1, 3, requires_grad=True)
    y = attend(complete(4), x, x, x, Kernel(torch.zeros_like), backend="factored")
    y.sum().backward()
    assert (y == 0).all() and x.grad.isfinite().all()
