"""Tensor products in C++: the kernel against the messages edge by edge, and what it promises of time and memory."""

from dataclasses import replace

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional

from benchmarks.memory import CLEAR, peak_above
from edgewise import Graph, collect
from edgewise.kernels import EdgeInput, EdgeNetwork, TensorProduct, maps_of
from edgewise.kernels.backends.cpu.messages import coupling
from edgewise.layers.geometric.spherical import Basis, Coupling, harmonics
from edgewise.native import library
from kernels.drawn import random_graph

pytestmark = pytest.mark.skipif(library is None, reason="built without the C++ kernels")

KINDS = [Coupling(0), Coupling(1), Coupling(1, filters=1, chiral=False), Coupling(2), Coupling(3)]


def made(graph, kind, channels, dtype=torch.float64):
    """The tensors of a product, h, R and Y beyond Y_0 = 1; and a function of them that makes its record."""
    h = torch.randn(graph.num_senders, kind.rows, channels, dtype=dtype, requires_grad=True)
    R = torch.randn(graph.num_edges, sum(kind.paths) * channels, dtype=dtype, requires_grad=True)
    x_ij = torch.randn(graph.num_edges, 3, dtype=dtype)
    Y = harmonics(kind.most, x_ij / x_ij.norm(dim=-1, keepdim=True))
    template = Basis(kind, x_ij.norm(dim=-1, keepdim=True), Y).message(h, R)

    def record(h, R, Y):
        Y = torch.cat([Y.new_ones(*Y.shape[:-1], 1), Y], -1)
        return TensorProduct(R, h, harmonics=Y, paths=template.paths, coefficients=template.coefficients)

    return (h, R, Y[:, 1:].clone().requires_grad_()), record


def summed(graph, record, leaves, backend="native"):
    return collect(graph, record(*leaves), backend=backend)


def with_gradients(graph, record, leaves, backend="native"):
    results = summed(graph, record, leaves, backend)
    generator = torch.Generator().manual_seed(3)
    shares = [torch.randn(y.shape, dtype=y.dtype, generator=generator) for y in results]
    return [*results, *torch.autograd.grad(results, leaves, shares, allow_unused=True, materialize_grads=True)]


