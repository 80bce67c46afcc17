"""The perceptron as one operation, beside the same equation in float64 by PyTorch's operations."""

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from edgewise import Graph
from edgewise.kernels.backends.cpu import perceptron as native
from edgewise.native import library

pytestmark = pytest.mark.skipif(library is None, reason="the C++ kernels are not built")

ACTIVATIONS = [functional.relu, functional.gelu]
WIDTHS = [(5, 7, 3), (9, 4, 2), (40, 17, 33)]  # the first map after the sum, and before it


def drawn(widths: tuple[int, int, int], dtype: torch.dtype, rows: int = 37) -> list[Tensor]:
    generator = torch.Generator().manual_seed(sum(widths))
    inputs, hidden, outputs = widths
    shapes = [(rows, inputs), (hidden, inputs), (hidden,), (outputs, hidden), (outputs,), ()]
    return [torch.randn(s, dtype=torch.float64, generator=generator).to(dtype).requires_grad_() for s in shapes]


def sparse(rows: int = 37) -> Graph:
    """Some nodes listen to none, some edges are parallel, one is a loop."""
    edges = torch.randint(rows - 2, (2, 80), generator=torch.Generator().manual_seed(1))
    return Graph.from_edge_index(torch.cat([edges, edges[:, :3], torch.tensor([[4], [4]])], 1), rows)


def run(leaves: list[Tensor], activation, graph: Graph | None) -> Tensor:
    x, W_1, b_1, W_2, b_2, epsilon = leaves
    return native.perceptron(x, (W_1, b_1), (W_2, b_2), activation, graph, None if graph is None else epsilon)


def oracle(leaves: list[Tensor], activation, graph: Graph | None) -> Tensor:
    x, W_1, b_1, W_2, b_2, epsilon = leaves
    s = x if graph is None else (1 + epsilon) * x + graph.multiplicity().to(x.dtype) @ x
    return activation(s @ W_1.T + b_1) @ W_2.T + b_2


@pytest.mark.parametrize("graph", [None, sparse()], ids=["rows", "graph"])
@pytest.mark.parametrize("widths", WIDTHS)
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_value_and_gradients_are_the_oracles(activation, widths, graph):
    for dtype, tolerance in ((torch.float64, 1e-12), (torch.float32, 2e-6)):
        leaves = drawn(widths, dtype)[: 6 if graph is not None else 5] + [None] * (graph is None)
        exact = [None if x is None else x.detach().double().requires_grad_() for x in leaves]
        y, expected = run(leaves, activation, graph), oracle(exact, activation, graph)
        dy = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        y.backward(dy.to(dtype))
        expected.backward(dy)
        pairs = [(y, expected), *((x.grad, e.grad) for x, e in zip(leaves, exact, strict=True) if x is not None)]
        for found, right in pairs:
            assert float(((found - right).abs().max() / right.abs().max()).detach()) < tolerance


@pytest.mark.parametrize("graph", [None, sparse(6)], ids=["rows", "graph"])
@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_it_is_differentiable_twice(activation, graph):
    for widths in WIDTHS[:2]:
        leaves = drawn(widths, torch.float64, 6)

        def of(*leaves: Tensor) -> Tensor:
            return run(list(leaves), activation, graph)

        used = leaves if graph is not None else leaves[:5]
        call = of if graph is not None else lambda *five: of(*five, None)
        assert torch.autograd.gradcheck(call, used)
        assert torch.autograd.gradgradcheck(call, used)


def test_what_needs_no_gradient_has_none():
    x, W_1, b_1, W_2, _, epsilon = drawn((9, 4, 2), torch.float32)
    x.requires_grad_(False)
    W_1.requires_grad_(False)
    native.perceptron(x, (W_1, None), (W_2, None), functional.relu, sparse(), epsilon).sum().backward()
    assert x.grad is None and W_1.grad is None and b_1.grad is None
    assert W_2.grad is not None and epsilon.grad is not None


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_the_bits_are_the_same_on_any_number_of_threads(activation):
    graph, found = sparse(3000), []
    before = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            leaves = drawn((24, 40, 8), torch.float32, 3000)
            dh = leaves[0].detach() * 3
            h = torch.empty_like(dh)
            sums = native._slope(leaves[0].detach(), dh, native.KINDS[activation], h)
            total = native._dot(dh, h, torch.zeros(()))
            found.append([dh, h, sums, total, native.summed(h, 1.5, native.Sum.over(graph, False).graph)])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(x, first) for other in found[1:] for x, first in zip(other, found[0], strict=True))


