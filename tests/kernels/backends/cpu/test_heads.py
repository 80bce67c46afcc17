"""Rows of several heads by a matrix for each: the C++ kernels against einsum."""

import pytest
import torch

from edgewise.errors import ShapeError
from edgewise.kernels.backends.cpu.heads import Heads, HeadsGradient, gradient, product
from edgewise.native import library
from kernels.drawn import covering

pytestmark = pytest.mark.skipif(library is None, reason="built without the C++ kernels")


def draw(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype).requires_grad_()


SIZES = [(4, 16, 16), (1, 1, 1), (3, 5, 7), (2, 24, 33), (8, 3, 16)]


@pytest.mark.parametrize(
    ("sizes", "rows", "dtype"), covering(2 * SIZES, [0, 1, 300, 1000], [torch.float32, torch.float64])
)
def test_the_kernels_are_the_equation(sizes, rows, dtype):
    torch.manual_seed(0)
    heads, inputs, outputs = sizes
    x, weight = draw(2, rows, heads, inputs, dtype=dtype), draw(heads, inputs, outputs, dtype=dtype)
    dy = torch.randn(2, rows, heads, outputs, dtype=dtype)
    y, expected = product(Heads(x, weight)), torch.einsum("bnhc,hcr->bnhr", x, weight)
    tolerance = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float32 else {"rtol": 1e-11, "atol": 1e-11}
    torch.testing.assert_close(y, expected, **tolerance)
    of_ours, of_theirs = (torch.autograd.grad(z, [x, weight], dy) for z in (y, expected))
    for found, other in zip(of_ours, of_theirs, strict=True):
        torch.testing.assert_close(found, other, **tolerance)


def test_rows_that_lie_among_others():
    torch.manual_seed(1)
    x, weight = draw(4, 9, 3, 2).permute(1, 2, 0, 3), draw(2, 4, 5).transpose(0, 1)
    torch.testing.assert_close(product(Heads(x, weight)), torch.einsum("bnhc,hcr->bnhr", x, weight))


def test_first_and_second_derivatives():
    torch.manual_seed(2)
    x, weight, y = draw(2, 3, 2, 3), draw(2, 3, 4), draw(2, 3, 2, 4)
    for check in (torch.autograd.gradcheck, torch.autograd.gradgradcheck):
        assert check(lambda x, weight: product(Heads(x, weight)), (x, weight))
        assert check(lambda x, y: gradient(HeadsGradient(x, y)), (x, y))


def test_a_head_with_infinities_leaves_the_others_alone():
    x, weight = torch.ones(1, 2, 2, 3), torch.ones(2, 3, 3)
    x[0, 0, 1] = torch.inf
    y = product(Heads(x, weight))
    assert torch.equal(y[0, :, 0], torch.full((2, 3), 3.0))
    assert bool(y[0, 0, 1].isinf().all())


def test_threads_change_no_bit():
    torch.manual_seed(3)
    x, weight = draw(1, 5000, 4, 16, dtype=torch.float32), draw(4, 16, 20, dtype=torch.float32)
    before, bits = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            y = product(Heads(x, weight))
            bits.append([y, *torch.autograd.grad(y.sin().sum(), [x, weight])])
    finally:
        torch.set_num_threads(before)
    for other in bits[1:]:
        assert all(torch.equal(one, two) for one, two in zip(bits[0], other, strict=True))


@pytest.mark.parametrize(
    "shapes", [((1, 5, 3, 4), (2, 4, 2)), ((1, 5, 3, 4), (3, 5, 2)), ((5, 3, 4), (3, 4, 2)), ((1, 5, 3, 0), (3, 0, 2))]
)
def test_other_shapes_are_refused(shapes):
    with pytest.raises(ShapeError):
        torch.ops.edgewise.by_heads(*(torch.zeros(shape) for shape in shapes))
