"""Networks on edges are their equation on every backend, to the second derivative; activations; Gaussians."""

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional

from edgewise import Graph, GraphError, ShapeError, collect, ends
from edgewise.kernels import EdgeInput, EdgeNetwork, gaussians, maps_of, shifted_softplus
from edgewise.kernels.messages.network import FUNCTIONS, as_function
from kernels.drawn import random_graph
from kernels.networks import case, drawn, with_gradients


def linear(x, weight_and_bias):
    return functional.linear(x, *weight_and_bias)


def test_a_network_is_an_mlp_of_both_ends_and_the_edge():
    graph = random_graph(6, 5, 30)
    call = case(graph, [4, 3, 2], edges=3, scale=1, readout=1, reduce=None)
    network = call.network
    a_i, b_j = ends(graph, network.receivers, network.senders)
    u_1 = functional.silu(a_i + b_j + linear(network.edges.values, network.edges.map))
    u_2 = functional.silu(linear(u_1, network.maps[0]))
    y = torch.zeros(6, 3, dtype=torch.float64).index_add(0, graph.receivers, u_2)
    for backend in (None, "segment", "reference"):
        for found, expected in zip(call(backend), [y, network.scale * linear(u_2, network.maps[1])], strict=True):
            torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_a_distance_is_read_as_its_gaussians():
    call = case(random_graph(6, 5, 30), [4, 3], edges=7, ends="", reach=1.5, reduce=None)
    network = call.network
    first = linear(gaussians(network.edges.values, 7, 1.5), network.edges.map)
    torch.testing.assert_close(call()[0], linear(functional.silu(first), network.maps[0]), rtol=0, atol=1e-12)


def test_a_gate_weighs_the_message():
    graph, gate = random_graph(6, 5, 30), (torch.randn(1, 3).double(), torch.randn(1).double())
    call = case(graph, [4, 3, 2], gate=gate, readout=1, reduce=None)
    a_i, b_j = ends(graph, call.network.receivers, call.network.senders)
    u = functional.silu(linear(functional.silu(a_i + b_j), call.network.maps[0]))
    u = u / (1 + torch.exp(-linear(u, gate)))
    y = torch.zeros(6, 3, dtype=torch.float64).index_add(0, graph.receivers, u)
    for found, expected in zip(call(), [y, linear(u, call.network.maps[1])], strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_dropout_acts_on_hidden_numbers():
    network = case(random_graph(6, 5, 2000), [1, 1], dropout=0.25, activated=True, reduce=None).network
    one = torch.ones(1, 1, dtype=torch.float64)
    receivers, senders = torch.zeros_like(network.receivers), torch.zeros_like(network.senders)
    message = EdgeNetwork(((one, one[0]),), torch.exp, receivers=receivers, senders=senders, dropout=0.25)
    found = collect(random_graph(6, 5, 2000), message, None)  # exp(0) dropped or 4/3, plus 1
    assert {round(value, 9) for value in found.flatten().tolist()} == {1.0, round(1 + 4 / 3, 9)}
    assert found.mean().item() == pytest.approx(2, abs=0.1)


@pytest.mark.parametrize("backend", [None, "segment"])
@pytest.mark.parametrize("block", range(4))
def test_every_backend_agrees_with_the_reference(backend, block):
    torch.manual_seed(block)
    for _ in range(10):
        call = drawn([functional.silu, torch.tanh, functional.relu])
        for found, expected in zip(with_gradients(call, backend), with_gradients(call, "reference"), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("backend", [None, "segment", "reference"])
@pytest.mark.parametrize("reach", [None, 1.5])
def test_first_and_second_derivatives(reach, backend):
    call = case(random_graph(4, 3, 9), [3, 2, 1], shifted_softplus, edges=2, scale=3, readout=2, reach=reach)
    assert gradcheck(lambda *t: call.of(t)(backend), call.leaves, fast_mode=True)
    assert gradgradcheck(lambda *t: call.of(t)(backend), call.leaves, fast_mode=True)


@pytest.mark.compiled
def test_it_compiles_whole():
    call = case(random_graph(6, 5, 30), [4, 3, 2], edges=3, readout=1)
    expected = with_gradients(call)
    compiled = torch.compile(lambda *t: call.of(t)(), backend="aot_eager", fullgraph=True)
    results = compiled(*call.leaves)
    generator = torch.Generator().manual_seed(7)
    shares = [torch.randn(y.shape, dtype=torch.float64, generator=generator) for y in results]
    grads = torch.autograd.grad(results, call.leaves, shares)
    for one, other in zip([*results, *grads], expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_a_batch_is_one_call_after_the_other():
    graph = random_graph(6, 5, 30)
    maps, a, b = maps_of([nn.Linear(4, 3)]), torch.randn(2, 6, 4), torch.randn(2, 5, 4)

    def run(a, b):
        m_ij = EdgeNetwork((), functional.silu, receivers=a, senders=b, activated=True)
        return collect(graph, m_ij.then(maps), None)

    both = run(a, b)
    for n in range(2):
        for found, expected in zip(both, run(a[n], b[n]), strict=True):
            torch.testing.assert_close(found[n], expected)
    alone = run(a[:1], b[:1])
    assert [y.shape for y in alone] == [(1, 6, 4), (1, 30, 3)]


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16, torch.float32])
def test_low_precisions_run_and_keep_their_dtype(dtype):
    call = case(random_graph(6, 5, 30), [4, 3, 2], edges=3, readout=1)
    for found, expected in zip(call.to(dtype)(), call(), strict=True):
        assert found.dtype == dtype
        torch.testing.assert_close(found.double(), expected, rtol=0.1, atol=0.1)


def test_under_autocast_linear_maps_compute_in_its_dtype():
    call = case(random_graph(6, 5, 30), [4, 3, 2], edges=3, scale=1, readout=1, reduce=None).to(torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        _, r = call()
    rounded = call.of([t.bfloat16() for t in call.leaves])
    torch.testing.assert_close(r.float(), rounded()[1].float(), rtol=0.1, atol=0.05)
    assert not torch.equal(r.float(), call()[1])
    grads = torch.autograd.grad(r.sum(), call.leaves, allow_unused=True)
    assert {grad.dtype for grad in grads if grad is not None} == {torch.float32}


@pytest.mark.parametrize("edges", [0, 3])
def test_nobody_sends_anything(edges):
    nothing = Graph.from_edge_index(torch.zeros(2, 0, dtype=torch.int64), num_nodes=3)
    call = case(nothing, [4, 2], edges=edges, readout=1, reduce="mean")
    for backend in (None, "segment", "reference"):
        found = with_gradients(call, backend)
        assert [y.shape for y in found[:2]] == [(3, 4), (3, 2)]
        assert not any(bool(t.any()) for t in found)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"receivers": torch.zeros(4, 3)}, r"receivers of the network are \[4, 3\], but must be \[\*, 3, C\]"),
        ({"senders": torch.zeros(3, 2)}, r"must have one width, not \[2, 3\]"),
        ({"scale": torch.zeros(2, 3)}, "the scale has 3 channels, and the network's result 2"),
        ({"maps": maps_of([nn.Linear(4, 2)])}, "a map of the network reads 4 channels, but there are 3"),
        ({"edges": EdgeInput((torch.zeros(3, 5), None), torch.zeros(2, 4))}, "reads 5 channels, but there are 4"),
        ({"edges": EdgeInput((torch.zeros(3, 7), None), torch.zeros(2, 4), 1.5)}, r"\[2, 4\], but .* distances"),
        ({"maps": ((torch.zeros(8, 3), torch.zeros(1)),)}, r"a map of the network has a bias \[1\], .* one \[8\]"),
        ({"hidden": 1}, "hidden=1 must be one of 0 to 0"),
        ({"dropout": "0.1"}, "dropout is a probability, not '0.1'"),
        (
            {"receivers": torch.zeros(2, 3, 3), "senders": torch.zeros(5, 3, 3)},
            r"batches \[2\] and \[5\], which do not",
        ),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    graph = Graph.from_edge_index([[0, 1], [2, 2]], num_nodes=3)
    given = {"maps": maps_of([nn.Linear(3, 2)]), "receivers": torch.zeros(3, 3), "senders": torch.zeros(3, 3)} | change
    with pytest.raises(ShapeError, match=message):
        collect(graph, EdgeNetwork(activation=functional.silu, **given))


