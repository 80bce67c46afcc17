"""Networks on edges: the C++ kernel against the equation in plain PyTorch, and both against what they promise."""

from dataclasses import dataclass
from math import prod

import pytest
import torch
from torch import nn
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional

from benchmarks.memory import CLEAR, peak_above
from edgewise import Graph, ShapeError
from edgewise.kernels import aggregate_both_ways, edge_network, ends, gaussians, shifted_softplus
from edgewise.kernels.backends.cpu import networks
from edgewise.native import library
from kernels.drawn import disjoint_graphs, number, pick, random_graph

native = pytest.mark.skipif(library is None, reason="built without the C++ kernels")


@dataclass
class Case:
    """A call and its tensors; calling it gives the results that there are."""

    graph: Graph
    options: dict
    modules: nn.ModuleList
    tensors: dict

    def __call__(self):
        first, *maps = self.modules
        given = dict(self.tensors)
        if "edges" in given:
            given["edges"] = (first, given["edges"])
        return [t for t in edge_network(self.graph, maps, **given, **self.options) if t is not None]

    @property
    def leaves(self):
        first, *maps = self.modules
        modules = [*([first] if "edges" in self.tensors else []), *maps]
        return [*self.tensors.values(), *(p for module in modules for p in module.parameters())]

    def to(self, dtype):
        modules = nn.ModuleList(nn.Linear(m.in_features, m.out_features, m.bias is not None) for m in self.modules)
        modules.load_state_dict(self.modules.state_dict())
        tensors = {name: t.detach().to(dtype).requires_grad_() for name, t in self.tensors.items()}
        return Case(self.graph, self.options, modules.to(dtype), tensors)


def case(graph, widths, activation=functional.silu, collected=0, edges=0, ends="ab", scale=False, reach=None):
    """Of float64; widths = those of z_0, z_1, ...; edges = what W_0 reads of an edge; ends = which of a, b exist."""
    sizes = {"receivers": graph.num_receivers, "senders": graph.num_senders}
    chosen = {"receivers": "a" in ends, "senders": "b" in ends}
    tensors = {name: torch.randn(rows, widths[0]) for name, rows in sizes.items() if chosen[name]}
    if edges:
        tensors["edges"] = torch.randn(graph.num_edges, edges) if reach is None else torch.rand(graph.num_edges, 1) * 2
    if scale:
        tensors["scale"] = torch.randn(graph.num_edges, 1)
    modules = [nn.Linear(max(edges, 1), widths[0]), *map(nn.Linear, widths, widths[1:])]
    options = {"activation": activation, "collected": collected, "reach": reach}
    return Case(graph, options, nn.ModuleList(modules), tensors).to(torch.float64)


def with_gradients(call):
    results = call()
    torch.manual_seed(7)
    shares = [torch.randn(y.shape, dtype=torch.float64).to(y.dtype) for y in results]
    found = torch.autograd.grad(results, call.leaves, shares, allow_unused=True, materialize_grads=True)
    return [*results, *found]


def plainly(monkeypatch, call):
    """The same without the kernel."""
    with monkeypatch.context() as patch:
        patch.setattr(networks, "library", None)
        return with_gradients(call)


def drawn():
    graph = pick([lambda: random_graph(number(1, 9), number(1, 9), number(0, 60)), lambda: disjoint_graphs(20)])()
    widths = [pick([1, 3, 4, 8, 9, 16, 33]) for _ in range(number(1, 4))]
    activation = pick([functional.relu, functional.silu, shifted_softplus])
    present = pick(["ab", "a", "b", ""])
    edges = number(0 if present else 2, 5)
    reach = 1.5 if edges > 1 and number(0, 1) else None
    if reach is not None:
        edges = pick([edges, 17, 24, 50])  # few bells are all read, of many only the nearest
    return case(graph, widths, activation, number(0, len(widths)), edges, present, bool(number(0, 1)), reach)


@native
@pytest.mark.parametrize("block", range(10))
def test_the_kernel_is_the_equation_on_random_graphs(monkeypatch, block):
    torch.manual_seed(block)
    for _ in range(20):
        call = drawn()
        for found, expected in zip(with_gradients(call), plainly(monkeypatch, call), strict=True):
            torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-10)


