"""Rows of several heads by a matrix for each, and sums over edges and heads: the C++ kernels against einsum."""

import pytest
import torch

from edgewise import Graph, complete, use_backend
from edgewise.errors import ShapeError
from edgewise.kernels import aggregate, combined
from edgewise.kernels.backends.cpu import heads as native
from edgewise.kernels.backends.cpu.heads import Heads, HeadsGradient, gradient, product
from edgewise.native import library

pytestmark = pytest.mark.skipif(library is None, reason="built without the C++ kernels")


def draw(*shape, dtype=torch.float64):
    return torch.randn(shape, dtype=dtype).requires_grad_()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("sizes", [(4, 16, 16), (1, 1, 1), (3, 5, 7), (2, 24, 33), (8, 3, 16)])
@pytest.mark.parametrize("rows", [0, 1, 300, 1000])
def test_the_kernels_are_the_equation(rows, sizes, dtype):
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


def test_the_operators_are_what_pytorch_is_told():
    torch.library.opcheck(torch.ops.edgewise.by_heads.default, (draw(2, 5, 3, 4), draw(3, 4, 2)))
    torch.library.opcheck(torch.ops.edgewise.by_heads_gradient.default, (draw(2, 5, 3, 4), draw(2, 5, 3, 2)))


@pytest.mark.parametrize(
    "shapes", [((1, 5, 3, 4), (2, 4, 2)), ((1, 5, 3, 4), (3, 5, 2)), ((5, 3, 4), (3, 4, 2)), ((1, 5, 3, 0), (3, 0, 2))]
)
def test_other_shapes_are_refused(shapes):
    with pytest.raises(ShapeError):
        torch.ops.edgewise.by_heads(*(torch.zeros(shape) for shape in shapes))


def few_edges(receivers: int = 9, senders: int = 7) -> Graph:
    """Some receive from none, some send to none, some edges are parallel."""
    index = torch.stack([torch.randint(senders - 1, (40,)), torch.randint(receivers - 1, (40,))])
    return Graph.from_edge_index(torch.cat([index, index[:, :3]], 1), senders, receivers)


COMBINED = [(3, 5), (30, 16), (17, 33), (1, 1), (40, 4)]


@pytest.mark.parametrize("order", ["heads inside", "heads outside", "apart"])
@pytest.mark.parametrize(("heads", "channels"), COMBINED)
def test_sums_over_edges_and_heads_are_the_oracles(heads, channels, order):
    torch.manual_seed(heads)
    graph = few_edges()
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 1e-5)):
        x, weight = torch.randn(7, heads, channels).to(dtype), torch.randn(43, heads).to(dtype).requires_grad_()
        if order == "heads outside":
            x = x.transpose(0, 1).contiguous().transpose(0, 1)
        if order == "apart":
            x = torch.stack([x, x], -1)[..., 0]
        x.requires_grad_()
        y, right = combined(graph, x, weight), native._composed(graph, x.double(), weight.double())
        assert y is not None
        dy = torch.randn(right.shape, dtype=torch.float64)
        own = torch.autograd.grad(y, [x, weight], dy.to(dtype))
        exact = torch.autograd.grad(right, [x, weight], dy)
        for one, other in zip([y, *own], [right, *exact], strict=True):
            torch.testing.assert_close(one.double(), other.double(), rtol=tolerance, atol=10 * tolerance)
        torch.testing.assert_close(y, aggregate(graph, x, weight).sum(-2), rtol=tolerance, atol=10 * tolerance)


def test_sums_over_edges_and_heads_are_differentiable_twice():
    torch.manual_seed(0)
    graph, x = few_edges(), torch.randn(7, 3, 2, dtype=torch.float64).requires_grad_()
    weight = torch.randn(43, 3, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda *leaves: combined(graph, *leaves), [x, weight])
    assert torch.autograd.gradgradcheck(lambda *leaves: combined(graph, *leaves), [x, weight])


def test_of_sums_over_edges_and_heads_only_what_needs_a_gradient_has_one():
    graph = few_edges()
    for wanted in (0, 1):
        leaves = [torch.randn(7, 3, 2), torch.randn(43, 3)]
        leaves[wanted].requires_grad_()
        combined(graph, *leaves).sum().backward()
        assert [leaf.grad is not None for leaf in leaves] == [wanted == 0, wanted == 1]


def test_bits_of_sums_over_edges_and_heads_do_not_depend_on_threads():
    torch.manual_seed(0)
    graph = Graph.from_edge_index(torch.randint(900, (2, 20_000)), 900)
    x, weight, found = torch.randn(900, 6, 20), torch.randn(20_000, 6), []
    before = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            leaves = [t.clone().requires_grad_() for t in (x, weight)]
            y = combined(graph, *leaves)
            y.square().sum().backward()
            found.append([y.detach(), *(t.grad for t in leaves)])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for other in found[1:] for a, b in zip(other, found[0], strict=True))


def test_other_sums_over_edges_and_heads_are_left_to_aggregate():
    graph, x, weight = few_edges(), torch.randn(7, 3, 2), torch.randn(43, 3)
    assert combined(graph, x.bfloat16(), weight.bfloat16()) is None
    assert combined(graph, x.double(), weight) is None
    assert combined(graph, x[:5], weight) is None
    assert combined(graph, x, weight[:, :2]) is None
    assert combined(complete(7), x, torch.randn(49, 3)) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert combined(graph, x, weight) is None
    with use_backend("segment"):
        assert combined(graph, x, weight) is None