def test_gelu_is_as_exact_as_pytorchs():
    z = torch.linspace(-12, 12, 100_003)
    exact = z.double().requires_grad_()
    expected = functional.gelu(exact)
    expected.sum().backward()
    slope = torch.ones_like(z).unsqueeze(1)
    native._slope(z.unsqueeze(1), slope, 1, None)
    ours, theirs = native._activate(z, 1), functional.gelu(z)
    own = z.clone().requires_grad_()
    functional.gelu(own).sum().backward()
    for found, peers, right in ((ours, theirs, expected), (slope.squeeze(1), own.grad, exact.grad)):
        error, theirs_error = (float((y - right).detach().abs().max()) for y in (found, peers))
        most = 1.2e-6  # 2.5 units in the last place at 5, without fused multiplication
        assert error <= max(2 * theirs_error, most), (error, theirs_error)


def test_a_nan_stays_one_and_reaches_its_own_row_alone():
    leaves = drawn((5, 7, 3), torch.float32)
    with torch.no_grad():
        leaves[0][3, 2] = torch.nan
        for activation in ACTIVATIONS:
            y = run([*leaves[:5], None], activation, None)
            assert y.isnan().any(1).nonzero().flatten().tolist() == [3]


NORMALISED = [((5, 7, 3), 37), ((17, 33, 16), 600), ((32, 32, 32), 1100), ((100, 128, 1), 65)]


def with_norm(widths: tuple[int, int, int], dtype: torch.dtype, rows: int) -> list[Tensor]:
    """x, W_1, b_1, W_2, b_2, ε, γ and β."""
    generator = torch.Generator().manual_seed(rows)
    more = [torch.randn(widths[1], dtype=torch.float64, generator=generator).to(dtype) for _ in range(2)]
    return [*drawn(widths, dtype, rows), *(one.requires_grad_() for one in more)]


def run_normalised(leaves: list[Tensor], graph: Graph | None, seen: tuple[Tensor, Tensor]) -> Tensor:
    x, W_1, b_1, W_2, b_2, epsilon, scale, shift = leaves
    norm = native.Norm(scale, shift, *seen, training=True, momentum=0.3, eps=1e-5)
    own = None if graph is None else epsilon
    return native.perceptron(x, (W_1, b_1), (W_2, b_2), functional.relu, graph, own, norm)


def oracle_normalised(leaves: list[Tensor], graph: Graph | None, seen: tuple[Tensor, Tensor]) -> Tensor:
    x, W_1, b_1, W_2, b_2, epsilon, scale, shift = leaves
    s = x if graph is None else (1 + epsilon) * x + graph.multiplicity().to(x.dtype) @ x
    n = functional.batch_norm(functional.linear(s, W_1, b_1), *seen, scale, shift, True, 0.3, 1e-5)
    return functional.linear(n.relu(), W_2, b_2)


@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("whole", [True, False], ids=["graph", "rows"])
@pytest.mark.parametrize(("widths", "rows"), NORMALISED)
def test_normalisation_between_the_maps_is_the_oracles(widths, rows, whole, biased):
    graph = sparse(rows) if whole else None
    for dtype, tolerance in ((torch.float64, 1e-11), (torch.float32, 1e-5)):
        leaves = with_norm(widths, dtype, rows)
        if not biased:
            leaves[2] = leaves[4] = None
        exact = [None if x is None else x.detach().double().requires_grad_() for x in leaves]
        seen = [torch.linspace(1, 2, widths[1], dtype=dtype) for _ in range(2)]
        right = [t.double() for t in seen]
        y, expected = run_normalised(leaves, graph, seen), oracle_normalised(exact, graph, right)
        dy = torch.randn(y.shape, dtype=torch.float64, generator=torch.Generator().manual_seed(2))
        y.backward(dy.to(dtype))
        expected.backward(dy)
        used = [(x.grad, e.grad) for x, e in zip(leaves, exact, strict=True) if x is not None and x.grad is not None]
        assert len(used) == len(leaves) - (0 if biased else 2) - (0 if whole else 1)
        largest = max(float(e.abs().max()) for _, e in used)  # that of b_1 is 0, but for rounding
        for found, truth in [(y, expected), *zip(seen, right, strict=True)]:
            assert float(((found - truth).abs().max() / truth.abs().max()).detach()) < tolerance
        for found, truth in used:
            assert float((found - truth).abs().max()) < tolerance * max(float(truth.abs().max()), largest / 10)