def test_it_is_an_mlp_of_both_ends_and_the_edge():
    graph = random_graph(6, 5, 30)
    call = case(graph, [4, 3, 2], collected=2, edges=3, scale=True)
    first, second, third = call.modules
    a, b, e_ij, s_ij = call.tensors.values()
    a_i, b_j = ends(graph, a, b)
    u_1 = functional.silu(a_i + b_j + first(e_ij))
    u_2 = functional.silu(second(u_1))
    y = torch.zeros(6, 3, dtype=torch.float64).index_add(0, graph.receivers, u_2)
    for found, expected in zip(call(), [y, s_ij * third(u_2)], strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)


def test_a_distance_is_read_as_its_bells():
    graph = random_graph(6, 5, 30)
    call = case(graph, [4, 3], edges=7, ends="", reach=1.5)
    first, second = call.modules
    expected = second(functional.silu(first(gaussians(call.tensors["edges"], 7, 1.5))))
    torch.testing.assert_close(call()[0], expected, rtol=0, atol=1e-12)


@native
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_bells_left_out_are_those_that_nobody_sees(monkeypatch, dtype):
    graph = random_graph(40, 30, 600)
    call = case(graph, [16, 16], shifted_softplus, edges=50, ends="", reach=1.5)
    call.tensors["edges"].data[:4] = torch.tensor([[0.0], [1.5], [40.0], [1e30]])
    truth, call = with_gradients(call)[0], call.to(dtype)
    for found, expected in zip(with_gradients(call), plainly(monkeypatch, call), strict=True):
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-4 if dtype == torch.float32 else 1e-13)
    assert torch.allclose(with_gradients(call)[0].double(), truth, rtol=0, atol=2e-6)
    call.tensors["edges"].data[5] = torch.nan
    assert call()[0].isnan().all(-1).nonzero().flatten().tolist() == [5]


@pytest.mark.parametrize("reach", [None, 1.5])
def test_first_and_second_derivatives(reach):
    call = case(random_graph(4, 3, 9), [3, 2, 1], shifted_softplus, collected=1, edges=2, scale=True, reach=reach)
    assert gradcheck(lambda *_: tuple(call()), call.leaves, fast_mode=True)
    assert gradgradcheck(lambda *_: tuple(call()), call.leaves, fast_mode=True)


@pytest.mark.parametrize("used", [0, 1])
def test_a_result_that_nobody_reads(used):
    call = case(random_graph(4, 3, 9), [3, 2, 1], collected=2, edges=2)
    found = torch.autograd.grad(call()[used].sum(), call.leaves, allow_unused=True, materialize_grads=True)
    unread = found[-2:]  # the last map leads to r alone
    assert all(bool(grad.any()) == bool(used) for grad in unread)
    assert gradcheck(lambda *_: call()[used], call.leaves, fast_mode=True)


@native
def test_float32_is_as_exact_as_plain_pytorch(monkeypatch):
    torch.manual_seed(3)
    exact = case(random_graph(300, 200, 5000), [64, 64, 64, 1], collected=2, edges=4)
    single = exact.to(torch.float32)
    truth = with_gradients(exact)
    for one, other, right in zip(with_gradients(single), plainly(monkeypatch, single), truth, strict=True):
        error, usual = ((t.double() - right).norm() for t in (one, other))
        assert error <= 2 * usual + 4e-7 * right.norm()  # a few units in the last place


@native
@pytest.mark.parametrize("activation", [functional.relu, functional.silu, shifted_softplus])
def test_large_numbers_and_nan(activation):
    graph = Graph.from_edge_index([[0, 1, 2, 3, 4, 5], [0, 1, 2, 3, 4, 5]], num_nodes=6)
    x = torch.tensor([[-1e30], [-200.0], [0.0], [200.0], [1e30], [float("nan")]])
    for dtype in (torch.float32, torch.float64):
        z = x.to(dtype).requires_grad_()
        y, _ = edge_network(graph, [], activation, z, collected=1)
        (slope,) = torch.autograd.grad(y[:5].sum(), z)
        other = z.detach().requires_grad_()
        expected = activation(other)
        (right,) = torch.autograd.grad(expected[:5].sum(), other)
        torch.testing.assert_close(y, expected, equal_nan=True)
        torch.testing.assert_close(slope[:5], right[:5])


