"""Filters and tensor products: the records are their equation on every backend, to the second derivative."""

from dataclasses import replace

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck

from edgewise import Graph, ShapeError, collect
from edgewise.kernels import Filter, TensorProduct, shifted_softplus
from kernels.drawn import random_graph
from kernels.networks import case

BACKENDS = [None, "segment", "reference"]
PATHS = (((0, 0), (0,)), ((0, 1), (1,)), ((1, 0), (1,)), ((1, 1), (0, 1)))  # of types 0 and 1


def draw(*shape):
    return torch.randn(*shape, dtype=torch.float64, requires_grad=True)


def filter_case(graph, width=3):
    """A filter of distances, as SchNet has it, and its tensors."""
    call = case(graph, [4, width], shifted_softplus, edges=5, ends="", scale=1, reach=1.5)
    return call, draw(graph.num_senders, width)


def product_case(graph, channels=2):
    """A tensor product of types 0 and 1 with made-up coefficients, the identity for (k, 0); and its tensors."""
    paths = sum(len(outs) for _, outs in PATHS)
    call = case(graph, [4, paths * channels], edges=3, ends="")
    coefficients = []
    for (k, J), outs in PATHS:
        blocks = [torch.zeros(2 * out + 1, 2 * J + 1, len(outs), 2 * k + 1).double() for out in outs]
        for path, (out, block) in enumerate(zip(outs, blocks, strict=True)):
            eye = torch.eye(2 * k + 1).double()
            block[:, :, path] = eye[:, None] if J == 0 else torch.randn(2 * out + 1, 2 * J + 1, 2 * k + 1)
        coefficients.append(torch.cat(blocks).flatten(1))
    Y = torch.cat([torch.ones(graph.num_edges, 1), torch.randn(graph.num_edges, 3)], -1).double()

    def record(weight, h):
        return TensorProduct(weight, h, harmonics=Y, paths=PATHS, coefficients=tuple(coefficients))

    return call, draw(graph.num_senders, 4, channels), record


def derivatives(run, leaves):
    results = run(*leaves)
    results = results if isinstance(results, tuple) else (results,)
    generator = torch.Generator().manual_seed(3)
    shares = [torch.randn(y.shape, dtype=torch.float64, generator=generator) for y in results]
    return [*results, *torch.autograd.grad(results, leaves, shares)]


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("both_ways", [False, True])
def test_a_filter_is_a_weight_for_every_channel(both_ways, backend):
    graph = random_graph(6, 6, 30)
    call, x = filter_case(graph)
    w = collect(graph, call.network, None)
    y = torch.zeros(6, 3).double().index_add(0, graph.receivers, w * x[graph.senders])
    if both_ways:
        y = y.index_add(0, graph.senders, w * x[graph.receivers])
    for weight in (w, call.network):
        found = collect(graph, Filter(weight, x, both_ways), backend=backend)
        torch.testing.assert_close(found, y, rtol=0, atol=1e-12)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("both_ways", [False, True])
def test_a_filter_has_two_derivatives(both_ways, backend):
    graph = random_graph(4, 4, 9)
    call, x = filter_case(graph, width=2)

    def run(x, *leaves):
        return collect(graph, Filter(call.of(leaves).network, x, both_ways), backend=backend)

    assert gradcheck(run, (x, *call.leaves), fast_mode=True)
    assert gradgradcheck(run, (x, *call.leaves), fast_mode=True)


@pytest.mark.parametrize("reduce", ["sum", "mean", "max", "min", None])
def test_a_filter_has_every_reduction(reduce):
    graph, x = random_graph(6, 5, 30), draw(5, 3)
    w = draw(30, 3)
    expected = w * x[graph.senders]
    expected = expected if reduce is None else collect(graph, expected, reduce, backend="reference")
    for backend in BACKENDS:
        torch.testing.assert_close(collect(graph, Filter(w, x), reduce, backend=backend), expected)
    one = w[:, :1].expand(30, 3)
    torch.testing.assert_close(collect(graph, Filter(w[:, :1], x)), collect(graph, Filter(one, x)))