def test_normalisation_of_numbers_far_from_zero_is_as_exact_as_pytorchs():
    leaves = with_norm((16, 16, 4), torch.float32, 900)
    with torch.no_grad():
        leaves[2] += 1e4
    seen = torch.zeros(16), torch.ones(16)
    right = oracle_normalised([x.detach().double() for x in leaves], None, tuple(t.double() for t in seen))
    theirs = oracle_normalised(leaves, None, tuple(t.clone() for t in seen))
    error, usual = (float((y.detach() - right).norm()) for y in (run_normalised(leaves, None, seen), theirs))
    # Both round the mean, each by its own part of a unit in the last place; a sum of squares would be off by thousands.
    assert error <= 4 * usual


@pytest.mark.parametrize("whole", [True, False], ids=["graph", "rows"])
def test_normalisation_is_differentiable_twice(whole):
    graph, seen = sparse(6) if whole else None, tuple(torch.zeros(2, 7, dtype=torch.float64))
    leaves = with_norm((5, 7, 3), torch.float64, 6)
    if not whole:
        leaves.pop(5)  # no ε without a graph

    def call(*used):
        return run_normalised([*used] if whole else [*used[:5], None, *used[5:]], graph, seen)

    assert torch.autograd.gradcheck(call, leaves)
    assert torch.autograd.gradgradcheck(call, leaves, atol=1e-4)


def test_normalised_bits_are_the_same_on_any_number_of_threads():
    graph, found = sparse(3000), []
    before = torch.get_num_threads()
    try:
        for count in (1, 2, 3):
            torch.set_num_threads(count)
            leaves, seen = with_norm((24, 40, 8), torch.float32, 3000), torch.zeros(2, 40)
            y = run_normalised(leaves, graph, tuple(seen))
            y.square().sum().backward()
            found.append([y.detach(), seen, *(x.grad for x in leaves)])
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(x, first) for other in found[1:] for x, first in zip(other, found[0], strict=True))


def test_of_normalised_leaves_only_those_have_a_gradient_that_need_one():
    leaves = with_norm((5, 7, 3), torch.float32, 37)
    for frozen in (0, 1, 6):
        leaves[frozen].requires_grad_(False)
    run_normalised(leaves, sparse(), tuple(torch.zeros(2, 7))).sum().backward()
    assert [x.grad is None for x in leaves] == [True, True, False, False, False, False, True, False]


def test_weights_and_gradients_may_lie_in_any_order():
    leaves, seen = with_norm((6, 6, 6), torch.float64, 9), torch.zeros(2, 6, dtype=torch.float64)
    turned = [
        x.detach().T.contiguous().T.requires_grad_() if x.dim() == 2 else x.detach().requires_grad_() for x in leaves
    ]
    for used in (leaves, turned):
        run_normalised(used, None, tuple(seen)).T.contiguous().T.square().sum().backward()
    for one, other in zip(leaves, turned, strict=True):
        assert one.grad is other.grad is None or torch.allclose(one.grad, other.grad)


@pytest.mark.parametrize("wrong", range(6))
def test_shapes_that_do_not_fit_are_left_to_pytorch_which_refuses_them(wrong):
    leaves = [x.detach() for x in with_norm((5, 7, 3), torch.float32, 9)]
    if wrong == 5:
        leaves[6] = leaves[6][:, None].expand(7, 2)[:, 0]  # no error: its numbers lie apart
        y = run_normalised(leaves, None, tuple(torch.zeros(2, 7)))
        torch.testing.assert_close(y, oracle_normalised(leaves, None, tuple(torch.zeros(2, 7))))
        return
    leaves[wrong] = torch.zeros(*leaves[wrong].shape[:-1], leaves[wrong].shape[-1] + 1)
    with pytest.raises(RuntimeError):
        run_normalised(leaves, None, tuple(torch.zeros(2, 7)))


@pytest.mark.parametrize("graph", [None, sparse()], ids=["rows", "graph"])
@pytest.mark.parametrize("normed", [False, True])
def test_a_backward_pass_within_autocast_keeps_to_its_dtypes(normed, graph):
    """Products in bfloat16 were taken for float32 ones, and written beyond."""
    leaves = with_norm((5, 7, 3), torch.float32, 37) if normed else drawn((5, 7, 3), torch.float32)
    found = []
    for enabled in (False, True):
        seen = torch.zeros(7), torch.ones(7)
        y = run_normalised(leaves, graph, seen) if normed else run(leaves, functional.relu, graph)
        with torch.autocast("cpu", torch.bfloat16, enabled=enabled):
            found.append(torch.autograd.grad(y.square().sum(), leaves, allow_unused=True))
    for one, other in zip(*found, strict=True):
        assert one is other or torch.equal(one, other)
