"""Pools over the graphs of a batch, beside the same graph by graph."""

import pytest
import torch

from edgewise import Graph, aggregate, complete, use_backend
from edgewise.kernels import pool
from edgewise.kernels.backends.cpu import pooling
from edgewise.layers import READOUTS
from edgewise.native import library

pytestmark = pytest.mark.skipif(library is None, reason="the C++ kernels are not built")

SIZES = torch.tensor([3, 0, 1, 40, 2])
REDUCTIONS = {"sum": lambda x: x.sum(0), "mean": lambda x: x.mean(0), "max": lambda x: x.amax(0)}


def drawn(columns: int, dtype: torch.dtype) -> torch.Tensor:
    x = torch.randn(int(SIZES.sum()), columns, dtype=torch.float64, generator=torch.Generator().manual_seed(columns))
    x[5] = x[7]  # of the same graph: ties
    return x.to(dtype).requires_grad_()


@pytest.mark.parametrize("columns", [1, 16, 37])
@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_value_and_gradient_are_those_of_each_graph(reduce, columns):
    for dtype, tolerance in ((torch.float64, 1e-13), (torch.float32, 1e-5)):
        x = drawn(columns, dtype)
        exact = x.detach().double().requires_grad_()
        parts = exact.split(SIZES.tolist())
        expected = torch.stack([REDUCTIONS[reduce](part) if len(part) else part.sum(0) for part in parts])
        dy = torch.randn(expected.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        y = pooling.pool(x, SIZES, reduce)
        y.backward(dy.to(dtype))
        expected.backward(dy)
        assert float((y - expected).detach().abs().max()) < tolerance
        assert float((x.grad - exact.grad).abs().max()) < tolerance


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_it_is_differentiable_twice(reduce):
    x = torch.randn(6, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0), requires_grad=True)
    sizes = torch.tensor([2, 0, 4])
    assert torch.autograd.gradcheck(lambda x: pooling.pool(x, sizes, reduce), [x])
    assert torch.autograd.gradgradcheck(lambda x: pooling.pool(x, sizes, reduce), [x])
    assert torch.autograd.gradgradcheck(lambda x: pooling.pool(x[:, ::2], sizes, reduce), [x])


def test_maxima_of_zero_have_the_same_gradients_where_these_are_differentiated_again():
    x = torch.tensor([[0.0, 1.0], [0.0, -1.0], [-1.0, 0.0]], requires_grad=True)
    y = pooling.pool(x, torch.tensor([2, 0, 1]), "max").sum()
    (once,) = torch.autograd.grad(y, x, retain_graph=True)
    (again,) = torch.autograd.grad(y, x, create_graph=True)
    assert once.tolist() == again.tolist() == [[0.5, 1.0], [0.5, 0.0], [1.0, 1.0]]


def test_a_nan_is_the_largest_and_stays_in_its_graph():
    x = drawn(5, torch.float32).detach()
    x[1, 2] = torch.nan
    assert pooling.pool(x, SIZES, "max").isnan().nonzero().tolist() == [[0, 2]]


@pytest.mark.parametrize("reduce", REDUCTIONS)
def test_a_readout_is_the_pool_that_the_verb_computes(reduce):
    batch = Graph.batch([complete(2), Graph.from_edge_index([[0], [1]], num_nodes=3), complete(4)])
    x = torch.randn(9, 4, generator=torch.Generator().manual_seed(0))
    assert pool(batch, x, reduce) is not None
    expected = aggregate(batch.membership(), x, reduce=reduce)
    assert torch.allclose(READOUTS[reduce](4)(batch, x), expected, atol=1e-6)
    with use_backend("segment"):
        assert pool(batch, x, reduce) is None
    assert pool(complete(9), x, reduce) is None
    many = torch.stack([x, 2 * x, -x])
    expected = aggregate(complete(9).membership(), many, reduce=reduce)
    assert torch.allclose(pool(complete(9), many, reduce), expected, atol=1e-6)
    assert expected.shape == pool(complete(9), many, reduce).shape and pool(batch, many, reduce) is None
    assert pool(batch, x[:3], reduce) is None