@pytest.mark.parametrize("backend", [None, "segment"])
@pytest.mark.parametrize("reduce", ["sum", None])
def test_a_tensor_product_agrees_with_the_reference(reduce, backend):
    graph = random_graph(6, 5, 30)
    call, h, record = product_case(graph)

    def run(backend):
        return lambda h, *leaves: collect(graph, record(call.of(leaves).network, h), reduce, backend=backend)

    found, expected = (derivatives(run(name), [h, *call.leaves]) for name in (backend, "reference"))
    assert [y.shape[-1] for y in found[:2]] == [2 * 2, 3 * 3 * 2]  # two paths into numbers, three into vectors
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-10)


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_tensor_product_has_two_derivatives(backend):
    graph = random_graph(4, 3, 9)
    call, h, record = product_case(graph, channels=1)

    def run(h, *leaves):
        return collect(graph, record(call.of(leaves).network, h), backend=backend)

    assert gradcheck(run, (h, *call.leaves), fast_mode=True)
    assert gradgradcheck(run, (h, *call.leaves), fast_mode=True)


def test_a_weight_in_another_dtype_is_taken_as_the_wider():
    graph, x, w = random_graph(6, 6, 30), torch.randn(6, 3).bfloat16(), torch.randn(30, 3)
    for both_ways in (False, True):
        found = collect(graph, Filter(w, x, both_ways))
        assert found.dtype == torch.float32
        torch.testing.assert_close(found, collect(graph, Filter(w, x.float(), both_ways)))


def test_nobody_sends_anything():
    nothing = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), num_nodes=3)
    call, x = filter_case(nothing)
    product, h, record = product_case(nothing)
    for backend in BACKENDS:
        assert not collect(nothing, Filter(call.network, x, both_ways=True), backend=backend).any()
        assert [y.shape for y in collect(nothing, record(product.network, h), backend=backend)] == [(3, 4), (3, 18)]


def test_what_does_not_fit_is_refused():
    graph, x, w = random_graph(6, 5, 30), draw(5, 3), draw(30, 3)
    with pytest.raises(ShapeError, match=r"senders of a filter are \[4, 3\], but must be \[\*, 5, C\]"):
        collect(graph, Filter(w, x[:4]))
    with pytest.raises(ShapeError, match=r"weights of messages are \[29, 3\], but must be \[\*, 30, C\]"):
        collect(graph, Filter(w[:29], x))
    with pytest.raises(ShapeError, match="have 2 channels, but must have 3"):
        collect(graph, Filter(w[:, :2], x))
    with pytest.raises(ShapeError, match=r"leading batches \[2\] and \[4\], which do not broadcast"):
        collect(graph, Filter(w.expand(2, -1, -1), x.expand(4, -1, -1)))
    with pytest.raises(ShapeError, match="both directions is summed, on a graph whose receivers are its senders"):
        collect(graph, Filter(w, x, both_ways=True))
    call, h, record = product_case(random_graph(5, 5, 30))
    product = replace(record(call.network, h), harmonics=torch.ones(30, 3).double())
    with pytest.raises(ShapeError, match="harmonics of a tensor product have 3 channels, but must have 4 for J = 1"):
        collect(random_graph(5, 5, 30), product)


def test_a_message_equals_itself_alone():
    """Its tensors have no equality that is true or false."""
    weight, x = torch.ones(2, 3), torch.ones(2, 3)
    one, other = Filter(weight, x), Filter(weight, x)
    assert one == one and one != other and len({one, other}) == 2


@pytest.mark.parametrize("normalised", [0, -1.0, float("nan"), float("inf")])
def test_a_filter_is_not_divided_by_nothing(normalised):
    with pytest.raises(ShapeError, match="normalised must be a finite number above 0"):
        collect(random_graph(4, 4, 5), Filter(draw(5, 3), draw(4, 3), normalised=normalised))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"senders": [1]}, r"h is a list, but must be \[\*, 5, 1, C\]"),
        ({"paths": ((0, 0),)}, r"has the path \(0, 0\): paths are"),
        ({"paths": (((0, 1), (0,)),)}, r"has the path \(\(0, 1\), \(0,\)\)"),
        ({"paths": (((0, 1), (1,)),)}, r"lead to the types \[1\], but must lead to each from 0 to the largest k, 0"),
        ({"coefficients": (torch.eye(2),)}, r"the coefficients of path \(0, 0\) are \[2, 2\], but must be \[1, 1\]"),
    ],
)
def test_parts_of_a_tensor_product_that_do_not_fit_are_refused(wrong, message):
    paths, whole = (((0, 0), (0,)),), (torch.eye(1),)
    right = TensorProduct(torch.ones(30, 4), torch.ones(5, 1, 4), torch.ones(30, 1), paths, whole)
    with pytest.raises(ShapeError, match=message):
        collect(random_graph(6, 5, 30), replace(right, **wrong))
