"""Activations of both ends and the edge: the C++ kernel against the equation in plain PyTorch."""

import pytest
import torch
from torch.nn import functional

from edgewise import Graph, collect
from edgewise.kernels import EdgeInput, EdgeNetwork, Filter, shifted_softplus
from edgewise.native import library
from kernels.drawn import covering, random_graph

pytestmark = pytest.mark.skipif(library is None, reason="built without the C++ kernels")

ACTIVATIONS = [functional.relu, functional.silu, shifted_softplus, torch.sigmoid]
GRAPH = Graph.from_edge_index(torch.randint(7, (2, 40), generator=torch.Generator().manual_seed(0)), num_nodes=8)
FORMS = [(functional.relu, "sum"), (functional.relu, "filter"), (torch.sigmoid, "filter")]


def case(activation, form, terms, graph=GRAPH, width=20, dtype=torch.float64):
    """A message, and its leaves."""

    def draw(*shape):
        return torch.randn(shape, dtype=dtype).requires_grad_()

    a, b, x = draw(graph.num_receivers, width), draw(graph.num_senders, width), draw(graph.num_senders, width)
    e, weight, bias = draw(graph.num_edges, 3), draw(width, 3), draw(width)
    edges = EdgeInput((weight, bias if "bias" in terms else None), e) if "edge" in terms else None
    receivers = a if "receiver" in terms else None
    gate = EdgeNetwork((), activation, receivers=receivers, senders=b, edges=edges, activated=True)
    message = {"sum": gate, "filter": Filter(gate, x), "normalised": Filter(gate, x, normalised=0.1)}[form]
    return message, [a, b, x, e, weight, bias]


def with_gradients(graph, message, leaves, backend, reduce="sum"):
    y = collect(graph, message, reduce, backend=backend)
    d = torch.randn(y.shape, dtype=y.dtype, generator=torch.Generator().manual_seed(1))
    return [y, *torch.autograd.grad(y, leaves, d, materialize_grads=True, allow_unused=True)]


TERMS = ["receiver", "sender", "edge", "receiver, edge", "receiver, edge, bias"]


@pytest.mark.parametrize(
    ("terms", "form", "activation"), covering(4 * TERMS, ["sum", "filter", "normalised"], ACTIVATIONS)
)
def test_the_kernel_is_the_equation(terms, form, activation):
    torch.manual_seed(2)
    message, leaves = case(activation, form, terms)
    for reduce in ("sum", "mean", "max") if form != "normalised" else ("sum",):
        both = [with_gradients(GRAPH, message, leaves, name, reduce) for name in ("native", "segment")]
        for found, expected in zip(*both, strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize(
    ("name", "usual"), [(torch.relu, functional.relu), (functional.sigmoid, torch.sigmoid)], ids=["relu", "sigmoid"]
)
def test_an_activation_may_go_by_another_name_of_pytorch(name, usual):
    results = []
    for activation in (name, usual):
        torch.manual_seed(5)
        message, leaves = case(activation, "filter", "receiver, edge")
        results.append(with_gradients(GRAPH, message, leaves, "native"))
    assert all(torch.equal(one, other) for one, other in zip(*results, strict=True))


@pytest.mark.parametrize("form", ["sum", "filter", "normalised"])
def test_second_derivatives(form):
    graph = random_graph(3, 3, 6)
    message, leaves = case(torch.sigmoid, form, "receiver, edge, bias", graph, width=2)
    first = [
        torch.autograd.grad(
            collect(graph, message, backend=name).square().sum(), leaves,
            create_graph=True, allow_unused=True, materialize_grads=True,
        )
        for name in ("native", "segment")
    ]  # fmt: skip
    second = [
        torch.autograd.grad(sum(t.square().sum() for t in of), leaves, allow_unused=True, materialize_grads=True)
        for of in first
    ]
    for found, expected in zip(*second, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-8, atol=1e-8)


def test_messages_themselves_are_normalised():
    message, _ = case(torch.sigmoid, "normalised", "edge")
    expected = collect(GRAPH, message, backend="native")
    m_ij = collect(GRAPH, message, None, backend="native")
    torch.testing.assert_close(torch.zeros_like(expected).index_add(0, GRAPH.receivers, m_ij), expected)


@pytest.mark.parametrize("activation", ACTIVATIONS)
def test_large_numbers_and_nan(activation):
    graph = Graph.from_edge_index([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]], num_nodes=6)
    for dtype in (torch.float32, torch.float64):
        b = torch.tensor([[-1e30], [-200.0], [0.0], [200.0], [1e30], [torch.nan]], dtype=dtype)
        message = EdgeNetwork((), activation, senders=b, activated=True)
        found, expected = (collect(graph, message, backend=name) for name in ("native", "segment"))
        torch.testing.assert_close(found, expected, equal_nan=True, rtol=2e-6, atol=1e-7)


@pytest.mark.parametrize(("width", "dtype"), covering([1, 16, 64, 70, 130], [torch.float32, torch.float64]))
@pytest.mark.parametrize(("activation", "form"), FORMS)
def test_any_width_and_layout(activation, form, dtype, width):
    """Widths within a vector, of several and of more than one word of signs; terms that lie among other columns."""
    torch.manual_seed(3)
    graph = random_graph(40, 30, 200)  # some receivers and senders without edges
    wide = [torch.randn(n, 3 * width, dtype=dtype).requires_grad_() for n in (40, 30)]
    e = torch.randn(5, 200, dtype=dtype).requires_grad_()
    weight = torch.randn(width, 5, dtype=dtype).requires_grad_()
    a, (b, x, _) = wide[0].chunk(3, -1)[1], wide[1].chunk(3, -1)
    gate = EdgeNetwork((), activation, receivers=a, senders=b, edges=EdgeInput((weight, None), e.t()), activated=True)
    message, leaves = gate if form == "sum" else Filter(gate, x), [*wide, e, weight]
    both = [with_gradients(graph, message, leaves, name) for name in ("native", "segment")]
    tolerance = 1e-5 if dtype == torch.float32 else 1e-11
    for found, expected in zip(*both, strict=True):
        assert (found - expected).norm() <= tolerance * expected.norm()


@pytest.mark.parametrize("learned", range(5))
@pytest.mark.parametrize(("activation", "form"), FORMS)
def test_a_gradient_alone(activation, form, learned):
    """Whichever gradient is asked for, it is the same as among all of them."""
    torch.manual_seed(4)
    graph = random_graph(40, 40, 300)
    message, leaves = case(activation, form, "receiver, edge, bias", graph)
    leaves = [leaf for n, leaf in enumerate(leaves) if n != 2 or form == "filter"]  # only a filter reads x
    _, among = with_gradients(graph, message, [leaves[learned]], "native")
    for other in leaves:
        other.requires_grad_(other is leaves[learned])
    _, alone = with_gradients(graph, message, [leaves[learned]], "native")
    assert among.abs().sum() > 0
    assert torch.equal(alone, among)


@pytest.mark.parametrize("edges", [20_000, 2_000])
@pytest.mark.parametrize(("activation", "form"), [(torch.sigmoid, "normalised"), (functional.relu, "sum")])
def test_threads_change_no_bit(activation, form, edges):
    graph, before, bits = random_graph(300, 200, edges), torch.get_num_threads(), []
    message, leaves = case(activation, form, "receiver, edge", graph, 64, torch.float32)
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            bits.append(with_gradients(graph, message, leaves, "native"))
    finally:
        torch.set_num_threads(before)
    for other in bits[1:]:
        assert all(torch.equal(one, two) for one, two in zip(bits[0], other, strict=True))
