"""Activations that are modules run as the functions that they compute."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from edgewise import EdgeNetwork, Graph, collect, plan
from edgewise.kernels.messages.activations import FUNCTIONS, as_function

GRAPH = Graph.from_edge_index(torch.randint(9, (2, 40), generator=torch.Generator().manual_seed(0)), 9)


def message(activation: nn.Module, x: torch.Tensor) -> EdgeNetwork:
    return EdgeNetwork((), activation, receivers=x, senders=x, activated=True)


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_a_module_is_its_function_and_runs_where_that_does(kind: type[nn.Module]) -> None:
    x = torch.randn(9, 16)
    assert torch.equal(kind()(x), FUNCTIONS[kind](x))
    results = []
    for activation in (kind(), FUNCTIONS[kind]):
        leaf = x.clone().requires_grad_()
        y = collect(GRAPH, message(activation, leaf), backend="native")
        y.square().sum().backward()
        results.append((y, leaf.grad))
    assert torch.equal(results[0][0], results[1][0])
    assert torch.equal(results[0][1], results[1][1])


def test_modules_with_hooks_of_ones_own_or_with_options_are_called() -> None:
    class Own(nn.ReLU):
        pass

    hooked, replaced, seen = nn.ReLU(), nn.ReLU(), []
    hooked.register_forward_hook(lambda *_: seen.append(1))
    replaced.forward = torch.tanh  # type: ignore[method-assign, assignment]
    for module in (hooked, replaced, Own(), nn.LeakyReLU(0.3), nn.GELU("tanh"), torch.tanh):
        assert as_function(module) is module
    collect(GRAPH, message(hooked, torch.randn(9, 4)))
    assert seen
    assert as_function(nn.ReLU(inplace=True)) is functional.relu


def test_the_planner_sees_the_function() -> None:
    x = torch.randn(9, 16)
    assert "relu" in plan(GRAPH, message(nn.ReLU(), x)).what
    assert plan(GRAPH, message(nn.ReLU(), x)).choice == plan(GRAPH, message(functional.relu, x)).choice


@pytest.mark.compiled
def test_a_compiled_call_takes_a_module() -> None:
    activation, x = nn.SiLU(), torch.randn(9, 16)

    def call(x: torch.Tensor) -> torch.Tensor:
        return collect(GRAPH, message(activation, x))

    assert torch.allclose(torch.compile(call, backend="eager", fullgraph=True)(x), call(x), atol=1e-6)
