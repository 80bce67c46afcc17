"""Where a perceptron runs as one operation, and where it must not."""

import pytest
import torch
from torch.nn import functional

from edgewise import Graph, complete, plans, use_backend
from edgewise.kernels import perceptron
from edgewise.layers import GIN, MLP, FeedForward
from edgewise.native import library

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
