"""Where a perceptron runs as one operation, and where it must not."""

from functools import partial

import pytest
import torch
from torch.nn import functional

from edgewise import Graph, complete, plans, record_messages, use_backend
from edgewise.errors import ShapeError
from edgewise.kernels import perceptron
from edgewise.kernels.choose.fused import beside_own
from edgewise.layers import GIN, GINE, MLP, FeedForward
from edgewise.native import library
from kernels.drawn import random_graph

pytestmark = pytest.mark.skipif(library is None, reason="the C++ kernels are not built")

PAIR = Graph.from_edge_index([[0, 1, 2], [1, 0, 1]], num_nodes=3)
X = torch.randn(3, 4, generator=torch.Generator().manual_seed(0))


def at_once(x=X, activation=functional.relu, graph=PAIR, dtype=torch.float32):
    W_1, W_2 = torch.ones(5, 4, dtype=dtype), torch.ones(2, 5, dtype=dtype)
    return perceptron(x, (W_1, None), (W_2, None), activation, graph)


def test_it_runs_where_nothing_stands_in_its_way():
    assert at_once() is not None
    assert at_once(graph=None).shape == (3, 2)
    assert at_once(torch.randn(2, 3, 4), graph=None).shape == (2, 3, 2)


def test_it_leaves_to_others_what_it_does_not_compute():
    assert at_once(activation=torch.tanh) is None
    assert at_once(graph=complete(3)) is None
    assert at_once(torch.randn(2, 3, 4)) is None
    assert at_once(X[:2]) is None
    assert MLP([4, 5, 2]).at_once(torch.randn(5, 4), PAIR) is None
    assert at_once(X.bfloat16(), dtype=torch.bfloat16) is None
    assert at_once(X.double()) is None
    assert at_once(X[:0], graph=None) is None
    with torch.autocast("cpu", torch.bfloat16):
        assert at_once() is None
    with use_backend("segment"):
        assert at_once() is None
    with plans() as made:
        GIN(MLP([4, 5, 2]))(PAIR, X)
    assert len(made) == 1


def test_messages_that_are_recorded_are_listed():
    layer = GINE(MLP([4, 5, 2]), edges=3)
    with record_messages() as seen:
        layer(PAIR, X, torch.randn(3, 3))
    assert len(seen) == 1


def test_transforms_see_its_parts():
    layer = GIN(MLP([4, 5, 2]))
    own = torch.func.grad(lambda x: layer(PAIR, x).sum())(X)
    x = X.clone().requires_grad_()
    layer(PAIR, x).sum().backward()
    assert torch.allclose(own, x.grad, atol=1e-6)


@pytest.mark.parametrize("make", [lambda: MLP([4, 5, 4]), lambda: FeedForward(4, 8)])
def test_hooks_of_a_map_are_called(make):
    module, seen = make(), []
    before = module(X)
    last = list(module.modules())[-1]
    last.register_forward_hook(lambda *_: seen.append(1))
    assert torch.allclose(module(X), before, atol=1e-6) and seen == [1]


def of_gine(graph, dtype=torch.float64, width=20):
    torch.manual_seed(3)
    layer, sizes = (
        GINE(MLP([width, 6, 4]), edges=3, epsilon=0.3).to(dtype),
        ((graph.num_senders, width), (graph.num_edges, 3)),
    )
    x, e = (torch.randn(size, dtype=dtype).requires_grad_() for size in sizes)
    return layer, x, e


def test_messages_beside_own_features_are_the_equation():
    loops = Graph.from_edge_index([[0, 1, 2, 2, 4, 0, 2], [0, 0, 0, 2, 4, 4, 4]], num_nodes=6)
    layer, x, e = of_gine(loops)
    leaves = [x, e, *layer.parameters()]
    own = beside_own(loops, x, e, layer.epsilon, (layer.edge.weight, layer.edge.bias))
    plain = (1 + layer.epsilon) * x + torch.zeros_like(x).index_add(
        0, loops.receivers, (x[loops.senders] + layer.edge(e)).relu()
    )
    torch.testing.assert_close(own, plain)
    torch.testing.assert_close(beside_own(loops, x, layer.edge(e), layer.epsilon), plain)
    results = []
    for backend in (None, "reference"):
        with use_backend(backend):
            y = layer(loops, x, e)
        results.append([y, *torch.autograd.grad(y.square().sum(), leaves)])
    for found, expected in zip(*results, strict=True):
        torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)