@native
def test_threads_and_instruction_sets_change_nothing():
    torch.manual_seed(5)
    call = case(random_graph(3000, 3000, 60_000), [16, 16, 1], collected=2, edges=1).to(torch.float32)
    before, chosen = torch.get_num_threads(), library.instruction_set()
    try:
        found = []
        for count in (1, 2, 4):
            torch.set_num_threads(count)
            found.append(with_gradients(call))
        for name in library.instruction_sets():
            library.use_instruction_set(name)
            for one, other in zip(with_gradients(call), found[0], strict=True):
                torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4 * other.detach().abs().max().item())
    finally:
        torch.set_num_threads(before)
        library.use_instruction_set(chosen)
    assert all(torch.equal(one, other) for again in found[1:] for one, other in zip(again, found[0], strict=True))


@native
@pytest.mark.skipif(not CLEAR.exists(), reason="the system does not reset its high-water mark")
def test_activations_are_never_written_down(monkeypatch):
    call = case(random_graph(500, 500, 60_000), [64, 64, 64, 1], collected=2, edges=1).to(torch.float32)
    fused = peak_above(lambda: with_gradients(call))
    assert fused < 1.6 * 60_000 * 64 * 4 / 2**20 < peak_above(lambda: plainly(monkeypatch, call)) / 4


def test_it_compiles_whole():
    call = case(random_graph(6, 5, 30), [4, 3, 2], collected=2, edges=3)
    expected = with_gradients(call)
    compiled = torch.compile(call.__call__, backend="aot_eager", fullgraph=True)
    results = compiled()
    torch.manual_seed(7)
    grads = torch.autograd.grad(results, call.leaves, [torch.randn_like(y) for y in results])
    for one, other in zip([*results, *grads], expected, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)


def test_a_batch_is_one_call_after_the_other():
    graph = random_graph(6, 5, 30)
    maps, a, b = [nn.Linear(4, 3)], torch.randn(2, 6, 4), torch.randn(2, 5, 4)
    y, r = edge_network(graph, maps, functional.silu, a, b, collected=1)
    for n in range(2):
        y_n, r_n = edge_network(graph, maps, functional.silu, a[n], b[n], collected=1)
        torch.testing.assert_close(y[n], y_n)
        torch.testing.assert_close(r[n], r_n)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"receivers": torch.zeros(4, 3)}, r"receivers of the network are \[4, 3\], but must be \[\*, 3, C\]"),
        ({"senders": torch.zeros(3, 2)}, r"must have one width, not \[2, 3\]"),
        ({"receivers": None, "senders": None}, "must have one width, not none"),
        ({"collected": 3}, "has hidden layers 1 to 2"),
        ({"collected": -1}, "has hidden layers 1 to 2"),
        ({"scale": torch.zeros(2)}, r"scale of the network are \[2\], but must be \[\*, 2, C\]"),
    ],
)
def test_what_does_not_fit_is_refused(change, message):
    graph = Graph.from_edge_index([[0, 1], [2, 2]], num_nodes=3)
    given = {"receivers": torch.zeros(3, 3), "senders": torch.zeros(3, 3)} | change
    with pytest.raises(ShapeError, match=message):
        edge_network(graph, [nn.Linear(3, 2)], functional.silu, **given)


@pytest.mark.parametrize("width", [1, 2, 7, 8, 64, 67])
@pytest.mark.parametrize("batch", [(), (2,)])
def test_weights_serve_both_directions(width, batch):
    torch.manual_seed(width)
    graph = random_graph(9, 9, 40)
    x, w = (torch.randn(*batch, n, width, dtype=torch.float64, requires_grad=True) for n in (9, 40))
    i, j = graph.receivers, graph.senders
    zero = torch.zeros(*batch, 9, width, dtype=torch.float64)
    expected = zero.index_add(-2, i, w * x[..., j, :]).index_add(-2, j, w * x[..., i, :])
    found = aggregate_both_ways(graph, x, w)
    torch.testing.assert_close(found, expected, rtol=0, atol=1e-12)
    dy = torch.randn_like(expected)
    grads = (torch.autograd.grad(y, [x, w], dy) for y in (found, expected))
    for one, other in zip(*grads, strict=True):
        torch.testing.assert_close(one, other, rtol=0, atol=1e-12)
    if prod(batch) * width < 9:
        assert gradgradcheck(lambda *t: aggregate_both_ways(graph, *t), (x, w), fast_mode=True)