@pytest.mark.parametrize("kind", KINDS, ids=str)
@pytest.mark.parametrize("channels", [1, 16, 21, 40])
def test_the_kernel_is_the_sum_of_messages(kind, channels):
    torch.manual_seed(channels)
    graph = random_graph(7, 9, 60)
    leaves, record = made(graph, kind, channels)
    assert coupling.plan_of(record(*leaves)) is not None
    for found, expected in zip(
        with_gradients(graph, record, leaves), with_gradients(graph, record, leaves, "segment"), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_coefficients_may_be_written_in_place_and_learned():
    torch.manual_seed(0)
    graph = random_graph(7, 9, 60)
    leaves, record = made(graph, Coupling(1), 4)
    product = record(*leaves)
    own = tuple(C.clone() for C in product.coefficients)
    product = replace(product, coefficients=own)
    collect(graph, product, backend="native")
    for ((_, J), _), C in zip(product.paths, own, strict=True):
        C.mul_(2 if J else 1)
    for found, expected in zip(
        *(collect(graph, product, backend=name) for name in ("native", "reference")), strict=True
    ):
        torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    learned = [C.requires_grad_() for ((_, J), _), C in zip(product.paths, own, strict=True) if J]
    found, expected = (
        torch.autograd.grad(
            sum(y.square().sum() for y in collect(graph, product, backend=name)), [*leaves[:2], *learned]
        )
        for name in ("native", "reference")
    )
    torch.testing.assert_close(found, expected, rtol=1e-11, atol=1e-11)
    with torch.no_grad():
        assert coupling.plan_of(product) is not None
    with torch.inference_mode():
        collect(graph, replace(product, coefficients=tuple(C.clone() for C in own)), backend="native")


def test_receivers_with_many_edges_and_with_none():
    torch.manual_seed(0)
    graph = Graph.from_edge_index([[n % 5 for n in range(300)], [3 * (n % 2) for n in range(300)]], num_nodes=6)
    leaves, record = made(graph, Coupling(2), 8)
    found = with_gradients(graph, record, leaves)
    for one, other in zip(found, with_gradients(graph, record, leaves, "segment"), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)
    assert not found[1][5].any()
    none = Graph.from_edge_index([[], []], num_nodes=2)
    assert [y.shape for y in summed(none, record, made(none, Coupling(2), 8)[0])] == [(2, 24), (2, 168), (2, 360)]


def test_there_are_two_derivatives():
    torch.manual_seed(1)
    graph = random_graph(3, 3, 6)
    leaves, record = made(graph, Coupling(1), 2)

    def run(*leaves):
        return summed(graph, record, leaves)

    assert gradcheck(run, leaves, fast_mode=True) and gradgradcheck(run, leaves, fast_mode=True)


def test_float32_is_as_exact_as_messages_on_edges():
    torch.manual_seed(2)
    graph = random_graph(50, 50, 2000)
    leaves, record = made(graph, Coupling(2), 16)
    truth = with_gradients(graph, record, leaves)
    single = tuple(t.detach().float().requires_grad_() for t in leaves)

    def errors(found):
        pairs = [(one.detach(), exact.detach()) for one, exact in zip(found, truth, strict=True)]
        return [float((one - exact).norm() / exact.norm()) for one, exact in pairs]

    own, plain = errors(with_gradients(graph, record, single)), errors(with_gradients(graph, record, single, "segment"))
    assert all(ours <= 2 * theirs for ours, theirs in zip(own, plain, strict=True))


def test_threads_change_no_bit_with_any_instruction_set():
    torch.manual_seed(5)
    graph = random_graph(400, 400, 9000)
    leaves, record = made(graph, Coupling(1), 24, torch.float32)
    before, chosen = torch.get_num_threads(), library.instruction_set()
    plain = with_gradients(graph, record, leaves, "segment")
    try:
        for name in library.instruction_sets():
            library.use_instruction_set(name)
            found = []
            for count in (1, 2, 4):
                torch.set_num_threads(count)
                found.append(with_gradients(graph, record, leaves))
            for one, *others, expected in zip(*found, plain, strict=True):
                assert all(torch.equal(one, other) for other in others)
                torch.testing.assert_close(one, expected, rtol=1e-4, atol=1e-4)
    finally:
        torch.set_num_threads(before)
        library.use_instruction_set(chosen)


@pytest.mark.skipif(not CLEAR.exists(), reason="the system does not reset its high-water mark")
def test_products_are_never_written_down():
    graph = random_graph(300, 300, 30_000)
    leaves, record = made(graph, Coupling(1), 32, torch.float32)
    of_weights = leaves[1].numel() * 4 / 2**20  # which have a gradient
    with_gradients(graph, record, leaves)  # what the first step of a process loads stays out of it
    fused = peak_above(lambda: with_gradients(graph, record, leaves))
    plain = peak_above(lambda: with_gradients(graph, record, leaves, "segment"))
    assert fused < 1.4 * of_weights < plain / 2


@pytest.mark.parametrize("why", ["dtypes", "crossing"])
def test_what_the_kernel_has_not_runs_as_messages(why):
    torch.manual_seed(4)
    graph = random_graph(5, 5, 20)
    (h, R, Y), record = made(graph, Coupling(1), 2)
    if why == "dtypes":
        R = R.float()
    product = record(h, R, Y)
    if why == "crossing":  # a path that reads another's weights
        groups = zip(product.paths, product.coefficients, strict=True)
        mixed = [torch.ones_like(C) if len(outs) > 1 else C for (_, outs), C in groups]
        product = TensorProduct(R, h, harmonics=product.harmonics, paths=product.paths, coefficients=tuple(mixed))
    assert coupling.plan_of(product) is None
    for y, m_ij in zip(collect(graph, product, backend="native"), product.on_edges(graph), strict=True):
        expected = m_ij.new_zeros(5, m_ij.shape[-1]).index_add(0, graph.receivers, m_ij)
        torch.testing.assert_close(y, expected.to(y.dtype), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("network", [False, True])
def test_a_batch_is_each_member_by_itself(network):
    torch.manual_seed(6)
    graph = random_graph(4, 5, 20)
    (h, R, Y), record = made(graph, Coupling(1), 3)
    h, Y = (torch.randn(2, 3, *t.shape, dtype=t.dtype, requires_grad=True) for t in (h, Y))
    inputs = torch.randn(3, 20, 2, dtype=torch.float64)
    maps = [torch.nn.Linear(2, 8).double(), torch.nn.Linear(8, R.shape[-1]).double()]

    def weight(member):
        edges = EdgeInput((maps[0].weight, maps[0].bias), inputs if member is None else inputs[member])
        return EdgeNetwork(maps_of(maps[1:]), functional.silu, edges=edges) if network else R

    whole = summed(graph, record, (h, weight(None), Y))
    one_by_one = [[summed(graph, record, (h[a, b], weight(b), Y[a, b])) for b in range(3)] for a in range(2)]
    for type_, y in enumerate(whole):
        expected = torch.stack([torch.stack([found[type_] for found in row]) for row in one_by_one])
        torch.testing.assert_close(y, expected, rtol=1e-12, atol=1e-12)
        grads = [torch.autograd.grad(z.square().sum(), [h, Y], retain_graph=True) for z in (y, expected)]
        for one, other in zip(*grads, strict=True):
            torch.testing.assert_close(one, other, rtol=1e-11, atol=1e-11)