def test_messages_beside_own_features_have_second_derivatives_and_the_same_bits():
    graph = Graph.from_edge_index([[0, 1, 2], [1, 1, 0]], num_nodes=3)
    layer, x, e = of_gine(graph, width=2)
    given = (x, e, layer.edge.weight, layer.edge.bias, layer.epsilon)

    def s(x, e, weight, bias, epsilon):
        return beside_own(graph, x, e, epsilon, (weight, bias))

    assert torch.autograd.gradcheck(s, given) and torch.autograd.gradgradcheck(s, given)
    given = (x, torch.randn_like(x).requires_grad_(), layer.epsilon)  # as many edges as nodes
    as_it_is = partial(beside_own, graph)
    assert torch.autograd.gradcheck(as_it_is, given) and torch.autograd.gradgradcheck(as_it_is, given)
    many = random_graph(2000, 2000, 30_000)
    layer, x, e = of_gine(many, torch.float32, width=64)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2, 3):
            torch.set_num_threads(threads)
            y = beside_own(many, x, e, layer.epsilon, (layer.edge.weight, layer.edge.bias))
            leaves = [x, e, layer.edge.weight, layer.edge.bias, layer.epsilon]
            found.append([y, *torch.autograd.grad(y, leaves, x.detach())])
            wide = layer.edge(e)
            y = beside_own(many, x, wide, layer.epsilon)
            found[-1] += [y, *torch.autograd.grad(y, [x, wide, layer.epsilon], x.detach())]
    finally:
        torch.set_num_threads(before)
    assert all(torch.equal(a, b) for one in found[1:] for a, b in zip(found[0], one, strict=True))


@pytest.mark.parametrize("threads", [1, 3])
def test_features_of_edges_in_the_callers_order_are_read_where_they_lie(threads):
    generator = torch.Generator().manual_seed(3)
    graph = Graph.from_edge_index(torch.randint(40, (2, 300), generator=generator), num_nodes=40)
    assert not torch.equal(graph.sort_edges(torch.arange(300)), torch.arange(300))
    layer, x, e = of_gine(graph, width=70)
    x, e = (torch.randn(t.shape, dtype=t.dtype, generator=generator).requires_grad_() for t in (x, e))
    edge, wide = (layer.edge.weight, layer.edge.bias), layer.edge(e).detach().requires_grad_()
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(threads)
        for given, map_ in ((e, edge), (wide, None)):
            leaves = [x, given, layer.epsilon, *(map_ or ())]
            found, expected = (
                beside_own(graph, x, t, layer.epsilon, map_, callers)
                for t, callers in ((given, True), (graph.sort_edges(given), False))
            )
            assert torch.equal(found, expected)
            for one, other in zip(
                *(torch.autograd.grad(y.square().sum(), leaves) for y in (found, expected)), strict=True
            ):
                torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)
    finally:
        torch.set_num_threads(before)
    few = Graph.from_edge_index([[0, 1, 2, 0], [1, 0, 1, 0]], num_nodes=3)
    given = [torch.randn(n, 2, dtype=torch.float64, generator=generator).requires_grad_() for n in (3, 4)]
    callers = partial(beside_own, few, epsilon=layer.epsilon, callers=True)
    assert torch.autograd.gradcheck(callers, given) and torch.autograd.gradgradcheck(callers, given)


def test_messages_beside_own_features_are_left_to_others():
    graph = Graph.from_edge_index([[0, 1], [1, 0]], num_nodes=2)
    layer, x, e = of_gine(graph)
    edge = layer.edge.weight, layer.edge.bias
    assert beside_own(graph, x, e, layer.epsilon, edge) is not None
    assert beside_own(graph, x, e[:, :1], layer.epsilon) is None
    two_sides = Graph.from_edge_index([[0, 1], [0, 0]], num_nodes=2, num_receivers=1)
    assert beside_own(two_sides, x, e, layer.epsilon, edge) is None
    assert beside_own(graph, x.float(), e, layer.epsilon, edge) is None
    assert beside_own(graph, x.expand(2, -1, -1), e, layer.epsilon, edge) is None
    assert beside_own(graph, x[:1], e, layer.epsilon, edge) is None
    with use_backend("segment"):
        assert beside_own(graph, x, e, layer.epsilon, edge) is None
    with pytest.raises(ShapeError):
        layer(graph, x[:1], e)
