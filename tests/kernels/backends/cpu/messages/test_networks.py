"""Networks on edges: the C++ kernel against the equation in plain PyTorch, and what it promises of time and memory."""

import pytest
import torch
from torch.nn import functional

from benchmarks.memory import CLEAR, peak_above
from edgewise import BackendRefusal, Graph, collect
from edgewise.kernels import EdgeNetwork, Filter, shifted_softplus
from edgewise.native import library
from kernels.drawn import random_graph
from kernels.networks import case, drawn, with_gradients

pytestmark = pytest.mark.skipif(library is None, reason="built without the C++ kernels")


@pytest.mark.parametrize("block", range(4))
def test_the_kernel_is_the_equation_on_random_graphs(block):
    torch.manual_seed(block)
    for _ in range(20):
        call = drawn()
        for found, expected in zip(with_gradients(call, "native"), with_gradients(call, "segment"), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_gaussians_left_out_are_those_that_nobody_sees(dtype):
    graph = random_graph(40, 30, 600)
    call = case(graph, [16, 16], shifted_softplus, edges=50, ends="", reach=1.5, reduce=None)
    call.network.edges.values.data[:4] = torch.tensor([[0.0], [1.5], [40.0], [1e30]])
    truth, call = with_gradients(call, "native")[0], call.to(dtype)
    for found, expected in zip(with_gradients(call, "native"), with_gradients(call, "segment"), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4 if dtype == torch.float32 else 1e-13)
    assert torch.allclose(with_gradients(call, "native")[0].double(), truth, rtol=0, atol=2e-6)
    call.network.edges.values.data[5] = torch.nan
    assert call("native")[0].isnan().all(-1).nonzero().flatten().tolist() == [5]


def test_float32_is_as_exact_as_plain_pytorch():
    torch.manual_seed(3)
    exact = case(random_graph(300, 200, 5000), [64, 64, 64, 1], edges=4, readout=2, reduce=None)
    single = exact.to(torch.float32)
    truth = with_gradients(exact)
    for one, other, right in zip(
        with_gradients(single, "native"), with_gradients(single, "segment"), truth, strict=True
    ):
        error, usual = ((t.double() - right).norm() for t in (one, other))
        assert error <= 2 * usual + 4e-7 * right.norm()  # a few units in the last place


@pytest.mark.parametrize("activation", [functional.relu, functional.silu, shifted_softplus])
def test_large_numbers_and_nan(activation):
    graph = Graph.from_edge_index([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]], num_nodes=6)
    x = torch.tensor([[-1e30], [-200.0], [0.0], [200.0], [1e30], [float("nan")]])
    for dtype in (torch.float32, torch.float64):
        z = x.to(dtype).requires_grad_()
        y = collect(graph, EdgeNetwork((), activation, receivers=z, activated=True), backend="native")
        (slope,) = torch.autograd.grad(y[:5].sum(), z)
        other = z.detach().requires_grad_()
        expected = activation(other)
        (right,) = torch.autograd.grad(expected[:5].sum(), other)
        torch.testing.assert_close(y, expected, equal_nan=True)
        torch.testing.assert_close(slope[:5], right[:5])


@pytest.mark.parametrize(("nodes", "edges", "width"), [(3000, 60_000, 16), (40, 1500, 64)])  # many, and few but wide
def test_threads_and_instruction_sets_change_nothing(nodes, edges, width):
    torch.manual_seed(5)
    graph = random_graph(nodes, nodes, edges)
    call = case(graph, [width, width, 1], edges=1, readout=1, reduce=None).to(torch.float32)
    before, chosen = torch.get_num_threads(), library.instruction_set()
    try:
        found = []
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            found.append(with_gradients(call, "native"))
        for name in library.instruction_sets():
            library.use_instruction_set(name)
            for one, other in zip(with_gradients(call, "native"), found[0], strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * other.detach().abs().max().item())
    finally:
        torch.set_num_threads(before)
        library.use_instruction_set(chosen)
    assert all(torch.equal(one, other) for more in found[1:] for one, other in zip(more, found[0], strict=True))


@pytest.mark.skipif(not CLEAR.exists(), reason="the system does not reset its high-water mark")
def test_activations_are_never_written_down_nor_on_one_thread_gradients_to_senders():
    call = case(random_graph(500, 500, 60_000), [64, 64, 64, 1], edges=1, readout=2).to(torch.float32)
    layer, threads = 60_000 * 64 * 4 / 2**20, torch.get_num_threads()
    with_gradients(call, "native")  # what a first step leaves: the graph's transpose, and libraries' pages
    try:
        torch.set_num_threads(1)
        alone = peak_above(lambda: with_gradients(call, "native"))
        torch.set_num_threads(2)
        shared = peak_above(lambda: with_gradients(call, "native"))
    finally:
        torch.set_num_threads(threads)
    plain = peak_above(lambda: with_gradients(call, "segment"))
    assert alone < 0.6 * layer < shared < 1.6 * layer < plain / 4


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"activation": torch.tanh}, "no tanh: they take relu, silu, shifted_softplus and sigmoid"),
        ({"widths": [2] * 9}, "at most 8 linear maps"),
        ({"gate": (torch.zeros(1, 2), None)}, "no gate"),
        ({"dropout": 0.5}, "no dropout"),
    ],
)
def test_what_the_kernel_has_not_is_refused_by_name_and_runs_elsewhere(options, reason):
    call = case(random_graph(6, 5, 30), **{"widths": [2, 2], "activated": True} | options)
    with pytest.raises(BackendRefusal, match=reason):
        call("native")
    assert call("segment")[0].shape == call()[0].shape == (6, 2)


def test_other_precisions_and_batches_are_refused():
    call = case(random_graph(6, 5, 30), [2, 2])
    with pytest.raises(BackendRefusal, match=r"in float32 and float64, not in torch\.bfloat16"):
        call.to(torch.bfloat16)("native")
    mixed = call.of([call.leaves[0].float(), *call.leaves[1:]])
    with pytest.raises(BackendRefusal, match=r"one dtype, not torch\.float32 and torch\.float64"):
        mixed("native")
    batch = call.of([t.unsqueeze(0) if n < 2 else t for n, t in enumerate(call.leaves)])
    with pytest.raises(BackendRefusal, match="no leading batch"):
        batch("native")
    torch.testing.assert_close(batch()[0][0], call()[0])


@pytest.mark.parametrize(("width", "batch"), [(1, (2,)), (7, ()), (8, (2,)), (67, ())])
def test_weights_serve_both_directions(width, batch):
    torch.manual_seed(width)
    graph = random_graph(9, 9, 40)
    x, w = (torch.randn(*batch, n, width, dtype=torch.float64, requires_grad=True) for n in (9, 40))
    i, j = graph.receivers, graph.senders
    zero = torch.zeros(*batch, 9, width, dtype=torch.float64)
    expected = zero.index_add(-2, i, w * x[..., j, :]).index_add(-2, j, w * x[..., i, :])
    dy = torch.randn_like(expected)
    right = [expected, *torch.autograd.grad(expected, [x, w], dy)]
    for backend in ("native", "segment", "reference"):
        found = collect(graph, Filter(w, x, both_ways=True), backend=backend)
        for one, other in zip([found, *torch.autograd.grad(found, [x, w], dy)], right, strict=True):
            torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