def test_only_messages_have_a_readout():
    with pytest.raises(ShapeError, match="only a network that ends with its activation"):
        EdgeNetwork((), functional.silu, receivers=torch.zeros(3, 3)).then(maps_of([nn.Linear(3, 1)]))


W = torch.ones(2, 3)


@pytest.mark.parametrize(
    ("maps", "more", "message"),
    [
        ((W,), {}, r"must be a pair \(weight \[outputs, 3\], bias \[outputs\] or None\) of tensors, not \[2, 3\]"),
        (((W, None),), {"edges": torch.ones(30, 3)}, r"edges of the network must be an EdgeInput\(map, values\)"),
        (((W, None),), {"activation": lambda z: z[:, :1]}, r"activation makes .*\[30, 1\] of \[30, 3\], but must keep"),
        (((W, None),), {"activation": "relu"}, "the activation must be a function such as torch.relu, not 'relu'"),
    ],
)
def test_parts_of_another_kind_are_refused(maps, more, message):
    network = EdgeNetwork(maps, **{"activation": torch.relu, "senders": torch.ones(5, 3), **more})
    with pytest.raises(ShapeError, match=message):
        collect(random_graph(6, 5, 30), network)


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


@pytest.mark.compiled
def test_a_compiled_call_takes_a_module() -> None:
    activation, x = nn.SiLU(), torch.randn(9, 16)

    def call(x: torch.Tensor) -> torch.Tensor:
        return collect(GRAPH, message(activation, x))

    assert torch.allclose(torch.compile(call, backend="eager", fullgraph=True)(x), call(x), atol=1e-6)


@pytest.mark.parametrize("backend", [None, "native", "segment"])
@pytest.mark.parametrize(("count", "reach"), [(5, 0.0), (5, -1.0), (5, float("nan")), (5, float("inf")), (1, 1.5)])
def test_what_cannot_be_spread_is_refused_on_every_backend(count, reach, backend):
    with pytest.raises((ShapeError, GraphError), match=r"reach must be|number of Gaussians must be"):
        case(random_graph(6, 5, 30), [4, 3], edges=count, ends="", reach=reach)(backend)


def test_whole_numbers_have_the_gaussians_of_the_same_floats():
    length = torch.tensor([[0], [1], [2]])
    torch.testing.assert_close(gaussians(length, 4, 2.0), gaussians(length.float(), 4, 2.0))
